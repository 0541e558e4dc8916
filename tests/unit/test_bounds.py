"""What a caller says about a range, and the versions it means; the log is a dictionary of commit times here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest

from cdf.errors import CdfError, ConfigError, VersionNotFound, VersionsExpired
from cdf.source.bounds import Bound, parse_timestamp, resolve_end, resolve_start


class FakeLog:
    """Commit ``version`` was made ``seconds`` after noon."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._times = {version: noon(second) for version, second in seconds.items()}

    def latest(self) -> int:
        return max(self._times)

    def times(self) -> Mapping[int, dt.datetime]:
        return self._times


def noon(seconds: float) -> dt.datetime:
    return dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


WHOLE = FakeLog({0: 0, 1: 10, 2: 20, 3: 30})
SHORTENED = FakeLog({5: 50, 6: 60})
BROKEN = FakeLog({0: 0, 1: 10, 3: 30, 4: 40})
"""The commit file of version 2 is gone."""


def start(log: FakeLog, **bound: Any) -> int:
    given = Bound.of("start", version=bound.get("version"), timestamp=bound.get("timestamp"))
    assert given is not None
    return resolve_start(log, given, table="t")  # type: ignore[arg-type]


def end(log: FakeLog, **bound: Any) -> int:
    given = Bound.of("end", version=bound.get("version"), timestamp=bound.get("timestamp"))
    return resolve_end(log, given, table="t")  # type: ignore[arg-type]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_said_is_no_bound() -> None:
    assert Bound.of("start", version=None, timestamp=None) is None


def test_a_version_a_time_and_the_word_latest() -> None:
    assert Bound.of("start", version=3, timestamp=None) == Bound(version=3)
    assert Bound.of("start", version="latest", timestamp=None) == Bound(latest=True)
    assert Bound.of("end", version=None, timestamp="2026-01-31T12:00:00Z") == Bound(timestamp=noon(0))


@pytest.mark.parametrize("side", ["start", "end"])
def test_both_kinds_for_one_side_are_refused(side: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Bound.of(side, version=3, timestamp=noon(0))
    assert caught.value.message == f"both {side}_version and {side}_timestamp are given"
    assert caught.value.condition == "DELTA_MULTIPLE_CDC_BOUNDARY"


@pytest.mark.parametrize("version", [-1, "3", "abc", 1.0, True])
def test_what_is_no_version_is_refused(version: Any) -> None:
    with pytest.raises(ConfigError, match="start_version is not a version") as caught:
        Bound.of("start", version=version, timestamp=None)
    assert caught.value.condition == "DELTA_VERSION_INVALID"


def test_an_end_cannot_be_the_word_latest() -> None:
    with pytest.raises(ConfigError, match="end_version is not a version: 'latest'"):
        Bound.of("end", version="latest", timestamp=None)


# ── times ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31 12:00:00+00:00",
        "2026-01-31T13:00:00+01:00",
        "2026-01-31T07:00:00.000-05:00",
        " 2026-01-31T12:00:00Z\n",
    ],
)
def test_the_zone_of_a_time_counts(text: str) -> None:
    assert parse_timestamp(text, name="start") == dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def test_a_datetime_with_a_zone_is_taken_as_it_is() -> None:
    berlin = dt.timezone(dt.timedelta(hours=1))
    parsed = parse_timestamp(dt.datetime(2026, 1, 31, 13, tzinfo=berlin), name="start")
    assert (parsed, parsed.tzinfo) == (noon(0), dt.UTC)


