"""The ledger of a trail: one record per commit of the source, each over all events of that commit and the record before.

Also commits without rows have one, so that a hole is always a fault. A record is canonical JSON
(``audit.trail.redaction``); its hash is a leaf of one tree over the whole ledger, which is what checkpoints sign."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from audit.hashing.merkle import root_of_chunks
from audit.proof import Checkpoint, ProofError, VerifierKey, leaf_hash, read_checkpoint, verify_note
from audit.trail.column_history import Column, from_json, to_json
from audit.trail.position import LOOK_BACK, NO_RECORDS
from audit.trail.record_kinds import parse_record
from audit.trail.redaction import canonical_json, cleaned_parameters, text_of, told_in
from audit.trail.rows import CommitRoots
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, RECORD, TrailTables, about_of
from cdf.errors import VerificationError
from cdf.sink import Bounds

if TYPE_CHECKING:
    from audit.signing.signer import Signer
    from cdf.changes.commits import Commit
    from cdf.source.log import TableLog

__all__ = [
    "REMOVING",
    "State",
    "append_records",
    "append_notes",
    "append_removal",
    "by_records",
    "clear",
    "described",
    "instant",
    "left_by",
    "read_state",
    "record_at",
    "record_of",
]


REMOVING = ("removal", "shredding", "sealing")
"""The kinds of records after which the payload is changed."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a trail stands, as its ledger tells it."""

    sequence: int = 0
    """Of the next record."""
    previous: bytes = bytes(32)
    """Hash of the last record; zeros before the first."""
    version: int | None = None
    table_id: str | None = None
    columns: tuple[Column, ...] = ()
    columns_at: int | None = None
    """The record that tells ``columns``."""
    pending: Bounds | None = None
    """Versions whose events are durable and whose records are not."""
    pending_baseline: bool = False
    pending_times: Mapping[int, dt.datetime | None] = field(default_factory=dict)
    """The commit times that those events have."""
    removal: bool = False
    """The last record is one of values that were removed or sealed; whoever wrote it may have died before they were."""


def read_state(tables: TrailTables, *, by_log: bool = True) -> State:
    """From the trail's tables; empty where there is none yet. ``by_log``: what the ledger's commits tell is believed.

    Raises VerificationError where no runner has left them so.
    """
    if not tables.exist():
        return State()
    told = _told(tables) if by_log else None
    return _with_pending(tables, told or by_records(tables))


def clear(tables: TrailTables, state: State) -> None:
    """Remove from the payload what no event knows: the rest of a window that broke off. Only by who holds the trail."""
    from pyspark.sql import functions as F

    known = state.pending.last if state.pending is not None else state.version
    beyond = F.col("version").isNull() | (F.col("version") > (-1 if known is None else known))
    if not tables.read(PAYLOAD).where(beyond).isEmpty():
        tables.change(PAYLOAD, lambda table: table.delete(beyond), about={"cleared": known})


def _told(tables: TrailTables) -> State | None:
    """By the last commit that appended records; None where something else happened since, or nothing is there."""
    for commit in _latest(tables.log(LEDGER)):
        said = about_of(commit).get("state")
        if said is not None:
            try:
                columns = _columns(tables, said["columns_at"])
                return State(**{**said, "previous": bytes.fromhex(said["previous"]), "columns": columns})
            except (LookupError, TypeError, ValueError):  # somebody else has said it
                return None
        if "opened" not in about_of(commit) and commit.operation not in NO_RECORDS:
            return None
    return None


def _latest(log: TableLog) -> Iterator[Commit]:
    """The latest first, as far as their files are there."""
    latest = log.latest()
    for version in range(latest, max(-1, latest - LOOK_BACK), -1):
        if not log.files(version, version):
            return
        yield from log.commits(version, version)


