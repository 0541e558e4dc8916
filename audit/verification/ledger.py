"""The ledger, from its first record to its last, or from where an earlier verification ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit.hashing.merkle import CompactRange, merkle_root_of_chunks
from audit.proof import leaf_hash
from audit.trail.column_history import Column, columns_from_json
from audit.trail.events import CHUNK_EVENTS
from audit.trail.record_kinds import (
    NOTED,
    PLACES,
    REMOVAL,
    SEALING,
    SHREDDING,
    are_hashes,
    named_runs,
    parse_micros,
    parse_record,
)
from audit.trail.tables import LEDGER
from audit.verification.results import CHECKPOINTS, Findings, FoundCheckpoint, Kind, VerifiedState

if TYPE_CHECKING:
    from audit.trail.tables import TrailTables

__all__ = ["Commit", "LedgerScan", "select_trusted", "read_records", "verify_ledger"]


@dataclass(frozen=True, slots=True)
class Commit:
    """What the ledger says of the events of one commit."""

    rows: int
    chunk_roots: tuple[bytes, ...]
    columns_at: int
    committed_micros: int | None
    sound: bool = True
    """The record is whole in itself."""


@dataclass(slots=True)
class LedgerScan:
    tree: CompactRange = field(default_factory=CompactRange)
    previous: bytes = bytes(32)
    commits: dict[int, Commit] = field(default_factory=dict)
    columns: dict[int, tuple[Column, ...]] = field(default_factory=dict)
    columns_at: int = 0
    records: int = 0
    removals: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each record by which values went or were sealed, by its sequence: the versions of which it names them."""
    sound: set[bytes] = field(default_factory=set)
    unsound: set[bytes] = field(default_factory=set)
    """Hashes of the records of values that went or were sealed, as far as each of them is whole in itself; and others."""
    last_version: int | None = None
    last_committed_at: str | None = None
    sealed: int = 0
    """Records that a signed checkpoint covers."""
    sealed_version: int | None = None
    sealed_committed_at: str | None = None

    @property
    def distrusted(self) -> frozenset[bytes]:
        """Records that explain no fault; not those that only a bad copy stands beside."""
        return frozenset(self.unsound - self.sound)

    @classmethod
    def after(cls, verified: VerifiedState) -> LedgerScan:
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

    def verified(self, origin: str, events: int) -> VerifiedState | None:
        """``events``: of all commits; None where there is nothing to go on from."""
        if self.last_version is None:
            return None
        return VerifiedState(
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


def select_trusted(
    seen: Sequence[FoundCheckpoint], origin: str, findings: Findings
) -> dict[int, list[FoundCheckpoint]]:
    """Those checkpoints that can be, by the number of records that they are over."""
    told: dict[int, list[FoundCheckpoint]] = {}
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
    rows: Iterator[Any],
    walk: LedgerScan,
    told: Mapping[int, Sequence[FoundCheckpoint]],
    findings: Findings,
    *,
    before: VerifiedState | None = None,
) -> None:
    """Take every record into ``walk``, and compare its root where a checkpoint has one, or a verification ``before``.

    ``rows``: of ``records_from``. Whatever is in them: it is a finding or intact, and nothing is computed without limits.
    """
    tree, previous, began = walk.tree, walk.previous, walk.tree.size
    faults = len(findings.of(LEDGER))

    def compare() -> None:
        if len(findings.of(LEDGER)) == faults:  # else the root is another one because of those
            _compare(walk, told.get(tree.size, ()), before, findings)

    if began and not _is_still_there(next(rows, None), began - 1, previous, findings):
        return  # the rest is held against what is not there any more
    compare()
    expected = began
    for row in rows:
        sequence, text = row["sequence"], bytes(row["record"] or b"")
        leaf, at = leaf_hash(text), f"record {sequence} of the ledger"
        if sequence is None or sequence < 0:
            findings.add("added", LEDGER, "a record without a place in the ledger", version=row["version"])
            continue
        follows = sequence == expected
        if not follows:
            kind: Kind = "missing" if sequence > expected else "doubled"
            words = f"{at} stands where record {expected} was to be expected"
            findings.add(kind, LEDGER, words, version=row["version"])
        record = parse_record(text)
        own = record is not None and leaf == row["leaf"] and _copies_agree(row, record)
        if record is None or not own:
            findings.add("altered", LEDGER, f"{at} is not what was written", version=row["version"])
        elif follows and record["previous"] != previous.hex():
            findings.add("altered", LEDGER, f"{at} does not follow the record before it", version=row["version"])
        previous, expected = bytes(row["leaf"] or b""), sequence + 1
        tree.append(leaf)
        walk.records += 1
        if record is not None and record["kind"] in PLACES:
            walk.removals[sequence] = tuple(dict.fromkeys(version for version, _, _ in named_runs(record)))
            if record["kind"] == SEALING and not are_hashes(record, bytes(row["chunk_roots"] or b"")):
                words = f"the hashes kept for {at} are not those of the record"
                findings.add("altered", LEDGER, words)
                own = False
            if (version := _unknown_place(walk, record)) is not None:
                findings.add("altered", LEDGER, f"{at} names events of version {version} that were never there")
                own = False
        if record is not None and record["kind"] in (REMOVAL, SEALING, SHREDDING):
            (walk.sound if own else walk.unsound).add(leaf)
        elif record is not None and record["kind"] not in NOTED:
            _take(walk, record, bytes(row["chunk_roots"] or b""), findings, follows=follows, sound=own)
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
    elif row["sequence"] != sequence or leaf_hash(bytes(row["record"] or b"")) != leaf:
        findings.add("replaced", LEDGER, f"record {sequence} is another one than the one that was verified before")
    else:
        return True
    return False


