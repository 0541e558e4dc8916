"""Which columns of the source are replicated, and their names in the target.

Source, window and snapshot are converted to the target's names here and nowhere else; all other modules of the sink know
only the target's names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdf.changes.columns import METADATA_COLUMNS
from cdf.changes.schema_diff import ChangeKind, SchemaChange

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from cdf.changes.window import Snapshot, Window
    from cdf.sink import Source

__all__ = [
    "Columns",
    "with_metadata",
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
"""The metadata columns that a target may have, and their types."""

_SYSTEM = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Every table has these columns. https://www.postgresql.org/docs/current/ddl-system-columns.html"""


def with_metadata(schema: StructType, own: Iterable[str]) -> StructType:
    """The source's columns and the metadata columns: all that a complete target has."""
    from pyspark.sql import types as T

    kinds = {"bigint": T.LongType(), "timestamp with time zone": T.TimestampType()}
    return T.StructType([*schema.fields, *(T.StructField(name, kinds[METADATA_TYPES[name]]) for name in own)])


@dataclass(frozen=True, slots=True)
class Columns:
    """``include``: only these (empty: all). ``exclude``: not these. ``rename``: source's name → target's name. ``own``:
    metadata columns that the target has in addition, from ``METADATA_TYPES``. ``native_arrays``: arrays of plain elements
    are arrays in the target, not jsonb."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    native_arrays: bool = False

    def includes(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)

    def target_name(self, column: str) -> str:
        return self.rename.get(column, column)

    def is_configured(self, column: str) -> bool:
        """Whether the configuration names this column: if it is renamed, the configuration must change as well."""
        return column in self.rename or column in self.exclude or column in self.include

    @property
    def _changes_nothing(self) -> bool:
        return not (self.include or self.exclude or self.rename or self.native_arrays)

    # ── problems of the configuration ────────────────────────────────────────────────────────────────────────────

    def find_problems(
        self, schema: StructType, key: Sequence[str], own: Sequence[str], *, former: Collection[str] | None = ()
    ) -> list[str]:
        """Every name that the source lacks, that occurs twice, or that is reserved. ``own``: metadata columns of the target.
        ``former``: columns that the source once had, which may still be excluded; None: any column may be."""
        present = set(schema.fieldNames())
        found = [
            f"{option} names a column {name!r} that the source does not have"
            for option, names in (("include", self.include), ("exclude", self.exclude), ("rename", tuple(self.rename)))
            for name in names
            if name not in present and not (option == "exclude" and (former is None or name in former))
        ]
        found += [f"the key column {name!r} is left out: include it" for name in key if not self.includes(name)]
        targets = Counter(self.target_name(name) for name in schema.fieldNames() if self.includes(name))
        found += [
            f"{count} columns would be called {name!r} in the target" for name, count in targets.items() if count > 1
        ]
        # PostgreSQL could store both, but Spark cannot distinguish them while the rows are copied
        folded = Counter(name.casefold() for name in targets)
        found += [
            f"column {name!r} of the target would differ from another one by case only: rename it otherwise"
            for name in targets
            if folded[name.casefold()] > 1
        ]
        for name in targets:
            if name in own:
                found.append(f"the source has a column {name!r} itself: rename it, or leave out that metadata column")
            elif name.casefold() in METADATA_COLUMNS:
                found.append(f"no column can be renamed to {name!r}: the change feed has one of that name")
            if name in _SYSTEM:
                found.append(f"every table of PostgreSQL has a system column {name!r}: rename it")
        return found

    # ── source, window and snapshot with the target's names ──────────────────────────────────────────────────────

    def map_schema(self, schema: StructType) -> StructType:
        if self._changes_nothing:
            return schema
        from pyspark.sql.types import StructType

        return StructType([self._target_field(found) for found in schema.fields if self.includes(found.name)])

    def _target_field(self, found: StructField) -> StructField:
        from pyspark.sql.types import ArrayType, StructField

        from connectors.postgres.types import NativeArray, native_type

        kind = found.dataType
        if self.native_arrays and isinstance(kind, ArrayType) and native_type(kind) is not None:
            kind = NativeArray(kind.elementType, kind.containsNull)
        return StructField(self.target_name(found.name), kind, found.nullable, found.metadata)

    def map_source(self, source: Source) -> Source:
        if self._changes_nothing:
            return source
        return replace(
            source,
            schema=self.map_schema(source.schema),
            standing=None if source.standing is None else self.map_schema(source.standing),
            key=self.map_key(source.key),
            former=frozenset(self.target_name(name) for name in source.former),
        )

    def map_window(self, window: Window) -> Window:
        if self._changes_nothing:
            return window
        drift = tuple(change for found in window.drift if (change := self.map_change(found)) is not None)
        return replace(window.project(self._target_names(window.schema), self.map_schema(window.schema)), drift=drift)

    def map_snapshot(self, snapshot: Snapshot) -> Snapshot:
        if self._changes_nothing:
            return snapshot
        return snapshot.project(self._target_names(snapshot.schema), self.map_schema(snapshot.schema))

    def _target_names(self, schema: StructType) -> dict[str, str]:
        return {name: self.target_name(name) for name in schema.fieldNames() if self.includes(name)}

    def map_key(self, key: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self.target_name, key))

    def map_change(self, change: SchemaChange) -> SchemaChange | None:
        """A schema change of the source as one of the target; None if the column is not replicated."""
        before = change.before if change.before is not None and self.includes(change.before.name) else None
        after = change.after if change.after is not None and self.includes(change.after.name) else None
        if before is None and after is None:
            return None
        return replace(
            change,
            before=None if before is None else self._target_field(before),
            after=None if after is None else self._target_field(after),
        )

    # ── drift ────────────────────────────────────────────────────────────────────────────────────────────────────

    def cannot_follow(
        self, change: SchemaChange, key: Collection[str], allowed: Collection[ChangeKind], own: Collection[str]
    ) -> str | None:
        """Why the target cannot follow a schema change of the source; None: it can, or does not have the column. ``own``:
        metadata columns of the target."""
        mapped = self.map_change(change)
        if mapped is None:
            return None
        old = change.before
        if change.kind in (ChangeKind.RENAME_COLUMN, ChangeKind.DROP_COLUMN) and old is not None:
            if old.name in key:
                return "it is part of the key"
            if self.is_configured(old.name):
                return "the sink's include, exclude or rename names it"
        if (
            change.kind is ChangeKind.RENAME_COLUMN
            and change.after is not None
            and self.is_configured(change.after.name)
        ):
            return "the sink's include, exclude or rename names its new name"
        if mapped.after is not None and change.kind is not ChangeKind.CHANGE_TYPE:
            name = mapped.after.name
            if name in self.rename.values() and name == (change.after and change.after.name):
                return "the sink's rename gives its name to another column"
            if name in own:
                return "the target has a metadata column of this name"
            if name in _SYSTEM:
                return "every table of PostgreSQL has a system column of this name"
        return None if change.kind in allowed else ""
