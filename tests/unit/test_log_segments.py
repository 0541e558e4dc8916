"""Which files of a log describe the table at a version."""

from __future__ import annotations

import datetime as dt

import pytest

from cdf.source.log_readers import LogListing
from cdf.source.public_states import Segment, choose_segment

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
