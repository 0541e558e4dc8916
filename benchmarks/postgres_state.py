"""What the questions about PostgreSQL share: a table of ten mixed columns, windows of changes, databases in one known state.

Each timed run gets a database of its own, a copy of one that nobody writes to. So every variant meets the same rows, in the
same places on the same pages, with the same position, right after a checkpoint (the dearest moment for random writes), and
with the pages in memory; and no run pays for what an earlier one has left behind.

Contents: the state at each version is verified once against the source, and its digest is kept: the number of rows and the
sum of PostgreSQL's own 64-bit hashes of them. Every timed run, ours and everybody's, has to end with that digest.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.lab import Lab
from cdf import ChangeFeed, Limits, Pipeline, Step
from connectors.postgres import PostgresSink

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = [
    "COLUMNS",
    "MIXED",
    "TABLE",
    "Changes",
    "Shape",
    "State",
    "apply_bare",
    "columns",
    "fresh",
    "make_source",
    "run_psql",
    "settle",
    "windows",
]

TABLE = "public.customers"
COLUMNS = ("id", "region", "name", "city", "amount", "score", "active", "seen", "born", "note")

Digest = tuple[int, "Decimal"]
Connection = psycopg.Connection[Any]


def columns(generation: str) -> str:
    """The ten columns for a column ``id``; another generation has other values in nine of them."""
    h = f"xxhash64(id, {generation})"
    return f"""id, cast(pmod({h}, 1000) as int) as region, concat('name ', pmod({h}, 1000003)) as name,
        concat('city ', pmod({h}, 997)) as city, cast(pmod({h}, 100000000) as decimal(18,2)) as amount,
        {h} / 7e17 as score, {h} % 3 = 0 as active, timestamp_micros(1700000000000000 + pmod({h}, 100000000000000)) as seen,
        date_add(date'1970-01-01', cast(pmod({h}, 20000) as int)) as born,
        concat(sha2(cast({h} as string), 256), '.') as note"""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a table. One of its columns is ``id``, by which the source's rows are chosen and changed."""

    names: tuple[str, ...]
    select: Callable[[str], str]
    """The columns for a column ``id``; another generation has other values, except in the key."""
    key: tuple[str, ...] = ("id",)


MIXED = Shape(COLUMNS, columns)


@dataclass(frozen=True, slots=True)
class Changes:
    """How many rows one commit changes, and how. Their keys are random, from the ``newest`` share of the rows (1: all)."""

    updates: int
    inserts: int
    deletes: int
    newest: float = 1.0

    @property
    def total(self) -> int:
        return self.updates + self.inserts + self.deletes

    @staticmethod
    def of(total: int, *, newest: float = 1.0) -> Changes:
        """Eight updates, two inserts and one delete in eleven."""
        updates, inserts = total * 8 // 11, total * 2 // 11
        return Changes(updates, inserts, total - updates - inserts, newest)


def make_source(lab: Lab, name: str, rows: int, commits: Sequence[Changes], shape: Shape = MIXED) -> str:
    """A Delta table: ``rows`` at version 0, then one MERGE after the other. → its path"""
    path = str(lab.folder / name)
    lab.spark.sql(
        f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed=true) as"
        f" select {shape.select('0')} from (select id * 16 as id from range(0, {rows}, 1, 4))"
    )
    for number, changes in enumerate(commits, 1):
        first = round(rows * (1 - changes.newest))
        chosen = (
            f"select id, row_number() over (order by xxhash64(id, {number})) as place from delta.`{path}`"
            f" where id >= {first * 16}"
        )
        last = changes.updates + changes.deletes
        old = f"select id, place > {changes.updates} as gone from ({chosen}) where place <= {last}"
        # Keys between those that are there: an insert lands anywhere in the index
        new = (
            f"select id * 16 + {number} as id, false as gone from range({first}, {rows})"
            f" order by xxhash64(id, {-number}) limit {changes.inserts}"
        )
        lab.spark.sql(
            f"merge into delta.`{path}` t using (select {shape.select(str(number))}, gone from ({old} union all ({new}))) s"
            " on t.id = s.id when matched and s.gone then delete when matched then update set *"
            " when not matched then insert *"
        )
    lab.say(f"  {name}: {rows:,} rows and {len(commits)} commits are there")
    return path


# ── databases ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def fresh(lab: Lab, *, template: str = "template1") -> Iterator[str]:
    """A database for one timed run, right after a checkpoint and with the target's pages in memory. → its name"""
    name = "run"
    with _server(lab) as server:
        server.execute(f"drop database if exists {name} with (force)")
        server.execute(f"create database {name} template {template} strategy file_copy")
    try:
        with connected(lab, name) as connection:
            settle(connection)
        yield name
    finally:
        with _server(lab) as server:
            server.execute(f"drop database {name} with (force)")


def settle(connection: Connection) -> None:
    """Checkpoint; then the target, if it is there, read by its key, so that both it and the index are in memory."""
    connection.execute("checkpoint")
    if connection.execute("select to_regclass(%s)", [TABLE]).fetchone() != (None,):
        connection.execute("set enable_seqscan = off")
        connection.execute("set enable_bitmapscan = off")
        connection.execute(f"select count(t) from (select t from {TABLE} t where id >= 0 order by id) as all_rows")
        connection.execute("reset all")


