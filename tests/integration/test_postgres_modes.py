"""What a sink does where it was told to: deletes that mark or do nothing, keys that may not change, schemas that stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.errors import ConflictFound, KeyViolation, SchemaDrift, TargetNotReady
from cdf.sink import Conflicts, RowDigest
from cdf.testing import delete, insert, update
from connectors.postgres.column_mapping import Columns
from connectors.postgres.options import Modes
from connectors.postgres.verify.image import PostgresImage
from infra.cli.commands.verify import print_verification
from infra.output import Output
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, person, position, sink_of

SOFT, IGNORE = Modes(deletes="soft"), Modes(deletes="ignore")
A, B, C = person(1, "a"), person(2, "b"), person(3, "c")


def marks(pg: Pg) -> dict[int, bool]:
    """id → whether the row is marked as deleted."""
    return dict(pg.query("select id, _deleted_at is not null from target"))


@pytest.fixture
def source(spark: SparkSession, delta_path: str) -> Table:
    """Versions 1 to 4: rows, two deleted, one of them again there, and one with a new key."""
    table = Table(spark, delta_path, "id long, name string")
    table.sql(
        "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        "delete from {t} where id in (2, 3)",
        "insert into {t} values (2, 'again')",
        "update {t} set id = 14 where id = 4",
    )
    return table


def pipeline_of(source: Table, pg: Pg, **options: Any) -> Pipeline:
    return Pipeline(ChangeFeed(source.spark, source.path), sink_of(pg, **options), key=("id",), name="test", start=1)


# ── soft ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_deleted_rows_are_marked_and_those_that_come_back_are_not(source: Table, pg: Pg, path: dict[str, int]) -> None:
    pipeline = pipeline_of(source, pg, modes=SOFT, conflicts="refuse", **path)
    pipeline.run(until=1)
    assert marks(pg) == dict.fromkeys((1, 2, 3, 4), False)
    pipeline.run(until=2)
    assert (names(pg), marks(pg)) == ({1: "a", 2: "b", 3: "c", 4: "d"}, {1: False, 2: True, 3: True, 4: False})
    before = pg.query("select id, _deleted_at from target where id = 3")
    assert (found := pipeline.verify()).equal, found
    assert (found.source_rows, found.target_rows) == (2, 2)
    pipeline.run()
    expected = {1: "a", 2: "again", 3: "c", 4: "d", 14: "d"}
    assert (names(pg), marks(pg)) == (expected, {1: False, 2: False, 3: True, 4: True, 14: False})
    assert pg.query("select id, _deleted_at from target where id = 3") == before
    assert pipeline.verify().equal
    pg.query("update target set name = 'theirs' where id in (1, 3, 4)")
    pg.query("update target set _deleted_at = now() where id = 14")
    pg.query("update target set _deleted_at = null where id = 4")
    found = pipeline.verify(show_keys=True)
    assert (found.equal, found.missing, found.extra, found.different) == (False, 1, 1, 1)
    pipeline.reload()
    assert pipeline.verify().equal
    assert marks(pg) == {1: False, 2: False, 3: True, 4: True, 14: False}
    assert pg.query("select name from target where id in (1, 14) order by id") == [("a",), ("d",)]
    assert pg.query("select id, _deleted_at from target where id = 3") == before


@ON_BOTH_PATHS
def test_conflicts_with_rows_that_are_marked(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    table = people(session)
    with loaded(pg, table, [A, B, C], modes=SOFT, conflicts="report", **path) as sink:
        assert sink.apply(table.window(2, [delete(A), delete(B), delete(C)])).conflicts == Conflicts()
        again = table.window(
            3, [delete(A), update(B, person(2, "bb")), insert(C), insert(person(4, "d")), delete(person(5, "e"))]
        )
        applied = sink.apply(again)
        assert applied.conflicts == Conflicts(update_met_none=1, delete_met_none=2)
        assert marks(pg) == {1: True, 2: False, 3: False, 4: False}
        assert sink.apply(table.window(4, [insert(person(4, "met"))])).conflicts == Conflicts(insert_met_row=1)


def test_values_that_change_places_come_back_from_their_marks(session: SparkSession | None, pg: Pg) -> None:
    """By the way that a second unique index needs: old rows leave before new ones come."""
    table = people(session)
    pg.query("create table target (id bigint primary key, name text unique, _deleted_at timestamptz)")
    with loaded(pg, table, [A, B, C], modes=SOFT) as sink:
        sink.apply(table.window(2, [delete(C)]))
        swapped = [update(A, person(1, "b")), update(B, person(2, "a")), insert(C)]
        assert sink.apply(table.window(3, swapped)).conflicts == Conflicts()
    assert (names(pg), marks(pg)) == ({1: "b", 2: "a", 3: "c"}, dict.fromkeys((1, 2, 3), False))


def test_a_column_for_the_mark_has_to_take_it(session: SparkSession | None, pg: Pg) -> None:
    source = people(session).source()
    for column, said in (
        ("_deleted_at timestamptz not null default now()", "NOT NULL, and must be null"),
        ("_deleted_at timestamp", "is timestamp without time zone, and must be timestamp with time zone"),
        ("_deleted_at timestamptz generated always as (null::timestamptz) stored", "generated by the database"),
    ):
        pg.query(f"create table target (id bigint primary key, name text, {column})")
        (problem,) = sink_of(pg, modes=SOFT).inspect(source).problems
        assert said in problem
        pg.query("drop table target")
    taken = StructType().add("id", "long").add("_deleted_at", "string")
    problems = sink_of(pg, modes=SOFT).inspect(replace(source, schema=taken)).problems
    assert problems == ("the source has a column '_deleted_at' itself: rename it, or leave out that metadata column",)


# ── ignore ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_deletes_that_are_ignored_leave_the_row(
    source: Table, pg: Pg, path: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = pipeline_of(source, pg, modes=IGNORE, conflicts="refuse", **path)
    pipeline.run(until=1)
    assert pipeline.verify().kept == 0
    pipeline.run(until=2)
    assert names(pg) == {1: "a", 2: "b", 3: "c", 4: "d"}
    found = pipeline.verify()
    assert (found.equal, found.kept, found.extra, found.source_rows, found.target_rows) == (True, 2, 0, 2, 4)
    print_verification(Output("verify", as_json=False, debug=False), found)
    assert "4 rows, 2 of them kept although the source has deleted them" in capsys.readouterr().out
    pipeline.run()  # the row that comes again meets the one that stayed, which is no conflict
    assert names(pg) == {1: "a", 2: "again", 3: "c", 4: "d", 14: "d"}
    found = pipeline.verify()
    assert (found.equal, found.kept, found.source_rows, found.target_rows) == (True, 2, 3, 5)
    pg.query("update target set name = 'theirs' where id = 1")
    pg.query("delete from target where id = 2")
    pg.query("insert into target values (99, 'never there')")  # cannot be told from a row that was deleted
    found = pipeline.verify()
    assert (found.equal, found.missing, found.different, found.extra, found.kept) == (False, 1, 1, 0, 3)
    pipeline.reload()
    assert pipeline.verify().equal
    assert names(pg) == {1: "a", 2: "again", 3: "c", 4: "d", 14: "d", 99: "never there"}


def test_verify_looks_at_every_bucket_where_deleted_rows_stay(
    source: Table, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdf.verify.verify.ROWS_PER_BUCKET", 1)
    monkeypatch.setattr("cdf.verify.verify.MOST_ROWS_COMPARED", 1)
    pipeline = pipeline_of(source, pg, modes=IGNORE)
    pipeline.run(until=1)
    pipeline.run()
    passes: list[int] = []
    rows = PostgresImage.rows

    def counted(self: PostgresImage, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        passes.append(len(chosen))
        return rows(self, buckets, chosen, show_keys=show_keys)

    monkeypatch.setattr(PostgresImage, "rows", counted)
    found = pipeline.verify()
    assert (found.equal, found.complete, found.kept) == (True, True, 2)
    assert found.differing_buckets >= 2
    assert passes == [found.differing_buckets]  # one pass over the target, whatever fits into memory
    for statement in ("update target set name = 'x' where id = 1", "delete from target where id = 14"):
        pg.query(statement)
        assert not pipeline.verify().equal


# ── key changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_a_key_that_changes_is_refused_where_it_may_not(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [A, B], modes=Modes(key_changes="refuse"), conflicts="refuse", **path) as sink:
        sink.apply(table.window(2, [update(A, person(1, "aa")), insert(C)], [update(C, person(3, "cc")), delete(B)]))
        with pytest.raises(KeyViolation) as refused:
            sink.apply(table.window(4, [insert(B)], [update(C, person(13, "moved"))], [delete(B)]))
        assert refused.value.fields["version"] == 5
        assert refused.value.fields["reason"] == "key_changed"
        assert "moved" not in str(refused.value)
        assert "key_changes: follow" in str(refused.value.hint)
        # There and back again in one window is two changes all the same
        with pytest.raises(KeyViolation):
            sink.apply(table.window(4, [update(C, person(13, "x"))], [update(person(13, "x"), C)]))
        assert (names(pg), position(pg)) == ({1: "aa", 3: "cc"}, 3)
        sink.apply(table.window(4, [delete(C), insert(person(13, "c"))]))  # delete and insert are no update
    assert names(pg) == {1: "aa", 13: "c"}


@ON_BOTH_PATHS
@pytest.mark.parametrize("mode", ["follow", "refuse"])
def test_keys_that_a_merge_swaps(source: Table, pg: Pg, mode: Any, path: dict[str, int]) -> None:
    """Each key has an image before and one after: to the feed it is two rows that changed their values."""
    pipeline = pipeline_of(source, pg, modes=Modes(key_changes=mode), **path)
    pipeline.context.start = 4
    pipeline.run()
    source.sql(
        "merge into {t} s using (select 1L as old, 2L as new union all select 2L, 1L) c on s.id = c.old "
        "when matched then update set id = c.new"
    )
    pipeline.run()
    assert names(pg) == {1: "again", 2: "a", 14: "d"}
    assert pipeline.verify().equal
    source.sql("update {t} set id = id + 100 where id = 1")
    if mode == "refuse":
        with pytest.raises(KeyViolation, match="changes the key"):
            pipeline.run()
        return
    pipeline.run()
    assert names(pg) == {101: "again", 2: "a", 14: "d"}


# ── schema changes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_schema_changes_that_are_not_to_be_followed_are_refused_by_name(source: Table, pg: Pg) -> None:
    refuse = pipeline_of(source, pg, modes=Modes(schema_changes="refuse"))
    refuse.run()
    source.sql("alter table {t} add column more int", "insert into {t} values (9, 'x', 1)")
    with pytest.raises(SchemaDrift, match=r"column 'more' .* was added"):
        refuse.run()
    assert position(pg) == 4
    refuse.run(until=4)
    assert refuse.verify().equal
    adds = pipeline_of(source, pg, modes=Modes(schema_changes="add_columns"))
    assert len(adds.run().ddl) == 1
    assert pg.query("select more from target where id = 9") == [(1,)]
    source.set(**{"columnMapping.mode": "name"})
    source.sql("alter table {t} rename column more to less")
    with pytest.raises(SchemaDrift, match="renamed to 'less'"):
        adds.run()
    follows = pipeline_of(source, pg)
    follows.run()
    assert pg.query("select less from target where id = 9") == [(1,)]
    assert follows.verify().equal


def test_a_table_that_lacks_columns_is_refused_where_none_may_be_added(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key)")
    refuse = Modes(schema_changes="refuse")
    (problem,) = sink_of(pg, modes=refuse).inspect(table.source()).problems
    assert "schema_changes: refuse" in problem
    with pytest.raises(TargetNotReady):
        sink_of(pg, modes=refuse).open(table.source())
    with opened(pg, table.source(), modes=Modes(schema_changes="add_columns")) as sink:
        assert len(sink.load(table.snapshot(1, [A])).ddl) == 1
    with opened(pg, table.source(), modes=refuse, table="fresh") as sink:
        sink.load(table.snapshot(1, [A]))
    assert names(pg) == names(pg, "fresh") == {1: "a"}


# ── all together ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
def test_verify_finds_a_difference_in_each_mode(source: Table, pg: Pg, deletes: Any) -> None:
    pipeline = pipeline_of(
        source, pg, modes=Modes(deletes=deletes), columns=Columns(rename={"name": "called"}, own=("_applied_at",))
    )
    pipeline.run(until=1)
    pipeline.run()
    assert pipeline.verify().equal
    for damage, count in (
        ("update target set called = called || ' ' where id = 1", (0, 0, 1)),
        ("delete from target where id = 14", (1, 0, 1)),
        ("insert into target (id, called) values (77, 'x')", (1, 0 if deletes == "ignore" else 1, 1)),
    ):
        pg.query(damage)
        found = pipeline.verify()
        assert (found.missing, found.extra, found.different, found.equal) == (*count, False)


@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
def test_a_contradiction_is_refused_in_each_mode(session: SparkSession | None, pg: Pg, deletes: Any) -> None:
    table = people(session)
    refuses = loaded(pg, table, [A], modes=Modes(deletes=deletes), conflicts="refuse")
    with refuses as sink, pytest.raises(ConflictFound):
        sink.apply(table.window(2, [update(B, person(2, "bb"))]))
    assert names(pg) == {1: "a"}
