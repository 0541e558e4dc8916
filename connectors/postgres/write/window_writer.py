"""One window: COPY the net effect into staging, then one transaction that makes it the target's rows.

stage       net effect ─COPY▶ deltarelay.stage_<target>_<epoch>, through the driver or from the tasks
commit      lock and check the position, alter columns, recount staging, DELETE, key-sorted upsert, position

Where the target refuses the rows the transaction is begun anew in another way (``_next_way``): the deletes last, for a
foreign key to the same table; the old rows of all keys leaving first, for values that change places under a second unique
index; or in halves, to find the rows that are to be set aside.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from cdf.changes.in_memory import InMemoryWindow
from cdf.changes.schema_diff import ChangeKind, printed_alike
from cdf.errors import CdfError, ConflictFound, RowRejected, SchemaDrift, SinkUnavailable, TargetNotReady
from cdf.sink import Conflicts
from connectors.postgres import position as positions
from connectors.postgres.column_mapping import COMMIT_TIMESTAMP_COLUMN, COMMIT_VERSION_COLUMN
from connectors.postgres.conversions import Found, casts_for
from connectors.postgres.errors import UNFAITHFUL, StagingFailed, raise_alone, refuse_swallowed
from connectors.postgres.inspect import additions, lost
from connectors.postgres.options import Modes, OnConflict
from connectors.postgres.state.dead_letters import (
    CLASHES,
    FOREIGN_KEY,
    Held,
    Letters,
    Pages,
    Rejected,
    clash,
    digests_of,
    divide,
    rejectable,
)
from connectors.postgres.target.ddl import (
    column_types,
    create_staging,
    deferrable_unique,
    further_columns,
    is_partitioned,
    reached_by_deletes,
    refuse_unsafe,
)
from connectors.postgres.target.drift import evolution
from connectors.postgres.types import check_types
from connectors.postgres.write import staging
from connectors.postgres.write.initial_load import refuse_misfits
from connectors.postgres.write.prefetch import Ahead
from connectors.postgres.write.staging import CODES, UNEXPECTED, Staged, Wanted, columns_of
from connectors.postgres.write.statements import (
    ApplyStatements,
    Layout,
    Replacing,
    apply_statements,
    faithful_of,
    replacing,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cdf.changes.window import Window
    from connectors.postgres.client import Session

__all__ = ["WindowWriter", "Written"]

log = logging.getLogger("deltarelay.postgres")

KINDS = ("stage", "ahead")
"""The staging tables; they take turns where a window is staged while the one before it is being applied."""
TRUNCATE_FROM_ROWS = 2_000
"""Staging is emptied by DELETE below, by TRUNCATE (which costs more at the start and nothing per row) from here on."""

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a window."""

    conflicts: Conflicts
    ddl: tuple[str, ...]
    rejected: int = 0


