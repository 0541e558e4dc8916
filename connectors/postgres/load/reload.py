"""Rebuild a target from a snapshot, from any position.

    swap     COPY into a fresh table beside it, give that the definition of the old one, then one short transaction: drop the
             old table, rename the new one, move the position. For a table without dependents
    merge    COPY into a table of ours, then one transaction that deletes, updates and inserts the differing rows and moves
             the position. For a table whose views, foreign keys, policies, publications, … a swap would lose:
             ``TableDefinition.dependents``

Killed at any point it leaves either the old rows and the old position, or the new rows and the new one. The next ``open``
drops the table beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.sink import Position
from connectors.postgres.column_mapping import with_metadata
from connectors.postgres.conversions import ColumnType, is_chosen_by_user
from connectors.postgres.inspect import database_problems, describe_foreign_rows, read_visible_position
from connectors.postgres.load import merge, open_readers
from connectors.postgres.load.clone_definition import DefinitionCloner
from connectors.postgres.load.initial_load import add_metadata_columns, copy_snapshot
from connectors.postgres.load.swap import build_successor, swap_tables
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.state.migrations import missing_ddl
from connectors.postgres.state.position import position_log_problems
from connectors.postgres.target.ddl import add_missing_columns, create_table
from connectors.postgres.target.definition import TableDefinition, create_like, read_definition
from connectors.postgres.target.problems import target_problems
from connectors.postgres.target.reflection import has_values, read_column_types, reflect
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from cdf.sink import Source
    from connectors.postgres.client import Session
    from connectors.postgres.options import Deletes

__all__ = ["ReloadPlan", "find_reload_problems", "reasons_to_merge", "reload_target"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]


def find_reload_problems(
    connection: Connection, name: TargetName, source: Source, own: Sequence[str], deletes: Deletes
) -> list[str]:
    """Everything that would prevent a reload. The target's present contents matter less than for a run."""
    problems = database_problems(connection, name, missing_ddl(connection)) + position_log_problems(connection)
    target, definition = reflect(connection, name), read_definition(connection, name)
    types = read_column_types(connection, name)
    reasons = () if definition is None else reasons_to_merge(definition, source.schema, own, types, deletes)
    is_merge = bool(reasons)
    problems += target_problems(source, name, target if is_merge or (target and not target.is_table) else None, own)
    if target is None or definition is None or not target.is_table:
        return problems
    if target.empty is False and read_visible_position(connection, name).version is None:
        problems.append(describe_foreign_rows(name))
    if not is_merge:
        return problems + _swap_problems(connection, name, source, own, definition)
    problems += [
        f"the source no longer has a column {column.name!r}, and {name} cannot be replaced by a new table "
        f"({', '.join(reasons)}): drop the column in the target, or give it a default if you want to keep it"
        for column in definition.former_columns(with_metadata(source.schema, own))
    ]
    added = add_missing_columns(name, types, source.schema, own)
    if added and not target.owned:
        problems.append(f"the role does not own {name}, so it cannot add the missing columns: " + "; ".join(added))
    return problems


def _swap_problems(
    connection: Connection, name: TargetName, source: Source, own: Sequence[str], definition: TableDefinition
) -> list[str]:
    whole = with_metadata(source.schema, own)
    former = {column.name for column in definition.former_columns(whole)}
    problems = [
        f"{name} has a column {column!r} with values in it that the source has never had: "
        "drop it, or give it a default if you want to keep it"
        for column in sorted(former - source.former)
        if has_values(connection, name, column)
    ]
    return problems + [
        f"{name}.{column.name} is generated from columns that the source no longer has: drop it"
        for column in definition.kept_columns(whole)
        if column.generated_from & former
    ]


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    own: Sequence[str]
    """Metadata columns of the target."""
    deletes: Deletes
    before: Position
    action: str | None = "reload"
    """Action in the log of positions; None: nothing is logged."""
    must_merge: bool = False
    """Keep the table even where a new one could replace it."""
    confirm: Callable[[], None] = lambda: None
    """Called between reading the rows and making them durable."""
    small_bytes: int = 0
    """As in ``copy_snapshot``."""
    counts: Mapping[str, int] | None = None
    """For the history, if a window is applied by the copy. None: the rows written."""


