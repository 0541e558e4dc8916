"""A loaded table takes the place of the target in one short transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.errors import SinkUnavailable
from cdf.sink import Position
from connectors.postgres.load.initial_load import explain_key_violation, refuse_rows
from connectors.postgres.load.loaded_table import move_to_target, rename_constraints
from connectors.postgres.state import position as positions
from connectors.postgres.state.dead_letters import delete_all_dead_letters
from connectors.postgres.target.ddl import add_comment, add_primary_key
from connectors.postgres.target.definition import TableDefinition, read_definition

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session
    from connectors.postgres.load.clone_definition import DefinitionCloner

__all__ = ["LOCK_TIMEOUT", "build_successor", "swap_tables"]

LOCK_TIMEOUT = "1s"
"""While a swap waits for its lock every session behind it waits as well: so it waits briefly, and tries again."""

Connection = psycopg.Connection[Any]


def build_successor(session: Session, snapshot: Snapshot, cloner: DefinitionCloner | None) -> tuple[str, ...]:
    """Give the loaded table its key and the old table's definition. → the statements that were executed"""
    executed: list[str] = []
    loaded = session.own_table("load")
    is_keyed = True
    with session.errors("building the key of the new table"):
        connection = session.main()
        try:
            if cloner is None:
                connection.execute(add_primary_key(loaded, snapshot.key))
            else:
                for statement in cloner.key_statements():
                    connection.execute(statement)
                    executed.append(statement.as_string(connection))
                is_keyed = connection.execute(cloner.has_null_keys()).fetchone() == (False,)
        except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
            is_keyed = False
    if not is_keyed:
        session.drop("load")
        raise_without_context(explain_key_violation(snapshot))
    for subject, statement in cloner.other_statements() if cloner is not None else ():
        with session.errors(f"giving the new table {subject} of the old one"):
            session.main().execute(statement)
            executed.append(statement.as_string(session.main()))
    with session.errors("giving the new table the rights of the old one"):
        connection = session.main()
        if cloner is not None:
            ((oid,),) = connection.execute("select %s::regclass::oid", [loaded.as_string(connection)]).fetchall()
            executed += [statement.as_string(connection) for statement in cloner.grant_rights(connection, oid)]
        connection.execute(sql.SQL("analyze {}").format(loaded))
    return tuple(executed)


def swap_tables(
    session: Session,
    snapshot: Snapshot,
    definition: TableDefinition | None,
    cloner: DefinitionCloner | None,
    before: Position,
    action: str | None,
    counts: Mapping[str, int] | None,
) -> tuple[str, ...]:
    """Drop the old table, give its name to the new one, and move the position. → the statements that were executed"""
    lease, target = session.require_lease(), session.target
    executed: list[str] = []
    connection = session.main()

    def execute(statement: sql.Composed) -> None:
        connection.execute(statement)
        executed.append(statement.as_string(connection))

    with connection.transaction():
        positions.lock_position(connection, lease, expected=before.version, first=None)
        connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
        if definition is not None:
            connection.execute(sql.SQL("lock table {} in access exclusive mode").format(target.identifier))
            if before.version is None:
                refuse_rows(connection, session)
        if read_definition(connection, target) != definition:
            raise SinkUnavailable(
                f"{target} was altered while its successor was being built",
                hint="nothing was changed: run again",
            )
        if definition is not None:
            execute(sql.SQL("drop table {}").format(target.identifier))
        move_to_target(session, execute)
        for statement in cloner.renames(target.identifier, target.schema) if cloner is not None else ():
            execute(statement)
        rename_constraints(session, execute)
        if definition is None:
            execute(sql.SQL("{}").format(sql.SQL(add_comment(target.identifier))))
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        delete_all_dead_letters(connection, str(target))  # every row of the source is stored now
        positions.record_rows(connection, target)
        positions.move_and_record(connection, lease, before=before, to=after, action=action)
        session.record(connection, **(counts or {}))
    return tuple(executed)
