"""``deltarelay.dead_letter``: rows that could not be stored, one dead letter for each key of a target.

A dead letter is written in the transaction that applies the other rows of its window, and removed as soon as a change of
the same key is applied. The target keeps what it held under that key before. A replay reads the row from the source at the
target's position, so it can be repeated, and cannot restore an older row. ``write.dead_letter_writer`` writes them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg
from psycopg.rows import scalar_row

from cdf.sink import DeadLetter
from connectors.postgres.state.migrations import find_state_tables

__all__ = [
    "count_dead_letters",
    "delete_all_dead_letters",
    "drop_dead_letters",
    "may_read_dead_letters",
    "read_dead_letters",
    "read_key_digests",
]

Connection = psycopg.Connection[Any]


def may_read_dead_letters(connection: Connection) -> bool:
    """Whether the table exists and the role may read it."""
    return bool(_readable(connection))


def _readable(connection: Connection) -> bool | None:
    """Whether the role may read the table; None where the table does not exist."""
    found = connection.execute(
        "select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') "
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'dead_letter'"
    ).fetchone()
    return None if found is None else bool(found[0])


def count_dead_letters(connection: Connection, target: str) -> int:
    cursor = connection.cursor(row_factory=scalar_row)
    return int(
        cursor.execute("select count(*) from deltarelay.dead_letter where target = %s", [target]).fetchone() or 0
    )


def read_key_digests(connection: Connection, target: str) -> frozenset[str]:
    """The digests of the keys that have a dead letter; empty where the table does not exist."""
    if not _readable(connection):
        return frozenset()
    rows = connection.execute("select key_digest from deltarelay.dead_letter where target = %s", [target])
    return frozenset(row[0] for row in rows)


def read_dead_letters(
    connection: Connection, target: str, *, limit: int, ids: Collection[int] | None
) -> list[DeadLetter]:
    """The oldest first."""
    if "dead_letter" not in find_state_tables(connection):
        return []
    rows = connection.execute(
        """
        select id, version, committed_at, change, reason, column_name, constraint_name, sqlstate, key_digest, key, row,
               rejected_at
          from deltarelay.dead_letter
         where target = %s and (%s::bigint[] is null or id = any(%s))
         order by id limit %s
        """,
        [target, None if ids is None else list(ids), None if ids is None else list(ids), limit],
    )
    return [DeadLetter(*row) for row in rows]


def drop_dead_letters(connection: Connection, target: str, ids: Collection[int] | None) -> int:
    """→ number of dead letters deleted"""
    if "dead_letter" not in find_state_tables(connection):
        return 0
    return connection.execute(
        "delete from deltarelay.dead_letter where target = %s and (%s::bigint[] is null or id = any(%s))",
        [target, None if ids is None else list(ids), None if ids is None else list(ids)],
    ).rowcount


def delete_all_dead_letters(connection: Connection, target: str) -> None:
    """For a step after which the target holds every row of the source. A role whose target never had a dead letter needs no
    right to the table."""
    if read_key_digests(connection, target):
        drop_dead_letters(connection, target, None)
