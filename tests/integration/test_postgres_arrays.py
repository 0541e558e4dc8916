"""Arrays as PostgreSQL's own: every element arrives as it was, and ``verify``'s two sides agree on it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, types

from cdf.changes.canonical import ROW_DIGEST, digests
from connectors.postgres.errors import sqlstate_of_task
from connectors.postgres.types import native_type, target_type, wire_list
from connectors.postgres.verify.canonical_sql import array_text, canonical_text
from tests.fixtures.fix_postgres import Pg

ULP = "0." + "0" * 37 + "1"

# element type in Delta: (array type in PostgreSQL, [(element in Spark SQL, the element's text in PostgreSQL)])
ELEMENTS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "boolean": ("boolean[]", [("true", "true"), ("false", "false")]),
    "tinyint": ("smallint[]", [("127", "127"), ("-128", "-128")]),
    "smallint": ("smallint[]", [("32767", "32767"), ("-32768", "-32768")]),
    "int": ("integer[]", [("2147483647", "2147483647"), ("-2147483648", "-2147483648"), ("0", "0")]),
    "bigint": ("bigint[]", [("9223372036854775807", "9223372036854775807"), ("'-9223372036854775808'",
               "-9223372036854775808")]),
    "float": ("real[]", [("'NaN'", "NaN"), ("'-Infinity'", "-Infinity"), ("'-0.0'", "-0"), ("'0.1'", "0.1"),
              ("'3.4028235E38'", "3.4028235e+38"), ("'1.4E-45'", "1e-45"), ("'16777217'", "1.6777216e+07")]),
    "double": ("double precision[]", [("'NaN'", "NaN"), ("'Infinity'", "Infinity"), ("'-0.0'", "-0"),
               ("'4.9E-324'", "5e-324"), ("'1.7976931348623157E308'", "1.7976931348623157e+308"), ("'0.1'", "0.1")]),
    "decimal(38,38)": ("numeric(38,38)[]", [(f"'0.{'9' * 38}'", f"0.{'9' * 38}"), (f"'-{ULP}'", f"-{ULP}"),
                       ("'0'", "0." + "0" * 38)]),
    "decimal(38,0)": ("numeric(38,0)[]", [(f"'{'9' * 38}'", "9" * 38), (f"'-1{'0' * 36}'", "-1" + "0" * 36)]),
    "decimal(18,4)": ("numeric(18,4)[]", [("'3000000000'", "3000000000.0000"), ("'-0.0001'", "-0.0001")]),
    "string": ("text[]", [("''", ""), ("'NULL'", "NULL"), ("'null'", "null"), (r"'a\"b'", 'a"b'), (r"'\\'", "\\"),
               ("','", ","), ("'{}'", "{}"), ("'naïve 🦆 漢 e\u0301'", "naïve 🦆 漢 e\u0301"), (r"'\n\t '", "\n\t "),
               (r"'\\N'", "\\N"), (r"'\\u0041'", "\\u0041"), ("'~'", "~"), ("'1:a'", "1:a"), ("char(1)", "\x01")]),
    "binary": ("bytea[]", [("x''", "\\x"), ("x'00ff00'", "\\x00ff00"), ("unhex(repeat('5c78', 200))",
               "\\x" + "5c78" * 200)]),
    "date": ("date[]", [(f"date'{day}'", day) for day in ("0001-01-01", "9999-12-31", "1582-10-14", "2024-02-29")]),
    "timestamp": ("timestamp with time zone[]", [(f"timestamp'{at}Z'", f"{at}+00") for at in (
        "2024-03-10 06:59:59.999999", "2024-11-03 06:30:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")]),
    "timestamp_ntz": ("timestamp without time zone[]", [(f"timestamp_ntz'{at}'", at) for at in (
        "2024-03-10 02:30:00.123456", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")]),
}  # fmt: skip
NULL = [("null", None)]
KINDS = list(ELEMENTS)


def arrays_of(kind: str) -> list[list[tuple[str, str | None]]]:
    """All elements with nulls around them, each alone, none, and (by the caller) the null array."""
    elements: list[tuple[str, str | None]] = [*ELEMENTS[kind][1]]
    return [NULL + elements + NULL, elements, *([one] for one in elements), NULL, NULL * 2, []]


ROWS = max(len(arrays_of(kind)) for kind in KINDS) + 1


def query() -> str:
    """A row per array; where a type has fewer, and in the last row, the array is null."""
    rows = []
    for row in range(ROWS):
        columns = []
        for number, kind in enumerate(KINDS):
            arrays = arrays_of(kind)
            listed = (
                f"array({', '.join(f'cast({text} as {kind})' for text, _ in arrays[row])})"
                if row < len(arrays)
                else "null"
            )
            columns.append(f"cast({listed} as array<{kind}>) as a{number}")
        rows.append(f"select {row}L as id, {', '.join(columns)}")
    return " union all ".join(rows)


def expected() -> list[tuple[Any, ...]]:
    return [
        tuple(
            [text for _, text in arrays_of(kind)[row]] if row < len(arrays_of(kind)) else None for kind in KINDS
        )
        for row in range(ROWS)
    ]  # fmt: skip


def fields(schema: types.StructType) -> list[types.StructField]:
    return [field for field in schema.fields if isinstance(field.dataType, types.ArrayType)]


def created(pg: Pg, schema: types.StructType) -> None:
    columns = ", ".join(f"{field.name} {native_type(field.dataType)}" for field in fields(schema))
    pg.query(f"create table target (id bigint primary key, {columns})")
    pg.query("set timezone = 'UTC'")


def copied(pg: Pg, spark: SparkSession, statement: str) -> types.StructType:
    """The query's rows in ``target``, as Arrow lists by ADBC."""
    rows = spark.sql(statement)
    created(pg, rows.schema)
    wired = rows.select(
        "id", *(wire_list(field.name, field.dataType).alias(field.name) for field in fields(rows.schema))
    )
    with dbapi.connect(pg.dsn) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest("target", wired.toArrow(), mode="append", db_schema_name=pg.schema)
        connection.commit()
    return rows.schema


