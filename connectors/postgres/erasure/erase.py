"""What the delete that came through the feed has left of a person in the target, removed.

Two kinds of keys count: those that the source has erased, and those of rows that the target keeps though the source lost
them earlier, and that are the person's by what they hold (``Erasing.catch``). Under these keys go

    any deletes       the rows whose key the source does not have at the target's position: the source itself is asked.
                      ``ignore`` keeps them, and so does a target that has refused the delete (``rejects: dead_letter``),
                      whether that erased or was an ordinary one before
    deletes: soft     the rows that are marked as deleted. One that came back since has lost its mark, and stays
    dead letters      those not later than the erasure, and of keys that the source does not have. Another one is of a key
                      that came back
    nullify           rows lose their personal values: the same, and those that have none in the source, where the target
                      may have refused the update. Letters lose the row that they keep: a letter without which nobody knew
                      that the target lacks a row stays

Other rows are live, and the feed has made them right. Only where one has a letter nobody can tell whether it is from before
the erasure: then nothing is done until somebody has mended it. It is all done under the target's lease, in one transaction.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.changes.canonical import key_digest, plain_decimals
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, quoted
from cdf.errors import RowRejected, SinkUnavailable, WindowOutOfOrder
from cdf.sink import Position
from cdf.source.table import ChangeFeed
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.conversions import find_casts
from connectors.postgres.erasure.retained_rows import kept_rows
from connectors.postgres.erasure.rewritten_tables import forget_written
from connectors.postgres.errors import StagingFailed, error_of_state, raise_alone
from connectors.postgres.sql_parts import SCHEMA, Name, TargetName, equal
from connectors.postgres.staging import adbc_copy, storability
from connectors.postgres.staging.columns import COPY_ROWS
from connectors.postgres.state import dead_letters, migrations
from connectors.postgres.state import lease as leases
from connectors.postgres.state import position as positions
from connectors.postgres.target.ddl import create_staging
from connectors.postgres.target.reflection import read_column_types
from connectors.postgres.types import staging_type, wire
from connectors.postgres.write.statements import Layout, faithful_conditions, staged_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from audit.erasure.sink_contract import Erasing
    from connectors.postgres.client import Session
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.options import Deletes

__all__ = ["forget", "kept"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

_DIGEST, _GONE = "digest", "gone"
"""Of a staged key: as its letter has it; whether the source has nothing of the person under it any more."""
_MARK = COMMIT_VERSION
"""``_GONE`` in a frame: no column of a source or target can have that name."""
_REFUSED = (
    "nothing was changed: mend what refuses it (a trigger, a foreign key or another constraint of the target; "
    "`deltarelay deadletter list` shows what it has refused before), then erase again"
)


def forget(session: Session, columns: Columns, deletes: Deletes, erasing: Erasing) -> Mapping[str, int]:
    """→ counts by kind. Raises WindowOutOfOrder before anything is written where the target has not got that far."""
    with session.errors("looking at the target"):
        connection = session.main()
        _check_passed(session, positions.read_position(connection, str(session.target)), erasing)
        feeder = _feeder(connection, session.target)
    counts = {"rows": 0, "dead letters": 0, "staging tables": 0}
    if feeder is None:
        return counts  # nothing was ever written there
    with _alone(session, *feeder) as (position, swept):
        _check_passed(session, position, erasing)
        with session.errors("looking at the target"):
            found = read_column_types(session.main(), session.target)
            forget_written(session.main(), erasing.requests)
        if found and position.version is not None:
            keys, staged = _staged_keys(session, columns, deletes, erasing, found, position.version)
            rows, letters = _unrefused(
                session, lambda: _forgotten(session, columns, deletes, erasing, found, keys, staged, position)
            )
            counts |= {"rows": rows, "dead letters": letters}
    counts["staging tables"] = swept
    log.info("erased", extra={"target": str(session.target), "run": erasing.run, **_named(counts)})
    return counts


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {name.replace(" ", "_"): count for name, count in counts.items()}


def _check_passed(session: Session, position: Position, erasing: Erasing) -> None:
    last = max(erasing.versions, default=None)
    if last is None or (position.version is not None and position.version >= last):
        return
    stands = "is empty" if position.version is None else f"stands at version {position.version}"
    raise WindowOutOfOrder(
        f"{session.target} {stands}, before version {last} that erased rows of {erasing.table}",
        hint="nothing was changed: run the pipeline, then erase again",
        position=position.version,
    )


def _feeder(connection: Connection, target: TargetName) -> tuple[str, str] | None:
    """Pipeline and source, as whoever filled the target has written them down."""
    if not read_column_types(connection, TargetName(SCHEMA, "position")):
        return None
    row = connection.execute(
        "select pipeline, source from deltarelay.position where target = %s", [str(target)]
    ).fetchone()
    return None if row is None else (row[0], row[1])


@contextmanager
def _alone(session: Session, pipeline: str, source: str) -> Iterator[tuple[Position, int]]:
    """Under the target's lease. → the position, the tables that dead runners had left"""
    renewal: leases.Renewal | None = None
    try:
        with session.errors("opening the target"):
            connection = session.main()
            session.lease, position = leases.acquire_lease(
                connection, str(session.target), pipeline=pipeline, source=source
            )
            renewal = leases.Renewal(session.connect, session.lease)
            left = session.staging_tables(connection)
            session.sweep()
            still = session.staging_tables(connection)
        if still:
            raise SinkUnavailable(
                f"{len(still)} tables that dead runners of {session.target} have left cannot be dropped",
                hint="a copy of theirs may still be at work: erase again; or another role owns them: drop "
                + ", ".join(f"deltarelay.{name}" for name in still),
            )
        yield position, len(left)
    finally:
        if renewal is not None:
            renewal.stop()
        session.close()


