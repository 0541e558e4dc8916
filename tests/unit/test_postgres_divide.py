"""Rows are put in halves until those to blame are alone; their places are listed for one page at a time."""

from __future__ import annotations

import random

import psycopg
import pytest

from connectors.postgres.write.bisect import Pages, bisect


@pytest.mark.parametrize("seed", range(20))
def test_each_good_row_is_put_once_and_each_bad_one_named(seed: int) -> None:
    chance = random.Random(seed)
    rows = sorted((page, row) for page in range(chance.randint(0, 40)) for row in range(1, chance.randint(1, 9)))
    bad = set(chance.sample(rows, min(len(rows), chance.choice([0, 1, 5, 400]))))
    put: list[tuple[int, int]] = []
    listed: list[int] = []

    def between(low: str, high: str) -> list[tuple[int, int]]:
        first, last = (tuple(map(int, place.strip("()").split(","))) for place in (low, high))
        return [row for row in rows if first <= row <= last]

    def rows_of(low: str, high: str) -> list[str]:
        found = between(low, high)
        listed.append(len({page for page, _ in found}))
        return [f"({page},{row})" for page, row in found]

    def put_all(low: str, high: str) -> None:
        if bad.intersection(found := between(low, high)):
            raise psycopg.errors.CheckViolation
        put.extend(found)

    failed = bisect(Pages(range(40), rows_of), put_all, limit=1000)
    assert [one.address for one in failed] == [f"({page},{row})" for page, row in sorted(bad)]
    assert sorted(put) == sorted(set(rows) - bad)
    assert set(listed) <= {1}
    assert bisect([], put_all, limit=1) == []


def test_a_refusal_that_no_row_explains_is_raised() -> None:
    def put(low: str, high: str) -> None:
        raise psycopg.errors.CheckViolation

    with pytest.raises(psycopg.errors.CheckViolation):
        bisect(Pages(range(3), lambda *_: []), put, limit=10)


@pytest.mark.parametrize(
    "error", [psycopg.errors.LockNotAvailable, psycopg.errors.ForeignKeyViolation, psycopg.OperationalError]
)
def test_what_no_row_is_to_blame_for_sets_no_row_aside(error: type[psycopg.Error]) -> None:
    def put(low: str, high: str) -> None:
        raise error

    with pytest.raises(error):
        bisect(["(0,1)", "(0,2)"], put, limit=10)
