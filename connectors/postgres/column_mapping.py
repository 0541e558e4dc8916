"""Which of the source's columns go to the target, and under which names.

Everything behind the sink's front knows the target's names only: source, window and snapshot are turned into those of the
target here, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdf.changes.columns import METADATA_COLUMNS
from cdf.changes.schema_diff import ChangeKind, SchemaChange
from connectors.postgres.arrays import native_type
from connectors.postgres.types import NativeArray

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from cdf.changes.window import Snapshot, Window
    from cdf.sink import Source

__all__ = [
    "Columns",
    "with_own",
    "COMMIT_VERSION_COLUMN",
    "COMMIT_TIMESTAMP_COLUMN",
    "APPLIED_AT",
    "DELETED_AT",
    "METADATA_TYPES",
]

COMMIT_VERSION_COLUMN, COMMIT_TIMESTAMP_COLUMN, APPLIED_AT = "_commit_version", "_commit_timestamp", "_applied_at"
DELETED_AT = "_deleted_at"
METADATA_TYPES = {
    COMMIT_VERSION_COLUMN: "bigint",
    COMMIT_TIMESTAMP_COLUMN: "timestamp with time zone",
    APPLIED_AT: "timestamp with time zone",
    DELETED_AT: "timestamp with time zone",
}
"""The columns of ours that a target may have, and their types."""

_SYSTEM = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Every table has these already. https://www.postgresql.org/docs/current/ddl-system-columns.html"""


def with_own(schema: StructType, own: Iterable[str]) -> StructType:
    """The source's columns and ours, for whoever only wants to know what belongs into the target."""
    from pyspark.sql import types as T

    kinds = {"bigint": T.LongType(), "timestamp with time zone": T.TimestampType()}
    return T.StructType([*schema.fields, *(T.StructField(name, kinds[METADATA_TYPES[name]]) for name in own)])


@dataclass(frozen=True, slots=True)
class Columns:
    """``include``: only these (empty: all). ``exclude``: not these. ``rename``: source's name → target's name. ``own``: the
    columns of ours that the target has besides, out of ``METADATA_TYPES``. ``native_arrays``: arrays of plain elements are
    arrays in the target too."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    native_arrays: bool = False

    def takes(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)

    def name(self, column: str) -> str:
        return self.rename.get(column, column)

    def names_it(self, column: str) -> bool:
        """Whether the configuration speaks of this column: then a new name for it needs a new configuration."""
        return column in self.rename or column in self.exclude or column in self.include

    @property
    def _changes_nothing(self) -> bool:
        return not (self.include or self.exclude or self.rename or self.native_arrays)

    # ── what is wrong with them ──────────────────────────────────────────────────────────────────────────────────

    def problems(
        self, schema: StructType, key: Sequence[str], own: Sequence[str], *, former: Collection[str] | None = ()
    ) -> list[str]:
        """For this source; every name that is not there, doubled, or taken. ``own``: ours that the target has. ``former``:
        columns that the source has had, of which one that is left out may be gone; None: whichever."""
        there = set(schema.fieldNames())
        found = [
            f"{option} names a column {name!r} that the source does not have"
            for option, names in (("include", self.include), ("exclude", self.exclude), ("rename", tuple(self.rename)))
            for name in names
            if name not in there and not (option == "exclude" and (former is None or name in former))
        ]
        found += [f"the key column {name!r} is left out: include it" for name in key if not self.takes(name)]
        targets = Counter(self.name(name) for name in schema.fieldNames() if self.takes(name))
        found += [
            f"{count} columns would be called {name!r} in the target" for name, count in targets.items() if count > 1
        ]
        # PostgreSQL could hold both, but Spark could not tell them apart on the way
        folded = Counter(name.casefold() for name in targets)
        found += [
            f"column {name!r} of the target would differ from another one by case only: rename it otherwise"
            for name in targets
            if folded[name.casefold()] > 1
        ]
        for name in targets:
            if name in own:
                found.append(f"the source has a column {name!r} itself: rename it, or leave out that column of ours")
            elif name.casefold() in METADATA_COLUMNS:
                found.append(f"no column can be renamed to {name!r}: the change feed has one of that name")
            if name in _SYSTEM:
                found.append(f"every table of PostgreSQL has a column {name!r} of its own: rename it")
        return found

    # ── source, window and snapshot as the target knows them ─────────────────────────────────────────────────────

    def schema(self, schema: StructType) -> StructType:
        if self._changes_nothing:
            return schema
        from pyspark.sql.types import StructType

        return StructType([self._field(found) for found in schema.fields if self.takes(found.name)])

    def _field(self, found: StructField) -> StructField:
        from pyspark.sql.types import ArrayType, StructField

        kind = found.dataType
        if self.native_arrays and isinstance(kind, ArrayType) and native_type(kind) is not None:
            kind = NativeArray(kind.elementType, kind.containsNull)
        return StructField(self.name(found.name), kind, found.nullable, found.metadata)

    def source(self, source: Source) -> Source:
        if self._changes_nothing:
            return source
        return replace(
            source,
            schema=self.schema(source.schema),
            standing=None if source.standing is None else self.schema(source.standing),
            key=self.key(source.key),
            former=frozenset(self.name(name) for name in source.former),
        )

    def window(self, window: Window) -> Window:
        if self._changes_nothing:
            return window
        drift = tuple(change for found in window.drift if (change := self.change(found)) is not None)
        return replace(window.project(self._taken(window.schema), self.schema(window.schema)), drift=drift)

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        if self._changes_nothing:
            return snapshot
        return snapshot.project(self._taken(snapshot.schema), self.schema(snapshot.schema))

    def _taken(self, schema: StructType) -> dict[str, str]:
        return {name: self.name(name) for name in schema.fieldNames() if self.takes(name)}

    def key(self, key: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self.name, key))

    def change(self, change: SchemaChange) -> SchemaChange | None:
        """A change of the source's schema as one of the target's; None where the target does not have the column."""
        before = change.before if change.before is not None and self.takes(change.before.name) else None
        after = change.after if change.after is not None and self.takes(change.after.name) else None
        if before is None and after is None:
            return None
        return replace(
            change,
            before=None if before is None else self._field(before),
            after=None if after is None else self._field(after),
        )

    # ── drift ────────────────────────────────────────────────────────────────────────────────────────────────────

    def cannot_follow(
        self, change: SchemaChange, key: Collection[str], allowed: Collection[ChangeKind], own: Collection[str]
    ) -> str | None:
        """Why the target cannot go along with a change of the source's schema; None: it can, or does not hold the column.
        ``own``: ours that the target has."""
        mapped = self.change(change)
        if mapped is None:
            return None
        old = change.before
        if change.kind in (ChangeKind.RENAME_COLUMN, ChangeKind.DROP_COLUMN) and old is not None:
            if old.name in key:
                return "it is part of the key"
            if self.names_it(old.name):
                return "the sink's include, exclude or rename speak of it"
        if change.kind is ChangeKind.RENAME_COLUMN and change.after is not None and self.names_it(change.after.name):
            return "the sink's include, exclude or rename speak of its new name"
        if mapped.after is not None and change.kind is not ChangeKind.CHANGE_TYPE:
            name = mapped.after.name
            if name in self.rename.values() and name == (change.after and change.after.name):
                return "the sink's rename gives its name to another column"
            if name in own:
                return "the target has a column of ours with this name"
            if name in _SYSTEM:
                return "every table of PostgreSQL has a column of this name already"
        return None if change.kind in allowed else ""
