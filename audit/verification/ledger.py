"""Verifies the ledger: from its first record to its last, or from where an earlier verification ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit.checkpoints.anchored import FoundCheckpoint
from audit.hashing.merkle import CompactRange, merkle_root_of_chunks
from audit.proof import leaf_hash
from audit.trail.column_history import Column
from audit.trail.events import CHUNK_EVENTS
from audit.trail.record_kinds import (
    CommitRecord,
    EncryptionRecord,
    Record,
    RemovalRecord,
    ShreddingRecord,
    parse_record,
)
from audit.trail.tables import LEDGER
from audit.verification.results import CHECKPOINTS, Findings, Kind, VerifiedState
from cdf.spark_versions import iterate_rows

if TYPE_CHECKING:
    from audit.trail.tables import TrailTables

__all__ = ["Commit", "LedgerScan", "read_records", "select_trusted", "verify_ledger"]


@dataclass(frozen=True, slots=True)
class Commit:
    """What the ledger says about the events of one commit."""

    rows: int
    chunk_roots: tuple[bytes, ...]
    columns_at: int
    committed_micros: int | None
    sound: bool = True
    """The record is a valid one with a correct hash and correct copies."""


@dataclass(slots=True)
class LedgerScan:
    """What was read of the ledger so far."""

    tree: CompactRange = field(default_factory=CompactRange)
    previous: bytes = bytes(32)
    """Hash of the last record."""
    commits: dict[int, Commit] = field(default_factory=dict)
    """By version."""
    columns: dict[int, tuple[Column, ...]] = field(default_factory=dict)
    """By the sequence of the record that has them."""
    columns_at: int = 0
    records: int = 0
    removals: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By the sequence of each record by which values were removed or encrypted: the versions of which it names events."""
    sound: set[bytes] = field(default_factory=set)
    unsound: set[bytes] = field(default_factory=set)
    """Hashes of the records by which values were removed or encrypted: those of valid records, and the others."""
    last_version: int | None = None
    last_committed_at: str | None = None
    sealed: int = 0
    """Number of records that a signed checkpoint covers."""
    sealed_version: int | None = None
    sealed_committed_at: str | None = None

    @property
    def distrusted(self) -> frozenset[bytes]:
        """Hashes of records that explain no missing value. A record with a second, wrong copy is not among them."""
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

    def to_state(self, origin: str, events: int) -> VerifiedState | None:
        """``events``: number in all commits. None: there is no commit from which a verification could continue."""
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
    found: Sequence[FoundCheckpoint], origin: str, findings: Findings
) -> dict[int, list[FoundCheckpoint]]:
    """Select the checkpoints of this trail that a trusted key has signed, by their number of records. Reports the others."""
    trusted: dict[int, list[FoundCheckpoint]] = {}
    for entry in found:
        if entry.checkpoint is None:
            findings.add("not_signed", CHECKPOINTS, f"the entry at {entry.where} is not a checkpoint")
        elif not entry.signed:
            message = f"a checkpoint from {entry.where} is not signed by a trusted key"
            findings.add("not_signed", CHECKPOINTS, message)
        elif entry.checkpoint.origin != origin:
            message = f"the checkpoint from {entry.where} belongs to another trail: this one was recreated"
            findings.add("replaced", LEDGER, message)
        else:
            trusted.setdefault(entry.checkpoint.size, []).append(entry)
    return trusted


