"""Ledger records read back, strictly: types and limits first. Nothing is computed from a record that no runner writes.

Every reader of records goes through ``parse_record``. A range of places is never expanded before it was held against
what exists: the hashes beside the record, or the events of the commit.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from audit.hashing.merkle import merkle_root
from audit.hashing.row_encoding import find_unsupported_fields
from audit.trail.column_history import Column, columns_from_json, row_type
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError

__all__ = [
    "NOTED",
    "PLACES",
    "REMOVAL",
    "SEALING",
    "SHREDDING",
    "are_hashes",
    "is_folder_name",
    "parse_micros",
    "named_count",
    "named_runs",
    "parse_columns",
    "parse_record",
]

REMOVAL, SEALING, SHREDDING, READING, ERASURE = "removal", "sealing", "shredding", "reading", "erasure"
NOTED = {
    REMOVAL: "removed_at",
    SEALING: "removed_at",
    SHREDDING: "removed_at",
    ERASURE: "noted_at",
    READING: "noted_at",
}
"""Records that tell of no commit, and where they have their time."""
PLACES = {REMOVAL: "removed", SEALING: "sealed"}
"""Where records have the places of events."""

_OF_ALL = {"sequence": int, "kind": str, "previous": str, "table_id": str}
_OF_A_COMMIT = {**_OF_ALL, "version": int, "rows": int, "rows_root": str, "columns_at": int}
_FIELDS: Mapping[str, Mapping[str, type]] = {
    "commit": _OF_A_COMMIT,
    "baseline": _OF_A_COMMIT,
    REMOVAL: {**_OF_ALL, "removed_at": str, "removed": dict, "values": int},
    SEALING: {**_OF_ALL, "removed_at": str, "sealed": dict, "values": int, "hashes_root": str, "made_in": str},
    SHREDDING: {**_OF_ALL, "removed_at": str, "keys": list, "values": int},
    ERASURE: {**_OF_ALL, "noted_at": str, "reached_at": str, "run": str, "state": str, "requests": list},
    READING: {**_OF_ALL, "noted_at": str, "read_at": str, "reader": str, "role": str, "purpose": str, "keys": int},
}
"""By the kind of the record."""
_HASHES = ("previous", "rows_root", "hashes_root")
_HASH, _KEY_ID, _FOLDER = (re.compile(f"[0-9a-f]{{{size}}}") for size in (64, 32, 32))
_VERSION = re.compile(r"0|[1-9][0-9]{0,15}")
_LARGEST = 2**53
"""Of a number in canonical JSON, and of a version or a place."""


def parse_record(text: str | bytes | None) -> dict[str, Any] | None:
    """None: no runner writes such a record. Never raises."""
    data = text.encode(errors="replace") if isinstance(text, str) else text or b""
    try:
        record = json.loads(data)
        if not isinstance(record, dict) or canonical_json(record) != data:
            return None
        return record if _is_valid(record) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def parse_columns(text: str, *, version: int) -> tuple[Column, ...]:
    """The columns that the record of a version has, as JSON. Raises VerificationError where no runner writes them."""
    try:
        said = json.loads(text)
        if not isinstance(said, list):
            raise ValueError("no list")
        return columns_from_json(said)
    except (ValueError, RecursionError):
        raise VerificationError(
            f"the ledger's record of version {version} has columns that no runner writes: rows cannot be read by it",
            hint="`deltarelay audit verify` reports what is altered",
            version=version,
        ) from None


def _is_valid(record: Mapping[str, Any]) -> bool:
    fields = _FIELDS[record["kind"]]
    if any(type(record.get(name)) is not kind for name, kind in fields.items()):
        return False
    if any(record[name] < 0 for name, kind in fields.items() if kind is int):
        return False
    if not all(_HASH.fullmatch(record[name]) for name in _HASHES if name in fields):
        return False
    if record["kind"] in NOTED:
        parse_micros(record[NOTED[record["kind"]]])
        # Places that this kind does not have are no one's to obey
        own = PLACES.get(record["kind"])
        return all(name == own or name not in record for name in PLACES.values()) and _has_what_it_counts(record)
    if record["committed_at"] is not None and parse_micros(record["committed_at"]) is None:
        return False
    counts = record.get("counts", {})
    if not isinstance(counts, dict) or not all(type(one) is int and one >= 0 for one in counts.values()):
        return False
    return record["columns_at"] <= record["sequence"] and not find_unsupported_fields(
        row_type(columns_from_json(record.get("columns", [])), stored=False)
    )


def _has_what_it_counts(record: Mapping[str, Any]) -> bool:
    match record["kind"]:
        case "removal":
            return _are_runs(record["removed"]) and named_count(record) == record["values"]
        case "sealing":
            named = _are_runs(record["sealed"]) and named_count(record) == record["values"]
            return named and is_folder_name(record["made_in"])
        case "shredding":
            return all(isinstance(one, str) and _KEY_ID.fullmatch(one) is not None for one in record["keys"])
        case "erasure":
            return all(isinstance(one, str) for one in record["requests"])
    return True


def _are_runs(named: Mapping[str, Any]) -> bool:
    """By version, first and last of places that follow each other; in their order, and none of them twice."""
    for version, runs in named.items():
        if not _VERSION.fullmatch(version) or int(version) > _LARGEST or not isinstance(runs, list):
            return False
        end = -1
        for run in runs:
            if not isinstance(run, list) or len(run) != 2 or any(type(one) is not int for one in run):
                return False
            if not end < run[0] <= run[1] <= _LARGEST:
                return False
            end = run[1]
    return True


def is_folder_name(made_in: object) -> bool:
    """Whether a record of rows that were sealed later can name this folder, which is removed in the end."""
    return isinstance(made_in, str) and _FOLDER.fullmatch(made_in) is not None


def named_runs(record: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Version, first and last of the places that a record of ``parse_record`` names; by version as a number."""
    named: Mapping[str, list[list[int]]] = record[PLACES[record["kind"]]]
    for version in sorted(named, key=int):
        for first, last in named[version]:
            yield int(version), first, last


def named_count(record: Mapping[str, Any]) -> int:
    return sum(last - first + 1 for _, first, last in named_runs(record))


def are_hashes(record: Mapping[str, Any], hashes: bytes) -> bool:
    """One hash for each place that a record of rows sealed later names, and its root over them."""
    if len(hashes) != 32 * record["values"] or len(hashes) != 32 * named_count(record):
        return False
    leaves = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
    same: bool = merkle_root(leaves).hex() == record["hashes_root"]
    return same


def parse_micros(said: object) -> int | None:
    """A time of a record; None where it is no text. Raises ValueError or TypeError for a text that is no time."""
    if not isinstance(said, str):
        return None
    since = dt.datetime.fromisoformat(said) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)
