"""Identifiers in the register: encrypted, and as the marks by which erased people are recognised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from audit.database import jsonb
from audit.erasure.register.part import TODAY, RegisterPart, associated_data, check_present, list_ids, record_event
from audit.erasure.register.records import Mark
from audit.erasure.register.secrets import RegisterKeys
from cdf.errors import ConfigError

__all__ = ["IdentifierTable", "MarkTable"]


class IdentifierTable(RegisterPart):
    def identifiers(self, ids: Iterable[str], keys: RegisterKeys) -> dict[str, dict[str, str]]:
        """Return the identifiers of each request by name. Raises ConfigError where they are deleted."""
        asked = list(ids)
        with self._database.transaction() as work:
            encrypted = dict(work.rows("select id, sealed from {request} where id = any(%s) order by id", [asked]))
        check_present(asked, encrypted)
        _check_not_deleted([id for id, data in encrypted.items() if data is None])
        return {id: json.loads(keys.decrypt(data, about=associated_data(id))) for id, data in encrypted.items()}

    def learn(self, values: Iterable[tuple[str, str, str]], keys: RegisterKeys) -> None:
        """Store (request, name, value): what was learned about people. A value is stored once, however often it is
        learned."""
        # Sorted, so that two processes that learn the same at once do not deadlock
        rows = [
            (id, name, keys.mark(name, value), keys.encrypt(value, about=associated_data(id, name)))
            for id, name, value in sorted(set(values))
        ]
        if not rows:
            return
        ids = sorted({row[0] for row in rows})
        with self._database.transaction() as work:
            # Locked, so that they are not deleted in the meantime
            found = dict(
                work.rows("select id, sealed is null from {request} where id = any(%s) order by id for share", [ids])
            )
            check_present(ids, found)
            _check_not_deleted([id for id, is_deleted in found.items() if is_deleted])
            work.execute(
                "insert into {known} (request, name, digest, sealed)"
                " select * from unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[]) on conflict do nothing",
                [list(column) for column in zip(*rows, strict=True)],
            )

    def learned(self, ids: Iterable[str], keys: RegisterKeys) -> list[tuple[str, str, str]]:
        """Return (request, name, value) of everything that was learned besides the identifiers of the requests."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select request, name, sealed from {known} where request = any(%s) order by request, name, digest",
                [list(ids)],
            )
        return [(id, name, keys.decrypt(data, about=associated_data(id, name))) for id, name, data in rows]


class MarkTable(RegisterPart):
    def marks(self, subject: str | None = None) -> tuple[Mark, ...]:
        """Return the marks in force today (UTC)."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select mark, subject, name, request, until from {mark} where released_at is null and until >= "
                + TODAY
                + " and (%s::text is null or subject = %s) order by request, name, mark",
                [subject, subject],
            )
        return tuple(Mark(*row) for row in rows)

    def record_return(self, ids: Iterable[str], table: str, version: int) -> None:
        """Record once that a pipeline met these people again in ``table``, at ``version`` or later."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select id, state from {request} as request where id = any(%s) and not exists"
                " (select from {event} where request = request.id and facts = %s) order by id for update",
                [sorted(set(ids)), jsonb(facts := {"returned": table, "version": version})],
            )
            for id, state in rows:
                record_event(work, [id], state, facts)

    def release(self, ids: Iterable[str], who: str, reason: str) -> int:
        """Record the decision that these people may come back. Return how many marks are released."""
        return self._release("request = any(%s)", list(ids), who, reason)

    def release_mark(self, mark: bytes, who: str, reason: str) -> int:
        """Let one value come back, whichever requests it was in."""
        return self._release("mark = %s", mark, who, reason)

    def _release(self, which: str, value: Any, who: str, reason: str) -> int:
        if not who.strip() or not reason.strip():
            raise ConfigError("a release needs the name of the person who decided it, and a reason")
        with self._database.transaction() as work:
            released = work.rows(
                "update {mark} set released_at = clock_timestamp(), released_by = %s, released_reason = %s"
                f" where {which} and released_at is null and until >= {TODAY} returning request",
                [who, reason, value],
            )
            if not released:
                raise ConfigError("there is nothing to release: none of these has a mark in force")
            ids = sorted({id for (id,) in released})
            states = dict(work.rows("select id, state from {request} where id = any(%s)", [ids]))
            for id in ids:
                count = sum(one == id for (one,) in released)
                record_event(work, [id], states[id], {"released": count, "by": who, "reason": reason})
        return len(released)


def _check_not_deleted(ids: Sequence[str]) -> None:
    if ids:
        raise ConfigError(
            f"the identifiers of these requests are deleted, because they are certified: {list_ids(ids)}",
            hint="a person who has come back is erased under a new request",
            requests=list(ids),
        )