def reload_target(
    session: Session, snapshot: Snapshot, plan: ReloadPlan, *, seconds: dict[str, float]
) -> tuple[int, tuple[str, ...]]:
    """→ rows of the snapshot, the DDL that was executed. ``seconds`` gets the duration of each phase."""
    with session.errors("inspecting the target"):
        definition = read_definition(session.main(), session.target)
        types = read_column_types(session.main(), session.target)
    reasons = () if definition is None else reasons_to_merge(definition, snapshot.schema, plan.own, types, plan.deletes)
    is_merge = plan.must_merge or bool(reasons)
    if is_merge:
        fields = {"target": str(session.target), "dependents": list(reasons)}
        log.info("merging, because replacing the table would lose its dependents", extra=fields)
    began = time.monotonic()
    create = None
    if is_merge:
        create = create_table(session.own_table("load"), snapshot.schema, logged=False)
    elif definition is not None:
        create = create_like(session.own_table("load"), definition, snapshot.schema)
        open_readers.check_readers(session)
    rows = copy_snapshot(session, snapshot, small_bytes=plan.small_bytes, create=create).rows
    plan.confirm()
    seconds["copy"] = round(time.monotonic() - began, 4)
    # Worth waiting as long as another copy would take
    patience = max(open_readers.PATIENCE_SECONDS, seconds["copy"])
    if is_merge:
        return rows, _merge(session, snapshot, rows, plan, patience, seconds)
    ddl = _swap(session, snapshot, definition, plan, patience, seconds)
    return rows, (*([create] if create is not None else []), *ddl)


def _merge(
    session: Session, snapshot: Snapshot, rows: int, plan: ReloadPlan, patience: float, seconds: dict[str, float]
) -> tuple[str, ...]:
    began = time.monotonic()
    merge.add_key(session, snapshot)
    ddl = open_readers.retry_locked(
        session,
        lambda: merge.merge_rows(
            session,
            snapshot,
            rows,
            plan.own,
            plan.deletes,
            before=plan.before,
            action=plan.action,
            counts=plan.counts,
        ),
        patience,
    )
    seconds["merge"] = round(time.monotonic() - began, 4)
    return ddl


def _swap(
    session: Session,
    snapshot: Snapshot,
    definition: TableDefinition | None,
    plan: ReloadPlan,
    patience: float,
    seconds: dict[str, float],
) -> tuple[str, ...]:
    began = time.monotonic()
    with session.errors("adding the metadata columns"):
        add_metadata_columns(session.main(), session.own_table("load"), plan.own, snapshot)
    whole = replace(snapshot, schema=with_metadata(snapshot.schema, plan.own))
    cloner = None if definition is None else DefinitionCloner(session, definition, whole)
    built = build_successor(session, snapshot, cloner)
    seconds["build"] = round(time.monotonic() - began, 4)
    began = time.monotonic()
    if definition is not None:
        open_readers.wait_for_readers(session, patience)
    swapped = open_readers.retry_locked(
        session,
        lambda: swap_tables(session, snapshot, definition, cloner, plan.before, plan.action, plan.counts),
        patience,
    )
    seconds["swap"] = round(time.monotonic() - began, 4)
    return (*built, *swapped)


def reasons_to_merge(
    definition: TableDefinition,
    schema: StructType,
    own: Sequence[str],
    types: Mapping[str, ColumnType],
    deletes: Deletes,
) -> tuple[str, ...]:
    """Why the table cannot be replaced by a new one; empty: it can."""
    reasons = [f"additional column {column.name!r}" for column in definition.user_columns(with_metadata(schema, own))]
    if not definition.owned_by_us:
        reasons.append(f"it belongs to {definition.owner}")
    if deletes != "hard":
        reasons.append("it keeps rows that the source has deleted")
    for field in schema.fields:
        wanted, present = target_type(field.dataType), types.get(field.name)
        if wanted is None or present is None:
            continue
        if is_chosen_by_user(wanted, present, made_by_us=definition.made_by_us):
            reasons.append(f"a user chose the type {present.type} of column {field.name!r}")
    return (*definition.dependents, *reasons)
