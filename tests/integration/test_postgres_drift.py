"""The source's columns change between two windows: the target goes along, in the transaction of the window's rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from cdf.errors import SchemaDrift
from cdf.pipeline.follow import Following
from cdf.results import Step
from cdf.sink import DeadLetterStore
from connectors.postgres.column_mapping import Columns
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.drift_case import MAPPED, WIDENING, Replica, replica, replicated

ADDED = "alter table {t} add columns (w int)"


def overwrite(table: Table, query: str, *, partition: str | None = None) -> None:
    writer = table.spark.sql(query).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    (writer.partitionBy(partition) if partition else writer).save(table.path)


def test_an_added_column_comes_with_its_first_window(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    made = replicated(spark, pg, Table(spark, delta_path), "(1, 'a')", "(2, 'b')")
    made.table.sql(ADDED, "insert into {t} values (3, 'c', 30)", "update {t} set w = 10 where id = 1")
    planned = made.pipeline.plan()
    assert planned.problems == ()
    assert made.rows() == [(1, "a"), (2, "b")]
    result = made.follows()
    assert made.rows() == [(1, "a", 10), (2, "b", None), (3, "c", 30)]
    assert planned.ddl == result.ddl == (f'alter table "{pg.schema}"."target" add column "w" integer',)
    assert made.schema_changes() == [(2, ("column 'w' (int) was added",))]


def test_types_are_widened(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    """Each change of a type that Delta knows."""
    widened = {
        "b_s": ("tinyint", "smallint", "smallint"),
        "b_l": ("tinyint", "bigint", "bigint"),
        "s_i": ("smallint", "int", "integer"),
        "i_l": ("int", "bigint", "bigint"),
        "f_d": ("float", "double", "double precision"),
        "s_d": ("smallint", "double", "double precision"),
        "i_d": ("int", "double", "double precision"),
        "i_m": ("int", "decimal(12,2)", "numeric(12,2)"),
        "l_m": ("bigint", "decimal(20,0)", "numeric(20,0)"),
        "m_p": ("decimal(10,2)", "decimal(14,2)", "numeric(14,2)"),
        "m_s": ("decimal(10,2)", "decimal(14,5)", "numeric(14,5)"),
        "d_n": ("date", "timestamp_ntz", "timestamp without time zone"),
    }
    columns = ", ".join(f"{name} {old}" for name, (old, _, _) in widened.items())
    table = Table(spark, delta_path, f"id int, {columns}", **WIDENING, **{"feature.timestampNtz": "supported"})
    first = (
        "1, 7Y, -7Y, 300S, 70000, 0.1f, -3S, 5, 2147483647, 9223372036854775807L, 12345678.25, -0.01, date'1999-12-31'"
    )
    made = replicated(spark, pg, table, f"({first})", "(2" + ", null" * len(widened) + ")")
    table.sql(
        *(f"alter table {{t}} alter column {name} type {new}" for name, (_, new, _) in widened.items()),
        "alter table {t} alter column id type bigint",
        "insert into {t} values (5000000000, 300S, 9L, 70000, 5000000000L, 0.1d, 0.5d, 0.5d, 0.25, 1e19, "
        "123456789012.25, 0.00001, timestamp_ntz'2026-01-02 03:04:05.000006')",
        "update {t} set s_d = 0.125 where id = 2",
    )
    made.follows()
    expected = {name: kind for name, (_, _, kind) in widened.items()}
    assert made.columns() == {"id": "bigint", **expected}
    assert made.rows("id, i_m, d_n::text")[0] == (1, Decimal("2147483647.00"), "1999-12-31 00:00:00")


NESTED = "struct<a: int, b: string>"


def test_what_is_nested_gets_the_new_shape_in_the_rows_from_before(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    table = Table(
        spark,
        delta_path,
        f"id long, s {NESTED}, l array<{NESTED}>, m map<string, {NESTED}>,"
        " deep array<struct<x: map<string, array<struct<a: int>>>>>, h struct<d: decimal(5,2)>",
        **MAPPED,
        **WIDENING,
    )
    full = "named_struct('a', 1, 'b', 'b')"
    deep = "array(named_struct('x', map('k', array(named_struct('a', 1), null))), named_struct('x', null), null)"
    made = replicated(
        spark,
        pg,
        table,
        f"(1, {full}, array({full}, null), map('k', {full}, 'n', null), {deep}, named_struct('d', 1.50))",
        "(2, null, null, null, null, null)",
        "(3, named_struct('a', null, 'b', null), array(), map(), array(), named_struct('d', null))",
    )
    added = "(s.c int, l.element.c struct<z: int>, m.value.c array<int>, deep.element.x.value.element.b date)"
    table.sql(f"alter table {{t}} add columns {added}")
    assert made.follows().ddl
    assert made.rows("id, s->'c', l->0->'c', m->'k'->'c', deep->0->'x'->'k'->0 ? 'b', l->1")[0][4] is True

    table.sql(
        "alter table {t} rename column s.a to z",
        "alter table {t} rename column l.element.a to z",
        "alter table {t} drop column m.value.b",
        "alter table {t} drop column s.b",
        "alter table {t} add columns (s.b string)",
        "alter table {t} alter column l.element.z type bigint",
        "alter table {t} alter column h.d type decimal(9,2)",
        "alter table {t} alter column s.c first",
        "update {t} set s.b = 'new' where id = 3",
    )
    made.follows()
    assert made.rows("id, s->>'z', s->>'b', s ? 'a', l->0->>'z', m->'k'")[0] == (
        1, "1", None, False, "1", {"a": 1, "c": None}
    )  # fmt: skip
    assert made.rows("id, s->>'b'")[2] == (3, "new")


def test_names_that_change_places_and_one_that_is_used_again(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, a string, b string, c string", **MAPPED)
    made = replicated(spark, pg, table, "(1, 'a1', 'b1', 'c1')", "(2, 'a2', 'b2', 'c2')")
    table.sql(
        "alter table {t} rename column a to x",
        "alter table {t} rename column b to a",
        "alter table {t} rename column x to b",
        "alter table {t} drop column c",
        "alter table {t} add columns (c int)",
        "update {t} set a = 'new', c = 7 where id = 2",
    )
    planned = made.pipeline.plan()
    made.follows()
    assert made.rows("id, a, b, c") == [(1, "b1", "a1", None), (2, "new", "a2", 7)]
    # What the plan shows is the shortest way to the same columns
    pg.query("create table other (id bigint, a text, b text, c text)")
    for statement in planned.ddl:
        pg.query(statement.replace('"target"', '"other"'))
    kept = "select attname, format_type(atttypid, atttypmod) from pg_attribute where attnum > 0 and not attisdropped "
    assert pg.query(kept + "and attrelid = 'other'::regclass order by 1") == sorted(made.columns().items())


def test_changes_that_are_none_to_the_target(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long not null, v string not null, w int")
    made = replicated(spark, pg, table, "(1, 'a', 1)")
    before = made.columns()
    table.sql(
        "alter table {t} alter column v drop not null",
        "alter table {t} alter column v comment 'what it is'",
        "alter table {t} alter column w after id",
        "comment on table {t} is 'ours'",
        "insert into {t} (id, v, w) values (2, null, 2)",
        "alter table {t} cluster by (id)",
        "insert into {t} (id, v, w) values (3, 'c', 3)",
    )
    assert made.follows().ddl == ()
    assert made.columns() == before


def test_another_partitioning(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path)
    made = replicated(spark, pg, table, "(1, 'a')", "(2, 'b')")
    overwrite(table, "select * from values (2L, 'bb'), (3L, 'c') as t(id, v)", partition="v")
    table.sql("insert into {t} values (4, 'd')")
    assert made.follows().ddl == ()
    assert made.rows() == [(2, "bb"), (3, "c"), (4, "d")]


def test_overwritten_with_other_columns(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    """Delta itself refuses this for a table with a feed that has had column mapping and a rename or drop."""
    table = Table(spark, delta_path, "id long, v string, n int")
    made = replicated(spark, pg, table, "(1, 'a', 1)", "(2, 'b', 2)")
    overwrite(table, "select 2L as id, 'B' as v, 2.5d as d")
    table.sql("insert into {t} values (4, 'd', 4)")
    made.follows()
    assert made.columns() == {"id": "bigint", "v": "text", "d": "double precision"}
    assert made.rows() == [(2, "B", 2.5), (4, "d", 4.0)]
    assert made.schema_changes() == [(2, ("column 'n' was dropped", "column 'd' (double) was added"))]


def test_column_mapping_turned_on_and_removed(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path)
    made = replicated(spark, pg, table, "(1, 'a')")
    table.set(**MAPPED)
    table.sql("alter table {t} rename column v to name", "insert into {t} values (2, 'b')")
    table.set(**{"columnMapping.mode": "none"})
    table.sql("insert into {t} values (3, 'c')", ADDED, "insert into {t} values (4, 'd', 4)")
    made.follows()
    assert made.rows() == [(1, "a", None), (2, "b", None), (3, "c", None), (4, "d", 4)]


def drifting(spark: SparkSession, pg: Pg, path: str, *, mapped: bool, **options: object) -> Replica:
    """A replica with many drifts before it: none of its windows can be read with the schema of today."""
    if mapped:
        table = Table(spark, path, "id long, v string, n int, s struct<a: int>", **WIDENING)
        made = replicated(spark, pg, table, "(1, 'a', 1, named_struct('a', 1))", "(2, 'b', 2, null)", **options)
        table.sql("update {t} set v = 'aa' where id = 1", "alter table {t} add columns (w int)")
        table.sql("insert into {t} values (3, 'c', 3, null, 3)")
        table.set(**MAPPED)
        table.sql(
            "delete from {t} where id = 2",
            "alter table {t} rename column v to name",
            "insert into {t} values (4, 'd', 4, named_struct('a', 4), 4)",
            "alter table {t} drop column w",
            "update {t} set name = 'dd' where id = 4",
            "alter table {t} alter column n type bigint",
            "alter table {t} rename column s.a to b",
            "insert into {t} values (5, 'e', 5000000000, named_struct('b', 5))",
        )
        return made
    table = Table(spark, path, "id long, v string, n int, s struct<a: int>", **WIDENING)
    made = replicated(spark, pg, table, "(1, 'a', 1, named_struct('a', 1))", "(2, 'b', 2, null)", **options)
    table.sql(
        "update {t} set v = 'aa' where id = 1",
        "alter table {t} add columns (w int)",
        "insert into {t} values (3, 'c', 3, null, 3)",
        "alter table {t} alter column n type bigint",
        "delete from {t} where id = 2",
        "alter table {t} add columns (s.b string)",
        "insert into {t} values (4, 'd', 5000000000, named_struct('a', 4, 'b', 'b'), 4)",
    )
    overwrite(table, "select id, v as name, n, s from delta.`" + path + "`")
    table.sql("insert into {t} values (5, 'e', 5, named_struct('a', 5, 'b', null))")
    return made


def test_every_window_is_read_with_its_own_schema(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    made = drifting(spark, pg, delta_path, mapped=False, small_window_bytes=0)
    made.follows()
    assert made.columns() == {"id": "bigint", "n": "bigint", "s": "jsonb", "name": "text"}
    assert len(made.rows()) == 4


def test_stopped_between_two_windows_and_restored_from_a_backup(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    made = drifting(spark, pg, delta_path, mapped=True)
    pg.query("create table backup (like target including all)")
    pg.query("insert into backup select * from target")
    begun = made.position

    class Stopped(Exception):
        pass

    def stop(_: Step) -> None:
        raise Stopped

    windows = 0
    while made.position != made.latest:
        before = made.position
        with pytest.raises(Stopped):
            replica(spark, pg, made.table).pipeline.run(progress=stop)
        assert made.position != before
        made.equals()
        windows += 1
    assert windows > 4

    pg.query("drop table target")
    pg.query("alter table backup rename to target")
    pg.query("update deltarelay.position set version = %s where target = %s", begun, f"{pg.schema}.target")
    again = replica(spark, pg, made.table)
    again.follows()
    assert again.follows().ddl == ()


def test_what_was_done_by_hand_already_is_not_done_again(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, a string, b string, n int", **WIDENING)
    made = replicated(spark, pg, table, "(1, 'a', 'b', 1)")
    table.sql(
        "alter table {t} alter column n type bigint",
        "alter table {t} add columns (w int)",
        "insert into {t} values (2, 'a', 'b', 2, 2)",
    )
    for change in ("alter n type bigint", "add w integer"):
        pg.query(f"alter table target {change}")
    assert made.follows().ddl == ()


def test_soft_deletes_renamed_columns_and_columns_of_ours(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, v string, secret string, n int", **MAPPED, **WIDENING)
    made = replicated(
        spark,
        pg,
        table,
        "(1, 'a', 's', 1)",
        "(2, 'b', 's', 2)",
        columns=Columns(exclude=("secret",), rename={"id": "number"}, own=("_commit_version",)),
        modes=Modes(deletes="soft"),
    )
    table.sql(
        "delete from {t} where id = 2",
        "alter table {t} rename column v to name",
        "alter table {t} alter column n type bigint",
        "alter table {t} add columns (w int)",
        "insert into {t} values (3, 'c', 's', 3, 3)",
        "alter table {t} alter column secret comment 'none of theirs'",
        "alter table {t} drop column secret",
        "insert into {t} values (4, 'd', 4, 4)",
    )
    made.follows()
    rows = made.rows("number, name, n, w, _commit_version, _deleted_at is null")
    assert rows == [
        (1, "a", 1, None, 1, True),
        (2, "b", 2, None, 2, False),
        (3, "c", 3, 3, 6, True),
        (4, "d", 4, 4, 9, True),
    ]
    # That it is gone is no reason to stop the next time either
    table.sql("insert into {t} values (5, 'e', 5, 5)")
    made.follows()
    # The dropped column is not replicated. Later steps do not hide what was recorded
    changes = [
        (5, ("column 'w' (int) was added",)),
        (4, ("column 'n' changed its type from int to bigint",)),
        (3, ("column 'v' was renamed to 'name'",)),
    ]
    assert made.schema_changes() == changes
    assert made.schema_changes(2) == changes[:2]


def wait_for(done: Callable[[], bool], handle: Following) -> None:
    deadline = time.monotonic() + 180
    while not done():
        assert time.monotonic() < deadline
        assert not handle.await_termination(0.2)  # raises what stopped it


def test_following_goes_on_over_changes(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, v string, n int", **MAPPED, **WIDENING)
    made = replicated(spark, pg, table, "(1, 'a', 1)")
    handle = made.pipeline.follow(trigger={"processingTime": "100 milliseconds"})
    try:
        for statement in (
            "insert into {t} values (2, 'b', 2)",
            "alter table {t} rename column v to name",
            "insert into {t} values (3, 'c', 3)",
            "alter table {t} alter column n type bigint",
            "alter table {t} add columns (w int)",
            "insert into {t} values (4, 'd', 5000000000, 4)",
            "alter table {t} drop column n",
            "update {t} set name = 'aa' where id = 1",
        ):
            table.sql(statement)
        wait_for(lambda: made.position == made.latest, handle)
    finally:
        handle.stop()
    assert handle.await_termination(30)
    made.equals()
    assert made.rows() == [(1, "aa", None), (2, "b", None), (3, "c", None), (4, "d", 4)]


def test_a_key_that_is_written_otherwise_waits_for_the_dead_letters(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    """They know their keys by the text: 1.50 would not be found as 1.500, and the row be lost."""
    table = Table(spark, delta_path, "id decimal(10,2), v string", **WIDENING)
    made = replicated(spark, pg, table, "(1.5, 'a')", "(2.5, 'b')", modes=Modes(rejects="dead_letter"))
    table.sql("update {t} set v = 'NUL ' || chr(0) where id = 1.5")
    assert made.run().rejected == 1
    table.sql("alter table {t} alter column id type decimal(12,3)", "insert into {t} values (3.125, 'c')")
    before = made.state()
    with pytest.raises(SchemaDrift, match="dead letters") as caught:
        made.run()
    assert "deadletter replay" in (caught.value.hint or "")
    assert made.state() == before
    sink = made.pipeline.sink
    assert isinstance(sink, DeadLetterStore)
    assert sink.drop_dead_letters() == 1
    made.run()
    assert [row[:1] for row in made.rows("id::text")] == [("1.500",), ("2.500",), ("3.125",)]