@pytest.mark.parametrize("naive", ["2026-01-31T12:00:00", dt.datetime(2026, 1, 31, 12)])
def test_a_time_without_a_zone_is_refused_and_the_remedy_shown(naive: dt.datetime | str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_timestamp(naive, name="start_timestamp")
    assert caught.value.message == "start_timestamp has no zone: 2026-01-31 12:00:00"
    assert caught.value.hint == "add the zone, for instance 2026-01-31T12:00:00Z for UTC"


def test_a_bare_date_is_refused_too_because_a_day_begins_at_another_moment_in_every_zone() -> None:
    with pytest.raises(ConfigError, match="start has no zone: 2026-01-31 00:00:00"):
        parse_timestamp("2026-01-31", name="start")


@pytest.mark.parametrize("text", ["", "yesterday", "1769860800", "2026-13-01T00:00:00Z", "2026-01-31T25:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="until is not a time") as caught:
        parse_timestamp(text, name="until")
    assert caught.value.condition == "DELTA_TIMESTAMP_INVALID"


def test_a_date_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="until is not a time"):
        parse_timestamp(dt.date(2026, 1, 31), name="until")  # type: ignore[arg-type]


# ── what a start means ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_start_version_up_to_the_latest_is_itself() -> None:
    assert [start(WHOLE, version=version) for version in range(4)] == [0, 1, 2, 3]
    assert start(WHOLE, version="latest") == 3


def test_a_start_version_beyond_the_latest_is_refused() -> None:
    with pytest.raises(VersionNotFound, match="t has no version 4 yet; the latest is 3") as caught:
        start(WHOLE, version=4)
    assert caught.value.condition == "DELTA_CDC_START_VERSION_AFTER_LATEST"
    assert caught.value.fields == {"latest": 3}


@pytest.mark.parametrize(("second", "version"), [(-3600, 0), (0, 0), (0.001, 1), (10, 1), (29.999, 3), (30, 3)])
def test_a_start_time_means_the_first_commit_at_or_after_it(second: float, version: int) -> None:
    assert start(WHOLE, timestamp=noon(second)) == version


def test_a_start_time_after_the_last_commit_is_refused() -> None:
    with pytest.raises(VersionNotFound, match="is after the last commit of t") as caught:
        start(WHOLE, timestamp=noon(30.001))
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"


def test_a_start_time_older_than_the_log_is_refused_where_commits_are_gone() -> None:
    with pytest.raises(VersionsExpired) as caught:
        start(SHORTENED, timestamp=noon(49.999))
    assert caught.value.message == (
        "the commits of t before version 5 (2026-01-31T12:00:50.000Z) no longer exist, "
        "so the changes since the start time are incomplete"
    )
    assert caught.value.fields == {"earliest": 5}


def test_a_start_time_at_the_first_commit_that_is_left_is_good() -> None:
    assert start(SHORTENED, timestamp=noon(50)) == 5
    assert start(SHORTENED, timestamp=noon(50.001)) == 6


def test_a_start_time_at_a_missing_commit_is_refused() -> None:
    for second in (10.001, 20, 29.999):
        with pytest.raises(VersionsExpired, match="before version 3"):
            start(BROKEN, timestamp=noon(second))
    assert start(BROKEN, timestamp=noon(10)) == 1
    assert start(BROKEN, timestamp=noon(30)) == 3


# ── what an end means ────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_end_is_the_latest_version() -> None:
    assert end(WHOLE) == 3


def test_an_end_version_beyond_the_latest_is_clipped() -> None:
    assert [end(WHOLE, version=version) for version in (0, 3, 4, 4_000)] == [0, 3, 3, 3]


@pytest.mark.parametrize(("second", "version"), [(0, 0), (9.999, 0), (10, 1), (29.999, 2), (30, 3)])
def test_an_end_time_means_the_last_commit_at_or_before_it(second: float, version: int) -> None:
    assert end(WHOLE, timestamp=noon(second)) == version


@pytest.mark.parametrize(
    ("second", "kind", "condition"),
    [
        (30.001, VersionNotFound, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        (-0.001, VersionsExpired, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
    ],
)
def test_an_end_time_outside_the_history_is_refused(second: float, kind: type[CdfError], condition: str) -> None:
    with pytest.raises(kind) as caught:
        end(WHOLE, timestamp=noon(second))
    assert caught.value.condition == condition


def test_an_end_time_at_a_missing_commit_is_refused() -> None:
    for second in (10.001, 20, 29.999):
        with pytest.raises(VersionsExpired, match="after version 1"):
            end(BROKEN, timestamp=noon(second))
    assert end(BROKEN, timestamp=noon(10)) == 1
    assert end(BROKEN, timestamp=noon(40)) == 4
