"""A plan shows what a run would do, counts it, lists what stands against it, and touches nothing: of a real Delta table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.testing import MemorySink
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Five commits with rows; a column is added by version 4."""
    made = Table(spark, str(tmp_path_factory.mktemp("plan") / "table"))
    made.sql(
        "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')",
        "update {t} set v = 'x' where id < 3",
        "delete from {t} where id = 2",
        "alter table {t} add column w int",
        "insert into {t} values (4, 'd', 1), (5, 'e', 1)",
    )
    return made


def untouched(sink: MemorySink) -> bool:
    store = sink.store
    return (store.contents.position.version, store.read_rows(), store.epoch) == (None, [], 0)


def test_a_plan_for_an_empty_state_counts_the_copy_and_every_window(spark: SparkSession, table: Table) -> None:
    sink = MemorySink()
    feed = ChangeFeed(spark, table.path)
    plan = Pipeline(feed, sink, key="id", start=1, limits=Limits(max_commits=2)).plan()
    assert untouched(sink)
    assert (plan.position, plan.last_version, plan.load_version, plan.load_rows) == (None, 5, 1, 3)
    assert plan.problems == ()
    first, second = plan.windows
    assert (first.first, first.last, first.commits, first.columns) == (2, 3, 2, 2)
    assert first.changes == {"delete": 1, "update_postimage": 2, "update_preimage": 2}
    assert first.net == {"delete": 1, "update": 1}
    assert (second.first, second.last, second.commits, second.columns) == (4, 5, 2, 3)
    assert (second.changes, second.net, second.conflicts) == ({"insert": 2}, {"insert": 2}, 0)


def test_a_plan_shows_how_often_the_source_held_a_key_twice(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (1, 'b')")
    sink = MemorySink()
    plan = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=0).plan()
    assert [(dict(window.net), window.conflicts) for window in plan.windows] == [({"insert": 1}, 1)]
    assert plan.problems == ()
    assert plan.warnings == (
        "1 changes contradict each other within their window: the source held a key (id) more than once",
    )
    assert untouched(sink)
