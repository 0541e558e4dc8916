"""A keyed table in plain Python, and random histories of it as the change feed reports them.

The table's state after each version follows from what a statement does to rows, never from the changes. So it is an oracle
with which the changes, and everything computed from them, can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.testing.changes import Change, Edit, Row, delete, insert, update

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["KEY", "COLUMNS", "Version", "History", "random_history", "histories", "key_of"]

KEY = ("part", "number")
COLUMNS = {"part": "string", "number": "long", "name": "string", "amount": "integer"}

Key = tuple[str, int]
State = Mapping[Key, Row]

# Few keys, so that changes often meet. Concatenated, two of them have the same text.
_KEYS: tuple[Key, ...] = (("", 11), ("1", 1), ("a", 1), ("a", 11), ("a1", 1), ("B", 2))
_NAMES = (None, "", "x", "y", "a b")


@dataclass(frozen=True, slots=True)
class Version:
    """One commit: its rows in the feed, in no order, and the table after the commit."""

    changes: tuple[Change, ...]
    after: State


@dataclass(frozen=True, slots=True)
class History:
    """The table at version 0, and the commits from version 1 on."""

    start: State
    versions: tuple[Version, ...]

    @property
    def last(self) -> int:
        return len(self.versions)

    def state(self, version: int) -> State:
        return self.versions[version - 1].after if version else self.start

    def changes(self, first: int, last: int) -> Iterator[tuple[int, Change]]:
        for version in range(first, last + 1):
            for change in self.versions[version - 1].changes:
                yield version, change


def key_of(row: Row) -> Key:
    return row["part"], row["number"]


def histories(versions: int = 6) -> SearchStrategy[History]:
    """A hypothesis strategy that shrinks. To draw many histories at once, seed ``random_history`` instead."""
    from hypothesis import strategies

    return strategies.randoms(use_true_random=False).map(lambda source: random_history(source, versions))


def random_history(source: random.Random, versions: int = 6) -> History:
    """Up to ``versions`` commits: statements, overwrites, restores, and commits that change no row."""
    start = {key: _row(source, key) for key in _some(source, _KEYS)}
    states: list[State] = [start]
    commits: list[Version] = []
    for _ in range(source.randint(1, versions)):
        kind = source.choice(("merge", "merge", "merge", "swap", "overwrite", "restore", "nothing"))
        edits, after = _commit(source, kind, states)
        changes = [change for edit in edits for change in edit]
        source.shuffle(changes)
        commits.append(Version(tuple(changes), after))
        states.append(after)
    return History(start, tuple(commits))


def _commit(source: random.Random, kind: str, states: list[State]) -> tuple[list[Edit], State]:
    before = states[-1]
    if kind == "merge":
        return _merge(source, before)
    if kind == "swap" and len(before) > 1:
        return _swap(source, before)
    if kind == "overwrite":
        return _replace(before, {key: _row(source, key) for key in _some(source, _KEYS)})
    if kind == "restore":
        return _restore(source, before, source.choice(states))
    return [], before


def _merge(source: random.Random, before: State) -> tuple[list[Edit], State]:
    """Each row gets a random change. A row may move to a key that another row has left, and so may a new row."""
    edits: list[Edit] = []
    after: dict[Key, Row] = {}
    movers: list[Key] = []
    for key, row in before.items():
        fate = source.choice(("stay", "delete", "change", "same", "rewrite", "move"))
        if fate == "stay":
            after[key] = row
        elif fate == "delete":
            edits.append(delete(row))
        elif fate == "change":
            after[key] = _row(source, key)
            edits.append(update(row, after[key]))
        elif fate == "same":
            after[key] = row
            edits.append(update(row, row))
        elif fate == "rewrite":
            after[key] = row
            edits.extend((delete(row), insert(row)))
        else:
            movers.append(key)
    free = [key for key in _KEYS if key not in after]
    source.shuffle(free)
    for key in movers:
        target = free.pop()
        after[target] = {**before[key], "part": target[0], "number": target[1]}
        edits.append(update(before[key], after[target]))
    for key in free:
        if source.random() < 0.4:
            after[key] = _row(source, key)
            edits.append(insert(after[key]))
    return edits, after


def _swap(source: random.Random, before: State) -> tuple[list[Edit], State]:
    one, two = source.sample(sorted(before), 2)
    after = dict(before)
    after[one] = {**before[two], "part": one[0], "number": one[1]}
    after[two] = {**before[one], "part": two[0], "number": two[1]}
    return [update(before[one], after[two]), update(before[two], after[one])], after


def _replace(before: State, after: State) -> tuple[list[Edit], State]:
    """Delete all rows, insert all rows, also those that are in both."""
    return [*map(delete, before.values()), *map(insert, after.values())], after


def _restore(source: random.Random, before: State, after: State) -> tuple[list[Edit], State]:
    """Files are removed and restored: rows that differ, and rows that only share a file with them."""
    edits: list[Edit] = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old != new or source.random() < 0.3:
            edits.extend(delete(row) for row in (old,) if row is not None)
            edits.extend(insert(row) for row in (new,) if row is not None)
    return edits, after


def _row(source: random.Random, key: Key) -> Row:
    values: dict[str, Any] = {"name": source.choice(_NAMES), "amount": source.choice((None, 0, 1, 2))}
    return {"part": key[0], "number": key[1], **values}


def _some(source: random.Random, keys: tuple[Key, ...]) -> list[Key]:
    return [key for key in keys if source.random() < 0.6]
