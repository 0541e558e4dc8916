"""Base of the register's parts: the database, and writes that several parts share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from audit.database import Database, Transaction, jsonb

__all__ = ["TODAY", "RegisterPart", "associated_data", "record_event", "replace_step"]

TODAY = "(clock_timestamp() at time zone 'UTC')::date"


class RegisterPart:
    _database: Database


def record_event(work: Transaction, ids: Sequence[str], state: str, facts: Mapping[str, Any]) -> None:
    """Insert an event for each request."""
    work.execute(
        "insert into {event} (request, state, facts) select id, %s, %s from unnest(%s::text[]) as id",
        [state, jsonb(facts), list(ids)],
    )


def replace_step(work: Transaction, run: str, place: str, step: str, facts: Mapping[str, Any]) -> None:
    """Insert the step, or replace its facts."""
    work.execute(
        "insert into {step} (run, table_name, step, facts) values (%s, %s, %s, %s)"
        " on conflict (run, table_name, step) do update set facts = excluded.facts, at = excluded.at",
        [run, place, str(step), jsonb(facts)],
    )


def associated_data(*names: str) -> str:
    """Return what a ciphertext is bound to: in another row it cannot be decrypted."""
    return json.dumps(["erasure register", *names])
