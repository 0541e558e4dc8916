"""Records of readings: who received keys of encrypted values, and for which purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from audit.encryption.key_registry.person_keys import read_states
from audit.encryption.key_registry.results import KeyState, Reading, States
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.key_registry.key_ring import KeyRing

__all__ = ["MAX_PURPOSE", "list_new_readings", "mark_readings_recorded", "open_reading"]

MAX_PURPOSE = 200
"""Characters."""


def open_reading(database: Database, ring: KeyRing, *, trail: str, reader: str, purpose: str, question: str) -> States:
    """A function that returns key states and records each call in the same transaction.

    Raises ConfigError where the purpose is empty or too long for a record."""
    if not purpose.strip() or len(purpose) > MAX_PURPOSE:
        raise ConfigError(
            f"the purpose of a reading must be a text of up to {MAX_PURPOSE} characters", hint="--purpose TEXT"
        )

    def read(key_ids: Iterable[bytes]) -> dict[bytes, KeyState]:
        asked = sorted(set(key_ids))
        with database.transaction() as work:
            states = read_states(work, ring, asked)
            returned = sum(state.key is not None for state in states.values())
            work.execute(
                "insert into {reading} (reader, purpose, question, trail, keys) values (%s, %s, %s, %s, %s)",
                [reader, purpose, question, trail, returned],
            )
            return states

    return read


def list_new_readings(work: Transaction, trail: str) -> list[Reading]:
    """Readings that the trail has not recorded yet, the oldest first."""
    rows = work.rows(
        "select id, at, role, reader, purpose, question, keys from {reading}"
        " where trail = %s and noted_at is null order by id",
        [trail],
    )
    return [Reading(*row) for row in rows]


def mark_readings_recorded(work: Transaction, ids: Iterable[int]) -> None:
    work.execute(
        "update {reading} set noted_at = clock_timestamp() where id = any(%s) and noted_at is null", [list(ids)]
    )
