"""The comparison by bucket finds what a naive comparison of all rows finds, and holds no more examples than it shows."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdf.errors import VerificationError
from cdf.sink import RowDigest
from cdf.verify.differences import Difference, Differences, RowsByBucket, bucket_of
from tests.fixtures.fix_seed import examples

KEYS = st.integers(0, 12)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 2)), max_size=30)


def digest(key: int, row: int) -> RowDigest:
    return RowDigest(hashlib.md5(b"%d" % key).hexdigest(), f"row {row}")


def naive(source: list[RowDigest], target: list[RowDigest], *, keeps_deleted: bool) -> tuple[set[Difference], int]:
    """→ the differences, and the number of kept rows"""
    counts = Counter(row.key for row in source)
    there = {row.key: row.row for row in target}
    found = {Difference("duplicate", key) for key, count in counts.items() if count > 1}
    found |= {Difference("missing", key) for key in counts if key not in there}
    found |= {
        Difference("different", row.key)
        for row in source
        if counts[row.key] == 1 and there.get(row.key, row.row) != row.row
    }
    only_there = there.keys() - counts.keys()
    return found if keeps_deleted else found | {Difference("extra", key) for key in only_there}, len(only_there)


@settings(max_examples=examples(300))
@given(ROWS, st.dictionaries(KEYS, st.integers(0, 2)), st.integers(1, 9), st.booleans(), st.integers(0, 20))
def test_a_comparison_by_bucket_finds_what_a_naive_one_finds(
    rows: list[tuple[int, int]], there: dict[int, int], buckets: int, keeps_deleted: bool, most: int
) -> None:
    def by_bucket(row: RowDigest) -> int:
        return bucket_of(row, buckets)

    source, target = [digest(*row) for row in rows], [digest(*row) for row in there.items()]
    counts = Differences(most, keeps_deleted)
    of_source = RowsByBucket(sorted(source, key=by_bucket), buckets, side="source")
    of_target = RowsByBucket(sorted(target, key=by_bucket), buckets, side="target")
    for bucket in range(buckets):
        counts.compare(of_source.take(bucket), of_target.take(bucket))
    of_source.check_exhausted()
    of_target.check_exhausted()
    expected, only_there = naive(source, target, keeps_deleted=keeps_deleted)
    kinds = Counter(one.kind for one in expected)
    assert (counts.missing, counts.extra) == (kinds["missing"], kinds["extra"])
    assert (counts.different, counts.duplicate) == (kinds["different"], kinds["duplicate"])
    assert (counts.kept, counts.source_rows) == (only_there if keeps_deleted else 0, len(source))
    assert counts.examples == sorted(expected, key=lambda one: (one.kind, one.key))[:most]
    unequal = (Counter(source) - Counter(target)) + (Counter(target) - Counter(source))
    assert counts.differing_buckets == len({by_bucket(row) for row in unequal})


def test_rows_that_are_not_ordered_by_bucket_are_an_error() -> None:
    rows = sorted((digest(key, 0) for key in range(20)), key=lambda row: -bucket_of(row, 4))
    by_bucket = RowsByBucket(rows, 4, side="target")
    for bucket in range(4):
        by_bucket.take(bucket)
    with pytest.raises(VerificationError, match="not ordered by bucket"):
        by_bucket.check_exhausted()
