"""What all strategies for writing a staged window share: preparation of staging, counted statements, conflicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

import psycopg
from psycopg import sql

from cdf.errors import SinkUnavailable, TargetNotReady
from cdf.sink import Conflicts
from connectors.postgres.errors import refuse_swallowed
from connectors.postgres.options import Modes
from connectors.postgres.staging.columns import CODES, UNEXPECTED, Staged
from connectors.postgres.write.bisect import Rejected
from connectors.postgres.write.dead_letter_writer import DeadLetterKey, DeadLetterWriter
from connectors.postgres.write.misfits import refuse_misfits
from connectors.postgres.write.statements import ApplyStatements, Layout, faithful_conditions

if TYPE_CHECKING:
    from connectors.postgres.client import Session

__all__ = ["PreparedStaging", "RecordWriter", "WriteContext", "Written", "fetch_count", "fetch_counts", "recount"]

TRUNCATE_FROM_ROWS = 2_000
"""Fewer rows of staging are removed by DELETE, more by TRUNCATE, which has a fixed cost and none per row."""

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a window."""

    conflicts: Conflicts
    ddl: tuple[str, ...]
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class WriteContext:
    session: Session
    modes: Modes
    layout: Layout
    statements: ApplyStatements
    staging_kind: str
    pipeline: str
    source: str
    has_dead_letters: bool
    """From an earlier run. With ``modes.writes_dead_letters`` the table is read for each window instead."""
    is_replay: bool


@dataclass(frozen=True, slots=True)
class PreparedStaging:
    """The rows that remain in staging after unstorable ones were removed."""

    staged: Staged
    marked: int = 0
    """Rows that became dead letters at once."""
    unexpected: int = 0
    """Rows among the deletes that the target should not hold."""
    known_keys: tuple[DeadLetterKey, ...] = ()
    reinserted: int = 0
    """Inserts of keys whose last row became a dead letter and was not deleted since."""


