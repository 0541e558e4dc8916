"""Collects a report: reads the ledger once, then verifies the trail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from audit.proof import ProofError, base64_text, read_checkpoint, read_note
from audit.report.ledger_summary import LedgerSummary
from audit.report.model import Anchored, Report
from audit.trail.tables import LEDGER
from cdf.spark_versions import iterate_rows

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.proof import Checkpoint
    from audit.trail.tables import TrailTables
    from audit.verification import FoundCheckpoint, VerifiedState

__all__ = ["make_report"]

FORM = 1


def make_report(
    trail: Trail,
    *,
    pipeline: str,
    source: str,
    keys: Sequence[str],
    before: VerifiedState | None = None,
    extra: Sequence[tuple[str, str]] = (),
    origin: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """The ledger is read before the verification, so that the verification covers everything that the report states.

    ``keys``: the verifier keys that the trail trusts. ``before``, ``extra`` and ``origin``: the earlier states that the
    trail must continue, as ``Trail.verify`` takes them. ``progress`` receives the name of each step before it begins. Raises
    VerificationError where a table cannot be read.
    """
    tables, report_step = trail.require_tables(), progress or (lambda _step: None)
    report_step("records")
    seen, missed = trail.read_checkpoints()
    summary = _summarize_ledger(tables, {copy.checkpoint.size for copy in seen if copy.checkpoint is not None})
    verification, _ = trail.verify(before=before, extra=extra, origin=origin, progress=report_step)
    unreachable = {anchor.anchor for anchor in missed}
    return Report(
        form=FORM,
        made_at=dt.datetime.now(dt.UTC),
        made_by=f"deltarelay {metadata.version('deltarelay')}",
        pipeline=pipeline,
        source=source,
        table_id=summary.table_id,
        trail=trail.path,
        origin=tables.origin(),
        keys=tuple(keys),
        shows_values=False,
        scope=summary.scope(),
        verification=verification,
        changes=summary.changes(),
        periods=summary.periods(),
        operations=summary.operations(),
        actors=summary.actors(),
        hiding=summary.hiding(),
        deletes_without_ticket=summary.deletes_without_ticket(),
        schema=summary.schema,
        schema_changes=tuple(summary.schema_changes),
        removals=tuple(summary.removals),
        erasures=tuple(summary.erasures),
        readings=tuple(summary.readings),
        gaps=tuple(summary.gaps),
        anchors=tuple(
            _describe_anchor(named.name, seen, summary, reached=named.name not in unreachable)
            for named in trail.anchors
        ),
        note=_read_newest_note(trail, seen),
    )


def _summarize_ledger(tables: TrailTables, checkpoint_sizes: set[int]) -> LedgerSummary:
    summary = LedgerSummary(checkpoint_sizes)
    for row in iterate_rows(tables.read_current(LEDGER).select("record", "sequence").orderBy("sequence")):
        summary.add(row["record"])
    return summary


def _describe_anchor(name: str, seen: Sequence[FoundCheckpoint], summary: LedgerSummary, *, reached: bool) -> Anchored:
    copies = [copy for copy in seen if copy.where == name]
    newest = _find_newest(copies)
    if newest is None:
        return Anchored(name, reached, len(copies), len(copies), None, None, None, None)
    version, at = summary.last_commit_at.get(newest.size, (None, None))
    not_signed = sum(not copy.signed for copy in copies)
    return Anchored(name, reached, len(copies), not_signed, newest.size, base64_text(newest.root), version, at)


def _find_newest(seen: Sequence[FoundCheckpoint]) -> Checkpoint | None:
    """The largest checkpoint that a trusted key has signed."""
    signed = [copy.checkpoint for copy in seen if copy.signed and copy.checkpoint is not None]
    return max(signed, key=lambda checkpoint: checkpoint.size) if signed else None


def _read_newest_note(trail: Trail, seen: Sequence[FoundCheckpoint]) -> str | None:
    """The text of the newest checkpoint, from any anchor whose latest checkpoint it is."""
    newest = _find_newest(seen)
    anchors = {named.name: named.anchor for named in trail.anchors}
    for where in dict.fromkeys(copy.where for copy in seen if newest is not None and copy.checkpoint == newest):
        note = anchors[where].latest(trail.tables.origin())
        try:
            if note is not None and read_checkpoint(read_note(note)[0]) == newest:
                return note
        except ProofError:
            continue
    return None
