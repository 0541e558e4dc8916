"""The table in memory is what Delta is: the same statements on both, and rows, feed, log and decisions are compared."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Limits, Pipeline
from cdf.testing import MemoryFeed, MemorySink, MemoryTable
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


def row(number: int, v: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "v": v, **more}


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, MemoryTable]:
    """The same history twice."""
    delta = Table(spark, str(tmp_path_factory.mktemp("both") / "table"), enableDeletionVectors="false")
    memory = MemoryTable(StructType().add("id", "long").add("v", "string"))
    files = "/*+ coalesce(1) */"
    delta.sql(
        f"insert into {{t}} select {files} * from values (1, 'a'), (2, 'b'), (3, 'c')",
        "insert into {t} values (4, 'd')",
        "update {t} set v = 'x' where id = 1",
        "update {t} set v = v where id = 2",
        "delete from {t} where id = 3",
        "delete from {t} where id = 4",
        "delete from {t} where id = 99",
        f"merge into {{t}} using (select {files} * from values (1L, 'n'), (2L, 'm'), (5L, 'e') as s(id, v)) s"
        " on {t}.id = s.id when matched and s.id = 1 then delete when matched then update set v = s.v"
        " when not matched then insert *",
        "alter table {t} add column w int",
        "insert into {t} values (6, 'f', 1)",
        "optimize {t}",
        "alter table {t} set tblproperties ('team' = 'sales')",
        f"insert overwrite {{t}} select {files} * from values (7, 'g', 2), (2, 'm', 3)",
        "restore table {t} to version as of 10",
        "truncate table {t}",
    )
    memory.append(row(1, "a"), row(2, "b"), row(3, "c"))
    memory.append(row(4, "d"))
    memory.update(lambda found: found["id"] == 1, v="x")
    memory.update(lambda found: found["id"] == 2)
    memory.delete(lambda found: found["id"] == 3)
    memory.delete(lambda found: found["id"] == 4)
    memory.delete(lambda found: found["id"] == 99)
    memory.merge(
        lambda found: found["id"] == 2,
        lambda found: {**found, "v": "m"},
        delete=lambda found: found["id"] == 1,
        insert=[row(5, "e")],
    )
    memory.add_column("w", "integer")
    memory.append(row(6, "f", w=1))
    memory.optimize()
    memory.set_properties({"team": "sales"})
    memory.overwrite(row(7, "g", w=2), row(2, "m", w=3))
    memory.restore(10)
    memory.delete()
    return delta, memory


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


def test_versions_rows_and_changes_are_the_same(spark: SparkSession, both: tuple[Table, MemoryTable]) -> None:
    delta, memory = both
    feed = ChangeFeed(spark, delta.path)
    assert feed.log.latest() == memory.latest
    found = [one.asDict() for one in feed.read(start_version=0).collect()]
    names = memory.schema.names
    theirs = [(one["_commit_version"], one["_change_type"], *(one[name] for name in names)) for one in found]
    ours = [
        (version, change.type, *(change.row[name] for name in names))
        for version, change in memory.changes(0, memory.latest)
    ]
    assert in_order(theirs) == in_order(ours)
    for version in (1, 4, 5, 7, 9, 12, memory.latest):
        rows = [one.asDict() for one in feed.snapshot(version).collect()]
        assert in_order(rows) == in_order(dict(one) for one in memory.rows(version)), version


def test_the_log_tells_the_same_of_each_commit(spark: SparkSession, both: tuple[Table, MemoryTable]) -> None:
    """What windows are cut by: whether rows changed, by change files or not, and what the metadata became."""
    delta, memory = both
    logs = ChangeFeed(spark, delta.path).log, MemoryFeed(memory).log
    told = [
        [
            (one.version, one.change_files > 0, one.atomic, one.metadata and one.metadata.schema.names)
            for one in log.commits(0, memory.latest)
        ]
        for log in logs
    ]
    assert told[0] == told[1]


def test_the_pipeline_takes_the_same_steps_into_the_same_rows(
    spark: SparkSession, both: tuple[Table, MemoryTable]
) -> None:
    delta, memory = both
    outcomes = []
    for feed in (ChangeFeed(spark, delta.path), MemoryFeed(memory)):
        sink, steps = MemorySink(), list[Any]()
        pipeline = Pipeline(feed, sink, key="id", start=1, limits=Limits(max_commits=4))
        plan = pipeline.plan()
        pipeline.run(progress=steps.append)
        taken = [(one.kind, one.first, one.last, one.applied.inserts, one.applied.deletes) for one in steps]
        told = [(one.first, one.last, dict(one.changes), dict(one.net)) for one in plan.windows]
        outcomes.append((taken, told, plan.load_rows, in_order(sink.store.read_rows()), steps[-1].applied.position))
    assert outcomes[0] == outcomes[1]
