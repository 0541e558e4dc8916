"""Writes a window or a baseline in three durable steps, each one Delta commit: payload, events, ledger records.

The ledger is the position. A window that has events without records is pending, and is finished before any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.trail.column_history import extend_columns, row_type
from audit.trail.events import CommitRoots, build_event_rows, build_events, compute_commit_roots, compute_roots
from audit.trail.ledger import append_records, describe_commits
from audit.trail.ledger_state import State, read_record_of_version
from audit.trail.tables import EVENTS, PAYLOAD, STORED_EVENT, payload_schema
from cdf.changes.commits import Commit
from cdf.errors import CdfError, TableReplaced, VersionsExpired, WindowOutOfOrder
from cdf.sink import Applied, Bounds
from cdf.timing import timed
from connectors.delta_audit.checkpoints import SIGN_SECONDS, Checkpoints
from connectors.delta_audit.context import TrailContext
from connectors.delta_audit.errors import build_foreign_rows_error, build_unfinished_error, translate_errors
from connectors.delta_audit.open_trail import OpenTrail
from connectors.delta_audit.write.resume import restore_commit_times, resume_window
from connectors.delta_audit.write.trail_window import UNKNOWN_TIME, TrailWindow, build_payload, confirm_read

if TYPE_CHECKING:
    from audit.trail.column_history import Column
    from cdf.changes.window import Snapshot, Window

__all__ = ["WindowWriter"]

_COUNTED = ("insert", "update_postimage", "delete")


class WindowWriter:
    """Writes for one runner, while ``trail`` is open."""

    def __init__(
        self, context: TrailContext, trail: OpenTrail, checkpoints: Checkpoints, *, small_window_bytes: int
    ) -> None:
        self._context = context
        self._trail = trail
        self._checkpoints = checkpoints
        self._small_window_bytes = small_window_bytes
        self._log_hash: tuple[int, str | None] | None = None
        """Of the last version in the ledger: the recorded SHA-256 of the source's commit file."""

    def load(self, snapshot: Snapshot) -> Applied:
        state = self._trail.read_state()
        if state.version is not None:
            raise WindowOutOfOrder(
                f"the trail at {self._context.path} is already at version {state.version}",
                hint="`deltarelay run` continues from there",
            )
        commit = Commit(snapshot.version, snapshot.timestamp or UNKNOWN_TIME, operation=None)
        bounds = Bounds(snapshot.version, snapshot.version)
        return self._write(TrailWindow(bounds, True, snapshot.table_id, snapshot, [commit]), state)

    def apply(self, window: Window) -> Applied:
        state = self._trail.read_state()
        if state.table_id is not None and window.table_id != state.table_id:
            raise TableReplaced(
                f"the window is of another table than the trail at {self._context.path}",
                hint="use a new trail for it",
            )
        if state.version is not None and window.last <= state.version:
            return Applied(position=state.version, replayed=True)
        if state.version is not None and window.first != state.version + 1:
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {self._context.path}, "
                f"which is {state.version}",
                hint="`deltarelay run` continues from the position",
                position=state.version,
            )
        if state.version is not None:
            self._check_source(window, state.version)
        bounds = Bounds(window.first, window.last)
        return self._write(TrailWindow(bounds, False, window.table_id, window, window.commits), state)

    def _check_source(self, window: Window, version: int) -> None:
        """Compare the source's commit file at the position with the ledger: a source that was restored to an earlier
        version, and then changed until it is past the position again, has other commits."""
        if self._log_hash is None or self._log_hash[0] != version:
            with translate_errors(self._context.path, "reading the ledger"):
                self._log_hash = version, read_record_of_version(self._trail.tables, version).log_sha256
        _, recorded = self._log_hash
        if recorded is None:  # of a baseline
            return
        try:
            present = window.commit_sha256(version)
        except VersionsExpired:  # the commit file is gone, so there is nothing to compare with
            return
        if present != recorded:
            raise TableReplaced(
                f"version {version} of the source differs from the one that the trail at {self._context.path} recorded: the "
                "table was restored to an earlier version and then changed, or its log was edited",
                hint="`deltarelay audit reconcile` shows where they diverge; use a new trail for the present table",
            )

    def _write(self, window: TrailWindow, state: State) -> Applied:
        context, pending = self._context, state.pending
        if pending is not None and (window.bounds.last > pending.last or window.is_baseline != state.pending_baseline):
            raise build_unfinished_error(context.path, pending, state)
        columns = extend_columns(state.columns, context.add_own_columns(window.rows.schema), self._trail.payload_row)
        self._trail.forget_state()
        commits = restore_commit_times(context.path, self._trail.tables, window.commits, state)
        window = replace(window, commits=commits)
        seconds: dict[str, float] = {}
        roots: Mapping[int, CommitRoots] = {}
        if pending is not None:  # even if the source has no rows: then the trail must have none either
            columns, roots = resume_window(context, self._trail.tables, self._trail.payload_row, window, state, seconds)
        self._add_columns(columns)
        with translate_errors(context.path, "reading the source's log"):
            untimed = [commit.version for commit in commits if commit.timestamp is UNKNOWN_TIME]
            records = describe_commits(commits, window.read_log_hashes(), columns, untimed=untimed)
        if pending is None and window.has_rows:
            roots = self._write_rows(window, columns, seconds)
        with translate_errors(context.path, "writing the ledger"), timed(seconds, "ledger"):
            after = append_records(
                self._trail.tables,
                state,
                records,
                kind="baseline" if window.is_baseline else "commit",
                table_id=window.table_id,
                columns=columns,
                roots=roots,
                signer=context.signer,
            )
        self._trail.set_state(after)
        self._log_hash = window.bounds.last, records[-1]["log_sha256"]
        self._checkpoints.mark_unsigned()
        self._trail.sign(after=SIGN_SECONDS)
        counts = {kind: sum(root.counts.get(kind, 0) for root in roots.values()) for kind in _COUNTED}
        return Applied(
            position=window.bounds.last,
            inserts=counts["insert"],
            updates=counts["update_postimage"],
            deletes=counts["delete"],
            seconds=seconds,
        )

    def _add_columns(self, columns: tuple[Column, ...]) -> None:
        """Prepare the payload for new columns, as far as Delta does not do so itself."""
        row = self._trail.payload_row
        assert row is not None
        new = [field for field in row_type(columns, stored=True).fields if field.name not in row.names]
        if '"timestamp_ntz"' in StructType(new).json():
            with translate_errors(self._context.path, "adding a column"):
                self._trail.tables.enable_timestamp_ntz()
        self._trail.payload_row = StructType([*row.fields, *new])

    # ── payload and events ───────────────────────────────────────────────────────────────────────────────────────

    def _write_rows(
        self, window: TrailWindow, columns: tuple[Column, ...], seconds: dict[str, float]
    ) -> Mapping[int, CommitRoots]:
        """Write payload and events; return the roots of the events by version."""
        if window.is_small(self._small_window_bytes):
            return self._write_by_driver(window, columns, seconds)
        return self._write_by_tasks(window, columns, seconds)

    def _write_by_driver(
        self, window: TrailWindow, columns: tuple[Column, ...], seconds: dict[str, float]
    ) -> Mapping[int, CommitRoots]:
        tables, path = self._trail.tables, self._context.path
        with timed(seconds, "read"):
            try:
                payload = build_payload(self._context, window, columns).build_on_driver()
                confirm_read(self._context, window)
            except CdfError:
                raise
            except Exception as error:
                raise window.rows.failure(error) from error
        if payload is None:  # too many rows
            return self._write_by_tasks(window, columns, seconds)
        if not payload.num_rows:
            return {}
        events = build_events(payload, window.table_id)
        with translate_errors(path, "writing the payload"), timed(seconds, "payload"):
            schema = payload_schema(row_type(columns, stored=True))
            tables.append(PAYLOAD, tables.create_rows(payload, schema), about=window.about)
        with translate_errors(path, "writing the events"), timed(seconds, "events"):
            tables.append(EVENTS, tables.create_rows(events, STORED_EVENT), about=window.about)
        return compute_roots(events)

    def _write_by_tasks(
        self, window: TrailWindow, columns: tuple[Column, ...], seconds: dict[str, float]
    ) -> Mapping[int, CommitRoots]:
        """Each step reads what the previous one has made durable, at the version of that commit."""
        tables = self._trail.tables
        with timed(seconds, "payload"):
            try:
                payload = build_payload(self._context, window, columns).build_on_cluster(window.partitions)
                written = tables.append(PAYLOAD, payload, about=window.about)
                confirm_read(self._context, window)  # payload without events is deleted by the next runner
                self._check_no_other_rows(PAYLOAD, window, written)
            except CdfError:
                raise
            except Exception as error:
                raise window.rows.failure(error) from error
        with translate_errors(self._context.path, "writing the events"):
            with timed(seconds, "events"):
                rows = tables.read(PAYLOAD, version=written).where(window.build_condition())
                written = tables.append(EVENTS, build_event_rows(rows, window.table_id), about=window.about)
                self._check_no_other_rows(EVENTS, window, written)
            with timed(seconds, "roots"):
                return compute_commit_roots(tables.read(EVENTS, version=written).where(window.build_condition()))

    def _check_no_other_rows(self, name: str, window: TrailWindow, written: int) -> None:
        """Check that no earlier commit has rows of the window: the next step would read them as well."""
        if not self._trail.tables.read(name, version=written - 1).where(window.build_condition()).isEmpty():
            raise build_foreign_rows_error(self._context.path, window.bounds)
