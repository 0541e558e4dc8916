"""Where Delta's own reader leaves changes out without a word, or fails without saying why, we say it first.

Each test shows what Delta does by itself, and then what we make of it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import AnalysisException

from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError, FeedNotEnabled, VersionsExpired
from cdf.testing import MemorySink
from tests.integration.delta_table import Table, changes, drained, inserted, setting, versions

HOUR = dt.timedelta(hours=1)


def test_a_start_time_whose_commits_have_expired_is_refused(spark: SparkSession, delta_path: str) -> None:
    table = inserted(spark, delta_path, 5, checkpointInterval="3")
    sink = MemorySink()
    Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=1).run(until=1)
    table.lose_commit(0, 1, 2)
    assert versions(table.raw_feed(startingTimestamp="2020-01-01T00:00:00Z")) == [3, 4, 5]

    feed = ChangeFeed(spark, delta_path)
    with pytest.raises(VersionsExpired) as caught:
        feed.read(start_timestamp="2020-01-01T00:00:00Z")
    assert caught.value.fields["earliest"] == 3
    assert caught.value.hint == "start at version 3 if the older changes are not needed"
    with pytest.raises(VersionsExpired):
        feed.stream(start_timestamp="2020-01-01T00:00:00Z")
    with pytest.raises(VersionsExpired, match="version 1, 2 "):
        feed.read(start_version=1)
    with pytest.raises(VersionsExpired, match=r"version 1 .* can no longer be read as a whole"):
        feed.snapshot(1)
    assert versions(feed.read(start_version=3)) == [3, 4, 5]
    status = feed.status()
    assert (status.since_version, status.earliest_version, status.gaps) == (3, 3, ())

    # A target that stands before the gap stays as it is.
    before = sink.store.contents
    with pytest.raises(VersionsExpired, match="version 2 "):
        Pipeline(feed, sink, key="id").run()
    assert sink.store.contents is before


def test_the_versions_at_which_the_feed_was_off_are_named(spark: SparkSession, delta_path: str) -> None:
    table = inserted(spark, delta_path, 2)
    table.set(enableChangeDataFeed="false")
    table.sql("insert into {t} values (4, 'a')")
    table.set(enableChangeDataFeed="true")
    table.sql("insert into {t} values (6, 'a')")
    table.set(enableChangeDataFeed="false")
    table.set(enableChangeDataFeed="true")
    feed = ChangeFeed(spark, delta_path)
    with pytest.raises(FeedNotEnabled) as caught:
        feed.read(start_version=1)
    assert caught.value.message == (
        f"the change feed of {delta_path} was off at version 3 to 4, 7: those changes were never recorded"
    )
    assert caught.value.condition == "DELTA_MISSING_CHANGE_DATA"
    with pytest.raises(FeedNotEnabled, match="off at version 4:"):
        feed.read(start_version=4, end_version=6)
    with pytest.raises(FeedNotEnabled, match="off at version 3:"):
        feed.read(start_version=2, end_version=3)
    # Before it was turned off, and from the commit that turned it on again, changes are there.
    assert versions(feed.read(start_version=1, end_version=2)) == [1, 2]
    assert versions(feed.read(start_version=5, end_version=6)) == [6]


def test_a_feed_that_never_was_on_is_refused(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path, feed=False).sql("insert into {t} values (1, 'a')")
    with pytest.raises(FeedNotEnabled, match="off at version 0 to 1"):
        ChangeFeed(spark, delta_path).read(start_version=0)


def test_a_start_before_the_retention_of_deleted_files_is_refused_until_it_is_raised(
    spark: SparkSession, delta_path: str
) -> None:
    table = inserted(spark, delta_path, 3)
    now = dt.datetime.now(dt.UTC)
    table.date({0: now - HOUR * 24 * 9, 1: now - HOUR * 24 * 8, 2: now - HOUR * 24 * 6, 3: now - HOUR})
    feed = ChangeFeed(spark, delta_path)
    condition = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
    with pytest.raises(AnalysisException, match=condition):
        table.raw_feed(startingVersion=1)
    with pytest.raises(VersionsExpired) as caught:
        feed.read(start_version=1)
    assert caught.value.condition == condition
    assert caught.value.hint is not None
    assert "delta.deletedFileRetentionDuration" in caught.value.hint
    assert feed.status().earliest_version == 2
    assert versions(feed.read(start_version=2)) == [2, 3]

    table.set(deletedFileRetentionDuration="interval 30 days")
    assert feed.status().earliest_version == 0
    assert versions(feed.read(start_version=1)) == [1, 2, 3]


def test_files_that_vacuum_removed_are_named_as_the_cause(spark: SparkSession, delta_path: str) -> None:
    table = inserted(spark, delta_path, 2)
    table.sql("update {t} set v = 'b' where id = 1", "insert into {t} values (3, 'secret')")
    with (
        setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"),
        setting(spark, "spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"),  # else thousands of tasks
    ):
        table.sql("vacuum {t} retain 0 hours")
    feed = ChangeFeed(spark, delta_path)

    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        # The workaround that is passed around: the update of version 3 is simply not there.
        assert versions(table.raw_feed(startingVersion=1, endingVersion=4)) == [2, 4]
        for refused in (
            lambda: feed.read(start_version=1),
            lambda: feed.stream(start_version=1),
            lambda: feed.snapshot(1),
            Pipeline(feed, MemorySink(), key="id").run,
            Pipeline(feed, MemorySink(), key="id").plan,
        ):
            with pytest.raises(ConfigError, match=r"the session has spark\.sql\.files\.ignoreMissingFiles = true"):
                refused()

    history = MemorySink(holds="history")
    with pytest.raises(VersionsExpired) as caught:
        Pipeline(feed, history, key="id", start=3).run()
    assert caught.value.condition == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert f"files that version 3 to 6 of {delta_path} needs cannot be read" in caught.value.message
    assert caught.value.hint is not None
    assert "from a snapshot" in caught.value.hint
    assert "secret" not in caught.value.message
    assert history.store.contents.position.version is None
    # Later changes, whose files are there, can still be read.
    assert changes(feed.read(start_version=4), "id") == [(4, "insert", 3)]


def test_corrupt_files_are_not_ignored_either(spark: SparkSession, delta_path: str) -> None:
    inserted(spark, delta_path, 1)
    feed = ChangeFeed(spark, delta_path)
    with (
        setting(spark, "spark.sql.files.ignoreCorruptFiles", "TRUE"),
        pytest.raises(ConfigError, match="ignoreCorruptFiles = true"),
    ):
        feed.read(start_version=0)
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "false"):
        assert versions(feed.read(start_version=0)) == [1]


@pytest.mark.parametrize(
    "change",
    ["select 1L as id", "select 'x' as id, 'a' as v"],
    ids=["a column was dropped", "a type was changed"],
)
def test_older_changes_stay_readable_with_their_own_columns(spark: SparkSession, delta_path: str, change: str) -> None:
    table = inserted(spark, delta_path, 2)
    spark.sql(change).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(delta_path)
    # Delta reads with the table's present schema, even a range that ends before the change.
    with pytest.raises(Exception, match="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"):
        table.raw_feed(startingVersion=1, endingVersion=2).collect()

    feed = ChangeFeed(spark, delta_path)
    assert changes(feed.read(start_version=1, end_version=2), "id", "v") == [
        (1, "insert", 1, "a"),
        (2, "insert", 2, "a"),
    ]


def test_older_changes_have_columns_that_were_added_later(spark: SparkSession, delta_path: str) -> None:
    table = inserted(spark, delta_path, 1)
    table.sql("alter table {t} add column w int")
    feed = ChangeFeed(spark, delta_path)
    assert changes(feed.read(start_version=1, end_version=1), "id", "v", "w") == [(1, "insert", 1, "a", None)]


def test_many_commits_are_searched_for_metadata_like_few(
    spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = inserted(spark, delta_path, 1)
    table.set(enableChangeDataFeed="false")
    table.sql("alter table {t} add column w int")
    log = ChangeFeed(spark, delta_path).log
    for few in (50, 0):
        monkeypatch.setattr("cdf.source.commit_files.CommitFiles.few", few)
        found = log.metadata_commits(1, 3)
        assert [(version, one.feed_enabled, one.schema.names) for version, one in found] == [
            (2, False, ["id", "v"]),
            (3, False, ["id", "v", "w"]),
        ]


def test_bytes_that_are_not_utf8_stay_what_they_are(spark: SparkSession, delta_path: str, tmp_path: Path) -> None:
    """Delta's own relation has U+FFFD for them: two keys would be one, and no sink could refuse what it cannot hold."""
    table = Table(
        spark, delta_path, "id string, v string, deep map<string, array<string>>", enableDeletionVectors="true"
    )
    table.sql(
        "insert into {t} select cast(key as string), 'a', map('k', array('b'))"
        " from values (X'FC'), (X'FD'), (X'61') as keys(key)",
        "update {t} set v = cast(X'61FF62' as string), deep = map(cast(X'FE' as string), array(cast(X'FF' as string)))"
        " where hex(id) = 'FD'",
        "delete from {t} where hex(id) = 'FC'",
    )
    # By hex: a file's statistics are text as well, and Delta would skip the file by them
    columns = ["hex(id)", "hex(v)", "hex(map_keys(deep)[0])", "hex(map_values(deep)[0][0])"]

    def shown(rows: DataFrame) -> DataFrame:
        return rows.selectExpr(
            *(f"{one} as c{at}" for at, one in enumerate(columns)), "_commit_version", "_change_type"
        )

    def of(feed: DataFrame) -> list[tuple[Any, ...]]:
        return changes(shown(feed), "c0", "c1", "c2", "c3")

    plain, bad = ("61", "6B", "62"), ("61FF62", "FE", "FF")
    expected = [
        (1, "insert", "61", *plain),
        (1, "insert", "FC", *plain),
        (1, "insert", "FD", *plain),
        (2, "update_postimage", "FD", *bad),
        (2, "update_preimage", "FD", *plain),
        (3, "delete", "FC", *plain),
    ]
    assert "FD" not in {row[2] for row in of(table.raw_feed(startingVersion=1))}
    feed = ChangeFeed(spark, delta_path)
    assert of(feed.read(start_version=1)) == expected
    streamed = [row for batch in drained(shown(feed.stream(start_version=1)), tmp_path / "checkpoint") for row in batch]
    names = ("_commit_version", "_change_type", "c0", "c1", "c2", "c3")
    assert sorted(tuple(row[name] for name in names) for row in streamed) == expected
