"""Verifies a trail: every hash is recomputed, from the values up to the signed checkpoints.

    payload   the values of each row           → the hash in its event
    events    each event                       → its leaf → the roots of its commit in the ledger
    ledger    each record, and the one before  → the root of the whole → checkpoints, which are also stored outside

A finding is as precise as the remaining hashes allow: it names a row, or else a range of rows.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from audit.checkpoints.anchored import FoundCheckpoint
from audit.errors import find_named_file
from audit.trail.ledger_state import is_signed_end, read_state_from_records
from audit.trail.record_kinds import PAYLOAD_CHANGES
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables
from audit.verification.events import verify_events
from audit.verification.ledger import LedgerScan, read_records, select_trusted, verify_ledger
from audit.verification.payload import verify_values
from audit.verification.payload_records import read_cleared_keys, read_reencrypted_hashes, read_removed_places
from audit.verification.results import (
    NOT_ANCHORED,
    NOT_COVERED,
    NOT_READ_AGAIN,
    Findings,
    TrailVerification,
    VerifiedState,
)
from audit.verification.schema import ExpectedTables, verify_schema
from audit.verification.statistics import verify_statistics
from cdf.errors import CdfError, VerificationError, condition_of
from cdf.session import require_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.anchors.base import AnchorFailure
    from audit.proof import VerifierKey

__all__ = ["verify_trail"]


def verify_trail(
    tables: TrailTables,
    found: Sequence[FoundCheckpoint],
    *,
    since: VerifiedState | None = None,
    before: VerifiedState | None = None,
    brought: bool = False,
    anchored: bool = False,
    unreachable: Sequence[AnchorFailure] = (),
    origin: str | None = None,
    keys: Sequence[VerifierKey] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[TrailVerification, VerifiedState | None]:
    """Verify everything, or what came after ``since``; → the result, and if it is intact, the state for the next
    verification.

    ``found``: checkpoints from anchors and from the caller, not yet trusted. ``before``: an earlier verification, which
    must be the beginning of this trail. ``brought``: the caller brings old checkpoints, so the ledger is read from its
    beginning. ``anchored``: at least one signed checkpoint is expected, unless anchors are ``unreachable``. ``origin``: the
    expected trail. ``keys``: records after the last checkpoint count as signed if one of these keys has signed the end of
    the ledger. ``progress`` is called with the name of each step before it begins.
    A runner may write meanwhile: events without a ledger record are not verified, but counted. If ``tables`` are pinned,
    that state is verified.
    Raises VerificationError where a table cannot be read, which is neither intact nor a finding.
    """
    require_classic(tables.spark, f"the verification of the trail at {tables.path}")
    if since is not None and since.origin != tables.origin():
        since, before = None, since
    request = _Request(found, since, since or before, anchored, tuple(unreachable), origin, keys)
    steps: list[str] = []

    def report_step(step: str) -> None:
        steps.append(step)
        if progress is not None:
            progress(step)

    try:
        # A full verification reads every row: forged statistics must not hide any
        session = tables.spark if since is not None else _session_without_skipping(tables.spark)
        expected = ExpectedTables(session, tables.path, pinned=tables.pinned)
        return _verify(expected, request, report_step, whole=brought or since is None)
    except CdfError:
        raise
    except Exception as error:
        condition, file = condition_of(error), find_named_file(error)
        raise VerificationError(
            f"the trail at {tables.path} cannot be read completely ({', '.join(steps[-1:])}; "
            f"{condition or type(error).__name__}): "
            + (f"the file {file}" if file else "a file")
            + " is damaged, missing or not readable for this user",
            hint="restore the file from a backup, and verify again"
            if file
            else "`deltarelay audit verify --debug` shows the file; restore it from a backup, and verify again",
            condition=condition,
        ) from error


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of ``verify_trail``."""

    found: Sequence[FoundCheckpoint]
    since: VerifiedState | None
    before: VerifiedState | None
    anchored: bool
    unreachable: tuple[AnchorFailure, ...]
    origin: str | None
    keys: Sequence[VerifierKey]


