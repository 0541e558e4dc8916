"""The strategies for writing a staged window, and which one follows when the target refuses the rows.

    UpsertWriter          DELETE, then key-sorted upsert
    DeleteLastWriter      the same with deletes last, for a foreign key to the same table
    ReplaceWriter         delete the old rows of all keys first, for rows that swap values under a secondary unique index
    BisectWriter          in halves with savepoints, to find the rows that become dead letters
    ReplaceBisectWriter   replace, with dead letters for the rows that the target refuses

Each attempt is a separate transaction, begun after the previous attempt was rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.errors import CdfError, RowRejected
from connectors.postgres.client import Session
from connectors.postgres.errors import clash_error, refuse_swallowed
from connectors.postgres.options import Modes
from connectors.postgres.sqlstates import CLASHES, FOREIGN_KEY, is_row_at_fault
from connectors.postgres.staging.columns import ATTEMPT, CODES, OPERATION, UNEXPECTED, Staged
from connectors.postgres.target.reflection import find_delete_action, read_deferrable_unique
from connectors.postgres.write.bisect import Pages, Rejected, bisect
from connectors.postgres.write.record_writer import RecordWriter, Written, fetch_count, fetch_counts
from connectors.postgres.write.statements import (
    ApplyStatements,
    ReplaceStatements,
    apply_statements,
    replace_statements,
)

__all__ = [
    "BisectWriter",
    "DeleteLastWriter",
    "ReplaceBisectWriter",
    "ReplaceWriter",
    "UpsertWriter",
    "explain_foreign_key",
    "next_strategy",
]

Connection = psycopg.Connection[Any]


class UpsertWriter(RecordWriter):
    name = "upsert"
    order: tuple[str, ...] = ("delete", "update", "insert")

    def write(self, connection: Connection, staged: Staged) -> Written:
        statements, parameters = self._statements, {"attempts": list(staged.attempts)}
        prepared = self._prepare(connection, staged)
        staged = prepared.staged
        deleted = met = update_met_none = 0
        for kind in self.order:
            if kind == "delete":
                deleted = self._delete(connection, staged)
            elif kind == "update" and staged.updates:
                update_met_none = self._update(connection, statements, parameters, staged.updates)
            elif kind == "insert" and staged.inserts:
                met = self._insert(connection, statements, parameters, staged.inserts)
        return self._finish(connection, prepared, deleted=deleted, insert_met_row=met, update_met_none=update_met_none)


class DeleteLastWriter(UpsertWriter):
    """Parent rows are inserted before the rows that refer to them, and deleted after those."""

    name = "delete last"
    order = ("insert", "update", "delete")


class _ReplacingWriter(RecordWriter):
    """Deletes the old rows of all keys before it inserts the first new row."""

    def _replace_statements(self, *, part: bool = False) -> ReplaceStatements:
        session = self._session
        return replace_statements(
            session.target,
            session.own_name(self._context.staging_kind),
            self._layout,
            session.own_name("aside"),
            part=part,
        )

    def _put(
        self, connection: Connection, statements: ReplaceStatements, parameters: Mapping[str, Any], wanted: int
    ) -> None:
        rows = connection.execute(statements.put_back, parameters).rowcount
        rows += connection.execute(statements.put_new, parameters).rowcount
        refuse_swallowed(self._session.target, "insert", wanted=wanted, touched=rows)


class ReplaceWriter(_ReplacingWriter):
    name = "replace"

    def write(self, connection: Connection, staged: Staged) -> Written:
        parameters = {"attempts": list(staged.attempts)}
        prepared = self._prepare(connection, staged)
        staged = prepared.staged
        deleted = self._delete(connection, staged)
        statements = self._replace_statements()
        connection.execute(statements.make)
        connection.execute(statements.take, parameters)
        met, update_met = fetch_counts(connection, statements.met, parameters)
        self._put(connection, statements, parameters, staged.inserts + staged.updates)
        connection.execute(statements.drop)
        return self._finish(
            connection,
            prepared,
            deleted=deleted,
            insert_met_row=met,
            update_met_none=staged.updates - update_met,
        )


class _PartWriter(RecordWriter):
    """Writes staged rows in parts, each inside a savepoint."""

    def _part_statements(self) -> ApplyStatements:
        staging = self._session.own_name(self._context.staging_kind)
        return apply_statements(self._session.target, staging, self._layout, part=True)

    def _check_unique_immediately(self, connection: Connection) -> None:
        """A unique constraint that is checked at COMMIT would not fail for a part. Foreign keys stay deferred."""
        if names := read_deferrable_unique(connection, self._session.target):
            connection.execute(sql.SQL("set constraints {} immediate").format(sql.SQL(", ").join(names)))

    def _delete_in_parts(
        self, connection: Connection, staged: Staged, statements: ApplyStatements
    ) -> tuple[int, list[Rejected]]:
        """→ rows deleted, rows whose delete the target refuses"""
        if statements.delete is None:
            return staged.deletes, []
        statement, deleted = statements.delete, 0

        def delete(low: str, high: str) -> None:
            nonlocal deleted
            with connection.transaction():
                part = {"attempts": list(staged.attempts), "low": low, "high": high}
                rows = connection.execute(statement, part).rowcount
                self._check_deleted(connection, statements, part)
            deleted += rows

        refused = bisect(self._pages(connection, staged, "delete"), delete, limit=self._modes.reject_limit)
        return deleted, refused

    def _pages(self, connection: Connection, staged: Staged, *kinds: str) -> Pages:
        table = self._session.own_table(self._context.staging_kind)
        statement = sql.SQL(
            "select s.ctid::text from {} s where s.{} = any(%s) and s.{} = any(%s) and s.ctid between %s::tid and %s::tid "
            "order by s.ctid"
        ).format(table, sql.Identifier(ATTEMPT), sql.Identifier(OPERATION))

        def rows_of(low: str, high: str) -> list[str]:
            codes = [CODES[kind] for kind in kinds] + [UNEXPECTED] * ("delete" in kinds)
            parameters = [list(staged.attempts), codes, low, high]
            return [address for (address,) in connection.execute(statement, parameters)]

        size = "select pg_relation_size(%s::regclass) / current_setting('block_size')::bigint"
        pages = fetch_count(connection, size, [table.as_string(connection)])
        return Pages(range(pages), rows_of)


class BisectWriter(_PartWriter):
    """Rows that clash with each other are left to ``ReplaceBisectWriter``. If that is not possible they are tried again,
    together, as long as one more of them is stored."""

    name = "bisect"

    def write(self, connection: Connection, staged: Staged) -> Written:
        self._check_unique_immediately(connection)
        prepared = self._prepare(connection, staged)
        staged, parameters = prepared.staged, {"attempts": list(staged.attempts)}
        statements = self._part_statements()
        can_replace = find_delete_action(connection, self._session.target) is None
        deleted, rejected = self._delete_in_parts(connection, staged, statements)
        deleted += len(rejected)
        met = update_met_none = 0

        def put(low: str, high: str) -> None:
            nonlocal met, update_met_none
            part = {**parameters, "low": low, "high": high}
            with connection.transaction():
                counts = dict(connection.execute(statements.recount, part).fetchall())
                updates, inserts = counts.get(CODES["update"], 0), counts.get(CODES["insert"], 0)
                none = self._update(connection, statements, part, updates) if updates else 0
                more = self._insert(connection, statements, part, inserts) if inserts else 0
                # Stored rows leave staging, so that a second try of the failed ones does not meet them
                connection.execute(statements.clear_put, part)
            met += more
            update_met_none += none

        dead_letters, limit = self._dead_letters, self._modes.reject_limit
        dead_letters.move_rejected(connection, rejected)
        rejected, waiting = list(rejected), staged.inserts + staged.updates
        rows: Pages | Sequence[str] = self._pages(connection, staged, "insert", "update")
        while waiting:
            failed = bisect(rows, put, limit=limit, unless=CLASHES if can_replace else ())
            again = [row for row in failed if row.clashes]
            if len(again) == waiting or len(failed) > limit:
                again = []
            rows, waiting = [row.address for row in again], len(again)
            failed = [row for row in failed if row not in again]
            dead_letters.move_rejected(connection, failed)
            rejected += failed
        return self._finish(
            connection,
            prepared,
            deleted=deleted,
            insert_met_row=met,
            update_met_none=update_met_none,
            rejected=rejected,
        )


class ReplaceBisectWriter(_ReplacingWriter, _PartWriter):
    """As ``ReplaceWriter``, for as many rows as the target accepts: each row that it refuses becomes a dead letter, the old
    row of its key is restored, and the other rows are tried again without it."""

    name = "replace and bisect"

    def write(self, connection: Connection, staged: Staged) -> Written:
        self._check_unique_immediately(connection)
        prepared = self._prepare(connection, staged)
        staged, parameters = prepared.staged, {"attempts": list(staged.attempts)}
        statements = self._part_statements()
        whole, of_part = self._replace_statements(), self._replace_statements(part=True)
        deleted, rejected = self._delete_in_parts(connection, staged, statements)
        deleted += len(rejected)
        dead_letters, limit = self._dead_letters, self._modes.reject_limit
        dead_letters.move_rejected(connection, rejected)

        def put(low: str, high: str) -> None:
            with connection.transaction():
                part = {**parameters, "low": low, "high": high}
                counts = dict(connection.execute(statements.recount, part).fetchall())
                self._put(connection, of_part, part, counts.get(CODES["update"], 0) + counts.get(CODES["insert"], 0))

        while True:
            failed: list[Rejected] = []
            with connection.transaction() as trial:
                connection.execute(whole.make)
                connection.execute(whole.take, parameters)
                met, update_met = fetch_counts(connection, whole.met, parameters)
                failed = bisect(self._pages(connection, staged, "insert", "update"), put, limit=limit)
                if failed:
                    raise psycopg.Rollback(trial)
                connection.execute(whole.drop)
            if not failed:
                break
            dead_letters.move_rejected(connection, failed)
            rejected += failed
            dead_letters.check_limit(connection, limit)
        counts = dict(connection.execute(self._statements.recount, parameters).fetchall())
        return self._finish(
            connection,
            prepared,
            deleted=deleted,
            insert_met_row=met,
            update_met_none=counts.get(CODES["update"], 0) - update_met,
            rejected=rejected,
        )


def next_strategy(
    session: Session, modes: Modes, strategy: type[RecordWriter], error: psycopg.Error
) -> type[RecordWriter] | None:
    """The strategy to try after ``strategy`` failed; None: no other one can succeed. Raises RowRejected for rows that clash
    where their old rows cannot be deleted first."""
    is_first = issubclass(strategy, UpsertWriter)
    if isinstance(error, FOREIGN_KEY):
        return DeleteLastWriter if strategy is UpsertWriter else None
    can_reject = modes.writes_dead_letters and is_row_at_fault(error)
    if isinstance(error, CLASHES):
        reached = find_delete_action(session.main(), session.target)
        if reached is None and is_first:
            return ReplaceWriter
        if reached is None and strategy is BisectWriter:
            return ReplaceBisectWriter
        if reached is not None and not can_reject:
            raise_without_context(clash_error(session.target, error, reached))
    if strategy is ReplaceWriter:
        return ReplaceBisectWriter if can_reject else None
    return BisectWriter if can_reject and is_first else None


def explain_foreign_key(session: Session, strategy: type[RecordWriter], state: str | None) -> CdfError | None:
    """A foreign key refuses the deletion of the old rows in a replacing strategy."""
    if state in ("23503", "23001") and issubclass(strategy, _ReplacingWriter):
        return RowRejected(
            f"rows of {session.target} swap values under a unique constraint, and foreign keys refer to them",
            hint="make the unique constraint DEFERRABLE, or the foreign key",
            condition=state,
        )
    return None