# ── the keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _staged_keys(
    session: Session,
    columns: Columns,
    deletes: Deletes,
    erasing: Erasing,
    found: Mapping[str, ColumnType],
    version: int,
) -> tuple[StructType, int]:
    """The keys in a table of ours, with the types in which a key is staged. → their schema, with the target's names, and how
    many they are"""
    keys = erasing.keys()
    keys = reduce(
        lambda all_keys, more: all_keys.unionByName(more), _caught(session, columns, deletes, erasing, found), keys
    )
    keys = _with_gone(keys, columns, erasing, found, version).distinct()
    schema = keys.drop(_MARK).schema
    name = session.own_name("stage")
    with session.errors("creating the table for keys"):
        kinds = [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]
        session.main().execute(
            create_staging(session.own_table("stage"), [*kinds, (_DIGEST, "text"), (_GONE, "boolean")])
        )
    table = _wired(keys, schema).toArrow()
    batches = table.combine_chunks().to_batches(COPY_ROWS)
    if not batches:
        return schema, 0
    tally = adbc_copy.Tally([(column, False) for column in table.column_names])
    failure = None
    try:
        with adbc_copy.bulk_connection(session.dsn) as bulk:
            adbc_copy.run_interruptibly(
                lambda: adbc_copy.copy_batches(bulk, name, batches[0], iter(batches[1:]), tally),
                cancel=bulk.adbc_cancel,
            )
    except StagingFailed as error:
        failure = error_of_state(error.sqlstate, "copying keys")
    if failure is not None:
        raise_alone(failure)
    return schema, table.num_rows


def _with_gone(
    keys: DataFrame, columns: Columns, erasing: Erasing, found: Mapping[str, ColumnType], version: int
) -> DataFrame:
    """The keys with the target's names, and whether the source has lost them, or all that is personal in their rows."""
    from pyspark.sql import functions as F

    there = ChangeFeed(keys.sparkSession, erasing.table).snapshot(version)
    personal = [name for name in _personal(columns, erasing, found) if name in there.columns]
    if erasing.on_erase == "nullify" and personal:
        there = there.where(reduce(operator.or_, (quoted(name).isNotNull() for name in personal)))
    there = there.select(*map(quoted, erasing.key), F.lit(True).alias(_MARK))
    return keys.join(there, list(erasing.key), "left").select(
        *(quoted(name).alias(columns.target_name(name)) for name in erasing.key), F.col(_MARK).isNull().alias(_MARK)
    )


def _wired(keys: DataFrame, schema: StructType) -> DataFrame:
    """What PostgreSQL cannot hold is in no row of the target: of such a key only the digest goes there, for its letter."""
    from pyspark.sql import functions as F

    names = tuple(schema.fieldNames())
    with plain_decimals(keys.sparkSession):
        marked = keys.withColumn(CHANGE_TYPE, F.lit(DELETE))
        storable = storability.unstorable_reason(schema, names).isNull()
        return marked.select(
            *(F.when(storable, wire(f.name, f.dataType)).alias(f"c{n}") for n, f in enumerate(schema.fields)),
            key_digest(schema, names).alias(_DIGEST),
            F.col(_MARK).alias(_GONE),
        )


