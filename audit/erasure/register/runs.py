"""The erasure runs in the register, their plans and steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from audit.database import jsonb
from audit.erasure.model import ReachedState
from audit.erasure.register.leased_register import LeasedRegister
from audit.erasure.register.part import RegisterPart, check_present, list_ids, record_event
from audit.erasure.register.records import Run, Step, StepName
from audit.erasure.register.run_lease import hold_lease
from cdf.errors import ConfigError

__all__ = ["RunTable"]

_IRREVERSIBLE = ("shredded", "deleted", "propagated", "purged", "verified", "certified")
"""States in which a request cannot be moved to another run."""


class RunTable(RegisterPart):
    def begin(self, run: str, ids: Iterable[str], plan_digest: str, plan: Mapping[str, Any] | None = None) -> None:
        """Assign the requests to a run. Again with the same plan it changes nothing. ``plan`` is stored, in case its file is
        lost.

        A request of another run starts again from ``received``, unless that run has begun to delete, or has certified it.
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
            check_present(asked, [id for id, _, _ in rows])
            joining = [(id, state, other) for id, state, other in rows if other != run]
            deleting = work.rows(
                "select s.run from {step} s join {run} r on r.id = s.run"
                " where s.step = %s and r.finished_at is null and s.run = any(%s)",
                [StepName.DELETING.value, [other for _, _, other in joining if other is not None]],
            )
            if taken := [one for one in joining if one[1] in _IRREVERSIBLE or (one[2],) in deleting]:
                states = list_ids([f"{id} is {state} in run {other}" for id, state, other in taken])
                raise ConfigError(
                    f"run {run} cannot have requests of another run: {states}",
                    hint=f"`deltarelay erase run {taken[0][2]}` continues it; a certified request needs no plan",
                    requests=[id for id, _, _ in taken],
                )
            joined = [id for id, _, _ in joining]
            work.execute(
                "update {request} set run = %s, state = 'received', reached = 'received', reason = null,"
                " waits_until = null, waits_for = null, changed_at = clock_timestamp() where id = any(%s)",
                [run, joined],
            )
            record_event(work, joined, "received", {"run": run, "plan": plan_digest})

    def plan(self, run: str) -> Mapping[str, Any]:
        """Return the plan as it was made. Raises ConfigError where the run does not exist."""
        with self._database.transaction() as work:
            found = work.row("select plan from {run} where id = %s", [run])
        if found is None or found[0] is None:
            raise _unknown_run(run)
        plan: Mapping[str, Any] = found[0]
        return plan

    def run(self, run: str) -> Run:
        found = self.find_run(run)
        if found is None:
            raise _unknown_run(run)
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

    def reached_states(self, run: str) -> tuple[ReachedState, ...]:
        """Return the states that the run's requests have reached in it, in their order."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select state, min(at), array_agg(distinct request order by request) from {event}"
                " where facts ->> 'run' = %s group by state order by min(number)",
                [run],
            )
        return tuple(ReachedState(state, at, tuple(requests)) for state, at, requests in rows)

    @contextmanager
    def lease(self, run: str) -> Iterator[LeasedRegister]:
        """Hold the register's lease, so that no other run writes until the block ends.

        Raises LeaseHeld as soon as another run is seen to be alive. The lease of a killed run is waited for: it lasts
        seconds, on the server's clock.
        """
        self.run(run)
        with hold_lease(self._database, run) as epoch:
            yield LeasedRegister(self._database, run, epoch)


def _unknown_run(run: str) -> ConfigError:
    return ConfigError(f"there is no run {run}", hint="`deltarelay erase status --json` lists the runs")
