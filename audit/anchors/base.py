"""What an anchor must do, and what the implementations share."""

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
    "NamedAnchor",
    "call_with_timeout",
    "check_stored",
    "file_name",
    "folder_name",
    "larger_checkpoint_exists",
    "parse_note",
]

Answer = TypeVar("Answer")


ANSWER_SECONDS = 60
"""Timeout of one call: a network file system without its server may never answer, and a bucket may answer byte by byte."""
LARGEST_NOTE = 65_536
"""Maximum number of bytes that are read of a note, so that a huge file in its place cannot stop a verification."""


@dataclass(frozen=True, slots=True)
class AnchorFailure(Result):
    """An anchor that could not be read or written, and why."""

    anchor: str
    error: CdfError

    def to_dict(self) -> dict[str, Any]:
        return {"anchor": self.anchor, "error": self.error.to_dict()}


class Anchor(Protocol):
    """Storage for the checkpoints of trails, ideally under the access rights of other people than those who write the trail.

    An anchor stores notes unchanged and verifies no signature; readers must verify each note (``proof.verify_note``). Every
    method raises AnchorUnavailable if the storage cannot be reached at the moment, and ConfigError if a right, a setting or
    the storage itself must be changed first.
    """

    def publish(self, origin: str, note: str) -> None:
        """Store ``note``, a signed checkpoint of ``origin``. Once this returns, the note is durable.

        May be called again with the same note, and concurrently. A stored note is never overwritten: a second note with the
        same text changes nothing, whichever key signed it. Raises ForkedTrail if the anchor has another root for this size,
        or a larger checkpoint and none of this size, because trails never shrink.
        """

    def latest(self, origin: str) -> str | None:
        """The note of the largest size; None if there is no note."""

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        """All notes of at least that size, by size."""


@dataclass(frozen=True, slots=True)
class NamedAnchor:
    """An anchor, and its name in messages."""

    name: str
    anchor: Anchor


def parse_note(origin: str, note: str) -> Checkpoint:
    """The checkpoint in ``note``. Raises ValueError if it has another origin, ProofError if it is not a checkpoint."""
    checkpoint = read_checkpoint(read_note(note)[0])
    if checkpoint.origin != origin:
        raise ValueError("the checkpoint has another origin")
    return checkpoint


def folder_name(origin: str) -> str:
    return sha256(origin.encode()).hexdigest()[:32]


def file_name(size: int) -> str:
    """The order of the names is the order of the sizes."""
    return f"{size:020}.txt"


def check_stored(anchor: str, checkpoint: Checkpoint, stored: str) -> None:
    """Raise ForkedTrail if the note that ``anchor`` has for this size is not one of the same checkpoint."""
    try:
        is_same = read_checkpoint(read_note(stored)[0]) == checkpoint
    except ProofError:
        is_same = False
    if not is_same:
        raise _forked(anchor, checkpoint, "has a different checkpoint of the same size")


def larger_checkpoint_exists(anchor: str, checkpoint: Checkpoint) -> ForkedTrail:
    return _forked(anchor, checkpoint, "has a larger checkpoint, and none of this size")


def _forked(anchor: str, checkpoint: Checkpoint, fault: str) -> ForkedTrail:
    return ForkedTrail(
        f"the anchor {anchor} {fault}: the trail differs from the one for which that checkpoint was signed",
        hint="`deltarelay audit verify` reports where they differ; change nothing until the reason is known",
        anchor=anchor,
        origin=checkpoint.origin,
        size=checkpoint.size,
    )


def call_with_timeout(call: Callable[[], Answer]) -> Answer:
    """Raises TimeoutError, an OSError, after ``ANSWER_SECONDS``. The thread keeps waiting, because it cannot be
    interrupted."""
    answers: SimpleQueue[tuple[bool, object]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((True, call()))
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