def _session_without_skipping(spark: SparkSession) -> SparkSession:
    """A session like this one that neither skips files or rows by statistics nor counts rows by them."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for setting in (
        "spark.databricks.delta.stats.skipping",
        "spark.databricks.delta.optimizeMetadataQuery.enabled",
        "spark.sql.parquet.filterPushdown",
        "spark.sql.parquet.aggregatePushdown",
    ):
        session.conf.set(setting, "false")
    return session


def _verify(
    tables: ExpectedTables, request: _Request, report_step: Callable[[str], None], *, whole: bool
) -> tuple[TrailVerification, VerifiedState | None]:
    """``whole``: read the ledger from its beginning."""
    began = time.monotonic()
    findings, origin = Findings(), tables.origin()
    since, before = request.since, request.before
    if before is not None and before.origin != origin:
        findings.add("replaced", LEDGER, "another trail was verified before: this one was recreated")
        before = None
    if request.origin not in (None, origin):
        findings.add("replaced", LEDGER, "the trail is not the requested one: this one was recreated")
    scan = LedgerScan() if since is None or whole else LedgerScan.after(since)
    trusted = select_trusted(request.found, origin, findings)
    report_step("ledger")
    verify_ledger(read_records(tables, scan.tree.size), scan, trusted, findings, before=before)
    again = _versions_removed_since(scan, since)
    if again and not whole:  # the records of these earlier commits are needed as well
        return _verify(tables, request, report_step, whole=True)
    covered = max((scan.sealed, *trusted))
    signed_end = scan.tree.size > covered and not findings.of(LEDGER) and _has_signed_end(tables, request)
    removing = _find_removal_in_progress(scan, covered, request, signed_end, findings)
    _require_signature(scan, covered, request, signed_end, findings)
    verify_schema(tables, scan.columns.get(scan.columns_at, ()), findings)
    scope = _Scope(scan.last_version, None if since is None else since.version, again)
    scan.commits = {version: commit for version, commit in scan.commits.items() if scope.includes(version)}
    # Events are durable before their record: the events of all records read above are in these tables
    events, payload = tables.read_current(EVENTS), tables.read_current(PAYLOAD)
    report_step("events")
    total, unrecorded = events.count(), _after(events, scan.last_version).count()
    verified = verify_events(scope.select(events), scan, findings)
    skipped = total - unrecorded - verified + (_of_versions(events, again).count() if again else 0)
    known = 0 if since is None else since.events
    if skipped != known and not findings.of(EVENTS):
        message = (
            f"{known} of the recorded events were verified before and not read again; the table has {skipped} of them"
        )
        findings.add("missing" if skipped < known else "added", EVENTS, message)
    report_step("values")
    # Read after the payload was pinned: if values are missing from that, their record is in this ledger
    ledger, size = tables.read_current(LEDGER), scan.tree.size if removing is None else removing
    # Only records that were verified: earlier ones cannot explain faults in what is new
    scanned = ledger if whole else ledger.where(f"sequence >= {scan.tree.size - scan.records}")
    distrusted = scan.distrusted
    values = verify_values(
        scope.select(payload),
        scope.select(events),
        read_removed_places(scanned, size, distrusted),
        read_reencrypted_hashes(scanned, size, distrusted),
        read_cleared_keys(scanned, distrusted),
        scan,
        findings,
    )
    if since is None:
        report_step("statistics")
        verify_statistics(tables, findings)
    versions = sorted(scan.commits)
    result = TrailVerification(
        trail=tables.path,
        origin=origin,
        level="full" if since is None else "quick",
        intact=not findings.kept,
        first_version=versions[0] if versions else None,
        last_version=scan.last_version,
        last_committed_at=_parse_time(scan.last_committed_at),
        sealed_version=scan.sealed_version,
        sealed_committed_at=_parse_time(scan.sealed_committed_at),
        records=scan.records,
        events=verified,
        values=values.present,
        removed=values.removed,
        resealed=values.resealed,
        unfinished=0 if removing is None else values.unfinished,
        unrecorded=unrecorded,
        checkpoints=len(request.found),
        unreachable=request.unreachable,
        findings=tuple(findings.kept),
        more_findings=findings.more,
        seconds=round(time.monotonic() - began, 3),
        not_covered=(
            *NOT_COVERED,
            *([] if request.found or request.anchored else [NOT_ANCHORED]),
            *([] if since is None else [NOT_READ_AGAIN]),
        ),
    )
    # A verification that continues after an unfinished or unread removal would not look for its values again
    continues = result.intact and not result.unfinished and not _has_later_removal(ledger, scan.tree.size)
    return result, scan.to_state(origin, total - unrecorded) if continues else None


def _versions_removed_since(scan: LedgerScan, since: VerifiedState | None) -> frozenset[int]:
    """The versions up to ``since`` of which values were removed after it."""
    if since is None:
        return frozenset()
    named = (versions for sequence, versions in scan.removals.items() if sequence >= since.size)
    return frozenset(version for versions in named for version in versions if version <= since.version)


def _has_later_removal(ledger: DataFrame, size: int) -> bool:
    """Whether a record after the first ``size`` removes or encrypts values: it was appended during the verification."""
    from pyspark.sql import functions as F

    return not ledger.where((F.col("sequence") >= size) & F.col("kind").isin(*PAYLOAD_CHANGES)).isEmpty()


def _has_signed_end(tables: TrailTables, request: _Request) -> bool:
    """Whether a trusted key has signed the end of the ledger. Asked twice, because a runner may append meanwhile."""
    return bool(request.keys) and any(
        is_signed_end(request.keys, tables, read_state_from_records(tables)) for _ in range(2)
    )


def _find_removal_in_progress(
    scan: LedgerScan, covered: int, request: _Request, signed_end: bool, findings: Findings
) -> int | None:
    """The sequence of the last record, if a trusted runner may still be removing or encrypting the values that it names."""
    last = scan.tree.size - 1
    if last not in scan.removals or last < covered or findings.of(LEDGER):
        return None
    return last if signed_end or not (request.keys or covered) else None


def _require_signature(scan: LedgerScan, covered: int, request: _Request, signed_end: bool, findings: Findings) -> None:
    """Report records without a signature: all of them, those after the last checkpoint, or those that remove values."""
    if request.anchored and scan.tree.size and not covered and not request.unreachable:
        message = (
            "the ledger has records, but no anchor has a signed checkpoint of it: the trail was recreated, or was never "
            "signed"
        )
        findings.add("not_signed", LEDGER, message)
    if not covered or scan.tree.size == covered or signed_end or request.unreachable:
        return
    if request.keys and not findings.of(LEDGER):
        message = f"the records after the first {covered} are not signed by a trusted key"
        findings.add("not_signed", LEDGER, message)
        return
    for sequence in scan.removals:
        if sequence >= covered:
            message = (
                f"record {sequence} states that values were removed or encrypted, but no signed checkpoint covers it"
            )
            findings.add("not_signed", LEDGER, message)


def _parse_time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def _after(rows: DataFrame, version: int | None) -> DataFrame:
    """The rows that the ledger does not have yet."""
    from pyspark.sql import functions as F

    return rows.where(F.col("version") > (-1 if version is None else version))


def _of_versions(rows: DataFrame, versions: Iterable[int]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.where(F.col("version").isin(sorted(versions)))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The versions that are verified: those after ``since`` up to ``last``, and those in ``again``."""

    last: int | None
    since: int | None
    again: frozenset[int]

    def includes(self, version: int) -> bool:
        return self.since is None or version > self.since or version in self.again

    def select(self, rows: DataFrame) -> DataFrame:
        """Also selects rows without a version, which are always a fault."""
        from pyspark.sql import functions as F

        version = F.col("version")
        within = version <= (-1 if self.last is None else self.last)
        if self.since is not None:
            # Without an empty list, with which Delta would skip no files
            again = [version.isin(sorted(self.again))] if self.again else []
            within = within & reduce(or_, again, version > self.since)
        return rows.where(within | version.isNull())
