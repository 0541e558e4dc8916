"""Base of the register's parts: the database, and what several parts share: writes, and how messages name requests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from audit.database import Database, Transaction, jsonb
from cdf.errors import ConfigError

__all__ = ["TODAY", "RegisterPart", "associated_data", "check_present", "list_ids", "record_event", "replace_step"]

TODAY = "(clock_timestamp() at time zone 'UTC')::date"
_MOST_IDS = 20


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


def list_ids(words: Sequence[str]) -> str:
    """Return the first ids, and how many more there are."""
    more = f" and {len(words) - _MOST_IDS:,} more" if len(words) > _MOST_IDS else ""
    return ", ".join(words[:_MOST_IDS]) + more


def check_present(asked: Iterable[str], found: Collection[str]) -> None:
    """Raises ConfigError where the register does not have all requests that were asked for."""
    if missing := sorted(set(asked).difference(found)):
        raise ConfigError(
            f"the register has no request {list_ids(missing)}",
            hint="`deltarelay erase status` lists those that it has",
            requests=missing,
        )
