"""What the delete that came through the feed has left of a person in the target, removed.

Two kinds of keys count: those that the source has erased, and those of rows that the target keeps though the source lost
them earlier, and that are the person's by what they hold (``Erasing.catch``). Under these keys go

    deletes: soft     the rows that are marked as deleted. One that came back since has lost its mark, and stays
    deletes: ignore   the rows whose key the source does not have at the target's position: the source itself is asked
    deletes: hard     nothing: the feed has deleted them, and a row that is there has come back
    dead letters      those not later than the erasure. A later one is of a key that came back
    nullify           the same rows lose their personal values, and letters the row that they keep: a letter without which
                      nobody knew that the target lacks a row stays

Live rows are never touched, since the feed has made them right. It is all done under the target's lease, in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.canonical import key_digest, plain_decimals
from cdf.change import CHANGE_TYPE, DELETE
from cdf.errors import SinkUnavailable, WindowOutOfOrder
from cdf.sink import Position
from cdf.source import ChangeFeed
from connectors.postgres import dead_letters, marking, staging
from connectors.postgres import position as positions
from connectors.postgres.casts import casts_for
from connectors.postgres.columns import DELETED_AT
from connectors.postgres.errors import StagingFailed, of_state, raise_alone
from connectors.postgres.kept import kept_rows
from connectors.postgres.schema import TargetName, column_types, create_staging
from connectors.postgres.sql import Layout, Name, faithful_of, staged_value
from connectors.postgres.types import staging_type, wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from audit.erasure.places import Erasing
    from connectors.postgres.casts import Found
    from connectors.postgres.columns import Columns
    from connectors.postgres.modes import Deletes
    from connectors.postgres.session import Session

__all__ = ["forget", "kept"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

_DIGEST = "digest"


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
            found = column_types(session.main(), session.target)
        if found and position.version is not None:
            keys = _staged_keys(session, columns, deletes, erasing, found, position.version)
            with session.errors("erasing"):
                rows, letters = _forgotten(session, columns, deletes, erasing, found, keys, position)
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
    if not column_types(connection, TargetName(staging.SCHEMA, "position")):
        return None
    row = connection.execute(
        "select pipeline, source from deltarelay.position where target = %s", [str(target)]
    ).fetchone()
    return None if row is None else (row[0], row[1])


@contextmanager
def _alone(session: Session, pipeline: str, source: str) -> Iterator[tuple[Position, int]]:
    """Under the target's lease. → the position, the tables that dead runners had left"""
    renewal: positions.Renewal | None = None
    try:
        with session.errors("opening the target"):
            connection = session.main()
            session.lease, position = positions.take_lease(
                connection, str(session.target), pipeline=pipeline, source=source
            )
            renewal = positions.Renewal(session.connect, session.lease)
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
    found: Mapping[str, Found],
    version: int,
) -> StructType:
    """The keys in a table of ours, with the types in which a key is staged. → their schema, with the target's names"""
    keys = erasing.keys()
    keys = reduce(
        lambda all_keys, more: all_keys.unionByName(more), _caught(session, columns, deletes, erasing, found), keys
    )
    if deletes == "ignore":
        there = ChangeFeed(keys.sparkSession, erasing.table).snapshot(version)
        keys = keys.join(there, list(erasing.key), "left_anti")
    keys = keys.select(*(keys[f"`{name}`"].alias(columns.name(name)) for name in erasing.key)).distinct()
    schema = keys.schema
    name = session.own_name("stage")
    with session.errors("creating the table for keys"):
        kinds = [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]
        session.main().execute(create_staging(session.own_table("stage"), [*kinds, (_DIGEST, "text")]))
    table = _wired(keys, schema).toArrow()
    batches = table.combine_chunks().to_batches(staging.COPY_ROWS)
    if not batches:
        return schema
    tally = staging.Tally([(column, False) for column in table.column_names])
    failure = None
    with staging.bulk_connection(session.dsn) as bulk:
        try:
            staging.interruptible(
                lambda: staging.copy_batches(bulk, name, batches[0], iter(batches[1:]), tally), cancel=bulk.adbc_cancel
            )
        except StagingFailed as error:
            failure = of_state(error.sqlstate, "copying keys")
    if failure is not None:
        raise_alone(failure)
    return schema


def _wired(keys: DataFrame, schema: StructType) -> DataFrame:
    """What PostgreSQL cannot hold is in no row of the target: of such a key only the digest goes there, for its letter."""
    from pyspark.sql import functions as F

    names = tuple(schema.fieldNames())
    with plain_decimals(keys.sparkSession):
        marked = keys.withColumn(CHANGE_TYPE, F.lit(DELETE))
        storable = marking.reason(schema, names).isNull()
        return marked.select(
            *(F.when(storable, wire(f.name, f.dataType)).alias(f"c{n}") for n, f in enumerate(schema.fields)),
            key_digest(schema, names).alias(_DIGEST),
        )


