"""Values in columns of types that were there first: each as it is, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import RowRejected, VerificationError
from cdf.pipeline.move_position import make_move, plan_move
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import (
    ON_BOTH_PATHS,
    QueryTable,
    opened,
    position,
    sink_of,
    tells,
)


@dataclass(frozen=True)
class Case:
    """A column of the source, the target's type for it, and values: those that fit, as PostgreSQL prints them there, and
    those that do not."""

    source: str
    target: str
    fit: Sequence[tuple[str, str | None]]
    misfits: Sequence[str] = ()


CASES = {
    "int_small": Case(
        "int",
        "smallint",
        [("32767", "32767"), ("-32768", "-32768"), ("null", None)],
        ["32768", "-32769", "2147483647"],
    ),
    "int_big": Case("int", "bigint", [("2147483647", "2147483647"), ("-2147483648", "-2147483648")]),
    "int_numeric": Case(
        "int", "numeric(4,1)", [("999", "999.0"), ("-999", "-999.0")], ["1000", "-1000", "2147483647"]
    ),
    "int_wide": Case("int", "numeric(12,2)", [("2147483647", "2147483647.00")]),
    "int_double": Case("int", "double precision", [("2147483647", "2147483647"), ("-1", "-1")]),
    "long_int": Case(
        "bigint",
        "integer",
        [("2147483647", "2147483647"), ("-2147483648", "-2147483648")],
        ["2147483648", "-2147483649", "9223372036854775807"],
    ),
    "long_double": Case(
        "bigint",
        "double precision",
        [("9007199254740992", "9.007199254740992e+15"), ("-9007199254740992", "-9.007199254740992e+15")],
        ["9007199254740993", "-9007199254740993", "9223372036854775807"],
    ),
    "long_numeric": Case("bigint", "numeric", [("-9223372036854775807 - 1", "-9223372036854775808")]),
    "dec_int": Case(
        "decimal(12,2)",
        "integer",
        [("2147483647", "2147483647"), ("-2147483648.00", "-2147483648")],
        ["2147483648", "-2147483648.01", "1.5", "0.01"],
    ),
    "dec_scale": Case(
        "decimal(10,2)", "numeric(10,1)", [("99999999.90", "99999999.9"), ("-1.5", "-1.5")], ["0.05", "-1.25"]
    ),
    "dec_whole": Case(
        "decimal(10,2)", "numeric(6,3)", [("999.99", "999.990"), ("-999.99", "-999.990")], ["1000", "-1000.01"]
    ),
    "dec_tens": Case("decimal(10,2)", "numeric(5,-1)", [("999990", "999990"), ("-10", "-10")], ["5", "1000000", "10.1"]),
    "dec_wide": Case("decimal(10,2)", "numeric(38,18)", [("-99999999.99", "-99999999.990000000000000000")]),
    "dec_free": Case("decimal(10,2)", "numeric", [("99999999.99", "99999999.99"), ("0", "0.00")]),
    "double_real": Case(
        "double",
        "real",
        [
            ("0.5D", "0.5"),
            ("-0.0D", "-0"),
            ("double('NaN')", "NaN"),
            ("double('Infinity')", "Infinity"),
            ("double('-Infinity')", "-Infinity"),
            ("3.4028234663852886E38D", "3.4028235e+38"),
            ("1.401298464324817E-45D", "1e-45"),
        ],
        ["0.1D", "3.4028234663852887E39D", "-3.4028235677973366E38D", "1E-46D", "-4.9E-324D", "1.7976931348623157E308D"],
    ),
    "float_double": Case("float", "double precision", [("float('0.1')", "0.10000000149011612"), ("float('NaN')", "NaN")]),
    "text_varchar": Case(
        "string",
        "varchar(4)",
        [("'abcd'", "abcd"), ("'äöü🦆'", "äöü🦆"), ("'ab  '", "ab  "), ("''", "")],
        ["'abcde'", "'abcd '"],
    ),
    "text_free": Case("string", "varchar", [("repeat('x', 300)", "x" * 300)]),
    "text_char": Case("string", "char(4)", [("'abcd'", "abcd"), ("'ab'", "ab")], ["'abcde'", "'ab '", "'abcd '"]),
    "text_uuid": Case(
        "string",
        "uuid",
        [("'0123abcd-0000-4000-8000-00000000000f'", "0123abcd-0000-4000-8000-00000000000f")],
        ["'0123ABCD-0000-4000-8000-00000000000f'", "'0123abcd00004000800000000000000f'", "'none'", "''"],
    ),
    "text_enum": Case("string", "{schema}.mood", [("'sad'", "sad"), ("'50% {}'", "50% {}")], ["'glad'", "'Sad'", "''"]),
    "text_domain": Case("string", "{schema}.short", [("'abc'", "abc")], ["'abcd'"]),
    "json_json": Case("struct<b: int, a: string>", "json", [("named_struct('b', 1, 'a', 'x')", '{"a": "x", "b": 1}')]),
    "json_text": Case("array<int>", "text", [("array(1, null)", "[1, null]")]),
    "date_time": Case(
        "date",
        "timestamp",
        [("date'2024-02-29'", "2024-02-29 00:00:00"), ("date'9999-12-31'", "9999-12-31 00:00:00")],
    ),
    "at_wall": Case("timestamp", "timestamp", [("timestamp'2024-03-10 02:30:00.123456Z'", "2024-03-10 02:30:00.123456")]),
    "at_millis": Case(
        "timestamp",
        "timestamptz(3)",
        [("timestamp'2024-03-10 02:30:00.123Z'", "2024-03-10 02:30:00.123+00")],
        ["timestamp'2024-03-10 02:30:00.1234Z'", "timestamp'2024-03-10 02:30:00.123999Z'"],
    ),
    "at_wall_seconds": Case(
        "timestamp",
        "timestamp(0)",
        [("timestamp'2024-03-10 02:30:01Z'", "2024-03-10 02:30:01")],
        ["timestamp'2024-03-10 02:30:00.5Z'"],
    ),
    "wall_micros": Case(
        "timestamp_ntz", "timestamp(6)", [("timestamp_ntz'2024-03-10 02:30:00.000001'", "2024-03-10 02:30:00.000001")]
    ),
}  # fmt: skip
MOST = max(len(case.fit) for case in CASES.values())


def fitting(first: int, last: int) -> str:
    """A query: the rows ``first`` to ``last`` of values that fit."""
    return rows_of(
        {n: {name: case.fit[n % len(case.fit)][0] for name, case in CASES.items()} for n in range(first, last)}
    )


def misfitting() -> str:
    """Rows after those, with every value that does not fit once."""
    most = max(len(case.misfits) for case in CASES.values())
    return rows_of(
        {
            MOST + n: {
                name: case.misfits[n] if n < len(case.misfits) else case.fit[0][0] for name, case in CASES.items()
            }
            for n in range(most)
        }
    )


def rows_of(rows: dict[int, dict[str, str]]) -> str:
    selects = [
        f"select {n}L as id, "
        + ", ".join(f"cast({value} as {CASES[name].source}) as {name}" for name, value in row.items())
        for n, row in rows.items()
    ]
    return " union all ".join(selects)


REFUSED = ", ".join(f"'{name}' ({len(case.misfits)} rows)" for name, case in CASES.items() if case.misfits)


@pytest.fixture
def typed(pg: Pg) -> None:
    """An empty target with all those types."""
    pg.query("set time zone 'UTC'")
    pg.query("create type mood as enum ('sad', '50% {}')")
    pg.query("create domain short as varchar(3) check (value <> 'no')")
    columns = ", ".join(f"{name} {case.target}" for name, case in CASES.items())
    pg.query(f"create table target (id bigint primary key, {columns})")


def texts(pg: Pg, table: str = "target") -> dict[int, dict[str, str | None]]:
    """What PostgreSQL prints of each row."""
    columns = ", ".join(f"{name}::text" for name in CASES)
    return {row[0]: dict(zip(CASES, row[1:], strict=True)) for row in pg.query(f"select id, {columns} from {table}")}


EXPECTED = {n: {name: case.fit[n % len(case.fit)][1] for name, case in CASES.items()} for n in range(MOST)}


def check(pg: Pg, rows: Sequence[int], *, first: int = 0) -> None:
    """These rows of values that fit are there, under the keys from ``first`` on, every value as it should be."""
    found, expected = texts(pg), {first + n: EXPECTED[row] for n, row in enumerate(rows)}
    assert found.keys() == expected.keys()
    wrong = [(n, c, text, expected[n][c]) for n in found for c, text in found[n].items() if text != expected[n][c]]
    assert wrong == []


@pytest.fixture(scope="module")
def all_types(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Delta table: versions 1 and 2 bring what fits, 3 what does not, which 4 takes back; 5 gives row 1 the values of row
    2 and deletes row 0."""
    columns = ", ".join(f"{name} {case.source}" for name, case in CASES.items())
    table = Table(spark, str(tmp_path_factory.mktemp("existing") / "table"), f"id bigint, {columns}")
    table.sql(
        *(f"insert into {{t}} {query}" for query in (fitting(0, 3), fitting(3, MOST), misfitting())),
        "restore {t} to version as of 2",
        f"merge into {{t}} s using (select * except (id), cast(1 as bigint) as id from ({fitting(2, 3)})"
        f" union all select * except (id), 0L from ({fitting(0, 1)})) c on s.id = c.id"
        " when matched and s.id = 0 then delete when matched then update set *",
    )
    return table.path