def by_records(tables: TrailTables) -> State:
    """From the last records alone, without what is pending: two small queries, whatever the ledger's length."""
    from pyspark.sql import functions as F

    ledger = tables.read(LEDGER)
    ends = ledger.agg(F.max("sequence").alias("sequence"), F.max("version").alias("version")).collect()[0]
    if ends["sequence"] is None:
        return State()
    wanted = (F.col("sequence") == ends["sequence"]) | (F.col("version") == ends["version"])
    rows = sorted(ledger.where(wanted).select("sequence", "kind", "record").collect())
    try:
        last = _parsed([row["record"] for row in rows if row["kind"] in ("commit", "baseline")][-1])
        return State(
            sequence=rows[-1]["sequence"] + 1,
            previous=leaf_hash(rows[-1]["record"].encode()),
            version=last["version"],
            table_id=last["table_id"],
            columns_at=last["columns_at"],
            columns=_columns(tables, last["columns_at"]),
            removal=rows[-1]["kind"] in REMOVING,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise VerificationError(
            f"the ledger of the trail at {tables.path} ends in what is no record ({type(error).__name__})",
            hint="`deltarelay audit verify` tells what is altered",
        ) from error


def _columns(tables: TrailTables, sequence: int) -> tuple[Column, ...]:
    return from_json(record_at(tables, sequence)["columns"])


def record_at(tables: TrailTables, sequence: int) -> dict[str, Any]:
    """What the record with this number tells. LookupError, ValueError: there is none such."""
    return _record(tables, "sequence", sequence)


def record_of(tables: TrailTables, version: int) -> dict[str, Any]:
    """What the record of this version of the source tells. LookupError, ValueError: there is none such."""
    return _record(tables, "version", version)


def _record(tables: TrailTables, column: str, value: int) -> dict[str, Any]:
    from pyspark.sql import functions as F

    rows = tables.read(LEDGER).where(F.col(column) == value).select("record").collect()
    return _parsed(rows[0]["record"])


def _parsed(text: str | None) -> dict[str, Any]:
    record = parse_record(text)
    if record is None:
        raise ValueError("this is no record")
    return record


def left_by(keys: Iterable[VerifierKey], tables: TrailTables, state: State) -> bool:
    """Whether the ledger ends in this state, and somebody with one of ``keys`` left it so: by the note beside its end."""
    from pyspark.sql import functions as F

    end = F.col("sequence").isNull() | (F.col("sequence") >= state.sequence - 1)
    rows = tables.now(LEDGER).where(end).select("record", "signed_state").take(2)
    if not rows:
        return state.sequence == 0
    try:
        text, _ = verify_note(rows[0]["signed_state"] or "", keys)
        signed = read_checkpoint(text)
    except ProofError:
        return False
    is_last = len(rows) == 1 and leaf_hash((rows[0]["record"] or "").encode()) == state.previous
    return is_last and signed == _left(tables.origin(), state)


def _left(origin: str, state: State) -> Checkpoint:
    """What a runner signs with each append. No checkpoint of the trail: it has an origin of its own."""
    told = {**_said(state), "columns": to_json(state.columns)}
    return Checkpoint(f"{origin}/state", state.sequence, sha256(canonical_json(told)).digest())


def _with_pending(tables: TrailTables, state: State) -> State:
    """Events are never taken away, so those without records have to get theirs. Payload without events is only rest."""
    from pyspark.sql import functions as F

    stands = -1 if state.version is None else state.version
    rows = (
        tables.read(EVENTS)
        .where(F.col("version") > stands)
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
    told = _told_bounds(tables)
    first = rows[0]["version"] if state.version is None else state.version + 1
    last = rows[-1]["version"]
    if told is not None and told.last >= last:  # it knows of versions without rows, too
        first, last = (told.first if state.version is None else first), told.last
    return replace(
        state,
        pending=Bounds(first, last),
        pending_baseline=rows[0]["baseline"],
        pending_times={row["version"]: _time(row["at"]) for row in rows},
        table_id=rows[0]["table_id"] if state.version is None else state.table_id,
    )


def _time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)


def _told_bounds(tables: TrailTables) -> Bounds | None:
    """Of the window whose events were written last, by the commit that wrote them."""
    for commit in _latest(tables.log(EVENTS)):
        said = about_of(commit)
        if "last" in said:
            return Bounds(said["first"], said["last"])
    return None


def described(
    commits: Sequence[Commit],
    log_sha256: Sequence[str | None],
    columns: Sequence[Column],
    *,
    untimed: Collection[int] = (),
) -> list[dict[str, Any]]:
    """What the records of these commits tell of them besides their events; made before anything is durable: it may fail."""
    names = frozenset(column.name for column in columns)
    told = [
        {
            "committed_at": None if commit.version in untimed else instant(commit.timestamp),
            "log_sha256": pin,
            "operation": text_of(commit.operation),
            "parameters": cleaned_parameters(commit.parameters, names),
            "user": text_of(commit.user),
            "version": commit.version,
            **told_in(commit.user_metadata),
        }
        for commit, pin in zip(commits, log_sha256, strict=True)
    ]
    canonical_json(told)
    return told


def append_records(
    tables: TrailTables,
    state: State,
    told: Sequence[Mapping[str, Any]],
    *,
    kind: str,
    table_id: str,
    columns: tuple[Column, ...],
    roots: Mapping[int, CommitRoots],
    signer: Signer | None = None,
) -> State:
    """One record for each of the commits that ``told`` describes, in one step; → where the trail stands then."""
    rows = []
    known = state.columns if state.columns_at is not None else None
    for one in told:
        root = roots.get(one["version"], CommitRoots({}, ()))
        anew = columns != known
        record = {
            **one,
            "columns_at": state.sequence if anew else state.columns_at,
            "counts": dict(root.counts),
            "kind": kind,
            "previous": state.previous.hex(),
            "rows": root.events,
            "rows_root": root_of_chunks(root.chunk_roots).hex(),
            "sequence": state.sequence,
            "table_id": table_id,
            **({"columns": to_json(columns)} if anew else {}),
        }
        known = columns
        rows.append(_row(record, one["committed_at"], root))
        state = replace(
            _after(state, rows[-1]),
            version=one["version"],
            table_id=table_id,
            columns=columns,
            columns_at=record["columns_at"],
            removal=False,
        )
    _append(tables, rows, state, signer)
    if (rest := state.pending) is not None and state.version is not None and state.version < rest.last:
        return replace(state, pending=replace(rest, first=state.version + 1))
    return replace(state, pending=None, pending_baseline=False, pending_times={})


def append_removal(
    tables: TrailTables,
    state: State,
    told: Mapping[str, Any],
    *,
    kind: Literal["removal", "shredding", "sealing"] = "removal",
    hashes: bytes = b"",
    signer: Signer | None = None,
) -> State:
    """The record of what is about to be removed, values or what keys have sealed, or to be sealed; ``told``: what it says
    besides its place in the ledger. ``hashes``: those of the rows that are sealed, one after the other."""
    at = instant(dt.datetime.now(dt.UTC))
    place = {"previous": state.previous.hex(), "sequence": state.sequence, "table_id": state.table_id}
    row = _row({**told, **place, "kind": kind, "removed_at": at}, at, beside=hashes)
    state = replace(_after(state, row), removal=True)
    _append(tables, [row], state, signer)
    return state


def append_notes(
    tables: TrailTables,
    state: State,
    notes: Sequence[Mapping[str, Any]],
    *,
    kind: Literal["erasure", "reading"] = "erasure",
    signer: Signer | None = None,
) -> State:
    """A record for each step of an erasure, or for each time that what is sealed was read; ``notes``: what they say besides
    their places in the ledger."""
    rows = []
    for told in notes:
        at = instant(dt.datetime.now(dt.UTC))
        place = {"previous": state.previous.hex(), "sequence": state.sequence, "table_id": state.table_id}
        rows.append(_row({**told, **place, "kind": kind, "noted_at": at}, at))
        state = replace(_after(state, rows[-1]), removal=False)
    _append(tables, rows, state, signer)
    return state


_Row = tuple[int, str, int | None, dt.datetime | None, int, str, bytes, bytes]
"""Of ``RECORD``, without the note."""


def _row(record: Mapping[str, Any], at: str | None, root: CommitRoots | None = None, beside: bytes = b"") -> _Row:
    text = canonical_json(record)
    return (
        record["sequence"],
        record["kind"],
        record.get("version"),
        None if at is None else dt.datetime.fromisoformat(at),
        root.events if root else 0,
        text.decode(),
        leaf_hash(text),
        b"".join(root.chunk_roots) if root else beside,
    )


def _after(state: State, row: _Row) -> State:
    return replace(state, sequence=state.sequence + 1, previous=row[6])


def _append(tables: TrailTables, rows: Sequence[_Row], state: State, signer: Signer | None) -> None:
    """In one step, with ``state``, where the trail stands after them, beside them for ``_told``."""
    arrays = [pa.array(values, type) for values, type in zip(zip(*rows, strict=True), _ARROW, strict=True)]
    note = None if signer is None else signer.sign(_left(tables.origin(), state))
    arrays.append(pa.array([*[None] * (len(rows) - 1), note], pa.string()))
    tables.append(LEDGER, tables.rows_of(pa.table(arrays, RECORD.names), RECORD), about={"state": _said(state)})


def _said(state: State) -> dict[str, Any]:
    return {
        "sequence": state.sequence,
        "previous": state.previous.hex(),
        "version": state.version,
        "table_id": state.table_id,
        "columns_at": state.columns_at,
        **({"removal": True} if state.removal else {}),
    }


_ARROW = (
    pa.int64(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.int64(), pa.string(), pa.binary(), pa.binary()
)  # fmt: skip
"""Of ``_Row``."""


def instant(at: dt.datetime) -> str:
    """As a record has it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
