"""Is a trail what it was? Every hash is computed anew, from the values up to the signed checkpoints.

    payload   the values of each row           → the hash in its event
    events    each event                       → its leaf → the roots of its commit in the ledger
    ledger    each record, and the one before  → the root of the whole → checkpoints, which also stand outside

What is found is told as narrowly as the hashes that are left allow: a row where they name it, else a range of rows.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from audit.errors import find_named_file
from audit.trail.ledger import PAYLOAD_CHANGES, is_signed_end, read_state_from_records
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
    FoundCheckpoint,
    TrailVerification,
    VerifiedState,
)
from audit.verification.schema import ExpectedTables, verify_schema
from audit.verification.statistics import verify_statistics
from cdf.errors import CdfError, VerificationError, condition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.anchors.base import AnchorFailure
    from audit.proof import VerifierKey

__all__ = ["verify_trail"]


def verify_trail(
    tables: TrailTables,
    seen: Sequence[FoundCheckpoint],
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
    """Look at everything, or at what came after ``since``; → what was found, and if that is nothing, where to go on.

    ``seen``: checkpoints from outside and inside, of which none is believed before it is signed. ``before``: what an
    earlier verification found, which has to be the beginning of what is there. ``brought``: old ones count as well among
    ``seen``, so the ledger is read from its beginning. ``anchored``: a signed one is to be expected, unless some anchors
    are ``unreachable``. ``origin``: the trail that it has to be. ``keys``: whoever ends the ledger with one of them may not
    have got to its checkpoint yet. ``progress`` is told each step before it begins.
    A runner may be at work meanwhile: what the ledger does not have yet is left out, and counted. ``tables``: where they
    are pinned, just that is looked at.
    Raises VerificationError where a table cannot be read: that is neither intact nor a finding.
    """
    if since is not None and since.origin != tables.origin():
        since, before = None, since
    asked = _Asked(seen, since, since or before, anchored, tuple(unreachable), origin, keys)
    steps: list[str] = []

    def tell(step: str) -> None:
        steps.append(step)
        if progress is not None:
            progress(step)

    try:
        # What a full one reads it reads by itself: nobody's statistics keep a row from it
        session = tables.spark if since is not None else _reading_all(tables.spark)
        found = ExpectedTables(session, tables.path, pinned=tables.pinned)
        return _verified(found, asked, tell, whole=brought or since is None)
    except CdfError:
        raise
    except Exception as error:
        condition, file = condition_of(error), find_named_file(error)
        raise VerificationError(
            f"the trail at {tables.path} cannot be read through ({', '.join(steps[-1:])}; "
            f"{condition or type(error).__name__}): "
            + (f"the file {file} is damaged or gone" if file else "a file is damaged or gone")
            + ", or may not be read",
            hint="put the file back from a backup, and verify again"
            if file
            else "`deltarelay audit verify --debug` shows the file; put it back from a backup, and verify again",
            condition=condition,
        ) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """What ``verify_trail`` was told."""

    seen: Sequence[FoundCheckpoint]
    since: VerifiedState | None
    before: VerifiedState | None
    anchored: bool
    unreachable: tuple[AnchorFailure, ...]
    origin: str | None
    keys: Sequence[VerifierKey]


def _reading_all(spark: SparkSession) -> SparkSession:
    """A session like this one that believes no statistics: neither to pass rows over nor to count them."""
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


def _verified(
    tables: ExpectedTables, asked: _Asked, tell: Callable[[str], None], *, whole: bool
) -> tuple[TrailVerification, VerifiedState | None]:
    """``whole``: the ledger is read from its beginning."""
    began = time.monotonic()
    findings, origin = Findings(), tables.origin()
    since, before = asked.since, asked.before
    if before is not None and before.origin != origin:
        findings.add("replaced", LEDGER, "the trail that was verified before is another one: this one was made anew")
        before = None
    if asked.origin not in (None, origin):
        findings.add("replaced", LEDGER, "the trail is not the one that was asked for: this one was made anew")
    walk = LedgerScan() if since is None or whole else LedgerScan.after(since)
    told = select_trusted(asked.seen, origin, findings)
    tell("ledger")
    verify_ledger(read_records(tables, walk.tree.size), walk, told, findings, before=before)
    again = _removed_since(walk, since)
    if again and not whole:  # of commits from before it takes their records, too
        return _verified(tables, asked, tell, whole=True)
    covered = max((walk.sealed, *told))
    left = walk.tree.size > covered and not findings.of(LEDGER) and _left(tables, asked)
    removing = _removing(walk, covered, asked, left, findings)
    _expect_seal(walk, covered, asked, left, findings)
    verify_schema(tables, walk.columns.get(walk.columns_at, ()), findings)
    looked_at = _LookedAt(walk.last_version, None if since is None else since.version, again)
    walk.commits = {version: one for version, one in walk.commits.items() if looked_at.has(version)}
    # Events are durable before their record is: whatever the ledger has is in these
    events, payload = tables.now(EVENTS), tables.now(PAYLOAD)
    tell("events")
    total, unrecorded = events.count(), _beyond(events, walk.last_version).count()
    looked = verify_events(looked_at.of(events), walk, findings)
    passed = total - unrecorded - looked + (_of(events, again).count() if again else 0)
    known = 0 if since is None else since.events
    if passed != known and not findings.of(EVENTS):
        words = (
            f"of the events that the records tell of {known} were not looked at again, and {passed} of them are there"
        )
        findings.add("missing" if passed < known else "added", EVENTS, words)
    tell("values")
    # As it is after the payload was pinned: of what goes from that the record is there before
    ledger, size = tables.now(LEDGER), walk.tree.size if removing is None else removing
    # Only records that were looked at: those from before can tell nothing of what is new, nor take away from it
    walked = ledger if whole else ledger.where(f"sequence >= {walk.tree.size - walk.records}")
    rows = (looked_at.of(payload), looked_at.of(events))
    distrusted = walk.distrusted
    removed, resealed = read_removed_places(walked, size, distrusted), read_reencrypted_hashes(walked, size, distrusted)
    values = verify_values(*rows, removed, resealed, read_cleared_keys(walked, distrusted), walk, findings)
    if since is None:
        tell("statistics")
        verify_statistics(tables, findings)
    versions = sorted(walk.commits)
    found = TrailVerification(
        trail=tables.path,
        origin=origin,
        level="full" if since is None else "quick",
        intact=not findings.kept,
        first_version=versions[0] if versions else None,
        last_version=walk.last_version,
        last_committed_at=_time(walk.last_committed_at),
        sealed_version=walk.sealed_version,
        sealed_committed_at=_time(walk.sealed_committed_at),
        records=walk.records,
        events=looked,
        values=values.present,
        removed=values.removed,
        resealed=values.resealed,
        unfinished=0 if removing is None else values.unfinished,
        unrecorded=unrecorded,
        checkpoints=len(asked.seen),
        unreachable=asked.unreachable,
        findings=tuple(findings.kept),
        more_findings=findings.more,
        seconds=round(time.monotonic() - began, 3),
        not_covered=(
            *NOT_COVERED,
            *([] if asked.seen or asked.anchored else [NOT_ANCHORED]),
            *([] if since is None else [NOT_READ_AGAIN]),
        ),
    )
    # Whoever goes on from a removal that is not done, or not looked at, would not look for its values again
    kept = found.intact and not found.unfinished and not _removing_since(ledger, walk.tree.size)
    return found, walk.verified(origin, total - unrecorded) if kept else None


def _removed_since(walk: LedgerScan, since: VerifiedState | None) -> frozenset[int]:
    """The versions from before ``since`` of which values were removed after it."""
    if since is None:
        return frozenset()
    named = (versions for sequence, versions in walk.removals.items() if sequence >= since.size)
    return frozenset(version for versions in named for version in versions if version <= since.version)


def _removing_since(ledger: DataFrame, size: int) -> bool:
    """Whether there are records after the first ``size`` by which values go or are sealed: they came in the meantime."""
    from pyspark.sql import functions as F

    return not ledger.where((F.col("sequence") >= size) & F.col("kind").isin(*PAYLOAD_CHANGES)).isEmpty()


def _left(tables: TrailTables, asked: _Asked) -> bool:
    """Whether somebody with a trusted key has left the ledger's end as it is. Asked twice: a runner may go on meanwhile."""
    return bool(asked.keys) and any(
        is_signed_end(asked.keys, tables, read_state_from_records(tables)) for _ in range(2)
    )


