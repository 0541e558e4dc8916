"""A Delta table in plain Python: what each statement does to files, rows, log and change feed, without Spark.

    table = MemoryTable(StructType().add("id", "long").add("v", "string"))
    table.append({"id": 1, "v": "a"})
    table.update(lambda row: row["id"] == 1, v="b")
    table.rows(2), table.changes(2, 2)

Each statement that writes is one commit. Rows are stored in files, as in Delta (copy on write, no deletion vectors): a
statement rewrites the files with a row that it touches. So ``restore`` restores unchanged rows of rewritten files, too, and
``vacuum`` makes exactly those versions unreadable that need removed files. The log has Delta's own text, commit by commit.
``tests/integration/test_memory_table.py`` runs the same statements on a real Delta table and compares.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from cdf.changes.commits import Metadata
from cdf.testing.changes import Change, Row
from cdf.testing.memory_versions import PHYSICAL, File, FilesGone, Version, physical, shown, stored, text_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["MemoryTable"]

FEED = "delta.enableChangeDataFeed"

Condition = Callable[[Row], bool]


class MemoryTable:
    """``clock`` returns the time of each commit (default: now). As in Delta, commit times never run backwards."""

    def __init__(
        self,
        schema: StructType,
        *,
        name: str = "memory",
        feed: bool = True,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], dt.datetime] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.name = name
        self.checkpoints: set[int] = set()
        self.missing: set[int] = set()
        """Versions whose commit file is gone."""
        self._clock = clock or (lambda: dt.datetime.now(dt.UTC))
        self._new_id = new_id
        self._versions: list[Version] = []
        self._removed_at: dict[File, int] = {}
        self._vacuumed = -1
        self._texts: dict[int, str] = {}
        self.recreate(schema, feed=feed, properties=properties)

    # ── statements: each is one commit; → its version ────────────────────────────────────────────────────────────

    def append(self, *rows: Row, user_metadata: str | None = None) -> int:
        return self._commit("WRITE", added=self._file(map(self._store, rows)), user_metadata=user_metadata)

    def delete(self, where: Condition | None = None, *, user_metadata: str | None = None) -> int:
        """Without a matching row there is no commit. Without a condition whole files are removed, without a change file."""
        if where is not None:
            return self.merge(delete=where, operation="DELETE", user_metadata=user_metadata)
        files = self._versions[-1].files
        return self._commit("DELETE", removed=files, user_metadata=user_metadata) if files else self.latest

    def update(
        self,
        where: Condition = lambda _: True,
        *,
        user_metadata: str | None = None,
        **values: Any | Callable[[Row], Any],
    ) -> int:
        """``values``: constants, or functions of the row. As in Delta, a row counts as updated even if no value changes."""

        def change(row: Row) -> Row:
            changed = {name: value(row) if callable(value) else value for name, value in values.items()}
            return {**row, **changed}

        return self.merge(where, change, operation="UPDATE", user_metadata=user_metadata)

    def merge(
        self,
        update: Condition = lambda _: False,
        change: Callable[[Row], Row] = lambda row: row,
        *,
        delete: Condition = lambda _: False,
        insert: Iterable[Row] = (),
        operation: str = "MERGE",
        user_metadata: str | None = None,
    ) -> int:
        """Delete the rows that match ``delete``, change those that match ``update``, add ``insert``, in one commit."""
        schema = self.schema
        removed: list[File] = []
        rewritten: list[Row] = []
        changes: list[Change] = []
        for file in self._versions[-1].files:
            found: list[Row] = []
            touched = False
            for row in file.rows:
                seen = shown(row, schema)
                if delete(seen):
                    changes.append(Change(DELETE, row))
                    touched = True
                elif update(seen):
                    after = self._store(change(seen))
                    changes += [Change(UPDATE_PREIMAGE, row), Change(UPDATE_POSTIMAGE, after)]
                    found.append(after)
                    touched = True
                else:
                    found.append(row)
            if touched:
                removed.append(file)
                rewritten += found
        inserted = list(map(self._store, insert))
        if not changes and not inserted:
            return self.latest
        changes += [Change(INSERT, row) for row in inserted]
        return self._commit(
            operation,
            added=self._file((*rewritten, *inserted)),
            removed=tuple(removed),
            changes=tuple(changes) if removed else None,  # inserts alone need no change file
            user_metadata=user_metadata,
        )

    def overwrite(self, *rows: Row) -> int:
        added = self._file(map(self._store, rows))
        return self._commit("WRITE", added=added, removed=self._versions[-1].files)

    def restore(self, version: int) -> int:
        """Restore the files and the metadata of that version, and remove all other files."""
        wanted, now = self._versions[version], self._versions[-1]
        added = tuple(file for file in wanted.files if file not in now.files)
        if not all(map(self._exists, added)):
            raise FilesGone(f"version {version} cannot be restored: its files are gone")
        removed = tuple(file for file in now.files if file not in wanted.files)
        metadata = None if wanted.metadata == now.metadata else wanted.metadata
        return self._commit("RESTORE", added=added, removed=removed, metadata=metadata)

    def optimize(self) -> int:
        """Write all rows into one file: a commit without a change. With one file or none there is no commit."""
        files = self._versions[-1].files
        if len(files) < 2:
            return self.latest
        rows = tuple(row for file in files for row in file.rows)
        return self._commit("OPTIMIZE", added=self._file(rows), removed=files, data_change=False)

    def set_properties(self, properties: Mapping[str, str]) -> int:
        metadata = self._versions[-1].metadata
        changed = replace(metadata, properties={**metadata.properties, **properties})
        return self._commit("SET TBLPROPERTIES", metadata=changed)

    def turn_feed(self, on: bool) -> int:
        return self.set_properties({FEED: "true" if on else "false"})

    def alter(self, schema: StructType) -> int:
        """Set another schema, without new files. A column is identified by its physical name, or else by its name."""
        return self._commit("CHANGE COLUMNS", metadata=replace(self.metadata(), schema=schema))

    def add_column(self, name: str, kind: str) -> int:
        from pyspark.sql.types import StructType

        return self.alter(StructType([*self.schema.fields, *StructType().add(name, kind).fields]))

    def drop_column(self, name: str) -> int:
        """As with column mapping: a later column of that name is another column, also in restored files."""
        from pyspark.sql.types import StructType

        return self.alter(StructType([field for field in self._mapped() if field.name != name]))

    def rename_column(self, name: str, to: str) -> int:
        """As with column mapping."""
        from pyspark.sql.types import StructField, StructType

        fields = [
            StructField(to, field.dataType, field.nullable, field.metadata) if field.name == name else field
            for field in self._mapped()
        ]
        return self.alter(StructType(fields))

    def _mapped(self) -> list[StructField]:
        from pyspark.sql.types import StructField

        return [
            StructField(field.name, field.dataType, field.nullable, {**field.metadata, PHYSICAL: physical(field)})
            for field in self.schema.fields
        ]

    def replace(self, schema: StructType, *rows: Row) -> int:
        """CREATE OR REPLACE TABLE … AS SELECT: the log continues, with another table id."""
        now = self._versions[-1]
        metadata = Metadata(self._new_id(), schema, now.metadata.properties)
        added = self._file(stored(row, schema) for row in rows)
        return self._commit("CREATE OR REPLACE TABLE AS SELECT", added=added, removed=now.files, metadata=metadata)

    def recreate(self, schema: StructType, *, feed: bool = True, properties: Mapping[str, str] | None = None) -> int:
        """The folder is deleted and the table created again: versions begin at 0."""
        found = {**({FEED: "true"} if feed else {}), **(properties or {})}
        self.checkpoints, self.missing = set(), set()
        self._versions, self._removed_at, self._vacuumed, self._texts = [], {}, -1, {}
        metadata = Metadata(self._new_id(), schema, found)
        self._versions = [Version(metadata, (), self._time(), "CREATE TABLE", wrote_metadata=True)]
        return 0

    # ── removing files ───────────────────────────────────────────────────────────────────────────────────────────

    def vacuum(self, through: int | None = None) -> None:
        """Removes the files that a version up to ``through`` (default: the latest) removed, and its change files."""
        self._vacuumed = max(self._vacuumed, self.latest if through is None else through)

    def checkpoint(self) -> None:
        self.checkpoints.add(self.latest)

    def lose_commits(self, *versions: int) -> None:
        """Delete the commit files of these versions. Later versions can be read only from a checkpoint."""
        self.missing |= set(versions)

    def expire_log(self, before: int) -> None:
        """Log clean-up: a checkpoint at ``before``, and no commit file older than that."""
        self.checkpoints.add(before)
        self.missing |= set(range(before))

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def latest(self) -> int:
        return len(self._versions) - 1

    @property
    def schema(self) -> StructType:
        return self._versions[-1].metadata.schema

    def metadata(self, version: int | None = None) -> Metadata:
        return self._versions[self.latest if version is None else version].metadata

    def time(self, version: int) -> dt.datetime:
        return self._versions[version].time

    def user_metadata(self, version: int) -> str | None:
        return self._versions[version].user_metadata

    def bytes(self, version: int) -> int:
        return sum(file.bytes for file in self._versions[version].files)

    def rebuildable(self, version: int) -> bool:
        """Whether the commit files and checkpoints exist from which the table at that version can be rebuilt."""
        bases = [found for found in self.checkpoints if found <= version]
        first = max(bases) + 1 if bases else 0
        return not any(found in self.missing for found in range(first, version + 1))

    def rows(self, version: int | None = None) -> list[Row]:
        """The table at a version. Raises ``FilesGone`` if ``vacuum`` has removed files that it needs."""
        found = self._versions[self.latest if version is None else version]
        if not all(map(self._exists, found.files)):
            raise FilesGone(f"files of version {version} are gone")
        return [shown(row, found.metadata.schema) for file in found.files for row in file.rows]

    def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        """The change feed of the closed range, with the columns at its end. Raises ``FilesGone`` like ``rows``."""
        schema = self.metadata(last).schema
        return [
            (number, Change(change.type, shown(change.row, schema)))
            for number in range(first, last + 1)
            for change in self._changes(number)
        ]

    def _changes(self, number: int) -> Sequence[Change]:
        version = self._versions[number]
        if not version.data_change:
            return ()
        if version.changes is not None:
            if number <= self._vacuumed:
                raise FilesGone(f"change files of version {number} are gone")
            return version.changes
        if not all(map(self._exists, (*version.added, *version.removed))):
            raise FilesGone(f"files of version {number} are gone")
        out = [Change(DELETE, row) for file in version.removed for row in file.rows]
        return out + [Change(INSERT, row) for file in version.added for row in file.rows]

    def commit_text(self, version: int) -> str:
        """The commit file, as Delta writes it."""
        if version not in self._texts:
            self._texts[version] = text_of(self._versions[version])
        return self._texts[version]

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(
        self,
        operation: str,
        *,
        added: tuple[File, ...] = (),
        removed: tuple[File, ...] = (),
        changes: tuple[Change, ...] | None = None,
        data_change: bool = True,
        metadata: Metadata | None = None,
        user_metadata: str | None = None,
    ) -> int:
        now, number = self._versions[-1], len(self._versions)
        files = (*(file for file in now.files if file not in removed), *added)
        for file in removed:
            self._removed_at[file] = number
        for file in added:
            self._removed_at.pop(file, None)
        version = Version(
            metadata or now.metadata,
            files,
            self._time(),
            operation,
            added,
            removed,
            changes,
            data_change,
            metadata is not None,
            user_metadata,
        )
        self._versions.append(version)
        return number

    def _time(self) -> dt.datetime:
        now = self._clock()
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        if self._versions and now <= self._versions[-1].time:
            now = self._versions[-1].time + dt.timedelta(milliseconds=1)
        return now

    def _exists(self, file: File) -> bool:
        return self._removed_at.get(file, self._vacuumed + 1) > self._vacuumed

    def _file(self, rows: Iterable[Row]) -> tuple[File, ...]:
        stored_rows = tuple(rows)
        return (File(stored_rows),) if stored_rows else ()

    def _store(self, row: Row) -> Row:
        if unknown := set(row) - set(self.schema.names):
            raise ValueError(f"{self.name} has no column {', '.join(sorted(unknown))}")
        return stored(row, self.schema)
