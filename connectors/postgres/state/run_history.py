"""The history of windows: one row in ``deltarelay.runs`` for each durable step and for each try that failed.

A step's row is written inside the transaction that makes the step durable, so the history cannot claim what did not happen,
nor miss what did; the seconds of the COMMIT itself are therefore not in it. A failure's row is written afterwards, through
a connection of its own, as far as the database can be reached. It is information: a role without the rights to write it
replicates all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from audit.postgres_session import connect
from cdf.errors import CdfError
from cdf.sink import RunRecord

__all__ = ["CREATE", "History", "MOST_ROWS", "may_write", "read_runs", "write_failure"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]
Kind = Literal["open", "load", "window", "reload"]

CREATE = """\
create table if not exists deltarelay.runs (
    id            bigint generated always as identity,
    target        text not null,
    pipeline      text not null,
    source        text not null,
    started_at    timestamptz not null,
    ended_at      timestamptz not null default clock_timestamp(),
    kind          text not null,
    first_version bigint,
    last_version  bigint,
    rows_in       bigint,
    inserts       bigint,
    updates       bigint,
    deletes       bigint,
    conflicts     bigint,
    change_bytes  bigint,
    seconds       jsonb not null,
    retries       integer not null,
    code          text,
    condition     text,
    primary key (target, id)
)"""

MOST_ROWS = 10_000
"""So many rows of a target are kept; older ones go when it is next tidied up."""
TIDY_EVERY = 200
"""A runner tidies up with its first row and then after so many. A failure tidies up as well: it may be all there is."""

_INSERT = """
    insert into deltarelay.runs (target, pipeline, source, started_at, kind, first_version, last_version, rows_in,
                                 inserts, updates, deletes, conflicts, change_bytes, seconds, retries, code, condition)
    values (%(target)s, %(pipeline)s, %(source)s, clock_timestamp() - make_interval(secs => %(elapsed)s), %(kind)s,
            %(first)s, %(last)s, %(rows_in)s, %(inserts)s, %(updates)s, %(deletes)s, %(conflicts)s, %(change_bytes)s,
            %(seconds)s, %(retries)s, %(code)s, %(condition)s)
"""
_TIDY = """
    delete from deltarelay.runs
     where target = %(target)s
       and id <= (select id from deltarelay.runs where target = %(target)s order by id desc offset %(most)s limit 1)
"""


class History:
    """What one open sink is doing, until its row is written."""

    def __init__(self, target: str, *, pipeline: str, source: str, retries: int) -> None:
        self._target, self._pipeline, self._source, self._retries = target, pipeline, source, retries
        self.writes = False
        """Set once the table is known to be there, and open to the role."""
        self._written = False
        self._rows = 0
        self._began = time.monotonic()
        self._step: dict[str, Any] = _nothing("open")
        self._seconds: Mapping[str, float] = {}
        self._rows_in: Callable[[], int | None] = lambda: None

    def begins(
        self,
        kind: Kind,
        first: int,
        last: int,
        *,
        seconds: Mapping[str, float],
        rows_in: Callable[[], int | None] = lambda: None,
        change_bytes: int | None = None,
    ) -> None:
        """A step begins. ``seconds`` fills up while it runs; ``rows_in`` is asked once its rows have been read."""
        if self._written:
            self._retries, self._written = 0, False
        self._began = time.monotonic()
        self._step = {**_nothing(kind), "first": first, "last": last, "change_bytes": change_bytes}
        self._seconds, self._rows_in = seconds, rows_in

    def copied(self, rows: int) -> None:
        """So many rows of the table lie ready: what a load inserts, where nothing else is told. A window that is applied
        by a copy counts the feed's rows."""
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
        """Inside the transaction that makes the step durable."""
        if not self.writes or self._step["kind"] == "open":
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
        connection.execute(_INSERT, row)
        self._written = True
        if self._rows % TIDY_EVERY == 0:
            connection.execute(_TIDY, {"target": self._target, "most": MOST_ROWS})
        self._rows += 1

    def failure(self, error: CdfError) -> dict[str, Any]:
        """The row of the step that failed."""
        if self._written:  # between two steps: what is recorded already did not fail
            self._step, self._seconds = _nothing(self._step["kind"]), {}
        seconds = Jsonb(dict(self._seconds))
        return self._row(time.monotonic() - self._began, seconds=seconds, code=error.code, condition=error.condition)

    def _row(self, elapsed: float, **known: Any) -> dict[str, Any]:
        whose = {"target": self._target, "pipeline": self._pipeline, "source": self._source}
        return {**self._step, **whose, "elapsed": elapsed, "retries": self._retries, **known}


def _nothing(kind: Kind) -> dict[str, Any]:
    unknown = ("first", "last", "rows_in", "inserts", "updates", "deletes", "conflicts", "change_bytes")
    return {"kind": kind, **dict.fromkeys((*unknown, "code", "condition"))}


def may_write(connection: Connection) -> bool:
    """Whether the table is there and the role may write, read and tidy it."""
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
    """Through a connection of its own, soon or not at all: whoever failed has an error to tell."""
    try:
        brief = psycopg.conninfo.make_conninfo(dsn, connect_timeout=3)
        with connect(brief, autocommit=True) as connection:
            if may_write(connection):
                with connection.transaction():
                    connection.execute("set local lock_timeout = '1s'")
                    connection.execute("set local statement_timeout = '3s'")
                    connection.execute(_INSERT, row)
                    connection.execute(_TIDY, {"target": row["target"], "most": MOST_ROWS})
    except psycopg.Error as error:
        log.info("failure not kept", extra={"target": row["target"], "sqlstate": error.sqlstate})


def read_runs(connection: Connection, target: str, *, limit: int, failed: bool) -> Sequence[RunRecord]:
    """The latest first."""
    there = connection.execute("select to_regclass('deltarelay.runs') is not null").fetchone()
    if there != (True,):
        return ()
    only = "and code is not null" if failed else ""
    found = connection.execute(
        f"""
        select pipeline, source, target, started_at, ended_at, kind, first_version, last_version, rows_in, inserts,
               updates, deletes, conflicts, change_bytes, seconds, retries, code, condition
          from deltarelay.runs where target = %s {only} order by id desc limit %s
        """,
        [target, limit],
    )
    return [RunRecord(*row) for row in found]
