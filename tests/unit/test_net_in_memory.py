"""The net effect in memory equals the sequence: random histories against a plain-Python table, and each rule by example.

The Spark plan and this one are held to the same rules in ``tests/contract/test_net_effect.py``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, CONFLICTS, DELETE, INSERT, TRANSIENT, UPDATE
from cdf.changes.net_arrow import KeyRefused, net_of_sorted, net_on_driver
from cdf.testing.model import KEY, History, Key, histories, key_of
from tests.contract.test_net_effect import check
from tests.fixtures.fix_seed import examples

FEED = pa.schema(
    [
        ("part", pa.string()),
        ("number", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.int32()),
        (CHANGE_TYPE, pa.string()),
        (COMMIT_VERSION, pa.int64()),
    ]
)
PRE, POST = "update_preimage", "update_postimage"


def feed(*changes: tuple[str, int, str]) -> pa.Table:
    """Of the one key ("a", 1): type, version and the new name of each change."""
    rows = [
        {"part": "a", "number": 1, "name": name, "amount": 0, CHANGE_TYPE: kind, COMMIT_VERSION: version}
        for kind, version, name in changes
    ]
    return pa.Table.from_pylist(rows, FEED)


def net(*changes: tuple[str, int, str], transients: bool = False) -> list[tuple[str, str, int, int]]:
    """→ type, name, version and conflicts."""
    rows = net_on_driver(feed(*changes), KEY, transients=transients).to_pylist()
    return [(row[CHANGE_TYPE], row["name"], row[COMMIT_VERSION], row[CONFLICTS]) for row in rows]


@settings(max_examples=examples(200))
@given(history=histories(), data=st.data())
def test_the_net_effect_leads_to_the_same_state(history: History, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, history.last))
    last = data.draw(st.integers(first, history.last))
    rows = [
        {**change.row, CHANGE_TYPE: change.type, COMMIT_VERSION: version}
        for version, change in history.changes(first, last)
    ]
    changes = pa.Table.from_pylist(rows, FEED)
    whole = net_on_driver(changes, KEY)
    found: dict[Key, list[dict[str, Any]]] = {}
    for row in whole.to_pylist():
        found.setdefault(key_of(row), []).append(row)
    check(history, first, last, found)
    # In pieces that tear keys apart, as a task reads a sorted partition
    in_order = changes.sort_by([(name, "ascending") for name in KEY])
    pieces = in_order.to_batches(max_chunksize=data.draw(st.integers(1, 5)))
    assert [row for one in net_of_sorted(pieces, KEY) for row in one.to_pylist()] == whole.to_pylist()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("insert", 1, "a"), (PRE, 2, "a"), (POST, 2, "b")], [(INSERT, "b", 2, 0)]),
        ([(PRE, 1, "a"), (POST, 1, "b"), (PRE, 2, "b"), (POST, 2, "c")], [(UPDATE, "c", 2, 0)]),
        ([("delete", 1, "a"), ("insert", 2, "b")], [(UPDATE, "b", 2, 0)]),
        ([("delete", 1, "a"), ("insert", 1, "b")], [(UPDATE, "b", 1, 0)]),
        ([(PRE, 1, "a"), (POST, 1, "b"), ("delete", 2, "b")], [(DELETE, "b", 2, 0)]),
        ([("insert", 1, "a"), ("delete", 2, "a")], []),
        ([("delete", 1, "a"), ("insert", 2, "b"), ("delete", 3, "b")], [(DELETE, "b", 3, 0)]),
        ([("insert", 1, "a"), ("insert", 3, "b")], [(INSERT, "b", 3, 1)]),
        ([("delete", 1, "a"), ("delete", 2, "a"), ("delete", 3, "a")], [(DELETE, "a", 3, 2)]),
        ([("delete", 1, "a"), ("delete", 1, "a")], [(DELETE, "a", 1, 1)]),
        ([], []),
    ],
)
def test_the_last_image_counts_and_the_type_is_told_by_what_was_there_before(
    changes: list[tuple[str, int, str]], expected: list[tuple[str, str, int, int]]
) -> None:
    assert net(*changes) == expected
    assert net(*reversed(changes)) == expected, "the feed comes in no order"


def test_a_key_that_came_and_went_is_told_only_to_those_who_ask() -> None:
    assert net(("insert", 1, "a"), ("delete", 2, "a"), transients=True) == [(TRANSIENT, "a", 2, 0)]
    # After a conflict it cannot be known that there was nothing before
    assert net(("insert", 1, "a"), ("delete", 2, "a"), ("delete", 3, "a")) == [(DELETE, "a", 3, 1)]


def test_a_key_that_is_put_twice_in_one_version_is_refused_with_the_first_such_version() -> None:
    rows = [("insert", 1, "a"), ("insert", 5, "b"), (POST, 5, "c"), ("insert", 4, "d"), ("insert", 4, "e")]
    with pytest.raises(KeyRefused) as found:
        net(*rows)
    assert (found.value.reason, found.value.version) == ("put_twice", 4)


@pytest.mark.parametrize("name", KEY)
def test_a_null_in_the_key_is_refused_with_its_first_version(name: str) -> None:
    rows = feed(("insert", 1, "a"), ("insert", 7, "b"), ("insert", 3, "c")).to_pylist()
    rows[1][name] = rows[2][name] = None
    with pytest.raises(KeyRefused) as found:
        net_on_driver(pa.Table.from_pylist(rows, FEED), KEY)
    assert (found.value.reason, found.value.version) == ("null_key", 3)
    # In pieces each one is refused as well
    with pytest.raises(KeyRefused):
        list(net_of_sorted(pa.Table.from_pylist(rows, FEED).to_batches(max_chunksize=1), KEY))
