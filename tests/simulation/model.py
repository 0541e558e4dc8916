"""What a run has to do, by plain rules over the whole history: its steps in order, and the code of its refusal.

Written without the product's cutting, comparing and refusing; what it shares with the product is what it is told of the
source (``Fact``) and of the target's position.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cdf.sink import Position
from tests.simulation.program import Options, Run
from tests.simulation.source import Fact, Key, Source

__all__ = ["Expected", "Refused", "expect_reload", "expect_run"]

Bounds = tuple[str, int, int]


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Expected:
    steps: list[Bounds]
    """(kind, first, last) of each durable step."""
    refusal: str | None = None
    recorded: bool = True
    """A refusal is recorded in the target's history."""


def expect_run(source: Source, options: Options, position: Position, run: Run, *, leased: bool) -> Expected:
    return _Walk(source, options, position, run).expected(leased=leased)


def expect_reload(source: Source, options: Options, *, leased: bool) -> Expected:
    latest = source.latest
    if options.holds != "state":
        return Expected([], "target_not_ready", recorded=False)
    if not source.facts[latest].feed:
        return Expected([], "feed_not_enabled", recorded=False)
    gone, faults = source.gone(latest, snapshot=True), _has_key_faults(source, options, latest)
    if options.guard and gone:
        return Expected([], "versions_expired")  # the guard reads first
    if leased:
        return Expected([], "lease_held")
    if gone or faults:
        return Expected([], "versions_expired" if gone else "key_violation")
    return Expected([("reload", latest, latest)])


