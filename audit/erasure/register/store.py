"""The durable state of erasures, in PostgreSQL: who is to be erased, how far each request is, what waits, what is certified.

``Register`` takes requests in and tells how they stand. While a run is at work only its ``Held`` moves requests on; one run
is at work at a time. Identifiers go in and come out through ``Sealing``: the database sees ciphertext and keyed marks.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from audit.database import Database, Transaction, jsonb
from audit.erasure.model import ReachedState, Request, State
from audit.erasure.register.request_names import absent, listed
from audit.erasure.register.run_lease import DELETING, Held, hold, keep_step, record, request_place
from audit.erasure.register.schema import DEFINITIONS, LATER
from cdf.errors import CdfError, ConfigError, VerificationError
from cdf.result import Result

__all__ = [
    "Access",
    "Added",
    "Carrier",
    "Event",
    "Held",
    "Mark",
    "Register",
    "RegisterIncomplete",
    "RegisterMismatch",
    "RegisterMissing",
    "Run",
    "Sealing",
    "Standing",
    "Step",
]


class RegisterMissing(ConfigError):
    """The database can be asked, and has no register there: it was never made, was dropped, or the schema is misspelt."""

    code = "erasure_register_missing"


class RegisterIncomplete(ConfigError):
    """Tables of the register are missing."""

    code = "erasure_register_incomplete"


class RegisterMismatch(ConfigError):
    """The register is not the one that the configuration names, or its marks were made with other keys."""

    code = "erasure_register_mismatch"


class Marking(Protocol):
    """Watch keys. ``audit.erasure.register.secrets.Marker`` is one."""

    def mark(self, name: str, value: str) -> bytes:
        """The same for the same value of that name, and without the key nobody can tell of what."""
        ...

    def marks(self, name: str, value: str) -> Sequence[bytes]:
        """``mark``, and what it was under each of the former keys."""
        ...


class Sealing(Marking, Protocol):
    """Keys that the database never sees. ``audit.erasure.register.secrets.Keys`` is one."""

    def seal(self, text: str, *, about: str) -> bytes:
        """Ciphertext that opens again under the same ``about`` only."""
        ...

    def unseal(self, data: bytes, *, about: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Added(Result):
    """Ids, in the order in which they were given."""

    new: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing(Result):
    """How a request stands: everything but whom it is about."""

    id: str
    subject: str
    state: State
    run: str | None
    received: dt.date
    due: dt.date
    legal_basis: str
    requester: str
    approver: str | None
    waits_until: dt.datetime | None
    waits_for: str | None
    reason: str | None
    changed_at: dt.datetime
    overdue: bool
    """Past its due date (UTC) and not certified."""
    forgotten: bool
    """Its identifiers are destroyed: once its run is over and it is certified."""
    returned_at: dt.datetime | None
    """When a pipeline last met the person again, after the erasure; None: never."""
    returned_to: str | None
    """The source table of that pipeline."""


@dataclass(frozen=True, slots=True)
class Event(Result):
    state: State
    at: dt.datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run(Result):
    id: str
    plan_digest: str
    created_at: dt.datetime
    finished_at: dt.datetime | None
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step(Result):
    """What a run has done in a table, once and for all."""

    table: str
    step: str
    facts: Mapping[str, Any]
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Access(Result):
    """That somebody was told what is held on them."""

    request: str
    subject: str
    at: dt.datetime
    role: str
    """Of the register's database."""
    reader: str
    digest: str
    counts: Mapping[str, int]


@dataclass(frozen=True, order=True, slots=True)
class Carrier(Result):
    """A pipeline that has carried a table to a target, now or once."""

    pipeline: str
    table: str
    target: str
    """In words, such as ``public.customers of warehouse (postgres)``."""


@dataclass(frozen=True, slots=True)
class Mark(Result):
    """Whoever has this mark is not to come back before ``until``."""

    mark: bytes = field(repr=False)
    subject: str
    name: str
    request: str
    until: dt.date


