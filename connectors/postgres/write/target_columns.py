"""The target's columns while windows are applied: schema drift, casts, and the statements for the present columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.changes.schema_diff import ChangeKind, printed_alike
from cdf.errors import SchemaDrift, TargetNotReady
from connectors.postgres.conversions import ColumnType, find_casts
from connectors.postgres.state.dead_letters import read_key_digests
from connectors.postgres.target.ddl import add_missing_columns
from connectors.postgres.target.drift import drift_ddl
from connectors.postgres.target.reflection import (
    is_partitioned,
    read_column_types,
    read_further_columns,
    refuse_unsafe,
)
from connectors.postgres.write.statements import ApplyStatements, Layout, apply_statements

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from connectors.postgres.client import Session
    from connectors.postgres.options import Deletes

__all__ = ["TargetColumns"]

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the target's columns, and the statements composed for them."""

    layout: Layout | None = None
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    statements: ApplyStatements | None = None
    staging: str | None = None
    """The staging table of ``statements``."""


class TargetColumns:
    """Keeps layout and statements from window to window, and renews them when columns or types have changed."""

    def __init__(self, session: Session, *, own: tuple[str, ...], deletes: Deletes) -> None:
        self._session = session
        self._own, self._deletes = own, deletes
        self._known = _Known()

    @property
    def layout(self) -> Layout:
        assert self._known.layout is not None
        return self._known.layout

    @property
    def statements(self) -> ApplyStatements:
        assert self._known.statements is not None
        return self._known.statements

    def save(self) -> _Known:
        """For ``restore``, if the transaction is rolled back and its changes of columns with it."""
        return self._known

    def restore(self, known: _Known) -> None:
        self._known = known

    def lock(self, connection: Connection) -> None:
        """Until the COMMIT no other session can alter a type between the cast of a value and its column, or make the table
        one that loses rows. Raises TargetNotReady if the target does not exist or is unsafe."""
        target = self._session.target
        try:
            connection.execute(sql.SQL("lock table {} in row exclusive mode").format(target.identifier))
            refuse_unsafe(connection, target)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            missing = TargetNotReady(f"{target} does not exist", hint="`deltarelay run --reload` rebuilds it")
        else:
            return
        raise_without_context(missing)

    def follow(self, connection: Connection, window: Window, staging_kind: str) -> tuple[str, ...]:
        """Apply the window's schema drift to the target, and compose the statements for the resulting columns. → the DDL"""
        target = self._session.target
        types = read_column_types(connection, target)
        if not types:
            raise TargetNotReady(f"{target} does not exist", hint="`deltarelay run --reload` rebuilds it")
        self._check_dead_letter_keys(connection, window)
        ddl = drift_ddl(target, window.drift, types)
        for statement in ddl:
            connection.execute(statement)
        if ddl:
            types = read_column_types(connection, target)
        layout = self._known.layout
        written = () if layout is None else layout.schema.fieldNames()
        if missing := [name for name in window.schema.fieldNames() if name in written and name not in types]:
            raise TargetNotReady(
                f"another session dropped or renamed the column {', '.join(map(repr, missing))} of {target} during the run",
                hint="rename it back, or rebuild the target with `deltarelay run --reload`: its values would be missing",
            )
        for statement in (added := add_missing_columns(target, types, window.schema, self._own)):
            connection.execute(statement)
        if added:
            types = read_column_types(connection, target)
        self._compose(connection, window, types, staging_kind)
        return (*ddl, *added)

    def _compose(
        self, connection: Connection, window: Window, types: Mapping[str, ColumnType], staging_kind: str
    ) -> None:
        target, known = self._session.target, self._known
        layout, statements = known.layout, known.statements
        if types != known.types or layout is None or layout.schema != window.schema:
            # Types are compared for each window: after another session's ALTER TYPE a cast could lose something
            layout = Layout(
                schema=window.schema,
                key=window.key,
                own=self._own,
                casts=find_casts(str(target), window.schema, types),
                deletes=self._deletes,
                partitioned=is_partitioned(connection, target),
                others=read_further_columns(connection, target, {*window.schema.fieldNames(), *self._own}),
            )
            statements = None
        if statements is None or known.staging != staging_kind:
            statements = apply_statements(target, self._session.own_name(staging_kind), layout)
        self._known = _Known(layout, types, statements, staging_kind)

    def _check_dead_letter_keys(self, connection: Connection, window: Window) -> None:
        """A dead letter identifies its key by a digest of the key's text. With another text the key would not be found."""
        retyped = [
            change.after.name
            for change in window.drift
            if change.kind is ChangeKind.CHANGE_TYPE
            and change.before is not None
            and change.after is not None
            and change.after.name in window.key
            and not printed_alike(change.before.dataType, change.after.dataType)
        ]
        if retyped and (digests := read_key_digests(connection, str(self._session.target))):
            raise SchemaDrift(
                f"the key column {retyped[0]!r} changes its type at version {window.first}, and {self._session.target} has "
                f"{len(digests)} dead letters, which are identified by keys of the old type",
                hint="nothing was changed: run `deltarelay deadletter replay` or `deltarelay deadletter drop`, and run "
                "again",
                column=retyped[0],
            )
