"""The checkpoints of one trail at its anchors, and which of them are trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from audit.anchors.base import AnchorFailure
from audit.proof import Checkpoint, ProofError, VerifierKey, read_checkpoint, read_note, verify_note
from cdf.errors import CdfError, VerificationError

if TYPE_CHECKING:
    from audit.anchors.base import NamedAnchor
    from audit.trail.tables import TrailTables

__all__ = ["AnchoredCheckpoints", "FoundCheckpoint", "call_anchor"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint, and where it was found; None: the entry there is not a checkpoint. ``signed``: by a trusted key."""

    checkpoint: Checkpoint | None
    where: str
    signed: bool


@dataclass(frozen=True, slots=True)
class AnchoredCheckpoints:
    """The checkpoints of the trail with these ``tables``. Notes that none of ``keys`` has signed are never trusted."""

    tables: TrailTables
    keys: Sequence[VerifierKey]
    anchors: Sequence[NamedAnchor]

    def read_all(self, *, least: int = 0) -> tuple[list[FoundCheckpoint], list[AnchorFailure]]:
        """→ every checkpoint over at least so many records at any anchor; and the anchors that cannot be read."""
        origin, failures = self.tables.origin(), dict[str, CdfError]()
        notes_by_anchor = (
            call_anchor(failures, named, lambda named: [*named.anchor.notes(origin, least=least)])
            for named in self.anchors
        )
        found = [
            self.parse(note, named.name)
            for named, notes in zip(self.anchors, notes_by_anchor, strict=True)
            for note in notes or ()
        ]
        return found, [AnchorFailure(name, error) for name, error in failures.items()]

    def read_newest(self, failures: dict[str, CdfError]) -> list[str]:
        """→ the largest trusted note of each anchor that has one. Adds the anchors that cannot be read to ``failures``."""
        notes = (call_anchor(failures, named, self._newest_note) for named in self.anchors)
        return [note for note in notes if note is not None]

    def parse(self, note: str, where: str) -> FoundCheckpoint:
        """``where``: the name of the anchor or file, for messages."""
        try:
            return FoundCheckpoint(read_checkpoint(verify_note(note, self.keys)[0]), where, signed=True)
        except ProofError:
            pass
        try:
            return FoundCheckpoint(read_checkpoint(read_note(note)[0]), where, signed=False)
        except ProofError:
            return FoundCheckpoint(None, where, signed=False)

    def trusted_size(self, note: str) -> int | None:
        """The number of records that a checkpoint covers; None: not a checkpoint of this trail, or not signed by a trusted
        key."""
        found = self.parse(note, "")
        if found.checkpoint is None or not found.signed or found.checkpoint.origin != self.tables.origin():
            return None
        return found.checkpoint.size

    def _newest_note(self, named: NamedAnchor) -> str | None:
        """Raises VerificationError where the anchor has notes of this trail, but none that is trusted."""
        origin = self.tables.origin()
        latest = named.anchor.latest(origin)
        if latest is None or self.trusted_size(latest) is not None:
            return latest
        notes = [note for note in named.anchor.notes(origin) if self.trusted_size(note) is not None]
        if not notes:
            raise VerificationError(
                f"no checkpoint of this trail at {named.name} is signed by a trusted key",
                hint="if the signing key was replaced, add the verifier key of the former key to `keys`",
            )
        return max(notes, key=lambda note: self.trusted_size(note) or 0)


def call_anchor(
    failures: dict[str, CdfError], named: NamedAnchor, call: Callable[[NamedAnchor], Answer]
) -> Answer | None:
    """Call the anchor; → None if it fails, with the error in ``failures``."""
    try:
        return call(named)
    except CdfError as error:
        failures[named.name] = error
        return None