class WindowWriter:
    """Writes windows into one target under one lease. Staging and the statements are kept from window to window."""

    def __init__(
        self,
        session: Session,
        *,
        own: tuple[str, ...],
        modes: Modes,
        on_conflict: OnConflict,
        small_window_bytes: int,
        pipeline: str,
        has_letters: bool = False,
    ) -> None:
        """``has_letters``: of an earlier run; where rows are set aside it is asked for each window."""
        self._session = session
        self._own, self._modes = own, modes
        self._on_conflict = on_conflict
        self._small_window_bytes = small_window_bytes
        self._pipeline = pipeline
        self._has_letters = has_letters
        self._wanted = Wanted(
            commit=modes.sets_aside or not {COMMIT_VERSION_COLUMN, COMMIT_TIMESTAMP_COLUMN}.isdisjoint(own),
            rejects=modes.sets_aside,
            reject_rows=modes.reject_rows,
            # Where deleted rows stay as they are, one may be there
            transients=modes.deletes != "ignore",
        )
        self._bulk: Any = None
        self._kind = KINDS[0]
        self._staged_schemas: dict[str, StructType] = {}
        self._ahead: Ahead | None = None
        self._layout: Layout | None = None
        self._found: Mapping[str, Found] = {}
        self._statements: ApplyStatements | None = None
        self._stated_for: str | None = None
        self._replays = False

    def close(self) -> None:
        self._give_up()
        bulk, self._bulk = self._bulk, None
        if bulk is not None:
            with suppress(Exception):
                bulk.close()

    # ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def stage(self, window: Window) -> Staged:
        """COPY the net effect into staging, through the driver where it is small, from the tasks otherwise."""
        if (staged := self._staged_ahead(window)) is not None:
            return staged
        if not window.has_changes:
            return Staged()
        table = self._table_for(window, self._kind)
        by_driver = self._is_small(window)
        try:
            if by_driver and (net := staging.wire_net_on_driver(window, self._wanted)) is not None:
                try:
                    return self._by_driver(net, table)
                except StagingFailed as error:
                    if error.sqlstate not in UNFAITHFUL or isinstance(window, InMemoryWindow):
                        raise
                log.info("a small window is left to the tasks", extra={"table": window.table})
            by_driver = False
            return staging.copy_window(window, self._wanted, self._session.dsn, table)
        except Exception as error:
            self._staged_schemas.pop(self._kind)
            failure = self._session.copy_failure(error, window, by_driver=by_driver)
        return raise_alone(failure)

    def _is_small(self, window: Window) -> bool:
        """It passes through the driver. One in memory does so whatever its size, unless all are for the tasks."""
        most = self._small_window_bytes
        return window.change_bytes <= most or (isinstance(window, InMemoryWindow) and most > 0)

    def _table_for(self, window: Window, kind: str) -> str:
        """The staging table of that kind, with this window's columns. → its name"""
        if self._staged_schemas.get(kind) != window.schema:
            check_types(window.schema)
            with self._session.errors("creating staging"):
                name, connection = self._session.own_table(kind), self._session.main()
                with connection.transaction():
                    connection.execute(sql.SQL("drop table if exists {}").format(name))
                    connection.execute(create_staging(name, columns_of(window.schema, self._wanted)))
            self._staged_schemas[kind] = window.schema
        return self._session.own_name(kind)

    # ── the next window, staged while this one is being applied ──────────────────────────────────────────────────

    def begin_ahead(self, window: Window) -> None:
        """Start the COPY of the next window into the other staging table, if it goes through the tasks.

        Not across a change of the schema: what becomes of the target's columns is decided in the present window's
        transaction.
        """
        if window.drift or self._is_small(window):
            return
        kind = next(kind for kind in KINDS if kind != self._kind)
        try:
            table = self._table_for(window, kind)
            # Planned in this thread, which alone reads the table's log
            job = staging.planned_copy(window, self._wanted, self._session.dsn, table)
        except Exception as error:  # it is staged in its turn, and what is wrong is told there
            log.info("not staged ahead", extra={"first": window.first, "error": type(error).__name__})
            self._staged_schemas.pop(kind, None)
            return
        self._ahead = Ahead(window, kind, job)

    def _staged_ahead(self, window: Window) -> Staged | None:
        """What was staged ahead for exactly this window; anything else that was is thrown away."""
        ahead = self._ahead
        if ahead is None:
            return None
        staged = ahead.result() if ahead.window is window else None
        if staged is None:
            self._give_up()
            return None
        self._ahead, self._kind = None, ahead.kind
        return staged

    def _give_up(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.give_up()
            self._staged_schemas.pop(ahead.kind, None)  # made anew: rows of nobody are in it

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
            with self._session.cancellable(self._bulk.adbc_cancel):
                staging.interruptible(
                    lambda: staging.copy_batches(self._bulk, table, batches[0], iter(batches[1:]), tally),
                    cancel=self._bulk.adbc_cancel,
                )
        except StagingFailed:
            self.close()
            raise
        return tally.staged()

    # ── the transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def commit(
        self,
        window: Window,
        staged: Staged,
        *,
        expected: int | None,
        moves: bool = True,
        before: Callable[[Connection], tuple[str, ...]] | None = None,
    ) -> Written:
        """Rows, columns and position in one step. ``moves``: not for rows that are only tried again. ``before``: what else
        has to happen in that transaction, first. → the DDL of it"""
        session, written = self._session, None
        ways: list[_Way] = [self._upserted]
        with session.errors("applying the window", lambda state: self._explained(state, ways[-1], window)):
            while written is None:
                # What is known of the target is known only once it is durable
                known = self._layout, self._found, self._statements, self._stated_for
                try:
                    written = self._committed(window, staged, expected, ways[-1], moves=moves, before=before)
                except BaseException as error:
                    self._layout, self._found, self._statements, self._stated_for = known
                    if not isinstance(error, psycopg.Error):
                        raise
                    another = self._next_way(error, ways[-1])
                    if another is None:
                        raise
                    what = {"target": str(session.target), "sqlstate": error.sqlstate, "way": another.__name__}
                    log.info("the target refuses the rows as they are: another way", extra=what)
                    ways.append(another)
        assert written is not None
        return written

    def replay(
        self, window: Window, staged: Staged, *, expected: int | None, digests: Collection[str]
    ) -> tuple[Written, int]:
        """The rows of dead letters once more, as the source has them now; those of keys that it has no more are deleted.
        → what became of them, how many rows were deleted"""
        gone = refused = 0

        def away(connection: Connection) -> tuple[str, ...]:
            nonlocal gone, refused
            self._follow(connection, window)
            gone, refused = self._letters(window).forget_gone(
                connection, self._session.target, staged.attempts, digests, self._modes.deletes
            )
            return ()

        self._replays = True
        try:
            written = self.commit(window, staged, expected=expected, moves=False, before=away)
        finally:
            self._replays = False
        return replace(written, rejected=written.rejected + refused), gone

    def _next_way(self, error: psycopg.Error, way: _Way) -> _Way | None:
        first = way in (self._upserted, self._deleted_last)
        if isinstance(error, FOREIGN_KEY):
            return self._deleted_last if way == self._upserted else None
        sets_aside = self._modes.sets_aside and rejectable(error)
        if isinstance(error, CLASHES):
            reached = reached_by_deletes(self._session.main(), self._session.target)
            if reached is None and first:
                return self._replaced
            if reached is None and way == self._divided:
                return self._rearranged
            if reached is not None and not sets_aside:
                raise_alone(clash(self._session.target, error, reached))
        if way == self._replaced:
            return self._rearranged if sets_aside else None
        return self._divided if sets_aside and first else None

    def _explained(self, state: str | None, way: _Way, window: Window) -> CdfError | None:
        if state in ("23503", "23001") and way in (self._replaced, self._rearranged):
            return RowRejected(
                f"values of {self._session.target} change places under a unique constraint, "
                "and foreign keys point at its rows",
                hint="make the unique constraint DEFERRABLE, or the foreign key",
                condition=state,
            )
        return self._session.rejected(state, window)

    def _committed(
        self,
        window: Window,
        staged: Staged,
        expected: int | None,
        way: _Way,
        *,
        moves: bool,
        before: Callable[[Connection], tuple[str, ...]] | None,
    ) -> Written:
        session, lease = self._session, self._session.held()
        written = Written(Conflicts(), ())
        connection = session.main()
        # Where the position stays it does not tell whether a COMMIT that got no answer has happened
        with session.committed(window.last) if moves else nullcontext(), connection.transaction():
            positions.lock_position(connection, lease, expected=expected, first=window.first)
            # Where policies hold for this role they would hide rows from it: better an error than half a target.
            # Constraints that can wait do: parents may come after their children, and values change places
            connection.execute("set local row_security = off; set constraints all deferred")
            if expected is not None:
                self._keep_types(connection)  # first: it names a target that is gone
                # Before anything is deleted here: a replay may take the last row
                if positions.lost_rows(connection, session.target):
                    raise TargetNotReady(lost(session.target), hint="`deltarelay run --reload` rebuilds it")
            ddl = before(connection) if before is not None else ()
            if expected is None:
                self._keep_types(connection)  # of the target that has just been made
            ddl += self._follow(connection, window)
            if staged.rows:
                written = way(connection, staged, window)
                self._check_conflicts(connection, window, written.conflicts, replayed=not moves)
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

    def _check_conflicts(self, connection: Connection, window: Window, conflicts: Conflicts, *, replayed: bool) -> None:
        """Of a filtered window they are counted alone: deletes remain of rows whose inserts were left out. An erasing commit
        deletes rows that a first copy or a replay may have left out before."""
        target = self._session.target
        if window.filtered:
            return
        if any(commit.erasing for commit in window.commits):
            conflicts = replace(conflicts, delete_met_none=0)
        if self._on_conflict == "refuse" and conflicts.total:
            raise ConflictFound(
                f"version {window.first} to {window.last} of {window.table} contradicts {target}: "
                + _described(conflicts),
                hint="run `deltarelay verify` to see which rows differ; conflicts: report applies them and counts",
                conflicts=conflicts.to_dict(),
            )
        if self._on_conflict != "refuse_duplicates":
            return
        met = conflicts.insert_met_row
        if met and (replayed or window.first <= (positions.been_at(connection, str(target)) or -1)):
            met = 0  # these rows have been put before
        if (duplicates := Conflicts(insert_met_row=met, within_window=conflicts.within_window)).total:
            raise ConflictFound(
                f"version {window.first} to {window.last} of {window.table} puts keys whose rows have not been removed "
                f"({_described(duplicates)}): the source holds a key in two rows, or another writer fills {target}",
                hint="look for keys that the source holds twice, repair it there, and rebuild the target with "
                "`deltarelay run --reload`; conflicts: report applies the last change of each key, also a delete, and "
                "counts",
                conflicts=conflicts.to_dict(),
            )

    def _keep_types(self, connection: Connection) -> None:
        """From here to the COMMIT nobody alters a type between the cast of a value and its column, or makes the table one
        that loses rows."""
        target = self._session.target
        try:
            connection.execute(sql.SQL("lock table {} in row exclusive mode").format(target.identifier))
            refuse_unsafe(connection, target)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            gone = TargetNotReady(f"{target} is gone", hint="`deltarelay run --reload` makes it anew")
        else:
            return
        raise_alone(gone)

    def _follow(self, connection: Connection, window: Window) -> tuple[str, ...]:
        """The target's columns go along with the source's. The statements are made for what is there then."""
        target = self._session.target
        found = column_types(connection, target)
        if not found:
            raise TargetNotReady(f"{target} is gone", hint="`deltarelay run --reload` makes it anew")
        self._check_letters(connection, window)
        ddl = evolution(target, window.drift, found)
        for statement in ddl:
            connection.execute(statement)
        if ddl:
            found = column_types(connection, target)
        written = () if self._layout is None else self._layout.schema.fieldNames()
        if gone := [name for name in window.schema.fieldNames() if name in written and name not in found]:
            raise TargetNotReady(
                f"{target} had a column {', '.join(map(repr, gone))} a moment ago: somebody has dropped or renamed it",
                hint="rename it back, or make the target anew with `deltarelay run --reload`: its values would be missing",
            )
        for statement in (added := additions(target, found, window.schema, self._own)):
            connection.execute(statement)
        if added:
            found = column_types(connection, target)
        if found != self._found or self._layout is None or self._layout.schema != window.schema:
            # Types are looked at for each window: somebody's ALTER TYPE must not make a cast that loses something
            self._layout = Layout(
                schema=window.schema,
                key=window.key,
                own=self._own,
                casts=casts_for(str(target), window.schema, found),
                deletes=self._modes.deletes,
                partitioned=is_partitioned(connection, target),
                others=further_columns(connection, target, {*window.schema.fieldNames(), *self._own}),
            )
            self._found, self._stated_for = found, None
        if self._stated_for != self._kind:
            self._stated_for = self._kind
            self._statements = apply_statements(target, self._session.own_name(self._kind), self._layout)
        return (*ddl, *added)

    def _check_letters(self, connection: Connection, window: Window) -> None:
        """A letter knows its key by a digest of the key's text. With another text it would be a key that is gone."""
        retyped = [
            change.after.name
            for change in window.drift
            if change.kind is ChangeKind.CHANGE_TYPE
            and change.before is not None
            and change.after is not None
            and change.after.name in window.key
            and not printed_alike(change.before.dataType, change.after.dataType)
        ]
        if retyped and (letters := digests_of(connection, str(self._session.target))):
            raise SchemaDrift(
                f"the key column {retyped[0]!r} changes its type at version {window.first}, and {self._session.target} has "
                f"{len(letters)} dead letters, known by keys of the old one",
                hint="nothing was changed: `deltarelay deadletter replay` or `drop` them, and run again",
                column=retyped[0],
            )

    # ── the ways to put the rows ─────────────────────────────────────────────────────────────────────────────────

    def _upserted(self, connection: Connection, staged: Staged, window: Window) -> Written:
        return self._put(connection, staged, window, deletes_last=False)

    def _deleted_last(self, connection: Connection, staged: Staged, window: Window) -> Written:
        """Parents come before the rows that point at them, and go after those."""
        return self._put(connection, staged, window, deletes_last=True)

    def _put(self, connection: Connection, staged: Staged, window: Window, *, deletes_last: bool) -> Written:
        statements, counting = self._prepared(), {"attempts": list(staged.attempts)}
        sorted_out = self._sorted_out(connection, staged, window)
        staged = sorted_out.staged
        deleted = met = update_met_none = 0
        for kind in ("insert", "update", "delete") if deletes_last else ("delete", "update", "insert"):
            if kind == "delete":
                deleted = self._deleted(connection, statements, staged)
            elif kind == "update" and staged.updates:
                update_met_none = self._updated(connection, statements, counting, staged.updates)
            elif kind == "insert" and staged.inserts:
                met = self._inserted(connection, statements, counting, staged.inserts)
        return self._done(connection, sorted_out, window, deleted, met, update_met_none)

    def _replaced(self, connection: Connection, staged: Staged, window: Window) -> Written:
        """The old rows of all keys leave before the first new one comes."""
        statements, counting = self._prepared(), {"attempts": list(staged.attempts)}
        sorted_out = self._sorted_out(connection, staged, window)
        staged = sorted_out.staged
        deleted = self._deleted(connection, statements, staged)
        how = self._replacing()
        connection.execute(how.make)
        connection.execute(how.take, counting)
        met, update_met = _count(connection, how.met, counting)
        self._put_again(connection, how, counting, staged.inserts + staged.updates)
        connection.execute(how.drop)
        return self._done(connection, sorted_out, window, deleted, met, staged.updates - update_met)

    def _divided(self, connection: Connection, staged: Staged, window: Window) -> Written:
        """In halves, each with a savepoint, until the rows that the target refuses are alone; those are set aside.

        Rows that stand in each other's way are another case (``_rearranged``); where that is not open to them they are
        tried again, together, for as long as one more goes through.
        """
        self._check_at_once(connection)
        sorted_out = self._sorted_out(connection, staged, window)
        staged, counting = sorted_out.staged, {"attempts": list(staged.attempts)}
        statements = self._of_parts()
        alone = reached_by_deletes(connection, self._session.target) is None
        deleted, kept = self._deleted_in_parts(connection, staged, statements)
        met = update_met_none = 0

        def put(low: str, high: str) -> None:
            nonlocal met, update_met_none
            part = {**counting, "low": low, "high": high}
            with connection.transaction():
                of = dict(connection.execute(statements.recount, part).fetchall())
                updates, inserts = of.get(CODES["update"], 0), of.get(CODES["insert"], 0)
                none = self._updated(connection, statements, part, updates) if updates else 0
                more = self._inserted(connection, statements, part, inserts) if inserts else 0
                # What is stored leaves: between those that failed nothing is to be met a second time
                connection.execute(statements.clear_put, part)
            met += more
            update_met_none += none

        letters, limit = self._letters(window), self._modes.reject_limit
        letters.set_aside(connection, kept)
        failed, waiting = list(kept), staged.inserts + staged.updates
        places: Pages | Sequence[str] = self._places(connection, staged, "insert", "update")
        while waiting:
            found = divide(places, put, most=limit, unless=CLASHES if alone else ())
            again = [one for one in found if one.clashes]
            if len(again) == waiting or len(found) > limit:
                again = []
            places, waiting = [one.place for one in again], len(again)
            found = [one for one in found if one not in again]
            letters.set_aside(connection, found)
            failed += found
        return self._done(connection, sorted_out, window, deleted + len(kept), met, update_met_none, failed)

    def _rearranged(self, connection: Connection, staged: Staged, window: Window) -> Written:
        """As ``_replaced``, with as many rows as the target takes: those that it refuses are set aside, with what it held
        under their keys back in its place, and the others are tried again without them."""
        self._check_at_once(connection)
        sorted_out = self._sorted_out(connection, staged, window)
        staged, counting = sorted_out.staged, {"attempts": list(staged.attempts)}
        statements, whole, part = self._of_parts(), self._replacing(), self._replacing(part=True)
        deleted, failed = self._deleted_in_parts(connection, staged, statements)
        letters, limit = self._letters(window), self._modes.reject_limit
        letters.set_aside(connection, failed)
        kept = len(failed)

        def put(low: str, high: str) -> None:
            with connection.transaction():
                between = {**counting, "low": low, "high": high}
                of = dict(connection.execute(statements.recount, between).fetchall())
                self._put_again(connection, part, between, of.get(CODES["update"], 0) + of.get(CODES["insert"], 0))

        while True:
            found: list[Rejected] = []
            with connection.transaction() as trial:
                connection.execute(whole.make)
                connection.execute(whole.take, counting)
                met, update_met = _count(connection, whole.met, counting)
                found = divide(self._places(connection, staged, "insert", "update"), put, most=limit)
                if found:
                    raise psycopg.Rollback(trial)
                connection.execute(whole.drop)
            if not found:
                break
            letters.set_aside(connection, found)
            failed += found
            letters.check_limit(connection, limit)
        of = dict(connection.execute(self._prepared().recount, counting).fetchall())
        update_met_none = of.get(CODES["update"], 0) - update_met
        return self._done(connection, sorted_out, window, deleted + kept, met, update_met_none, failed)

    def _deleted_in_parts(
        self, connection: Connection, staged: Staged, statements: ApplyStatements
    ) -> tuple[int, list[Rejected]]:
        """→ rows deleted, those that the target keeps"""
        if statements.delete is None:
            return staged.deletes, []
        statement, deleted = statements.delete, 0

        def delete(low: str, high: str) -> None:
            nonlocal deleted
            with connection.transaction():
                part = {"attempts": list(staged.attempts), "low": low, "high": high}
                rows = connection.execute(statement, part).rowcount
                self._check_gone(connection, statements, part)
            deleted += rows

        kept = divide(self._places(connection, staged, "delete"), delete, most=self._modes.reject_limit)
        return deleted, kept

    def _check_at_once(self, connection: Connection) -> None:
        """Unique constraints that wait for the COMMIT would tell nothing about a part. Foreign keys go on waiting."""
        if names := deferrable_unique(connection, self._session.target):
            connection.execute(sql.SQL("set constraints {} immediate").format(sql.SQL(", ").join(names)))

    def _of_parts(self) -> ApplyStatements:
        assert self._layout is not None
        return apply_statements(self._session.target, self._session.own_name(self._kind), self._layout, part=True)

    def _prepared(self) -> ApplyStatements:
        assert self._statements is not None
        return self._statements

    def _sorted_out(self, connection: Connection, staged: Staged, window: Window) -> _SortedOut:
        """Recount, then away with the rows that cannot be stored as they are."""
        statements = self._prepared()
        recount(connection, statements, staged)
        assert self._layout is not None
        if self._modes.sets_aside:
            letters = self._letters(window)
            again = 0
            if (there := letters.there(connection)) and not self._replays:
                again = letters.put_again(connection, staged.attempts)
            gone = letters.set_aside_marked(connection, staged.attempts, faithful_of(self._layout))
            left = {kind: getattr(staged, f"{kind}s") - gone.pop(code, 0) for kind, code in CODES.items()}
            marked = staged.inserts + staged.updates - left["insert"] - left["update"]
            staged = replace(staged, **{f"{kind}s": rows for kind, rows in left.items()})
            staged, unexpected = self._met(connection, statements, staged)
            held = letters.held(connection, staged.attempts, self._session.target) if there else ()
            return _SortedOut(staged, marked, unexpected, tuple(held), again)
        if staged.transients and statements.forget_unfit is not None:
            gone_by = connection.execute(statements.forget_unfit, {"attempts": list(staged.attempts)}).rowcount
            staged = replace(staged, transients=staged.transients - gone_by)
        if statements.misfits is not None:
            row = connection.execute(statements.misfits, {"attempts": list(staged.attempts)}).fetchone()
            refuse_misfits(str(self._session.target), dict(zip(statements.lossy, row or (), strict=True)))
        if self._has_letters:
            letters = self._letters(window)
            again = 0 if self._replays else letters.put_again(connection, staged.attempts)
            staged, unexpected = self._met(connection, statements, staged)
            held = letters.held(connection, staged.attempts, self._session.target)
            return _SortedOut(staged, unexpected=unexpected, held=tuple(held), put_again=again)
        staged, unexpected = self._met(connection, statements, staged)
        return _SortedOut(staged, unexpected=unexpected)

    def _met(self, connection: Connection, statements: ApplyStatements, staged: Staged) -> tuple[Staged, int]:
        """Before anything is applied: a transient key must meet no row, and where it does the delete counts, as it would had
        insert and delete come in two windows. → what is to be applied, unexpected rows among its deletes"""
        if not staged.transients:
            return staged, 0
        met = connection.execute(statements.meet, {"attempts": list(staged.attempts)}).rowcount
        return replace(staged, deletes=staged.deletes + met, transients=staged.transients - met), met

    def _deleted(self, connection: Connection, statements: ApplyStatements, staged: Staged) -> int:
        if statements.delete is None:
            return staged.deletes
        if not staged.deletes:
            return 0
        counting = {"attempts": list(staged.attempts)}
        deleted = connection.execute(statements.delete, counting).rowcount
        # A trigger that returns OLD makes an update that changes nothing, and counts
        if deleted != staged.deletes or self._modes.deletes == "soft":
            self._check_gone(connection, statements, counting)
        return deleted

    def _check_gone(self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any]) -> None:
        """A delete of a row that is not there is a conflict; a row that is still there was kept by a trigger or a rule."""
        kept = _number(connection, statements.kept, parameters)
        refuse_swallowed(self._session.target, "delete", wanted=kept, touched=0)

    def _inserted(
        self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any], wanted: int
    ) -> int:
        """Run the insert. → rows that it met; one that is only marked as deleted comes back, and is none"""
        back = 0 if statements.come_back is None else _number(connection, statements.come_back, parameters)
        fresh, rows = _count(connection, statements.insert, parameters)
        refuse_swallowed(self._session.target, "insert", wanted=wanted, touched=rows)
        return rows - fresh - back

    def _updated(
        self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any], wanted: int
    ) -> int:
        """Run the update. → rows that met none; one that is marked as deleted is none"""
        marked = 0 if statements.marked is None else _number(connection, statements.marked, parameters)
        fresh, rows = _count(connection, statements.update, parameters)
        refuse_swallowed(self._session.target, "update", wanted=wanted, touched=rows)
        return fresh + marked

    def _put_again(self, connection: Connection, how: Replacing, parameters: Mapping[str, Any], wanted: int) -> None:
        rows = connection.execute(how.put_back, parameters).rowcount
        rows += connection.execute(how.put_new, parameters).rowcount
        refuse_swallowed(self._session.target, "insert", wanted=wanted, touched=rows)

    def _replacing(self, *, part: bool = False) -> Replacing:
        assert self._layout is not None
        session = self._session
        return replacing(
            session.target, session.own_name(self._kind), self._layout, session.own_name("aside"), part=part
        )

    def _places(self, connection: Connection, staged: Staged, *kinds: str) -> Pages:
        table = self._session.own_table(self._kind)
        statement = sql.SQL(
            "select s.ctid::text from {} s where s.{} = any(%s) and s.{} = any(%s) and s.ctid between %s::tid and %s::tid "
            "order by s.ctid"
        ).format(table, sql.Identifier(staging.ATTEMPT), sql.Identifier(staging.OPERATION))

        def rows_of(low: str, high: str) -> list[str]:
            codes = [CODES[kind] for kind in kinds] + [UNEXPECTED] * ("delete" in kinds)
            wanted = [list(staged.attempts), codes, low, high]
            return [place for (place,) in connection.execute(statement, wanted)]

        size = "select pg_relation_size(%s::regclass) / current_setting('block_size')::bigint"
        pages = _number(connection, size, [table.as_string(connection)])
        return Pages(range(pages), rows_of)

    def _letters(self, window: Window) -> Letters:
        assert self._layout is not None
        return Letters(
            str(self._session.target),
            self._pipeline,
            window.table,
            self._session.own_name(self._kind),
            self._layout,
            marked=self._modes.sets_aside,
            keep_rows=self._modes.reject_rows,
        )

    def _done(
        self,
        connection: Connection,
        sorted_out: _SortedOut,
        window: Window,
        deleted: int,
        insert_met_row: int,
        update_met_none: int,
        failed: Sequence[Rejected] = (),
    ) -> Written:
        """``deleted``: how many deletes met a row; of those that ``failed`` none is in any of the counts."""
        staged, statements = sorted_out.staged, self._prepared()
        if deleted > staged.deletes:
            raise TargetNotReady(
                f"{staged.deletes} deletes met {deleted} rows of {self._session.target}: its key does not identify a row",
                hint="nothing was changed: make the key unique again, or `deltarelay run --reload`",
            )
        refused = {one.place for one in failed}
        held = [one for one in sorted_out.held if one.place not in refused]
        if held or failed or sorted_out.marked:
            letters = self._letters(window)
            letters.settle(connection, [one.digest for one in held])
            if self._modes.sets_aside:
                letters.check_limit(connection, self._modes.reject_limit)
        excused = Counter(one.operation for one in held if one.contradicts)
        # Met is met, also where the target refuses the delete that follows
        excused[UNEXPECTED] = sum(one.operation == UNEXPECTED for one in sorted_out.held)
        if staged.rows >= TRUNCATE_FROM_ROWS:
            connection.execute(statements.truncate)
        else:
            connection.execute(statements.clear_some, {"attempts": list(staged.attempts)})
        conflicts = Conflicts(
            # Where deleted rows stay as they are, an insert may meet one
            insert_met_row=0
            if self._modes.deletes == "ignore"
            else insert_met_row
            + sorted_out.unexpected
            + sorted_out.put_again
            - excused[CODES["insert"]]
            - excused[UNEXPECTED],
            update_met_none=update_met_none - excused[CODES["update"]],
            delete_met_none=staged.deletes - deleted - excused[CODES["delete"]],
            within_window=staged.conflicts,
        )
        return Written(conflicts, (), sorted_out.marked + len(failed))


