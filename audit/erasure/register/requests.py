"""The erasure requests in the register: added, approved, decided on, certified."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from audit.erasure.model import Request
from audit.erasure.register.identity import RegisterIdentity
from audit.erasure.register.part import TODAY, associated_data, check_present, list_ids, record_event, replace_step
from audit.erasure.register.records import Added, Event, RequestStatus, StepName, request_place
from audit.erasure.register.secrets import RegisterKeys
from cdf.errors import ConfigError, VerificationError

__all__ = ["RequestTable"]


class RequestTable(RegisterIdentity):
    def add(self, requests: Iterable[Request], keys: RegisterKeys) -> Added:
        """Add all of them or none. The same request again is known and changes nothing.

        Raises ConfigError where an id is that of a request with other content.
        """
        given: dict[str, tuple[Request, bytes]] = {}
        clashing = set()
        for request in requests:
            digest = keys.mark(*_content(request))
            if given.setdefault(request.id, (request, digest))[1] != digest:
                clashing.add(request.id)
        rows = [_row(request, digest, keys) for _, (request, digest) in sorted(given.items())]
        self.bind(keys)
        with self._database.transaction() as work:
            # Sorted by id, so that two processes that add the same requests at once do not deadlock
            new = (
                {id for (id,) in work.rows(_ADD, [list(column) for column in zip(*rows, strict=True)])}
                if rows
                else set()
            )
            known = sorted(given.keys() - new)
            stored = work.rows("select id, digest from {request} where id = any(%s)", [known])
            clashing.update(id for id, digest in stored if digest not in keys.marks(*_content(given[id][0])))
            if clashing:
                raise ConfigError(
                    f"another request has this id already, with other content: {list_ids(sorted(clashing))}",
                    hint="nothing was added: give each request a separate id",
                    requests=sorted(clashing),
                )
            record_event(work, sorted(new), "received", {})
        return Added(tuple(id for id in given if id in new), tuple(id for id in given if id not in new))

    def requests(self, ids: Iterable[str] | None = None) -> tuple[RequestStatus, ...]:
        """Return the status of all requests, or of those of ``ids``: overdue ones first, then by due date."""
        asked = None if ids is None else list(ids)
        with self._database.transaction() as work:
            found = tuple(RequestStatus(*row) for row in work.rows(_STATUSES, [asked, asked]))
        check_present(asked or (), [status.id for status in found])
        return found

    def history(self, id: str) -> tuple[Event, ...]:
        with self._database.transaction() as work:
            rows = work.rows("select state, at, facts from {event} where request = %s order by number", [id])
        check_present([id], [id] if rows else [])
        return tuple(Event(*row) for row in rows)

    def approve(self, id: str, approver: str) -> None:
        """Record who has approved the request. The erasure run moves it to ``approved``."""
        with self._database.transaction() as work:
            found = work.row("select state, approver from {request} where id = %s for update", [id])
            check_present([id], [id] if found else [])
            assert found is not None
            work.execute("update {request} set approver = %s where id = %s", [approver, id])
            record_event(work, [id], found[0], {"approver": approver, "former": found[1]})

    def accept(self, id: str, who: str, reason: str) -> int:
        """Record the decision that the findings of the last scan about this person may stay. Return their number.

        Raises ConfigError where nothing was found. The decision does not cover further findings of a later scan."""
        if not who.strip() or not reason.strip():
            raise ConfigError("a decision needs the name of the person who made it, and a reason")
        with self._database.transaction() as work:
            row = work.row("select run, state from {request} where id = %s for update", [id])
            check_present([id], [id] if row else [])
            assert row is not None
            found = work.row(
                "select facts from {step} where run = %s and table_name = %s and step = %s",
                [row[0], request_place(id), StepName.FOUND.value],
            )
            if found is None or row[1] != "purged":
                raise ConfigError(
                    f"there is nothing to decide: no scan has left request {id} with a finding",
                    hint="`deltarelay erase run` scans, and shows what to do about each finding",
                )
            finds = found[0]["finds"]
            decision = {"by": who, "reason": reason, "finds": finds}
            replace_step(work, row[0], request_place(id), StepName.ACCEPT, decision)
            record_event(work, [id], row[1], {"accepted": len(finds), "by": who, "reason": reason})
        return len(finds)

    def check_content(self, requests: Iterable[Request], keys: RegisterKeys) -> None:
        """Raises VerificationError unless each is, but for its approver, the request that was received: with another
        subject, other tables would be erased and scanned."""
        given = {request.id: request for request in requests}
        with self._database.transaction() as work:
            digests = dict(work.rows("select id, digest from {request} where id = any(%s)", [list(given)]))
            approvers: dict[str, set[str | None]] = {id: {None, one.approver} for id, one in given.items()}
            for id, *named in work.rows(
                "select request, facts ->> 'approver', facts ->> 'former' from {event}"
                " where request = any(%s) and facts ? 'approver'",
                [list(given)],
            ):
                approvers[id].update(named)
        check_present(given, digests)
        if altered := [
            id
            for id, one in given.items()
            if not any(digests[id] in keys.marks(*_content(replace(one, approver=by))) for by in approvers[id])
        ]:
            raise VerificationError(
                f"these requests are not in the register as they were received: {list_ids(altered)}",
                hint="the register was altered: restore it from its backup; or `erasure.former_watch_keys` lacks the key "
                "under which they were received; if an earlier release recorded another approver than the request file "
                "names, first run "
                "`deltarelay erase approve` with that approver",
                requests=altered,
            )

    def certificate(self, id: str) -> dict[str, Any] | None:
        """Return the certificate that was issued last."""
        with self._database.transaction() as work:
            found = work.row(
                "select document from {certificate} where request = %s order by issued_at desc limit 1", [id]
            )
        return None if found is None else found[0]


_ADD = """\
insert into {request} (id, subject, received, due, legal_basis, requester, approver, sealed, digest, state, reached)
select *, 'received', 'received' from unnest(
    %s::text[], %s::text[], %s::date[], %s::date[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[]
) on conflict do nothing returning id"""
_STATUSES = f"""\
select id, subject, state, run, received, due, legal_basis, requester, approver, waits_until, waits_for, reason, changed_at,
       due < {TODAY} and state <> 'certified' as overdue,
       sealed is null as forgotten, returned.at, returned.to_table
  from {{request}} left join lateral (
      select at, facts ->> 'returned' as to_table from {{event}}
       where request = id and facts ? 'returned' order by number desc limit 1
  ) as returned on true
 where %s::text[] is null or id = any(%s) order by overdue desc, due, id"""


def _row(request: Request, digest: bytes, keys: RegisterKeys) -> tuple[Any, ...]:
    text = json.dumps(dict(request.identifiers), sort_keys=True)
    return (
        request.id,
        request.subject,
        request.received,
        request.due,
        request.legal_basis,
        request.requester,
        request.approver,
        keys.encrypt(text, about=associated_data(request.id)),
        digest,
    )


def _content(request: Request) -> tuple[str, str]:
    content = {one.name: getattr(request, one.name) for one in fields(request)}
    content["identifiers"] = sorted(request.identifiers.items())
    return "request", json.dumps(content, sort_keys=True, default=dt.date.isoformat)
