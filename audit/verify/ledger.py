"""The ledger, from its first record to its last, or from where an earlier verification ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit.columns import Column, from_json
from audit.proof import leaf_hash
from audit.record import canonical_json
from audit.rows import CHUNK
from audit.tables import LEDGER
from audit.tree import CompactRange, root_of, root_of_chunks
from audit.verify.findings import CHECKPOINTS, Findings, Kind, Seen, Verified

if TYPE_CHECKING:
    from audit.tables import TrailTables

__all__ = ["REMOVAL", "SEALING", "SHREDDING", "Commit", "Walk", "believed", "names_folder", "verify_ledger"]


@dataclass(frozen=True, slots=True)
class Commit:
    """What the ledger says of the events of one commit."""

    rows: int
    chunk_roots: tuple[bytes, ...]
    columns_at: int
    committed_micros: int | None


@dataclass(slots=True)
class Walk:
    tree: CompactRange = field(default_factory=CompactRange)
    previous: bytes = bytes(32)
    commits: dict[int, Commit] = field(default_factory=dict)
    columns: dict[int, tuple[Column, ...]] = field(default_factory=dict)
    columns_at: int = 0
    records: int = 0
    removals: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each record by which values went or were sealed, by its sequence: the versions of which it names them."""
    last_version: int | None = None
    last_committed_at: str | None = None
    sealed: int = 0
    """Records that a signed checkpoint covers."""
    sealed_version: int | None = None
    sealed_committed_at: str | None = None

    @classmethod
    def after(cls, verified: Verified) -> Walk:
        return cls(
            tree=CompactRange(verified.size, verified.hashes),
            previous=verified.previous,
            columns={verified.columns_at: verified.columns},
            columns_at=verified.columns_at,
            last_version=verified.version,
            last_committed_at=verified.committed_at,
            sealed=verified.sealed,
            sealed_version=verified.sealed_version,
            sealed_committed_at=verified.sealed_committed_at,
        )

    def verified(self, origin: str, events: int) -> Verified | None:
        """``events``: of all commits; None where there is nothing to go on from."""
        if self.last_version is None:
            return None
        return Verified(
            origin=origin,
            size=self.tree.size,
            hashes=self.tree.hashes,
            previous=self.previous,
            version=self.last_version,
            committed_at=self.last_committed_at,
            columns_at=self.columns_at,
            columns=self.columns[self.columns_at],
            events=events,
            sealed=self.sealed,
            sealed_version=self.sealed_version,
            sealed_committed_at=self.sealed_committed_at,
        )


def believed(seen: Sequence[Seen], origin: str, findings: Findings) -> dict[int, list[Seen]]:
    """Those checkpoints that can be, by the number of records that they are over."""
    told: dict[int, list[Seen]] = {}
    for one in seen:
        if one.checkpoint is None:
            findings.add("not_signed", CHECKPOINTS, f"what stands at {one.where} is no checkpoint")
        elif not one.signed:
            words = f"a checkpoint from {one.where} is not signed by a key that is trusted"
            findings.add("not_signed", CHECKPOINTS, words)
        elif one.checkpoint.origin != origin:
            words = f"the checkpoint from {one.where} is of another trail: this one was made anew"
            findings.add("replaced", LEDGER, words)
        else:
            told.setdefault(one.checkpoint.size, []).append(one)
    return told


