"""Through which version a trail is signed and anchored, without a JVM: delta-rs reads the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.anchors.base import AnchorFailure, NamedAnchor
from audit.checkpoints.anchored import AnchoredCheckpoints
from audit.proof import ProofError, verify_note
from audit.trail.position import open_ledger, translate_read_errors
from audit.trail.redaction import parse_object
from cdf.errors import CdfError
from cdf.result import Result

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from audit.proof import VerifierKey

__all__ = ["AnchoredThrough", "TrailCoverage", "read_coverage"]

HISTORY_LIMITS = (50, 1_000, 20_000)
"""How many of the ledger's latest commits are searched; the next number only if needed, because most are anchored soon."""


@dataclass(frozen=True, slots=True)
class AnchoredThrough(Result):
    """The largest checkpoint of one anchor that a trusted key has signed."""

    anchor: str
    records: int | None
    """Number of records that it covers; None: the anchor has no checkpoint of this trail."""
    version: int | None
    committed_at: dt.datetime | None
    """Version and commit time of the last commit that it covers."""


@dataclass(frozen=True, slots=True)
class TrailCoverage(Result):
    """What the ledger and the anchors say. No hash is recomputed: that is what ``audit verify`` is for."""

    records: int
    version: int | None
    committed_at: dt.datetime | None
    is_end_signed: bool
    """A trusted key has signed a note beside the last record."""
    anchors: tuple[AnchoredThrough, ...]
    failures: tuple[AnchorFailure, ...]
    """Anchors that cannot be read."""
    unanchored_commits: int | None = None
    """Commits that no anchor covers, as far as anchors can be read; None: none are configured."""
    unanchored_since: dt.datetime | None = None
    """When the first of these commits was recorded in the trail, or later; None: there are none, an anchor cannot be read,
    or it is unknown."""

    def count_unanchored(self) -> int | None:
        """Number of records that no anchor covers; None: there are no anchors, or one of them cannot be read."""
        if self.failures or not self.anchors:
            return None
        return self.records - max(one.records or 0 for one in self.anchors)


@dataclass(frozen=True, slots=True)
class _Origin:
    """As much of ``TrailTables`` as reading checkpoints needs."""

    text: str

    def origin(self) -> str:
        return self.text


def read_coverage(
    path: str,
    options: Mapping[str, str] | None,
    keys: Sequence[VerifierKey],
    anchors: Sequence[NamedAnchor],
    *,
    with_time: bool = True,
) -> TrailCoverage | None:
    """Read the coverage of the trail below ``path``; None where there is no trail. Raises SinkUnavailable.

    ``with_time``: whether ``unanchored_since`` is needed, for which the history of the ledger is read.
    """
    with translate_read_errors(path, "ledger"):
        ledger = open_ledger(path, options)
        if ledger is None:
            return None
        rows = ledger.to_pyarrow_table(columns=["sequence", "version", "committed_at"]).sort_by("sequence")
        last = rows.num_rows - 1
        notes = ledger.to_pyarrow_table(columns=["signed_state"], filters=[("sequence", ">=", last)])
        origin = f"deltarelay.audit/{ledger.metadata().id}"
    version, committed_at = _find_commit(rows, rows.num_rows)
    through, failures = _read_anchors(origin, rows, keys, anchors)
    covered = max((one.records or 0 for one in through), default=0)
    unanchored = _count_commits(rows, covered) if anchors else None
    since = None
    if with_time and unanchored and not failures:
        with translate_read_errors(path, "ledger"):
            since = _find_recording(ledger, rows, covered)
    return TrailCoverage(
        records=rows.num_rows,
        version=version,
        committed_at=committed_at,
        is_end_signed=any(_is_signed(note, keys) for note in notes.column("signed_state").to_pylist()),
        anchors=through,
        failures=failures,
        unanchored_commits=unanchored,
        unanchored_since=since,
    )


def _read_anchors(
    origin: str, rows: pa.Table, keys: Sequence[VerifierKey], anchors: Sequence[NamedAnchor]
) -> tuple[tuple[AnchoredThrough, ...], tuple[AnchorFailure, ...]]:
    tables: Any = _Origin(origin)
    through, failures = [], dict[str, CdfError]()
    for named in anchors:
        one = AnchoredCheckpoints(tables, keys, [named])
        notes = one.read_newest(failures)
        if named.name in failures:
            continue
        size = max((one.trusted_size(note) or 0 for note in notes), default=None)
        through.append(AnchoredThrough(named.name, size, *(_find_commit(rows, size or 0))))
    return tuple(through), tuple(AnchorFailure(name, error) for name, error in failures.items())


def _find_commit(rows: pa.Table, records: int) -> tuple[int | None, dt.datetime | None]:
    """The last commit among the first ``records`` records; other records have no version."""
    for row in reversed(
        rows.slice(0, records).select(["version", "committed_at"]).slice(max(0, records - 1_000)).to_pylist()
    ):
        if row["version"] is not None:
            return row["version"], row["committed_at"]
    return None, None


def _find_recording(ledger: DeltaTable, rows: pa.Table, start: int) -> dt.datetime | None:
    """When the first commit from record ``start`` on was recorded. If the log of the ledger does not reach back so far, the
    earliest time that it shows, or the time of the commit itself."""
    import pyarrow.compute as pc

    later = rows.slice(start)
    (first,) = later.slice(pc.index(pc.is_valid(later["version"]), True).as_py(), 1).to_pylist()
    recorded_at: dt.datetime | None = None
    for limit in HISTORY_LIMITS:
        history = ledger.history(limit)
        for entry in history:
            state = parse_object(entry.get("userMetadata")).get("state")
            if state is None:
                continue
            if state["sequence"] <= first["sequence"]:
                break
            recorded_at = dt.datetime.fromtimestamp(int(entry["timestamp"]) / 1000, tz=dt.UTC)
        else:
            if len(history) == limit:
                continue
        break
    committed_at: dt.datetime | None = first["committed_at"]
    return recorded_at or committed_at


def _count_commits(rows: pa.Table, start: int) -> int:
    """Commits among the records from ``start`` on; other records have no version."""
    versions = rows.column("version").slice(start)
    return int(len(versions) - versions.null_count)


def _is_signed(note: str | None, keys: Sequence[VerifierKey]) -> bool:
    try:
        verify_note(note or "", keys)
    except ProofError:
        return False
    return True
