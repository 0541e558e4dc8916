"""A value that PostgreSQL cannot hold stops its window before anything is written, and is named by its place alone."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StringType, StructType

from cdf import ChangeFeed, Pipeline
from cdf.errors import RowRejected
from cdf.testing import SampleTable, insert, update
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS, QueryTable, loaded, opened, position, sink_of, tells

CANARY = "xanadu"
SCHEMA = (
    StructType()
    .add("id", "string")
    .add("note", "string")
    .add("inner", StructType().add("text", "string"))
    .add("list", ArrayType(StringType()))
)


def table_of(spark: SparkSession) -> SampleTable:
    return SampleTable(spark, SCHEMA, ("id",), table="notes")


def texts_of(session: SparkSession | None) -> SampleTable:
    """Without the nested columns, whose JSON only Spark writes."""
    return SampleTable(session, StructType().add("id", "string").add("note", "string"), ("id",), table="notes")


TEXTS = {"id": f"{CANARY}-kept", "note": f"{CANARY} before"}
KEPT = {"id": f"{CANARY}-kept", "note": f"{CANARY} before", "inner": {"text": "t"}, "list": ["x"]}
BAD = {
    "note": {"note": f"{CANARY}\0"},
    "inner": {"inner": {"text": f"{CANARY}\\\0"}},
    "list": {"list": ["fine", f"\0{CANARY}"]},
}


def refused_without_a_value(error: RowRejected, *named: str) -> None:
    assert all(name in str(error) for name in named), str(error)
    told = tells(error)
    assert CANARY not in told
    assert error.hint


@ON_BOTH_PATHS
def test_a_value_that_was_mended_within_the_window_stops_nothing(
    spark: SparkSession, pg: Pg, path: dict[str, int], delta_path: str
) -> None:
    spark.sql(
        f"create table delta.`{delta_path}` (id bigint, inside struct<t: string>) using delta"
        " tblproperties (delta.enableChangeDataFeed = true)"
    )
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg, **path), key=["id"], name="p")
    pipeline.run()
    for statement in (
        "insert into {t} select 1, named_struct('t', cast(x'c328' as string)) union all select 2, named_struct('t', 'b')",
        "update {t} set inside = named_struct('t', 'a') where id = 1",
    ):
        spark.sql(statement.replace("{t}", f"delta.`{delta_path}`"))
    assert pipeline.run().windows == 1
    assert pg.query("select id, inside ->> 't' from target order by id") == [(1, "a"), (2, "b")]


@ON_BOTH_PATHS
@pytest.mark.parametrize("column", BAD)
def test_a_nul_stops_the_window_and_is_named_by_column_and_version(
    spark: SparkSession, pg: Pg, path: dict[str, int], column: str
) -> None:
    table = table_of(spark)
    changed = {**KEPT, "note": f"{CANARY} after"}
    bad, repaired = {**KEPT, "id": f"{CANARY}-1", **BAD[column]}, {**KEPT, "id": f"{CANARY}-1"}
    with loaded(pg, table, [KEPT], **path) as sink:
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [update(KEPT, changed)], [insert(bad)]))
        refused_without_a_value(found.value, f"'{column}'", "version 3", "1 row")
        assert pg.query("select note from target") == [(KEPT["note"],)]
        assert position(pg) == 1
        sink.apply(table.window(2, [update(KEPT, changed)], [insert(repaired)]))  # repaired at the source
    assert pg.query("select note from target order by id") == [(KEPT["note"],), (changed["note"],)]
    assert position(pg) == 3


@ON_BOTH_PATHS
def test_text_that_only_looks_like_a_nul_is_kept(spark: SparkSession, pg: Pg, path: dict[str, int]) -> None:
    table = table_of(spark)
    text = "\\u0000 and \\\\u0000"
    row = {"id": "1", "note": text, "inner": {"text": text}, "list": [text]}
    with loaded(pg, table, [{**row, "id": "0"}], **path) as sink:
        sink.apply(table.window(2, [insert(row)]))
    assert pg.query("select note, \"inner\" ->> 'text', list ->> 0 from target") == [(text, text, text)] * 2


@ON_BOTH_PATHS
def test_bytes_that_are_no_utf8_stop_the_window(spark: SparkSession, pg: Pg, path: dict[str, int]) -> None:
    def row(index: int, note: str, inside: str) -> str:
        values = f"named_struct('é', {inside}, 'm', map('k', array({inside}, null))) as inside"
        return f"select {index} as id, {note} as note, {values}"

    fine, bad = f"'{CANARY} �'", f"concat('{CANARY}', cast(x'c328' as string))"
    table = QueryTable(spark, row(1, fine, fine))
    with opened(pg, table.source(), **path) as sink:
        sink.load(table.snapshot(1))
        for column, query in (("note", row(2, bad, fine)), ("inside", row(2, fine, bad))):
            with pytest.raises(RowRejected) as found:
                sink.apply(table.window(2, f"{query} union all {row(3, fine, fine)}"))
            refused_without_a_value(found.value, f"'{column}'", "version 2", "1 row")
            assert pg.query("select id from target") == [(1,)]
            assert position(pg) == 1
        sink.apply(table.window(2, row(2, fine, fine)))
    assert pg.query("select id, inside #>> '{m,k,0}' from target") == [(1, f"{CANARY} �"), (2, f"{CANARY} �")]


NOT_UTF8 = {
    "id": "cast(X'FD' as string), 'n', map('k', 'v')",
    "note": "'bad', cast(X'78616E616475FF' as string), null",
    "inside": "'bad', 'n', map(cast(X'FF' as string), 'v')",
}


@ON_BOTH_PATHS
def test_bytes_of_a_real_feed_that_are_no_utf8_stop_the_window(
    spark: SparkSession, pg: Pg, path: dict[str, int], delta_path: str
) -> None:
    table = Table(spark, delta_path, "id string, note string, inside map<string, string>")
    table.sql("insert into {t} values ('kept', 'é � x', map('�', 'v'))")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg, **path), key=["id"], name="p")
    pipeline.run()
    for version, (column, values) in zip((2, 4, 6), NOT_UTF8.items(), strict=True):
        table.sql(f"insert into {{t}} select {values}")
        with pytest.raises(RowRejected) as found:
            pipeline.run()
        refused_without_a_value(found.value, f"'{column}'", f"version {version}", "1 row")
        assert position(pg) == version - 1
        table.sql("delete from {t} where id <> 'kept'")
        assert pipeline.run().position == version + 1
    assert pg.query("select id, note, inside from target") == [("kept", "é � x", {"�": "v"})]


@ON_BOTH_PATHS
def test_keys_that_are_no_utf8_stay_apart_as_dead_letters(
    spark: SparkSession, pg: Pg, path: dict[str, int], delta_path: str
) -> None:
    table = Table(spark, delta_path, "id string, note string")
    sink = sink_of(pg, modes=Modes(rejects="dead_letter"), **path)
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key=["id"], name="p")
    pipeline.run()
    for key in ("X'FD'", "X'FC'", "X'61'"):
        table.sql(f"insert into {{t}} select cast({key} as string), 'n'")
        pipeline.run()
    assert [(one.column, one.version) for one in sink.dead_letters()] == [("id", 1), ("id", 2)]
    assert pg.query("select id from target") == [("a",)]
    table.sql("delete from {t} where hex(id) = 'FD'")
    pipeline.run()
    assert [one.version for one in sink.dead_letters()] == [2]


def test_a_nul_in_memory_stops_the_window_and_is_named_by_column_and_version(pg: Pg) -> None:
    table, bad = texts_of(None), {"id": f"{CANARY}-1", "note": f"{CANARY}\0"}
    with loaded(pg, table, [TEXTS]) as sink:
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [update(TEXTS, {**TEXTS, "note": "after"})], [insert(bad)]))
        refused_without_a_value(found.value, "'note' at version 3", "1 row")
        assert position(pg) == 1
        assert pg.query("select note from target") == [(f"{CANARY} before",)]
        sink.apply(table.window(2, [], [insert({**bad, "note": "fine"})]))
    assert pg.query("select count(*) from target") == [(2,)]


def test_a_load_names_the_column_and_leaves_nothing(spark: SparkSession, pg: Pg) -> None:
    table = table_of(spark)
    with opened(pg, table.source()) as sink:
        for column, bad in BAD.items():
            with pytest.raises(RowRejected) as found:
                sink.load(table.snapshot(1, [KEPT, {**KEPT, "id": f"{CANARY}-1", **bad}]))
            refused_without_a_value(found.value, f"'{column}'", "1 row")
            assert pg.query("select to_regclass('{schema}.target')") == [(None,)]
            assert position(pg) is None
        sink.load(table.snapshot(1, [KEPT]))
    assert pg.query("select count(*) from target") == [(1,)]


def long_key() -> str:
    """Longer than an index entry may be, and random, so that it cannot be compressed below."""
    return CANARY + "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789", k=9000))


@ON_BOTH_PATHS
def test_a_key_longer_than_an_index_entry_is_refused(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = texts_of(session)
    with loaded(pg, table, [TEXTS], **path) as sink:
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [insert({**TEXTS, "id": long_key()})]))
        refused_without_a_value(found.value, "2,704 bytes")
        assert "key" in str(found.value.hint)
        assert pg.query("select count(*) from target") == [(1,)]
        assert position(pg) == 1


def test_a_load_with_a_key_longer_than_an_index_entry_is_refused(session: SparkSession | None, pg: Pg) -> None:
    table = texts_of(session)
    with opened(pg, table.source()) as sink, pytest.raises(RowRejected) as found:
        sink.load(table.snapshot(1, [{**TEXTS, "id": long_key()}]))
    refused_without_a_value(found.value, "2,704 bytes")
    assert pg.query("select to_regclass('{schema}.target')") == [(None,)]


@ON_BOTH_PATHS
def test_a_row_that_the_target_refuses_is_named_by_its_constraint(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = texts_of(session)
    with loaded(pg, table, [TEXTS], **path) as sink:
        pg.query(f"alter table target add constraint no_{CANARY[:2]} check (note <> '{CANARY} forbidden')")
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [update(TEXTS, {**TEXTS, "note": f"{CANARY} forbidden"})]))
        refused_without_a_value(found.value, "no_xa")
        assert position(pg) == 1