def pipeline_of(spark: SparkSession, pg: Pg, path: str, **options: object) -> Pipeline:
    return Pipeline(ChangeFeed(spark, path), sink_of(pg, **options), key=("id",), name="test", start=1)


TYPES = (
    "select 'target'::regclass::oid, array_agg(format_type(atttypid, atttypmod) order by attnum) from pg_attribute "
    "where attrelid = 'target'::regclass and attnum > 0"
)


@ON_BOTH_PATHS
def test_values_are_cast_where_nothing_of_them_is_lost(
    spark: SparkSession, pg: Pg, typed: None, all_types: str, path: dict[str, int]
) -> None:
    pipeline = pipeline_of(spark, pg, all_types, **path)
    before = pg.query(TYPES)
    pipeline.run(until=1)
    check(pg, range(3))
    pipeline.run(until=2)
    check(pg, range(MOST))
    assert (found := pipeline.verify()).equal, found
    with pytest.raises(RowRejected) as refused:
        pipeline.run(until=3)
    assert f"do not fit into the columns of {pg.schema}.target: {REFUSED}" in refused.value.message
    assert position(pg) == 2
    check(pg, range(MOST))
    pipeline.run()
    check(pg, [2, *range(2, MOST)], first=1)
    assert pipeline.verify().equal
    assert pg.query(TYPES) == before


