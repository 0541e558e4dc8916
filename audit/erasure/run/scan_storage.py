"""Seventh step: scan everything for the identifiers, and record the requests of which nothing is found."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from audit.erasure.register.records import StepName, request_place
from audit.erasure.run.acceptance import is_accepted
from audit.erasure.run.context import describe_carrier
from audit.erasure.run.full_scan import scan_everything
from audit.erasure.scan.results import Finding, ScanResult, Unseen
from cdf.result import plain

if TYPE_CHECKING:
    from audit.erasure.run.context import RunContext

__all__ = ["NOT_CONFIGURED", "ScanStorage"]

log = logging.getLogger("deltarelay.erasure")

NOT_CONFIGURED = (
    "it has replicated a table of this erasure and is no longer configured: its target was neither erased nor scanned"
)
_NO_POSITION = (
    "its target stores no position for it: it has never run, or the configuration names another target than before"
)


class ScanStorage:
    def __init__(self, context: RunContext) -> None:
        self._context = context

    def is_done(self) -> bool:
        return len(self._context.scanned_requests()) == len(self._context.ids)

    def run(self) -> tuple[Finding, ...]:
        """Return the findings that are not accepted, of all requests. The scan of a request is recorded once it has none."""
        if self.is_done():
            self._context.reach("verified")
            return ()
        found = self._record(self._scan())
        if found:
            extra = {"run": self._context.run, "finds": len(found)}
            log.warning("the scan found remaining data", extra=extra)
        self._context.reach("verified")
        return tuple(found)

    def _scan(self) -> ScanResult:
        context = self._context
        copies = [copy for _, copy in context.copies_to_erase()]
        tables = [one.table for one in context.tables_to_erase()]
        terms = context.search_terms()
        scanned = scan_everything(
            context.graph, tables, copies, terms, files=context.files, now=context.now, progress=context.progress
        )
        missing = context.missing_carriers()
        unseen = [Unseen(describe_carrier(one), NOT_CONFIGURED) for one in missing]
        unseen += [Unseen(f"pipeline {copy.pipeline}", _NO_POSITION) for copy in copies if copy.lacks_position()]
        return scanned + ScanResult(unseen=tuple(unseen))

    def _record(self, scanned: ScanResult) -> list[Finding]:
        context, over = self._context, self._context.scanned_requests()
        facts = {"finds": 0, "checked": plain(scanned.checked), "unseen": plain(scanned.unseen)}
        remaining: list[Finding] = []
        for id in (id for id in context.ids if id not in over):
            theirs = [one for one in scanned.finds if one.request == id]
            decision = context.held.read_step(request_place(id), StepName.ACCEPT)
            if theirs and (decision is None or not is_accepted(theirs, decision["finds"])):
                context.held.record_findings(id, theirs)
                remaining += theirs
            else:
                accepted: dict[str, Any] = {}
                if theirs and decision:
                    accepted = {"accepted": {**decision, "finds": plain(theirs)}}
                context.steps.record(request_place(id), StepName.SCAN, facts | {"finds": len(theirs)} | accepted)
        return remaining
