"""Findings of a scan: data of people that still exists, printed as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.output import Output

if TYPE_CHECKING:
    from audit.erasure.scan.results import Finding

__all__ = ["print_findings", "suggest_actions"]


def print_findings(output: Output, findings: Sequence[Finding]) -> None:
    if findings:
        output.table(
            ("request", "place", "reason", "spelling", "count", "removed on"),
            [
                (
                    finding.request,
                    finding.place,
                    finding.reason,
                    finding.spelling,
                    finding.count,
                    finding.clears_on or "not by itself",
                )
                for finding in findings
            ],
            numbers=("count",),
        )


def suggest_actions(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return each reason of the findings with the action that helps."""
    from audit.erasure.scan.findings import NEXT

    return [(reason, NEXT[reason]) for reason in sorted({finding.reason for finding in findings})]
