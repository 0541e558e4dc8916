"""A sink that keeps its rows in memory: the simplest implementation of the contract, and a substitute for a real target."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    UPDATE,
    UPDATE_POSTIMAGE,
)
from cdf.changes.keys import check_key
from cdf.changes.schema_diff import ChangeKind, compare
from cdf.errors import (
    Fenced,
    KeyViolation,
    LeaseHeld,
    TableReplaced,
    TargetNotReady,
    TypeNotSupported,
    WindowOutOfOrder,
)
from cdf.sink import Applied, Capabilities, Conflicts, Controls, Inspection, Position, Sink, Source
from cdf.sink.schema_evolution import check_followed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot, Window

__all__ = ["MemorySink", "MemoryStore", "Contents"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything durable. It is replaced as a whole, never changed, so rows and position always belong together."""

    position: Position = field(default_factory=Position)
    schema: StructType | None = None
    rows: Mapping[tuple[Any, ...], Row] = field(default_factory=dict)
    changes: tuple[Row, ...] = ()


class MemoryStore:
    """The target. It outlives its sinks: several sinks share it, as restarted runners share a database.

    Each durable step renews the lease. ``clock`` returns seconds; a test may pass its own clock to let a lease expire.
    """

    def __init__(self, *, lease_seconds: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.contents = Contents()
        self.controls = Controls()
        self.lease_seconds = lease_seconds
        self.epoch = 0
        self.owner: str | None = None
        self.expires_at = 0.0
        self._clock = clock
        self._lock = threading.Lock()

    def read_rows(self) -> list[Row]:
        """The rows of a state, or the changes of a history (``_change_type`` is None in a baseline)."""
        held = self.contents
        return [dict(row) for row in (held.changes or held.rows.values())]

    def expire_lease(self) -> None:
        """Let the lease expire, as if the owner had not renewed it."""
        self.expires_at = self._clock()

    def acquire_lease(self, owner: str) -> int:
        with self._lock:
            if self.owner not in (None, owner) and self._clock() < self.expires_at:
                raise LeaseHeld("another runner holds the lease of this target", hint="stop it, or wait until it ends")
            self.epoch, self.owner = self.epoch + 1, owner
            self.expires_at = self._clock() + self.lease_seconds
            return self.epoch

    def release_lease(self, epoch: int) -> None:
        with self._lock:
            if epoch == self.epoch:
                self.owner = None

    def check(self, epoch: int) -> None:
        if epoch != self.epoch or self.owner is None:
            raise Fenced(
                "this runner no longer holds the lease of the target",
                hint="another runner has taken over",
            )

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        with self._lock:
            self.controls = change(self.controls)
            return self.controls

    def swap(self, epoch: int, contents: Contents) -> None:
        """The durable step: one assignment, only by the owner of the lease."""
        with self._lock:
            self.check(epoch)
            self.contents = contents
            self.expires_at = self._clock() + self.lease_seconds


class MemorySink(Sink):
    """A sink over a ``MemoryStore``. ``open`` does not wait for a lease: it raises ``LeaseHeld`` at once.

    ``during`` is called inside each durable step, when everything is prepared and nothing is durable yet.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        holds: Literal["state", "history"] = "state",
        schema_changes: Collection[str] = (ChangeKind.ADD_COLUMN,),
        during: Callable[[], None] | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.during = during
        self._capabilities = Capabilities(holds, True, schema_changes=frozenset(schema_changes))
        self._owner = uuid.uuid4().hex
        self._epoch = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def inspect(self, source: Source) -> Inspection:
        held = self.store.contents
        problems: list[str] = []
        try:
            check_key(source.schema, source.key, source.table)
        except TypeNotSupported as error:
            problems.append(error.message)
        if held.schema is not None:
            for change in compare(held.schema, source.schema):
                if change.kind not in self.capabilities.schema_changes:
                    problems.append(f"{change}: rebuild the target from a snapshot")
        return Inspection(held.position, tuple(problems))

    def open(self, source: Source) -> Position:
        found = self.inspect(source)
        if found.problems:
            raise TargetNotReady(
                "the target cannot hold this table: " + "; ".join(found.problems),
                problems=list(found.problems),
            )
        self._interrupt()
        self._epoch = self.store.acquire_lease(self._owner)
        return self.store.contents.position

    def load(self, snapshot: Snapshot) -> Applied:
        self.store.check(self._epoch)
        held = self.store.contents
        if held.position.version is not None:
            raise WindowOutOfOrder("the target is already loaded", position=held.position.version)
        if self.capabilities.holds == "state":
            _refuse_key_faults(snapshot)
        rows = list(snapshot.iterate())
        after = replace(held, position=Position(snapshot.version, snapshot.table_id), schema=snapshot.schema)
        if self.capabilities.holds == "state":
            after = replace(after, rows={_key(row, snapshot.key): row for row in rows})
        else:
            baseline = ({**row, CHANGE_TYPE: None, COMMIT_VERSION: snapshot.version} for row in rows)
            after = replace(after, changes=tuple(baseline))
        self._make_durable(after)
        return Applied(snapshot.version, inserts=len(rows))

    def apply(self, window: Window) -> Applied:
        # The fence is checked first: a stale runner must get Fenced, not WindowOutOfOrder.
        self.store.check(self._epoch)
        held = self.store.contents
        if self._is_replay(held.position, window):
            return Applied(held.position.version or 0, replayed=True)
        if held.schema is not None:
            check_followed(
                compare(held.schema, window.schema),
                self,
                table=window.table,
                version=window.first,
                key=window.key,
            )
        state = self.capabilities.holds == "state"
        rows = list(window.iterate_net() if state else window.iterate()) if window.has_changes else []
        window.confirm()
        after = replace(held, position=Position(window.last, window.table_id), schema=window.schema)
        if state:
            after, conflicts = self._merge(after, rows, window)
        else:
            after, conflicts = replace(after, changes=held.changes + _sort_changes(rows)), Conflicts()
        self._make_durable(after)
        kinds = Counter(row[CHANGE_TYPE] for row in rows)
        return Applied(window.last, kinds[INSERT], kinds[UPDATE] + kinds[UPDATE_POSTIMAGE], kinds[DELETE], conflicts)

    def open_to_reload(self, source: Source) -> Position:
        held = self.store.contents
        if held.position.version is None and (held.rows or held.changes):
            problem = "the target holds rows without a position: `deltarelay position adopt` takes it over"
            raise TargetNotReady(problem, problems=[problem])
        check_key(source.schema, source.key, source.table)
        self._interrupt()
        self._epoch = self.store.acquire_lease(self._owner)
        return held.position

    def reload(self, snapshot: Snapshot) -> Applied:
        self.store.check(self._epoch)
        if self.capabilities.holds != "state":
            raise TargetNotReady("a history cannot be rebuilt from a snapshot", hint="name a new target")
        _refuse_key_faults(snapshot)
        rows = list(snapshot.iterate())
        keyed = {_key(row, snapshot.key): row for row in rows}
        position = Position(snapshot.version, snapshot.table_id)
        self._make_durable(Contents(position=position, schema=snapshot.schema, rows=keyed))
        return Applied(snapshot.version, inserts=len(rows))

    def close(self) -> None:
        self.store.release_lease(self._epoch)

    def controls(self) -> Controls:
        return self.store.controls

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        return self.store.change_controls(change)

    def _is_replay(self, position: Position, window: Window) -> bool:
        """True for a window that the target already holds. Raises for a window that does not follow the position."""
        if position.version is None:
            # A state begins with a snapshot: the feed does not have the rows that are older than the feed.
            fits = self.capabilities.holds == "history"
        elif position.table_id != window.table_id:
            raise TableReplaced(f"{window.table} is not the table that this target was filled from")
        elif window.last <= position.version:
            return True
        else:
            fits = window.first == position.version + 1
        if not fits:
            raise WindowOutOfOrder(
                f"the window {window.first}..{window.last} does not follow the position {position.version}",
                position=position.version,
                first=window.first,
                last=window.last,
            )
        return False

    def _merge(self, held: Contents, rows: Iterable[Row], window: Window) -> tuple[Contents, Conflicts]:
        names = window.schema.names
        merged = {key: {name: row.get(name) for name in names} for key, row in held.rows.items()}
        met = Counter[str]()
        for row in rows:
            key, kind = _key(row, window.key), row[CHANGE_TYPE]
            met["within_window"] += row[CONFLICTS]
            met["insert_met_row"] += kind == INSERT and key in held.rows
            met["update_met_none"] += kind == UPDATE and key not in held.rows
            met["delete_met_none"] += kind == DELETE and key not in held.rows
            if kind == DELETE:
                merged.pop(key, None)
            else:
                merged[key] = {name: row[name] for name in names}
        return replace(held, rows=merged), Conflicts(**met)

    def _make_durable(self, contents: Contents) -> None:
        self._interrupt()
        self.store.swap(self._epoch, contents)

    def _interrupt(self) -> None:
        if self.during is not None:
            self.during()


def _key(row: Row, key: tuple[str, ...]) -> tuple[Any, ...]:
    # Spark returns binaries as bytearray, which cannot be a dictionary's key.
    return tuple(bytes(row[name]) if isinstance(row[name], bytearray) else row[name] for name in key)


def _sort_changes(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Order by commit, and within a commit removes before puts."""
    return tuple(sorted(rows, key=lambda row: (row[COMMIT_VERSION], row[CHANGE_TYPE] in (INSERT, UPDATE_POSTIMAGE))))


def _refuse_key_faults(snapshot: Snapshot) -> None:
    faults = snapshot.key_faults()
    if faults.null_rows or faults.duplicate_keys:
        raise KeyViolation(
            f"version {snapshot.version} of {snapshot.table} has {faults.null_rows} rows with a null in the key and "
            f"{faults.duplicate_keys} keys that occur more than once (key: {', '.join(snapshot.key)})",
            hint="choose columns that identify a row",
            null_rows=faults.null_rows,
            duplicate_keys=faults.duplicate_keys,
        )