def verify_ledger(
    tables: TrailTables, walk: Walk, told: Mapping[int, Sequence[Seen]], findings: Findings, *, before: Verified | None
) -> None:
    """Take every record into ``walk``, and compare its root where a checkpoint has one, or a verification ``before``."""
    tree, previous, began = walk.tree, walk.previous, walk.tree.size
    faults = len(findings.of(LEDGER))

    def compare() -> None:
        if len(findings.of(LEDGER)) == faults:  # else the root is another one because of those
            _compare(walk, told.get(tree.size, ()), before, findings)

    rows = _records(tables, max(0, began - 1))
    if began and not _is_still_there(next(rows, None), began - 1, previous, findings):
        return  # the rest is held against what is not there any more
    compare()
    expected = began
    for row in rows:
        sequence, text = row["sequence"], (row["record"] or "").encode()
        leaf, at = leaf_hash(text), f"record {sequence} of the ledger"
        if sequence is None or sequence < 0:
            findings.add("added", LEDGER, "a record without a place in the ledger", version=row["version"])
            continue
        follows = sequence == expected
        if not follows:
            kind: Kind = "missing" if sequence > expected else "doubled"
            words = f"{at} stands where record {expected} was to be expected"
            findings.add(kind, LEDGER, words, version=row["version"])
        record = _record(text)
        if record is None or leaf != row["leaf"] or not _copies_agree(row, record):
            findings.add("altered", LEDGER, f"{at} is not what was written", version=row["version"])
        elif follows and record["previous"] != previous.hex():
            findings.add("altered", LEDGER, f"{at} does not follow the record before it", version=row["version"])
        previous, expected = bytes(row["leaf"] or b""), sequence + 1
        tree.append(leaf)
        walk.records += 1
        if record is not None and record["kind"] in _PLACES:
            walk.removals[sequence] = tuple(map(int, record[_PLACES[record["kind"]]]))
            if record["kind"] == SEALING and not _are_hashes(record, bytes(row["chunk_roots"] or b"")):
                words = f"the hashes kept for {at} are not those of the record"
                findings.add("altered", LEDGER, words)
        elif record is not None and record["kind"] not in _NOTED:
            _take(walk, record, bytes(row["chunk_roots"] or b""), findings, follows=follows)
        compare()
    walk.previous = previous
    # By the last one's own place: a record that is missing in between leaves too few as well
    for size, ones in sorted(told.items()):
        if size > max(began, expected):
            for one in ones:
                words = f"the checkpoint from {one.where} is over {size} records, and there are {expected}"
                findings.add("cut_off", LEDGER, f"{words}: the last are gone")
    if before is not None and before.size > expected:
        words = f"{before.size} records were verified before, and there are {expected}: the last are gone"
        findings.add("cut_off", LEDGER, words)


def _is_still_there(row: Any, sequence: int, leaf: bytes, findings: Findings) -> bool:
    """The last record that was verified before."""
    if row is None or row["sequence"] is None or row["sequence"] < 0:
        findings.add("cut_off", LEDGER, f"record {sequence}, which was verified before, is gone")
    elif row["sequence"] != sequence or leaf_hash((row["record"] or "").encode()) != leaf:
        findings.add("replaced", LEDGER, f"record {sequence} is another one than the one that was verified before")
    else:
        return True
    return False


def _compare(walk: Walk, ones: Iterable[Seen], before: Verified | None, findings: Findings) -> None:
    size, root = walk.tree.size, walk.tree.root()
    for one in ones:
        if one.checkpoint is not None and one.checkpoint.root == root:
            walk.sealed, walk.sealed_version = size, walk.last_version
            walk.sealed_committed_at = walk.last_committed_at
        else:
            words = f"the checkpoint from {one.where} over {size} records is of another ledger than this one"
            findings.add("replaced", LEDGER, words, version=walk.last_version)
    if before is not None and before.size == size and before.checkpoint.root != root:
        words = f"its first {size} records are not those that were verified before"
        findings.add("replaced", LEDGER, words, version=walk.last_version)


def _records(tables: TrailTables, first: int) -> Iterator[Any]:
    from pyspark.sql import functions as F

    rows = tables.read(LEDGER)
    if first:
        sequence = F.col("sequence")
        rows = rows.where((sequence >= first) | (sequence < 0) | sequence.isNull())
    at = F.unix_micros("committed_at").alias("at")
    columns = ("sequence", "kind", "version", "events", "record", "leaf", "chunk_roots")
    # Records without a place come last: the first one is then the one that was asked for
    placed = F.when(F.col("sequence") >= 0, F.col("sequence"))
    return rows.select(*columns, at).orderBy(placed.asc_nulls_last()).toLocalIterator(prefetchPartitions=True)


REMOVAL, SEALING, SHREDDING, READING = "removal", "sealing", "shredding", "reading"
_NOTED = {
    REMOVAL: "removed_at",
    SEALING: "removed_at",
    SHREDDING: "removed_at",
    "erasure": "noted_at",
    READING: "noted_at",
}
"""Records that tell of no commit, and where they have their time."""
_PLACES = {REMOVAL: "removed", SEALING: "sealed"}
"""Where records have the places of events."""
_OF_ALL = {"sequence": int, "kind": str, "previous": str, "table_id": str}
_OF_A_COMMIT = {**_OF_ALL, "version": int, "rows": int, "rows_root": str, "columns_at": int}
_OF_A_REMOVAL = {**_OF_ALL, "removed_at": str, "removed": dict, "values": int}
_OF_A_SEALING = {**_OF_ALL, "removed_at": str, "sealed": dict, "values": int, "hashes_root": str, "made_in": str}
_OF_A_SHREDDING = {**_OF_ALL, "removed_at": str, "keys": list, "values": int}
_OF_A_READING = {**_OF_ALL, "noted_at": str, "read_at": str, "reader": str, "role": str, "purpose": str, "keys": int}
_OF_AN_ERASURE = {**_OF_ALL, "noted_at": str, "reached_at": str, "run": str, "state": str, "requests": list}
_FIELDS = {
    "commit": _OF_A_COMMIT,
    "baseline": _OF_A_COMMIT,
    REMOVAL: _OF_A_REMOVAL,
    SEALING: _OF_A_SEALING,
    SHREDDING: _OF_A_SHREDDING,
    "erasure": _OF_AN_ERASURE,
    READING: _OF_A_READING,
}
"""By the kind of the record."""
_KEY_ID_BYTES = 16
_FOLDER = re.compile(r"[0-9a-f]{32}")


