"""What a find asks of somebody, and which finds a decision covers."""

from __future__ import annotations

import pytest

from audit.erasure.run.acceptance import is_accepted
from audit.erasure.scan.findings import FOLLOWS, NEXT, REASONS
from audit.erasure.scan.results import Finding

DECIDED = [
    {"place": "/data/t/part-1.parquet", "reason": "current file", "spelling": "value", "count": 2},
    {"place": "orders/0", "reason": "record", "spelling": "html", "count": 1},
]


def test_every_find_says_what_to_do() -> None:
    assert NEXT.keys() == REASONS.keys()
    assert FOLLOWS.issubset(REASONS)


@pytest.mark.parametrize(
    ("place", "reason", "spelling", "count", "covered"),
    [
        ("/data/t/part-1.parquet", "current file", "value", 2, True),
        ("/data/t/part-2.parquet", "current file", "value", 1, True),  # written anew
        ("/data/t/part-1.parquet", "current file", "value", 3, False),
        ("/data/t/part-1.parquet", "current file", "html", 1, False),
        ("/data/u/part-1.parquet", "current file", "value", 1, False),
        ("/data/t/_delta_log/7.checkpoint.parquet", "checkpoint", "value", 9, True),
        ("/data/u/_delta_log/7.checkpoint.parquet", "checkpoint", "value", 1, False),
        ("/data/_delta_log/7.checkpoint.parquet", "checkpoint", "value", 1, True),  # in a partition's folder
        ("/dat/_delta_log/7.checkpoint.parquet", "checkpoint", "value", 1, False),
        ("orders/3", "record", "html", 1, True),
        ("orders/3", "record", "value", 1, False),
        ("public.orders", "current row", "value", 1, False),
    ],
)
def test_a_decision_covers_what_it_was_made_for(
    place: str, reason: str, spelling: str, count: int, covered: bool
) -> None:
    assert is_accepted([Finding("R-1", place, reason, spelling, count, None)], DECIDED) is covered
