"""The target between ``open`` and ``close``: lease, position, history and window writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from cdf.errors import SinkUnavailable, TargetNotReady
from cdf.sink import Position, Source
from connectors.postgres.client import Session
from connectors.postgres.state import lease as leases
from connectors.postgres.state import migrations, run_history
from connectors.postgres.state.dead_letters import read_key_digests
from connectors.postgres.state.position import read_position
from connectors.postgres.steps.settings import SinkSettings
from connectors.postgres.write.window_writer import WindowWriter

__all__ = ["OpenTarget"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]


class OpenTarget:
    def __init__(self, session: Session, settings: SinkSettings) -> None:
        self.session = session
        self.settings = settings
        self.position = Position()
        self.renewal: leases.Renewal | None = None
        self._writer: WindowWriter | None = None
        self._is_uncertain = False
        """A step failed, and its outcome could not be read: the position is read again before the next step."""

    @property
    def writer(self) -> WindowWriter:
        assert self._writer is not None
        return self._writer

    # ── open, close ──────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, source: Source, find_problems: Callable[[Connection], Sequence[str]], *, hint: str) -> Position:
        """Acquire the lease, unless ``find_problems`` finds any. Raises TargetNotReady or LeaseHeld."""
        self.session.history = self.new_history(source.pipeline, source.table, source.retries)
        try:
            return self._open(source, find_problems, hint)
        except BaseException:
            self.close()
            raise

    def _open(self, source: Source, find_problems: Callable[[Connection], Sequence[str]], hint: str) -> Position:
        session, settings, target = self.session, self.settings, self.session.target
        pipeline = settings.pipeline or source.pipeline
        with session.errors("opening the target"):
            connection = session.main()
            with connection.transaction():
                problems = find_problems(connection)
            if problems:
                raise TargetNotReady(
                    f"{target} cannot be written: " + "; ".join(problems),
                    hint=hint,
                    problems=list(problems),
                )
            # Not in the transaction above: its locks on our tables could deadlock with the migration of another runner
            with connection.transaction():
                migrations.create_missing(connection, dead_letters=settings.modes.writes_dead_letters)
            session.lease, self.position = leases.acquire_lease(
                connection, str(target), pipeline=pipeline, source=source.table
            )
            self.renewal = leases.Renewal(session.connect, session.lease)
            with connection.transaction():
                if session.history is not None:
                    session.history.is_writable = run_history.may_write(connection)
                has_dead_letters = bool(read_key_digests(connection, str(target)))
            session.sweep()
        self._is_uncertain = False
        lease = session.lease
        log.info("lease taken", extra={"target": lease.target, "epoch": lease.epoch, "position": self.position.version})
        self._writer = WindowWriter(
            session,
            own=settings.own,
            modes=settings.modes,
            pipeline=pipeline,
            on_conflict=settings.conflicts,
            small_window_bytes=settings.small_window_bytes,
            has_dead_letters=has_dead_letters,
        )
        return self.position

    def close(self) -> None:
        renewal, self.renewal = self.renewal, None
        if renewal is not None:
            renewal.stop()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self.session.close()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a durable step. Raises PositionError if the sink is not open, Fenced if another runner has taken over."""
        self.session.require_lease()
        if self._is_uncertain:
            if (fencing := self.session.find_fencing()) is not None:
                raise fencing
            with self.session.errors("reading the position"):
                self.position = read_position(self.session.main(), str(self.session.target))
            self._is_uncertain = False
        try:
            yield
        except SinkUnavailable:
            self._is_uncertain = True
            raise

    # ── history ──────────────────────────────────────────────────────────────────────────────────────────────────

    def new_history(self, pipeline: str, source: str, retries: int) -> run_history.RunHistory:
        return run_history.RunHistory(
            str(self.session.target), pipeline=self.settings.pipeline or pipeline, source=source, retries=retries
        )

    def begin_history(
        self,
        kind: run_history.StepKind,
        first: int,
        last: int,
        *,
        seconds: Mapping[str, float],
        rows_in: Callable[[], int | None] = lambda: None,
        change_bytes: int | None = None,
        schema_changes: Sequence[str] = (),
    ) -> None:
        if (history := self.session.history) is not None:
            history.begin_step(
                kind,
                first,
                last,
                seconds=seconds,
                rows_in=rows_in,
                change_bytes=change_bytes,
                schema_changes=schema_changes,
            )