def _caught(
    session: Session, columns: Columns, deletes: Deletes, erasing: Erasing, found: Mapping[str, ColumnType]
) -> list[DataFrame]:
    """The keys of kept rows that are the subjects' by what they hold: the source may have lost them long ago."""
    with session.errors("looking for rows that are kept"):
        connection = session.main()
        may_be_left = _may_be_left(connection, session.target, deletes, found)
    if may_be_left is None:
        return []
    spark = erasing.keys().sparkSession
    schema = ChangeFeed(spark, erasing.table).snapshot().schema
    caught = []
    with session.errors("reading the rows that are kept"), connection.transaction():
        connection.execute("set local row_security = off")
        for rows in kept_rows(connection, session.target, columns, found, schema, spark, where=may_be_left):
            held = erasing.catch(rows).select(*map(quoted, erasing.key)).collect()
            kinds = rows.select(*map(quoted, erasing.key)).schema
            if held:
                caught.append(spark.createDataFrame(spark.sparkContext.parallelize(held), kinds))
    return caught


def kept(
    session: Session, columns: Columns, deletes: Deletes, source: ChangeFeed, wanted: Collection[str]
) -> Iterator[DataFrame]:
    """The wanted columns of the rows among which those are that the source has lost."""
    from pyspark.sql.types import StructType

    schema = StructType([field for field in source.snapshot().schema if field.name in wanted])
    with session.errors("reading the rows that are kept"), session.connect() as connection, connection.transaction():
        connection.execute("set local row_security = off")
        found = read_column_types(connection, session.target)
        where = _may_be_left(connection, session.target, deletes, found) if found else None
        if where is not None:
            yield from kept_rows(connection, session.target, columns, found, schema, source.spark, where=where)


def _may_be_left(
    connection: Connection, target: TargetName, deletes: Deletes, found: Mapping[str, ColumnType]
) -> sql.Composable | None:
    """The rows (``t``) among which those are that the source has lost; None: there is none. Where the target has refused
    something any row may be one."""
    which = sql.SQL("true") if dead_letters.read_key_digests(connection, str(target)) else _may_go(deletes, found)
    if which is None:
        return None
    query = sql.SQL("select exists (select from {} t where {})").format(target.identifier, which)
    return which if connection.execute(query).fetchone() == (True,) else None


def _may_go(deletes: Deletes, found: Mapping[str, ColumnType]) -> sql.Composable | None:
    """The rows (``t``) that the target keeps on purpose, the source's lost ones among them; None: it keeps none."""
    if deletes == "soft" and DELETED_AT in found:
        return sql.SQL("t.{} is not null").format(sql.Identifier(DELETED_AT))
    return sql.SQL("true") if deletes == "ignore" else None


# ── the transaction ──────────────────────────────────────────────────────────────────────────────────────────────────


