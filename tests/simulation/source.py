"""The source of a program: a ``MemoryTable``, what each step does to it, and what became of it version by version."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyspark.sql.types import StructType

from cdf.sink.guard import ERASURE
from cdf.testing import MemoryTable
from cdf.testing.memory_versions import PHYSICAL, FilesGone
from tests.simulation.program import KEYS, UNSTORABLE, Change, Lose

__all__ = ["Fact", "Key", "Row", "Source"]

Row = dict[str, Any]
Key = tuple[Any, ...]
LONG = {
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.logRetentionDuration": "interval 36500 days",
}

_WIDE = (("a", 11), ("a1", 1), ("a", 1), ("", 11), ("B", 1))
"""Glued together, the first two read alike."""


@dataclass(frozen=True)
class Fact:
    """One version, written down when it was made: the model decides by these, and never asks the product."""

    version: int
    rows: tuple[Row, ...]
    changes: tuple[tuple[str, Row], ...]
    bytes: int
    table_id: str
    feed: bool
    wrote_metadata: bool
    columns: tuple[tuple[str, str | None], ...]
    """Name, and physical name where it has one."""
    claims: bool
    """Its ``userMetadata`` says that it erased somebody."""
    erased: frozenset[Key]
    """Whom it erased, as the register has it."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


