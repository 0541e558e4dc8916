"""A PostgreSQL table that equals the source at its position.

    load      COPY from the tasks into a fresh table of ours, add the key, move it to its place     ┐ with the position,
    apply     COPY the net effect into staging, recount; DELETE, then key-sorted upsert             │ in one transaction
    reload    COPY into a fresh table and swap it in, or merge what differs                         ┘

This file is the front; ``load``, ``apply``, ``reload``, ``moves`` and ``compare`` beside it do the work.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from cdf.errors import ConfigError, TableReplaced, TargetNotReady, WindowOutOfOrder
from cdf.schema import ChangeKind
from cdf.sink import Applied, Capabilities, Image, Inspection, Position, Source, Standing
from connectors.postgres import position as positions
from connectors.postgres.apply import WindowWriter
from connectors.postgres.compare import PostgresImage
from connectors.postgres.config import split_table
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspection import inspected
from connectors.postgres.load import analyze, copy_snapshot, put_in_place
from connectors.postgres.moves import move_position, move_problems
from connectors.postgres.reload import reload, reload_problems
from connectors.postgres.schema import IDENTIFIER_BYTES, TargetName
from connectors.postgres.session import Session

if TYPE_CHECKING:
    from cdf.window import Snapshot, Window

__all__ = ["PostgresSink"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most so many bytes of change files pass through the driver: no Python workers, one COPY."""


class PostgresSink:
    """The sink. ``table`` is ``schema.table`` (or ``table``, in ``public``), read as SQL reads names.

    The target is created by ``load`` where it is not there; an existing one has to be empty, with the types of
    ``connectors.postgres.types`` and a primary key or unique index on exactly the key. ``conflicts="refuse"`` makes net
    changes that contradict the target an error (``ConflictFound``) instead of a count.
    """

    def __init__(
        self,
        dsn: str,
        *,
        table: str,
        conflicts: Literal["report", "refuse"] = "report",
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
        self._conflicts = conflicts
        self._pipeline = pipeline
        self._small_window_bytes = small_window_bytes
        self._renewal: positions.Renewal | None = None
        self._writer: WindowWriter | None = None
        self._position = Position()

    def __repr__(self) -> str:
        return f"PostgresSink({str(self.target)!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="state",
            transactional=True,
            schema_changes=frozenset({ChangeKind.ADD_COLUMN}),
            identifier_length=IDENTIFIER_BYTES,
        )

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        with self._session.errors("looking at the target"), self._session.connect() as connection:
            return inspected(connection, self.target, source)

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
            lambda connection: inspected(connection, self.target, source).problems,
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
                for statement in positions.missing(connection):
                    connection.execute(statement)
            self._session.lease, self._position = positions.take_lease(
                connection, str(self.target), pipeline=self._pipeline or source.pipeline, source=source.table
            )
            self._renewal = positions.Renewal(self._session.connect, self._session.lease)
            self._session.sweep()
        lease = self._session.lease
        log.info(
            "lease taken", extra={"target": lease.target, "epoch": lease.epoch, "position": self._position.version}
        )
        self._writer = WindowWriter(
            self._session,
            refuse_conflicts=self._conflicts == "refuse",
            small_window_bytes=self._small_window_bytes,
        )
        return self._position

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._session.close()

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        self._session.held()
        if self._position.version is not None:
            raise WindowOutOfOrder(
                f"{self.target} is filled already and stands at version {self._position.version}",
                hint="run goes on from there",
            )
        seconds: dict[str, float] = {}
        with _timed(seconds, "copy"):
            staged = copy_snapshot(self._session, snapshot)
        with _timed(seconds, "apply"):
            ddl = put_in_place(self._session, snapshot)
        self._position = Position(version=snapshot.version, table_id=snapshot.table_id)
        analyze(self._session)
        return Applied(position=snapshot.version, inserts=staged.rows, ddl=ddl, seconds=seconds)

    def open_to_reload(self, source: Source) -> Position:
        return self._taken(source, lambda connection: reload_problems(connection, self.target, source))

    def reload(self, snapshot: Snapshot) -> Applied:
        self._session.held()
        seconds: dict[str, float] = {}
        rows, ddl = reload(self._session, snapshot, before=self._position, seconds=seconds)
        self._position = Position(version=snapshot.version, table_id=snapshot.table_id)
        if "merge" in seconds:
            analyze(self._session)
        return Applied(position=snapshot.version, inserts=rows, ddl=ddl, seconds=seconds)

    def apply(self, window: Window) -> Applied:
        self._session.held()
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
        with _timed(seconds, "stage"):
            staged = self._writer.stage(window)
            window.confirm()
        with _timed(seconds, "apply"):
            conflicts, ddl = self._writer.commit(window, staged, expected=position.version)
        self._position = Position(version=window.last, table_id=window.table_id)
        return Applied(
            position=window.last,
            inserts=staged.inserts,
            updates=staged.updates,
            deletes=staged.deletes,
            conflicts=conflicts,
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

    # ── moved by hand ────────────────────────────────────────────────────────────────────────────────────────────

    def standing(self, *, most_records: int = 10) -> Standing:
        with self._session.errors("reading the position"), self._session.connect() as connection:
            return positions.read_standing(connection, str(self.target), most_records=most_records)

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        try:
            stands = self._taken(
                source, lambda connection: move_problems(connection, self.target, source, before=before, to=to)
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
                yield PostgresImage(connection, self.target, source)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[step] = round(time.monotonic() - began, 4)
