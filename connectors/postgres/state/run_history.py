"""``deltarelay.runs``: one row for each durable step and for each failed try.

A step's row is written inside the transaction that makes the step durable, so the history contains exactly the steps that
happened; it cannot contain the seconds of the COMMIT itself. A failure's row is written afterwards through a separate
connection, if the database can be reached. The history is information only: a role without the rights to write it
replicates all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from audit.migrations import StateTooNew
from audit.postgres_session import connect
from cdf.errors import CdfError
from cdf.sink import RunRecord
from connectors.postgres.state.migrations import find_state_tables

__all__ = ["MOST_ROWS", "RunHistory", "StepKind", "may_write", "read_runs", "write_failure"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]
StepKind = Literal["open", "load", "window", "reload"]

MOST_ROWS = 10_000
"""Rows kept per target; the next clean-up deletes older ones."""
CLEAN_UP_EVERY = 200
"""A runner cleans up with its first row, and then after this number of rows. Each failure cleans up as well, because a
pipeline may have nothing but failures."""

_INSERT = """
    insert into deltarelay.runs (target, pipeline, source, started_at, kind, first_version, last_version, rows_in,
                                 inserts, updates, deletes, conflicts, change_bytes, seconds, retries, code,
                                 condition{column})
    values (%(target)s, %(pipeline)s, %(source)s, clock_timestamp() - make_interval(secs => %(elapsed)s), %(kind)s,
            %(first)s, %(last)s, %(rows_in)s, %(inserts)s, %(updates)s, %(deletes)s, %(conflicts)s, %(change_bytes)s,
            %(seconds)s, %(retries)s, %(code)s, %(condition)s{value})
"""
_INSERT_STEP = _INSERT.format(column=", schema_changes", value=", %(schema_changes)s")
_INSERT_FAILURE = _INSERT.format(column="", value="")
"""Without the column of a later migration: the attempt may have failed because the state could not be migrated."""
_CLEAN_UP = """
    delete from deltarelay.runs
     where target = %(target)s
       and id <= (select id from deltarelay.runs where target = %(target)s order by id desc offset %(most)s limit 1)
"""


class RunHistory:
    """The step that an open sink is executing, until its row is written."""

    def __init__(self, target: str, *, pipeline: str, source: str, retries: int) -> None:
        self._target, self._pipeline, self._source, self._retries = target, pipeline, source, retries
        self.is_writable = False
        """Set once the table is known to exist and the role may write it."""
        self._written = False
        self._rows = 0
        self._began = time.monotonic()
        self._step: dict[str, Any] = _unknown_step("open")
        self._seconds: Mapping[str, float] = {}
        self._rows_in: Callable[[], int | None] = lambda: None

    def begin_step(
        self,
        kind: StepKind,
        first: int,
        last: int,
        *,
        seconds: Mapping[str, float],
        rows_in: Callable[[], int | None] = lambda: None,
        change_bytes: int | None = None,
        schema_changes: Sequence[str] = (),
    ) -> None:
        """``seconds`` is filled while the step runs; ``rows_in`` is called once its rows have been read."""
        if self._written:
            self._retries, self._written = 0, False
        self._began = time.monotonic()
        self._step = {**_unknown_step(kind), "first": first, "last": last, "change_bytes": change_bytes}
        self._step["schema_changes"] = list(schema_changes) or None
        self._seconds, self._rows_in = seconds, rows_in

    def record_copy(self, rows: int) -> None:
        """Number of copied rows of the table: what a load inserts, unless ``write`` gets other counts. A window that is
        applied by a copy counts the feed's rows instead."""
        if self._step["kind"] != "window":
            self._rows_in = lambda: rows

    def write(
        self,
        connection: Connection,
        *,
        inserts: int | None = None,
        updates: int = 0,
        deletes: int = 0,
        conflicts: int = 0,
    ) -> None:
        """Write the row, inside the transaction that makes the step durable."""
        if not self.is_writable or self._step["kind"] == "open":
            return
        elapsed, rows_in = time.monotonic() - self._began, self._rows_in()
        row = self._row(
            elapsed,
            rows_in=rows_in,
            inserts=rows_in if inserts is None else inserts,
            updates=updates,
            deletes=deletes,
            conflicts=conflicts,
            seconds=Jsonb({**self._seconds, "apply": round(elapsed - sum(self._seconds.values()), 4)}),
        )
        connection.execute(_INSERT_STEP, row)
        self._written = True
        if self._rows % CLEAN_UP_EVERY == 0:
            connection.execute(_CLEAN_UP, {"target": self._target, "most": MOST_ROWS})
        self._rows += 1

    def failure(self, error: CdfError) -> dict[str, Any]:
        """The row of the step that failed."""
        if self._written:  # between two steps: the recorded one did not fail
            self._step, self._seconds = _unknown_step(self._step["kind"]), {}
        seconds = Jsonb(dict(self._seconds))
        return self._row(time.monotonic() - self._began, seconds=seconds, code=error.code, condition=error.condition)

    def _row(self, elapsed: float, **known: Any) -> dict[str, Any]:
        names = {"target": self._target, "pipeline": self._pipeline, "source": self._source}
        return {**self._step, **names, "elapsed": elapsed, "retries": self._retries, **known}


def _unknown_step(kind: StepKind) -> dict[str, Any]:
    unknown = ("first", "last", "rows_in", "inserts", "updates", "deletes", "conflicts", "change_bytes")
    return {"kind": kind, **dict.fromkeys((*unknown, "code", "condition"))}


def may_write(connection: Connection) -> bool:
    """Whether the table exists and the role may write, read and clean it up."""
    row = connection.execute(
        """
        select has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                   and has_table_privilege(c.oid, 'delete')
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'deltarelay' and c.relname = 'runs'
        """
    ).fetchone()
    return row is not None and bool(row[0])


def write_failure(dsn: str, row: Mapping[str, Any]) -> None:
    """Write the row through a separate connection, within seconds or not at all: the caller still has an error to raise."""
    try:
        brief = psycopg.conninfo.make_conninfo(dsn, connect_timeout=3)
        with connect(brief, autocommit=True) as connection:
            if "runs" in find_state_tables(connection) and may_write(connection):
                with connection.transaction():
                    connection.execute("set local lock_timeout = '1s'")
                    connection.execute("set local statement_timeout = '3s'")
                    connection.execute(_INSERT_FAILURE, row)
                    connection.execute(_CLEAN_UP, {"target": row["target"], "most": MOST_ROWS})
    except psycopg.Error as error:
        log.info("failure not recorded", extra={"target": row["target"], "sqlstate": error.sqlstate})
    except StateTooNew:
        log.info("failure not recorded", extra={"target": row["target"]})


def read_runs(
    connection: Connection, target: str, *, limit: int, failed: bool = False, schema_changes: bool = False
) -> Sequence[RunRecord]:
    """The latest first."""
    objects = find_state_tables(connection)
    has_schema_changes = "runs.schema_changes" in objects  # the first run of this release adds the column
    if "runs" not in objects or (schema_changes and not has_schema_changes):
        return ()
    only = "and code is not null" if failed else ""
    only += " and schema_changes is not null" if schema_changes else ""
    found = connection.execute(
        f"""
        select pipeline, source, target, started_at, ended_at, kind, first_version, last_version, rows_in, inserts,
               updates, deletes, conflicts, change_bytes, seconds, retries, code, condition,
               {"schema_changes" if has_schema_changes else "null"}
          from deltarelay.runs where target = %s {only} order by id desc limit %s
        """,
        [target, limit],
    )
    return [RunRecord(*(*values, tuple(changes or ()))) for *values, changes in found]
