"""Text about the result of verifying a trail, and its exit code."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infra.cli.commands.audit.trails import escape_unprintable, format_time
from infra.output import DIFFERENCE, DONE, FAILED, Output, format_count

if TYPE_CHECKING:
    from audit.verification import TrailVerification

__all__ = ["print_verification", "report_unreachable_anchors"]


def report_unreachable_anchors(output: Output, name: str, found: TrailVerification) -> int:
    """Print the error of each anchor that could not be read. → the exit code of the verification"""
    failed = [output.failure(name, anchor.error) for anchor in found.unreachable]
    return DIFFERENCE if not found.intact else FAILED if failed else DONE


def print_verification(output: Output, name: str, found: TrailVerification) -> None:
    last = f"version {found.last_version} ({format_time(found.last_committed_at)})"
    signed = f"signed through version {found.sealed_version} ({format_time(found.sealed_committed_at)})"
    if found.sealed_version is None:
        signed = "not signed by any known checkpoint"
    if not found.intact:
        more = " and more" if found.more_findings else ""
        output.line(f"{name}: NOT INTACT: {format_count(len(found.findings), 'finding')}{more}")
        for finding in found.findings:
            output.line(f"  {finding.kind}: {escape_unprintable(finding.text)}")
        _suggest_query(output, name, found)
        output.line(f"  the ledger alone is {signed}")
    elif found.last_version is None:
        output.line(f"{name}: the trail is empty")
    elif found.sealed_version == found.last_version:
        output.line(f"{name}: intact and signed through {last}")
    else:
        output.line(f"{name}: intact through {last}, {signed}")
    _print_counts(output, found)
    for anchor in found.unreachable:
        output.line(f"  NOT COMPARED with the checkpoints at {anchor.anchor}: it could not be read")
    _print_gaps(output, found)


def _print_counts(output: Output, found: TrailVerification) -> None:
    checked = (
        f"{format_count(found.records, 'record')}, {format_count(found.events, 'event')}, "
        f"{format_count(found.values, 'row')} of values and {format_count(found.checkpoints, 'checkpoint')}"
    )
    new = " added since the last verification" if found.level == "quick" else ""
    output.line(f"  checked {checked}{new} ({found.seconds:.1f} s)")
    if found.removed:
        output.line(f"  the values of {format_count(found.removed, 'event')} were removed, as the ledger records")
    if found.resealed:
        output.line(
            f"  the values of {format_count(found.resealed, 'event')} were encrypted later, as the ledger records"
        )
    if found.unfinished:
        output.line(
            f"  the values of {format_count(found.unfinished, 'event')}, which the last record removes, still exist: the "
            "removal is running or was interrupted, and the next run finishes it"
        )
    if found.unrecorded:
        output.line(
            f"  {format_count(found.unrecorded, 'event')} not in the ledger yet, from a window that is being written or was "
            "interrupted"
        )


def _print_gaps(output: Output, found: TrailVerification) -> None:
    from audit.verification import NOT_COVERED

    for gap in found.not_covered:
        if gap not in NOT_COVERED:  # those are printed once for all trails
            output.line(f"  not checked: {gap}")


def _suggest_query(output: Output, name: str, found: TrailVerification) -> None:
    """Print the command that shows the rows of the first finding about rows."""
    for finding in found.findings:
        if finding.first is not None:
            index = f" --param index={finding.first}" if finding.first == finding.last else ""
            command = (
                f"deltarelay audit query events-of -p {shlex.quote(name)} --param version={finding.version}{index}"
            )
            output.line(f"  show the events: {command}")
            return
