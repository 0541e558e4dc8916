"""The state of a trail: the position of its ledger, read from the log of the ledger's table or from the records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from audit.proof import Checkpoint, ProofError, VerifierKey, leaf_hash, read_checkpoint, verify_note
from audit.trail.column_history import Column, columns_to_json
from audit.trail.position import MAINTENANCE_OPERATIONS, RECENT_COMMITS
from audit.trail.record_kinds import PAYLOAD_CHANGES, CommitRecord, Record, parse_record
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables, read_commit_info
from cdf.errors import VerificationError
from cdf.sink import Bounds

if TYPE_CHECKING:
    from cdf.changes.commits import Commit
    from cdf.source.log import TableLog

__all__ = [
    "State",
    "delete_unrecorded_payload",
    "is_signed_end",
    "read_record_at",
    "read_record_of_version",
    "read_state",
    "read_state_from_records",
    "state_checkpoint",
    "state_fields",
]


@dataclass(frozen=True, slots=True)
class State:
    """The end of the ledger, and what a runner has left unfinished."""

    sequence: int = 0
    """Sequence of the next record."""
    previous: bytes = bytes(32)
    """Hash of the last record; zeros before the first."""
    version: int | None = None
    table_id: str | None = None
    columns: tuple[Column, ...] = ()
    columns_at: int | None = None
    """Sequence of the record that has ``columns``."""
    pending: Bounds | None = None
    """Versions whose events are durable and whose records are not."""
    pending_baseline: bool = False
    pending_times: Mapping[int, dt.datetime | None] = field(default_factory=dict)
    """The commit times of the pending events, by version."""
    removal: bool = False
    """The last record is one of ``PAYLOAD_CHANGES``; its runner may have died before it changed the payload."""


def read_state(tables: TrailTables, *, by_log: bool = True) -> State:
    """Read the state from the trail's tables; empty where there are none. ``by_log``: trust the log of the ledger's table.

    Raises VerificationError where no runner leaves the ledger in such a state.
    """
    if not tables.exist():
        return State()
    logged = _read_logged_state(tables) if by_log else None
    return _add_pending(tables, logged or read_state_from_records(tables))


def delete_unrecorded_payload(tables: TrailTables, state: State) -> None:
    """Delete payload rows without events, which an interrupted window left. Only for the runner that holds the trail."""
    known = state.pending.last if state.pending is not None else state.version
    beyond = f"version is null or version > {-1 if known is None else known}"
    if not tables.read(PAYLOAD).where(beyond).isEmpty():
        tables.change(PAYLOAD, beyond, about={"cleared": known})


def read_state_from_records(tables: TrailTables) -> State:
    """Read the state from the last records, without what is pending: two small queries, whatever the length of the
    ledger."""
    from pyspark.sql import functions as F

    ledger = tables.read(LEDGER)
    ends = ledger.agg(F.max("sequence").alias("sequence"), F.max("version").alias("version")).collect()[0]
    if ends["sequence"] is None:
        return State()
    wanted = (F.col("sequence") == ends["sequence"]) | (F.col("version") == ends["version"])
    rows = sorted(ledger.where(wanted).select("sequence", "kind", "record").collect())
    try:
        last = _require_commit([row["record"] for row in rows if row["kind"] in ("commit", "baseline")][-1])
        return State(
            sequence=rows[-1]["sequence"] + 1,
            previous=leaf_hash(rows[-1]["record"].encode()),
            version=last.version,
            table_id=last.table_id,
            columns_at=last.columns_at,
            columns=_read_columns(tables, last.columns_at),
            removal=rows[-1]["kind"] in PAYLOAD_CHANGES,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise VerificationError(
            f"the last entry in the ledger of the trail at {tables.path} is not a valid record ({type(error).__name__})",
            hint="`deltarelay audit verify` reports what is altered",
        ) from error


# ── single records ───────────────────────────────────────────────────────────────────────────────────────────────────


def read_record_at(tables: TrailTables, sequence: int) -> Record:
    """Read the record with this sequence. LookupError, ValueError: there is no such record."""
    return _require_record(_read_text(tables, "sequence", sequence))


def read_record_of_version(tables: TrailTables, version: int) -> CommitRecord:
    """Read the record of this version of the source. LookupError, ValueError: there is no such record."""
    return _require_commit(_read_text(tables, "version", version))


def _read_text(tables: TrailTables, column: str, value: int) -> str | None:
    from pyspark.sql import functions as F

    text: str | None = tables.read(LEDGER).where(F.col(column) == value).select("record").collect()[0]["record"]
    return text


def _read_columns(tables: TrailTables, sequence: int) -> tuple[Column, ...]:
    record = read_record_at(tables, sequence)
    if not isinstance(record, CommitRecord) or record.columns is None:
        raise LookupError("the record has no columns")
    return record.columns


def _require_record(text: str | None) -> Record:
    record = parse_record(text)
    if record is None:
        raise ValueError("not a ledger record")
    return record


def _require_commit(text: str | None) -> CommitRecord:
    record = _require_record(text)
    if not isinstance(record, CommitRecord):
        raise ValueError("not the record of a commit")
    return record


# ── the signed end ───────────────────────────────────────────────────────────────────────────────────────────────────


def is_signed_end(keys: Iterable[VerifierKey], tables: TrailTables, state: State) -> bool:
    """Whether the ledger ends in this state, and the note beside its last record is signed by one of ``keys`` over the
    state."""
    from pyspark.sql import functions as F

    end = F.col("sequence").isNull() | (F.col("sequence") >= state.sequence - 1)
    rows = tables.read_current(LEDGER).where(end).select("record", "signed_state").take(2)
    if not rows:
        return state.sequence == 0
    try:
        text, _ = verify_note(rows[0]["signed_state"] or "", keys)
        signed = read_checkpoint(text)
    except ProofError:
        return False
    is_last = len(rows) == 1 and leaf_hash((rows[0]["record"] or "").encode()) == state.previous
    return is_last and signed == state_checkpoint(tables.origin(), state)


def state_checkpoint(origin: str, state: State) -> Checkpoint:
    """What a runner signs with each append. It is not a checkpoint of the trail: it has an origin of its own."""
    fields = {**state_fields(state), "columns": columns_to_json(state.columns)}
    return Checkpoint(f"{origin}/state", state.sequence, sha256(canonical_json(fields)).digest())


def state_fields(state: State) -> dict[str, Any]:
    """The state as it is stored in the log of the ledger's table."""
    return {
        "sequence": state.sequence,
        "previous": state.previous.hex(),
        "version": state.version,
        "table_id": state.table_id,
        "columns_at": state.columns_at,
        **({"removal": True} if state.removal else {}),
    }


