"""Where types end: what Delta itself refuses, what PostgreSQL has no room for, and the largest values of both."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.changes.canonical import ROW_DIGEST, digests
from cdf.errors import RowRejected, TargetNotReady, TypeNotSupported
from cdf.testing import SampleTable, insert, update
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS, QueryTable, opened, position, sink_of

TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


# ── what Delta refuses ───────────────────────────────────────────────────────────────────────────────────────────────

NOT_IN_DELTA = [
    "interval", "interval day to second", "interval year to month", "array<interval day to second>", "time", "time(3)",
    "geometry(4326)", "geography(4326)", "array<geometry(4326)>", "string collate UTF8_LCASE", "char(5) collate UTF8_LCASE",
    "map<string, string collate UNICODE_CI>", "array<void>", "map<string, void>", "struct<a: void>", "timestamp_ntz(9)",
]  # fmt: skip


@pytest.mark.parametrize("kind", NOT_IN_DELTA)
def test_delta_itself_has_no_such_column(spark: SparkSession, delta_path: str, kind: str) -> None:
    """The reason for having no image of these. A new Delta that takes one fails here: then it needs an image."""
    with pytest.raises(PySparkException):
        Table(spark, delta_path, f"id long, v {kind}").sql("insert into {t} (id) values (1)")


@pytest.fixture
def unchecked(spark: SparkSession) -> Iterator[None]:
    """Delta with the check of types switched off, for tables such as other writers can have made."""
    spark.conf.set(TYPE_CHECK, "false")
    yield
    spark.conf.unset(TYPE_CHECK)


def pipeline_of(spark: SparkSession, pg: Pg, path: str, key: str = "id") -> Pipeline:
    return Pipeline(ChangeFeed(spark, path), sink_of(pg), key=[key], name="p")


def test_columns_that_were_smuggled_past_delta_are_refused_by_name(
    spark: SparkSession, pg: Pg, delta_path: str, unchecked: None
) -> None:
    columns = {"span": "interval day to second", "months": "interval year to month", "nothing": "void",
               "spans": "array<interval day>", "fine": "int"}  # fmt: skip
    Table(spark, delta_path, "id long, " + ", ".join(f"{name} {kind}" for name, kind in columns.items()))
    with pytest.raises(TargetNotReady) as found:
        pipeline_of(spark, pg, delta_path).run()
    named = [problem.split("'")[1] for problem in found.value.fields["problems"]]
    assert sorted(named) == ["months", "nothing", "span", "spans"]
    assert pg.query("select from pg_class where relnamespace = '{schema}'::regnamespace") == []


def test_text_with_a_collation_arrives_as_it_is_but_is_no_key(
    spark: SparkSession, pg: Pg, delta_path: str, unchecked: None
) -> None:
    table = Table(
        spark, delta_path, "id long, v string collate UTF8_LCASE, w string, n struct<t: string collate UNICODE>"
    )
    table.sql(
        "insert into {t} values (1, 'A', 'x', named_struct('t', 'B')), (2, 'a', 'x', null), (3, null, null, null)"
    )
    pipeline = pipeline_of(spark, pg, delta_path)
    pipeline.run()
    table.sql("update {t} set v = 'ä Ä' where id = 3")
    pipeline.run()
    assert pg.query("select id, v, n ->> 't' from target order by id") == [
        (1, "A", "B"),
        (2, "a", None),
        (3, "ä Ä", None),
    ]
    with pytest.raises(TypeNotSupported, match="'v' has a collation"):
        pipeline_of(spark, pg, delta_path, key="v").run()


@pytest.mark.xfail(strict=True, reason="the Arrow UDFs that render floats and JSON refuse rows with a collated column")
@pytest.mark.parametrize(
    ("column", "value"), [("d double", "1"), ("n struct<t: string collate UNICODE>", "named_struct('t', 'B')")]
)
def test_verify_reads_text_with_a_collation(
    spark: SparkSession, pg: Pg, delta_path: str, unchecked: None, column: str, value: str
) -> None:
    table = Table(spark, delta_path, f"id long, v string collate UTF8_LCASE, {column}")
    table.sql(f"insert into {{t}} values (1, 'A', {value})", f"insert into {{t}} values (2, 'a', {value})")
    pipeline = pipeline_of(spark, pg, delta_path)
    pipeline.run()
    assert pipeline.verify().equal
    pg.query("update target set v = 'a' where id = 1")
    assert pipeline.verify().different == 1


# ── what PostgreSQL refuses ──────────────────────────────────────────────────────────────────────────────────────────

# PostgreSQL's calendar begins on 4714-11-24 BC. Days and microseconds are stored from 2000 on, and the two ends of their
# numbers mean infinity; what is beyond ADBC's own limits it reports like a lost connection.
BEYOND = {
    "date": ["date_from_unix_date(-2440589)", "date'+5874898-01-01'", "date_from_unix_date(-2147483648)",
             "date_from_unix_date(-2147483648 + 10956)", "date_from_unix_date(-2147483648 + 10957)"],
    "timestamp": ["timestamp_micros(-210866803200000001)", "timestamp_micros(-9223372036854775807 - 1)",
                  "timestamp_micros(-9223372036854775807 - 1 + 946684800000000)", "timestamp_micros(9223372036854775807)"],
    "timestamp_ntz": ["cast(timestamp_micros(-210866803200000001) as timestamp_ntz)",
                      "cast(timestamp_micros(-9223372036854775807 - 1 + 946684800000000) as timestamp_ntz)"],
}  # fmt: skip
EMPTY = "select 1L as id, cast(null as {0}) as v where false"


@ON_BOTH_PATHS
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BEYOND.items() for value in values])
def test_a_date_or_time_outside_the_calendar_is_refused_not_turned_into_another(
    spark: SparkSession, pg: Pg, utc: None, path: dict[str, int], kind: str, value: str
) -> None:
    table = QueryTable(spark, EMPTY.format(kind))
    with opened(pg, table.source(), **path) as sink:
        sink.load(table.snapshot(1))
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, f"select 7L as id, {value} as v"))
        assert found.value.condition == "22008"
        assert not found.value.transient
        assert (pg.query("select * from target"), position(pg)) == ([], 1)
        sink.apply(table.window(2, f"select 7L as id, cast(null as {kind}) as v"))
    assert pg.query("select * from target") == [(7, None)]


def test_an_initial_copy_with_such_a_date_is_refused(spark: SparkSession, pg: Pg) -> None:
    table = QueryTable(spark, "select 1L as id, date_from_unix_date(-2147483648 + 10957) as v")
    with opened(pg, table.source()) as sink, pytest.raises(RowRejected):
        sink.load(table.snapshot(1))
    assert position(pg) is None


@ON_BOTH_PATHS
def test_the_column_and_version_of_such_a_date_are_named(spark: SparkSession, pg: Pg, path: dict[str, int]) -> None:
    table = QueryTable(spark, EMPTY.format("date"))
    with opened(pg, table.source(), **path) as sink:
        sink.load(table.snapshot(1))
        with pytest.raises(RowRejected, match="column 'v' at version 2 holds a date or time outside"):
            sink.apply(table.window(2, "select 7L as id, date_from_unix_date(-2440589) as v"))


@ON_BOTH_PATHS
def test_one_that_is_superseded_in_its_window_is_no_hindrance(
    spark: SparkSession, pg: Pg, path: dict[str, int]
) -> None:
    table = SampleTable(spark, StructType().add("id", "long").add("v", "date"), ("id",))
    fine, bad = {"id": 1, "v": dt.date(2024, 1, 1)}, {"id": 1, "v": None}
    with opened(pg, table.source(), **path) as sink:
        sink.load(table.snapshot(1, []))
        window = table.window(2, [insert(bad)], [update(bad, fine)])

        def read() -> DataFrame:
            rows = window.read()
            return rows.withColumn("v", sf.expr("coalesce(v, date_from_unix_date(-2440589))"))

        sink.apply(dataclasses.replace(window, read=read))
    assert pg.query("select * from target") == [(1, dt.date(2024, 1, 1))]


def agrees(spark: SparkSession, pg: Pg, value: str) -> bool:
    """Whether ``verify``'s two sides give one digest to the value after it has travelled."""
    statement = f"select 1L as id, {value} as v"
    table = QueryTable(spark, statement)
    with opened(pg, table.source()) as sink:
        sink.load(table.snapshot(1))
        with sink.image(table.source()) as image:
            ((_, there, _),) = [(row.key, row.row, row.shown) for row in image.rows(1, [0], show_keys=False)]
    row = digests(spark.sql(statement), table.schema, ["id"], 1).first()
    assert row is not None
    return bool(there == row[ROW_DIGEST])