class Register:
    def __init__(self, dsn: str, *, schema: str = "erasure") -> None:
        self._database = Database(
            dsn, schema, what="the erasure register", definitions=DEFINITIONS, made_by="deltarelay erase init"
        )

    def __repr__(self) -> str:
        return f"Register({self._database.name!r})"

    def prepare(self) -> None:
        """Make the schema and its tables where they are missing. May be called again, also by two at once.

        Raises RegisterIncomplete where a register is there and has lost a table: made again it would be empty, and every
        person who was erased would be unknown.
        """
        self._check_complete(self._database.missing(), LATER)
        self._database.prepare()

    def bind(self, keys: Sealing, signed_by: str | None = None) -> str:
        """Record which watch key the marks are made with; → the identity. Raises RegisterMismatch where the register's is
        neither that in use nor a former one. ``signed_by``: the id of the signing key."""
        with self._database.transaction() as work:
            identity, made_with = self._identity(work)
            if made_with is None:
                first = work.row("select id, sealed from {request} where sealed is not null limit 1")
                if first is not None:
                    try:  # a register of an earlier version: whoever cannot read it has other keys
                        keys.unseal(first[1], about=_about(first[0]))
                    except CdfError:
                        raise _other_keys(self._database.name) from None
                else:  # all are forgotten; its keys came from the key that signed its certificates
                    last = work.row(
                        "select document -> 'signature' ->> 'id' from {certificate} order by issued_at desc limit 1"
                    )
                    if last not in (None, (signed_by,)):
                        raise _other_keys(self._database.name)
            elif made_with not in keys.marks("register", identity):
                raise _other_keys(self._database.name)
            mine = keys.mark("register", identity)
            work.execute(
                "update {register} set keys = %s where keys is not distinct from %s and keys is distinct from %s",
                [mine, made_with, mine],
            )
            if self._identity(work)[1] not in keys.marks("register", identity):  # another process was faster
                raise _other_keys(self._database.name)
        return identity

    def check(self, keys: Marking, identity: str | None = None) -> None:
        """Raises unless the register is there, complete, the one with ``identity`` and made with these keys: whatever else
        it answered would be that no one was erased."""
        missing = self._database.missing()
        if len(missing) == len(DEFINITIONS):
            raise RegisterMissing(
                f"{self._database.name} is not in the database",
                hint="check `erasure.state` (connection, schema); restore the register from its backup if it was lost; if "
                "there never was one, `deltarelay erase init` makes it",
            )
        self._check_complete(missing)
        with self._database.transaction() as work:
            found, made_with = self._identity(work)
            is_used = work.row("select from {request} limit 1") is not None
        if identity not in (None, found):
            raise RegisterMismatch(
                f"{self._database.name} is another register than `erasure.state.identity` names",
                hint="check `erasure.state` (connection, schema, identity), and whether the database was replaced",
            )
        if made_with is None and is_used:
            raise RegisterIncomplete(
                f"{self._database.name} was made by an earlier version", hint="`deltarelay erase init` completes it"
            )
        if made_with is not None and made_with not in keys.marks("register", found):
            raise _other_keys(self._database.name)

    def _identity(self, work: Transaction) -> tuple[str, bytes | None]:
        found = work.row("select identity, keys from {register}")
        if found is None:
            raise RegisterIncomplete(f"{self._database.name} has lost its identity", hint="restore it from its backup")
        return found[0], found[1]

    def _check_complete(self, missing: Collection[str], later: Collection[str] = ()) -> None:
        if len(missing) < len(DEFINITIONS) and (lost := sorted(set(missing) - set(later))):
            is_old = set(lost) <= LATER
            raise RegisterIncomplete(
                f"{self._database.name} has no table {listed(lost)}",
                hint="`deltarelay erase init` adds what this version needs" if is_old else "restore it from its backup",
            )

    # ── carriers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def carry(self, carriers: Iterable[Carrier]) -> None:
        """Record that these pipelines carry these tables; the same again changes nothing, and nothing removes them."""
        rows = sorted(set(carriers))
        with self._database.transaction() as work:
            work.execute(
                "insert into {carrier} (pipeline, table_name, target)"
                " select * from unnest(%s::text[], %s::text[], %s::text[]) on conflict do nothing",
                [[one.pipeline for one in rows], [one.table for one in rows], [one.target for one in rows]],
            )

    def carriers(self, tables: Iterable[str]) -> tuple[Carrier, ...]:
        """Every pipeline that ever carried one of the tables. Of one that only a plan of an earlier version names the target
        is empty."""
        with self._database.transaction() as work:
            rows = work.rows(_CARRIERS, [asked := list(tables), asked])
        return tuple(Carrier(*row) for row in rows)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, requests: Iterable[Request], keys: Sealing) -> Added:
        """All of them or none. The same request again is known, and nothing happens.

        Raises ConfigError where an id is that of a request with other content.
        """
        given: dict[str, tuple[Request, bytes]] = {}
        clashing = set()
        for request in requests:
            digest = _digest(request, keys)
            if given.setdefault(request.id, (request, digest))[1] != digest:
                clashing.add(request.id)
        rows = [_row(request, digest, keys) for _, (request, digest) in sorted(given.items())]
        self.bind(keys)
        with self._database.transaction() as work:
            # Sorted by id, so that two who add the same requests at once do not wait for each other
            new = (
                {id for (id,) in work.rows(_ADD, [list(column) for column in zip(*rows, strict=True)])}
                if rows
                else set()
            )
            known = sorted(given.keys() - new)
            there = work.rows("select id, digest from {request} where id = any(%s)", [known])
            clashing.update(id for id, digest in there if digest not in keys.marks(*_content(given[id][0])))
            if clashing:
                raise ConfigError(
                    f"another request has this id already, with other content: {listed(sorted(clashing))}",
                    hint="nothing was taken in: give each request an id of its own",
                    requests=sorted(clashing),
                )
            record(work, sorted(new), "received", {})
        return Added(tuple(id for id in given if id in new), tuple(id for id in given if id not in new))

    def requests(self, ids: Iterable[str] | None = None) -> tuple[Standing, ...]:
        """All, or those of ``ids``: overdue ones first, then by due date."""
        asked = None if ids is None else list(ids)
        with self._database.transaction() as work:
            found = tuple(Standing(*row) for row in work.rows(_STANDINGS, [asked, asked]))
        absent(asked or (), [one.id for one in found])
        return found

    def history(self, id: str) -> tuple[Event, ...]:
        with self._database.transaction() as work:
            rows = work.rows("select state, at, facts from {event} where request = %s order by number", [id])
        absent([id], [id] if rows else [])
        return tuple(Event(*row) for row in rows)

    def approve(self, id: str, approver: str) -> None:
        """Record who has approved it. The run that erases moves it to ``approved``."""
        with self._database.transaction() as work:
            found = work.row("select state, approver from {request} where id = %s for update", [id])
            absent([id], [id] if found else [])
            assert found is not None
            work.execute("update {request} set approver = %s where id = %s", [approver, id])
            record(work, [id], found[0], {"approver": approver, "former": found[1]})

    def accept(self, id: str, who: str, reason: str) -> int:
        """Record the decision that what the last scan has found of this person may stay. → how many finds

        Raises ConfigError where nothing was found: whatever a later scan finds besides is not decided by this."""
        if not who.strip() or not reason.strip():
            raise ConfigError("a decision names who made it, and why")
        with self._database.transaction() as work:
            row = work.row("select run, state from {request} where id = %s for update", [id])
            absent([id], [id] if row else [])
            assert row is not None
            found = work.row(
                "select facts from {step} where run = %s and table_name = %s and step = 'found'",
                [row[0], request_place(id)],
            )
            if found is None or row[1] != "purged":
                raise ConfigError(
                    f"there is nothing to decide: no scan has left request {id} with a find",
                    hint="`deltarelay erase run` scans, and says what to do with each find",
                )
            finds = found[0]["finds"]
            keep_step(work, row[0], request_place(id), "accept", {"by": who, "reason": reason, "finds": finds})
            record(work, [id], row[1], {"accepted": len(finds), "by": who, "reason": reason})
        return len(finds)

    def check_content(self, requests: Iterable[Request], keys: Sealing) -> None:
        """Raises VerificationError unless each is, but for its approver, the request that was received: with another subject
        other tables would be erased and looked through."""
        given = {one.id: one for one in requests}
        with self._database.transaction() as work:
            digests = dict(work.rows("select id, digest from {request} where id = any(%s)", [list(given)]))
            approvers: dict[str, set[str | None]] = {id: {None, one.approver} for id, one in given.items()}
            for id, *named in work.rows(
                "select request, facts ->> 'approver', facts ->> 'former' from {event}"
                " where request = any(%s) and facts ? 'approver'",
                [list(given)],
            ):
                approvers[id].update(named)
        absent(given, digests)
        if altered := [
            id
            for id, one in given.items()
            if not any(digests[id] in keys.marks(*_content(replace(one, approver=by))) for by in approvers[id])
        ]:
            raise VerificationError(
                f"these requests are not in the register as they were received: {listed(altered)}",
                hint="the register was altered: restore it from its backup; or `erasure.former_watch_keys` lacks the key "
                "of their time; where an earlier release has recorded another approver than the one of the request file, "
                "`deltarelay erase approve` with that one first",
                requests=altered,
            )

    # ── identifiers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def identifiers(self, ids: Iterable[str], keys: Sealing) -> dict[str, dict[str, str]]:
        """Of each request by name. Raises ConfigError for those that are forgotten."""
        asked = list(ids)
        with self._database.transaction() as work:
            sealed = dict(work.rows("select id, sealed from {request} where id = any(%s) order by id", [asked]))
        absent(asked, sealed)
        _not_forgotten([id for id, data in sealed.items() if data is None])
        return {id: json.loads(keys.unseal(data, about=_about(id))) for id, data in sealed.items()}

    def learn(self, values: Iterable[tuple[str, str, str]], keys: Sealing) -> None:
        """(request, name, value): what else is known of people by now. Known once, however often it is learnt."""
        # Sorted, so that two who learn the same at once do not wait for each other
        learnt = sorted(set(values))
        rows = [
            (id, name, keys.mark(name, value), keys.seal(value, about=_about(id, name))) for id, name, value in learnt
        ]
        if not rows:
            return
        ids = sorted({row[0] for row in rows})
        with self._database.transaction() as work:
            # Locked against being forgotten in the meantime
            there = dict(
                work.rows("select id, sealed is null from {request} where id = any(%s) order by id for share", [ids])
            )
            absent(ids, there)
            _not_forgotten([id for id, forgotten in there.items() if forgotten])
            work.execute(
                "insert into {known} (request, name, digest, sealed)"
                " select * from unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[]) on conflict do nothing",
                [list(column) for column in zip(*rows, strict=True)],
            )

    def known(self, ids: Iterable[str], keys: Sealing) -> list[tuple[str, str, str]]:
        """(request, name, value) of all that was learnt, beside the identifiers."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select request, name, sealed from {known} where request = any(%s) order by request, name, digest",
                [list(ids)],
            )
        return [(id, name, keys.unseal(sealed, about=_about(id, name))) for id, name, sealed in rows]

    # ── access ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def accessed(self, request: str, subject: str, reader: str, digest: str, counts: Mapping[str, int]) -> None:
        """Keep that somebody was told what is held on them."""
        with self._database.transaction() as work:
            work.execute(
                "insert into {access} (request, subject, reader, digest, counts) values (%s, %s, %s, %s, %s)",
                [request, subject, reader, digest, jsonb(counts)],
            )

    def accesses(self) -> tuple[Access, ...]:
        """The first one first."""
        with self._database.transaction() as work:
            rows = work.rows("select request, subject, at, role, reader, digest, counts from {access} order by number")
        return tuple(Access(*row) for row in rows)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, run: str, ids: Iterable[str], plan_digest: str, plan: Mapping[str, Any] | None = None) -> None:
        """Put the requests under a run, once: again with the same plan it changes nothing. ``plan``: kept for whoever loses
        its file.

        A request from another run begins anew, unless that run has begun to delete, or has certified it.
        """
        asked = sorted(set(ids))
        with self._database.transaction() as work:
            work.execute(
                "insert into {run} (id, plan_digest, plan) values (%s, %s, %s) on conflict do nothing",
                [run, plan_digest, None if plan is None else jsonb(plan)],
            )
            if work.row("select plan_digest from {run} where id = %s for update", [run]) != (plan_digest,):
                raise ConfigError(
                    f"run {run} has begun with another plan", hint="a changed plan is a new run: make the plan again"
                )
            rows = work.rows("select id, state, run from {request} where id = any(%s) order by id for update", [asked])
            absent(asked, [id for id, _, _ in rows])
            joining = [(id, state, other) for id, state, other in rows if other != run]
            deleting = work.rows(
                "select s.run from {step} s join {run} r on r.id = s.run"
                " where s.step = %s and r.finished_at is null and s.run = any(%s)",
                [DELETING, [other for _, _, other in joining if other is not None]],
            )
            if taken := [one for one in joining if one[1] in _AT_WORK or (one[2],) in deleting]:
                said = listed([f"{id} is {state} in run {other}" for id, state, other in taken])
                raise ConfigError(
                    f"run {run} cannot have requests of another run: {said}",
                    hint=f"`deltarelay erase run {taken[0][2]}` goes on with it; what is certified needs no plan",
                    requests=[id for id, _, _ in taken],
                )
            joined = [id for id, _, _ in joining]
            work.execute(
                "update {request} set run = %s, state = 'received', reached = 'received', reason = null,"
                " waits_until = null, waits_for = null, changed_at = clock_timestamp() where id = any(%s)",
                [run, joined],
            )
            record(work, joined, "received", {"run": run, "plan": plan_digest})

    def plan(self, run: str) -> Mapping[str, Any]:
        """As it was made. Raises ConfigError where there is no such run."""
        with self._database.transaction() as work:
            found = work.row("select plan from {run} where id = %s", [run])
        if found is None or found[0] is None:
            raise ConfigError(f"there is no run {run}", hint="`deltarelay erase status --json` names the runs")
        kept: Mapping[str, Any] = found[0]
        return kept

    def run(self, run: str) -> Run:
        found = self.find_run(run)
        if found is None:
            raise ConfigError(f"there is no run {run}", hint="`deltarelay erase status --json` names the runs")
        return found

    def find_run(self, run: str) -> Run | None:
        with self._database.transaction() as work:
            found = work.row("select plan_digest, created_at, finished_at from {run} where id = %s", [run])
            ids = work.rows("select id from {request} where run = %s order by id", [run])
        if found is None:
            return None
        plan_digest, created_at, finished_at = found
        return Run(run, plan_digest, created_at, finished_at, tuple(id for (id,) in ids))

    def steps(self, run: str) -> tuple[Step, ...]:
        with self._database.transaction() as work:
            rows = work.rows(
                "select table_name, step, facts, at from {step} where run = %s order by at, table_name, step", [run]
            )
        return tuple(Step(*row) for row in rows)

    def reached(self, run: str) -> tuple[ReachedState, ...]:
        """The states that the run's requests have gone through in it, in their order."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select state, min(at), array_agg(distinct request order by request) from {event}"
                " where facts ->> 'run' = %s group by state order by min(number)",
                [run],
            )
        return tuple(ReachedState(state, at, tuple(requests)) for state, at, requests in rows)

    @contextmanager
    def held(self, run: str) -> Iterator[Held]:
        """Be the only run at work on the register, until the block ends.

        Raises LeaseHeld as soon as another one is seen to be alive. One that was killed is waited for: its lease lasts
        seconds, on the server's clock.
        """
        self.run(run)
        with hold(self._database, run) as held:
            yield held

    # ── what remains ─────────────────────────────────────────────────────────────────────────────────────────────────

    def marks(self, subject: str | None = None) -> tuple[Mark, ...]:
        """Those in force today (UTC)."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select mark, subject, name, request, until from {mark} where released_at is null and until >= "
                + _TODAY
                + " and (%s::text is null or subject = %s) order by request, name, mark",
                [subject, subject],
            )
        return tuple(Mark(*row) for row in rows)

    def returned(self, ids: Iterable[str], table: str, version: int) -> None:
        """Record that a pipeline met these people again in ``table``, at ``version`` or later. Once for the same."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select id, state from {request} as request where id = any(%s) and not exists"
                " (select from {event} where request = request.id and facts = %s) order by id for update",
                [sorted(set(ids)), jsonb(facts := {"returned": table, "version": version})],
            )
            for id, state in rows:
                record(work, [id], state, facts)

    def release(self, ids: Iterable[str], who: str, reason: str) -> int:
        """Let these people come back: a decision that is recorded. → how many marks are in force no more"""
        return self._release("request = any(%s)", list(ids), who, reason)

    def release_mark(self, mark: bytes, who: str, reason: str) -> int:
        """Let one value come back, whichever requests it was in."""
        return self._release("mark = %s", mark, who, reason)

    def _release(self, which: str, value: Any, who: str, reason: str) -> int:
        if not who.strip() or not reason.strip():
            raise ConfigError("a release names who decided it, and why")
        with self._database.transaction() as work:
            released = work.rows(
                "update {mark} set released_at = clock_timestamp(), released_by = %s, released_reason = %s"
                f" where {which} and released_at is null and until >= {_TODAY} returning request",
                [who, reason, value],
            )
            if not released:
                raise ConfigError("there is nothing to release: no mark of these is in force")
            ids = sorted({id for (id,) in released})
            states = dict(work.rows("select id, state from {request} where id = any(%s)", [ids]))
            for id in ids:
                count = sum(one == id for (one,) in released)
                record(work, [id], states[id], {"released": count, "by": who, "reason": reason})
        return len(released)

    def certificate(self, id: str) -> dict[str, Any] | None:
        """The last one that was issued."""
        with self._database.transaction() as work:
            found = work.row(
                "select document from {certificate} where request = %s order by issued_at desc limit 1", [id]
            )
        return None if found is None else found[0]