# ── the log of the ledger's table ────────────────────────────────────────────────────────────────────────────────────


def _read_logged_state(tables: TrailTables) -> State | None:
    """The state in the last commit that appended records; None where another change came after it, or there is none."""
    for commit in _latest_commits(tables.log(LEDGER)):
        info = read_commit_info(commit)
        logged = info.get("state")
        if logged is not None:
            try:
                columns = _read_columns(tables, logged["columns_at"])
                return State(**{**logged, "previous": bytes.fromhex(logged["previous"]), "columns": columns})
            except (LookupError, TypeError, ValueError):  # not written by a runner
                return None
        if "opened" not in info and commit.operation not in MAINTENANCE_OPERATIONS:
            return None
    return None


def _latest_commits(log: TableLog) -> Iterator[Commit]:
    """The latest first, as long as the log has their files."""
    latest = log.latest()
    for version in range(latest, max(-1, latest - RECENT_COMMITS), -1):
        if not log.files(version, version):
            return
        yield from log.commits(version, version)


# ── pending events ───────────────────────────────────────────────────────────────────────────────────────────────────


def _add_pending(tables: TrailTables, state: State) -> State:
    """Add the events without records. Events are never deleted, so these must get their records. Payload without events may
    go."""
    from pyspark.sql import functions as F

    recorded = -1 if state.version is None else state.version
    rows = (
        tables.read(EVENTS)
        .where(F.col("version") > recorded)
        .groupBy("version")
        .agg(
            F.unix_micros(F.max("committed_at")).alias("at"),
            F.first("baseline").alias("baseline"),
            F.first("table_id").alias("table_id"),
        )
        .orderBy("version")
        .collect()
    )
    if not rows:
        return state
    logged = _read_logged_bounds(tables)
    first = rows[0]["version"] if state.version is None else state.version + 1
    last = rows[-1]["version"]
    if logged is not None and logged.last >= last:  # it has the versions without rows as well
        first, last = (logged.first if state.version is None else first), logged.last
    return replace(
        state,
        pending=Bounds(first, last),
        pending_baseline=rows[0]["baseline"],
        pending_times={row["version"]: _parse_time(row["at"]) for row in rows},
        table_id=rows[0]["table_id"] if state.version is None else state.table_id,
    )


def _parse_time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)


def _read_logged_bounds(tables: TrailTables) -> Bounds | None:
    """The bounds of the window whose events were written last, from the commit that wrote them."""
    for commit in _latest_commits(tables.log(EVENTS)):
        info = read_commit_info(commit)
        if "last" in info:
            return Bounds(info["first"], info["last"])
    return None
