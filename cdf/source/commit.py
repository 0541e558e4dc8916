"""One commit file of a Delta log in our terms, and the errors for commits and versions that are gone."""

from __future__ import annotations

import datetime as dt
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from cdf.changes.commits import Commit, Metadata, Protocol
from cdf.errors import SourceError, VersionsExpired

__all__ = [
    "from_milliseconds",
    "is_below_table",
    "list_plain_files",
    "missing_commits",
    "parse_commit",
    "parse_metadata",
    "parse_protocol",
    "version_gone",
]


def parse_commit(version: int, text: str, modified: dt.datetime) -> Commit:
    """Parse a commit file. ``modified``, the file's time, is the commit's time unless it has an in-commit timestamp."""
    info: dict[str, Any] = {}
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    change_sizes: list[int] = []
    change_files: list[dict[str, Any]] = []
    file_sizes: list[int] = []
    added_files: list[dict[str, Any]] = []
    removes_files = False
    written_rows = 0
    # Not splitlines(): file statistics hold column values, and those may contain U+2028, U+0085 and the like.
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except ValueError as error:
            raise SourceError(
                f"the commit file of version {version} is damaged", hint="restore the file from a backup of the log"
            ) from error
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "metaData" in action:
            metadata = parse_metadata(action["metaData"])
        elif "protocol" in action:
            protocol = parse_protocol(action["protocol"])
        elif "cdc" in action:
            change_sizes.append(int(action["cdc"].get("size") or 0))
            change_files.append(action["cdc"])
        elif file := action.get("add") or action.get("remove"):
            written_rows += _count_rows(file) if "add" in action else 0
            if not file.get("dataChange", True):
                continue
            file_sizes.append(int(file.get("size") or 0))
            removes_files = removes_files or "remove" in action
            added_files.append(file)
    # If a commit has change files, the feed reads only those; otherwise it reads the added and removed files.
    read = change_sizes or file_sizes
    # Of other operations Delta may leave out files that it wrote without a change
    is_append = not removes_files and info.get("operation") in ("WRITE", "STREAMING UPDATE")
    in_commit = info.get("inCommitTimestamp")
    return Commit(
        version=version,
        timestamp=modified if in_commit is None else from_milliseconds(int(in_commit)),
        operation=info.get("operation"),
        parameters=info.get("operationParameters") or {},
        user=info.get("userName") or info.get("userId"),
        user_metadata=info.get("userMetadata"),
        change_files=len(read),
        change_bytes=sum(read),
        deleted_rows=_find_deleted_rows(info) if change_sizes or removes_files else 0,
        rows_before=_find_rows_before(info, written_rows),
        atomic=bool(change_sizes),
        plain_files=_find_plain_files(change_files or added_files) if change_files or is_append else None,
        metadata=metadata,
        protocol=protocol,
        engine=info.get("engineInfo"),
    )


_MOST_PLAIN_FILES = 100


def _find_plain_files(files: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    paths = [unquote(file.get("path") or ":") for file in files]
    if len(files) > _MOST_PLAIN_FILES or any(not is_below_table(path) for path in paths):
        return None
    has_values_outside = any(file.get("partitionValues") or file.get("deletionVector") for file in files)
    return None if has_values_outside else tuple(paths)


def is_below_table(path: str) -> bool:
    """Whether a path of the log, decoded, is relative and stays below the table's folder."""
    return not path.startswith("/") and ":" not in path and ".." not in path.split("/")


def list_plain_files(texts: Iterable[str]) -> list[tuple[str, int]] | None:
    """Path and size of the files of a table whose log has exactly these commit files, and no checkpoint. None if that needs
    more than the paths: there are deletion vectors, values in paths, or paths that can be written in several ways."""
    found: dict[str, int] = {}
    for line in (line for text in texts for line in text.split("\n") if line.strip()):
        try:
            action = json.loads(line)
            file = action.get("add") or action.get("remove")
            if file is None:
                continue
            path = file["path"]
            if file.get("deletionVector") or file.get("partitionValues") or not _has_one_form(path):
                return None
            if "add" in action:
                found[path] = int(file["size"])
            else:
                found.pop(path, None)
        except (AttributeError, KeyError, TypeError, ValueError):  # Delta raises the error, if it is one
            return None
    return list(found.items())


def _has_one_form(path: str) -> bool:
    """Whether no other text of the log can mean the same file. Delta decodes paths and normalises them."""
    return is_below_table(path) and posixpath.normpath(path) == path and not set(path) & set("%#?\\")


_DELETED_ROWS = {"DELETE": "numDeletedRows", "MERGE": "numTargetRowsDeleted"}
"""The metric in which Delta records how many rows an operation deleted. ``UPDATE`` deletes none."""


def _find_deleted_rows(info: Mapping[str, Any]) -> int | None:
    operation, metrics = info.get("operation"), info.get("operationMetrics") or {}
    if operation == "UPDATE":
        return 0
    recorded = metrics.get(_DELETED_ROWS.get(operation or "", ""))
    text = str(recorded)
    return int(text) if text.isdecimal() else None


_NUM_RECORDS = re.compile(r'\{"numRecords":(\d+)')
"""At the beginning of a file's statistics: later on, it may be a value or a column's name."""


def _count_rows(file: Mapping[str, Any]) -> int:
    """The rows of a file, by its statistics; 0: it has none."""
    found = _NUM_RECORDS.match(file.get("stats") or "")
    deleted = (file.get("deletionVector") or {}).get("cardinality") or 0
    return max(0, int(found[1]) - int(deleted)) if found else 0


def _find_rows_before(info: Mapping[str, Any], written: int) -> int:
    """Of the rows that were written, those that were not inserted were in the table before."""
    operation, metrics = info.get("operation"), info.get("operationMetrics") or {}
    inserted = "0" if operation in ("DELETE", "UPDATE") else None
    if operation == "MERGE":
        inserted = str(metrics.get("numTargetRowsInserted"))
    return max(0, written - int(inserted)) if inserted is not None and inserted.isdecimal() else 0


def parse_metadata(action: Mapping[str, Any]) -> Metadata:
    """Parse the content of a ``metaData`` action."""
    from pyspark.sql.types import StructType

    return Metadata(
        table_id=str(action["id"]),
        schema=StructType.fromJson(json.loads(action["schemaString"])),
        properties=dict(action.get("configuration") or {}),
    )


def parse_protocol(action: Mapping[str, Any]) -> Protocol:
    """Parse the content of a ``protocol`` action."""
    return Protocol(
        min_reader=int(action["minReaderVersion"]),
        min_writer=int(action["minWriterVersion"]),
        reader_features=tuple(action.get("readerFeatures") or ()),
        writer_features=tuple(action.get("writerFeatures") or ()),
    )


def from_milliseconds(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC)


def version_gone(table: str, version: int, condition: str | None = None) -> VersionsExpired:
    return VersionsExpired(
        f"version {version} of {table} can no longer be reconstructed from the log",
        hint="rebuild the target from a snapshot, `deltarelay run --reload`; "
        "raise delta.logRetentionDuration so that commits are retained longer",
        condition=condition,
        version=version,
    )


def missing_commits(table: str, versions: list[int]) -> VersionsExpired:
    shown = ", ".join(map(str, versions[:5])) + (f" … {versions[-1]}" if len(versions) > 5 else "")
    return VersionsExpired(
        f"the commit files of version {shown} of {table} no longer exist: the changes in them cannot be read",
        hint="rebuild the target from a snapshot, `deltarelay run --reload`; "
        "raise delta.logRetentionDuration so that commits are retained longer",
        versions=versions[:100],
    )