class RecordWriter(ABC):
    """Writes the rows of one staged window into the target, inside the applying transaction.

    A strategy that fails is rolled back, and another one is tried in a new transaction (``strategies.next_strategy``).
    """

    name: ClassVar[str]

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self._session, self._modes = context.session, context.modes
        self._layout, self._statements = context.layout, context.statements

    @abstractmethod
    def write(self, connection: Connection, staged: Staged) -> Written: ...

    @cached_property
    def _dead_letters(self) -> DeadLetterWriter:
        return DeadLetterWriter(
            str(self._session.target),
            self._context.pipeline,
            self._context.source,
            self._session.own_name(self._context.staging_kind),
            self._layout,
            has_marks=self._modes.writes_dead_letters,
            keep_rows=self._modes.reject_rows,
        )

    # ── before anything is applied ───────────────────────────────────────────────────────────────────────────────

    def _prepare(self, connection: Connection, staged: Staged) -> PreparedStaging:
        """Recount staging, and remove or refuse the rows that cannot be stored."""
        statements = self._statements
        recount(connection, statements, staged)
        if self._modes.writes_dead_letters:
            return self._prepare_with_dead_letters(connection, staged)
        if staged.transients and statements.forget_unfit is not None:
            forgotten = connection.execute(statements.forget_unfit, {"attempts": list(staged.attempts)}).rowcount
            staged = replace(staged, transients=staged.transients - forgotten)
        if statements.misfits is not None:
            row = connection.execute(statements.misfits, {"attempts": list(staged.attempts)}).fetchone()
            refuse_misfits(str(self._session.target), dict(zip(statements.lossy, row or (), strict=True)))
        if not self._context.has_dead_letters:
            staged, unexpected = self._meet_transients(connection, staged)
            return PreparedStaging(staged, unexpected=unexpected)
        dead_letters = self._dead_letters
        reinserted = 0 if self._context.is_replay else dead_letters.count_reinserted(connection, staged.attempts)
        staged, unexpected = self._meet_transients(connection, staged)
        known_keys = dead_letters.find_keys(connection, staged.attempts, self._session.target)
        return PreparedStaging(staged, unexpected=unexpected, known_keys=tuple(known_keys), reinserted=reinserted)

    def _prepare_with_dead_letters(self, connection: Connection, staged: Staged) -> PreparedStaging:
        dead_letters = self._dead_letters
        reinserted = 0
        if (exist := dead_letters.has_dead_letters(connection)) and not self._context.is_replay:
            reinserted = dead_letters.count_reinserted(connection, staged.attempts)
        moved = dead_letters.move_marked(connection, staged.attempts, faithful_conditions(self._layout))
        left = {kind: getattr(staged, f"{kind}s") - moved.pop(code, 0) for kind, code in CODES.items()}
        marked = staged.inserts + staged.updates - left["insert"] - left["update"]
        staged = replace(staged, **{f"{kind}s": rows for kind, rows in left.items()})
        staged, unexpected = self._meet_transients(connection, staged)
        known_keys = dead_letters.find_keys(connection, staged.attempts, self._session.target) if exist else ()
        return PreparedStaging(staged, marked, unexpected, tuple(known_keys), reinserted)

    def _meet_transients(self, connection: Connection, staged: Staged) -> tuple[Staged, int]:
        """The target must hold no row of a transient key. If it holds one, the delete counts, as it would if insert and
        delete came in two windows. → the rows to apply, number of unexpected rows among its deletes"""
        if not staged.transients:
            return staged, 0
        met = connection.execute(self._statements.meet, {"attempts": list(staged.attempts)}).rowcount
        return replace(staged, deletes=staged.deletes + met, transients=staged.transients - met), met

    # ── counted statements ───────────────────────────────────────────────────────────────────────────────────────

    def _delete(self, connection: Connection, staged: Staged) -> int:
        """→ rows deleted"""
        if self._statements.delete is None:
            return staged.deletes
        if not staged.deletes:
            return 0
        parameters = {"attempts": list(staged.attempts)}
        deleted = connection.execute(self._statements.delete, parameters).rowcount
        # A trigger that returns OLD makes an update that changes nothing, and counts as a touched row
        if deleted != staged.deletes or self._modes.deletes == "soft":
            self._check_deleted(connection, self._statements, parameters)
        return deleted

    def _check_deleted(
        self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any]
    ) -> None:
        """A delete of a row that does not exist is a conflict; a row that still exists was kept by a trigger or a rule."""
        kept = fetch_count(connection, statements.kept, parameters)
        refuse_swallowed(self._session.target, "delete", wanted=kept, touched=0)

    def _insert(
        self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any], wanted: int
    ) -> int:
        """→ existing rows that the inserts met; rows marked as deleted do not count"""
        marked = 0 if statements.come_back is None else fetch_count(connection, statements.come_back, parameters)
        fresh, rows = fetch_counts(connection, statements.insert, parameters)
        refuse_swallowed(self._session.target, "insert", wanted=wanted, touched=rows)
        return rows - fresh - marked

    def _update(
        self, connection: Connection, statements: ApplyStatements, parameters: Mapping[str, Any], wanted: int
    ) -> int:
        """→ updates that met no row; a row marked as deleted counts as none"""
        marked = 0 if statements.marked is None else fetch_count(connection, statements.marked, parameters)
        fresh, rows = fetch_counts(connection, statements.update, parameters)
        refuse_swallowed(self._session.target, "update", wanted=wanted, touched=rows)
        return fresh + marked

    # ── after everything was applied ─────────────────────────────────────────────────────────────────────────────

    def _finish(
        self,
        connection: Connection,
        prepared: PreparedStaging,
        *,
        deleted: int,
        insert_met_row: int,
        update_met_none: int,
        rejected: Sequence[Rejected] = (),
    ) -> Written:
        """Clear staging, remove dead letters of applied keys, and count conflicts. ``deleted``: deletes that met a row;
        ``rejected`` rows are in none of the counts."""
        staged = prepared.staged
        if deleted > staged.deletes:
            raise TargetNotReady(
                f"{staged.deletes} deletes met {deleted} rows of {self._session.target}: its key does not identify a row",
                hint="nothing was changed: make the key unique again, or rebuild the target with `deltarelay run --reload`",
            )
        addresses = {row.address for row in rejected}
        applied_keys = [key for key in prepared.known_keys if key.address not in addresses]
        if applied_keys or rejected or prepared.marked:
            self._dead_letters.remove(connection, [key.digest for key in applied_keys])
            if self._modes.writes_dead_letters:
                self._dead_letters.check_limit(connection, self._modes.reject_limit)
        excused = Counter(key.operation for key in applied_keys if key.contradicts)
        # An unexpected row was met even if the target refuses the delete that follows
        excused[UNEXPECTED] = sum(key.operation == UNEXPECTED for key in prepared.known_keys)
        if staged.rows >= TRUNCATE_FROM_ROWS:
            connection.execute(self._statements.truncate)
        else:
            connection.execute(self._statements.clear_some, {"attempts": list(staged.attempts)})
        conflicts = Conflicts(
            # With deletes: ignore an insert may meet a row whose delete was ignored
            insert_met_row=0
            if self._modes.deletes == "ignore"
            else insert_met_row
            + prepared.unexpected
            + prepared.reinserted
            - excused[CODES["insert"]]
            - excused[UNEXPECTED],
            update_met_none=update_met_none - excused[CODES["update"]],
            delete_met_none=staged.deletes - deleted - excused[CODES["delete"]],
            within_window=staged.conflicts,
        )
        return Written(conflicts, (), prepared.marked + len(rejected))


def recount(connection: Connection, statements: ApplyStatements, staged: Staged) -> None:
    """Staging is UNLOGGED: a server crash empties it, and an emptied staging must not count as an applied window."""
    found = dict(connection.execute(statements.recount, {"attempts": list(staged.attempts)}).fetchall())
    if tuple(found.get(code, 0) for code in CODES.values()) != (
        staged.inserts,
        staged.updates,
        staged.deletes,
        staged.transients,
    ):
        raise SinkUnavailable(
            "the staging table does not have the number of rows that were copied into it: the server was restarted "
            "meanwhile, "
            "or another session wrote into it",
            hint="nothing was applied: run again",
        )


def fetch_count(
    connection: Connection,
    statement: LiteralString | sql.Composed,
    parameters: Mapping[str, Any] | Sequence[Any] | None = None,
) -> int:
    ((count,),) = connection.execute(statement, parameters).fetchall()
    return int(count)


def fetch_counts(connection: Connection, statement: sql.Composed, parameters: Mapping[str, Any]) -> tuple[int, int]:
    ((first, second),) = connection.execute(statement, parameters).fetchall()
    return int(first), int(second)
