"""Make the target equal a copy that lies beside it by writing only what differs: its views, keys and policies stay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import SinkUnavailable, TargetNotReady
from cdf.sink import Position
from connectors.postgres import position as positions
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.conversions import Cast, casts_for
from connectors.postgres.errors import raise_alone, refuse_swallowed
from connectors.postgres.inspect import additions
from connectors.postgres.state.dead_letters import CLASHES, clash, forget_all
from connectors.postgres.target.ddl import (
    add_primary_key,
    column_types,
    further_columns,
    reached_by_deletes,
    suppresses_writes,
)
from connectors.postgres.write.initial_load import add_own, key_violation, refuse_misfits_of, refuse_rows
from connectors.postgres.write.statements import equal, filled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session
    from connectors.postgres.options import Deletes

__all__ = ["add_key", "merge"]

log = logging.getLogger("deltarelay.postgres")

LOCK_TIMEOUT = "1s"

Connection = psycopg.Connection[Any]


def add_key(session: Session, snapshot: Snapshot) -> None:
    """Make sure that the copy has each key once; the merge looks rows up by it."""
    loaded, keyed = session.own_table("load"), True
    with session.errors("building the key of the copy"):
        try:
            session.main().execute(add_primary_key(loaded, snapshot.key))
        except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
            keyed = False
        else:
            session.main().execute(sql.SQL("analyze {}").format(loaded))
    if not keyed:
        session.drop("load")
        raise_alone(key_violation(snapshot))


def merge(
    session: Session,
    snapshot: Snapshot,
    rows: int,
    own: Sequence[str],
    deletes: Deletes,
    *,
    before: Position,
    action: str | None,
    counts: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """Rows, columns and position in one transaction. → the DDL that was run"""
    try:
        return _merged(
            session, snapshot, rows, own, deletes, before=before, action=action, counts=counts, leaving=False
        )
    except CLASHES as error:
        # Values may change places under a second unique index, of which an UPDATE sees one row after the other
        reached = reached_by_deletes(session.main(), session.target)
        if reached is not None:
            raise_alone(clash(session.target, error, reached))
    return _merged(session, snapshot, rows, own, deletes, before=before, action=action, counts=counts, leaving=True)


def _merged(
    session: Session,
    snapshot: Snapshot,
    rows: int,
    own: Sequence[str],
    deletes: Deletes,
    *,
    before: Position,
    action: str | None,
    counts: Mapping[str, int] | None,
    leaving: bool,
) -> tuple[str, ...]:
    """``leaving``: the rows that differ leave before the first of them comes back."""
    lease, target, loaded = session.held(), session.target, session.own_table("load")
    connection = session.main()
    with connection.transaction():
        positions.lock_position(connection, lease, expected=before.version, first=None)
        # Where policies hold for this role they would hide rows from it: better an error than half a target
        connection.execute("set local row_security = off")
        ddl = tuple(additions(target, column_types(connection, target), snapshot.schema, own))
        # New columns need the table for themselves; otherwise readers go on as if nothing happened
        mode = sql.SQL("access exclusive" if ddl else "share row exclusive")
        patience = connection.execute("select current_setting('lock_timeout')").fetchone()
        assert patience is not None
        connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
        connection.execute(sql.SQL("lock table {} in {} mode").format(target.identifier, mode))
        connection.execute("select set_config('lock_timeout', %s, true)", patience)  # of rows, which others may hold
        if before.version is None:
            refuse_rows(connection, session)
        for statement in ddl:
            connection.execute(statement)
        if _count(connection, loaded) != rows:
            raise SinkUnavailable(
                "the copy lost its rows: the server was restarted meanwhile",
                hint="nothing was changed: run again",
            )
        casts = casts_for(str(target), snapshot.schema, column_types(connection, target))
        refuse_misfits_of(connection, str(target), loaded, snapshot.schema, casts)
        add_own(connection, loaded, own, snapshot)
        connection.execute("set constraints all deferred")
        aside = session.own_table("aside") if leaving else None
        further = further_columns(connection, target, {*snapshot.schema.fieldNames(), *own}) if leaving else ()
        statements = _statements(target.identifier, loaded, snapshot, casts, own, deletes, aside, further)
        checked = suppresses_writes(connection, target)
        written: dict[str, int] = {}
        for kind, (write, demanded) in statements.items():
            wanted = _scalar(connection, demanded) if checked and demanded is not None else None
            written[kind] = connection.execute(write).rowcount
            wanted = written["take"] if kind == "updates" and "take" in written else wanted
            if wanted is not None:
                refuse_swallowed(target, kind.removesuffix("s"), wanted=wanted, touched=written[kind])
        written = {kind: written[kind] for kind in ("deletes", "updates", "inserts") if kind in written}
        held = _count(connection, target.identifier, alive=deletes == "soft")
        if (held < rows) if deletes == "ignore" else held != rows:
            raise TargetNotReady(
                f"{target} does not hold the rows that were written to it: a trigger or a rule changes them",
                hint="take it off the table, and reload again",
            )
        connection.execute(sql.SQL("drop table {}").format(loaded))
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        forget_all(connection, str(target))  # each row of the source is stored now
        positions.record_rows(connection, target)
        positions.move_recorded(connection, lease, before=before, to=after, action=action)
        session.record(connection, **(written if counts is None else counts))
    log.info("merged", extra={"target": str(target), **written})
    return ddl


def _statements(
    target: sql.Identifier,
    loaded: sql.Identifier,
    snapshot: Snapshot,
    casts: Mapping[str, Cast],
    own: Sequence[str],
    deletes: Deletes,
    aside: sql.Identifier | None,
    further: Sequence[str],
) -> dict[str, tuple[sql.Composed, sql.Composed | None]]:
    """``aside``: a table of ours to be, for the rows that leave before they come back. ``further``: the target's columns
    that are none of the source's, for which there is nothing but the row that leaves. → each with the query that counts the
    rows which it has to touch, asked before it"""
    names, key = snapshot.schema.fieldNames(), snapshot.key
    values = {name: filled(casts[name].value, sql.Identifier("s", name), parameters=False) for name in names}
    values |= {name: sql.Identifier("s", name) for name in own}
    others = [name for name in names if name not in key]
    same_key = sql.SQL(" and ").join(equal(sql.Identifier("t", name), values[name]) for name in key)
    mark = sql.Identifier("t", DELETED_AT)
    statements: dict[str, tuple[sql.Composed, sql.Composed | None]] = {}
    count = sql.SQL("select count(*) from {} ")
    gone = sql.SQL("where not exists (select from {} s where {})").format(loaded, same_key)
    if deletes == "hard":
        statements["deletes"] = (
            sql.SQL("delete from {} t ").format(target) + gone,
            count.format(target) + sql.SQL("t ") + gone,
        )
    elif deletes == "soft":
        gone = sql.SQL("{} and {} is null").format(gone, mark)
        statements["deletes"] = (
            sql.SQL("update {} t set {} = now() ").format(target, sql.Identifier(DELETED_AT)) + gone,
            count.format(target) + sql.SQL("t ") + gone,
        )
    # Compared by their bytes: `is distinct from` takes -0.0 for 0.0, 1.50 in jsonb for 1.5, and what a collation says
    differs = [
        sql.SQL("row({})::record *<> row({})::record").format(
            sql.SQL(", ").join(sql.Identifier("t", name) for name in others),
            sql.SQL(", ").join(values[name] for name in others),
        )
    ] * bool(others)
    if deletes == "soft":
        differs.append(sql.SQL("{} is not null").format(mark))
    # A column of ours may have come later than the row
    later = sql.SQL("{} is null and {} is not null")
    differs += [later.format(sql.Identifier("t", name), values[name]) for name in own if name != DELETED_AT]
    written = [*others, *own]
    if differs and aside is not None:
        make = sql.SQL("create unlogged table {} as select * from {} with no data").format(aside, target)
        statements["make"] = make, None
        take = sql.SQL(
            "with gone as (delete from {} t using {} s where {} and ({}) returning t.*) insert into {} select * from gone"
        ).format(target, loaded, same_key, sql.SQL(" or ").join(differs), aside)
        statements["take"] = take, None
        back = sql.SQL("insert into {} ({}) overriding system value select {} from {} s join {} t on {}").format(
            target,
            sql.SQL(", ").join(map(sql.Identifier, [*values, *further])),
            sql.SQL(", ").join([*values.values(), *(sql.Identifier("t", name) for name in further)]),
            loaded,
            aside,
            same_key,
        )
        statements["updates"] = back, None  # as many as "take" took
        statements["drop"] = sql.SQL("drop table {}").format(aside), None
    elif differs:
        changed = sql.SQL("{} s where {} and ({})").format(loaded, same_key, sql.SQL(" or ").join(differs))
        statements["updates"] = (
            sql.SQL("update {} t set {} from {}").format(
                target,
                sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), values[name]) for name in written),
                changed,
            ),
            count.format(target) + sql.SQL("t, ") + changed,
        )
    fresh = sql.SQL("{} s where not exists (select from {} t where {})").format(loaded, target, same_key)
    statements["inserts"] = (
        sql.SQL("insert into {} ({}) overriding system value select {} from {} order by {}").format(
            target,
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(values.values()),
            fresh,
            sql.SQL(", ").join(sql.Identifier("s", name) for name in key),
        ),
        sql.SQL("select count(*) from {}").format(fresh),
    )
    return statements


def _count(connection: Connection, table: sql.Identifier, *, alive: bool = False) -> int:
    marked = sql.SQL(" where {} is null").format(sql.Identifier(DELETED_AT)) if alive else sql.SQL("")
    return _scalar(connection, sql.SQL("select count(*) from {}{}").format(table, marked))


def _scalar(connection: Connection, statement: sql.Composed) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])
