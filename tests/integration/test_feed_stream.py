"""The feed as a real ``readStream``: the same changes as in batch, Delta's options honoured, its silent losses avoided."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from cdf import ChangeFeed
from cdf.errors import ConfigError, FeedNotEnabled, VersionNotFound
from tests.integration.delta_table import AGES, Table, changes, drained

pytestmark = pytest.mark.usefixtures("interpreted")

TIMES = {version: dt.datetime(2026, 1, 5, 10, version, tzinfo=dt.UTC) for version in range(5)}
CHANGES = [
    (1, "insert", 1, "a"),
    (2, "update_postimage", 1, "b"),
    (2, "update_preimage", 1, "a"),
    (3, "insert", 2, "c"),
    (4, "delete", 1, "b"),
]


@pytest.fixture(scope="module")
def feed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ChangeFeed:
    table = Table(spark, str(tmp_path_factory.mktemp("stream") / "table"), **AGES)
    table.sql(
        "insert into {t} values (1, 'a')",
        "update {t} set v = 'b' where id = 1",
        "insert into {t} values (2, 'c')",
        "delete from {t} where id = 1",
    )
    table.date(TIMES)
    return ChangeFeed(spark, table.path)


def delivered(batches: list[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    rows = (row for batch in batches for row in batch)
    return sorted((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in rows)


def test_a_stream_delivers_what_batch_delivers(feed: ChangeFeed, tmp_path: Path) -> None:
    assert delivered(drained(feed.stream(start_version=0), tmp_path)) == CHANGES
    assert changes(feed.read(start_version=0), "id", "v") == CHANGES


def test_a_stream_can_be_written_to_any_sink_of_spark(spark: SparkSession, feed: ChangeFeed) -> None:
    stream = feed.stream(start_version=3)
    assert stream.isStreaming
    assert stream.columns == ["id", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert isinstance(stream.schema["_commit_timestamp"].dataType, TimestampType)
    query = stream.writeStream.format("memory").queryName("delivered").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        assert changes(spark.table("delivered"), "id", "v") == CHANGES[3:]
    finally:
        query.stop()
        spark.catalog.dropTempView("delivered")


def test_a_start_time_means_the_first_commit_at_or_after_it(feed: ChangeFeed, tmp_path: Path) -> None:
    between = TIMES[2] + dt.timedelta(seconds=1)
    assert delivered(drained(feed.stream(start_timestamp=between), tmp_path)) == CHANGES[3:]


def test_without_a_start_the_tables_rows_come_first(feed: ChangeFeed, tmp_path: Path) -> None:
    assert delivered(drained(feed.stream(), tmp_path)) == [(4, "insert", 2, "c")]


def test_limits_divide_the_changes_into_more_batches(feed: ChangeFeed, tmp_path: Path) -> None:
    by_files = drained(feed.stream(start_version=1, max_files_per_trigger=1), tmp_path / "files")
    by_bytes = drained(feed.stream(start_version=1, max_bytes_per_trigger="1b"), tmp_path / "bytes")
    for batches in (by_files, by_bytes):
        assert delivered(batches) == CHANGES
        assert [{row["_commit_version"] for row in batch} for batch in batches if batch] == [{1}, {2}, {3}, {4}]


def test_an_option_that_delta_honours_reaches_delta(feed: ChangeFeed, tmp_path: Path) -> None:
    without_change_files = feed.stream(start_version=1, excludeRegex="cdc-", failOnDataLoss=True)
    assert delivered(drained(without_change_files, tmp_path)) == [CHANGES[0], CHANGES[3]]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"endingVersion": 3}, "endingVersion has no effect with the change feed: a stream of the feed has no end"),
        ({"startVersion": 3}, "startVersion: unknown, and Delta ignores unknown options"),
        ({"startingVersion": 3}, "startingVersion: use start_version"),
        ({"start_version": 1, "start_timestamp": TIMES[1]}, "both start_version and start_timestamp are given"),
        ({"start_version": -1}, "start_version is not a version: -1"),
        ({"start_version": "soon"}, "start_version is not a version: 'soon'"),
        ({"start_timestamp": "2026-01-05T10:00:00"}, "start_timestamp has no zone"),
        ({"max_files_per_trigger": 0}, "max_files_per_trigger must be at least 1, not 0"),
    ],
)
def test_a_wrong_parameter_is_refused_before_any_query(
    feed: ChangeFeed, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        feed.stream(**parameters)
    assert message in caught.value.message


def test_a_start_that_the_table_does_not_have_is_refused(feed: ChangeFeed) -> None:
    with pytest.raises(VersionNotFound, match="has no version 5 yet; the latest is 4"):
        feed.stream(start_version=5)
    with pytest.raises(VersionNotFound, match="the start time is after the last commit"):
        feed.stream(start_timestamp=TIMES[4] + dt.timedelta(milliseconds=1))


def test_a_table_whose_feed_is_off_is_refused(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path, feed=False)
    with pytest.raises(FeedNotEnabled) as caught:
        ChangeFeed(spark, delta_path).stream()
    assert caught.value.hint is not None
    assert f"deltarelay feed enable {delta_path}" in caught.value.hint


def test_latest_is_a_number_so_that_nothing_between_two_runs_is_lost(
    spark: SparkSession, delta_path: str, tmp_path: Path
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'old')")
    # Delta's own: a first run that finds nothing keeps nothing, and the second begins after what came in between.
    raw = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", "latest")
    assert drained(raw.load(delta_path), tmp_path / "raw") == []

    latest = ChangeFeed(spark, delta_path).stream(start_version="latest")
    table.sql("insert into {t} values (2, 'new')")
    assert delivered(drained(raw.load(delta_path), tmp_path / "raw")) == []
    # The latest commit itself is a part of it: a start at a later version would not be one that the table has.
    assert delivered(drained(latest, tmp_path / "ours")) == [(1, "insert", 1, "old"), (2, "insert", 2, "new")]
    assert drained(latest, tmp_path / "ours") == []
    table.sql("insert into {t} values (3, 'newer')")
    assert delivered(drained(latest, tmp_path / "ours")) == [(3, "insert", 3, "newer")]


def test_latest_at_a_commit_without_rows_is_remembered_as_well(
    spark: SparkSession, delta_path: str, tmp_path: Path
) -> None:
    table = Table(spark, delta_path)
    feed = ChangeFeed(spark, delta_path)
    assert delivered(drained(feed.stream(start_version="latest"), tmp_path)) == []
    table.sql("insert into {t} values (1, 'a')")
    assert delivered(drained(feed.stream(start_version="latest"), tmp_path)) == [(1, "insert", 1, "a")]
