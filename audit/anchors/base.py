"""Anchors: where checkpoints are kept, best out of reach of whoever can write to the trail.

    file.py      a folder, best on storage that keeps what was written
    postgres.py  a table that only grows, under another owner
    s3.py        a bucket, best with Object Lock

Here is what they promise, and what they share. Drivers are imported when an anchor is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from audit.errors import ForkedTrail
from audit.proof import Checkpoint, ProofError, read_checkpoint, read_note
from cdf.errors import CdfError
from cdf.result import Result

__all__ = [
    "LARGEST_NOTE",
    "Anchor",
    "AnchorFailure",
    "check_stored",
    "parse_note",
    "file_name",
    "folder_name",
    "larger_checkpoint_exists",
    "call_with_timeout",
]

Answer = TypeVar("Answer")


ANSWER_SECONDS = 60
"""How long one answer is waited for: a network file system whose server is gone may answer never, a bucket byte by byte."""
LARGEST_NOTE = 65_536
"""Bytes of a note that are read, so that a huge file in a note's place cannot stop a verification."""


@dataclass(frozen=True, slots=True)
class AnchorFailure(Result):
    """An anchor that did not do what it was asked for, and why."""

    anchor: str
    error: CdfError

    def to_dict(self) -> dict[str, Any]:
        return {"anchor": self.anchor, "error": self.error.to_dict()}


class Anchor(Protocol):
    """A place that keeps the checkpoints of trails, best under the rights of other people than the trail's.

    It keeps notes as they are and verifies no signature: whoever reads one believes it only with ``proof.verify_note``.
    Any method raises AnchorUnavailable where the place cannot be reached for now, and ConfigError where somebody has to
    change something first: a right, a setting, the place itself.
    """

    def publish(self, origin: str, note: str) -> None:
        """Keep ``note``, a signed checkpoint of ``origin``; once this returns it is durable.

        May be called again with the same note, and by several at the same time. What is there is never overwritten: a
        second note with the same text changes nothing, whoever signed it. Raises ForkedTrail where another root is there
        for this size, or a larger checkpoint while none for this size: trails never shrink.
        """

    def latest(self, origin: str) -> str | None:
        """The note of the largest size; None: there is none."""

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        """All notes of at least that size, by size."""


def parse_note(origin: str, note: str) -> Checkpoint:
    """What ``note`` seals. ValueError where that is another origin, ProofError where it is no checkpoint."""
    checkpoint = read_checkpoint(read_note(note)[0])
    if checkpoint.origin != origin:
        raise ValueError("the checkpoint is of another origin")
    return checkpoint


def folder_name(origin: str) -> str:
    return sha256(origin.encode()).hexdigest()[:32]


def file_name(size: int) -> str:
    """Names stand in the order of sizes."""
    return f"{size:020}.txt"


def check_stored(anchor: str, checkpoint: Checkpoint, kept: str) -> None:
    """ForkedTrail where the note that ``anchor`` has for this size is not one of the same checkpoint."""
    try:
        same = read_checkpoint(read_note(kept)[0]) == checkpoint
    except ProofError:
        same = False
    if not same:
        raise _forked(anchor, checkpoint, "holds another checkpoint of the same size")


def larger_checkpoint_exists(anchor: str, checkpoint: Checkpoint) -> ForkedTrail:
    return _forked(anchor, checkpoint, "holds a larger checkpoint already, and none of this size")


def _forked(anchor: str, checkpoint: Checkpoint, what: str) -> ForkedTrail:
    return ForkedTrail(
        f"the anchor {anchor} {what}: the trail is not what it was when that was signed",
        hint="`deltarelay audit verify` tells where they part; change nothing until it is known why",
        anchor=anchor,
        origin=checkpoint.origin,
        size=checkpoint.size,
    )


def call_with_timeout(ask: Callable[[], Answer]) -> Answer:
    """TimeoutError, an OSError, where there is no answer in time. The thread is left behind: nothing can end its wait."""
    answers: SimpleQueue[tuple[bool, object]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((True, ask()))
        except BaseException as error:
            answers.put((False, error))

    Thread(target=work, daemon=True).start()
    try:
        done, answer = answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        raise TimeoutError(0, f"no answer within {ANSWER_SECONDS} seconds") from None
    if not done:
        raise answer  # type: ignore[misc]
    return answer  # type: ignore[return-value]
