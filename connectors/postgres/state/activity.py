"""What can be seen of a pipeline at its target: position, runner, last success, dead letters. One connection, no lock."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from cdf.sink import Activity
from cdf.sink.runner_id import read_start
from connectors.postgres.state.controls import read_controls
from connectors.postgres.state.dead_letters import count_dead_letters, may_read_dead_letters
from connectors.postgres.state.migrations import find_state_tables
from connectors.postgres.state.position import read_standing

__all__ = ["read_activity"]

Connection = psycopg.Connection[Any]


def read_activity(connection: Connection, target: str) -> Activity:
    """A role may have the permission to read positions only. Raises StateTooNew."""
    tables = find_state_tables(connection)
    standing = read_standing(connection, target, tables, most_records=0)
    progress, dead_letters = None, 0 if "dead_letter" not in tables else None
    if "progress" in tables:
        with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
            progress = connection.execute(
                "select at, figures from deltarelay.progress where target = %s", [target]
            ).fetchone()
    if dead_letters is None and may_read_dead_letters(connection):
        dead_letters = count_dead_letters(connection, target)
    at, figures = progress or (None, None)
    return Activity(
        position=standing.position,
        moved_at=standing.updated_at,
        has_runner=standing.lease_holder is not None,
        runner_since=None if standing.lease_holder is None else read_start(standing.lease_holder),
        succeeded_at=at,
        # A run that has ended stores no figures
        last=figures if figures and "rows_applied" in figures else None,
        dead_letters=dead_letters,
        controls=read_controls(connection, target, tables),
    )
