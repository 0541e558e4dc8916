"""Keeps an append-only trail of every change, in Delta tables of its own, whose hashes prove that it is complete.

    rows of the feed ─▶ payload ─▶ events ─▶ ledger ─▶ position

Three durable steps, each one Delta commit; a step that an earlier runner has completed is skipped. The ledger comes last and
is the position: a window without ledger records is pending, and the next runner finishes it with exactly its bounds. What
needs PySpark is imported at its first use: the position is read without it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit.anchors.base import NamedAnchor
from audit.trail.controls import change_controls, read_controls
from audit.trail.position import read_columns, read_position
from cdf.changes.schema_diff import ChangeKind
from cdf.errors import ConfigError, PositionError, TargetNotReady
from cdf.sink import Activity, Applied, Capabilities, Controls, Inspection, Position, Sink, Source
from connectors.delta_audit.checkpoints import Checkpoints
from connectors.delta_audit.context import TrailContext
from connectors.delta_audit.errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from audit.audit_trail import Trail
    from audit.checkpoints.coverage import TrailCoverage
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry
    from audit.erasure.scan.files import Files
    from audit.proof import VerifierKey
    from audit.signing.signer import Signer
    from audit.trail.column_history import Column
    from audit.trail.ledger_state import State
    from audit.trail.tables import TrailTables
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from connectors.delta_audit.erasure.sink_erasure import DeltaAuditErasure
    from connectors.delta_audit.open_trail import OpenTrail
    from connectors.delta_audit.verify import TrailImage
    from connectors.delta_audit.write.window_writer import WindowWriter

__all__ = ["DeltaAuditSink"]

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most this many bytes of change files are written by the driver: without Python workers, and without
reading back what was written."""


