"""Which changes a range holds: every kind of bound, every edge, and no influence of the session's zone.

The table has five commits, one minute apart, the first at 10:00 UTC: it is created, gets a row, the row is changed, another
row comes in, the first one goes.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from cdf.errors import CdfError, ConfigError, VersionNotFound, VersionsExpired
from tests.integration.delta_table import AGES, Table, changes, setting, versions

pytestmark = pytest.mark.usefixtures("interpreted")

CHANGES = {
    0: [],
    1: [(1, "insert", 1, "a")],
    2: [(2, "update_postimage", 1, "b"), (2, "update_preimage", 1, "a")],
    3: [(3, "insert", 2, "c")],
    4: [(4, "delete", 1, "b")],
}


def at(minute: float) -> dt.datetime:
    return dt.datetime(2026, 1, 5, 10, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table(spark, str(tmp_path_factory.mktemp("bounds") / "table"), **AGES)
    made.sql(
        "insert into {t} values (1, 'a')",
        "update {t} set v = 'b' where id = 1",
        "insert into {t} values (2, 'c')",
        "delete from {t} where id = 1",
    )
    made.date({version: at(version) for version in CHANGES})
    return made


@pytest.fixture(scope="module")
def feed(spark: SparkSession, table: Table, log_reader: None) -> ChangeFeed:
    return ChangeFeed(spark, table.path)


def refused(feed: ChangeFeed, kind: type[CdfError], condition: str, **bounds: Any) -> CdfError:
    with pytest.raises(kind) as caught:
        feed.read(**bounds)
    assert caught.value.condition == condition
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"start_version": 0}, [0, 1, 2, 3, 4]),
        ({"start_version": 2}, [2, 3, 4]),
        ({"start_version": 4}, [4]),
        ({"start_version": 0, "end_version": 0}, [0]),
        ({"start_version": 1, "end_version": 3}, [1, 2, 3]),
        ({"start_version": 3, "end_version": 3}, [3]),
        # beyond the latest: clipped
        ({"start_version": 3, "end_version": 5}, [3, 4]),
        ({"start_version": 3, "end_version": 4_000_000}, [3, 4]),
        # the first commit at or after a start time, the last at or before an end time
        ({"start_timestamp": at(2)}, [2, 3, 4]),
        ({"start_timestamp": at(2.001)}, [3, 4]),
        ({"start_timestamp": at(1), "end_timestamp": at(3)}, [1, 2, 3]),
        ({"start_timestamp": at(0.5), "end_timestamp": at(2.5)}, [1, 2]),
        ({"start_timestamp": at(4), "end_timestamp": at(4)}, [4]),
        # before the table was made: from its first commit on
        ({"start_timestamp": at(-60), "end_timestamp": at(1)}, [0, 1]),
        # kinds mixed
        ({"start_version": 2, "end_timestamp": at(3.5)}, [2, 3]),
        ({"start_timestamp": at(2.5), "end_version": 3}, [3]),
        ({"start_timestamp": at(2.5), "end_version": 99}, [3, 4]),
    ],
)
def test_a_range_holds_the_changes_of_its_commits(
    feed: ChangeFeed, bounds: dict[str, Any], expected: list[int]
) -> None:
    wanted = [change for version in expected for change in CHANGES[version]]
    assert changes(feed.read(**bounds), "id", "v") == wanted


@pytest.mark.parametrize(
    "start", ["2026-01-05T10:03:00Z", "2026-01-05T11:03:00+01:00", "2026-01-05 05:03:00.000-05:00"]
)
def test_the_same_instant_in_any_zone_is_the_same_bound(feed: ChangeFeed, start: str) -> None:
    assert versions(feed.read(start_timestamp=start)) == [3, 4]
    assert versions(feed.read(start_version=2, end_timestamp=start)) == [2, 2, 3]


def test_a_row_has_the_tables_columns_and_then_deltas_three(feed: ChangeFeed) -> None:
    row = feed.read(start_version=3, end_version=3).first()
    assert row is not None
    found = row.asDict()
    # PySpark hands out an instant as a time without a zone, in the zone of the process.
    assert found.pop("_commit_timestamp").astimezone(dt.UTC) == at(3)
    assert list(found.items()) == [("id", 2), ("v", "c"), ("_change_type", "insert"), ("_commit_version", 3)]


def test_both_times_between_two_commits_are_an_empty_range(feed: ChangeFeed) -> None:
    empty = feed.read(start_timestamp=at(2.2), end_timestamp=at(2.8))
    assert empty.columns == ["id", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert empty.collect() == []
    assert feed.read(start_timestamp=at(2.5), end_timestamp=at(2.5)).collect() == []


def test_without_a_start_nothing_is_read(feed: ChangeFeed) -> None:
    refused(feed, ConfigError, "DELTA_NO_START_FOR_CDC_READ")
    refused(feed, ConfigError, "DELTA_NO_START_FOR_CDC_READ", end_version=3)


@pytest.mark.parametrize(
    ("kind", "condition", "bounds"),
    [
        (VersionNotFound, "DELTA_CDC_START_VERSION_AFTER_LATEST", {"start_version": 5}),
        (VersionNotFound, "DELTA_CDC_START_VERSION_AFTER_LATEST", {"start_version": 6, "end_version": 7}),
        (VersionNotFound, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", {"start_timestamp": at(4.001)}),
        (VersionNotFound, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", {"start_version": 1, "end_timestamp": at(4.001)}),
        (
            VersionsExpired,
            "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
            {"start_version": 0, "end_timestamp": at(-1)},
        ),
        (ConfigError, "DELTA_INVALID_CDC_RANGE", {"start_version": 3, "end_version": 2}),
        (ConfigError, "DELTA_INVALID_CDC_RANGE", {"start_version": 3, "end_timestamp": at(2.5)}),
        (ConfigError, "DELTA_INVALID_CDC_RANGE", {"start_timestamp": at(2.5), "end_version": 1}),
        (ConfigError, "DELTA_INVALID_CDC_RANGE", {"start_timestamp": at(3), "end_timestamp": at(1)}),
        # the wrong way round, though no commit lies between
        (ConfigError, "DELTA_INVALID_CDC_RANGE", {"start_timestamp": at(2.8), "end_timestamp": at(2.2)}),
        (ConfigError, "DELTA_VERSION_INVALID", {"start_version": -1}),
        (ConfigError, "DELTA_VERSION_INVALID", {"start_version": "abc"}),
        (ConfigError, "DELTA_TIMESTAMP_INVALID", {"start_timestamp": "last week"}),
        (ConfigError, "DELTA_MULTIPLE_CDC_BOUNDARY", {"start_version": 1, "start_timestamp": at(1)}),
        (
            ConfigError,
            "DELTA_MULTIPLE_CDC_BOUNDARY",
            {"start_version": 1, "end_version": 2, "end_timestamp": at(2)},
        ),
    ],
)
def test_a_bound_outside_the_history_or_against_the_rules_is_refused(
    feed: ChangeFeed, kind: type[CdfError], condition: str, bounds: dict[str, Any]
) -> None:
    refused(feed, kind, condition, **bounds)


def test_deltas_own_reader_lets_a_version_win_over_a_time_without_a_word(table: Table) -> None:
    # What DELTA_MULTIPLE_CDC_BOUNDARY above protects from.
    both = table.raw_feed(startingVersion=3, startingTimestamp="2026-01-05T10:01:00Z")
    assert versions(both) == [3, 4]


@pytest.mark.parametrize("naive", ["2026-01-05T10:03:00", "2026-01-05", dt.datetime(2026, 1, 5, 10, 3)])
@pytest.mark.parametrize("side", ["start_timestamp", "end_timestamp"])
def test_a_time_without_a_zone_is_refused(feed: ChangeFeed, naive: Any, side: str) -> None:
    other = {} if side == "start_timestamp" else {"start_version": 0}
    with pytest.raises(ConfigError, match=f"{side} has no zone: 2026-01-05"):
        feed.read(**other, **{side: naive})


def test_the_zone_of_the_session_changes_nothing(spark: SparkSession, table: Table) -> None:
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        # Delta takes a time without a zone for one of that zone, five hours off.
        assert versions(table.raw_feed(startingTimestamp="2026-01-05 05:03:00")) == [3, 4]
        feed = ChangeFeed(spark, table.path)
        assert versions(feed.read(start_timestamp=at(3))) == [3, 4]
        assert versions(feed.read(start_timestamp="2026-01-05T10:03:00Z", end_timestamp=at(3.5))) == [3]
        with pytest.raises(ConfigError, match="start_timestamp has no zone"):
            feed.read(start_timestamp="2026-01-05 10:03:00")
        status = feed.status()
        assert status.latest_timestamp == at(4)
        assert [commit.timestamp for commit in feed.log.commits(0, 4)] == [at(version) for version in range(5)]


def test_the_end_is_fixed_when_the_range_is_made(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')")
    feed = ChangeFeed(spark, delta_path)
    open_end, clipped = feed.read(start_version=0), feed.read(start_version=0, end_version=7)
    table.sql("insert into {t} values (2, 'b')")
    assert (versions(open_end), versions(clipped)) == ([1], [1])
    assert versions(feed.read(start_version=0)) == [1, 2]


def test_times_in_the_commits_count_where_the_table_has_them(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, **AGES, enableInCommitTimestamps="true")
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')", "insert into {t} values (3, 'c')")
    feed = ChangeFeed(spark, delta_path)
    times = [commit.timestamp for commit in feed.log.commits(0, 3)]
    # The files' times lie, as they do after the table was copied.
    table.date({version: at(-version) for version in range(4)})
    feed = ChangeFeed(spark, delta_path)
    assert [commit.timestamp for commit in feed.log.commits(0, 3)] == times
    assert versions(feed.read(start_timestamp=times[2])) == [2, 3]
    assert versions(feed.read(start_version=1, end_timestamp=times[2])) == [1, 2]
    assert versions(feed.read(start_timestamp=times[1] + dt.timedelta(milliseconds=1), end_version=2)) == [2]
    refused(
        feed, VersionNotFound, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", start_timestamp=times[3] + dt.timedelta(seconds=1)
    )


def test_times_in_the_commits_count_from_the_commit_that_turned_them_on(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, **AGES)
    table.sql("insert into {t} values (1, 'a')")
    table.set(enableInCommitTimestamps="true")
    table.sql("insert into {t} values (2, 'b')")
    table.date({version: at(version) for version in range(4)})
    feed = ChangeFeed(spark, delta_path)
    assert versions(feed.read(start_timestamp=at(1))) == [1, 3]
    assert versions(feed.read(start_version=0, end_timestamp=at(1))) == [1]
    # 10:03 is what the file says of version 3; the commit itself says otherwise.
    assert versions(feed.read(start_timestamp=at(3))) == [3]
    assert versions(feed.read(start_version=0, end_timestamp=at(3))) == [1]


def test_commit_times_never_run_backwards(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, **AGES)
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')", "insert into {t} values (3, 'c')")
    table.date({0: at(0), 1: at(5), 2: at(2), 3: at(7)})
    feed = ChangeFeed(spark, delta_path)
    # A clock was wrong: Delta puts version 2 one millisecond after version 1.
    later = at(5) + dt.timedelta(milliseconds=1)
    assert [commit.timestamp for commit in feed.log.commits(0, 3)] == [at(0), at(5), later, at(7)]
    assert versions(feed.read(start_timestamp=later)) == [2, 3]
    assert versions(feed.read(start_version=1, end_timestamp=at(5))) == [1]
    row = feed.read(start_version=1, end_version=2).where("_commit_version = 2").first()
    assert row is not None
    assert row["_commit_timestamp"].astimezone(dt.UTC) == later
