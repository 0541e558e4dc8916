"""A commit file that is missing between others: Delta's batch reader reads across it without a word, we do not."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import VersionsExpired
from cdf.testing import MemorySink
from tests.integration.delta_table import Table, inserted, versions

pytestmark = pytest.mark.usefixtures("interpreted", "log_reader")

HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Broken:
    """A table without the commit file of version 2, and targets that were filled while it was there."""

    table: Table
    at_0: MemorySink
    at_3: MemorySink
    now: dt.datetime
    """Version n was committed 6 - n hours before."""


@pytest.fixture(scope="module")
def broken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Broken:
    # The checkpoint at version 4 makes the table readable without version 2.
    table = inserted(spark, str(tmp_path_factory.mktemp("broken") / "table"), 5, checkpointInterval="4")
    sinks = MemorySink(), MemorySink()
    for sink, version in zip(sinks, (0, 3), strict=True):
        Pipeline(ChangeFeed(spark, table.path), sink, key="id", start=version).run(until=version)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    table.date({version: now - HOUR * (6 - version) for version in range(6)})
    table.lose_commit(2)
    return Broken(table, *sinks, now)


def test_a_missing_commit_file_is_not_read_across(spark: SparkSession, broken: Broken) -> None:
    assert versions(broken.table.raw_feed(startingVersion=1)) == [1, 3, 4, 5]

    feed = ChangeFeed(spark, broken.table.path)
    with pytest.raises(VersionsExpired, match=r"the commit files of version 2 of .* no longer exist") as caught:
        feed.read(start_version=1)
    assert caught.value.fields["versions"] == [2]
    # What does not need the missing commit can be read.
    assert versions(feed.read(start_version=1, end_version=1)) == [1]
    assert versions(feed.read(start_version=4)) == [4, 5]


def test_a_pipeline_does_not_walk_across_a_missing_commit_file(spark: SparkSession, broken: Broken) -> None:
    feed = ChangeFeed(spark, broken.table.path)
    before = broken.at_0.store.contents
    history = MemorySink(holds="history")
    for pipeline in (Pipeline(feed, broken.at_0, key="id"), Pipeline(feed, history, key="id", start=0)):
        with pytest.raises(VersionsExpired, match="the commit files of version 2 of"):
            pipeline.run()
        assert any("the commit files of version 2 of" in problem for problem in pipeline.plan().problems)
    assert broken.at_0.store.contents is before
    assert history.store.read_rows() == []


@pytest.mark.parametrize(("stands", "until"), [("at_0", 1), ("at_3", 5)])
def test_a_pipeline_walks_up_to_a_missing_commit_file_and_on_behind_it(
    spark: SparkSession, broken: Broken, stands: str, until: int
) -> None:
    sink: MemorySink = getattr(broken, stands)
    assert Pipeline(ChangeFeed(spark, broken.table.path), sink, key="id").run(until=until).position == until
    assert sorted(row["id"] for row in sink.store.read_rows()) == list(range(1, until + 1))


def test_a_time_bound_next_to_a_missing_commit_file_is_refused(spark: SparkSession, broken: Broken) -> None:
    feed, now = ChangeFeed(spark, broken.table.path), broken.now
    between = now - HOUR * 4.5  # after version 1: version 2 belongs to the range, and Delta starts at 3
    with pytest.raises(VersionsExpired, match=r"the commits of .* before version 3 .* no longer exist"):
        feed.read(start_timestamp=between)
    with pytest.raises(VersionsExpired, match=r"the commits of .* after version 1 .* no longer exist"):
        feed.read(start_version=0, end_timestamp=now - HOUR * 3.5)
    assert versions(feed.read(start_version=1, end_timestamp=now - HOUR * 5)) == [1]
