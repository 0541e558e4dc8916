"""``deltarelay.progress``: the figures of the last step of a runner that follows its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from connectors.postgres.state.migrations import find_state_tables

__all__ = ["read_progress", "write_progress"]

Connection = psycopg.Connection[Any]


def write_progress(connection: Connection, target: str, figures: Mapping[str, Any]) -> None:
    with connection.transaction():
        connection.execute("set local lock_timeout = '1s'")
        connection.execute("set local synchronous_commit = off")  # a crash may lose it: the next step writes it again
        connection.execute(
            """
            insert into deltarelay.progress (target, at, figures) values (%s, clock_timestamp(), %s)
            on conflict (target) do update set at = excluded.at, figures = excluded.figures
            """,
            [target, Jsonb(dict(figures))],
        )


def read_progress(connection: Connection, target: str) -> Mapping[str, Any] | None:
    if "progress" not in find_state_tables(connection):
        return None
    row = connection.execute("select figures from deltarelay.progress where target = %s", [target]).fetchone()
    return None if row is None else row[0]