@pytest.mark.parametrize(
    "value",
    ["date'-4713-11-24'", "date'+5874897-12-31'", "timestamp'-4713-11-24 00:00:00Z'",
     "timestamp_micros(9223372036854775806)", "timestamp_ntz'0001-01-01 00:00:00'",
     "timestamp_ntz'9999-12-31 23:59:59.999999'"],
)  # fmt: skip
def test_verify_agrees_on_dates_and_times_at_the_edges(spark: SparkSession, pg: Pg, utc: None, value: str) -> None:
    assert agrees(spark, pg, value)


@pytest.mark.xfail(strict=True, reason="both sides print years before 1 and after 9999 in their own way")
@pytest.mark.parametrize("value", ["timestamp_ntz'-0043-03-15 12:00:00'", "timestamp_ntz'+10000-01-01 00:00:00'"])
def test_verify_agrees_on_a_wall_clock_of_any_year(spark: SparkSession, pg: Pg, value: str) -> None:
    assert agrees(spark, pg, value)


@ON_BOTH_PATHS
def test_days_that_the_old_calendar_skipped_come_through_the_feed(
    spark: SparkSession, pg: Pg, delta_path: str, utc: None, path: dict[str, int]
) -> None:
    table = Table(spark, delta_path, "id long, d date, t timestamp, w timestamp_ntz, a array<date>")
    days = ["1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14", "1582-10-15"]
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg, **path), key=["id"], name="p")
    pipeline.run()
    values = ", ".join(f"({n}, date'{day}', timestamp'{day} 00:00:00Z', timestamp_ntz'{day}', array(date'{day}'))"
                       for n, day in enumerate(days))  # fmt: skip
    table.sql(f"insert into {{t}} values {values}")
    pipeline.run()
    pg.query("set timezone = 'UTC'")
    found = pg.query("select d::text, t::text, w::text, a ->> 0 from target order by id")
    assert found == [(day, f"{day} 00:00:00+00", f"{day} 00:00:00", day) for day in days]


