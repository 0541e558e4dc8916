"""Runs the steps of an erasure, each of which may be interrupted and continued::

    resolve  ─▶  destroy keys  ─▶  delete  ─▶  erase copies  ─▶  purge  ─▶  scan  ─▶  certify
    find the     encrypted         MERGE by    every sink        files,     what      signed
    rows         values become     keys        has passed        dead       is        document
                 unreadable                    the deletes       tuples     left

The outcome of a step is recorded in the register before the next step begins; a recorded step is not repeated. A step that
must wait says for what, and until when: the next `erase run` continues from there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audit.erasure.errors import SinkBehind
from audit.erasure.run.delete_rows import DeleteRows
from audit.erasure.run.destroy_keys import DestroyKeys
from audit.erasure.run.erase_copies import EraseCopies
from audit.erasure.run.issue_certificates import IssueCertificates
from audit.erasure.run.purge_storage import PurgeStorage
from audit.erasure.run.resolve_rows import ResolveRows
from audit.erasure.run.scan_storage import ScanStorage
from audit.erasure.run.start_deletion import StartDeletion, check_encrypted
from audit.erasure.scan.results import Finding
from cdf.errors import ConfigError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.erasure.run.context import RunContext
    from audit.erasure.sink_contract import PurgeResult

__all__ = ["ErasureReport", "ErasureRun"]


@dataclass(frozen=True, slots=True)
class ErasureReport(Result):
    """The outcome of one call of ``ErasureRun.execute``."""

    run: str
    requests: tuple[str, ...]
    state: str
    deleted: Mapping[str, int] = field(default_factory=dict)
    """Rows by table."""
    forgotten: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By pipeline: what was removed there besides the replicated deletes."""
    waits_until: dt.datetime | None = None
    waits_for: tuple[str, ...] = ()
    finds: tuple[Finding, ...] = ()
    """Findings of the scan that do not go by a known date."""
    certificates: tuple[str, ...] = ()


class ErasureRun:
    """One run over the requests of one plan."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.resolve = ResolveRows(context)
        self.start = StartDeletion(context)
        self.keys = DestroyKeys(context)
        self.delete = DeleteRows(context)
        self.erase_copies = EraseCopies(context, self.keys)
        self.purge = PurgeStorage(context, self.keys)
        self.scan = ScanStorage(context)
        self.certificates = IssueCertificates(context, self.keys)

    def execute(self) -> ErasureReport:
        """Continue from what the register has, as far as possible today. Trails record every state that was reached."""
        context = self.context
        self._check_requests()
        if context.adopt:
            context.steps.adopt()
        context.register.record_carriers(copy.carrier for copy in context.copies)
        try:
            report = self._completed() or self._run_steps()
        except SinkBehind:
            self._record_states()
            raise
        finally:
            context.release()
        self._record_states()
        if report.certificates and self._completed() is not None:
            context.held.finish()
        return report

    def _check_requests(self) -> None:
        """The run must have all requests of its plan and no other: no later command could finish one that was left out."""
        context = self.context
        if other := sorted(set(context.ids) ^ set(context.register.run(context.run).requests)):
            raise ConfigError(
                f"these are not the requests of run {context.run}: they differ by {', '.join(other[:5])}",
                hint=f"`deltarelay erase run {context.run}` takes them from the register",
                requests=other,
            )

    def _completed(self) -> ErasureReport | None:
        """Return the report of a run in which every request has its certificate, also if it died after that."""
        context = self.context
        states = {one.state for one in context.register.requests(context.ids)}
        if states <= {"certified", "partial"}:
            state = "partial" if "partial" in states else "certified"
            return ErasureReport(context.run, context.ids, state, certificates=context.ids)
        return None

    def _run_steps(self) -> ErasureReport:
        context = self.context
        self.resolve.run()
        self.start.run()
        self.keys.run()
        deleted = self.delete.run()
        forgotten = self.erase_copies.run()
        report = ErasureReport(context.run, context.ids, "propagated", deleted, forgotten)
        if waits := self.purge.run():
            return self._wait_for_purges(report, waits)
        findings = self.scan.run()
        if context.scanned_requests():
            if context.registry is not None:
                check_encrypted(context)
            self.certificates.run()
        if findings:  # they delay only the requests that they belong to
            report = replace(report, state="purged", certificates=context.scanned_requests())
            return self._wait_for_findings(report, findings)
        completed = self._completed()
        assert completed is not None
        return replace(report, state=completed.state, certificates=completed.certificates)

    def _wait_for_purges(self, report: ErasureReport, waits: Sequence[PurgeResult]) -> ErasureReport:
        until = min(one.waits_until for one in waits if one.waits_until)
        reasons = tuple(f"{one.waits_for} until {one.waits_until:%Y-%m-%d %H:%M}Z" for one in waits)
        self.context.held.wait(self.context.ids, until, "; ".join(reasons))
        return replace(report, waits_until=until, waits_for=reasons)

    def _wait_for_findings(self, report: ErasureReport, findings: Sequence[Finding]) -> ErasureReport:
        """Wait for the day on which all findings are gone; report those that do not go by themselves."""
        today = self.context.now.date()  # the purge would have removed what goes on a day in the past
        if staying := tuple(one for one in findings if one.clears_on is None or one.clears_on < today):
            return replace(report, finds=staying)
        day = max(one.clears_on for one in findings if one.clears_on is not None)
        until = dt.datetime.combine(day, dt.time(), dt.UTC)
        reason = f"{len(findings)} findings, the last of which is removed by {day}"
        self.context.held.wait({one.request for one in findings}, until, reason)
        return replace(report, waits_until=until, waits_for=(reason,))

    def _record_states(self) -> None:
        """Record the states that the requests have reached in the trails of the touched tables."""
        context = self.context
        states = context.register.reached_states(context.run)
        for one, copy in context.copies_to_erase():
            if (trail := copy.trail_erasure) is not None and copy.version() is not None:
                trail.record_states(one.table, copy.key, context.run, states)
