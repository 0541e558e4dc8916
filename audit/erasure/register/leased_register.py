"""What the active run writes to the register."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from audit.database import Database, Transaction, jsonb
from audit.erasure.model import STATES, State
from audit.erasure.register.part import check_present, list_ids, record_event, replace_step
from audit.erasure.register.records import StepName, request_place
from audit.erasure.register.run_lease import prolong_lease
from audit.trail.redaction import canonical_json
from cdf.errors import ConfigError, Fenced, PositionError, VerificationError
from cdf.result import plain

__all__ = ["LeasedRegister"]

_FINAL = ("held", "partial", "failed")


class LeasedRegister:
    """What a run writes while it holds the register's lease. Each call is one transaction; it raises Fenced where the lease
    is lost.

    Every call may be repeated after a crash and then changes nothing.
    """

    def __init__(self, database: Database, run: str, epoch: int) -> None:
        self._database, self.run, self._epoch = database, run, epoch

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._database.transaction() as work:
            if not prolong_lease(work, self._epoch):
                raise Fenced(
                    f"another run has taken over {self._database.name}; run {self.run} writes nothing more",
                    hint="let the other run finish; if it has ended, run again",
                    run=self.run,
                )
            yield work

    def check(self) -> None:
        """Raises Fenced where the lease is lost. Call it before an effect outside of the register."""
        with self._writing():
            pass

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def move(self, ids: Iterable[str], state: State, **facts: Any) -> None:
        """Move the requests to the next state, or to ``held``, ``partial`` or ``failed``; from these back to where they
        were, or one further. A move ends what a request waits for.

        ``reason`` among the facts is shown with the request while it is in this state. Raises PositionError where one of
        them would skip a state or go back; then none is moved.
        """
        if state == "certified":
            raise ConfigError("a request is certified by its certificate", hint="`certify` moves it")
        with self._writing() as work:
            self._move(work, sorted(set(ids)), state, facts)

    def _move(self, work: Transaction, ids: Sequence[str], state: State, facts: Mapping[str, Any]) -> None:
        reason = facts.get("reason")
        rows = self._lock(work, ids, "state, reached, reason")
        if wrong := [f"{id} is {now}" for id, now, reached, _ in rows if not _may_move(now, reached, state)]:
            raise PositionError(
                f"a request goes through the states in order, and cannot become {state} where {list_ids(wrong)}",
                hint=f"the order: {', '.join(STATES)}",
            )
        moving = [id for id, now, _, former_reason in rows if (now, former_reason) != (state, reason)]
        work.execute(
            "update {request} set state = %s, reached = case when %s then %s else reached end, reason = %s,"
            " waits_until = null, waits_for = null, changed_at = clock_timestamp() where id = any(%s)",
            [state, state in STATES, state, reason, moving],
        )
        record_event(work, moving, state, {"run": self.run, **_plain(facts)})

    def wait(self, ids: Iterable[str], until: dt.datetime, reason: str) -> None:
        """Record that nothing more can be done for these requests before ``until``."""
        with self._writing() as work:
            asked = sorted(set(ids))
            self._lock(work, asked, "state")
            work.execute(
                "update {request} set waits_until = %s, waits_for = %s, changed_at = clock_timestamp()"
                " where id = any(%s) and (waits_until, waits_for) is distinct from (%s, %s)",
                [until, reason, asked, until, reason],
            )

    def suppress(self, ids: Iterable[str], marks: Iterable[tuple[str, str, bytes]], until: dt.date) -> None:
        """Put marks in force: (request, name, mark) of values that must not come back before ``until``.

        Raises ConfigError where one of ``ids`` has none: that person would come back unnoticed. A released mark stays
        released in this run; another run that erases the person again puts it in force again.
        """
        asked, rows = sorted(set(ids)), sorted(set(marks))
        if unmarked := sorted(set(asked).symmetric_difference(id for id, _, _ in rows)):
            raise ConfigError(
                f"every request that is suppressed must have a mark, and no other may have one: {list_ids(unmarked)}"
            )
        with self._writing() as work:
            self._lock(work, asked, "state")
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            work.execute(_SUPPRESS, [until, self.run, *columns])

    def certify(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Store the signed certificate of each request. The outcome ``erased`` certifies the request, which must be
        verified."""
        for id, document in documents.items():
            if document["request"]["id"] != id or document["outcome"] not in ("erased", "partial"):
                raise ConfigError(f"this is not a certificate of request {id}")
        with self._writing() as work:
            ids = sorted(documents)
            self._lock(work, ids, "state")
            last = {
                id: (at, document)
                for id, at, document in work.rows(
                    "select distinct on (request) request, issued_at, document from {certificate}"
                    " where request = any(%s) order by request, issued_at desc",
                    [ids],
                )
            }
            issued = [id for id in ids if id not in last or last[id][1] != documents[id]]
            for outcome, state in _STATE_OF_OUTCOME.items():
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
        """Delete the identifiers of certified requests, and everything that was learned. Events and certificates remain."""
        with self._writing() as work:
            asked = sorted(set(ids))
            rows = self._lock(work, asked, "state")
            if early := [f"{id} is {state}" for id, state in rows if state != "certified"]:
                raise PositionError(
                    f"only the identifiers of certified requests can be deleted: {list_ids(early)}",
                    hint="until then the identifiers are needed: to erase, and to scan for remaining data",
                )
            self._forget(work, asked)

    def _forget(self, work: Transaction, ids: Sequence[str]) -> None:
        work.execute("delete from {known} where request = any(%s)", [ids])
        work.execute("update {request} set sealed = null where id = any(%s)", [ids])

    def _lock(self, work: Transaction, ids: Sequence[str], columns: str) -> list[tuple[Any, ...]]:
        """Return their ids and ``columns``. Raises where one of them is not in this run (any more)."""
        rows = work.rows(
            f"select id, run, {columns} from {{request}} where id = any(%s) order by id for update", [list(ids)]
        )
        check_present(ids, [row[0] for row in rows])
        if others := [row[0] for row in rows if row[1] != self.run]:
            raise ConfigError(f"these requests are not in run {self.run}: {list_ids(others)}", requests=others)
        return [(row[0], *row[2:]) for row in rows]

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def read_step(self, place: str, step: str) -> dict[str, Any] | None:
        """Return the facts of a recorded step; None where it is not recorded, or where the run died before it was."""
        with self._database.transaction() as work:
            found = work.row(
                "select facts from {step} where run = %s and table_name = %s and step = %s",
                [self.run, place, str(step)],
            )
        return None if found is None else found[0]

    def record_step(self, place: str, step: str, facts: Mapping[str, Any]) -> None:
        """Record a step for good. Facts are names, counts and times that canonical JSON can represent: the certificate has
        their hash."""
        stored = _plain(facts)
        with self._writing() as work:
            work.execute(
                "insert into {step} (run, table_name, step, facts) values (%s, %s, %s, %s) on conflict do nothing",
                [self.run, place, str(step), jsonb(stored)],
            )
            where = "run = %s and table_name = %s and step = %s"
            if work.row(f"select facts from {{step}} where {where}", [self.run, place, str(step)]) != (stored,):
                raise VerificationError(
                    f"the step {step} of {place} was recorded before, with other facts",
                    hint="look a step up with `read_step` first: a recorded step is not repeated",
                )

    def replace_step(self, place: str, step: str, facts: Mapping[str, Any]) -> None:
        """Record the progress of a step that takes several attempts. Each attempt replaces it."""
        with self._writing() as work:
            replace_step(work, self.run, place, step, _plain(facts))

    def record_findings(self, id: str, findings: Sequence[Any]) -> None:
        """Replace the findings of a request, about which ``Register.accept`` decides, by those of the last scan."""
        with self._writing() as work:
            self._lock(work, [id], "state")
            facts = {"finds": _plain({"finds": list(findings)})["finds"]}
            replace_step(work, self.run, request_place(id), StepName.FOUND, facts)

    def begin_deleting(self, ids: Iterable[str]) -> None:
        """Record, before the first row is deleted, that no other run may have these requests any more."""
        with self._writing() as work:
            self._lock(work, sorted(set(ids)), "state")
            work.execute(
                "insert into {step} (run, table_name, step, facts) values (%s, '', %s, '{{}}') on conflict do nothing",
                [self.run, StepName.DELETING.value],
            )

    def finish(self) -> None:
        """Finish the run, and delete the identifiers of its certified requests."""
        with self._writing() as work:
            certified = work.rows(
                "select id from {request} where run = %s and state = 'certified' order by id for update", [self.run]
            )
            self._forget(work, [id for (id,) in certified])
            work.execute(
                "update {run} set finished_at = clock_timestamp() where id = %s and finished_at is null", [self.run]
            )


_STATE_OF_OUTCOME: Mapping[str, State] = {"erased": "certified", "partial": "partial"}
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


def _may_move(now: State, reached: State, state: State) -> bool:
    if now == state:
        return True
    if "certified" in (now, state):
        return (now, state) == ("verified", "certified")
    if (reached, state) == ("approved", "deleted"):  # nothing is encrypted
        return True
    return state in _FINAL or 0 <= STATES.index(state) - STATES.index(reached) <= 1


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts as JSON gives them back. Raises TypeError for a value without a canonical form, before any write."""
    stored: dict[str, Any] = plain(facts)
    canonical_json(stored)
    return stored