def _server(lab: Lab) -> Connection:
    return psycopg.connect(lab.address("postgres"), autocommit=True)


def connected(lab: Lab, database: str) -> Connection:
    return psycopg.connect(lab.address(database), autocommit=True)


def run_psql(lab: Lab, database: str, *commands: str) -> None:
    options = [word for one in commands for word in ("-c", one)]
    subprocess.run(
        [lab.postgres.psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", lab.address(database), *options], check=True
    )


def digest(connection: Connection, table: str = TABLE) -> Digest:
    row = connection.execute(f"select count(*), sum(hash_record_extended(t, 0)::numeric) from {table} t").fetchone()
    assert row is not None
    return row[0], row[1]


# ── a target at version 0, and what its versions hold ────────────────────────────────────────────────────────────────


@dataclass
class State:
    """A source, the database with its target at version 0, and the digest of each version.

    The database has the changes of each version as well, for ``apply_bare``.
    """

    lab: Lab
    path: str
    database: str
    commits: Sequence[Changes]
    shape: Shape = MIXED
    digests: list[Digest] = field(default_factory=list)
    first_seconds: float | None = None
    """How long the very first window took."""

    def pipeline(self, database: str, **limits: int) -> Pipeline:
        feed = self.lab.once(f"feed of {self.path}", lambda: ChangeFeed(self.lab.spark, self.path))
        return Pipeline(
            feed,
            self.sink(database),
            key=list(self.shape.key),
            start=0,
            name=self.database,
            limits=Limits(**limits) if limits else None,
        )

    def sink(self, database: str) -> PostgresSink:
        return PostgresSink(self.lab.address(database), table=TABLE)

    def check(self, database: str, version: int) -> None:
        with connected(self.lab, database) as connection:
            if digest(connection) != self.digests[version]:
                raise AssertionError(f"{self.database}: the target differs from the source at version {version}")


def windows(lab: Lab, name: str, rows: int, commits: Sequence[Changes], shape: Shape = MIXED) -> State:
    """The state for a table of so many rows and these commits; made by the first who asks."""
    return lab.once(name, lambda: _windows(lab, name, rows, commits, shape))


def _windows(lab: Lab, name: str, rows: int, commits: Sequence[Changes], shape: Shape) -> State:
    state = State(lab, make_source(lab, name, rows, commits, shape), name, commits, shape)
    with _server(lab) as server:
        server.execute(f"create database {name}")
    state.pipeline(name).run(until=0)
    with fresh(lab, template=name) as walked, connected(lab, walked) as ahead, connected(lab, name) as base:
        pipeline = state.pipeline(walked)
        lab.check(pipeline)
        state.digests.append(digest(ahead))
        done: list[Step] = []
        for version, changes in enumerate(commits, 1):
            ahead.execute(f"drop table if exists before; create table before as table {TABLE}")
            pipeline.run(until=version, progress=done.append)
            lab.check(pipeline)
            state.digests.append(digest(ahead))
            _keep_changes(ahead, base, version, changes, shape)
        state.first_seconds = sum(done[0].applied.seconds.values()) if done else None
    return state


def _keep_changes(ahead: Connection, base: Connection, version: int, changes: Changes, shape: Shape) -> None:
    """``changes_<version>`` in the base: what differs between two verified states, in no order, as staged rows are."""
    base.execute(f"create unlogged table changes_{version} (gone boolean, like {TABLE})")
    select = (
        f"select gone, {', '.join(shape.names)} from (select false as gone, n.* from {TABLE} n left join before o using (id)"
        " where o.id is null or o is distinct from n"
        " union all select true, o.* from before o where not exists"
        f" (select from {TABLE} n where n.id = o.id)) as changed order by random()"
    )
    with base.cursor() as into, ahead.cursor() as out:
        with out.copy(f"copy ({select}) to stdout (format binary)") as rows:  # noqa: SIM117
            with into.copy(f"copy changes_{version} from stdin (format binary)") as written:
                for block in rows:
                    written.write(block)
        found = into.execute(f"select count(*), count(*) filter (where gone) from changes_{version}").fetchone()
        into.execute(f"analyze changes_{version}")
    assert found == (changes.total, changes.deletes), (found, changes)


def apply_bare(connection: Connection, versions: Sequence[int], shape: Shape = MIXED) -> float:
    """DELETE and key-sorted upsert of rows that are staged already, a transaction for each version. → seconds

    Nothing else: no position, no recount, no count of conflicts.
    """
    others = ", ".join(f"{name} = excluded.{name}" for name in shape.names if name not in shape.key)
    key, same = ", ".join(shape.key), " and ".join(f"t.{name} = s.{name}" for name in shape.key)
    seconds = 0.0
    for version in versions:
        began = time.monotonic()
        with connection.transaction():
            connection.execute(f"delete from {TABLE} t using changes_{version} s where {same} and s.gone")
            connection.execute(
                f"insert into {TABLE} select {', '.join(shape.names)} from changes_{version} where not gone order by {key}"
                f" on conflict ({key}) do update set {others}"
            )
        seconds += time.monotonic() - began
    return seconds