def held(pg: Pg) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"a{number}::text[]" for number in range(len(KINDS)))
    return pg.query(f"select {columns} from target order by id")


@pytest.fixture(params=["America/New_York", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_every_element_arrives_as_a_list(spark: SparkSession, pg: Pg, zone: str) -> None:
    copied(pg, spark, query())
    assert held(pg) == expected()
    assert_declared(pg)


def assert_declared(pg: Pg) -> None:
    declared = pg.query(
        "select format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = 'target'::regclass and attnum > 1 order by attnum"
    )
    assert [kind for (kind,) in declared] == [kind for kind, _ in ELEMENTS.values()]


def row_digests(pg: Pg, schema: types.StructType) -> dict[int, str]:
    """What ``compare`` will ask once arrays are wired: a row's digest with its arrays by element."""

    def text(field: types.StructField) -> sql.Composable:
        column, kind = sql.Identifier(field.name), field.dataType
        if isinstance(kind, types.ArrayType):
            return array_text(column, lambda element: canonical_text(element, kind.elementType))
        return canonical_text(column, kind)

    texts = sql.SQL(", ").join(
        sql.SQL("{} as {}").format(text(field), sql.Identifier(f"t{number}"))
        for number, field in enumerate(schema.fields)
    )
    framed = sql.SQL(" || ").join(
        sql.SQL("coalesce(char_length({0})::text || ':' || {0}, '~')").format(sql.Identifier(f"t{number}"))
        for number in range(len(schema.fields))
    )
    statement = sql.SQL("select id, md5({}) from (select id, {} from target offset 0) t").format(framed, texts)
    return dict(pg.connection.execute(statement).fetchall())


def source_digests(spark: SparkSession, statement: str) -> dict[int, str]:
    rows = spark.sql(statement)
    by_element = [field.name for field in fields(rows.schema)]
    made = digests(rows.select("id", *by_element), rows.schema, ["id"], 1, by_element=by_element, show_keys=True)
    return {int(row["key_text"].split(":")[1].rstrip("}")): row[ROW_DIGEST] for row in made.collect()}


def test_both_sides_of_verify_agree_and_see_every_element(spark: SparkSession, pg: Pg, zone: str) -> None:
    schema = copied(pg, spark, query())
    pg.query("set timezone = 'Europe/Berlin'")
    pg.query("set extra_float_digits = 0")
    pg.query("set bytea_output = 'escape'")
    source = source_digests(spark, query())
    assert row_digests(pg, schema) == source
    assert len(set(source.values())) == ROWS
    for number, (kind, elements) in enumerate(ELEMENTS.items()):
        column, array_type = f"a{number}", elements[0]
        pg.query("begin")
        changes = [  # of row 0, which holds all elements: one more, one less, another order, none, null
            f"{column} || array[null]::{array_type}",
            f"{column}[1:array_length({column}, 1) - 1]",
            f"{column}[2:2] || {column}[1:1] || {column}[3:]",
            f"'{{}}'::{array_type}",
            "null",
            f"array[{column}]",
            f"('[0:0]={{NULL}}')::{array_type}",
        ]
        for change in changes:
            pg.query(f"savepoint s; update target set {column} = {change} where id = 0")
            seen = row_digests(pg, schema)
            assert [row for row in source if seen[row] != source[row]] == [0], (kind, change)
            pg.query("rollback to savepoint s")
        pg.query("rollback")


@pytest.mark.parametrize(
    ("change", "of"),
    [("array[0.0]::float8[]", "double"), ("array[0.1::float8 + 1e-17, 0.1::float8 + 2e-17]", "double"),
     (f"array[{ULP}]::numeric(38,38)[]", "decimal(38,38)"), ("array['~']", "string"), ("array['', '']", "string"),
     ("array[null, '']", "string"), ("array['0:0:']", "string")],
)  # fmt: skip
def test_the_smallest_difference_of_an_element_is_seen(spark: SparkSession, pg: Pg, change: str, of: str) -> None:
    values = {
        "double": "array(-0.0D)",
        "decimal(38,38)": "array(cast(0 as decimal(38,38)))",
        "string": "cast(array(null) as array<string>)",
    }
    statement = f"select 1L as id, {values[of]} as a0"
    schema = copied(pg, spark, statement)
    source = source_digests(spark, statement)
    assert row_digests(pg, schema) == source
    pg.query(f"update target set a0 = {change}")
    assert row_digests(pg, schema) != source


def test_only_arrays_of_plain_elements_become_native() -> None:
    nested = [
        types.ArrayType(types.ArrayType(types.IntegerType())),
        types.ArrayType(types.StructType().add("a", "integer")),
        types.ArrayType(types.MapType(types.StringType(), types.StringType())),
        types.ArrayType(types.VariantType()),
        types.MapType(types.StringType(), types.StringType()),
        types.VariantType(),
        types.IntegerType(),
    ]
    assert [native_type(kind) for kind in nested] == [None] * len(nested)
    assert native_type(types.ArrayType(types.DayTimeIntervalType())) is None
    assert target_type(types.ArrayType(types.DayTimeIntervalType())) is None
    assert native_type(types.ArrayType(types.DecimalType(5, 2))) == "numeric(5,2)[]"


BEYOND = {
    "date": ["date_from_unix_date(-2440589)", "date_from_unix_date(-2147483648 + 10957)", "date'+5874898-01-01'"],
    "timestamp": ["timestamp_micros(-9223372036854775807)", "timestamp_micros(-210866803200000001)"],
    "timestamp_ntz": ["cast(timestamp_micros(-9223372036854775807 - 1 + 946684800000000) as timestamp_ntz)"],
}


@pytest.mark.parametrize("value", [value for values in BEYOND.values() for value in values])
def test_a_date_that_postgres_does_not_have_is_refused_and_one_at_its_edge_arrives(
    spark: SparkSession, pg: Pg, value: str
) -> None:
    with pytest.raises(PySparkException) as found:
        copied(pg, spark, f"select 1L as id, array(null, {value}) as a0")
    assert sqlstate_of_task(found.value) == "22008"


def test_dates_at_the_edges_arrive(spark: SparkSession, pg: Pg) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        copied(pg, spark, "select 1L as id, array(date'-4713-11-24', date'+5874897-12-31') as a0, array("
               "timestamp'-4713-11-24 00:00:00Z', timestamp_micros(9223372036854775806)) as a1")  # fmt: skip
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert pg.query("select a0::text[], a1::text[] from target") == [
        (["4714-11-24 BC", "5874897-12-31"], ["4714-11-24 00:00:00+00 BC", "294247-01-10 04:00:54.775806+00"])
    ]


def test_text_that_postgres_cannot_hold_is_refused(spark: SparkSession, pg: Pg) -> None:
    for value in (r"array('a\0b')", "array(cast(x'c328' as string))"):
        with pytest.raises(dbapi.Error) as found:
            copied(pg, spark, f"select 1L as id, {value} as a0")
        assert found.value.sqlstate == "22021"
        pg.query("drop table target")


def test_many_elements_and_long_ones(spark: SparkSession, pg: Pg) -> None:
    statement = (
        "select 1L as id, transform(sequence(1, 100000), i -> cast(i / 7 as double)) as a0,"
        " array(repeat('🦆', 1000000), '') as a1, transform(sequence(1, 3000), i -> cast(i as decimal(38,10))) as a2"
    )
    schema = copied(pg, spark, statement)
    assert row_digests(pg, schema) == source_digests(spark, statement)
    found = pg.query("select a0[100000] = 100000 / 7::float8, char_length(a1[1]), a2[3000]::text from target")
    assert found == [(True, 1_000_000, f"{Decimal(3000):.10f}")]