class Source:
    def __init__(self, *, wide_key: bool) -> None:
        self.key = ("part", "number") if wide_key else ("id",)
        self._ids, self._ticks = count(), count()
        self.facts: list[Fact] = []
        self._tables = [self.facts]
        self.register: set[Key] = set()
        """Everybody who was erased."""
        self.table = MemoryTable(self._schema(), name="sim", properties=LONG, clock=self._clock, new_id=self._new_id)
        self._note()

    @property
    def latest(self) -> int:
        return len(self.facts) - 1

    def facts_of(self, table_id: str) -> list[Fact]:
        """The history that has this table: today's, or one that was deleted."""
        return next(facts for facts in self._tables if any(fact.table_id == table_id for fact in facts))

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def gone(self, version: int, *, snapshot: bool) -> bool:
        """Whether files are gone that reading the table, or the changes, of that version needs."""
        if snapshot and not self.table.rebuildable(version):
            return True
        try:
            _ = self.table.rows(version) if snapshot else self.table.changes(version, version)
        except FilesGone:
            return True
        return False

    def lose(self, step: Lose) -> None:
        version, table = self.latest - step.back, self.table
        if version < 0:
            return
        if step.what == "files":
            table.vacuum(version)
        elif step.what == "log":
            table.expire_log(version)
        elif step.back > 0:
            table.checkpoint()
            table.lose_commits(version)

    def change(self, step: Change) -> None:
        """Any step, at any table: where it does not fit, it does nothing."""
        statement: Callable[[Change], object] = getattr(self, f"_{step.kind}")
        statement(step)
        self._note()

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────

    def _insert(self, step: Change) -> None:
        there = self._there()
        rows = [self._row(number, step.value) for number in step.keys if self._key(number) not in there]
        if rows:
            self.table.append(*rows)

    def _update(self, step: Change) -> None:
        self.table.update(self._among(step), **{self._value_column(): step.value})

    def _delete(self, step: Change) -> None:
        self.table.delete(self._among(step))

    def _merge(self, step: Change) -> None:
        """The first key is deleted, the others are updated or inserted."""
        first, *others = (self._key(number) for number in step.keys)
        there = self._there()
        new = [self._row(number, step.value) for number in step.keys[1:] if self._key(number) not in there]
        name = self._value_column()
        self.table.merge(
            lambda row: self.key_of(row) in others,
            lambda row: {**row, name: step.value},
            delete=lambda row: self.key_of(row) == first,
            insert=new,
        )

    def _rewrite(self, step: Change) -> None:
        """Deleted and inserted again in one commit."""
        there = [number for number in step.keys if self._key(number) in self._there()]
        if there:
            rows = [self._row(number, step.value) for number in there]
            self.table.merge(delete=self._among(step), insert=rows)

    def _move(self, step: Change) -> None:
        """A row gets another key, which no other row has."""
        one, two = self._key(step.keys[0]), self._key((step.keys[0] + 1) % KEYS)
        if one in self._there() and two not in self._there():
            self.table.update(lambda row: self.key_of(row) == one, **dict(zip(self.key, two, strict=True)))

    def _swap(self, step: Change) -> None:
        one, two = self._key(step.keys[0]), self._key((step.keys[0] + 1) % KEYS)
        if {one, two} <= self._there():
            other = {one: two, two: one}
            self.table.merge(
                lambda row: self.key_of(row) in other,
                lambda row: {**row, **dict(zip(self.key, other[self.key_of(row)], strict=True))},
                operation="UPDATE",
            )

    def _overwrite(self, step: Change) -> None:
        self.table.overwrite(*(self._row(number, step.value) for number in step.keys))

    def _restore(self, step: Change) -> None:
        version = self.latest - 1 - step.keys[0]
        before = self.facts[version] if version >= 0 else None
        if before and before.table_id == self.facts[-1].table_id and not self.gone(version, snapshot=True):
            self.table.restore(version)

    def _optimize(self, _: Change) -> None:
        self.table.optimize()

    def _property(self, step: Change) -> None:
        self.table.set_properties({"team": str(step.value)})

    def _nothing(self, _: Change) -> None:
        """A commit without files, as of an INSERT that selects nothing."""
        self.table.append()

    def _twice(self, step: Change) -> None:
        """A second row under a key that another commit has put: the columns identify no row any more."""
        self.table.append(self._row(step.keys[0], step.value))

    def _put_twice(self, step: Change) -> None:
        self.table.append(self._row(step.keys[0], step.value), self._row(step.keys[0], 0))

    def _null_key(self, step: Change) -> None:
        self.table.append({**self._row(step.keys[0], step.value), self.key[-1]: None})

    def _add_column(self, _: Change) -> None:
        self.table.add_column(f"c{next(self._ids)}", "long")

    def _drop_column(self, _: Change) -> None:
        if len(self.table.schema.names) > len(self.key) + 1:
            self.table.drop_column(self.table.schema.names[-1])

    def _rename_column(self, _: Change) -> None:
        self.table.rename_column(self._value_column(), f"v{next(self._ids)}")

    def _replace(self, step: Change) -> None:
        self.table.replace(self._schema(), *({**self._keyed(number), "v": step.value} for number in step.keys))

    def _recreate(self, step: Change) -> None:
        """The folder is deleted and the table created again; it soon has as many versions as before."""
        versions = self.latest
        self.facts = []
        self._tables.append(self.facts)
        self.table.recreate(self._schema(), properties=LONG)
        while step.value and self.table.latest < versions:
            self.table.append(*(self._row(number, step.value) for number in step.keys))

    def _feed_off(self, _: Change) -> None:
        self.table.turn_feed(False)

    def _feed_on(self, _: Change) -> None:
        self.table.turn_feed(True)

    def _erase(self, step: Change) -> None:
        """Persons are deleted for good, and the register has it. They may come back all the same."""
        erased = {self._key(number) for number in step.keys} & self._there()
        if erased:
            self.table.delete(self._among(step), user_metadata=json.dumps({ERASURE: sorted(map(str, erased))}))
            self.register |= erased
            self._note(frozenset(erased))

    def _forge(self, _: Change) -> None:
        """A commit that says that it erased somebody, of which the register knows nothing."""
        self.table.append(user_metadata=json.dumps({ERASURE: "everybody"}))

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, erased: frozenset[Key] = frozenset()) -> None:
        table = self.table
        for version in range(len(self.facts), table.latest + 1):
            metadata, before = table.metadata(version), table.metadata(version - 1) if version else None
            actions = [json.loads(line) for line in table.commit_text(version).splitlines()]
            of_feed = [found["cdc"]["size"] for found in actions if "cdc" in found]
            files = [
                found.get("add") or found.get("remove") for found in actions if "add" in found or "remove" in found
            ]
            said = table.user_metadata(version) or ""
            self.facts.append(
                Fact(
                    version,
                    tuple(dict(row) for row in table.rows(version)),
                    tuple((change.type, dict(change.row)) for _, change in table.changes(version, version)),
                    sum(of_feed or [found["size"] for found in files if found["dataChange"]]),
                    metadata.table_id,
                    metadata.properties.get("delta.enableChangeDataFeed") == "true",
                    before is None or metadata is not before,
                    tuple((field.name, (field.metadata or {}).get(PHYSICAL)) for field in metadata.schema.fields),
                    ERASURE in said,
                    erased,
                )
            )

    def _clock(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(self._ticks))

    def _new_id(self) -> str:
        return f"table-{next(self._ids)}"

    def _schema(self) -> StructType:
        schema = StructType()
        for name in self.key:
            schema.add(name, "string" if name == "part" else "long")
        return schema.add("v", "long")

    def _keyed(self, number: int) -> Row:
        return {"id": number} if len(self.key) == 1 else dict(zip(self.key, _WIDE[number], strict=True))

    def _key(self, number: int) -> Key:
        return self.key_of(self._keyed(number))

    def _row(self, number: int, value: int) -> Row:
        others = dict.fromkeys(self.table.schema.names[len(self.key) + 1 :], value % UNSTORABLE)
        return {**self._keyed(number), self._value_column(): value, **others}

    def _value_column(self) -> str:
        """The first that is not of the key."""
        return str(self.table.schema.names[len(self.key)])

    def _there(self) -> set[Key]:
        return {self.key_of(row) for row in self.facts[-1].rows}

    def _among(self, step: Change) -> Callable[[Any], bool]:
        keys = {self._key(number) for number in step.keys}
        return lambda row: self.key_of(row) in keys
