"""When the ledger is signed: after opening, once per minute during a run, and at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from audit.anchors.base import parse_note
from audit.errors import ForkedTrail
from audit.proof import ProofError
from cdf.errors import CdfError
from connectors.delta_audit.context import TrailContext

if TYPE_CHECKING:
    from audit.trail.ledger_state import State

__all__ = ["SIGN_SECONDS", "Checkpoints"]

log = logging.getLogger("deltarelay.audit")

SIGN_SECONDS = 60.0
"""A long run signs what it has written after this time, and at its end."""


class Checkpoints:
    """Remembers whether records are unsigned. One object for all uses of a sink, whether it is open or closed."""

    def __init__(self, context: TrailContext) -> None:
        self._context = context
        self._has_unsigned = False
        self._signed_at = float("-inf")

    def mark_unsigned(self) -> None:
        self._has_unsigned = True

    def read_anchors(self, state: State, origin: str) -> None:
        """Compare the state with the anchors: the previous runner may have died before it signed what it wrote."""
        self._has_unsigned = not self._is_signed(state, origin)

    def _is_signed(self, state: State, origin: str) -> bool:
        anchors = self._context.anchors if self._context.signer is not None else ()
        try:
            notes = [named.anchor.latest(origin) for named in anchors]
            return all(state.sequence == (0 if note is None else parse_note(origin, note).size) for note in notes)
        except (CdfError, ProofError, ValueError):  # signing reports it again
            return False

    def sign(self, get_state: Callable[[], State | None], *, after: float = 0.0) -> None:
        """Sign unsigned records, if the last signature is older than ``after`` seconds. Raises ForkedTrail; any other
        failure is logged, because the records are durable anyway."""
        if self._context.signer is None or not self._has_unsigned or time.monotonic() - self._signed_at < after:
            return
        self._signed_at = time.monotonic()
        path = self._context.path
        try:
            signed = self._context.trail.checkpoint(get_state())
        except ForkedTrail:
            raise
        except CdfError as error:
            extra = {"target": path, "error": error.code, "reason": error.message, "hint": error.hint}
            log.warning("checkpoint not signed", extra=extra)
        else:
            self._has_unsigned = bool(signed.missed)
            log.info("checkpoint signed", extra={"target": path, "records": signed.records, "position": signed.version})
            for missed in signed.missed:
                extra = {"target": path, "anchor": missed.anchor, "error": missed.error.code, "hint": missed.error.hint}
                log.warning("checkpoint not published at every anchor", extra=extra)
