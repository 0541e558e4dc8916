"""The walk from commit to commit: where windows end, what moves the position, what the target holds in between."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.commits import erasing_metadata
from cdf import Applied, ChangeFeed, Limits, Pipeline, Position, Snapshot, Source, Step
from cdf.guard import ErasureNotConfigured
from cdf.testing import MemorySink
from tests.integration.delta_table import Table, setting
from tests.integration.erasures import Knows

pytestmark = pytest.mark.usefixtures("interpreted")


def run(pipeline: Pipeline, **options: Any) -> list[tuple[str, int, int]]:
    """The durable steps of a run."""
    steps: list[Step] = []
    pipeline.run(progress=steps.append, **options)
    return [(step.kind, step.first, step.last) for step in steps]


def held(sink: MemorySink) -> dict[Any, Any]:
    """id → v, as the target holds them."""
    return {row["id"]: row["v"] for row in sink.store.read_rows()}


def four_inserts(spark: SparkSession, path: str) -> ChangeFeed:
    table = Table(spark, path)
    table.sql(*(f"insert into {{t}} values ({version}, 'a')" for version in range(1, 5)))
    return ChangeFeed(spark, path)


def test_windows_end_at_the_limits_and_the_position_moves_with_each(spark: SparkSession, delta_path: str) -> None:
    feed = four_inserts(spark, delta_path)
    sink = MemorySink()
    pipeline = Pipeline(feed, sink, key="id", start=0, limits=Limits(max_commits=3))
    seen: list[tuple[int | None, set[Any]]] = []
    result = pipeline.run(progress=lambda _: seen.append((sink.store.contents.position.version, set(held(sink)))))
    assert seen == [(0, set()), (3, {1, 2, 3}), (4, {1, 2, 3, 4})]
    assert (result.loaded_rows, result.windows, result.inserts, result.position, result.latest_version) == (
        0,
        2,
        4,
        4,
        4,
    )
    assert (result.updates, result.deletes, result.conflicts.total) == (0, 0, 0)


def test_every_commit_above_the_byte_limit_is_a_window(spark: SparkSession, delta_path: str) -> None:
    feed = four_inserts(spark, delta_path)
    pipeline = Pipeline(feed, MemorySink(holds="history"), key="id", start=1, limits=Limits(max_bytes=1))
    assert run(pipeline, until=3) == [("window", 1, 1), ("window", 2, 2), ("window", 3, 3)]


def test_a_run_with_nothing_new_does_nothing(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    assert run(pipeline) == [("load", 1, 1)]
    result = pipeline.run()
    assert (result.position, result.loaded_rows, result.windows) == (1, None, 0)
    assert sink.store.owner is None  # the lease was given back


def test_an_added_column_is_followed_in_a_window_of_its_own(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql(
        "insert into {t} values (1, 'a')",
        "insert into {t} values (2, 'b')",
        "alter table {t} add column w int",
        "insert into {t} values (3, 'c', 30)",
        "update {t} set w = 10 where id = 1",
    )
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=0)
    assert run(pipeline) == [("load", 0, 0), ("window", 1, 2), ("window", 3, 5)]
    assert sorted(sink.store.read_rows(), key=lambda row: row["id"]) == [
        {"id": 1, "v": "a", "w": 10},
        {"id": 2, "v": "b", "w": None},
        {"id": 3, "v": "c", "w": 30},
    ]
    history = MemorySink(holds="history")
    Pipeline(ChangeFeed(spark, delta_path), history, key="id", start=0).run()
    first, *_, last = history.store.read_rows()
    assert "w" not in first
    assert (last["_commit_version"], last["w"]) == (5, 10)


def test_a_column_added_by_the_commit_that_writes_it_belongs_to_that_commit(
    spark: SparkSession, delta_path: str
) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a')")
    more = spark.sql("select 2L as id, 'b' as v, 20 as w")
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(delta_path)
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=0)
    assert run(pipeline) == [("load", 0, 0), ("window", 1, 1), ("window", 2, 2)]
    assert {row["id"]: row["w"] for row in sink.store.read_rows()} == {1: None, 2: 20}


def test_commits_without_rows_move_the_position(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    table.sql(
        "optimize {t}",
        "alter table {t} alter column v comment 'a letter'",
        "alter table {t} set tblproperties ('team' = 'sales')",
    )
    result = pipeline.run()
    assert (result.position, result.windows) == (5, 1)
    assert (result.inserts, result.updates, result.deletes) == (0, 0, 0)
    assert held(sink) == {1: "a", 2: "b"}


def test_a_restore_flows_through(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql(
        "insert into {t} values (1, 'a')",
        "insert into {t} values (2, 'b')",
        "update {t} set v = 'z' where id = 1",
        "delete from {t} where id = 2",
        "insert into {t} values (3, 'c')",
    )
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    assert held(sink) == {1: "z", 3: "c"}
    table.sql("restore table {t} to version as of 2")
    result = pipeline.run()
    assert (result.position, result.conflicts.total) == (6, 0)
    assert held(sink) == {1: "a", 2: "b"}


def test_merge_truncate_and_key_changes_flow_through(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", limits=Limits(max_commits=1))
    pipeline.run()
    table.sql(
        "merge into {t} using (select 1L as id, 'n' as v union all select 4L, 'd') s on {t}.id = s.id"
        " when matched then update set v = s.v when not matched then insert * when not matched by source then delete",
        "update {t} set id = 5 - id",  # 1 and 4 change places
        "truncate table {t}",
    )
    states: list[dict[Any, Any]] = []
    result = pipeline.run(progress=lambda _: states.append(held(sink)))
    assert states == [{1: "n", 4: "d"}, {4: "n", 1: "d"}, {}]
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (1, 3, 4, 0)


def test_a_key_of_several_columns(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, "a int, b string, `odd.name` date, v string")
    first, second = "date'2026-01-01'", "date'2026-01-02'"
    table.sql(f"insert into {{t}} values (1, 'x', {first}, 'p'), (1, 'y', {first}, 'q'), (1, 'x', {second}, 'r')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key=["a", "b", "odd.name"])
    pipeline.run()
    table.sql("update {t} set v = 'new' where b = 'y'", f"delete from {{t}} where `odd.name` = {second}")
    result = pipeline.run()
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (0, 1, 1, 0)
    rows = sorted((row["a"], row["b"], str(row["odd.name"]), row["v"]) for row in sink.store.read_rows())
    assert rows == [(1, "x", "2026-01-01", "p"), (1, "y", "2026-01-01", "new")]


def test_nothing_is_lost_between_the_snapshot_and_the_feed_while_the_source_keeps_committing(
    spark: SparkSession, delta_path: str
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')")

    class Meanwhile(MemorySink):
        def open(self, source: Source) -> Position:
            position = super().open(source)
            table.sql("delete from {t} where id = 1")  # the run has begun, its snapshot is not chosen yet
            return position

        def load(self, snapshot: Snapshot) -> Applied:
            table.sql("insert into {t} values (3, 'c')")  # chosen, not read yet
            return super().load(snapshot)

    sink = Meanwhile()
    feed = ChangeFeed(spark, delta_path)
    result = Pipeline(feed, sink, key="id").run()
    # The run goes to the version that was the latest when it began, and the target holds exactly that.
    assert (result.position, result.latest_version, held(sink)) == (2, 2, {1: "a", 2: "b"})
    result = Pipeline(feed, MemorySink(sink.store), key="id").run()
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (1, 0, 1, 0)
    assert (result.position, held(sink)) == (4, {2: "b", 3: "c"})


@pytest.mark.parametrize("few", [50, 0], ids=["read one by one", "by a Spark job"])
@pytest.mark.parametrize("holds", ["state", "history"])
def test_without_a_register_to_ask_nothing_of_a_range_with_an_erasing_commit_is_applied(
    spark: SparkSession, delta_path: str, holds: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdf.log._FEW", few)
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'deltarelay_erasure')")
    sink = MemorySink(holds=holds)
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=0)
    # The word in rows and predicates is none of the commit's own
    table.sql("update {t} set v = 'b' where v = 'deltarelay_erasure'")
    assert pipeline.run().position == 2
    table.sql("update {t} set v = 'c' where id = 1")
    with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", erasing_metadata("er-1", ["R-1"])):
        table.sql("delete from {t} where id = 1")
    table.sql("insert into {t} values (3, 'd')")

    def refused(pipeline: Pipeline) -> None:
        with pytest.raises(ErasureNotConfigured, match="version 4 of") as found:
            pipeline.run()
        assert (found.value.code, found.value.transient) == ("erasure_not_configured", False)
        assert "`erasure` block" in str(found.value.hint)
        assert found.value.fields["versions"] == [4]

    before = sink.store.read_rows()
    refused(pipeline)
    assert (sink.store.contents.position.version, sink.store.read_rows()) == (2, before)
    assert [problem for problem in pipeline.plan().problems if "erased persons" in problem]
    empty = MemorySink(holds=holds)  # neither the history nor a copy from before
    refused(Pipeline(ChangeFeed(spark, delta_path), empty, key="id", start=0))
    assert empty.store.contents.position.version is None
    with pytest.raises(ErasureNotConfigured), pipeline.foreach_batch():
        pass

    pipeline.guard = Knows()
    assert pipeline.run().position == 5
