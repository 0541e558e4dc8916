"""A trail under its lease: its tables, and the present state of its ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.errors import ForkedTrail
from audit.trail.column_history import extend_columns, row_type
from audit.trail.lease import Lease
from audit.trail.ledger_state import State, delete_unrecorded_payload, read_state
from audit.trail.tables import PAYLOAD, TrailTables
from audit.writing.encrypted_folder import remove_folders
from audit.writing.removal import finish_removal
from cdf.errors import PositionError
from connectors.delta_audit.access_log import record_readings
from connectors.delta_audit.checkpoints import Checkpoints
from connectors.delta_audit.context import TrailContext
from connectors.delta_audit.errors import build_unfinished_error, translate_errors

if TYPE_CHECKING:
    from cdf.sink import Source

__all__ = ["OpenTrail"]

log = logging.getLogger("deltarelay.audit")


class OpenTrail:
    """For one runner, from ``open`` to ``close``."""

    def __init__(self, context: TrailContext, checkpoints: Checkpoints) -> None:
        self._context = context
        self._checkpoints = checkpoints
        self._tables: TrailTables | None = None
        self.lease: Lease | None = None
        self._state: State | None = None
        self.payload_row: StructType | None = None
        """Type of the payload's column ``row``, known together with the state."""

    @property
    def tables(self) -> TrailTables:
        if self._tables is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self._tables

    def open(self, source: Source) -> State:
        """Acquire the lease, create missing tables, finish what the previous runner left unfinished, and sign."""
        context = self._context
        with translate_errors(context.path, "opening the trail"):
            self.lease = Lease(context.spark, context.path, target=context.path)
            tables = self._tables = TrailTables(context.spark, context.path)
            columns = extend_columns((), context.add_own_columns(source.schema))
            key = [column.stored for column in columns if column.name in source.key]
            tables.take_over(row_type(columns, stored=True), key)
            self._record_readings()
            state = self.read_state()
        self._checkpoints.read_anchors(state, tables.origin())
        self.sign()
        log.info("lease taken", extra={"target": context.path, "epoch": tables.epoch, "position": state.version})
        return state

    def close(self) -> None:
        """Sign what is unsigned, and release the lease. Never raises."""
        path = self._context.path
        try:
            if self._tables is not None:
                self.sign()
        except ForkedTrail as error:
            log.error(
                "checkpoint not signed: the trail differs from what was signed", extra={"target": path, **error.fields}
            )
        except Exception as error:  # the next runner signs it
            log.warning("checkpoint not signed", extra={"target": path, "error": type(error).__name__})
        finally:
            self._tables = None
            lease, self.lease = self.lease, None
            if lease is not None:
                lease.close()

    # ── state ────────────────────────────────────────────────────────────────────────────────────────────────────

    def read_state(self) -> State:
        """Return the state; after opening and after a failure, read it from the tables and clean these up first."""
        tables = self.tables
        with translate_errors(self._context.path, "reading the position"):
            state = self._get_known_state()
            if state is None:
                is_anchored = self._context.signer is not None and bool(self._context.anchors)
                state = read_state(tables, by_log=not is_anchored)
                if is_anchored:
                    self._confirm(state)
                delete_unrecorded_payload(tables, state)
                finish_removal(tables, state)
                remove_folders(tables)
                row = tables.read(PAYLOAD).schema["row"].dataType
                assert isinstance(row, StructType)
                self._state, self.payload_row = state, row
        return state

    def forget_state(self) -> None:
        """Before a write: if it fails, the next ``read_state`` reads what is durable."""
        self._state = None

    def set_state(self, state: State) -> None:
        """After a durable write."""
        self._state = state

    def _confirm(self, state: State) -> None:
        try:
            self._context.trail.confirm(state)
        except ForkedTrail:
            self.tables.check()  # raises Fenced, which explains more, if a successor has written in between
            raise

    def _get_known_state(self) -> State | None:
        """Return the state in memory; None after a failure, and after another program has changed the ledger."""
        if not self.tables.check():
            self._state = None
        return self._state

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def sign(self, *, after: float = 0.0) -> None:
        self._checkpoints.sign(self._get_known_state, after=after)

    def change(self, doing: str, write: Callable[[TrailTables, State], State]) -> None:
        """Write records other than those of commits, and sign them. ``write`` returns the new state.

        Raises WindowOutOfOrder while a window must be finished first.
        """
        state = self.read_state()
        if state.pending is not None:
            raise build_unfinished_error(self._context.path, state.pending, state)
        self.forget_state()
        with translate_errors(self._context.path, doing):
            self.set_state(write(self.tables, state))
        self._checkpoints.mark_unsigned()
        self.sign()

    def _record_readings(self) -> None:
        """Copy the registry's records of who decrypted values into the ledger. While a window must be finished first, the
        next runner does this."""
        context, state = self._context, self.read_state()
        if context.registry is None or state.pending is not None:
            return
        registry = context.registry()
        self.forget_state()
        with translate_errors(context.path, "recording who has decrypted values"):
            after = record_readings(self.tables, state, registry, context.path, signer=context.signer)
            self.set_state(after)
        if after != state:
            self._checkpoints.mark_unsigned()
