"""A PostgreSQL table that equals the source at its position.

    load      COPY from the tasks into a fresh table of ours, add the key, move it to its place     ┐ with the position,
    apply     COPY the net effect into staging, recount; DELETE, then key-sorted upsert             │ in one transaction
    reload    COPY into a fresh table and swap it in, or merge what differs                         ┘

This file is the front; ``load``, ``apply``, ``reload``, ``moves`` and ``compare`` beside it do the work.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import (
    CdfError,
    ConfigError,
    Fenced,
    KeyViolation,
    SinkUnavailable,
    SourceError,
    TableReplaced,
    TargetNotReady,
    WindowOutOfOrder,
)
from cdf.sink import (
    Applied,
    Capabilities,
    Conflicts,
    DeadLetter,
    Image,
    Inspection,
    Position,
    RunRecord,
    Sink,
    Source,
    Standing,
)
from cdf.timing import timed
from connectors.postgres import position as positions
from connectors.postgres.client import Session
from connectors.postgres.column_mapping import DELETED_AT, Columns
from connectors.postgres.config import split_table
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspect import inspected
from connectors.postgres.options import Modes, OnConflict
from connectors.postgres.state import dead_letters
from connectors.postgres.state import run_history as history
from connectors.postgres.state.move_position import move_position, move_problems
from connectors.postgres.target.ddl import IDENTIFIER_BYTES, TargetName
from connectors.postgres.target.drift import why_not
from connectors.postgres.verify.image import PostgresImage
from connectors.postgres.write import copy_threshold as large
from connectors.postgres.write.copy_threshold import Way, way_of
from connectors.postgres.write.initial_load import (
    analyze,
    begin_target,
    copy_snapshot,
    key_violation,
    put_in_place,
)
from connectors.postgres.write.reload import InUse, reload, reload_problems
from connectors.postgres.write.staging import Staged
from connectors.postgres.write.window_writer import WindowWriter, Written

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from connectors.postgres.erasure.sink_erasure import PostgresErasure

__all__ = ["PostgresSink"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most so many bytes of change files pass through the driver: no Python workers, one COPY."""


