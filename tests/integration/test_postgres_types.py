"""Every value of every type arrives in PostgreSQL as it was, by load and by window, whatever the session's time zone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession, types
from pyspark.sql.types import DecimalType, StructType

from cdf.errors import TargetNotReady, TypeNotSupported
from cdf.sink import Source
from cdf.testing import SampleTable, insert
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import ON_BOTH_PATHS, QueryTable, loaded, opened, people, person, sink_of

ULP = "0." + "0" * 37 + "1"

# name: (type in Delta, type in PostgreSQL, [(value in Spark SQL, text in PostgreSQL)]); the other rows hold NULL.
COLUMNS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "flag": ("boolean", "boolean", [("true", "true"), ("false", "false")]),
    "tiny": ("tinyint", "smallint", [("127", "127"), ("-128", "-128")]),
    "small": ("smallint", "smallint", [("32767", "32767"), ("-32768", "-32768")]),
    "whole": ("int", "integer", [("2147483647", "2147483647"), ("-2147483648", "-2147483648")]),
    "big": (
        "bigint",
        "bigint",
        [("9223372036854775807", "9223372036854775807"), ("'-9223372036854775808'", "-9223372036854775808")],
    ),
    "single": (
        "float",
        "real",
        [("'NaN'", "NaN"), ("'Infinity'", "Infinity"), ("'-Infinity'", "-Infinity"), ("'-0.0'", "-0"),
         ("'0.1'", "0.1"), ("'3.4028235E38'", "3.4028235e+38"), ("'1.4E-45'", "1e-45")],
    ),
    "twice": (
        "double",
        "double precision",
        [("'NaN'", "NaN"), ("'Infinity'", "Infinity"), ("'-Infinity'", "-Infinity"), ("'-0.0'", "-0"),
         ("'5E-324'", "5e-324"), ("'1.7976931348623157E308'", "1.7976931348623157e+308")],
    ),
    "fraction": (
        "decimal(38,38)",
        "numeric(38,38)",
        [(f"'0.{'9' * 38}'", f"0.{'9' * 38}"), (f"'-0.{'9' * 38}'", f"-0.{'9' * 38}"), (f"'{ULP}'", ULP),
         ("'0'", "0." + "0" * 38)],
    ),
    "large": (
        "decimal(38,0)",
        "numeric(38,0)",
        [(f"'{'9' * 38}'", "9" * 38), (f"'-{'9' * 38}'", "-" + "9" * 38), (f"'1{'0' * 36}'", "1" + "0" * 36)],
    ),
    "money": (
        "decimal(18,4)",
        "numeric(18,4)",
        [("'99999999999999.9999'", "99999999999999.9999"), ("'-0.0001'", "-0.0001"), ("'3000000000'", "3000000000.0000")],
    ),
    "words": (
        "string",
        "text",
        [("''", ""), ("'naïve 🦆 漢'", "naïve 🦆 漢"),
         ("'e\u0301 👩\u200d👧 '", "e\u0301 👩\u200d👧 "), (r"'a\nb\t\"c\" \\d'", 'a\nb\t"c" \\d'), ("'null'", "null"),
         (r"'\\N'", "\\N")],
    ),
    "raw": ("binary", "bytea", [("x'00ff00'", "\\x00ff00"), ("x''", "\\x"), ("x'5c78'", "\\x5c78")]),
    "day": (
        "date",
        "date",
        [*((f"date'{day}'", day) for day in ("0001-01-01", "9999-12-31", "1970-01-01", "1582-10-14", "2024-02-29")),
         # Spark's year 0 is 1 BC; the last two are PostgreSQL's first and last
         ("date'-0043-03-15'", "0044-03-15 BC"), ("date'+10000-01-01'", "10000-01-01"),
         ("date'-4713-11-24'", "4714-11-24 BC"), ("date'+5874897-12-31'", "5874897-12-31")],
    ),
    "at": (
        "timestamp",
        "timestamp with time zone",
        # 2024: New York's clocks go from 06:59 UTC to 07:00 by an hour forward, and at 06:00 UTC an hour back.
        [*((f"timestamp'{at}Z'", f"{at}+00") for at in (
            "2024-03-10 06:59:59.999999", "2024-03-10 07:00:00.000001", "2024-11-03 05:30:00", "2024-11-03 06:30:00",
            "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")),
         ("timestamp'-0043-03-15 12:00:00.5Z'", "0044-03-15 12:00:00.5+00 BC"),
         ("timestamp'-4713-11-24 00:00:00Z'", "4714-11-24 00:00:00+00 BC"),
         ("timestamp'+294247-01-10 04:00:54.775806Z'", "294247-01-10 04:00:54.775806+00")],
    ),
    "wall": (
        "timestamp_ntz",
        "timestamp without time zone",
        # The first does not exist in New York, the second exists twice.
        [*((f"timestamp_ntz'{at}'", at) for at in (
            "2024-03-10 02:30:00.123456", "2024-11-03 01:30:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")),
         ("timestamp_ntz'-0043-03-15 12:00:00.5'", "0044-03-15 12:00:00.5 BC"),
         ("timestamp_ntz'-4713-11-24 00:00:00'", "4714-11-24 00:00:00 BC"),
         ("timestamp_ntz'+294247-01-10 04:00:54.775806'", "294247-01-10 04:00:54.775806")],
    ),
    "list": (
        "array<int>", "jsonb", [("array(1, null, 3)", "[1, null, 3]"), ("array()", "[]"), ("array(null)", "[null]")],
    ),
    "parts": (
        "struct<a: int, b: string, at: timestamp, wall: timestamp_ntz, n: decimal(38,2)>",
        "jsonb",
        [("named_struct('a', 1, 'b', null, 'at', timestamp'2024-03-10 07:00:00.000001Z',"
          f" 'wall', timestamp_ntz'2024-03-10 02:30:00.000001', 'n', '{'9' * 36}.10')",
          f'{{"a": 1, "b": null, "n": {"9" * 36}.10, "at": "2024-03-10T07:00:00.000001Z",'
          ' "wall": "2024-03-10T02:30:00.000001"}')],
    ),
    "pairs": (
        "map<string, double>", "jsonb", [("map('k', 1.5D, '', null)", '{"": null, "k": 1.5}'), ("map()", "{}")],
    ),
    "numbered": ("map<bigint, string>", "jsonb", [("map(7L, 'x')", '{"7": "x"}')]),
    "named": (
        "map<string, int>",
        "jsonb",
        [(r"map('quo\"te', 1, 'back\\slash', 2, 'new\nline', 3, 'ä', 4)",
          '{"ä": 4, "quo\\"te": 1, "new\\nline": 3, "back\\\\slash": 2}')],
    ),
    "floats": (
        "array<double>", "jsonb",
        [("array('NaN', 'Infinity', '-Infinity', '-0.0', '1e20', '0.1', '4.9E-324')",
          '["NaN", "Infinity", "-Infinity", 0.0, 100000000000000000000, 0.1, 0.' + "0" * 323 + "49]")],
    ),
    "singles": ("array<float>", "jsonb", [("array('0.1', '16777216')", "[0.1, 16777216]")]),
    "days": (
        "array<date>", "jsonb",
        [("array(date'0001-01-01', date'-0043-03-15', date'+10000-01-01')",
          '["0001-01-01", "-0043-03-15", "+10000-01-01"]')],
    ),
    "raws": ("array<binary>", "jsonb", [("array(x'00ff', x'', null)", '["AP8=", "", null]')]),
    "deep": (
        "array<struct<a: map<string, array<struct<b: decimal(38,38), c: array<int>>>>>>",
        "jsonb",
        [(f"array(named_struct('a', map('k', array(named_struct('b', '{ULP}', 'c', array()), null))), null)",
          f'[{{"a": {{"k": [{{"b": {ULP}, "c": []}}, null]}}}}, null]')],
    ),
    "any": (
        "variant",
        "jsonb",
        [("parse_json('{\"b\": [1, 2.5], \"a\": null}')", '{"a": null, "b": [1, 2.5]}'),
         ("parse_json('null')", "null"), ("parse_json('\"a\"')", '"a"'), ("parse_json('{}')", "{}"),
         ("parse_json('1.10')", "1.1"), (f"parse_json('{'9' * 38}')", "9" * 38), (f"parse_json('{ULP}')", ULP),
         ("to_variant_object(named_struct('t', timestamp'2024-03-10 07:00:00.000001Z',"
          " 'n', timestamp_ntz'2024-03-10 02:30:00.5', 'd', date'2024-02-29', 'x', x'00ff', 'f', double('NaN')))",
          '{"d": "2024-02-29", "f": "NaN", "n": "2024-03-10 02:30:00.5", "t": "2024-03-10 07:00:00.000001+00:00",'
          ' "x": "AP8="}')],
    ),
}  # fmt: skip
if not hasattr(types, "VariantType"):  # Spark 3.5
    del COLUMNS["any"]
ROWS = max(len(values) for _, _, values in COLUMNS.values())
TEXTS = [
    tuple(values[row][1] if row < len(values) else None for _, _, values in COLUMNS.values()) for row in range(ROWS)
]


def query(first_id: int) -> str:
    rows = []
    for row in range(ROWS):
        values = [
            (values[row][0] if kind == "variant" else f"cast({values[row][0]} as {kind})")
            if row < len(values)
            else f"cast(null as {kind})"
            for kind, _, values in COLUMNS.values()
        ]
        rows.append(f"select {first_id + row}L as id, " + ", ".join(map("{} as `{}`".format, values, COLUMNS)))
    return " union all ".join(rows)


@pytest.fixture(params=["America/New_York", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


ODD_SESSION = {
    "timezone": "Australia/Lord_Howe",
    "datestyle": "SQL,DMY",
    "extra_float_digits": "0",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "client_encoding": "latin1",
    "array_nulls": "off",
}
"""What a role or a database may have as its defaults."""


def test_every_type_arrives_as_it_was_by_load_and_by_window(spark: SparkSession, pg: Pg, zone: str) -> None:
    table = QueryTable(spark, query(100))
    settings = quote(" ".join(f"-c {name}={value}" for name, value in ODD_SESSION.items()))
    dsn = f"{pg.dsn}{'&' if '?' in pg.dsn else '?'}options={settings}"
    with opened(pg, table.source(), dsn=dsn) as sink:
        sink.load(table.snapshot(1))
        sink.apply(table.window(2, query(200)))
    with opened(pg, table.source(), dsn=dsn, small_window_bytes=0) as sink:
        sink.apply(table.window(3, query(300)))
    pg.query("set timezone = 'UTC'")
    columns = ", ".join(f'"{name}"::text' for name in COLUMNS)
    for first in (100, 200, 300):
        found = pg.query(f"select {columns} from target where id >= {first} and id < {first + 100} order by id")
        for row, texts in zip(found, TEXTS, strict=True):
            assert dict(zip(COLUMNS, row, strict=True)) == dict(zip(COLUMNS, texts, strict=True)), f"from id {first} on"
    types = dict(pg.query(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = 'target'::regclass and attnum > 1"
    ))  # fmt: skip
    assert types == {name: kind for name, (_, kind, _) in COLUMNS.items()}
    assert pg.query("select count(*) from target where words is null") == [(3 * (ROWS - len(COLUMNS["words"][2])),)]


SCALES = [
    (38, 0),
    (38, 38),
    (38, 37),
    (38, 10),
    (18, 4),
    (18, 3),
    (9, 2),
    (28, 9),
    (20, 1),
    (10, 10),
    (31, 7),
    (38, 19),
]


def some_decimal(chance: random.Random, precision: int, scale: int) -> Decimal:
    digits = chance.randrange(10 ** chance.randint(1, precision))
    if chance.random() < 0.4:  # integer parts that are multiples of 1e9, where ADBC once lost groups of zeros
        digits -= digits % 10 ** min(scale + 9, precision - 1)
    if chance.random() < 0.2:  # trailing zeros inside the fraction
        digits -= digits % 10 ** (scale // 2)
    sign = chance.randrange(2) if digits else 0
    return Decimal((sign, tuple(map(int, str(digits))), -scale))  # exact: no context rounds it to 28 digits


def test_random_decimals_arrive_digit_by_digit(spark: SparkSession, pg: Pg, seed: int) -> None:
    chance = random.Random(seed)
    schema = StructType().add("id", "long")
    for precision, scale in SCALES:
        schema.add(f"d{precision}_{scale}", DecimalType(precision, scale))
    table = SampleTable(spark, schema, ("id",))
    rows = [
        {"id": index, **{f"d{p}_{s}": some_decimal(chance, p, s) for p, s in SCALES}} for index in range(600)
    ]  # fmt: skip
    with loaded(pg, table, rows[:200]) as sink:
        sink.apply(table.window(2, [insert(row) for row in rows[200:400]]))
    with opened(pg, table.source(), small_window_bytes=0) as sink:
        sink.apply(table.window(3, [insert(row) for row in rows[400:]]))
    columns = ", ".join(f"d{p}_{s}::text" for p, s in SCALES)
    found = pg.query(f"select {columns} from target order by id")
    expected = [tuple(format(value, "f") for value in list(row.values())[1:]) for row in rows]
    assert found == expected


ODD_KEY = StructType().add("a", "integer")
REFUSED = (
    StructType()
    .add("id", "long")
    .add("span", types.DayTimeIntervalType())
    .add("months", types.YearMonthIntervalType())
    .add("odd", types.MapType(ODD_KEY, types.StringType()))
    .add("deep", types.ArrayType(StructType().add("m", types.MapType(types.DoubleType(), types.StringType()))))
)


def test_types_without_an_image_are_refused_all_at_once_before_anything_is_written(pg: Pg) -> None:
    source = Source("odd", "id", REFUSED, ("id",), "test")
    problems = sink_of(pg).inspect(source).problems
    assert [problem.split("'")[1] for problem in problems] == ["span", "months", "odd", "deep"]
    with pytest.raises(TargetNotReady) as found:
        sink_of(pg).open(source)
    assert found.value.fields["problems"] == list(problems)
    assert pg.query("select from pg_class where relnamespace = '{schema}'::regnamespace") == []


@ON_BOTH_PATHS
def test_a_column_without_an_image_that_comes_later_is_refused(
    spark: SparkSession, pg: Pg, path: dict[str, int]
) -> None:
    table = people(spark)
    later = table.with_schema(StructType([*table.schema.fields]).add("span", types.DayTimeIntervalType()))
    with loaded(pg, table, [person(1, "a")], **path) as sink:
        with pytest.raises(TypeNotSupported, match="'span'"):
            sink.apply(later.window(2, [insert(person(2, "b"))]))
        sink.apply(table.window(2, [insert(person(2, "b"))]))
    assert pg.query("select * from target order by id") == [(1, "a"), (2, "b")]