class _Walk:
    def __init__(self, source: Source, options: Options, position: Position, run: Run) -> None:
        self.source, self.options, self.position, self.run = source, options, position, run
        self.facts, self.latest = source.facts, source.latest
        self.last = self.latest if run.until is None else max(0, self.latest - run.until)
        self.missing, self.table = source.table.missing, source.table
        self.done = Expected([])

    def expected(self, *, leased: bool) -> Expected:
        try:
            self._look()
            if leased:
                raise Refused("lease_held")
            self._walk()
        except Refused as refused:
            self.done.refusal = refused.code
        return self.done

    # ── before the sink is opened ────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        stands, pending = self.position.version, self.position.pending
        if not self.facts[self.latest].feed:
            raise Refused("feed_not_enabled")
        self._rebuild(self.last)
        if stands is not None and self.last < stands <= self.latest:
            self._rebuild(stands)
        of_this_table = self.position.table_id in (None, self.facts[self.latest].table_id)
        if of_this_table and stands is None and self._loads_first():
            self._start_version()
        if not of_this_table:
            raise Refused("table_replaced")
        if max(stands or 0, pending.last if pending else 0) > self.latest:
            raise Refused("version_not_found")
        if stands is not None and stands < self.last:
            self._check(stands + 1, self.last)
        if stands is not None and _drift(self.facts[stands], self.facts[max(stands, self.last)]) - set(
            self.options.follows
        ):
            raise Refused("target_not_ready")  # the commit before the change is gone, and the target has its columns

    def _loads_first(self) -> bool:
        return self.options.holds == "state" or self.options.start == "snapshot"

    def _start_version(self) -> int:
        start = self.options.start
        if start == "snapshot":
            return self.latest
        if isinstance(start, int):
            if start > self.latest:
                raise Refused("version_not_found")
            return start
        version = self._readable()
        for fact in reversed(self.facts[version:]):
            if not fact.feed:
                return fact.version + 1
        return version

    def _readable(self) -> int:
        """The first version from which on there are all commits, and something to rebuild the table from."""
        first = self.latest
        while first > 0 and first - 1 not in self.missing:
            first -= 1
        bases = [version for version in self.table.checkpoints if version >= first - 1]
        return max(first, min(bases)) if first and bases else first

    def _rebuild(self, version: int) -> None:
        """Schema and properties of a version: from its state, or where few later commits show that they are today's."""
        later = self.facts[version + 1 :]
        shown = len(later) <= 10 and not any(fact.wrote_metadata or fact.version in self.missing for fact in later)
        if not shown and not self.table.rebuildable(version):
            raise Refused("versions_expired")

    def _check(self, first: int, last: int, *, begins: bool = False) -> None:
        """What lies ahead and cannot be followed: gaps, erasures, another table, the feed off, other columns."""
        ahead = self.facts[first : last + 1]
        if any(fact.version in self.missing for fact in ahead):
            raise Refused("versions_expired")
        if not self.options.guard and any(fact.claims for fact in ahead):
            raise Refused("erasure_not_configured")
        self._rebuild(first)
        before = self.facts[first]
        if not begins and first > 0 and self.table.rebuildable(first - 1):
            before = self.facts[first - 1]
        if before.table_id == self.facts[first].table_id and not self.facts[first].feed:
            raise Refused("feed_not_enabled")
        now = before
        for fact in ahead:
            if not fact.wrote_metadata:
                continue
            if fact.table_id != before.table_id:
                raise Refused("table_replaced")
            if not fact.feed:
                raise Refused("feed_not_enabled")
            if _drift(now, fact) - set(self.options.follows):
                raise Refused("schema_drift")
            now = fact

    # ── load and windows ─────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self) -> None:
        version, pending = self.position.version, self.position.pending
        if version is None and self._loads_first():
            version = min(self._start_version(), self.last)
            self._load(version)
        if pending is not None:
            self._check(pending.first, pending.last, begins=version is None)
            self._window(pending.first, pending.last)
            version = pending.last
        first = self._start_version() if version is None else version + 1
        if first <= self.last:
            self._check(first, self.last, begins=version is None)
            for begin, end in self._cut(first, begins=version is None):
                self._window(begin, end)

    def _load(self, version: int) -> None:
        self._rebuild(version)
        if version < self.last:
            self._check(version + 1, self.last)
        if self.source.gone(version, snapshot=True):
            raise Refused("versions_expired")
        if self.options.holds == "state" and _has_key_faults(self.source, self.options, version):
            raise Refused("key_violation")
        self.done.steps.append(("load", version, version))

    def _cut(self, first: int, *, begins: bool) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        schema = self.facts[first if begins or first == 0 or not self.table.rebuildable(first - 1) else first - 1]
        begin, size = first, 0
        for fact in self.facts[first : self.last + 1]:
            border = fact.wrote_metadata and bool(_drift(schema, fact))
            full = fact.version - begin >= self.run.max_commits or size + fact.bytes > self.run.max_bytes
            after_erasure = fact.version > begin and bool(self.facts[fact.version - 1].erased)
            if fact.version > begin and (border or full or after_erasure):
                found.append((begin, fact.version - 1))
                begin, size = fact.version, 0
            size += fact.bytes
            schema = fact if fact.wrote_metadata else schema
        return [*found, (begin, self.last)]

    def _window(self, first: int, last: int) -> None:
        ahead = self.facts[first : last + 1]
        changed = any(fact.bytes for fact in ahead)
        whole = not any(
            self._left_out(self.source.key_of(row)) for fact in ahead if not fact.erased for _, row in fact.changes
        )
        copied = self.options.copies and changed and whole  # a guard that leaves out rows leaves no copy to make
        unread = any(self.source.gone(fact.version, snapshot=False) for fact in ahead)
        if changed and unread and (self.options.guard or not copied):
            raise Refused("versions_expired")
        if copied and self.source.gone(last, snapshot=True):
            raise Refused("versions_expired")
        if self.options.holds == "state" and not copied and self._breaks_key(ahead):
            raise Refused("key_violation")
        if ahead[0].table_id != self.facts[self.latest].table_id:
            raise Refused("table_replaced")
        self.done.steps.append(("window", first, last))

    def _breaks_key(self, ahead: list[Fact]) -> bool:
        for fact in ahead:
            rows = [row for kind, row in fact.changes]
            if any(None in self.source.key_of(row) for row in rows):
                return True
            puts = Counter(
                self.source.key_of(row) for kind, row in fact.changes if kind in ("insert", "update_postimage")
            )
            for key in puts:
                if puts[key] > 1 and (fact.erased or not self._left_out(key)):
                    return True
        return False

    def _left_out(self, key: Key) -> bool:
        return self.options.guard and key in self.source.register


def _has_key_faults(source: Source, options: Options, version: int) -> bool:
    keys = Counter(source.key_of(row) for row in source.facts[version].rows)
    erased = source.register if options.guard else ()
    return any(None in key or (count > 1 and key not in erased) for key, count in keys.items())


def _drift(before: Fact, after: Fact) -> set[str]:
    """The kinds of change between two schemas. A column is its physical name, where the later schema has such names."""
    by_name = all(physical is None for _, physical in after.columns)
    old = {name if by_name else physical or name: name for name, physical in before.columns}
    new = {name if by_name else physical or name: name for name, physical in after.columns}
    kinds = {("add_column" if column in new else "drop_column") for column in old.keys() ^ new.keys()}
    renamed = any(old[column] != new[column] for column in old.keys() & new.keys())
    return kinds | ({"rename_column"} if renamed else set())
