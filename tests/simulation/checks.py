"""What must hold after every step, told from the source's facts alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cdf.changes.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from tests.simulation.program import UNSTORABLE, Options
from tests.simulation.sink import Durable, Held, Target
from tests.simulation.source import Fact, Key, Row, Source

__all__ = ["Ledger"]


class Ledger:
    """Holds each durable step and the target's rows against the source."""

    def __init__(self, source: Source, options: Options, target: Target) -> None:
        self._source, self._options, self._target = source, options, target
        self._seen = 0
        self._history = Counter[tuple[Any, ...]]()
        self._kept: dict[Key, Row | None] = {}
        """What the target held of each erased person when they were erased: later images must not follow."""
        self._mended: dict[Key, Row] = {}
        self._position: int | None = None

    @property
    def erased(self) -> set[Key]:
        return self._source.register if self._options.guard else set()

    def check(self) -> None:
        held = self._target.contents
        assert isinstance(held, Held)
        for key in self.erased - self._kept.keys():
            self._kept[key] = held.rows.get(key)
        for step in self._target.steps[self._seen :]:
            self._take(step)
        self._seen = len(self._target.steps)
        assert held.position.version == self._position, "the position is not that of the last durable step"
        if self._position is not None:
            assert held.position.table_id is not None
            facts = self._source.facts_of(held.position.table_id)
            if self._options.holds == "state":
                self._check_state(held, facts[self._position], facts)
            else:
                self._check_history(held)

    def replayed(self, *, mended: bool) -> None:
        if mended:
            self._mended = dict(self._target.contents.rows)

    def _take(self, step: Durable) -> None:
        table_id = self._target.contents.position.table_id
        assert table_id is not None
        facts = self._source.facts_of(table_id)
        if step.kind == "window":
            follows = self._position is None or step.first == self._position + 1
            assert follows, f"{step.first}..{step.last} does not follow {self._position}"
        self._position = step.last
        assert step.applied.position == step.last
        whole = step.kind != "window" or step.applied.copied is not None
        if whole:
            self._kept = dict.fromkeys(self._kept)
            self._mended = {} if step.kind == "reload" else self._mended
        ahead = facts[step.first : step.last + 1]
        for fact in ahead if step.kind == "window" else ():
            self._kept.update(dict.fromkeys(fact.erased))
        if self._options.holds == "history":
            self._history.update(self._expected_changes(step, ahead))
        elif (
            step.kind == "window"
            and not self.erased
            and not _unstorable(facts[: step.last + 1])
            and not _twice(self._source, facts)
        ):
            assert step.applied.conflicts.total == 0, f"{step.applied.conflicts}: nothing contradicts anything here"

    # ── a state ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_state(self, held: Held, fact: Fact, facts: list[Fact]) -> None:
        source = {self._source.key_of(row): row for row in fact.rows}
        unclear = _twice(self._source, facts[: fact.version + 1])
        assert not held.letters & held.rows.keys(), "a row is in the target, and a dead letter"
        for key in {*source, *held.rows} - unclear:
            found, row = held.rows.get(key), source.get(key)
            if key in self.erased:
                kept = self._kept.get(key)
                allowed = (None, kept and {name: kept.get(name) for name in fact.names})
                assert found in allowed, "a row of an erased person came back"
            elif row is not None and UNSTORABLE in row.values():
                mended = found == row and self._mended.get(key) == row
                assert mended or (found is None and key in held.letters), (
                    "a row that cannot be stored is no dead letter"
                )
            else:
                assert found == row, "the target differs from the source at its position"
                assert key not in held.letters, "a dead letter that has been put right"

    # ── a history ────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_history(self, held: Held) -> None:
        pending = held.position.pending
        begun = range(pending.first, pending.last + 1) if pending else range(0)
        complete = [row for row in held.changes if row[COMMIT_VERSION] not in begun]
        found = Counter(_shape(row[COMMIT_VERSION], row[CHANGE_TYPE], row) for row in complete)
        assert found == self._history, "the history has not each change once"
        in_order = [row[COMMIT_VERSION] for row in complete]
        assert in_order == sorted(in_order), "the history is not in order"

    def _expected_changes(self, step: Durable, ahead: list[Fact]) -> list[tuple[Any, ...]]:
        left_out = self.erased
        if step.kind == "load":
            rows = [row for row in ahead[0].rows if self._source.key_of(row) not in left_out]
            return [_shape(step.last, None, row) for row in rows]
        return [
            _shape(fact.version, kind, row)
            for fact in ahead
            for kind, row in fact.changes
            if fact.erased or self._source.key_of(row) not in left_out
        ]


def _shape(version: int, kind: str | None, row: Row) -> tuple[Any, ...]:
    values = {name: row[name] for name in row if name not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)}
    return version, kind, tuple(sorted(values.items(), key=repr))


def _unstorable(facts: list[Fact]) -> bool:
    return any(UNSTORABLE in row.values() for fact in facts for row in fact.rows)


def _twice(source: Source, facts: list[Fact]) -> set[Key]:
    """Keys that the source has held twice at some time: the net effect cannot tell which row is theirs."""
    found: set[Key] = set()
    for fact in facts:
        keys = Counter(source.key_of(row) for row in fact.rows)
        found |= {key for key in keys if keys[key] > 1}
    return found
