"""What is really in the folder of a Delta table: every file in it is decoded and searched, whether the table has it or not.

No JVM. Whether a file belongs to the table now, did once, or never did tells why it is there and when it goes:

    current files               until the rows are rewritten
    former files, change files  since they were removed + delta.deletedFileRetentionDuration: VACUUM
    files of no commit          since they were written + the same: VACUUM, full
    the log                     since each file was written + delta.logRetentionDuration, cut at midnight UTC, and once a
                                later checkpoint is there: Delta's own clean-up, at a checkpoint
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from audit.erasure.finds import Gathered, masked
from audit.erasure.places import Checked, Scanned, Unseen
from cdf.lag import parse_interval

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.erasure.needles import Needles

__all__ = ["scan_table"]

LOG, CHANGES = "_delta_log", "_change_data"
FILE_RETENTION, LOG_RETENTION = dt.timedelta(days=7), dt.timedelta(days=30)
_BATCH_ROWS = 64 * 1024
_RAW_BYTES = 16 * 1024 * 1024
_OVERLAP_BYTES = 4096
"""Of what was read before, so that nothing hides between two reads."""

Counts = Counter[tuple[str, str]]


def scan_table(
    path: str, needles: Needles, *, now: dt.datetime, progress: Callable[[int, int], None] | None = None
) -> Scanned:
    """Look through the folder of a table. ``progress`` gets bytes done, and all of them.

    A find's place is the file. What cannot be read is told as unseen, and searched as plain bytes where that can be done.
    """
    if "://" in path and not path.startswith("file:"):
        return Scanned(unseen=(Unseen(path, "objects of an object store are not scanned by this release"),))
    folder = Path(path.removeprefix("file://").removeprefix("file:"))
    if not folder.is_dir():
        return Scanned(unseen=(Unseen(path, "there is no such folder"),))
    return _Scan(folder, needles, now).run(progress)


@dataclass(slots=True)
class _Table:
    """What the log tells of the files."""

    current: set[str] = field(default_factory=set)
    removed_at: dict[str, dt.datetime] = field(default_factory=dict)
    columns: set[str] | None = None
    """Names that the columns have in files, in lower case; None: not known."""
    properties: Mapping[str, str] = field(default_factory=dict)

    def retention(self, name: str, default: dt.timedelta) -> dt.timedelta:
        told = self.properties.get(name)
        return default if told is None else parse_interval(told) or default


class _Scan:
    def __init__(self, folder: Path, needles: Needles, now: dt.datetime) -> None:
        self.folder, self.needles, self.now = folder, needles, now
        self.found, self.unseen = Gathered(), list[Unseen]()
        self.checked: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.table = _Table()

    def run(self, progress: Callable[[int, int], None] | None) -> Scanned:
        entries = sorted(self.folder.rglob("*"))
        files = [(one, one.stat()) for one in entries if one.is_file()]
        self.table = self._read_log()
        for one in entries:
            self._name(one)
        done, total = 0, sum(stat.st_size for _, stat in files)
        for one, stat in files:
            name = one.relative_to(self.folder).as_posix()
            kind = _kind(name)
            try:
                self._file(one, name, kind, dt.datetime.fromtimestamp(stat.st_mtime, dt.UTC))
                self.checked[kind] += 1
                self.bytes[kind] += stat.st_size
            except FileNotFoundError:  # VACUUM and the log's clean-up go on meanwhile
                continue
            except OSError as error:
                self.unseen.append(Unseen(self._place(name), error.strerror or "cannot be read"))
            done += stat.st_size
            if progress is not None:
                progress(done, total)
        checked = tuple(Checked(kind, count, self.bytes[kind]) for kind, count in sorted(self.checked.items()))
        return Scanned(self.found.finds(), checked, tuple(self.unseen))

    def _place(self, name: str) -> str:
        return f"{self.folder}/{masked(name, self.needles)}"

    # ── what the log tells ───────────────────────────────────────────────────────────────────────────────────────

    def _read_log(self) -> _Table:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        table = _Table()
        try:
            opened = DeltaTable(str(self.folder))
            metadata = opened.metadata()
            table.current = {_relative(one, self.folder) for one in opened.file_uris()}
            table.properties = dict(metadata.configuration)
            table.columns = _physical_names(json.loads(opened.schema().to_json()))
        except (DeltaError, OSError, ValueError) as error:
            self.unseen.append(
                Unseen(f"{self.folder}/{LOG}", f"the log cannot be read ({type(error).__name__}): no dates are known")
            )
        for file in sorted((self.folder / LOG).glob("*.json")):
            written = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
            for action in _actions(file):
                if isinstance(removed := action.get("remove"), dict):
                    at = removed.get("deletionTimestamp")
                    table.removed_at[unquote(str(removed.get("path")))] = _time(at) or written
                elif isinstance(change := action.get("cdc"), dict):
                    table.removed_at[unquote(str(change.get("path")))] = written
        return table

    # ── one file ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _name(self, one: Path) -> None:
        """Folders and files that are named by a value."""
        name = one.relative_to(self.folder).as_posix()
        last = PurePosixPath(name).name
        column, equals, value = last.partition("=")
        hits = Counter(set(self.needles.find(last.encode())) | (self.needles.cell(column, value) if equals else set()))
        if hits:
            self.found.add(self._place(name), "partition name", hits, clears_on=None)

    def _file(self, file: Path, name: str, kind: str, written: dt.datetime) -> None:
        reason, clears_on = self._why(name, kind, written)
        place = self._place(name)
        if file.suffix == ".parquet" and not file.name.startswith("."):
            self._parquet(file, place, kind, reason, clears_on)
        elif kind == "log" and file.suffix == ".json":
            self._log_entry(file, place, clears_on)
        elif hits := self._raw(file):
            self.found.add(place, reason, hits, clears_on=clears_on)

    def _why(self, name: str, kind: str, written: dt.datetime) -> tuple[str, dt.date | None]:
        files = self.table.retention("delta.deletedFileRetentionDuration", FILE_RETENTION)
        logs = self.table.retention("delta.logRetentionDuration", LOG_RETENTION)
        if kind in ("log", "checkpoint", "checksum", "compacted log", "temporary copy"):
            reason = "log entry" if kind == "log" else kind
            return reason, None if kind in ("compacted log", "temporary copy") else _day_after(written + logs)
        if name in self.table.current:
            return "current file", None
        removed = self.table.removed_at.get(name)
        if name.startswith(f"{CHANGES}/"):
            return "change file", _day_after((removed or written) + files)
        if removed is not None:
            return "former file", _day_after(removed + files)
        return ("aborted write" if kind == "data" else "other file"), (
            _day_after(written + files) if kind == "data" else None
        )

    def _parquet(self, file: Path, place: str, kind: str, reason: str, clears_on: dt.date | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file) as opened:
                for value in (opened.metadata.metadata or {}).values():
                    self.found.add(place, reason, Counter(self.needles.find(value)), clears_on=clears_on)
                for batch in opened.iter_batches(_BATCH_ROWS):
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        hits = self._column(name, column)
                        known = self.table.columns
                        gone = kind == "data" and known is not None and name.lower() not in known
                        why = "dropped column" if gone and reason == "current file" else reason
                        self.found.add(place, why, hits, clears_on=clears_on)
        except (pa.ArrowException, ValueError, EOFError) as error:
            self.unseen.append(Unseen(place, f"no Parquet that could be decoded ({type(error).__name__})"))
            self.found.add(place, reason, self._raw(file), clears_on=clears_on)

    def _column(self, name: str, values: pa.Array) -> Counts:
        """Of a column with all that is nested in it; ``name``: of its innermost field."""
        import pyarrow as pa

        kind = values.type
        if pa.types.is_struct(kind):
            inner = [(kind.field(at).name, child) for at, child in enumerate(values.flatten())]
        elif pa.types.is_map(kind):
            inner = [(name, values.keys), (name, values.items)]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            inner = [(name, values.flatten())]
        else:
            hits = self.needles.cells(name, values)
            held = kind.value_type if pa.types.is_dictionary(kind) else kind
            if (
                pa.types.is_string(held)
                or pa.types.is_large_string(held)
                or pa.types.is_binary(held)
                or pa.types.is_large_binary(held)
            ):
                hits += self.needles.text(values)
                if name == "stats":
                    hits += self._statistics(values)
            return hits
        return sum((self._column(inner_name, child) for inner_name, child in inner), Counter())

    def _statistics(self, values: pa.Array) -> Counts:
        hits: Counts = Counter()
        if self.needles.short_columns:
            for text in values.to_pylist():
                hits.update(_cells_of(_parsed(text), self.needles))
        return hits

    def _log_entry(self, file: Path, place: str, clears_on: dt.date | None) -> None:
        with file.open("rb") as lines:
            for line in lines:
                action = _parsed(line)
                kind, told = next(iter(action.items()), ("", {}))
                statistics = told.pop("stats", None) if kind in ("add", "remove") and isinstance(told, dict) else None
                rest = json.dumps(action, ensure_ascii=False).encode() if action else line
                reason = "partition name" if kind in ("add", "remove", "cdc") else "log entry"
                self.found.add(place, reason, Counter(self.needles.find(rest)), clears_on=clears_on)
                partition = told.get("partitionValues") if isinstance(told, dict) else None
                self.found.add(place, reason, Counter(_cells_of(partition, self.needles)), clears_on=clears_on)
                if isinstance(statistics, str):
                    hits = set(self.needles.find(statistics.encode())) | _cells_of(_parsed(statistics), self.needles)
                    self.found.add(place, "statistics", Counter(hits), clears_on=clears_on)

    def _raw(self, file: Path) -> Counts:
        hits: set[tuple[str, str]] = set()
        before = b""
        with file.open("rb") as opened:
            while chunk := opened.read(_RAW_BYTES):
                hits.update(self.needles.find(before + chunk))
                before = chunk[-_OVERLAP_BYTES:]
        return Counter(hits)


# ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _kind(name: str) -> str:
    """What sort of file it is, by its place."""
    path = PurePosixPath(name)
    if path.parts[0] != LOG:
        return "data" if path.suffix == ".parquet" and not path.name.startswith(".") else "other"
    if path.parent.name in (".tmp", "_staged_commits", "_commits") or path.name.startswith("."):
        return "temporary copy"
    if ".compacted." in path.name:
        return "compacted log"
    if ".checkpoint" in path.name or path.parent.name == "_sidecars" or path.name == "_last_checkpoint":
        return "checkpoint"
    return "checksum" if path.suffix == ".crc" else "log"


def _relative(uri: str, folder: Path) -> str:
    path = uri.removeprefix("file://")
    root = str(folder)
    return unquote(path[len(root) :].lstrip("/")) if path.startswith(root) else unquote(PurePosixPath(path).name)


def _physical_names(schema: Mapping[str, Any]) -> set[str]:
    return {
        str(field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])).lower()
        for field in schema["fields"]
    }


def _actions(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for line in lines:
            yield _parsed(line)


def _parsed(text: str | bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cells_of(value: Any, needles: Needles) -> set[tuple[str, str]]:
    """Short needles that are the whole of a value, under the name of their column."""
    if not isinstance(value, dict):
        return set()
    hits: set[tuple[str, str]] = set()
    for name, inner in value.items():
        hits |= _cells_of(inner, needles) if isinstance(inner, dict) else needles.cell(name, inner)
    return hits


def _time(milliseconds: Any) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC) if isinstance(milliseconds, int) else None


def _day_after(moment: dt.datetime) -> dt.date:
    """On the day itself it may still be early."""
    return moment.date() + dt.timedelta(days=1)