def _removing(walk: LedgerScan, covered: int, asked: _Asked, left: bool, findings: Findings) -> int | None:
    """The last record, if it is of a removal by whoever writes the trail and is not sealed yet: its values may be there."""
    last = walk.tree.size - 1
    if last not in walk.removals or last < covered or findings.of(LEDGER):
        return None
    return last if left or not (asked.keys or covered) else None


def _expect_seal(walk: LedgerScan, covered: int, asked: _Asked, left: bool, findings: Findings) -> None:
    if asked.anchored and walk.tree.size and not covered and not asked.unreachable:
        words = "no anchor has a signed checkpoint of this trail, which has records: it was made anew, or never sealed"
        findings.add("not_signed", LEDGER, words)
    if not covered or walk.tree.size == covered or left or asked.unreachable:
        return
    if asked.keys and not findings.of(LEDGER):
        words = f"nobody with a key that is trusted has left the records after the first {covered} as they are"
        findings.add("not_signed", LEDGER, words)
        return
    for sequence in walk.removals:
        if sequence >= covered:
            words = f"record {sequence} tells that values were removed or sealed, and no signed checkpoint covers it"
            findings.add("not_signed", LEDGER, words)


def _time(said: str | None) -> dt.datetime | None:
    return None if said is None else dt.datetime.fromisoformat(said)


def _beyond(rows: DataFrame, version: int | None) -> DataFrame:
    """What the ledger does not have yet."""
    from pyspark.sql import functions as F

    return rows.where(F.col("version") > (-1 if version is None else version))


def _of(rows: DataFrame, versions: Iterable[int]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.where(F.col("version").isin(sorted(versions)))


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """What is new, as far as the ledger has it; those ``again`` of which something was removed since."""

    last: int | None
    since: int | None
    again: frozenset[int]

    def has(self, version: int) -> bool:
        return self.since is None or version > self.since or version in self.again

    def of(self, rows: DataFrame) -> DataFrame:
        """Rows without a version too, which none can have."""
        from pyspark.sql import functions as F

        version = F.col("version")
        within = version <= (-1 if self.last is None else self.last)
        if self.since is not None:
            # Not an empty list: nothing would be passed over by it
            again = [version.isin(sorted(self.again))] if self.again else []
            within = within & reduce(or_, again, version > self.since)
        return rows.where(within | version.isNull())
