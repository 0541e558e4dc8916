"""The only run at work on a register: its lease, and all that it writes.

As with a target's position (``deltarelay.position``) the lease lives on the server's clock and is renewed by a thread;
every taking and every giving back raises the epoch. Each write begins with that epoch's compare-and-set, which prolongs the
lease and keeps the row until the write is committed: a run that was paused and wakes up writes nothing more.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from audit.database import Database, Transaction, jsonb
from audit.erasure.model import STATES, State
from audit.erasure.register.request_names import absent, listed
from audit.trail.redaction import canonical_json
from cdf.errors import CdfError, ConfigError, Fenced, LeaseHeld, PositionError, VerificationError
from cdf.os_user import os_user
from cdf.result import plain

__all__ = ["DELETING", "LEASE_SECONDS", "Held", "hold", "keep_step", "record", "request_place"]

LEASE_SECONDS = 15.0
DELETING = "deleting"
"""The step that stands in the register before the first row goes: a run that died in the midst of it keeps its requests."""
RENEW_SECONDS = 4.0
_POLL_SECONDS = 0.5
_ENDS = ("held", "partial", "failed")
_PROLONGED = "expires_at = clock_timestamp() + make_interval(secs => %s)"

log = logging.getLogger(__name__)


@contextmanager
def hold(database: Database, run: str) -> Iterator[Held]:
    epoch = _take(database, run)
    stopped = threading.Event()
    thread = threading.Thread(target=_renew, args=(database, epoch, stopped), name=f"lease {run}", daemon=True)
    thread.start()
    try:
        yield Held(database, run, epoch)
    finally:
        stopped.set()
        thread.join(timeout=5)
        _give_back(database, epoch)


def _take(database: Database, run: str) -> int:
    """→ the epoch. Waits for at most one lease; raises LeaseHeld as soon as the holder is seen to have renewed it."""
    deadline = time.monotonic() + LEASE_SECONDS + 2
    seen: tuple[Any, ...] | None = None
    while True:
        with database.transaction() as work:
            taken = work.row(
                "update {lease} set epoch = epoch + 1, run = %s, holder = %s, taken_at = clock_timestamp(), "
                + _PROLONGED
                + " where expires_at is null or expires_at < clock_timestamp() returning epoch",
                [run, os_user(), LEASE_SECONDS],
            )
            holder = work.row("select epoch, expires_at, run, holder, taken_at from {lease}")
        if taken is not None:
            return int(taken[0])
        assert holder is not None
        if seen is None:
            log.info("waiting for the lease of another erase run", extra={"run": holder[2]})
        elif (holder != seen and holder[1] is not None) or time.monotonic() > deadline:
            raise LeaseHeld(
                f"run {holder[2]} of {holder[3]} is at work on {database.name} since {_utc(holder[4])}",
                hint="nothing was changed: run again when it has finished, or stop it first",
                run=holder[2],
            )
        seen = holder
        time.sleep(_POLL_SECONDS)


def _renew(database: Database, epoch: int, stopped: threading.Event) -> None:
    while not stopped.wait(RENEW_SECONDS):
        try:
            with database.transaction() as work:
                work.execute("set local lock_timeout = '1s'")
                renewed = work.count(f"update {{lease}} set {_PROLONGED} where epoch = %s", [LEASE_SECONDS, epoch])
            if not renewed:
                return  # fenced: the next write will say so
        except CdfError as error:  # the database may be back before the lease ends; if not, the epoch keeps it safe
            log.warning("lease not renewed", extra={"code": error.code, "condition": error.condition})


def _give_back(database: Database, epoch: int) -> None:
    try:
        with database.transaction() as work:
            work.execute(
                "update {lease} set epoch = epoch + 1, run = null, holder = null, taken_at = null, expires_at = null"
                " where epoch = %s",
                [epoch],
            )
    except CdfError as error:  # it ends by itself
        log.warning("lease not given back", extra={"code": error.code, "condition": error.condition})


def record(work: Transaction, ids: Sequence[str], state: str, facts: Mapping[str, Any]) -> None:
    """An event for each request."""
    work.execute(
        "insert into {event} (request, state, facts) select id, %s, %s from unnest(%s::text[]) as id",
        [state, jsonb(facts), list(ids)],
    )


def request_place(id: str) -> str:
    """In the register the place of a step that is about one request."""
    return f"request {id}"


def keep_step(work: Transaction, run: str, place: str, step: str, facts: Mapping[str, Any]) -> None:
    work.execute(
        "insert into {step} (run, table_name, step, facts) values (%s, %s, %s, %s)"
        " on conflict (run, table_name, step) do update set facts = excluded.facts, at = excluded.at",
        [run, place, step, jsonb(facts)],
    )


class Held:
    """What a run writes while it holds the register. Each call is one transaction; Fenced where the lease is lost.

    Everything may be said again after a crash and then changes nothing.
    """

    def __init__(self, database: Database, run: str, epoch: int) -> None:
        self._database, self.run, self._epoch = database, run, epoch

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._database.transaction() as work:
            if not work.count(f"update {{lease}} set {_PROLONGED} where epoch = %s", [LEASE_SECONDS, self._epoch]):
                raise Fenced(
                    f"another run has taken over {self._database.name}; run {self.run} writes nothing more",
                    hint="let the other run finish; if it is gone, run again",
                    run=self.run,
                )
            yield work

    def check(self) -> None:
        """Raises Fenced where the lease is lost: for just before something is done elsewhere."""
        with self._writing():
            pass

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def move(self, ids: Iterable[str], state: State, **facts: Any) -> None:
        """To the next state, or to ``held``, ``partial`` or ``failed``; from these back to where they were or one on.

        ``reason`` among the facts is what the request says of itself while it is in this state. What a request waited for
        is over. Raises PositionError where one of them would skip a state or go back; then none has moved.
        """
        if state == "certified":
            raise ConfigError("a request is certified by its certificate", hint="certify moves it")
        with self._writing() as work:
            self._move(work, sorted(set(ids)), state, facts)

    def _move(self, work: Transaction, ids: Sequence[str], state: State, facts: Mapping[str, Any]) -> None:
        reason = facts.get("reason")
        rows = self._locked(work, ids, "state, reached, reason")
        if wrong := [f"{id} is {now}" for id, now, reached, _ in rows if not _may(now, reached, state)]:
            raise PositionError(
                f"a request takes one state after the other, and cannot become {state} where {listed(wrong)}",
                hint=f"in this order: {', '.join(STATES)}",
            )
        moving = [id for id, now, _, said in rows if (now, said) != (state, reason)]
        work.execute(
            "update {request} set state = %s, reached = case when %s then %s else reached end, reason = %s,"
            " waits_until = null, waits_for = null, changed_at = clock_timestamp() where id = any(%s)",
            [state, state in STATES, state, reason, moving],
        )
        record(work, moving, state, {"run": self.run, **_plain(facts)})

    def wait(self, ids: Iterable[str], until: dt.datetime, for_what: str) -> None:
        """Nothing more can be done for these before ``until``."""
        with self._writing() as work:
            asked = sorted(set(ids))
            self._locked(work, asked, "state")
            work.execute(
                "update {request} set waits_until = %s, waits_for = %s, changed_at = clock_timestamp()"
                " where id = any(%s) and (waits_until, waits_for) is distinct from (%s, %s)",
                [until, for_what, asked, until, for_what],
            )

    def suppress(self, ids: Iterable[str], marks: Iterable[tuple[str, str, bytes]], until: dt.date) -> None:
        """``marks``: (request, name, mark) of whatever must not come back before ``until``.

        Raises ConfigError where one of ``ids`` has none: nobody would notice that person. What somebody released stays
        released in this run; erased once more, in another run, it is in force again.
        """
        asked, rows = sorted(set(ids)), sorted(set(marks))
        if unmarked := sorted(set(asked).symmetric_difference(id for id, _, _ in rows)):
            raise ConfigError(f"every request that is suppressed has a mark, and no other has: {listed(unmarked)}")
        with self._writing() as work:
            self._locked(work, asked, "state")
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            work.execute(_SUPPRESS, [until, self.run, *columns])

    def certify(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the signed certificate of each request. ``erased`` makes it certified, which only a verified one becomes."""
        for id, document in documents.items():
            if document["request"]["id"] != id or document["outcome"] not in ("erased", "partial"):
                raise ConfigError(f"this is no certificate of request {id}")
        with self._writing() as work:
            ids = sorted(documents)
            self._locked(work, ids, "state")
            last = {
                id: (at, document)
                for id, at, document in work.rows(
                    "select distinct on (request) request, issued_at, document from {certificate}"
                    " where request = any(%s) order by request, issued_at desc",
                    [ids],
                )
            }
            issued = [id for id in ids if id not in last or last[id][1] != documents[id]]
            for outcome, state in _BECOMES.items():
                self._move(work, [id for id in issued if documents[id]["outcome"] == outcome], state, {})
            work.execute(
                "insert into {certificate} (request, document, supersedes)"
                " select * from unnest(%s::text[], %s::jsonb[], %s::timestamptz[])",
                [
                    issued,
                    [jsonb(documents[id]) for id in issued],
                    [last[id][0] if id in last else None for id in issued],
                ],
            )

    def forget(self, ids: Iterable[str]) -> None:
        """Drop the identifiers and all that was learnt of those who are certified. Events and certificates remain."""
        with self._writing() as work:
            asked = sorted(set(ids))
            rows = self._locked(work, asked, "state")
            if early := [f"{id} is {state}" for id, state in rows if state != "certified"]:
                raise PositionError(
                    f"only whoever is certified can be forgotten: {listed(early)}",
                    hint="until then the identifiers are needed: to erase, and to look for what is left",
                )
            self._forget(work, asked)

    def _forget(self, work: Transaction, ids: Sequence[str]) -> None:
        work.execute("delete from {known} where request = any(%s)", [ids])
        work.execute("update {request} set sealed = null where id = any(%s)", [ids])

    def _locked(self, work: Transaction, ids: Sequence[str], columns: str) -> list[tuple[Any, ...]]:
        """Their id and ``columns``. Raises where one of them is not in this run (any more)."""
        rows = work.rows(
            f"select id, run, {columns} from {{request}} where id = any(%s) order by id for update", [list(ids)]
        )
        absent(ids, [row[0] for row in rows])
        if others := [row[0] for row in rows if row[1] != self.run]:
            raise ConfigError(f"these requests are not in run {self.run}: {listed(others)}", requests=others)
        return [(row[0], *row[2:]) for row in rows]

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, table: str, step: str) -> dict[str, Any] | None:
        """The facts of a step that is done; None where it is not, or where a crash came before ``done``."""
        with self._database.transaction() as work:
            found = work.row(
                "select facts from {step} where run = %s and table_name = %s and step = %s", [self.run, table, step]
            )
        return None if found is None else found[0]

    def done(self, table: str, step: str, facts: Mapping[str, Any]) -> None:
        """Facts are names, counts and times: what canonical JSON can hold, for the certificate has their hash."""
        kept = _plain(facts)
        with self._writing() as work:
            work.execute(
                "insert into {step} (run, table_name, step, facts) values (%s, %s, %s, %s) on conflict do nothing",
                [self.run, table, step, jsonb(kept)],
            )
            where = "run = %s and table_name = %s and step = %s"
            if work.row(f"select facts from {{step}} where {where}", [self.run, table, step]) != (kept,):
                raise VerificationError(
                    f"the step {step} of {table} was recorded before, with other facts",
                    hint="what is done is looked up first, by `step`, and not done again",
                )

    def put(self, table: str, step: str, facts: Mapping[str, Any]) -> None:
        """How far a step has come that takes several tries: replaced by each, until another step records that it is done."""
        with self._writing() as work:
            keep_step(work, self.run, table, step, _plain(facts))

    def found(self, id: str, finds: Sequence[Any]) -> None:
        """What the last scan has found of a request, on which ``Register.accept`` decides. The scan before it is no more."""
        with self._writing() as work:
            self._locked(work, [id], "state")
            keep_step(work, self.run, request_place(id), "found", {"finds": _plain({"finds": list(finds)})["finds"]})

    def begin_deleting(self, ids: Iterable[str]) -> None:
        """Before the first row goes: from now on no other run may have these requests."""
        with self._writing() as work:
            self._locked(work, sorted(set(ids)), "state")
            work.execute(
                "insert into {step} (run, table_name, step, facts) values (%s, '', %s, '{{}}') on conflict do nothing",
                [self.run, DELETING],
            )

    def finish(self) -> None:
        """Nothing is left to do in this run; who is certified in it is forgotten with that."""
        with self._writing() as work:
            certified = work.rows(
                "select id from {request} where run = %s and state = 'certified' order by id for update", [self.run]
            )
            self._forget(work, [id for (id,) in certified])
            work.execute(
                "update {run} set finished_at = clock_timestamp() where id = %s and finished_at is null", [self.run]
            )


_BECOMES: Mapping[str, State] = {"erased": "certified", "partial": "partial"}
_SUPPRESS = """\
insert into {mark} (request, name, mark, subject, until, run)
select marks.request, marks.name, marks.mark, request.subject, %s, %s
  from unnest(%s::text[], %s::text[], %s::bytea[]) as marks (request, name, mark)
  join {request} as request on request.id = marks.request
on conflict (request, name, mark) do update set
    until = greatest({mark}.until, excluded.until), run = excluded.run,
    released_at = case when {mark}.run = excluded.run then {mark}.released_at end,
    released_by = case when {mark}.run = excluded.run then {mark}.released_by end,
    released_reason = case when {mark}.run = excluded.run then {mark}.released_reason end"""


def _may(now: State, reached: State, state: State) -> bool:
    if now == state:
        return True
    if "certified" in (now, state):
        return (now, state) == ("verified", "certified")
    if (reached, state) == ("approved", "deleted"):  # nothing is sealed
        return True
    return state in _ENDS or 0 <= STATES.index(state) - STATES.index(reached) <= 1


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back. Raises TypeError for what has no canonical form, before anything is written."""
    found: dict[str, Any] = plain(facts)
    canonical_json(found)
    return found


def _utc(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
