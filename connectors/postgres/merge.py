"""Make the target equal a copy that lies beside it by writing only what differs: its views, keys and policies stay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import SinkUnavailable, TargetNotReady
from cdf.sink import Position
from connectors.postgres import position as positions
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspection import additions
from connectors.postgres.load import key_violation, refuse_rows
from connectors.postgres.schema import add_primary_key, column_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdf.window import Snapshot
    from connectors.postgres.session import Session

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


def merge(session: Session, snapshot: Snapshot, rows: int, *, before: Position) -> tuple[str, ...]:
    """Rows, columns and position in one transaction. → the DDL that was run"""
    lease, target, loaded = session.held(), session.target, session.own_table("load")
    connection = session.main()
    with connection.transaction():
        positions.lock_position(connection, lease, expected=before.version, first=None)
        # Where policies hold for this role they would hide rows from it: better an error than half a target
        connection.execute("set local row_security = off")
        ddl = tuple(additions(target, column_names(connection, target), snapshot.schema))
        # New columns need the table for themselves; otherwise readers go on as if nothing happened
        mode = sql.SQL("access exclusive" if ddl else "share row exclusive")
        connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
        connection.execute(sql.SQL("lock table {} in {} mode").format(target.identifier, mode))
        connection.execute("set local lock_timeout = 0")
        if before.version is None:
            refuse_rows(connection, session)
        for statement in ddl:
            connection.execute(statement)
        if _count(connection, loaded) != rows:
            raise SinkUnavailable(
                "the copy lost its rows: the server was restarted meanwhile",
                hint="nothing was changed: run again",
            )
        written = {
            kind: connection.execute(statement).rowcount
            for kind, statement in _statements(target.identifier, loaded, snapshot).items()
        }
        if _count(connection, target.identifier) != rows:
            raise TargetNotReady(
                f"{target} does not hold the rows that were written to it: a trigger or a rule changes them",
                hint="take it off the table, and reload again",
            )
        connection.execute(sql.SQL("drop table {}").format(loaded))
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        positions.move_recorded(connection, lease, before=before, to=after, action="reload")
    log.info("merged", extra={"target": str(target), **written})
    return ddl


def _statements(target: sql.Identifier, loaded: sql.Identifier, snapshot: Snapshot) -> dict[str, sql.Composed]:
    names = snapshot.schema.fieldNames()
    others = [name for name in names if name not in snapshot.key]
    same_key = sql.SQL(" and ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in snapshot.key)
    statements = {
        "deletes": sql.SQL("delete from {} t where not exists (select from {} s where {})").format(
            target, loaded, same_key
        )
    }
    if others:
        # Compared by their bytes: `is distinct from` takes -0.0 for 0.0, 1.50 in jsonb for 1.5, and what a collation says
        statements["updates"] = sql.SQL(
            "update {} t set {} from {} s where {} and row({})::record *<> row({})::record"
        ).format(
            target,
            sql.SQL(", ").join(sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in others),
            loaded,
            same_key,
            _listed(others, "t."),
            _listed(others, "s."),
        )
    statements["inserts"] = sql.SQL(
        "insert into {} ({}) select {} from {} s where not exists (select from {} t where {}) order by {}"
    ).format(target, _listed(names), _listed(names, "s."), loaded, target, same_key, _listed(snapshot.key, "s."))
    return statements


def _listed(names: Iterable[str], prefix: str = "") -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(prefix) + sql.Identifier(name) for name in names)


def _count(connection: Connection, table: sql.Identifier) -> int:
    row = connection.execute(sql.SQL("select count(*) from {}").format(table)).fetchone()
    assert row is not None
    return int(row[0])
