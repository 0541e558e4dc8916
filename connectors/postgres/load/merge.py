"""Make the target equal to a loaded copy by writing only the rows that differ. Views, foreign keys and policies are kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.errors import SinkUnavailable, TargetNotReady
from cdf.sink import Position
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.conversions import Cast, find_casts
from connectors.postgres.errors import clash_error, refuse_swallowed
from connectors.postgres.load.initial_load import add_metadata_columns, explain_key_violation, refuse_rows
from connectors.postgres.sql_parts import equal, fill_template
from connectors.postgres.sqlstates import CLASHES
from connectors.postgres.state import position as positions
from connectors.postgres.state.dead_letters import delete_all_dead_letters
from connectors.postgres.target.ddl import add_missing_columns, add_primary_key
from connectors.postgres.target.reflection import (
    find_delete_action,
    read_column_types,
    read_further_columns,
    suppresses_writes,
)
from connectors.postgres.write.misfits import refuse_misfits_of_table
from connectors.postgres.write.record_writer import fetch_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session
    from connectors.postgres.options import Deletes

__all__ = ["add_key", "merge_rows"]

log = logging.getLogger("deltarelay.postgres")

LOCK_TIMEOUT = "1s"

Connection = psycopg.Connection[Any]


def add_key(session: Session, snapshot: Snapshot) -> None:
    """Check that the copy has each key once; the merge looks rows up by it."""
    loaded, is_keyed = session.own_table("load"), True
    with session.errors("building the key of the copy"):
        try:
            session.main().execute(add_primary_key(loaded, snapshot.key))
        except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
            is_keyed = False
        else:
            session.main().execute(sql.SQL("analyze {}").format(loaded))
    if not is_keyed:
        session.drop("load")
        raise_without_context(explain_key_violation(snapshot))


def merge_rows(
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
    """Write rows, columns and position in one transaction. → the DDL that was executed"""
    try:
        return _merge_once(
            session, snapshot, rows, own, deletes, before=before, action=action, counts=counts, deletes_first=False
        )
    except CLASHES as error:
        # Rows may swap values under a secondary unique index, which an UPDATE checks row by row
        reached = find_delete_action(session.main(), session.target)
        if reached is not None:
            raise_without_context(clash_error(session.target, error, reached))
    return _merge_once(
        session, snapshot, rows, own, deletes, before=before, action=action, counts=counts, deletes_first=True
    )


def _merge_once(
    session: Session,
    snapshot: Snapshot,
    rows: int,
    own: Sequence[str],
    deletes: Deletes,
    *,
    before: Position,
    action: str | None,
    counts: Mapping[str, int] | None,
    deletes_first: bool,
) -> tuple[str, ...]:
    """``deletes_first``: delete all differing rows before the first of them is inserted again."""
    lease, target, loaded = session.require_lease(), session.target, session.own_table("load")
    connection = session.main()
    with connection.transaction():
        positions.lock_position(connection, lease, expected=before.version, first=None)
        # If policies apply to this role, raise an error instead of missing the rows that they hide
        connection.execute("set local row_security = off")
        ddl = tuple(add_missing_columns(target, read_column_types(connection, target), snapshot.schema, own))
        # New columns need an exclusive lock; otherwise readers are not blocked
        mode = sql.SQL("access exclusive" if ddl else "share row exclusive")
        patience = connection.execute("select current_setting('lock_timeout')").fetchone()
        assert patience is not None
        connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
        connection.execute(sql.SQL("lock table {} in {} mode").format(target.identifier, mode))
        connection.execute("select set_config('lock_timeout', %s, true)", patience)  # for row locks of other sessions
        if before.version is None:
            refuse_rows(connection, session)
        for statement in ddl:
            connection.execute(statement)
        if _count(connection, loaded) != rows:
            raise SinkUnavailable(
                "the copy lost its rows: the server was restarted meanwhile",
                hint="nothing was changed: run again",
            )
        casts = find_casts(str(target), snapshot.schema, read_column_types(connection, target))
        refuse_misfits_of_table(connection, str(target), loaded, snapshot.schema, casts)
        add_metadata_columns(connection, loaded, own, snapshot)
        connection.execute("set constraints all deferred")
        aside = session.own_table("aside") if deletes_first else None
        further = (
            read_further_columns(connection, target, {*snapshot.schema.fieldNames(), *own}) if deletes_first else ()
        )
        statements = _statements(target.identifier, loaded, snapshot, casts, own, deletes, aside, further)
        is_checked = suppresses_writes(connection, target)
        written: dict[str, int] = {}
        for kind, (write, count) in statements.items():
            wanted = fetch_count(connection, count) if is_checked and count is not None else None
            written[kind] = connection.execute(write).rowcount
            wanted = written["take"] if kind == "updates" and "take" in written else wanted
            if wanted is not None:
                refuse_swallowed(target, kind.removesuffix("s"), wanted=wanted, touched=written[kind])
        written = {kind: written[kind] for kind in ("deletes", "updates", "inserts") if kind in written}
        present = _count(connection, target.identifier, alive=deletes == "soft")
        if (present < rows) if deletes == "ignore" else present != rows:
            raise TargetNotReady(
                f"{target} does not hold the rows that were written to it: a trigger or a rule changes them",
                hint="drop it from the table, and reload again",
            )
        connection.execute(sql.SQL("drop table {}").format(loaded))
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        delete_all_dead_letters(connection, str(target))  # every row of the source is stored now
        positions.record_rows(connection, target)
        positions.move_and_record(connection, lease, before=before, to=after, action=action)
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
    """``aside``: name of a table of ours, for the deleted rows that are inserted again. ``further``: the target's
    columns that are not the source's; only the deleted row has their values. → each statement, with the query that counts
    the rows which it must touch; the query is executed first"""
    names, key = snapshot.schema.fieldNames(), snapshot.key
    values = {name: fill_template(casts[name].value, sql.Identifier("s", name), parameters=False) for name in names}
    values |= {name: sql.Identifier("s", name) for name in own}
    others = [name for name in names if name not in key]
    same_key = sql.SQL(" and ").join(equal(sql.Identifier("t", name), values[name]) for name in key)
    mark = sql.Identifier("t", DELETED_AT)
    statements: dict[str, tuple[sql.Composed, sql.Composed | None]] = {}
    count = sql.SQL("select count(*) from {} ")
    missing = sql.SQL("where not exists (select from {} s where {})").format(loaded, same_key)
    if deletes == "hard":
        statements["deletes"] = (
            sql.SQL("delete from {} t ").format(target) + missing,
            count.format(target) + sql.SQL("t ") + missing,
        )
    elif deletes == "soft":
        missing = sql.SQL("{} and {} is null").format(missing, mark)
        statements["deletes"] = (
            sql.SQL("update {} t set {} = now() ").format(target, sql.Identifier(DELETED_AT)) + missing,
            count.format(target) + sql.SQL("t ") + missing,
        )
    # Compared by their bytes: `is distinct from` treats -0.0 as 0.0 and 1.50 in jsonb as 1.5, and compares text by collation
    differs = [
        sql.SQL("row({})::record *<> row({})::record").format(
            sql.SQL(", ").join(sql.Identifier("t", name) for name in others),
            sql.SQL(", ").join(values[name] for name in others),
        )
    ] * bool(others)
    if deletes == "soft":
        differs.append(sql.SQL("{} is not null").format(mark))
    # A metadata column may have been added later than the row
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
    return fetch_count(connection, sql.SQL("select count(*) from {}{}").format(table, marked))
