"""Identifiers in the register, encrypted: those of the requests, and those that were learned from rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from audit.erasure.register.part import RegisterPart, associated_data
from audit.erasure.register.protocols import RegisterKeys
from audit.erasure.register.request_names import check_present, list_ids
from cdf.errors import ConfigError

__all__ = ["IdentifierTable"]


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


def _check_not_deleted(ids: Sequence[str]) -> None:
    if ids:
        raise ConfigError(
            f"the identifiers of these requests are deleted, because they are certified: {list_ids(ids)}",
            hint="a person who has come back is erased under a new request",
            requests=list(ids),
        )
