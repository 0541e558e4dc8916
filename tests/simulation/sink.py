"""The target of a program: the memory sink of ``cdf.testing`` with what real sinks have besides, and places to die.

Everything durable is in ``Held``, replaced as one value by the owner of the lease: dead letters and unfinished windows too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdf.changes.columns import COMMIT_VERSION
from cdf.changes.window import Snapshot, Window
from cdf.errors import CdfError, WindowOutOfOrder
from cdf.sink import Applied, Bounds, Inspection, Position, RunRecord, Source
from cdf.testing import MemorySink, MemoryStore
from cdf.testing.memory import Contents
from tests.simulation.program import UNSTORABLE, Options
from tests.simulation.source import Key, Row

__all__ = ["Died", "Durable", "Held", "ProgramSink", "Target"]


class Died(BaseException):
    """The process is gone: nothing that it would do afterwards happens."""


@dataclass(frozen=True, slots=True)
class Held(Contents):
    """``rows`` are those that could be stored, ``letters`` the keys of those that could not."""

    letters: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Durable:
    """One step that became durable."""

    kind: str
    first: int
    last: int
    applied: Applied


@dataclass
class Target(MemoryStore):
    """The store, and what the target knows of its runs. Time stands still until a program waits."""

    now: float = 0.0
    mended: bool = False
    steps: list[Durable] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """The code of each failed try that was recorded."""

    def __post_init__(self) -> None:
        super().__init__(clock=lambda: self.now)
        self.contents = Held()

    def wait(self) -> None:
        self.now += self.lease_seconds + 1.0

    @property
    def leased(self) -> bool:
        return self.owner is not None and self.now < self.expires_at


class ProgramSink(MemorySink):
    """``at(moment)`` is called wherever something can happen: it may raise, and it may have others at work meanwhile."""

    def __init__(self, target: Target, options: Options, *, at: Callable[[str], None]) -> None:
        super().__init__(target, holds=options.holds, schema_changes=options.follows)
        self.target, self.options = target, options
        self.dead = False
        self._at = at
        self._announced: Window | None = None
        self._due: Window | None = None

    @property
    def held(self) -> Held:
        held = self.target.contents
        assert isinstance(held, Held)
        return held

    # ── the contract ─────────────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        self._happens("inspect")
        return super().inspect(source)

    def open(self, source: Source) -> Position:
        self._happens("before_open")
        self._announced = self._due = None  # after a failure another window may come
        position = super().open(source)
        self._happens("open")
        return position

    def load(self, snapshot: Snapshot) -> Applied:
        return self._step("load", snapshot.version, snapshot.version, lambda: super(ProgramSink, self).load(snapshot))

    def apply(self, window: Window) -> Applied:
        due, self._due, self._announced = self._due, self._announced, None
        assert due in (None, window), "the window is not the one that was announced"
        return self._step("window", window.first, window.last, lambda: self._apply(window))

    def announce(self, window: Window) -> None:
        if self.options.foresees:
            self._announced = window

    def close(self) -> None:
        if not self.dead:
            super().close()

    def _apply(self, window: Window) -> Applied:
        self.store.check(self._epoch)
        if self.options.two_steps:
            self._begin(window)
        if self.options.copies and window.has_snapshot and window.has_changes:
            return self._copy(window)
        return super().apply(window)

    # ── windows that become durable in parts ─────────────────────────────────────────────────────────────────────

    def _begin(self, window: Window) -> None:
        """Bounds before rows; then some of the rows. What is there already of the same window is written again."""
        held = self.held
        bounds = Bounds(window.first, window.last)
        pending = held.position.pending
        if pending is not None and pending != bounds:
            raise WindowOutOfOrder(f"{pending} was begun, and not {bounds}", first=window.first, last=window.last)
        self._is_replay(replace(held.position, pending=None), window)
        started = replace(held.position, table_id=held.position.table_id or window.table_id, pending=bounds)
        self._make_durable(replace(held, position=started))
        rows = self._rows_before(window)[::2]
        self._make_durable(replace(held, position=started, changes=(*held.changes, *rows)))

    def _rows_before(self, window: Window) -> list[Row]:
        return window.collect().to_pylist() if window.has_changes else []

    def _make_durable(self, contents: Contents) -> None:
        """A window that is complete now: what was begun of it counts no longer."""
        pending = self.held.position.pending
        if pending is not None and contents.position.pending is None:
            kept = tuple(row for row in contents.changes if not self._begun(row, self.held, pending))
            contents = replace(contents, changes=kept)
        contents = self._without_unstorable(contents)
        self._happens("during")
        self.store.swap(self._epoch, contents)

    def _begun(self, row: Row, held: Held, pending: Bounds) -> bool:
        return any(row is one for one in held.changes) and pending.first <= row[COMMIT_VERSION] <= pending.last

    # ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────

    def _without_unstorable(self, contents: Contents) -> Contents:
        """A state keeps no row that the target refuses; its key becomes a dead letter until the row changes or goes."""
        if self.options.holds != "state":
            return contents
        before = self.held
        letters = {key for key in contents.rows if self._refused(contents.rows[key])}
        # A dead letter stays as long as its key is not touched: then neither a row nor a delete of it is among the changes
        letters |= {key for key in before.letters if key not in contents.rows and key not in self._touched}
        rows: Mapping[Any, Row] = {key: row for key, row in contents.rows.items() if key not in letters}
        return Held(contents.position, contents.schema, rows, contents.changes, frozenset(letters))

    def _refused(self, row: Row) -> bool:
        return not self.target.mended and UNSTORABLE in row.values()

    def _merge(self, held: Contents, rows: Any, window: Window) -> Any:
        rows = list(rows)
        self._touched = {tuple(row[name] for name in window.key) for row in rows}
        return super()._merge(held, rows, window)

    _touched: Any = frozenset()

    # ── optional powers ──────────────────────────────────────────────────────────────────────────────────────────

    def position(self) -> Position:
        return self.held.position

    def reload(self, snapshot: Snapshot) -> Applied:
        self._touched = self.held.letters
        return self._step(
            "reload", snapshot.version, snapshot.version, lambda: super(ProgramSink, self).reload(snapshot)
        )

    def replay(self, snapshot: Snapshot) -> Applied:
        held = self.held
        found = {tuple(row[name] for name in snapshot.key): row for row in snapshot.collect().to_pylist()}
        tried = {key: found[key] for key in held.letters if key in found}
        self._touched = held.letters
        self._make_durable(replace(held, rows={**held.rows, **tried}))
        return Applied(snapshot.version, inserts=len(tried), rejected=len(self.held.letters))

    def dead_letters(self, **_: Any) -> list[Any]:
        return []

    def drop_dead_letters(self, ids: Any = None) -> int:
        raise NotImplementedError

    def runs(self, limit: int, *, failed: bool = False, schema_changes: bool = False) -> list[RunRecord]:
        raise NotImplementedError

    def report(self, figures: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def reported(self) -> Mapping[str, Any] | None:
        raise NotImplementedError

    def now(self) -> dt.datetime:
        raise NotImplementedError

    def record_failure(self, error: CdfError, **_: Any) -> None:
        if not self.dead:
            self.target.failures.append(error.code)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _copy(self, window: Window) -> Applied:
        if self._is_replay(self.held.position, window):
            return Applied(window.last, replayed=True)
        snapshot = window.snapshot()
        rows = snapshot.collect().to_pylist()
        window.confirm()
        self._touched = self.held.letters
        keyed = {tuple(row[name] for name in window.key): row for row in rows}
        position = Position(window.last, window.table_id)
        self._make_durable(replace(self.held, position=position, schema=window.schema, rows=keyed))
        return Applied(window.last, copied=len(rows))

    def _step(self, kind: str, first: int, last: int, work: Callable[[], Applied]) -> Applied:
        self._happens("before")
        applied = work()
        if not applied.replayed:
            self.target.steps.append(Durable(kind, first, last, applied))
        self._happens("after")
        return applied

    def _happens(self, moment: str) -> None:
        try:
            self._at(moment)
        except Died:
            self.dead = True
            raise