# ── the largest ──────────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_values_of_many_megabytes_arrive_whole(spark: SparkSession, pg: Pg, path: dict[str, int]) -> None:
    large = {
        "raw": "unhex(repeat('00ff5c0a', 4194304))",
        "words": "repeat('🦆é\\n', 500000)",
        "list": "array(repeat('漢', 1000000), '')",
        "numbers": "sequence(1, 50000)",
    }
    statement = "select {}L as id, " + ", ".join(f"{value} as {name}" for name, value in large.items())
    table = QueryTable(spark, statement.format(1))
    with opened(pg, table.source(), **path) as sink:
        sink.load(table.snapshot(1))
        sink.apply(table.window(2, statement.format(2)))
        found = pg.query(
            "select octet_length(raw), md5(raw) = md5(decode(repeat('00ff5c0a', 4194304), 'hex')),"
            " words = repeat(E'🦆é\\n', 500000), list = jsonb_build_array(repeat('漢', 1000000), ''),"
            " numbers = (select jsonb_agg(n) from generate_series(1, 50000) n) from target"
        )
        assert found == [(16 * 2**20, True, True, True, True)] * 2
        rows = spark.sql(f"{statement.format(1)} union all {statement.format(2)}")
        with sink.image(table.source()) as image:
            there = {row.row for row in image.rows(1, [0], show_keys=False)}
    assert there == {row[ROW_DIGEST] for row in digests(rows, table.schema, ["id"], 1).collect()}


def test_char_and_varchar_keep_their_blanks_in_copy_and_feed(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, c char(5), v varchar(5), n struct<c: char(3)>")
    table.sql("insert into {t} values (1, 'ab', 'ab ', named_struct('c', 'x')), (2, '🦆', '🦆é漢ab', null)")
    pipeline = pipeline_of(spark, pg, delta_path)
    pipeline.run()
    table.sql("insert into {t} values (3, '', '', named_struct('c', 'é'))", "update {t} set c = 'abc' where id = 2")
    pipeline.run()
    assert pg.query("select id, c, v, n ->> 'c' from target order by id") == [
        (1, "ab   ", "ab ", "x  "), (2, "abc  ", "🦆é漢ab", None), (3, "     ", "", "é  ")
    ]  # fmt: skip
    assert pipeline.verify().equal
    declared = pg.query("select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'target'::regclass"
                        " and attname in ('c', 'v')")  # fmt: skip
    assert declared == [("text",)] * 2
