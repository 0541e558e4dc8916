"""What a verification is told, what it tells, and what it keeps for the next one."""

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
    "FoundCheckpoint",
    "TrailVerification",
    "VerifiedState",
]

NOT_COVERED = (
    "lies told to the source, or by it: the trail shows what the change feed said",
    "what came after the last checkpoint that is kept outside: whoever can write to the trail could have made it up, or "
    "taken it away",
    "another trail put here, one that the same key signed or one begun anew in an emptied place: --origin and the state "
    "that this command keeps tell it",
    "files rewritten in the moment in which a runner writes a window and reads them back: `audit reconcile` tells",
    "a signer and all keepers of checkpoints who act together",
    "statistics inside of data files: here every row is read, but a question that goes by them can be kept from seeing one",
)
"""What no verification of a trail can see; said with every result."""
NOT_ANCHORED = (
    "all of it written anew, or an older state put back: no checkpoint was had that is kept outside of the trail"
)
"""Besides, where there are no anchors."""
NOT_READ_AGAIN = (
    "what was verified before was not read again: of those events only the number was compared, as the table's own "
    "statistics tell it, and of those values nothing but what a removal names; --level full reads everything"
)
"""Besides, of a quick one."""

CHECKPOINTS = "checkpoints"
"""The place of what is wrong with a checkpoint, and not with one of the trail's tables."""
MOST_FINDINGS = 100
"""Of one kind in one table: none is hidden by many of another."""

Kind = Literal["altered", "missing", "added", "doubled", "moved", "returned", "cut_off", "replaced", "not_signed"]


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """One fault. ``first`` and ``last``: places of events within the commit; None: the commit or the table as such."""

    kind: Kind
    table: str
    version: int | None
    first: int | None
    last: int | None
    text: str


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint, and where it was found; None: what stands there is no checkpoint. ``signed``: by a trusted key."""

    checkpoint: Checkpoint | None
    where: str
    signed: bool


@dataclass(frozen=True, slots=True)
class VerifiedState:
    """What a verification found intact: the next one may go on from there. Whoever verifies keeps it to themselves."""

    origin: str
    size: int
    hashes: tuple[bytes, ...]
    """Of ``audit.hashing.merkle.CompactRange`` over the ``size`` records."""
    previous: bytes
    version: int
    committed_at: str | None
    columns_at: int
    columns: tuple[Column, ...]
    events: int
    """Of all commits up to here."""
    sealed: int
    """Records that a signed checkpoint covered."""
    sealed_version: int | None
    sealed_committed_at: str | None

    @property
    def checkpoint(self) -> Checkpoint:
        """What was there, as a checkpoint has it; nobody has signed this one."""
        return Checkpoint(self.origin, self.size, CompactRange(self.size, self.hashes).root())

    def to_json(self) -> str:
        return json.dumps(
            {
                **{name: getattr(self, name) for name in self.__slots__},
                "hashes": [one.hex() for one in self.hashes],
                "previous": self.previous.hex(),
                "columns": columns_to_json(self.columns),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> VerifiedState:
        """Raises ValueError, KeyError or TypeError where it is none."""
        said = json.loads(text)
        return cls(
            **{
                **said,
                "hashes": tuple(bytes.fromhex(one) for one in said["hashes"]),
                "previous": bytes.fromhex(said["previous"]),
                "columns": columns_from_json(said["columns"]),
            }
        )


@dataclass(frozen=True, slots=True)
class TrailVerification(Result):
    """``intact`` is about all that was looked at; ``sealed_version``: through there a signed checkpoint vouches for it."""

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
    """Payload rows whose hash was computed anew."""
    removed: int
    """Events whose values were removed, as a record tells."""
    unrecorded: int
    """Events that the ledger does not have yet: of a window that is being written, or that broke off."""
    checkpoints: int
    """Those that were had, from anchors and from whoever asked."""
    resealed: int = 0
    """Events whose values were sealed later, as a record tells: their rows are held against the hashes that it names."""
    unfinished: int = 0
    """Events whose values are there still, although the last record tells that they are removed or sealed: that is being
    done now, or it broke off, and the next run finishes it."""
    unreachable: tuple[AnchorFailure, ...] = ()
    """Anchors that could not be asked: their checkpoints were not compared."""
    findings: tuple[Finding, ...] = ()
    more_findings: bool = False
    seconds: float = 0.0
    not_covered: tuple[str, ...] = NOT_COVERED


@dataclass(slots=True)
class Findings:
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