@dataclass(frozen=True, slots=True)
class _SortedOut:
    """What is left in staging of the rows that were copied."""

    staged: Staged
    marked: int = 0
    """Rows that were set aside at once."""
    unexpected: int = 0
    """Rows among the deletes that the target should not hold."""
    held: tuple[Held, ...] = ()
    put_again: int = 0
    """Inserts of keys whose last row was set aside, and not removed since."""


_Way = Callable[[Connection, Staged, "Window"], Written]
"""One of those above."""


def recount(connection: Connection, statements: ApplyStatements, staged: Staged) -> None:
    """Staging is UNLOGGED: a server crash empties it, and an emptied staging must not count as a window applied."""
    found = dict(connection.execute(statements.recount, {"attempts": list(staged.attempts)}).fetchall())
    if tuple(found.get(code, 0) for code in CODES.values()) != (
        staged.inserts,
        staged.updates,
        staged.deletes,
        staged.transients,
    ):
        raise SinkUnavailable(
            "staging holds another number of rows than were copied into it: the server was restarted meanwhile, "
            "or somebody else wrote there",
            hint="nothing was applied: run again",
        )


def _count(connection: Connection, statement: sql.Composed, parameters: Mapping[str, Any]) -> tuple[int, int]:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _number(
    connection: Connection, statement: LiteralString | sql.Composed, parameters: Mapping[str, Any] | Sequence[Any]
) -> int:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    return int(row[0])


def _described(conflicts: Conflicts) -> str:
    words = {
        "insert_met_row": "inserts met a row",
        "update_met_none": "updates met none",
        "delete_met_none": "deletes met none",
        "within_window": "changes contradict each other",
    }
    return ", ".join(f"{count} {words[name]}" for name, count in conflicts.to_dict().items() if count)
