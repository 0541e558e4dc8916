"""Reads from a Delta table's log which files the table has, had, and under which names. No JVM."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from audit.erasure.scan.results import Unseen
from cdf.lag import parse_interval

if TYPE_CHECKING:
    import numpy as np

    from audit.erasure.scan.files import File, Files

__all__ = ["CHANGES", "LOG", "TableLog", "kind_of", "parsed", "read_log"]

LOG, CHANGES = "_delta_log", "_change_data"
_COPIES = {".tmp", "_staged_commits", "_commits"}
_VERSION = re.compile(r"\d{20}\.(json|crc)")
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(slots=True)
class TableLog:
    known: bool = False
    """False: it is unknown whether the table has a file."""
    current: set[str] = field(default_factory=set)
    """Names relative to the table."""
    elsewhere: int = 0
    """Number of the table's files that are not below its address: those of the table that it is a shallow clone of."""
    removed_at: dict[str, dt.datetime] = field(default_factory=dict)
    columns: set[tuple[str, ...]] | None = None
    """The path to every field in files, in lower case; None: unknown."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By a field's name in files: its present and former names in the table, in lower case."""
    hidden: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """By file with a deletion vector: which rows, from the first one on, it hides."""
    properties: Mapping[str, str] = field(default_factory=dict)

    def retention(self, name: str, default: dt.timedelta) -> dt.timedelta:
        setting = self.properties.get(name)
        return default if setting is None else parse_interval(setting) or default

    def called(self, name: str) -> set[str]:
        return self.names.get(name.lower(), set()) | {name.lower()}


def kind_of(name: str) -> str:
    """Return the kind of a file, by its name."""
    path = PurePosixPath(name)
    hidden = path.name.startswith(".")
    if hidden and path.suffix == ".crc":
        return "side file"
    if path.parts[0] != LOG:
        if path.suffix == ".parquet" and not hidden:
            return "change data" if path.parts[0] == CHANGES else "data"
        return "deletion vector" if path.name.startswith("deletion_vector") and path.suffix == ".bin" else "other"
    if hidden or path.suffix == ".tmp" or _COPIES.intersection(path.parts):
        return "temporary copy"
    if ".compacted." in path.name:
        return "compacted log"
    if ".checkpoint" in path.name or path.parent.name == "_sidecars" or path.name == "_last_checkpoint":
        return "checkpoint"
    if _VERSION.fullmatch(path.name):
        return "checksum" if path.suffix == ".crc" else "log"
    return "other"


def parsed(text: str | bytes | None) -> dict[str, Any]:
    """Return a JSON object; empty for anything else."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_log(files: Files, listed: Iterable[File]) -> tuple[TableLog, list[Unseen]]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    log, unseen = TableLog(), list[Unseen]()
    try:
        options = files.delta_rs_options()
        opened = DeltaTable(files.address, storage_options=None if options is None else dict(options))
        names = [_relative_name(one, files.address) for one in opened.file_uris()]
        log.current = {name for name in names if not _ELSEWHERE.match(name)}
        log.elsewhere = len(names) - len(log.current)
        log.properties = dict(opened.metadata().configuration)
        fields = list(_fields(json.loads(opened.schema().to_json())))
        log.columns = {path for path, _ in fields}
        log.known = True
        # Reads more only for a table with deletion vectors
        log.hidden = _hidden_rows(opened, files.address)
    except (DeltaError, OSError, ValueError) as error:
        what = "a deletion vector" if log.known else "the log"
        why = "it is unknown which rows are deleted" if log.known else "the dates of removal are unknown"
        unseen.append(Unseen(f"{files.address}/{LOG}", f"{what} cannot be read ({type(error).__name__}): {why}"))
    for file in listed:
        kind = kind_of(file.name)
        if file.version is None and kind in ("log", "checkpoint", "compacted log"):
            try:
                for action in _actions(files, file):
                    _record_action(action, file.written, log)
            except (OSError, ValueError):  # the scan reports it
                continue
    return log, unseen


def _relative_name(uri: str, address: str) -> str:
    """Return the name of a file relative to the table; delta-rs may use another scheme for the same store."""
    path = uri.partition("://")[2] if re.match(r"[a-z0-9]+://", uri) else uri
    root = (address.partition("://")[2] or address).rstrip("/") + "/"
    return path.removeprefix(root)


def _hidden_rows(opened: Any, address: str) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np
    import pyarrow as pa

    table = pa.table(opened.deletion_vectors())
    return {
        # As an address, where file_uris has a path
        _relative_name(unquote(row["filepath"]), address): ~np.array(row["selection_vector"], dtype=bool)
        for row in table.to_pylist()
    }


def _actions(files: Files, file: File) -> Iterator[dict[str, Any]]:
    with files.open(file) as opened:
        if not file.name.endswith(".parquet"):
            yield from map(parsed, opened)
            return
        import pyarrow.parquet as pq

        with pq.ParquetFile(opened) as checkpoint:
            wanted = ["remove.path", "remove.deletionTimestamp", "metaData.schemaString"]
            for batch in checkpoint.iter_batches(columns=wanted):
                for row in batch.to_pylist():
                    yield {name: value for name, value in row.items() if value is not None}


def _record_action(action: Mapping[str, Any], written: dt.datetime, log: TableLog) -> None:
    if isinstance(removed := action.get("remove"), dict):
        at = removed.get("deletionTimestamp")
        when = dt.datetime.fromtimestamp(at / 1000, dt.UTC) if isinstance(at, int) else written
        _record_removal(log, removed.get("path"), when)
    elif isinstance(change := action.get("cdc"), dict):
        _record_removal(log, change.get("path"), written)
    elif isinstance(metadata := action.get("metaData"), dict):
        for path, name in _fields(parsed(metadata.get("schemaString"))):
            log.names.setdefault(path[-1], set()).add(name)


def _record_removal(log: TableLog, path: Any, at: dt.datetime) -> None:
    name = unquote(str(path))
    log.removed_at[name] = max(at, log.removed_at.get(name, at))


def _fields(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path in files, name) of every field of a type in Delta's JSON."""
    if not isinstance(kind, dict):
        return
    for one in kind.get("fields", ()):
        physical = one.get("metadata", {}).get("delta.columnMapping.physicalName", one["name"])
        inner = (*path, str(physical).lower())
        yield inner, str(one["name"]).lower()
        yield from _fields(one["type"], inner)
    for of in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(of), path)
