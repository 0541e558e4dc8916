"""First step: find which rows belong to the requests, and at which versions, so that a continued run finds the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.erasure.register.records import WHOLE_RUN, StepName
from cdf.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from audit.erasure.find.resolve import Resolution
    from audit.erasure.run.context import RunContext

__all__ = ["ResolveRows"]


class ResolveRows:
    def __init__(self, context: RunContext) -> None:
        self._context = context

    def is_done(self) -> bool:
        return self._context.steps.has(WHOLE_RUN, StepName.RESOLVE)

    def run(self) -> None:
        if self.is_done():
            self._check_unchanged()
        else:
            self._resolve()
        self._context.reach("resolved")
        self._context.reach("approved")

    def _resolve(self) -> None:
        context = self._context
        if any(one.step in (StepName.DELETING, StepName.DELETE) for one in context.steps.all()):
            raise VerificationError(
                f"run {context.run} has begun to erase, and the register no longer has the rows that this run had found",
                hint="the register was altered: restore it from its backup",
            )
        context.progress("looking for the rows")
        resolution = context.resolve(None)
        context.keep(resolution)
        self._check_approved(resolution)
        context.register.learn(resolution.learned(), context.keys)
        rows: dict[str, dict[str, int]] = {}
        for (table, request), found in resolution.counts().items():
            rows.setdefault(table, {})[request] = found.rows
        facts = {"versions": dict(resolution.versions), "rows": rows, "people": self._people()}
        context.steps.record(WHOLE_RUN, StepName.RESOLVE, facts)

    def _check_unchanged(self) -> None:
        facts = self._context.steps.read(WHOLE_RUN, StepName.RESOLVE)
        assert facts is not None
        if changed := sorted({table for table, _ in facts["people"].items() ^ self._people().items()}):
            raise ConfigError(
                f"`erasure.tables` has changed since the run began: {', '.join(changed)}",
                hint="restore it until the run is finished, then run `deltarelay erase plan` again for the changed tables",
            )

    def _people(self) -> dict[str, str]:
        """Return, by table, the columns that say whom its rows name."""
        return {one.table: ", ".join(person.column for person in one.people) for one in self._context.tables()}

    def _check_approved(self, resolution: Resolution) -> None:
        context = self._context
        approved = {request.id for request in context.requests if request.approver is not None}
        reasons = resolution.fan_out(context.approve_above)
        if unapproved := {id: reason for id, reason in reasons.items() if id not in approved}:
            shown = [f"{id} ({reason})" for id, reason in unapproved.items()]
            raise ConfigError(
                f"no approver has been named for {', '.join(shown[:5])}",
                hint="review the plan, then run `deltarelay erase approve REQUEST --by NAME`",
                requests=list(unapproved),
            )