class PostgresSink(Sink):
    """The sink. ``table`` is ``schema.table`` (or ``table``, in ``public``), read as SQL reads names.

    The target is created by ``load`` where it is not there; an existing one has to be empty, with types that hold the
    source's (``connectors.postgres.conversions``) and a primary key or unique index on exactly the key. ``columns``
    chooses and names what goes there, ``modes`` says what happens where several things could be meant. ``conflicts``:
    which net changes that contradict the target are an error (``ConflictFound``) instead of a count."""

    def __init__(
        self,
        dsn: str,
        *,
        table: str,
        columns: Columns | None = None,
        modes: Modes | None = None,
        conflicts: OnConflict = "refuse_duplicates",
        pipeline: str | None = None,
        small_window_bytes: int = SMALL_WINDOW_BYTES,
    ) -> None:
        try:
            schema, name = split_table(table)
            self.target = TargetName(schema, name)
            self._session = Session(dsn, self.target)
        except (ValueError, psycopg.Error):
            # Alone: libpq repeats a dsn that it cannot read, password and all
            raise_alone(
                ConfigError(
                    "the PostgreSQL sink cannot be set up: the table or the dsn is not well formed",
                    hint="write the table as schema.table, the dsn as postgresql://user:password@host:5432/database",
                )
            )
        self._columns = columns or Columns()
        self._modes = modes or Modes()
        self._own = (*self._columns.own, *([DELETED_AT] if self._modes.deletes == "soft" else []))
        self._conflicts = conflicts
        self._pipeline = pipeline
        self._small_window_bytes = small_window_bytes
        self._renewal: positions.Renewal | None = None
        self._writer: WindowWriter | None = None
        self._following: Window | None = None
        self._announced: tuple[Window, Window] | None = None
        """A window that may have been staged ahead, as it was announced and as this sink sees it."""
        self._position = Position()
        self._unsure = False
        """A step failed, and whether it was durable could not be asked: the position is read again before the next one."""

    def __repr__(self) -> str:
        return f"PostgresSink({str(self.target)!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="state",
            transactional=True,
            schema_changes=self._modes.allowed,
            identifier_length=IDENTIFIER_BYTES,
        )

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        why = self._columns.cannot_follow(change, key, self._modes.allowed, self._own)
        mapped = self._columns.change(change)
        return why_not(mapped) if why is None and mapped is not None else why

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        with self._session.errors("looking at the target"), self._session.connect() as connection:
            return self._inspected(connection, source)

    def _inspected(self, connection: Connection, source: Source, *, standing: Position | None = None) -> Inspection:
        found = inspected(
            connection,
            self.target,
            self._columns.source(source),
            self._own,
            adds_columns=self._modes.schema_changes != "refuse",
            standing=standing,
        )
        # A target that was begun without a column does not get it by a slip: then it would be missing
        # (one that comes later in the run may be left out from the start)
        former = source.schema.fieldNames() if found.position.version is None else None
        begins = source.standing or source.schema
        problems = self._columns.problems(begins, source.key, self._own, former=former)
        ddl = dead_letters.missing(connection) if self._modes.sets_aside else ()
        return replace(found, problems=(*problems, *found.problems), ddl=(*found.ddl, *ddl))

    def position(self) -> Position:
        with self._session.errors("reading the position"), self._session.connect() as connection:
            return positions.read_position(connection, str(self.target))

    def now(self) -> dt.datetime:
        with self._session.errors("reading the clock"), self._session.connect() as connection:
            row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        moment: dt.datetime = row[0]
        return moment

    def open(self, source: Source) -> Position:
        return self._taken(
            source,
            lambda connection: self._inspected(connection, source).problems,
            hint="`deltarelay plan` shows this list without starting a run; "
            "where the columns do not fit any more, `run --reload` makes the target anew",
        )

    def _taken(
        self,
        source: Source,
        problems_of: Callable[[Connection], Sequence[str]],
        *,
        hint: str = "nothing was changed: mend this, and try again",
    ) -> Position:
        """The lease, taken where nothing stands in the way."""
        self.close()
        self._session.history = self._history(pipeline=source.pipeline, source=source.table, retries=source.retries)
        try:
            return self._opened(source, problems_of, hint)
        except BaseException:
            self.close()
            raise

    def _opened(self, source: Source, problems_of: Callable[[Connection], Sequence[str]], hint: str) -> Position:
        with self._session.errors("opening the target"):
            connection = self._session.main()
            problems = problems_of(connection)
            if problems:
                raise TargetNotReady(
                    f"{self.target} cannot be written: " + "; ".join(problems),
                    hint=hint,
                    problems=list(problems),
                )
            with connection.transaction():
                # Two first runners at once would both try to create the schema
                connection.execute("select pg_advisory_xact_lock(hashtext('deltarelay.position'))")
                statements = positions.missing(connection)
                if statements:
                    connection.execute("set local lock_timeout = '10s'")  # other runners use the table: try again later
                for statement in statements:
                    connection.execute(statement)
                # not before the schema is there
                for statement in dead_letters.missing(connection) if self._modes.sets_aside else ():
                    connection.execute(statement)
            self._session.lease, self._position = positions.take_lease(
                connection, str(self.target), pipeline=self._pipeline or source.pipeline, source=source.table
            )
            if self._session.history is not None:
                self._session.history.writes = history.may_write(connection)
            self._renewal = positions.Renewal(self._session.connect, self._session.lease)
            self._session.sweep()
            has_letters = bool(dead_letters.digests_of(connection, str(self.target)))
        self._unsure = False
        lease = self._session.lease
        log.info(
            "lease taken", extra={"target": lease.target, "epoch": lease.epoch, "position": self._position.version}
        )
        self._writer = WindowWriter(
            self._session,
            own=self._own,
            modes=self._modes,
            pipeline=self._pipeline or source.pipeline,
            on_conflict=self._conflicts,
            small_window_bytes=self._small_window_bytes,
            has_letters=has_letters,
        )
        return self._position

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()
        writer, self._writer = self._writer, None
        self._following = self._announced = None
        if writer is not None:
            writer.close()
        self._session.close()

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._session.held()
        if self._unsure:
            if (overtaken := self._session.fenced_meanwhile()) is not None:
                raise overtaken  # the position is another runner's by now
            with self._session.errors("reading the position"):
                self._position = positions.read_position(self._session.main(), str(self.target))
            self._unsure = False
        try:
            yield
        except SinkUnavailable:
            self._unsure = True
            raise

    def load(self, snapshot: Snapshot) -> Applied:
        with self._step():
            return self._load(snapshot)

    def _load(self, snapshot: Snapshot) -> Applied:
        if self._position.version is not None:
            raise WindowOutOfOrder(
                f"{self.target} is filled already and stands at version {self._position.version}",
                hint="run goes on from there",
            )
        seconds: dict[str, float] = {}
        self._begins("load", snapshot.version, snapshot.version, seconds=seconds)
        mine = self._columns.snapshot(snapshot)
        rejected = 0
        if self._modes.sets_aside:
            staged, written = self._load_dividing(mine, seconds)
            ddl, rejected = written.ddl, written.rejected
        else:
            with timed(seconds, "copy"):
                staged = copy_snapshot(self._session, mine)
            with timed(seconds, "apply"):
                ddl = put_in_place(self._session, mine, staged.rows, self._own)
        self._position = Position(version=snapshot.version, table_id=snapshot.table_id)
        analyze(self._session)
        return Applied(position=snapshot.version, inserts=staged.rows, rejected=rejected, ddl=ddl, seconds=seconds)

    def _load_dividing(self, snapshot: Snapshot, seconds: dict[str, float]) -> tuple[Staged, Written]:
        """By the way that a window's rows take: it can set rows aside."""
        assert self._writer is not None
        window = snapshot.as_inserts()
        with timed(seconds, "copy"):
            try:
                staged = self._writer.stage(window)
            except KeyViolation:
                raise_alone(key_violation(snapshot))
        with timed(seconds, "apply"):
            written = self._writer.commit(
                window,
                staged,
                expected=None,
                before=lambda connection: begin_target(connection, self._session, snapshot, self._own),
            )
        return staged, written

    def open_to_reload(self, source: Source) -> Position:
        def problems(connection: Connection) -> list[str]:
            found = self._columns.problems(source.schema, source.key, self._own, former=source.former)
            return found + reload_problems(
                connection, self.target, self._columns.source(source), self._own, self._modes.deletes
            )

        return self._taken(source, problems)

    def reload(self, snapshot: Snapshot) -> Applied:
        with self._step():
            return self._reload(snapshot)

    def _reload(self, snapshot: Snapshot) -> Applied:
        seconds: dict[str, float] = {}
        self._begins("reload", snapshot.version, snapshot.version, seconds=seconds)
        mine = self._columns.snapshot(snapshot)
        rows, ddl = reload(self._session, mine, self._own, self._modes.deletes, before=self._position, seconds=seconds)
        self._position = Position(version=snapshot.version, table_id=snapshot.table_id)
        if "merge" in seconds:
            analyze(self._session)
        return Applied(position=snapshot.version, inserts=rows, ddl=ddl, seconds=seconds)

    def announce(self, window: Window) -> None:
        self._following = window

    def _begin_ahead(self, window: Window | None) -> None:
        assert self._writer is not None
        if window is None:
            return
        mine = self._columns.window(window)
        if self._way(mine) == "changes":  # a copy needs no staging
            self._announced = window, mine
            self._writer.begin_ahead(mine)

    def apply(self, window: Window) -> Applied:
        with self._step():
            return self._apply(window)

    def _apply(self, window: Window) -> Applied:
        following, self._following = self._following, None
        assert self._writer is not None
        position = self._position
        if position.table_id is not None and window.table_id != position.table_id:
            raise TableReplaced(
                f"the window is of another table than the one {self.target} was filled from",
                hint="name a new target table for it, or make this one anew with `run --reload`",
            )
        if position.version is not None and window.last <= position.version:
            return Applied(position=position.version, replayed=True)
        if position.version is None or window.first != position.version + 1:
            stands = "is empty" if position.version is None else f"stands at {position.version}"
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {self.target}, which {stands}",
                hint="load a snapshot first, then apply from the next version on",
                position=position.version,
            )
        seconds: dict[str, float] = {}
        self._begins(
            "window",
            window.first,
            window.last,
            seconds=seconds,
            rows_in=window.rows_in,
            change_bytes=window.change_bytes,
        )
        mine = self._announced[1] if self._announced and self._announced[0] is window else self._columns.window(window)
        if (way := self._way(mine)) != "changes":
            copied = self._copied(mine, way, seconds)
            if copied is not None:
                return copied
        with timed(seconds, "stage"):
            if self._modes.key_changes == "refuse":
                window.refuse_key_changes()
            staged = self._writer.stage(mine)
            window.confirm()
        self._begin_ahead(following)
        with timed(seconds, "apply"):
            written = self._writer.commit(mine, staged, expected=position.version)
        self._position = Position(version=window.last, table_id=window.table_id)
        return Applied(
            position=window.last,
            inserts=staged.inserts,
            updates=staged.updates,
            deletes=staged.deletes,
            conflicts=written.conflicts,
            rejected=written.rejected,
            ddl=written.ddl,
            seconds=seconds,
        )

    def way(self, window: Window) -> str:
        with self._session.errors("looking at the target"), self._session.connect() as connection:
            return self._way(self._columns.window(window), connection)

    def _way(self, window: Window, connection: Connection | None = None) -> Way:
        told = self._conflicts != "refuse" and not self._own
        plain = self._modes.deletes == "hard" and self._modes.key_changes == "follow" and not self._modes.sets_aside
        if not (told and plain) or window.change_bytes < large.LEAST_BYTES:
            return "changes"  # a copy knows nothing of single changes
        with self._session.errors("looking at the target"):
            return way_of(connection or self._session.main(), self.target, window)

    def _copied(self, window: Window, way: Way, seconds: dict[str, float]) -> Applied | None:
        """The window taken in by a copy of the table as of its last version. None: that cannot be had, or others were in the
        way of it."""
        log.info("a copy is cheaper than the changes", extra={"target": str(self.target), "way": way})
        try:
            snapshot = self._columns.snapshot(window.snapshot())
            with timed(seconds, "count"):  # the copy itself does not tell what has changed
                counts, conflicts = window.count_net()
            rows, ddl = reload(
                self._session,
                snapshot,
                (),
                "hard",
                before=self._position,
                seconds=seconds,
                action=None,
                must_merge=way == "merge",
                confirm=window.confirm,
                counts={**counts, "conflicts": conflicts},
            )
        except (TableReplaced, Fenced):
            raise
        except (InUse, KeyViolation, SourceError) as error:
            # Files that the copy needs and the changes do not may be gone; a key held twice is no hindrance to changes
            log.info("no copy after all", extra={"target": str(self.target), "code": error.code})
            self._session.drop("load")
            seconds.clear()
            return None
        self._position = Position(version=window.last, table_id=window.table_id)
        return Applied(
            position=window.last,
            inserts=counts["inserts"],
            updates=counts["updates"],
            deletes=counts["deletes"],
            conflicts=Conflicts(within_window=conflicts),
            copied=rows,
            ddl=ddl,
            seconds=seconds,
        )

    # ── figures for others to see ────────────────────────────────────────────────────────────────────────────────

    def report(self, figures: Mapping[str, Any]) -> None:
        try:
            positions.write_progress(self._session.main(), str(self.target), figures)
        except psycopg.Error as error:
            log.info("figures not kept", extra={"target": str(self.target), "sqlstate": error.sqlstate})

    def reported(self) -> Mapping[str, Any] | None:
        with self._session.errors("reading the progress"), self._session.connect() as connection:
            return positions.read_progress(connection, str(self.target))

    # ── the history of steps ─────────────────────────────────────────────────────────────────────────────────────

    def runs(self, limit: int, *, failed: bool = False) -> Sequence[RunRecord]:
        with self._session.errors("reading the history"), self._session.connect() as connection:
            return history.read_runs(connection, str(self.target), limit=limit, failed=failed)

    def record_failure(self, error: CdfError, *, pipeline: str, source: str, retries: int) -> None:
        step = self._session.history or self._history(pipeline=pipeline, source=source, retries=retries)
        history.write_failure(self._session.dsn, step.failure(error))

    def _history(self, *, pipeline: str, source: str, retries: int) -> history.History:
        return history.History(str(self.target), pipeline=self._pipeline or pipeline, source=source, retries=retries)

    def _begins(
        self,
        kind: history.Kind,
        first: int,
        last: int,
        *,
        seconds: Mapping[str, float],
        rows_in: Callable[[], int | None] = lambda: None,
        change_bytes: int | None = None,
    ) -> None:
        if self._session.history is not None:
            self._session.history.begins(kind, first, last, seconds=seconds, rows_in=rows_in, change_bytes=change_bytes)

    # ── moved by hand ────────────────────────────────────────────────────────────────────────────────────────────

    def standing(self, *, most_records: int = 10) -> Standing:
        with self._session.errors("reading the position"), self._session.connect() as connection:
            return positions.read_standing(connection, str(self.target), most_records=most_records)

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        try:
            stands = self._taken(
                source,
                lambda connection: move_problems(
                    connection,
                    self.target,
                    lambda: self._inspected(connection, source, standing=to).problems,
                    before=before,
                ),
            )
            move_position(self._session, stands=stands, before=before, to=to, action=action, reason=reason)
        finally:
            self.close()

    # ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────

    def image(self, source: Source) -> AbstractContextManager[Image]:
        return self._image(source)

    @contextmanager
    def _image(self, source: Source) -> Iterator[Image]:
        with self._session.errors("reading the target"), self._session.connect() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                yield PostgresImage(
                    connection, self.target, self._columns.source(source), self._chosen(source), self._modes.deletes
                )

    def _chosen(self, source: Source) -> tuple[str, ...]:
        return tuple(name for name in source.schema.fieldNames() if self._columns.takes(name))

    # ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────

    def dead_letters(self, *, most: int = 100, ids: Collection[int] | None = None) -> Sequence[DeadLetter]:
        with self._session.errors("reading the dead letters"), self._session.connect() as connection:
            return dead_letters.read_letters(connection, str(self.target), most=most, ids=ids)

    def drop_dead_letters(self, ids: Collection[int] | None = None) -> int:
        with self._session.errors("dropping dead letters"), self._session.connect() as connection:
            return dead_letters.drop_letters(connection, str(self.target), ids)

    def replay(self, snapshot: Snapshot) -> Applied:
        self._session.held()
        assert self._writer is not None
        if self._position.version != snapshot.version:
            raise WindowOutOfOrder(
                f"{self.target} stands at version {self._position.version}, not at {snapshot.version}",
                hint="nothing was changed: replay again",
            )
        seconds: dict[str, float] = {}
        with self._session.errors("reading the dead letters"):
            digests = dead_letters.digests_of(self._session.main(), str(self.target))
        mine = self._columns.snapshot(snapshot)
        window = mine.with_keys(digests).as_inserts()
        with timed(seconds, "stage"):
            staged = self._writer.stage(window)
        with timed(seconds, "apply"):
            written, gone = self._writer.replay(window, staged, expected=snapshot.version, digests=digests)
        return Applied(
            position=snapshot.version,
            inserts=staged.rows,
            deletes=gone,
            rejected=written.rejected,
            ddl=written.ddl,
            seconds=seconds,
        )

    # ── erasing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def erasure(self) -> PostgresErasure:
        from connectors.postgres.erasure.sink_erasure import PostgresErasure

        return PostgresErasure(self._session, self._columns, self._modes.deletes, close_sink=self.close)
