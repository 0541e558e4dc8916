"""A Delta table in plain Python: what each statement does to files, rows, log and change feed, without Spark.

    table = MemoryTable(StructType().add("id", "long").add("v", "string"))
    table.append({"id": 1, "v": "a"})
    table.update(lambda row: row["id"] == 1, v="b")
    table.rows(2), table.changes(2, 2)

Each statement that writes is one commit. Rows live in files, as Delta keeps them (copy on write, no deletion vectors): a
statement rewrites the files that hold a row it touches, so that ``restore`` brings back rows of rewritten files that did
not change, and ``vacuum`` takes away exactly the versions that need removed files. The log is Delta's own text, commit by
commit. ``tests/integration/test_memory_table.py`` runs the same statements on a real Delta table and compares.
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
    """``clock`` gives the time of each commit (default: now); like Delta's, commit times never run backwards."""

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
        """No row matches: no commit. Without a condition whole files go, and nothing else tells of it: no change file."""
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
        """``values``: a constant, or a function of the row. Also a row that stays as it is was updated, as in Delta."""

        def change(row: Row) -> Row:
            made = {name: value(row) if callable(value) else value for name, value in values.items()}
            return {**row, **made}

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
        """Rows that match ``delete`` go, those that match ``update`` change, and ``insert`` comes, in one commit."""
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
            changes=tuple(changes) if removed else None,  # of inserts alone the files tell it all
            user_metadata=user_metadata,
        )

    def overwrite(self, *rows: Row) -> int:
        added = self._file(map(self._store, rows))
        return self._commit("WRITE", added=added, removed=self._versions[-1].files)

    def restore(self, version: int) -> int:
        """Files of that version come back; files that are not its own go. Its metadata comes back as well."""
        wanted, now = self._versions[version], self._versions[-1]
        added = tuple(file for file in wanted.files if file not in now.files)
        if not all(map(self._exists, added)):
            raise FilesGone(f"version {version} cannot be restored: its files are gone")
        removed = tuple(file for file in now.files if file not in wanted.files)
        metadata = None if wanted.metadata == now.metadata else wanted.metadata
        return self._commit("RESTORE", added=added, removed=removed, metadata=metadata)

    def optimize(self) -> int:
        """All rows in one file: a commit without a change. One file or none: no commit."""
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
        """Another schema, without new files: a column is what its physical name says (else its name)."""
        return self._commit("CHANGE COLUMNS", metadata=replace(self.metadata(), schema=schema))

    def add_column(self, name: str, kind: str) -> int:
        from pyspark.sql.types import StructType

        return self.alter(StructType([*self.schema.fields, *StructType().add(name, kind).fields]))

    def drop_column(self, name: str) -> int:
        """As with column mapping. Of what the table had before, restores included, it counts as another column."""
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
        """CREATE OR REPLACE TABLE … AS SELECT: the log goes on, with another table id."""
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

    # ── what goes away ───────────────────────────────────────────────────────────────────────────────────────────

    def vacuum(self, through: int | None = None) -> None:
        """Removes the files that a version up to ``through`` (default: the latest) removed, and its change files."""
        self._vacuumed = max(self._vacuumed, self.latest if through is None else through)

    def checkpoint(self) -> None:
        self.checkpoints.add(self.latest)

    def lose_commits(self, *versions: int) -> None:
        """Their commit files are gone. What lies behind can be read where a checkpoint makes up for them."""
        self.missing |= set(versions)

    def expire_log(self, before: int) -> None:
        """Log clean-up: a checkpoint at ``before``, and no commit file older than that."""
        self.checkpoints.add(before)
        self.missing |= set(range(before))

    # ── what a reader sees ───────────────────────────────────────────────────────────────────────────────────────

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
        """Whether commit files and checkpoints are there from which the table of that version can be put together."""
        bases = [found for found in self.checkpoints if found <= version]
        first = max(bases) + 1 if bases else 0
        return not any(found in self.missing for found in range(first, version + 1))

    def rows(self, version: int | None = None) -> list[Row]:
        """The table as of a version. Raises ``FilesGone`` where ``vacuum`` has removed what it needs."""
        found = self._versions[self.latest if version is None else version]
        if not all(map(self._exists, found.files)):
            raise FilesGone(f"files of version {version} are gone")
        return [shown(row, found.metadata.schema) for file in found.files for row in file.rows]

    def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        """The change feed of the closed range, with the columns as of its end. Raises ``FilesGone`` as ``rows`` does."""
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
        made = Version(
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
        self._versions.append(made)
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
        made = tuple(rows)
        return (File(made),) if made else ()

    def _store(self, row: Row) -> Row:
        if unknown := set(row) - set(self.schema.names):
            raise ValueError(f"{self.name} has no column {', '.join(sorted(unknown))}")
        return stored(row, self.schema)
