"""Which files of a log describe the table at a version."""

from __future__ import annotations

import datetime as dt

import pytest

from cdf.source.log_readers import LogListing
from cdf.source.log_segments import Segment, choose_segment, find_latest

CLASSIC = "{:020d}.checkpoint.parquet"
V2 = "{:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def part(version: int, number: int, of: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{of:010d}.parquet"


@pytest.mark.parametrize("name", [CLASSIC, V2])
def test_the_newest_checkpoint_up_to_the_version_is_used(name: str) -> None:
    names = [*commits(*range(9)), name.format(2), name.format(4), name.format(7)]
    assert choose_segment(names, 6) == Segment((name.format(4),), (5, 6))
    assert choose_segment(names, 7) == Segment((name.format(7),), ())
    assert choose_segment(names, 1) == Segment((), (0, 1))


def test_a_checkpoint_in_parts_needs_all_of_them() -> None:
    names = [*commits(*range(5)), part(3, 1, 3), part(3, 3, 3), part(1, 1, 2), part(1, 2, 2)]
    assert choose_segment(names, 4) == Segment((part(1, 1, 2), part(1, 2, 2)), (2, 3, 4))
    assert choose_segment([*names, part(3, 2, 3)], 4) == Segment((part(3, 1, 3), part(3, 2, 3), part(3, 3, 3)), (4,))


def test_a_version_whose_commits_are_lost_has_no_segment() -> None:
    names = [*commits(0, 2, 3, 5), CLASSIC.format(3), "00000000000000000000.00000000000000000004.compacted.json"]
    assert choose_segment(names, 0) == Segment((), (0,))
    assert [choose_segment(names, version) for version in (1, 2, 4, 5)] == [None] * 4
    assert choose_segment(names, 3) == Segment((CLASSIC.format(3),), ())


def test_what_can_be_rebuilt_follows_the_same_rule() -> None:
    now = dt.datetime.now(dt.UTC)
    listing = LogListing(dict.fromkeys((0, 2, 3, 5), now), frozenset({3}))
    assert [listing.can_rebuild(version) for version in range(6)] == [True, False, False, True, False, False]


@pytest.mark.parametrize("checkpoint", [CLASSIC, V2])
def test_the_latest_version_is_that_of_the_last_commit(checkpoint: str) -> None:
    others = [
        "_last_checkpoint",
        "._last_checkpoint.crc",
        ".00000000000000000003.json.crc",
        "00000000000000000003.crc",
        "00000000000000000001.00000000000000000003.compacted.json",
        ".00000000000000000004.json.7f1d.tmp",
        "_sidecars",
    ]
    assert find_latest([*commits(0, 1, 2, 3), *others], 0) == 3
    assert find_latest([*commits(0, 1, 2, 3), *others], 3) == 3
    assert find_latest([*commits(2, 3), checkpoint.format(2), *others], 2) == 3


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ([], 0),
        (commits(0, 1), 2),  # an older copy was restored
        (commits(0, 1, 3), 1),
        (commits(0, 1, 3), 3),  # Delta cannot rebuild the table
        ([*commits(0, 1, 3), CLASSIC.format(3)], 1),  # Delta can, but not apply the commits
        ([*commits(0, 3), part(2, 1, 2)], 3),
        ([*commits(0, 1), CLASSIC.format(2)], 1),  # the commit file of the checkpoint is gone
        ([*commits(0, 1), "00000000000000000001.00000000000000000002.compacted.json"], 1),
    ],
)
def test_delta_must_tell_where_a_file_may_be_missing(names: list[str], known: int) -> None:
    assert find_latest(names, known) is None
