"""Windows are whole commits in order; limits and schema changes decide where one ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import pytest

from cdf.changes.commits import Commit, Limits, cut
from cdf.errors import ConfigError

WIDE = Limits(max_commits=1_000, max_bytes=1_000_000)


def commit(version: int, size: int = 0) -> Commit:
    return Commit(
        version=version,
        timestamp=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        change_files=1 if size else 0,
        change_bytes=size,
    )


def versions(commits: Iterable[Commit], limits: Limits, borders: Iterable[int] = ()) -> list[list[int]]:
    chosen = set(borders)
    windows = cut(commits, limits, starts_segment=lambda one: one.version in chosen)
    return [[one.version for one in window] for window in windows]


def test_no_commits_make_no_window() -> None:
    assert versions([], WIDE) == []


def test_a_single_commit_is_a_window() -> None:
    assert versions([commit(7)], WIDE) == [[7]]


def test_a_single_commit_is_a_window_even_above_the_limit() -> None:
    assert versions([commit(7, 11)], Limits(max_bytes=10)) == [[7]]


def test_commits_below_the_limits_stay_together() -> None:
    assert versions([commit(3, 10), commit(4, 20), commit(5)], WIDE) == [[3, 4, 5]]


def test_the_number_of_commits_is_limited() -> None:
    five = [commit(version) for version in range(5)]
    assert versions(five, Limits(max_commits=2)) == [[0, 1], [2, 3], [4]]
    assert versions(five, Limits(max_commits=1)) == [[0], [1], [2], [3], [4]]
    assert versions(five, Limits(max_commits=5)) == [[0, 1, 2, 3, 4]]


def test_the_bytes_of_a_window_are_limited() -> None:
    four = [commit(1, 40), commit(2, 60), commit(3, 1), commit(4, 99)]
    assert versions(four, Limits(max_bytes=100)) == [[1, 2], [3, 4]]
    assert versions(four, Limits(max_bytes=99)) == [[1], [2, 3], [4]]


def test_a_commit_above_the_limit_is_a_window_of_its_own() -> None:
    commits = [commit(1, 10), commit(2, 500), commit(3, 10), commit(4, 10)]
    assert versions(commits, Limits(max_bytes=100)) == [[1], [2], [3, 4]]


def test_a_commit_without_rows_does_not_join_one_above_the_limit() -> None:
    assert versions([commit(1, 500), commit(2), commit(3, 1)], Limits(max_bytes=100)) == [[1], [2, 3]]


def test_whichever_limit_is_reached_first_cuts() -> None:
    commits = [commit(1, 1), commit(2, 1), commit(3, 1), commit(4, 90), commit(5, 20)]
    assert versions(commits, Limits(max_commits=3, max_bytes=100)) == [[1, 2, 3], [4], [5]]


def test_a_commit_that_changes_the_schema_begins_a_window() -> None:
    commits = [commit(version, 1) for version in range(6)]
    assert versions(commits, WIDE, borders=[2, 5]) == [[0, 1], [2, 3, 4], [5]]


def test_a_schema_change_at_the_very_first_commit_makes_no_empty_window() -> None:
    assert versions([commit(0), commit(1)], WIDE, borders=[0]) == [[0, 1]]


def test_a_limit_counts_anew_after_a_schema_change() -> None:
    commits = [commit(version) for version in range(6)]
    assert versions(commits, Limits(max_commits=3), borders=[2]) == [[0, 1], [2, 3, 4], [5]]


def test_every_commit_is_asked_once_and_in_order_whether_it_begins_a_segment() -> None:
    asked: list[int] = []

    def starts_segment(one: Commit) -> bool:
        asked.append(one.version)
        return False

    # A limit that cuts at the same commit must not keep the question from being asked.
    list(cut([commit(version) for version in range(4)], Limits(max_commits=1), starts_segment=starts_segment))
    assert asked == [0, 1, 2, 3]


def test_commits_are_read_as_windows_are_asked_for_one_beyond_at_most() -> None:
    read: list[int] = []

    def endless() -> Iterator[Commit]:
        version = 0
        while True:
            read.append(version)
            yield commit(version)
            version += 1

    windows = cut(endless(), Limits(max_commits=2), starts_segment=lambda _: False)
    assert read == []
    assert [one.version for one in next(windows)] == [0, 1]
    assert read == [0, 1, 2]
    assert [one.version for one in next(windows)] == [2, 3]
    assert read == [0, 1, 2, 3, 4]


def test_a_failure_while_reading_commits_arrives_after_the_windows_before_it() -> None:
    def damaged() -> Iterator[Commit]:
        yield commit(0)
        yield commit(1)
        raise OSError("unreadable")

    windows = cut(damaged(), Limits(max_commits=1), starts_segment=lambda _: False)
    assert [one.version for one in next(windows)] == [0]
    with pytest.raises(OSError, match="unreadable"):
        list(windows)


@pytest.mark.parametrize("values", [{"max_commits": 0}, {"max_bytes": 0}, {"max_commits": -1}])
def test_a_limit_below_one_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="window limits must be at least 1"):
        Limits(**values)


def test_a_window_ends_after_a_commit_that_ends_a_segment() -> None:
    four = [commit(version) for version in range(4)]
    ends = cut(four, WIDE, starts_segment=lambda _: False, ends_segment=lambda one: one.version in {1, 3})
    assert [[one.version for one in window] for window in ends] == [[0, 1], [2, 3]]
