"""Results of a verification: checkpoints that it found, findings, and the state that the next verification starts from."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from audit.anchors.base import AnchorFailure
from audit.hashing.merkle import CompactRange
from audit.proof import Checkpoint
from audit.trail.column_history import Column, columns_from_json
from audit.trail.column_history import columns_to_json as columns_to_json
from cdf.result import Result

__all__ = [
    "CHECKPOINTS",
    "MOST_FINDINGS",
    "NOT_ANCHORED",
    "NOT_COVERED",
    "NOT_READ_AGAIN",
    "Finding",
    "Findings",
    "Kind",
    "TrailVerification",
    "VerifiedState",
]

NOT_COVERED = (
    "false data in the source: the trail shows what the change feed contained",
    "what was written after the last checkpoint that is stored outside of the trail: anyone with write access to the trail "
    "could have forged or removed it",
    "replacement by another trail, one signed with the same key or one begun in the emptied folder: --origin and the state "
    "that this command stores detect it",
    "files rewritten at the moment in which a runner writes a window and reads it back: `audit reconcile` detects it",
    "collusion of the signer with the owners of all anchors",
    "statistics inside data files: this verification reads every row; a query that skips files by statistics can miss one",
)
"""What no verification of a trail can detect; part of every result."""
NOT_ANCHORED = (
    "replacement of the whole trail, or a return to an older state: there was no checkpoint from outside of the trail"
)
"""Added if there are no anchors."""
NOT_READ_AGAIN = (
    "what was verified before was not read again: for these events, only their number (from the table's own statistics) and "
    "the values that a removal names were compared; --level full reads everything"
)
"""Added to a quick verification."""

CHECKPOINTS = "checkpoints"
"""Stands for the table in findings about a checkpoint."""
MOST_FINDINGS = 100
"""Maximum number of findings of one kind in one table, so that many of one kind hide none of another."""

Kind = Literal["altered", "missing", "added", "doubled", "moved", "returned", "cut_off", "replaced", "not_signed"]


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """One fault. ``first`` and ``last``: indexes of events in the commit; None: the fault concerns the commit or the
    table."""

    kind: Kind
    table: str
    version: int | None
    first: int | None
    last: int | None
    text: str


@dataclass(frozen=True, slots=True)
class VerifiedState:
    """What a verification found intact; the next one can continue from it. Store it where the trail's writers have no
    access."""

    origin: str
    size: int
    hashes: tuple[bytes, ...]
    """Those of ``audit.hashing.merkle.CompactRange`` over the ``size`` records."""
    previous: bytes
    """Hash of the last record."""
    version: int
    committed_at: str | None
    columns_at: int
    columns: tuple[Column, ...]
    events: int
    """Number in all commits up to ``version``."""
    sealed: int
    """Number of records that a signed checkpoint covered."""
    sealed_version: int | None
    sealed_committed_at: str | None

    @property
    def checkpoint(self) -> Checkpoint:
        """The verified ledger as a checkpoint, without a signature."""
        return Checkpoint(self.origin, self.size, CompactRange(self.size, self.hashes).root())

    def to_json(self) -> str:
        return json.dumps(
            {
                **{name: getattr(self, name) for name in self.__slots__},
                "hashes": [hash.hex() for hash in self.hashes],
                "previous": self.previous.hex(),
                "columns": columns_to_json(self.columns),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> VerifiedState:
        """Raises ValueError, KeyError or TypeError if the text is not from ``to_json``."""
        fields = json.loads(text)
        return cls(
            **{
                **fields,
                "hashes": tuple(bytes.fromhex(hash) for hash in fields["hashes"]),
                "previous": bytes.fromhex(fields["previous"]),
                "columns": columns_from_json(fields["columns"]),
            }
        )


@dataclass(frozen=True, slots=True)
class TrailVerification(Result):
    """``intact`` covers everything that was read. ``sealed_version``: last version that a signed checkpoint covers."""

    trail: str
    origin: str
    """The name of the trail in its checkpoints."""
    level: str
    intact: bool
    first_version: int | None
    last_version: int | None
    last_committed_at: dt.datetime | None
    sealed_version: int | None
    sealed_committed_at: dt.datetime | None
    records: int
    events: int
    values: int
    """Payload rows whose hash was recomputed."""
    removed: int
    """Events whose values were removed according to a record."""
    unrecorded: int
    """Events that the ledger does not have yet: of a window that is being written, or was interrupted."""
    checkpoints: int
    """Number of checkpoints, from anchors and from the caller."""
    resealed: int = 0
    """Events whose values were encrypted later according to a record: their rows are compared with the hashes in it."""
    unfinished: int = 0
    """Events whose values are still stored in plain text although the last record says that they are removed or encrypted:
    this is in progress, or was interrupted, and the next run finishes it."""
    unreachable: tuple[AnchorFailure, ...] = ()
    """Anchors that could not be reached: their checkpoints were not compared."""
    findings: tuple[Finding, ...] = ()
    more_findings: bool = False
    seconds: float = 0.0
    not_covered: tuple[str, ...] = NOT_COVERED


@dataclass(slots=True)
class Findings:
    """Collects findings, up to ``MOST_FINDINGS`` of a kind and table. ``more``: some were left out."""

    kept: list[Finding] = field(default_factory=list)
    more: bool = False
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(
        self, kind: Kind, table: str, text: str, *, version: int | None = None, rows: tuple[int, int] | None = None
    ) -> None:
        if self._counts[kind, table] >= MOST_FINDINGS:
            self.more = True
            return
        self._counts[kind, table] += 1
        first, last = rows or (None, None)
        self.kept.append(Finding(kind, table, version, first, last, text))

    def of(self, table: str) -> list[Finding]:
        return [finding for finding in self.kept if finding.table == table]
