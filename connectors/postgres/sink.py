"""A PostgreSQL table that equals the source at its position.

    load      COPY from the tasks into a fresh table of ours, add the key, move it to its place     ┐ with the position,
    apply     COPY the net effect into staging, recount; DELETE, then key-sorted upsert             │ in one transaction
    reload    COPY into a fresh table and swap it in, or merge the differing rows                   ┘

This module is the façade; ``steps`` executes the durable steps. What needs PySpark is imported at its first use: ``status``,
``runs`` and ``position`` work without it.
"""

from __future__ import annotations

import datetime as dt
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from audit.errors import raise_without_context
from cdf.errors import CdfError, ConfigError
from cdf.sink import (
    Activity,
    Applied,
    Capabilities,
    Controls,
    DeadLetter,
    Image,
    Inspection,
    Position,
    RunRecord,
    Sink,
    Source,
    Standing,
)
from connectors.postgres.client import Session
from connectors.postgres.column_mapping import Columns
from connectors.postgres.options import Modes, OnConflict
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.state import activity, controls, dead_letters, progress, run_history
from connectors.postgres.state.migrations import find_state_tables
from connectors.postgres.state.position import read_position, read_standing
from connectors.postgres.steps.settings import SinkSettings
from connectors.postgres.table_name import MAX_NAME_BYTES, split_table

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from connectors.postgres.erasure.sink_erasure import PostgresErasure
    from connectors.postgres.steps.load_steps import SnapshotLoader
    from connectors.postgres.steps.open_target import OpenTarget
    from connectors.postgres.steps.window_steps import WindowApplier