def test_a_copy_that_does_not_fit_is_refused_and_leaves_nothing(spark: SparkSession, pg: Pg, typed: None) -> None:
    table = QueryTable(spark, misfitting())
    with opened(pg, table.source()) as sink, pytest.raises(RowRejected) as refused:
        sink.load(table.snapshot(1))
    assert f"do not fit into the columns of {pg.schema}.target: {REFUSED}" in refused.value.message
    assert "glad" not in tells(refused.value)
    assert (texts(pg), position(pg)) == ({}, None)


def test_a_filled_table_is_taken_over_and_made_anew_with_its_types(
    spark: SparkSession, pg: Pg, typed: None, all_types: str
) -> None:
    pipeline_of(spark, pg, all_types, table="first").run(until=2)
    copied = ", ".join(
        f"{name}::{case.target.replace('{schema}', pg.schema)}"
        if not name.startswith("at_wall")
        else f"{name} at time zone 'UTC'"
        for name, case in CASES.items()
    )
    pg.query(f"insert into target select id, {copied} from first")
    check(pg, range(MOST))
    before = pg.query(TYPES)
    pipeline = pipeline_of(spark, pg, all_types)
    pg.query("update target set dec_free = dec_free + 0.001 where id = 0")
    with pytest.raises(VerificationError, match="1 different"):
        plan_move(pipeline.context, "adopt", 2)
    pg.query("update target set dec_free = dec_free - 0.001 where id = 0")
    move = plan_move(pipeline.context, "adopt", 2)
    assert move.compared_rows == MOST
    make_move(pipeline.sink, move)
    pipeline.run()
    check(pg, [2, *range(2, MOST)], first=1)
    pg.query("update target set int_small = 7, text_char = 'no', dec_wide = 0 where id = 1")
    pg.query("delete from target where id = 2")
    pg.query("insert into target (id) values (99)")
    assert not pipeline.verify().equal
    pipeline.reload()
    check(pg, [2, *range(2, MOST)], first=1)
    assert pipeline.verify().equal
    assert pg.query(TYPES) == before