_CARRIERS = """\
select pipeline, table_name, target from {carrier} where table_name = any(%s)
union
select sink ->> 'pipeline', sink ->> 'table', '' from {run}, jsonb_array_elements(plan -> 'sinks') as sink
 where sink ->> 'table' = any(%s)
   and not exists (select from {carrier} where (pipeline, table_name) = (sink ->> 'pipeline', sink ->> 'table'))
order by 1, 2, 3"""
_AT_WORK = ("shredded", "deleted", "propagated", "purged", "verified", "certified")
_TODAY = "(clock_timestamp() at time zone 'UTC')::date"
_ADD = """\
insert into {request} (id, subject, received, due, legal_basis, requester, approver, sealed, digest, state, reached)
select *, 'received', 'received' from unnest(
    %s::text[], %s::text[], %s::date[], %s::date[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[]
) on conflict do nothing returning id"""
_STANDINGS = f"""\
select id, subject, state, run, received, due, legal_basis, requester, approver, waits_until, waits_for, reason, changed_at,
       due < {_TODAY} and state <> 'certified' as overdue,
       sealed is null as forgotten, returned.at, returned.to_table
  from {{request}} left join lateral (
      select at, facts ->> 'returned' as to_table from {{event}}
       where request = id and facts ? 'returned' order by number desc limit 1
  ) as returned on true
 where %s::text[] is null or id = any(%s) order by overdue desc, due, id"""