def verify_ledger(
    rows: Iterator[Any],
    scan: LedgerScan,
    trusted: Mapping[int, Sequence[FoundCheckpoint]],
    findings: Findings,
    *,
    before: VerifiedState | None = None,
) -> None:
    """Add every record to ``scan``. Compare the root at each size for which there is a checkpoint, or the state ``before``.

    ``rows``: from ``read_records``; their content is untrusted. It is either reported as a finding or intact, and it cannot
    make the verification compute without limits.
    """
    tree, previous, began = scan.tree, scan.previous, scan.tree.size
    faults = len(findings.of(LEDGER))

    def compare() -> None:
        if len(findings.of(LEDGER)) == faults:  # otherwise the root differs because of these
            _compare(scan, trusted.get(tree.size, ()), before, findings)

    if began and not _is_still_there(next(rows, None), began - 1, previous, findings):
        return  # the following records have nothing to be compared with
    compare()
    expected = began
    for row in rows:
        sequence, text = row["sequence"], bytes(row["record"] or b"")
        leaf, name = leaf_hash(text), f"record {sequence} of the ledger"
        if sequence is None or sequence < 0:
            findings.add("added", LEDGER, "a record without a valid sequence number", version=row["version"])
            continue
        follows = sequence == expected
        if not follows:
            kind: Kind = "missing" if sequence > expected else "doubled"
            message = f"{name} is in the place of record {expected}"
            findings.add(kind, LEDGER, message, version=row["version"])
        record = parse_record(text)
        own = record is not None and leaf == row["leaf"] and _copies_agree(row, record)
        if record is None or not own:
            findings.add("altered", LEDGER, f"{name} was altered", version=row["version"])
        elif follows and record.previous != previous.hex():
            message = f"{name} does not contain the hash of the record before it"
            findings.add("altered", LEDGER, message, version=row["version"])
        previous, expected = bytes(row["leaf"] or b""), sequence + 1
        tree.append(leaf)
        scan.records += 1
        hashes = bytes(row["chunk_roots"] or b"")
        match record:
            case CommitRecord():
                _add_commit(scan, record, hashes, findings, follows=follows, sound=own)
            case RemovalRecord() | EncryptionRecord():
                _add_removal(scan, record, leaf, hashes, findings, sequence=sequence, sound=own)
            case ShreddingRecord():
                (scan.sound if own else scan.unsound).add(leaf)
        compare()
    scan.previous = previous
    # Compared with the sequence of the last record: a record that is missing before it makes the number of records too small
    for size, checkpoints in sorted(trusted.items()):
        if size > max(began, expected):
            for entry in checkpoints:
                message = f"the checkpoint from {entry.where} covers {size} records, and the ledger has {expected}"
                findings.add("cut_off", LEDGER, f"{message}: the last ones are missing")
    if before is not None and before.size > expected:
        message = (
            f"{before.size} records were verified before, and the ledger has {expected}: the last ones are missing"
        )
        findings.add("cut_off", LEDGER, message)


def _is_still_there(row: Any, sequence: int, leaf: bytes, findings: Findings) -> bool:
    """Whether the last record that was verified before is unchanged."""
    if row is None or row["sequence"] is None or row["sequence"] < 0:
        findings.add("cut_off", LEDGER, f"record {sequence}, which was verified before, is missing")
    elif row["sequence"] != sequence or leaf_hash(bytes(row["record"] or b"")) != leaf:
        findings.add("replaced", LEDGER, f"record {sequence} is not the one that was verified before")
    else:
        return True
    return False


def _compare(
    scan: LedgerScan, checkpoints: Iterable[FoundCheckpoint], before: VerifiedState | None, findings: Findings
) -> None:
    size, root = scan.tree.size, scan.tree.root()
    for entry in checkpoints:
        if entry.checkpoint is not None and entry.checkpoint.root == root:
            scan.sealed, scan.sealed_version = size, scan.last_version
            scan.sealed_committed_at = scan.last_committed_at
        else:
            message = f"the checkpoint from {entry.where} over {size} records does not match this ledger"
            findings.add("replaced", LEDGER, message, version=scan.last_version)
    if before is not None and before.size == size and before.checkpoint.root != root:
        message = f"its first {size} records are not those that were verified before"
        findings.add("replaced", LEDGER, message, version=scan.last_version)


