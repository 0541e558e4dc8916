"""Ledger records as typed values, parsed strictly: types and limits are checked before anything is computed from a record.

Every reader of records goes through ``parse_record``. A run of event indexes is never expanded before it was compared with
what exists: the hashes beside the record, or the events of the commit.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from audit.hashing.merkle import merkle_root
from audit.hashing.value_encoding import find_unsupported_fields
from audit.trail.column_history import Column, columns_from_json, row_type
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError

__all__ = [
    "ENCRYPTION",
    "PAYLOAD_CHANGES",
    "REMOVAL",
    "SHREDDING",
    "CommitRecord",
    "EncryptionRecord",
    "NoteRecord",
    "Record",
    "RemovalRecord",
    "Run",
    "ShreddingRecord",
    "is_folder_name",
    "parse_columns",
    "parse_micros",
    "parse_record",
]

REMOVAL, ENCRYPTION, SHREDDING, READING, ERASURE = "removal", "sealing", "shredding", "reading", "erasure"
PAYLOAD_CHANGES = (REMOVAL, SHREDDING, ENCRYPTION)
"""The kinds of records after which the payload is changed."""

Run: TypeAlias = tuple[int, int, int]
"""A version, and the first and the last index of consecutive events of that commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinkedRecord:
    sequence: int
    """Index of the record in the ledger, from 0."""
    previous: str
    """Hash of the record before, as hexadecimal digits."""
    table_id: str
    """Id of the source table."""
    time: str | None
    """When the commit was made, values were removed or the note was written, as ISO 8601 text; None: the source's log does
    not have the time of the commit."""

    @property
    def time_micros(self) -> int | None:
        return parse_micros(self.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord(_LinkedRecord):
    """A commit of the source, or the snapshot with which the trail begins."""

    kind: Literal["commit", "baseline"]
    version: int
    rows: int
    """Number of events."""
    rows_root: str
    """Root of the Merkle tree over the events."""
    columns_at: int
    """Sequence of the record that has the columns of this commit."""
    columns: tuple[Column, ...] | None
    """Only in the first record with these columns."""
    log_sha256: str | None
    """Hash of the commit file in the source's log. Not checked here: readers only compare it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRecord(_LinkedRecord):
    """Values of events that are removed from the payload."""

    kind: Literal["removal"] = "removal"
    runs: tuple[Run, ...]
    values: int
    """Number of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionRecord(_LinkedRecord):
    """Rows that are encrypted after they were written; they have other hashes since."""

    kind: Literal["sealing"] = "sealing"
    runs: tuple[Run, ...]
    values: int
    """Number of rows."""
    hashes_root: str
    """Root of the Merkle tree over the new hashes, which are stored beside the record."""
    made_in: str
    """Name of the folder in which the new rows were prepared."""

    def matches_hashes(self, hashes: bytes) -> bool:
        """Whether ``hashes`` has one hash of 32 bytes for each row, and the recorded root over them."""
        if len(hashes) != 32 * self.values or len(hashes) != 32 * _count(self.runs):
            return False
        leaves = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
        return merkle_root(leaves).hex() == self.hashes_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ShreddingRecord(_LinkedRecord):
    """Keys that were destroyed; the values that they encrypted are removed from the payload."""

    kind: Literal["shredding"] = "shredding"
    keys: tuple[bytes, ...]
    """Ids of the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRecord(_LinkedRecord):
    """A step of an erasure, or access to decrypted values. It changes nothing in the payload."""

    kind: Literal["erasure", "reading"]


Record: TypeAlias = CommitRecord | RemovalRecord | EncryptionRecord | ShreddingRecord | NoteRecord

_LINKED = {"sequence": int, "kind": str, "previous": str, "table_id": str}
_COMMIT = {**_LINKED, "version": int, "rows": int, "rows_root": str, "columns_at": int}
_FIELDS: Mapping[str, Mapping[str, type]] = {
    "commit": _COMMIT,
    "baseline": _COMMIT,
    REMOVAL: {**_LINKED, "removed_at": str, "removed": dict, "values": int},
    ENCRYPTION: {**_LINKED, "removed_at": str, "sealed": dict, "values": int, "hashes_root": str, "made_in": str},
    SHREDDING: {**_LINKED, "removed_at": str, "keys": list, "values": int},
    ERASURE: {**_LINKED, "noted_at": str, "reached_at": str, "run": str, "state": str, "requests": list},
    READING: {**_LINKED, "noted_at": str, "read_at": str, "reader": str, "role": str, "purpose": str, "keys": int},
}
"""Fields that a record must have, by its kind."""
_RUN_FIELDS = {REMOVAL: "removed", ENCRYPTION: "sealed"}
"""The field with the events that a record names, by its kind."""
_HASH_FIELDS = ("previous", "rows_root", "hashes_root")
_HASH, _KEY_ID, _FOLDER = (re.compile(f"[0-9a-f]{{{size}}}") for size in (64, 32, 32))
_VERSION = re.compile(r"0|[1-9][0-9]{0,15}")
_LARGEST = 2**53
"""Limit of a number in canonical JSON, and of a version or an index."""


def parse_record(text: str | bytes | None) -> Record | None:
    """None: no runner writes such a record. Never raises."""
    data = text.encode(errors="replace") if isinstance(text, str) else text or b""
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict) or canonical_json(fields) != data:
            return None
        return _parse_fields(fields)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def parse_columns(text: str, *, version: int) -> tuple[Column, ...]:
    """Parse the columns in the record of a version, as JSON. Raises VerificationError where no runner writes such
    columns."""
    try:
        columns = json.loads(text)
        if not isinstance(columns, list):
            raise ValueError("not a list")
        return columns_from_json(columns)
    except (ValueError, RecursionError):
        raise VerificationError(
            f"the ledger's record of version {version} has columns that no runner writes: rows cannot be read by it",
            hint="`deltarelay audit verify` reports what is altered",
            version=version,
        ) from None


def is_folder_name(made_in: object) -> bool:
    """Whether this can be the folder of an ``EncryptionRecord``, which is deleted at the end."""
    return isinstance(made_in, str) and _FOLDER.fullmatch(made_in) is not None


def parse_micros(time: object) -> int | None:
    """Microseconds since 1970 of a time in a record; None where it is not text. Raises ValueError or TypeError for text
    that is not a time."""
    if not isinstance(time, str):
        return None
    since = dt.datetime.fromisoformat(time) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)


def _parse_fields(fields: Mapping[str, Any]) -> Record | None:
    """If no runner writes such a record: return None, or raise ValueError, TypeError or KeyError."""
    kind = fields["kind"]
    types = _FIELDS[kind]
    if any(type(fields.get(name)) is not wanted for name, wanted in types.items()):
        return None
    if any(fields[name] < 0 for name, wanted in types.items() if wanted is int):
        return None
    if not all(_HASH.fullmatch(fields[name]) for name in _HASH_FIELDS if name in types):
        return None
    if types is _COMMIT:
        return _parse_commit(fields)
    time = fields["removed_at" if "removed_at" in types else "noted_at"]
    parse_micros(time)
    # Events that a record names in the field of another kind must not count for anything
    if any(name in fields and name != _RUN_FIELDS.get(kind) for name in _RUN_FIELDS.values()):
        return None
    return _parse_note(fields, {**_linked(fields), "time": time})


def _linked(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("sequence", "previous", "table_id")}


def _parse_commit(fields: Mapping[str, Any]) -> CommitRecord | None:
    time, counts = fields["committed_at"], fields.get("counts", {})
    if time is not None and parse_micros(time) is None:
        return None
    if not isinstance(counts, dict) or not all(type(count) is int and count >= 0 for count in counts.values()):
        return None
    columns = columns_from_json(fields["columns"]) if "columns" in fields else None
    if fields["columns_at"] > fields["sequence"] or find_unsupported_fields(row_type(columns or (), stored=False)):
        return None
    return CommitRecord(
        **_linked(fields),
        time=time,
        kind=fields["kind"],
        version=fields["version"],
        rows=fields["rows"],
        rows_root=fields["rows_root"],
        columns_at=fields["columns_at"],
        columns=columns,
        log_sha256=fields.get("log_sha256"),
    )


def _parse_note(fields: Mapping[str, Any], linked: Mapping[str, Any]) -> Record | None:
    match fields["kind"]:
        case "removal":
            runs = _parse_runs(fields["removed"])
            if _count(runs) != fields["values"]:
                return None
            return RemovalRecord(**linked, runs=runs, values=fields["values"])
        case "sealing":
            runs = _parse_runs(fields["sealed"])
            if not is_folder_name(fields["made_in"]) or _count(runs) != fields["values"]:
                return None
            return EncryptionRecord(
                **linked,
                runs=runs,
                values=fields["values"],
                hashes_root=fields["hashes_root"],
                made_in=fields["made_in"],
            )
        case "shredding":
            if not all(isinstance(key, str) and _KEY_ID.fullmatch(key) for key in fields["keys"]):
                return None
            return ShreddingRecord(**linked, keys=tuple(bytes.fromhex(key) for key in fields["keys"]))
        case "erasure":
            if not all(isinstance(request, str) for request in fields["requests"]):
                return None
    return NoteRecord(**linked, kind=fields["kind"])


def _parse_runs(named: Mapping[str, Any]) -> tuple[Run, ...]:
    """By version, ascending. Raises ValueError unless the runs of a version ascend and do not overlap."""
    runs: list[Run] = []
    for version, pairs in named.items():
        if not _VERSION.fullmatch(version) or int(version) > _LARGEST or not isinstance(pairs, list):
            raise ValueError("not a version with a list of runs")
        end = -1
        for run in pairs:
            if not isinstance(run, list) or len(run) != 2 or any(type(index) is not int for index in run):
                raise ValueError("not a run")
            if not end < run[0] <= run[1] <= _LARGEST:
                raise ValueError("runs out of order")
            end = run[1]
            runs.append((int(version), run[0], run[1]))
    return tuple(sorted(runs))


def _count(runs: Iterable[Run]) -> int:
    return sum(last - first + 1 for _, first, last in runs)
