"""Staging of windows: through the driver where they are small, from the tasks otherwise, and one window in advance."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from audit.errors import raise_without_context
from cdf.changes.in_memory import InMemoryWindow
from connectors.postgres.errors import StagingFailed
from connectors.postgres.sqlstates import CONNECTION_LOST, UNFAITHFUL
from connectors.postgres.staging import adbc_copy, tasks
from connectors.postgres.staging.columns import COPY_ROWS, Staged, StagingOptions, staging_columns
from connectors.postgres.staging.failures import explain_copy_failure
from connectors.postgres.staging.file_copy import FilesRefused
from connectors.postgres.staging.prefetch import Prefetch
from connectors.postgres.staging.wire import wire_net_on_driver
from connectors.postgres.target.ddl import create_staging
from connectors.postgres.types import check_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cdf.changes.window import Window
    from connectors.postgres.client import Session

__all__ = ["WindowStager"]

log = logging.getLogger("deltarelay.postgres")

KINDS = ("stage", "ahead")
"""The staging tables; they alternate if a window is staged while the one before it is being applied."""

REFUSAL_SECONDS = 600.0
"""How long Spark reads the windows after a file was refused."""


class WindowStager:
    """Copies windows into the staging tables of one runner, which are reused from window to window."""

    def __init__(self, session: Session, options: StagingOptions, *, small_window_bytes: int) -> None:
        self._session = session
        self._options = options
        self._small_window_bytes = small_window_bytes
        self._bulk: Any = None
        self._files_after = 0.0
        self.kind = KINDS[0]
        """The staging table of the present window."""
        self._staged_schemas: dict[str, StructType] = {}
        self.prefetch: Prefetch | None = None

    def close(self) -> None:
        self._cancel_prefetch()
        self._close_bulk_connection()

    def _close_bulk_connection(self) -> None:
        bulk, self._bulk = self._bulk, None
        if bulk is not None:
            with suppress(Exception):
                bulk.close()

    def stage(self, window: Window) -> Staged:
        """COPY the net effect of the window into staging. Raises the reason if the COPY fails."""
        if (staged := self._take_prefetched(window)) is not None:
            return staged
        if not window.has_changes:
            return Staged()
        table = self._prepare_table(window, self.kind)
        by_driver = self._is_small(window)
        try:
            if by_driver and (net := wire_net_on_driver(window, self._options)) is not None:
                try:
                    return self._stage_on_driver(net, table)
                except StagingFailed as error:
                    if error.sqlstate not in UNFAITHFUL or isinstance(window, InMemoryWindow):
                        raise
                log.info("Spark tasks stage a small window", extra={"table": window.table})
            by_driver = False
            with suppress(FilesRefused):  # then Spark reads the window, once more from the beginning
                return self._note_refusal(
                    lambda: tasks.copy_window(window, self._task_options(), self._session.dsn, table)
                )
            return tasks.copy_window(window, replace(self._options, files=False), self._session.dsn, table)
        except Exception as error:
            self._staged_schemas.pop(self.kind)
            failure = explain_copy_failure(self._session, error, window, by_driver=by_driver)
        return raise_without_context(failure)

    def _is_small(self, window: Window) -> bool:
        """Whether the window passes through the driver. One in memory does whatever its size, unless the limit is 0."""
        limit = self._small_window_bytes
        return window.change_bytes <= limit or (isinstance(window, InMemoryWindow) and limit > 0)

    def _prepare_table(self, window: Window, kind: str) -> str:
        """Create the staging table of that kind, unless it has this window's columns already. → its name"""
        if self._staged_schemas.get(kind) != window.schema:
            check_types(window.schema)
            with self._session.errors("creating staging"):
                name, connection = self._session.own_table(kind), self._session.main()
                with connection.transaction():
                    connection.execute(sql.SQL("drop table if exists {}").format(name))
                    connection.execute(create_staging(name, staging_columns(window.schema, self._options)))
            self._staged_schemas[kind] = window.schema
        return self._session.own_name(kind)

    # ── from the tasks ───────────────────────────────────────────────────────────────────────────────────────────────

    def _task_options(self) -> StagingOptions:
        return replace(self._options, files=time.monotonic() >= self._files_after)

    def _note_refusal(self, copy: Callable[[], Staged]) -> Staged:
        """Run a COPY from the tasks. Raises FilesRefused, and lets Spark read the windows that follow: what is refused in
        one file, such as a type or a size, is probably in the next one too, and each refusal costs a job. The same after any
        other failure of a task, except for those of the database."""
        try:
            return copy()
        except FilesRefused:
            self._files_after = time.monotonic() + REFUSAL_SECONDS
            raise

    # ── through the driver ───────────────────────────────────────────────────────────────────────────────────────

    def _stage_on_driver(self, net: pa.Table, table: str) -> Staged:
        batches = net.to_batches(max_chunksize=COPY_ROWS)
        if not batches:
            return Staged()
        if self._bulk is not None:
            try:
                return self._copy_batches(batches, table)
            except StagingFailed as error:
                if not error.sqlstate.startswith(CONNECTION_LOST):
                    raise
                # The connection may have broken since the last window without notice: try once more with a new one
                log.info("copying again with a new connection", extra={"table": table, "sqlstate": error.sqlstate})
        self._bulk = adbc_copy.bulk_connection(self._session.dsn)
        return self._copy_batches(batches, table)

    def _copy_batches(self, batches: list[pa.RecordBatch], table: str) -> Staged:
        tally = adbc_copy.Tally()  # one for each try: rows of a try whose answer was lost do not count
        try:
            with self._session.cancellable(self._bulk.adbc_cancel):
                adbc_copy.run_interruptibly(
                    lambda: adbc_copy.copy_batches(self._bulk, table, batches[0], iter(batches[1:]), tally),
                    cancel=self._bulk.adbc_cancel,
                )
        except StagingFailed:
            self.close()
            raise
        return tally.staged()

    # ── the next window, while the present one is being applied ──────────────────────────────────────────────────

    def start_prefetch(self, window: Window) -> None:
        """Start the COPY of the next window into the other staging table, if it passes through the tasks.

        Not across a schema change: the present window's transaction decides which columns the target gets.
        """
        if window.drift or self._is_small(window):
            return
        kind = next(kind for kind in KINDS if kind != self.kind)
        try:
            table = self._prepare_table(window, kind)
            # Planned in this thread, because only this one reads the table's log
            job = tasks.plan_copy(window, self._task_options(), self._session.dsn, table)
        except Exception as error:  # the window is staged normally later, and raises its error then
            log.info("prefetch not possible", extra={"first": window.first, "error": type(error).__name__})
            self._staged_schemas.pop(kind, None)
            return
        self.prefetch = Prefetch(window, kind, lambda: self._note_refusal(job))

    def _take_prefetched(self, window: Window) -> Staged | None:
        """The prefetched rows of exactly this window. A prefetch of another window is discarded."""
        prefetch = self.prefetch
        if prefetch is None:
            return None
        staged = prefetch.result() if prefetch.window is window else None
        if staged is None:
            self._cancel_prefetch()
            return None
        self.prefetch, self.kind = None, prefetch.kind
        return staged

    def _cancel_prefetch(self) -> None:
        prefetch, self.prefetch = self.prefetch, None
        if prefetch is not None:
            prefetch.cancel()
            self._staged_schemas.pop(prefetch.kind, None)  # create it again: it may contain rows