def _record(text: bytes) -> dict[str, Any] | None:
    """None: no record can be so."""
    try:
        record = json.loads(text)
        if not isinstance(record, dict) or canonical_json(record) != text:
            return None
        if any(type(record.get(name)) is not kind for name, kind in _FIELDS[record["kind"]].items()):
            return None
        if record["kind"] in _NOTED:
            _micros(record[_NOTED[record["kind"]]])
            if not all(len(bytes.fromhex(key)) == _KEY_ID_BYTES for key in _keys(record)):
                return None
            if record["kind"] == SEALING and not names_folder(record["made_in"]):
                return None
            named = (places for name in _PLACES.values() for places in record.get(name, {}).items())
            return record if all(map(_are_places, named)) else None
        if record["rows"] < 0:
            return None
        if _micros(record.get("committed_at")) is None and record.get("committed_at") is not None:
            return None
        from_json(record.get("columns", []))
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        return None
    return record


def names_folder(made_in: object) -> bool:
    """Whether a record of rows that were sealed later can tell this: the name of a folder that is removed in the end."""
    return isinstance(made_in, str) and _FOLDER.fullmatch(made_in) is not None


def _keys(record: Mapping[str, Any]) -> Iterable[str]:
    keys: Iterable[str] = record["keys"] if record["kind"] == SHREDDING else ()
    return keys


def _are_places(named: tuple[str, Any]) -> bool:
    """A version, and first and last of its events from place to place."""
    version, places = named
    return str(int(version)) == version and all(
        type(first) is type(last) is int and 0 <= first <= last for first, last in places
    )


def _are_hashes(record: Mapping[str, Any], hashes: bytes) -> bool:
    """One for each place that the record names, and its root over them."""
    leaves = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
    named = sum(last - first + 1 for places in record["sealed"].values() for first, last in places)
    all_there: bool = len(hashes) == 32 * named and named == record["values"]
    return all_there and root_of(leaves).hex() == record["hashes_root"]


def _micros(said: object) -> int | None:
    import datetime as dt

    if not isinstance(said, str):
        return None
    since = dt.datetime.fromisoformat(said) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)


def _copies_agree(row: Any, record: Mapping[str, Any]) -> bool:
    copied = (row["sequence"], row["kind"], row["version"], row["events"], row["at"])
    if record["kind"] in _NOTED:
        told = (record["sequence"], record["kind"], None, 0, _micros(record[_NOTED[record["kind"]]]))
        return copied == told and (record["kind"] == SEALING or not row["chunk_roots"])
    at = _micros(record["committed_at"])
    return copied == (record["sequence"], record["kind"], record["version"], record["rows"], at)


def _take(walk: Walk, record: Mapping[str, Any], roots: bytes, findings: Findings, *, follows: bool) -> None:
    version = record["version"]
    if follows and walk.last_version is not None and version != walk.last_version + 1:
        kind: Kind = "missing" if version > walk.last_version else "doubled"
        findings.add(kind, LEDGER, f"version {version} follows version {walk.last_version}", version=version)
    chunks = tuple(roots[at : at + 32] for at in range(0, len(roots), 32))
    if (
        len(roots) % 32
        or root_of_chunks(chunks).hex() != record["rows_root"]
        or len(chunks) != -(-record["rows"] // CHUNK)
    ):
        words = f"the roots kept for version {version} are not those of its record"
        findings.add("altered", LEDGER, words, version=version)
    if "columns" in record:
        walk.columns[record["sequence"]] = from_json(record["columns"])
    if record["columns_at"] not in walk.columns:
        findings.add(
            "altered", LEDGER, f"the record that tells the columns of version {version} is gone", version=version
        )
        walk.columns[record["columns_at"]] = ()
    walk.columns_at = record["columns_at"]
    at = _micros(record["committed_at"])
    walk.commits[version] = Commit(record["rows"], chunks, record["columns_at"], at)
    walk.last_version, walk.last_committed_at = version, record["committed_at"]