__all__ = ["PostgresSink"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most this many bytes of change files, and tables of at most this size, pass through the driver: no Python
workers, one COPY."""


class PostgresSink(Sink):
    """``table`` is ``schema.table`` (or ``table``, in ``public``), read as SQL reads names.

    ``load`` creates the target if it does not exist. An existing target must be empty, with types that hold the source's
    (``connectors.postgres.conversions``) and a primary key or unique index on exactly the key. ``columns`` selects and
    renames columns, ``modes`` are those of ``connectors.postgres.options``. ``conflicts``: which net changes that contradict
    the target are an error (``ConflictFound``) instead of a count. ``pipeline`` overrides the pipeline's name in our tables.
    """

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
            # Without the cause: libpq's error repeats a dsn that it cannot read, with its password
            raise_without_context(
                ConfigError(
                    "the PostgreSQL sink cannot be set up: the table or the dsn is not well formed",
                    hint="write the table as schema.table, the dsn as postgresql://user:password@host:5432/database",
                )
            )
        self._columns = columns or Columns()
        self._modes = modes or Modes()
        self._settings = SinkSettings(self._columns, self._modes, conflicts, pipeline, small_window_bytes)

    @functools.cached_property
    def _open_target(self) -> OpenTarget:
        from connectors.postgres.steps.open_target import OpenTarget

        return OpenTarget(self._session, self._settings)

    @functools.cached_property
    def _loader(self) -> SnapshotLoader:
        from connectors.postgres.steps.load_steps import SnapshotLoader

        return SnapshotLoader(self._open_target)

    @functools.cached_property
    def _applier(self) -> WindowApplier:
        from connectors.postgres.steps.window_steps import WindowApplier

        return WindowApplier(self._open_target)

    def __repr__(self) -> str:
        return f"PostgresSink({str(self.target)!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="state",
            transactional=True,
            schema_changes=self._modes.followed_changes,
            identifier_length=MAX_NAME_BYTES,
            executor_modules=("connectors.postgres.staging.tasks", "adbc_driver_postgresql.dbapi"),
            applies_deletes=self._modes.deletes != "ignore",
            opens_without_spark=True,
        )

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        from connectors.postgres.target.drift import why_not_followed

        why = self._columns.cannot_follow(change, key, self._modes.followed_changes, self._settings.own)
        mapped = self._columns.map_change(change)
        return why_not_followed(mapped) if why is None and mapped is not None else why

    @contextmanager
    def _connect(self, doing: str) -> Iterator[Connection]:
        """A connection for one call that needs no ``open``."""
        with self._session.errors(doing):
            connection = self._session.connect()
            try:
                yield connection
            finally:
                self._session.give_back(connection)

    @contextmanager
    def _read(self, doing: str) -> Iterator[Connection]:
        """As ``_connect``, in one transaction: each statement outside of one would begin, pin and end its own."""
        with self._connect(doing) as connection, connection.transaction():
            yield connection

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        with self._read("inspecting the target") as connection:
            return self._inspect(connection, source)

    def _inspect(self, connection: Connection, source: Source, position: Position | None = None) -> Inspection:
        from connectors.postgres.inspect import inspect_target

        return inspect_target(
            connection, self.target, source, self._columns, self._modes, self._settings.own, position=position
        )

    def open(self, source: Source) -> Position:
        return self._open(
            source,
            lambda connection: self._inspect(connection, source).problems,
            hint="`deltarelay plan` shows this list without starting a run; "
            "if the columns do not fit any more, `run --reload` rebuilds the target",
        )

    def open_to_reload(self, source: Source) -> Position:
        from connectors.postgres.load.reload import find_reload_problems

        own, deletes = self._settings.own, self._modes.deletes

        def find_problems(connection: Connection) -> list[str]:
            problems = self._columns.find_problems(source.schema, source.key, own, former=source.former)
            return problems + find_reload_problems(
                connection, self.target, self._columns.map_source(source), own, deletes
            )

        return self._open(source, find_problems)

    def _open(
        self,
        source: Source,
        find_problems: Callable[[Connection], Sequence[str]],
        *,
        hint: str = "nothing was changed: correct this, and try again",
    ) -> Position:
        self.close()
        return self._open_target.open(source, find_problems, hint=hint)

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        self._applier.reset()
        self._open_target.close()

    # ── load, apply, reload ──────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        with self._open_target.step():
            return self._loader.load(snapshot)

    def reload(self, snapshot: Snapshot) -> Applied:
        with self._open_target.step():
            return self._loader.reload(snapshot)

    def announce(self, window: Window) -> None:
        self._applier.announce(window)

    def apply(self, window: Window) -> Applied:
        with self._open_target.step():
            return self._applier.apply(window)

    def way(self, window: Window) -> str:
        with self._connect("inspecting the target") as connection:
            return self._applier.choose_method(self._columns.map_window(window), connection)

    # ── monitoring: progress, history, clock ─────────────────────────────────────────────────────────────────────

    def report(self, figures: Mapping[str, Any]) -> None:
        try:
            progress.write_progress(self._session.main(), str(self.target), figures)
        except psycopg.Error as error:
            log.info("progress not stored", extra={"target": str(self.target), "sqlstate": error.sqlstate})

    def reported(self) -> Mapping[str, Any] | None:
        with self._connect("reading the progress") as connection:
            return progress.read_progress(connection, str(self.target))

    def runs(self, limit: int, *, failed: bool = False, schema_changes: bool = False) -> Sequence[RunRecord]:
        with self._connect("reading the history") as connection:
            return run_history.read_runs(
                connection, str(self.target), limit=limit, failed=failed, schema_changes=schema_changes
            )

    def record_failure(self, error: CdfError, *, pipeline: str, source: str, retries: int) -> None:
        history = self._session.history or self._open_target.new_history(pipeline, source, retries)
        run_history.write_failure(self._session.dsn, history.failure(error))

    def now(self) -> dt.datetime:
        with self._connect("reading the clock") as connection:
            ((moment,),) = connection.execute("select clock_timestamp()").fetchall()
        assert isinstance(moment, dt.datetime)
        return moment

    # ── the position ─────────────────────────────────────────────────────────────────────────────────────────────

    def position(self) -> Position:
        with self._read("reading the position") as connection:
            return read_position(connection, str(self.target))

    def activity(self) -> Activity:
        with self._read("reading the position") as connection:
            return activity.read_activity(connection, str(self.target))

    def standing(self, *, most_records: int = 10) -> Standing:
        with self._read("reading the position") as connection:
            tables = find_state_tables(connection)
            return read_standing(connection, str(self.target), tables, most_records=most_records)

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        from connectors.postgres.steps.move_position import find_move_problems, move_by_hand

        try:
            present = self._open(
                source,
                lambda connection: find_move_problems(
                    connection, self.target, lambda: self._inspect(connection, source, to).problems, before=before
                ),
            )
            move_by_hand(self._session, present=present, before=before, to=to, action=action, reason=reason)
        finally:
            self.close()

    # ── controls: pauses and approvals ───────────────────────────────────────────────────────────────────────────

    def controls(self) -> Controls:
        with self._read("reading the controls") as connection:
            return controls.read_controls(connection, str(self.target), find_state_tables(connection))

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        with self._connect("changing the controls") as connection:
            return controls.change_controls(connection, str(self.target), change)

    # ── verify ───────────────────────────────────────────────────────────────────────────────────────────────────

    def image(self, source: Source) -> AbstractContextManager[Image]:
        return self._image(source)

    @contextmanager
    def _image(self, source: Source) -> Iterator[Image]:
        from connectors.postgres.verify.image import PostgresImage

        included = tuple(name for name in source.schema.fieldNames() if self._columns.includes(name))
        with self._connect("reading the target") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                yield PostgresImage(
                    connection, self.target, self._columns.map_source(source), included, self._modes.deletes
                )

    # ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────

    def dead_letters(self, *, most: int = 100, ids: Collection[int] | None = None) -> Sequence[DeadLetter]:
        with self._connect("reading the dead letters") as connection:
            return dead_letters.read_dead_letters(connection, str(self.target), limit=most, ids=ids)

    def drop_dead_letters(self, ids: Collection[int] | None = None) -> int:
        with self._connect("dropping dead letters") as connection:
            return dead_letters.drop_dead_letters(connection, str(self.target), ids)

    def replay(self, snapshot: Snapshot) -> Applied:
        return self._applier.replay(snapshot)

    # ── erasing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def erasure(self) -> PostgresErasure:
        from connectors.postgres.erasure.sink_erasure import PostgresErasure

        return PostgresErasure(self._session, self._columns, self._modes.deletes, close_sink=self.close)