def _compare(
    walk: LedgerScan, ones: Iterable[FoundCheckpoint], before: VerifiedState | None, findings: Findings
) -> None:
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


def read_records(tables: TrailTables, size: int) -> Iterator[Any]:
    """The ledger's rows after the first ``size`` and the last of those, by sequence; then those without a place."""
    from pyspark.sql import functions as F

    rows, first = tables.read(LEDGER), max(0, size - 1)
    if first:
        sequence = F.col("sequence")
        rows = rows.where((sequence >= first) | (sequence < 0) | sequence.isNull())
    at = F.unix_micros("committed_at").alias("at")
    text = F.col("record").cast("binary").alias("record")  # what is no UTF-8 is no record, and fails nowhere
    columns = ("sequence", "kind", "version", "events", text, "leaf", "chunk_roots")
    # Records without a place come last: the first one is then the one that was asked for
    placed = F.when(F.col("sequence") >= 0, F.col("sequence"))
    return rows.select(*columns, at).orderBy(placed.asc_nulls_last()).toLocalIterator(prefetchPartitions=True)


def _unknown_place(walk: LedgerScan, record: Mapping[str, Any]) -> int | None:
    """The first version of which the record names an event that was never there, as far as the walk can tell."""
    for version, _, last in named_runs(record):
        commit = walk.commits.get(version)
        beyond = walk.last_version is None or version > walk.last_version
        if beyond or (commit is not None and last >= commit.rows):
            return version
    return None


def _copies_agree(row: Any, record: Mapping[str, Any]) -> bool:
    copied = (row["sequence"], row["kind"], row["version"], row["events"], row["at"])
    if record["kind"] in NOTED:
        told = (record["sequence"], record["kind"], None, 0, parse_micros(record[NOTED[record["kind"]]]))
        return copied == told and (record["kind"] == SEALING or not row["chunk_roots"])
    at = parse_micros(record["committed_at"])
    return copied == (record["sequence"], record["kind"], record["version"], record["rows"], at)


def _take(
    walk: LedgerScan, record: Mapping[str, Any], roots: bytes, findings: Findings, *, follows: bool, sound: bool
) -> None:
    version = record["version"]
    if follows and walk.last_version is not None and version != walk.last_version + 1:
        kind: Kind = "missing" if version > walk.last_version else "doubled"
        findings.add(kind, LEDGER, f"version {version} follows version {walk.last_version}", version=version)
    chunks = tuple(roots[at : at + 32] for at in range(0, len(roots), 32))
    if (
        len(roots) % 32
        or merkle_root_of_chunks(chunks).hex() != record["rows_root"]
        or len(chunks) != -(-record["rows"] // CHUNK_EVENTS)
    ):
        words = f"the roots kept for version {version} are not those of its record"
        findings.add("altered", LEDGER, words, version=version)
    if "columns" in record:
        walk.columns[record["sequence"]] = columns_from_json(record["columns"])
    if record["columns_at"] not in walk.columns:
        findings.add(
            "altered", LEDGER, f"the record that tells the columns of version {version} is gone", version=version
        )
        walk.columns[record["columns_at"]] = ()
    walk.columns_at = record["columns_at"]
    held = walk.commits.get(version)
    if held is None or (sound and not held.sound):  # a record that comes twice takes the place of no sound one
        at = parse_micros(record["committed_at"])
        walk.commits[version] = Commit(record["rows"], chunks, record["columns_at"], at, sound)
    # A lower one hides none of the commits that are there
    if walk.last_version is None or version > walk.last_version:
        walk.last_version, walk.last_committed_at = version, record["committed_at"]