def _caught(
    session: Session, columns: Columns, deletes: Deletes, erasing: Erasing, found: Mapping[str, Found]
) -> list[DataFrame]:
    """The keys of kept rows that are the subjects' by what they hold: the source may have lost them long ago."""
    may_go = _may_go(deletes, found)
    if may_go is None:
        return []
    with session.errors("looking for rows that are kept"):
        connection = session.main()
        if not _has(connection, session.target, may_go):
            return []
    spark = erasing.keys().sparkSession
    schema = ChangeFeed(spark, erasing.table).snapshot().schema
    caught = []
    with session.errors("reading the rows that are kept"), connection.transaction():
        connection.execute("set local row_security = off")
        for rows in kept_rows(connection, session.target, columns, found, schema, spark, where=may_go):
            held = erasing.catch(rows).select(*(f"`{name}`" for name in erasing.key)).collect()
            kinds = rows.select(*(f"`{name}`" for name in erasing.key)).schema
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
        found = column_types(connection, session.target)
        may_go = _may_go(deletes, found)
        if may_go is not None and found and _has(connection, session.target, may_go):
            yield from kept_rows(connection, session.target, columns, found, schema, source.spark, where=may_go)


def _has(connection: Connection, target: TargetName, which: sql.Composable) -> bool:
    query = sql.SQL("select exists (select from {} t where {})").format(target.identifier, which)
    return connection.execute(query).fetchone() == (True,)


def _may_go(deletes: Deletes, found: Mapping[str, Found]) -> sql.Composable | None:
    """The rows (``t``) among which those are that the source has lost; None: there is none."""
    if deletes == "soft" and DELETED_AT in found:
        return sql.SQL("t.{} is not null").format(sql.Identifier(DELETED_AT))
    return sql.SQL("true") if deletes == "ignore" else None


# ── the transaction ──────────────────────────────────────────────────────────────────────────────────────────────────


def _forgotten(
    session: Session,
    columns: Columns,
    deletes: Deletes,
    erasing: Erasing,
    found: Mapping[str, Found],
    keys: StructType,
    position: Position,
) -> tuple[int, int]:
    """→ rows, dead letters"""
    connection, lease = session.main(), session.held()
    may_go = _may_go(deletes, found)
    staged = session.own_table("stage")
    names = {"target": str(session.target), "last": max(erasing.versions, default=position.version)}
    rows = letters = 0
    with connection.transaction():
        connection.execute("set local row_security = off")  # better an error than rows that a policy hides from us
        positions.lock_position(connection, lease, expected=position.version, first=None)
        connection.execute(sql.SQL("analyze {}").format(staged))
        if may_go is not None:
            matches = sql.SQL("{} and {}").format(_matches(session.target, keys, found), may_go)
            statement = _rows_statement(session.target, columns, erasing, found, staged, matches)
            rows = 0 if statement is None else connection.execute(statement, names).rowcount
        if dead_letters.digests_of(connection, str(session.target)):
            of_letters = _NULLIFY_LETTERS if erasing.on_erase == "nullify" else _DELETE_LETTERS
            letters = connection.execute(of_letters.format(staged), names).rowcount
    return rows, letters


_OLD_LETTERS = "d.target = %(target)s and d.key_digest = s.digest and coalesce(d.version, 0) <= %(last)s"
_DELETE_LETTERS = sql.SQL("delete from deltarelay.dead_letter d using {} s where " + _OLD_LETTERS)
_NULLIFY_LETTERS = sql.SQL(
    "update deltarelay.dead_letter d set row = null from {} s where d.row is not null and " + _OLD_LETTERS
)


def _rows_statement(
    target: TargetName,
    columns: Columns,
    erasing: Erasing,
    found: Mapping[str, Found],
    staged: sql.Identifier,
    matches: sql.Composable,
) -> sql.Composed | None:
    into = Name(target.schema, target.table)
    if erasing.on_erase == "delete":
        return sql.SQL("delete from {} t using {} s where {}").format(into, staged, matches)
    personal = [
        Name(columns.name(name))
        for name in erasing.personal
        if name not in erasing.key and columns.takes(name) and columns.name(name) in found
    ]
    if not personal:
        return None
    return sql.SQL("update {} t set {} from {} s where {} and num_nonnulls({}) > 0").format(
        into,
        sql.SQL(", ").join(sql.SQL("{} = null").format(name) for name in personal),
        staged,
        matches,
        sql.SQL(", ").join(sql.SQL("t.{}").format(name) for name in personal),
    )


def _matches(target: TargetName, keys: StructType, found: Mapping[str, Found]) -> sql.Composed:
    """A staged key (``s``) is that of a target's row (``t``). One that does not fit the target's type is that of none."""
    names = tuple(keys.fieldNames())
    layout = Layout(keys, names, (), casts_for(str(target), keys, found), "hard", partitioned=False)
    fits = faithful_of(layout)
    same = []
    for number, name in enumerate(names):
        value = staged_value(layout, name, Name(f"c{number}"))
        if name in fits:
            value = sql.SQL("case when {} then {} end").format(fits[name], value)
        same.append(sql.SQL("t.{} = {}").format(Name(name), value))
    return sql.SQL(" and ").join(same)