class DeltaAuditSink(Sink):
    """A sink for one trail. ``path``: the folder of the trail, which contains its tables."""

    def __init__(
        self,
        path: str,
        *,
        spark: SparkSession | None = None,
        signer: Signer | None = None,
        keys: Sequence[VerifierKey] = (),
        anchors: Sequence[NamedAnchor] = (),
        small_window_bytes: int = SMALL_WINDOW_BYTES,
        storage_options: Callable[[], Mapping[str, str] | None] = lambda: None,
        files: Callable[[str], Files] | None = None,
        sealing: ColumnEncryption | None = None,
        registry: Callable[[], Registry] | None = None,
    ) -> None:
        """``storage_options``: options of delta-rs for the ledger, from which it reads the position without Spark.
        ``files``: lists the files below an address, on the local disk by default. ``sealing``: the columns that are written
        encrypted, with a key for each person. ``registry``: opens the key registry, also if no columns are configured any
        more: a window may have been written encrypted."""
        self.path = path.rstrip("/")
        self._files = files
        self._storage_options = storage_options
        self._small_window_bytes = small_window_bytes
        self._context = TrailContext(
            path=self.path,
            session=spark,
            signer=signer,
            keys=keys,
            anchors=anchors,
            encryption=sealing,
            registry=registry if sealing is None else sealing.registry,
        )
        self._checkpoints = Checkpoints(self._context)
        self._open_trail: OpenTrail | None = None
        self._writer: WindowWriter | None = None

    @property
    def trail(self) -> Trail:
        """The trail to query, sign and verify; needs no ``open``."""
        return self._context.trail

    def __repr__(self) -> str:
        return f"DeltaAuditSink({self.path!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="history",
            transactional=False,
            counts_conflicts=False,
            schema_changes=frozenset(kind.value for kind in ChangeKind),
            executor_modules=("audit.writing.payload", "cryptography"),
        )

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        from connectors.delta_audit.inspect import find_evolution_problem

        return find_evolution_problem(change, key)

    def position(self) -> Position:
        """Read with delta-rs, without a JVM, and without the pending window."""
        return read_position(self.path, self._storage_options())

    def activity(self) -> Activity:
        """Read with delta-rs, without a JVM."""
        from audit.trail.activity import read_activity

        return read_activity(self.path, self._storage_options())

    def controls(self) -> Controls:
        """Read with delta-rs, without a JVM."""
        return read_controls(self.path, self._storage_options())

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        return change_controls(self.path, change, self._storage_options())

    def coverage(self, *, with_time: bool = True) -> TrailCoverage | None:
        """Read through which version the trail is signed and anchored; with delta-rs, without a JVM. None: no trail yet.
        ``with_time``: whether ``unanchored_since`` is needed."""
        from audit.checkpoints.coverage import read_coverage

        signer = self._context.signer
        keys = (*(() if signer is None else (signer.verifier,)), *self._context.keys)
        anchors = self._context.anchors
        return read_coverage(self.path, self._storage_options(), keys, anchors, with_time=with_time)

    def columns(self) -> tuple[StructType, tuple[Column, ...]]:
        """Return the payload's schema, and the place of each column in it; needs no JVM."""
        return read_columns(self.path, self._storage_options())

    @contextlib.contextmanager
    def image(self, source: Source) -> Iterator[TrailImage]:
        """Return the table's rows according to the trail, at the trail's present position."""
        from audit.trail.ledger_state import read_state
        from audit.trail.tables import TrailTables
        from connectors.delta_audit.verify import TrailImage

        with translate_errors(self.path, "reading the position"):
            position = _to_position(read_state(TrailTables(self._context.spark, self.path)))
        image = TrailImage(self.trail, position, source)
        try:
            yield image
        finally:
            image.close()

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        from audit.trail.ledger_state import read_state
        from audit.trail.tables import TrailTables
        from connectors.delta_audit.inspect import find_problems, find_proof_gaps

        if self._context.has_spark:
            tables = TrailTables(self._context.spark, self.path)
            with translate_errors(self.path, "inspecting the trail"):
                position, exists = _to_position(read_state(tables)), tables.exist()
        else:  # before anything runs
            position = self.position()
            exists = position.version is not None
        ddl = () if exists else (f"create the trail at {self.path}",)
        problems = find_problems(self._context, source.schema)
        return Inspection(position, tuple(problems), ddl, warnings=find_proof_gaps(self._context))

    def open(self, source: Source) -> Position:
        from connectors.delta_audit.inspect import find_problems
        from connectors.delta_audit.open_trail import OpenTrail
        from connectors.delta_audit.write.window_writer import WindowWriter

        self.close()
        if problems := find_problems(self._context, source.schema):
            raise TargetNotReady(
                f"the trail at {self.path} cannot keep this table: " + "; ".join(problems),
                hint="`deltarelay plan` shows this list without starting a run",
                problems=problems,
            )
        open_trail = self._open_trail = OpenTrail(self._context, self._checkpoints)
        try:
            state = open_trail.open(source)
        except BaseException:
            self.close()
            raise
        self._writer = WindowWriter(
            self._context, open_trail, self._checkpoints, small_window_bytes=self._small_window_bytes
        )
        return _to_position(state)

    def close(self) -> None:
        self._writer = None
        open_trail, self._open_trail = self._open_trail, None
        if open_trail is not None:
            open_trail.close()

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        return self._get_writer().load(snapshot)

    def apply(self, window: Window) -> Applied:
        return self._get_writer().apply(window)

    def _get_writer(self) -> WindowWriter:
        if self._writer is None:
            raise _build_not_open_error()
        return self._writer

    # ── other records, on the open sink ──────────────────────────────────────────────────────────────────────────

    def remove(self, places: DataFrame, reasons: Mapping[str, str]) -> None:
        """Remove values from the trail; their events stay, and a record says what was removed and why.

        ``places``: the events, by ``version`` and ``index`` (long). ``reasons``: some of
        ``audit.writing.removal.REASONS``. May be called again after a failure. Raises WindowOutOfOrder while a window
        must be finished first."""
        from audit.writing.removal import remove_values

        signer = self._context.signer
        self._change(
            "removing values", lambda tables, state: remove_values(tables, state, places, reasons, signer=signer)
        )

    def remove_encrypted(self, keys: Collection[bytes], reasons: Mapping[str, str]) -> None:
        """Remove the values that were encrypted with these keys; the rows stay. Otherwise as ``remove``."""
        from audit.writing.removal import remove_encrypted

        signer = self._context.signer
        self._change(
            "removing encrypted values",
            lambda tables, state: remove_encrypted(tables, state, keys, reasons, signer=signer),
        )

    def record_erasure_steps(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Write steps of an erasure into the ledger. Raises WindowOutOfOrder as ``remove`` does."""
        from audit.trail.ledger import append_notes

        signer = self._context.signer
        self._change("recording an erasure", lambda tables, state: append_notes(tables, state, steps, signer=signer))

    def _change(self, doing: str, write: Callable[[TrailTables, State], State]) -> None:
        if self._open_trail is None:
            raise _build_not_open_error()
        self._open_trail.change(doing, write)

    def encrypt_earlier_rows(
        self,
        table: str,
        key: tuple[str, ...],
        reasons: Mapping[str, str],
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Encrypt the rows that were written before their class was configured, with a record of it. Opens the sink itself.

        ``progress`` is called with the number of rows that are done. May be called again after a failure. Raises ConfigError
        if no columns are configured, and WindowOutOfOrder as ``remove`` does."""
        from audit.reencryption.reencrypt import Reencryption

        encryption, signer = self._context.encryption, self._context.signer
        if encryption is None:
            raise ConfigError("no class of columns is configured", hint="configure `classes` in `erasure.tables`")
        with self.open_for(table, key, "audit seal"):
            self._change(
                "encrypting earlier rows",
                lambda tables, state: Reencryption(self.trail, tables, encryption, reasons, signer).run(
                    state, progress
                ),
            )

    # ── erasure ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def erasure(self) -> DeltaAuditErasure:
        from connectors.delta_audit.erasure.sink_erasure import DeltaAuditErasure

        return DeltaAuditErasure(
            self,
            errors=functools.partial(translate_errors, self.path),
            files=self._files,
            sealing=self._context.encryption,
            registry=self._context.registry,
        )

    @contextlib.contextmanager
    def open_for(self, table: str, key: tuple[str, ...], pipeline: str) -> Iterator[Position]:
        """Open the sink, and with it acquire the lease, for the block. ``table``: the source, as it is now."""
        from cdf.source.table import ChangeFeed

        metadata = ChangeFeed(self.trail.tables.spark, table).log.metadata()
        source = Source(table=table, table_id=metadata.table_id, schema=metadata.schema, key=key, pipeline=pipeline)
        try:
            yield self.open(source)
        finally:
            self.close()


def _to_position(state: State) -> Position:
    return Position(state.version, state.table_id, state.pending)


def _build_not_open_error() -> PositionError:
    return PositionError("the sink is not open", hint="call open first")