def _row(request: Request, digest: bytes, keys: Sealing) -> tuple[Any, ...]:
    sealed = keys.seal(json.dumps(dict(request.identifiers), sort_keys=True), about=_about(request.id))
    return (
        request.id,
        request.subject,
        request.received,
        request.due,
        request.legal_basis,
        request.requester,
        request.approver,
        sealed,
        digest,
    )


def _digest(request: Request, keys: Sealing) -> bytes:
    return keys.mark(*_content(request))


def _content(request: Request) -> tuple[str, str]:
    content = {one.name: getattr(request, one.name) for one in fields(request)}
    content["identifiers"] = sorted(request.identifiers.items())
    return "request", json.dumps(content, sort_keys=True, default=dt.date.isoformat)


def _about(*names: str) -> str:
    """What a ciphertext belongs to: no other row can have it."""
    return json.dumps(["erasure register", *names])


def _other_keys(name: str) -> RegisterMismatch:
    return RegisterMismatch(
        f"the marks of {name} were made with other keys than the configured ones: no person would be recognised",
        hint="put the `watch_key` or `signing_key` back that the register was made with; a key that was replaced "
        "belongs in `former_watch_keys`",
    )


def _not_forgotten(ids: Sequence[str]) -> None:
    if ids:
        raise ConfigError(
            f"their identifiers are forgotten, as they are certified: {listed(ids)}",
            hint="a person who has come back is erased under a new request",
            requests=list(ids),
        )