STRANGERS = {
    "int_big": "2147483648",
    "int_wide": "1.01",
    "int_double": "'NaN'",
    "long_double": "0.5",
    "long_numeric": "9223372036854775808",
    "dec_free": "0.001",
    "dec_wide": "'NaN'",
    "float_double": "0.1",
    "text_varchar": "''",
    "date_time": "'2024-02-29 00:00:01'",
    "at_wall": "'2024-03-10 02:30:00.123457'",
    "json_json": '\'{"a": "x"}\'',
}
"""Values that a column of the target can hold and the source's cannot, or that differ by little."""


def test_verify_sees_what_the_way_back_would_hide(spark: SparkSession, pg: Pg, typed: None, all_types: str) -> None:
    pipeline = pipeline_of(spark, pg, all_types)
    pipeline.run(until=2)
    pg.query("create table kept as select * from target")
    damages = list(STRANGERS.items())
    for some in (damages[:MOST], damages[MOST:]):
        for row, (column, value) in enumerate(some):
            pg.query(f"update target set {column} = {value} where id = {row}")
        found = pipeline.verify(show_keys=True)
        assert {one.key for one in found.examples} == {f'{{"id":{row}}}' for row in range(len(some))}
        assert (found.different, found.missing, found.extra) == (len(some), 0, 0)
        pg.query("delete from target")
        pg.query("insert into target select * from kept")
    assert pipeline.verify().equal


KEYS = [
    ("bigint", "integer", "{n}L", "2147483648L"),
    ("int", "numeric(12,2)", "{n}", None),
    ("bigint", "double precision", "9007199254740988L + {n}", "9007199254740993L"),
    ("decimal(12,2)", "bigint", "{n}", "0.5BD"),
    ("string", "uuid", "'0123abcd-0000-4000-8000-00000000000{n}'", "'0123ABCD-0000-4000-8000-000000000001'"),
    ("string", "varchar(3)", "'é {n}'", "'abcd'"),
    ("string", "char(3)", "'a{n}'", "'a '"),
    ("string", "{schema}.digit", "'{n}'", "'1 '"),
    ("date", "timestamp", "date'2024-01-0{n}'", None),
    ("timestamp", "timestamp(3)", "timestamp'2024-01-01 00:00:00.00{n}Z'", "timestamp'2024-01-01 00:00:00.0001Z'"),
]


@ON_BOTH_PATHS
@pytest.mark.parametrize(("source", "kind", "value", "misfit"), KEYS, ids=[f"{one[0]}-{one[1]}" for one in KEYS])
def test_keys_of_another_type_find_their_rows(
    spark: SparkSession, pg: Pg, source: str, kind: str, value: str, misfit: str | None, path: dict[str, int]
) -> None:
    pg.query("create type digit as enum ('0', '1', '2', '3')")
    pg.query(f"create table target (id {kind} primary key, name text)")

    def query(**rows: str) -> str:
        return " union all ".join(
            f"select cast({value.format(n=name[1])} as {source}) as id, '{text}' as name" for name, text in rows.items()
        )

    table = QueryTable(spark, query(k1="a", k2="b"))
    with opened(pg, table.source(), conflicts="report", **path) as sink:
        sink.load(table.snapshot(1))
        met = sink.apply(table.window(2, query(k2="bb", k3="c")))
        assert (met.conflicts.insert_met_row, met.inserts) == (1, 2)
        assert pg.query("select name from target order by id") == [("a",), ("bb",), ("c",)]
        deleted = table.window(3, query(k1="a"))
        feed = deleted.read
        object.__setattr__(deleted, "read", lambda: feed().replace("insert", "delete", "_change_type"))
        assert sink.apply(deleted).conflicts.total == 0
        assert pg.query("select name from target order by id") == [("bb",), ("c",)]
        if misfit is not None:
            with pytest.raises(RowRejected, match=r"'id' \(1 rows\)"):
                sink.apply(table.window(4, f"select cast({misfit} as {source}) as id, 'x' as name"))
            assert pg.query("select count(*) from target") == [(2,)]
