"""One window: COPY the net effect into staging, then one transaction that writes rows, columns and position.

stage       net effect ─COPY▶ deltarelay.stage_<target>_<epoch>, through the driver or from the tasks
commit      lock and check the position, alter columns, recount staging, DELETE, key-sorted upsert, move the position

If the target refuses the rows the transaction is repeated with another strategy (``strategies``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import CdfError, TargetNotReady
from cdf.sink import Conflicts
from connectors.postgres.column_mapping import COMMIT_TIMESTAMP_COLUMN, COMMIT_VERSION_COLUMN
from connectors.postgres.inspect import describe_lost_rows
from connectors.postgres.options import Modes, OnConflict
from connectors.postgres.staging.columns import Staged, StagingOptions
from connectors.postgres.staging.failures import explain_unfaithful
from connectors.postgres.staging.window_stager import WindowStager
from connectors.postgres.state import position as positions
from connectors.postgres.write.conflict_policy import check_conflicts
from connectors.postgres.write.dead_letter_writer import DeadLetterWriter
from connectors.postgres.write.record_writer import RecordWriter, WriteContext, Written
from connectors.postgres.write.strategies import UpsertWriter, explain_foreign_key, next_strategy
from connectors.postgres.write.target_columns import TargetColumns

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from connectors.postgres.client import Session

__all__ = ["WindowWriter"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]


class WindowWriter:
    """Writes windows into one target under one lease. Staging and statements are kept from window to window."""

    def __init__(
        self,
        session: Session,
        *,
        own: tuple[str, ...],
        modes: Modes,
        on_conflict: OnConflict,
        small_window_bytes: int,
        pipeline: str,
        has_dead_letters: bool = False,
    ) -> None:
        """``has_dead_letters``: whether an earlier run left any."""
        self._session = session
        self._modes = modes
        self._on_conflict = on_conflict
        self._pipeline = pipeline
        self._has_dead_letters = has_dead_letters
        options = StagingOptions(
            commit=modes.writes_dead_letters or not {COMMIT_VERSION_COLUMN, COMMIT_TIMESTAMP_COLUMN}.isdisjoint(own),
            rejects=modes.writes_dead_letters,
            reject_rows=modes.reject_rows,
            # With deletes: ignore the target may hold a row of any key
            transients=modes.deletes != "ignore",
        )
        self.stager = WindowStager(session, options, small_window_bytes=small_window_bytes)
        self._columns = TargetColumns(session, own=own, deletes=modes.deletes)

    def close(self) -> None:
        self.stager.close()

    def stage(self, window: Window) -> Staged:
        return self.stager.stage(window)

    def commit(
        self,
        window: Window,
        staged: Staged,
        *,
        expected: int | None,
        before: Callable[[Connection], tuple[str, ...]] | None = None,
    ) -> Written:
        """Write rows, columns and position in one step. ``before`` runs first in the same transaction, and returns the DDL
        that it executed."""
        return self._commit(window, staged, expected, before=before, is_replay=False)

    def replay(
        self, window: Window, staged: Staged, *, expected: int | None, digests: Collection[str]
    ) -> tuple[Written, int]:
        """Try the rows of dead letters again, as the source holds them now. Rows of keys that the source no longer has are
        deleted. The position is not moved. → outcome, number of rows deleted"""
        deleted = refused = 0

        def delete_missing(connection: Connection) -> tuple[str, ...]:
            nonlocal deleted, refused
            self._columns.follow(connection, window, self.stager.kind)
            deleted, refused = self._dead_letters(window).delete_missing_keys(
                connection, self._session.target, staged.attempts, digests, self._modes.deletes
            )
            return ()

        written = self._commit(window, staged, expected, before=delete_missing, is_replay=True)
        return replace(written, rejected=written.rejected + refused), deleted

    def _dead_letters(self, window: Window) -> DeadLetterWriter:
        return DeadLetterWriter(
            str(self._session.target),
            self._pipeline,
            window.table,
            self._session.own_name(self.stager.kind),
            self._columns.layout,
            has_marks=self._modes.writes_dead_letters,
            keep_rows=self._modes.reject_rows,
        )

    # ── the transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def _commit(
        self,
        window: Window,
        staged: Staged,
        expected: int | None,
        *,
        before: Callable[[Connection], tuple[str, ...]] | None,
        is_replay: bool,
    ) -> Written:
        session, written = self._session, None
        strategy: type[RecordWriter] = UpsertWriter

        def explain(state: str | None) -> CdfError | None:
            return explain_foreign_key(session, strategy, state) or explain_unfaithful(state, window)

        with session.errors("applying the window", explain):
            while written is None:
                # After a rollback the target has its former columns again
                known = self._columns.save()
                try:
                    written = self._commit_once(window, staged, expected, strategy, before=before, is_replay=is_replay)
                except BaseException as error:
                    self._columns.restore(known)
                    if not isinstance(error, psycopg.Error):
                        raise
                    following = next_strategy(session, self._modes, strategy, error)
                    if following is None:
                        raise
                    log.info(
                        "the target refused the rows: trying another strategy",
                        extra={"target": str(session.target), "sqlstate": error.sqlstate, "way": following.name},
                    )
                    strategy = following
        assert written is not None
        return written

    def _commit_once(
        self,
        window: Window,
        staged: Staged,
        expected: int | None,
        strategy: type[RecordWriter],
        *,
        before: Callable[[Connection], tuple[str, ...]] | None,
        is_replay: bool,
    ) -> Written:
        session, lease = self._session, self._session.require_lease()
        written = Written(Conflicts(), ())
        connection = session.main()
        moves = not is_replay
        # A position that does not move cannot show whether an unanswered COMMIT happened
        with session.verify_commit(window.last) if moves else nullcontext(), connection.transaction():
            positions.lock_position(connection, lease, expected=expected, first=window.first)
            # If policies apply to this role, raise an error instead of missing the rows that they hide. Deferred constraints
            # allow parents to come after their children, and rows to swap values
            connection.execute("set local row_security = off; set constraints all deferred")
            if expected is not None:
                self._columns.lock(connection)  # first, because it reports a target that does not exist
                # Before anything is deleted here, because a replay may delete the last row
                if positions.find_lost_rows(connection, session.target):
                    raise TargetNotReady(
                        describe_lost_rows(session.target), hint="`deltarelay run --reload` rebuilds it"
                    )
            ddl = before(connection) if before is not None else ()
            if expected is None:
                self._columns.lock(connection)  # ``before`` has just created the target
            ddl += self._columns.follow(connection, window, self.stager.kind)
            if staged.rows:
                written = strategy(self._context(window, is_replay=is_replay)).write(connection, staged)
                check_conflicts(
                    connection,
                    session.target,
                    window,
                    written.conflicts,
                    on_conflict=self._on_conflict,
                    is_replay=is_replay,
                )
            if staged.rows or before is not None:
                positions.record_rows(connection, session.target)
            if moves:
                positions.move_position(
                    connection, lease, expected=expected, version=window.last, table_id=window.table_id
                )
                session.record(
                    connection,
                    inserts=staged.inserts,
                    updates=staged.updates,
                    deletes=staged.deletes,
                    conflicts=written.conflicts.total,
                )
        return replace(written, ddl=ddl)

    def _context(self, window: Window, *, is_replay: bool) -> WriteContext:
        return WriteContext(
            session=self._session,
            modes=self._modes,
            layout=self._columns.layout,
            statements=self._columns.statements,
            staging_kind=self.stager.kind,
            pipeline=self._pipeline,
            source=window.table,
            has_dead_letters=self._has_dead_letters,
            is_replay=is_replay,
        )