def _unrefused(session: Session, work: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Rejected rows have to do with the feed in the usual words: here it is the erasing that the target refuses."""
    try:
        with session.errors("erasing"):
            return work()
    except RowRejected as error:
        refused = RowRejected(error.message, hint=_REFUSED, condition=error.condition)
    return raise_alone(refused)


def _forgotten(
    session: Session,
    columns: Columns,
    deletes: Deletes,
    erasing: Erasing,
    found: Mapping[str, ColumnType],
    keys: StructType,
    staged_keys: int,
    position: Position,
) -> tuple[int, int]:
    """→ rows, dead letters"""
    connection, lease = session.main(), session.require_lease()
    staged = session.own_table("stage")
    names = {"target": str(session.target), "last": max(erasing.versions, default=position.version)}
    rows = letters = 0
    with connection.transaction():
        connection.execute("set local row_security = off")  # better an error than rows that a policy hides from us
        positions.lock_position(connection, lease, expected=position.version, first=None)
        if _number(connection, sql.SQL("select count(*) from {}").format(staged), {}) != staged_keys:
            raise SinkUnavailable(
                "staging holds another number of keys than were copied into it: the server was restarted meanwhile",
                hint="nothing was changed: erase again",
            )
        connection.execute(sql.SQL("analyze {}").format(staged))
        has_letters = bool(dead_letters.read_key_digests(connection, str(session.target)))
        emptied = _personal(columns, erasing, found) if erasing.on_erase == "nullify" else None
        if emptied != []:
            told = _Rows(
                session.target,
                staged,
                _matches(session.target, keys, found),
                [*map(columns.target_name, emptied or ())],
            )
            rows = _removed(
                connection, told, _may_go(deletes, found) if deletes == "soft" else None, has_letters, names
            )
        if has_letters:
            of_letters = _DELETE_LETTERS if emptied is None else _NULLIFY_LETTERS
            letters = connection.execute(of_letters.format(staged), names).rowcount
        if migrations.has_holds_rows(connection):
            positions.record_rows(connection, session.target)
    return rows, letters


_OLD_LETTERS = "d.target = %(target)s and d.key_digest = s.digest and (s.gone or coalesce(d.version, 0) <= %(last)s)"
_DELETE_LETTERS = sql.SQL("delete from deltarelay.dead_letter d using {} s where " + _OLD_LETTERS)
_NULLIFY_LETTERS = sql.SQL(
    "update deltarelay.dead_letter d set row = null from {} s where d.row is not null and " + _OLD_LETTERS
)
_HAS_LETTER = sql.SQL(
    "exists (select from deltarelay.dead_letter d where d.target = %(target)s and d.key_digest = s.digest)"
)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The target's rows (``t``) under staged keys (``s``), with anything left to remove."""

    target: TargetName
    staged: sql.Identifier
    matches: sql.Composable
    emptied: Sequence[str]
    """The target's columns that lose their values; none where rows go as a whole."""

    def removal(self, where: sql.Composable) -> sql.Composed:
        into = Name(self.target.schema, self.target.table)
        if not self.emptied:
            return sql.SQL("delete from {} t using {} s where {}").format(into, self.staged, self._filled(where))
        empty = sql.SQL(", ").join(sql.SQL("{} = null").format(Name(name)) for name in self.emptied)
        return sql.SQL("update {} t set {} from {} s where {}").format(into, empty, self.staged, self._filled(where))

    def count(self, where: sql.Composable) -> sql.Composed:
        into = Name(self.target.schema, self.target.table)
        return sql.SQL("select count(*) from {} t, {} s where {}").format(into, self.staged, self._filled(where))

    def _filled(self, where: sql.Composable) -> sql.Composed:
        found = sql.SQL("{} and {}").format(self.matches, where)
        if not self.emptied:
            return found
        values = sql.SQL(", ").join(sql.SQL("t.{}").format(Name(name)) for name in self.emptied)
        return sql.SQL("{} and num_nonnulls({}) > 0").format(found, values)


def _personal(columns: Columns, erasing: Erasing, found: Mapping[str, ColumnType]) -> list[str]:
    """Those that the target has, by the source's names."""
    return [
        name
        for name in erasing.personal
        if name not in erasing.key and columns.includes(name) and columns.target_name(name) in found
    ]


def _removed(
    connection: Connection, told: _Rows, marked: sql.Composable | None, has_letters: bool, names: Mapping[str, Any]
) -> int:
    """→ rows. ``marked``: those that go though the source may have the key again."""
    gone: sql.Composable = sql.SQL("s.{}").format(sql.Identifier(_GONE))
    if marked is not None:
        gone = sql.SQL("({} or {})").format(gone, marked)
    unsure = sql.SQL("not {} and {}").format(gone, _HAS_LETTER)
    if has_letters and (count := _number(connection, told.count(unsure), names)):
        raise RowRejected(
            f"{count} rows of {told.target} whose keys were erased and came back are dead letters: what the target holds "
            "under them may be from before the erasure"
        )
    rows = connection.execute(told.removal(gone), names).rowcount
    if count := _number(connection, told.count(gone), names):
        raise RowRejected(f"{told.target} keeps {count} rows that are to be erased: a trigger or rule of its own")
    return rows


def _number(connection: Connection, statement: sql.Composed, names: Mapping[str, Any]) -> int:
    row = connection.execute(statement, names).fetchone()
    assert row is not None
    return int(row[0])


def _matches(target: TargetName, keys: StructType, found: Mapping[str, ColumnType]) -> sql.Composed:
    """A staged key (``s``) is that of a target's row (``t``). One that does not fit the target's type is that of none."""
    names = tuple(keys.fieldNames())
    layout = Layout(keys, names, (), find_casts(str(target), keys, found), "hard", partitioned=False)
    fits = faithful_conditions(layout)
    same = []
    for number, name in enumerate(names):
        value = staged_value(layout, name, Name(f"c{number}"))
        if name in fits:
            value = sql.SQL("case when {} then {} end").format(fits[name], value)
        same.append(equal(Name("t", name), value))
    return sql.SQL(" and ").join(same)
