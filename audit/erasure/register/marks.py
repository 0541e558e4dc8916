"""Marks of erased people in the register: in force, released, seen again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from audit.database import jsonb
from audit.erasure.register.part import TODAY, RegisterPart, record_event
from audit.erasure.register.records import Mark
from cdf.errors import ConfigError

__all__ = ["MarkTable"]


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
