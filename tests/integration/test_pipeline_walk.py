"""The walk from commit to commit of a real Delta table; what needs none is in ``tests/unit/test_pipeline_walk.py``."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.commit_marker import erasing_metadata
from cdf import Applied, ChangeFeed, Limits, Pipeline, Position, Snapshot, Source, Step
from cdf.sink.guard import ErasureNotConfigured
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
def test_without_a_register_to_ask_nothing_of_a_range_with_an_erasing_commit_is_applied(
    spark: SparkSession, delta_path: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdf.source.commit_files.CommitFiles.few", few)
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'deltarelay_erasure')")
    sink = MemorySink()
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
    assert [problem for problem in pipeline.plan().problems if "erasure of persons" in problem]
    empty = MemorySink()  # neither the history nor a copy from before
    refused(Pipeline(ChangeFeed(spark, delta_path), empty, key="id", start=0))
    assert empty.store.contents.position.version is None
    with pytest.raises(ErasureNotConfigured), pipeline.foreach_batch():
        pass

    pipeline.context.guard = Knows()
    assert pipeline.run().position == 5