def read_records(tables: TrailTables, size: int) -> Iterator[Any]:
    """Read the ledger's rows after the first ``size``, and the last of these, by sequence; then those without a sequence."""
    from pyspark.sql import functions as F

    rows, first = tables.read(LEDGER), max(0, size - 1)
    if first:
        sequence = F.col("sequence")
        rows = rows.where((sequence >= first) | (sequence < 0) | sequence.isNull())
    at = F.unix_micros("committed_at").alias("at")
    # As binary: text that is not valid UTF-8 is not a record, and must not fail the query
    text = F.col("record").cast("binary").alias("record")
    columns = ("sequence", "kind", "version", "events", text, "leaf", "chunk_roots")
    # Records without a valid sequence come last, so that the first row is the one that the caller expects
    placed = F.when(F.col("sequence") >= 0, F.col("sequence"))
    return iterate_rows(rows.select(*columns, at).orderBy(placed.asc_nulls_last()), prefetch=True)


def _add_removal(
    scan: LedgerScan,
    record: RemovalRecord | EncryptionRecord,
    leaf: bytes,
    hashes: bytes,
    findings: Findings,
    *,
    sequence: int,
    sound: bool,
) -> None:
    name = f"record {sequence} of the ledger"
    scan.removals[sequence] = tuple(dict.fromkeys(version for version, _, _ in record.runs))
    if isinstance(record, EncryptionRecord) and not record.matches_hashes(hashes):
        findings.add("altered", LEDGER, f"the hashes stored beside {name} do not match it")
        sound = False
    if (version := _unknown_place(scan, record)) is not None:
        findings.add("altered", LEDGER, f"{name} names events of version {version} that never existed")
        sound = False
    (scan.sound if sound else scan.unsound).add(leaf)


def _unknown_place(scan: LedgerScan, record: RemovalRecord | EncryptionRecord) -> int | None:
    """The first version of which the record names an event that never existed, as far as the scan knows."""
    for version, _, last in record.runs:
        commit = scan.commits.get(version)
        beyond = scan.last_version is None or version > scan.last_version
        if beyond or (commit is not None and last >= commit.rows):
            return version
    return None


def _copies_agree(row: Any, record: Record) -> bool:
    """Whether the columns beside a record are copies of it."""
    copies = (row["sequence"], row["kind"], row["version"], row["events"], row["at"])
    if isinstance(record, CommitRecord):
        return copies == (record.sequence, record.kind, record.version, record.rows, record.time_micros)
    expected = (record.sequence, record.kind, None, 0, record.time_micros)
    return copies == expected and (isinstance(record, EncryptionRecord) or not row["chunk_roots"])


def _add_commit(
    scan: LedgerScan, record: CommitRecord, roots: bytes, findings: Findings, *, follows: bool, sound: bool
) -> None:
    version = record.version
    if follows and scan.last_version is not None and version != scan.last_version + 1:
        kind: Kind = "missing" if version > scan.last_version else "doubled"
        findings.add(kind, LEDGER, f"version {version} follows version {scan.last_version}", version=version)
    chunks = tuple(roots[at : at + 32] for at in range(0, len(roots), 32))
    if (
        len(roots) % 32
        or merkle_root_of_chunks(chunks).hex() != record.rows_root
        or len(chunks) != -(-record.rows // CHUNK_EVENTS)
    ):
        message = f"the roots stored for version {version} do not match its record"
        findings.add("altered", LEDGER, message, version=version)
    if record.columns is not None:
        scan.columns[record.sequence] = record.columns
    if record.columns_at not in scan.columns:
        message = f"the record with the columns of version {version} is missing"
        findings.add("altered", LEDGER, message, version=version)
        scan.columns[record.columns_at] = ()
    scan.columns_at = record.columns_at
    known = scan.commits.get(version)
    if known is None or (sound and not known.sound):  # a doubled record never replaces a sound one
        scan.commits[version] = Commit(record.rows, chunks, record.columns_at, record.time_micros, sound)
    # A record with a lower version must not hide commits after it
    if scan.last_version is None or version > scan.last_version:
        scan.last_version, scan.last_committed_at = version, record.time
