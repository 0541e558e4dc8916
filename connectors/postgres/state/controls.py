"""``deltarelay.controls``: what users decided about the pipeline of each target, one JSON document for a target.

The table is created by the first decision. Every role that may use the schema may read it, so that each runner heeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from cdf.sink import Controls
from connectors.postgres.state.migrations import STATE, find_state_tables

__all__ = ["change_controls", "read_controls"]

Connection = psycopg.Connection[Any]


def read_controls(connection: Connection, target: str, tables: Collection[str]) -> Controls:
    """Empty where nothing was decided. ``tables``: from ``find_state_tables``, which raises StateTooNew."""
    if "controls" not in tables:
        return Controls()
    row = connection.execute("select document from deltarelay.controls where target = %s", [target]).fetchone()
    return Controls() if row is None else Controls.from_document(row[0])


def change_controls(connection: Connection, target: str, change: Callable[[Controls], Controls]) -> Controls:
    """Replace the document in one transaction, which locks it. Raises StateTooNew."""
    with connection.transaction():
        if "controls" not in find_state_tables(connection):
            STATE.apply(connection, optional=("controls",))
        connection.execute("set local lock_timeout = '5s'")
        connection.execute("insert into deltarelay.controls (target) values (%s) on conflict do nothing", [target])
        row = connection.execute(
            "select document from deltarelay.controls where target = %s for update", [target]
        ).fetchone()
        assert row is not None
        controls = change(Controls.from_document(row[0]))
        connection.execute(
            "update deltarelay.controls set document = %s, changed_at = clock_timestamp() where target = %s",
            [Jsonb(controls.to_document()), target],
        )
    return controls
