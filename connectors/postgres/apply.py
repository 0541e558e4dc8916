"""One window: COPY the net effect into staging, then one transaction that makes it the target's rows.

stage       net effect ─COPY▶ deltarelay.stage_<target>_<epoch>, through the driver or from the tasks
commit      lock and check the position, add new columns, recount staging, DELETE, key-sorted upsert, position
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import ConflictFound, SinkUnavailable, TargetNotReady
from cdf.sink import Conflicts
from connectors.postgres import position as positions
from connectors.postgres import staging
from connectors.postgres.errors import StagingFailed, raise_alone
from connectors.postgres.inspection import additions
from connectors.postgres.schema import column_names, create_staging, is_partitioned
from connectors.postgres.sql import ApplyStatements, apply_statements
from connectors.postgres.staging import CODES, Staged, columns_of
from connectors.postgres.types import check_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cdf.window import Window
    from connectors.postgres.session import Session

__all__ = ["WindowWriter"]

log = logging.getLogger("deltarelay.postgres")

TRUNCATE_FROM_ROWS = 2_000
"""Staging is emptied by DELETE below, by TRUNCATE (which costs more at the start and nothing per row) from here on."""

Connection = psycopg.Connection[Any]


class WindowWriter:
    """Writes windows into one target under one lease. Staging and the statements are kept from window to window."""

    def __init__(self, session: Session, *, refuse_conflicts: bool, small_window_bytes: int) -> None:
        self._session = session
        self._refuse_conflicts = refuse_conflicts
        self._small_window_bytes = small_window_bytes
        self._bulk: Any = None
        self._staged_schema: StructType | None = None
        self._followed_schema: StructType | None = None
        self._statements: ApplyStatements | None = None

    def close(self) -> None:
        bulk, self._bulk = self._bulk, None
        if bulk is not None:
            with suppress(Exception):
                bulk.close()

    # ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def stage(self, window: Window) -> Staged:
        """COPY the net effect into staging, through the driver where it is small, from the tasks otherwise."""
        if not window.has_changes:
            return Staged()
        if self._staged_schema != window.schema:
            check_types(window.schema)
            with self._session.errors("creating staging"):
                self._new_staging(window)
        table = self._session.own_name("stage")
        by_driver = window.change_bytes <= self._small_window_bytes
        try:
            if by_driver and (net := staging.wire_net_on_driver(window)) is not None:
                return self._by_driver(net, table)
            by_driver = False
            return staging.copy_from_tasks(
                staging.wire_net(window.net(), window.schema, window.key), self._session.dsn, table
            )
        except Exception as error:
            self._staged_schema = None
            failure = self._session.copy_failure(error, window, window.net, by_driver=by_driver)
        return raise_alone(failure)

    def _new_staging(self, window: Window) -> None:
        name, connection = self._session.own_table("stage"), self._session.main()
        with connection.transaction():
            connection.execute(sql.SQL("drop table if exists {}").format(name))
            connection.execute(create_staging(name, columns_of(window.schema)))
        self._statements = apply_statements(
            self._session.target,
            self._session.own_name("stage"),
            window.schema,
            window.key,
            partitioned=is_partitioned(connection, self._session.target),
        )
        self._staged_schema = window.schema

    def _by_driver(self, net: pa.Table, table: str) -> Staged:
        batches = net.to_batches(max_chunksize=staging.COPY_ROWS)
        if not batches:
            return Staged()
        if self._bulk is not None:
            try:
                return self._copied(batches, table)
            except StagingFailed as error:
                if not error.sqlstate.startswith(
                    ("08", "57P")
                ):  # 57014 is somebody's cancellation, not a lost connection
                    raise
                # That a connection broke since the last window shows now: once more with a new one
                log.info("copying again with a new connection", extra={"table": table, "sqlstate": error.sqlstate})
        self._bulk = staging.bulk_connection(self._session.dsn)
        return self._copied(batches, table)

    def _copied(self, batches: list[pa.RecordBatch], table: str) -> Staged:
        tally = staging.Tally()  # one for each try: rows of a try whose answer was lost do not count
        try:
            staging.interruptible(
                lambda: staging.copy_batches(self._bulk, table, batches[0], iter(batches[1:]), tally),
                cancel=self._bulk.adbc_cancel,
            )
        except StagingFailed:
            self.close()
            raise
        return tally.staged()

    # ── the transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, window: Window, staged: Staged, *, expected: int | None) -> tuple[Conflicts, tuple[str, ...]]:
        """Rows, columns and position in one step. → the conflicts met, the DDL that was run"""
        session, lease = self._session, self._session.held()
        conflicts = Conflicts()
        with session.errors("applying the window", lambda state: session.rejected(state, window, window.net)):
            connection = session.main()
            with session.committed(window.last), connection.transaction():
                positions.lock_position(connection, lease, expected=expected, first=window.first)
                ddl = self._follow(connection, window)
                if staged.rows:
                    conflicts = self._upserted(connection, staged)
                    if self._refuse_conflicts and conflicts.total:
                        raise ConflictFound(
                            f"version {window.first} to {window.last} of {window.table} contradicts {session.target}: "
                            + _described(conflicts),
                            hint="run `deltarelay verify` to see which rows differ; "
                            "conflicts: report applies them and counts",
                            conflicts=conflicts.to_dict(),
                        )
                positions.move_position(
                    connection, lease, expected=expected, version=window.last, table_id=window.table_id
                )
        self._followed_schema = window.schema
        return conflicts, ddl

    def _follow(self, connection: Connection, window: Window) -> tuple[str, ...]:
        """Columns that came with this window are added in its transaction."""
        if self._followed_schema == window.schema:
            return ()
        there = column_names(connection, self._session.target)
        if not there:
            raise TargetNotReady(f"{self._session.target} is gone", hint="`deltarelay run --reload` makes it anew")
        ddl = tuple(additions(self._session.target, there, window.schema))
        for statement in ddl:
            connection.execute(statement)
        return ddl

    def _upserted(self, connection: Connection, staged: Staged) -> Conflicts:
        statements = self._statements
        assert statements is not None
        counting = {"attempts": list(staged.attempts)}
        recount(connection, statements, staged)
        deleted = connection.execute(statements.delete, counting).rowcount if staged.deletes else 0
        update_met_none = _count(connection, statements.update, counting)[0] if staged.updates else 0
        fresh, inserted = _count(connection, statements.insert, counting) if staged.inserts else (0, 0)
        if staged.rows >= TRUNCATE_FROM_ROWS:
            connection.execute(statements.truncate)
        else:
            connection.execute(statements.clear_some, counting)
        return Conflicts(
            insert_met_row=inserted - fresh,
            update_met_none=update_met_none,
            delete_met_none=staged.deletes - deleted,
            within_window=staged.conflicts,
        )


def recount(connection: Connection, statements: ApplyStatements, staged: Staged) -> None:
    """Staging is UNLOGGED: a server crash empties it, and an emptied staging must not count as a window applied."""
    found = dict(connection.execute(statements.recount, {"attempts": list(staged.attempts)}).fetchall())
    if tuple(found.get(code, 0) for code in CODES.values()) != (staged.inserts, staged.updates, staged.deletes):
        raise SinkUnavailable(
            "staging holds another number of rows than were copied into it: the server was restarted meanwhile, "
            "or somebody else wrote there",
            hint="nothing was applied: run again",
        )


def _count(connection: Connection, statement: sql.Composed, parameters: Mapping[str, Any]) -> tuple[int, int]:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _described(conflicts: Conflicts) -> str:
    words = {
        "insert_met_row": "inserts met a row",
        "update_met_none": "updates met none",
        "delete_met_none": "deletes met none",
        "within_window": "changes contradict each other",
    }
    return ", ".join(f"{count} {words[name]}" for name, count in conflicts.to_dict().items() if count)
