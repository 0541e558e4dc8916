"""Appends to the ledger of a trail: one record per commit of the source, linked to the record before by its hash.

A commit without rows has a record as well, so a missing version is always a fault. A record is canonical JSON
(``audit.trail.redaction``); its hash is a leaf of one Merkle tree over the whole ledger, whose root the checkpoints sign.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from audit.hashing.merkle import merkle_root_of_chunks
from audit.proof import leaf_hash
from audit.trail.column_history import Column, columns_to_json
from audit.trail.events import CommitRoots
from audit.trail.ledger_state import State, state_checkpoint, state_fields
from audit.trail.redaction import canonical_json, extract_reasons, redact_parameters, shorten_text
from audit.trail.tables import LEDGER, RECORD, TrailTables

if TYPE_CHECKING:
    from audit.signing.signer import Signer
    from cdf.changes.window import Commit

__all__ = ["append_notes", "append_records", "append_removal", "describe_commits", "format_instant"]


def describe_commits(
    commits: Sequence[Commit],
    log_sha256: Sequence[str | None],
    columns: Sequence[Column],
    *,
    untimed: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Return what the records of these commits contain besides their events. Call it before anything is written: it may
    fail.

    ``log_sha256``: hashes of the commit files in the source's log. ``untimed``: versions whose commit time is not known.
    """
    names = frozenset(column.name for column in columns)
    described = [
        {
            "committed_at": None if commit.version in untimed else format_instant(commit.timestamp),
            "log_sha256": pin,
            "operation": shorten_text(commit.operation),
            "parameters": redact_parameters(commit.parameters, names),
            "user": shorten_text(commit.user),
            "version": commit.version,
            **extract_reasons(commit.user_metadata),
        }
        for commit, pin in zip(commits, log_sha256, strict=True)
    ]
    canonical_json(described)
    return described


def append_records(
    tables: TrailTables,
    state: State,
    described: Sequence[Mapping[str, Any]],
    *,
    kind: str,
    table_id: str,
    columns: tuple[Column, ...],
    roots: Mapping[int, CommitRoots],
    signer: Signer | None = None,
) -> State:
    """Append one record for each of the commits of ``describe_commits``, in one Delta commit; → the new state."""
    rows = []
    known = state.columns if state.columns_at is not None else None
    for commit in described:
        root = roots.get(commit["version"], CommitRoots({}, ()))
        has_new_columns = columns != known
        record = {
            **commit,
            "columns_at": state.sequence if has_new_columns else state.columns_at,
            "counts": dict(root.counts),
            "kind": kind,
            "previous": state.previous.hex(),
            "rows": root.events,
            "rows_root": merkle_root_of_chunks(root.chunk_roots).hex(),
            "sequence": state.sequence,
            "table_id": table_id,
            **({"columns": columns_to_json(columns)} if has_new_columns else {}),
        }
        known = columns
        rows.append(_make_row(record, commit["committed_at"], root))
        state = replace(
            _advance(state, rows[-1]),
            version=commit["version"],
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
    fields: Mapping[str, Any],
    *,
    kind: Literal["removal", "shredding", "sealing"] = "removal",
    hashes: bytes = b"",
    signer: Signer | None = None,
) -> State:
    """Append the record of values that are about to be removed (``removal``), whose keys were destroyed (``shredding``), or
    that are about to be encrypted (``sealing``); → the new state.

    ``fields``: what the record contains besides its place in the ledger. ``hashes``: the new hashes of encrypted rows, 32
    bytes each, in the order of the record.
    """
    at = format_instant(dt.datetime.now(dt.UTC))
    place = {"previous": state.previous.hex(), "sequence": state.sequence, "table_id": state.table_id}
    row = _make_row({**fields, **place, "kind": kind, "removed_at": at}, at, hashes=hashes)
    state = replace(_advance(state, row), removal=True)
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
    """Append a record for each step of an erasure, or for each access to decrypted values; → the new state.

    ``notes``: what the records contain besides their places in the ledger.
    """
    rows = []
    for note in notes:
        at = format_instant(dt.datetime.now(dt.UTC))
        place = {"previous": state.previous.hex(), "sequence": state.sequence, "table_id": state.table_id}
        rows.append(_make_row({**note, **place, "kind": kind, "noted_at": at}, at))
        state = replace(_advance(state, rows[-1]), removal=False)
    _append(tables, rows, state, signer)
    return state


def format_instant(at: dt.datetime) -> str:
    """A time as records have it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_Row = tuple[int, str, int | None, dt.datetime | None, int, str, bytes, bytes]
"""A row of ``RECORD``, without ``signed_state``."""
_ARROW = (
    pa.int64(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.int64(), pa.string(), pa.binary(), pa.binary()
)  # fmt: skip
"""The types of ``_Row``."""


def _make_row(record: Mapping[str, Any], at: str | None, root: CommitRoots | None = None, hashes: bytes = b"") -> _Row:
    text = canonical_json(record)
    return (
        record["sequence"],
        record["kind"],
        record.get("version"),
        None if at is None else dt.datetime.fromisoformat(at),
        root.events if root else 0,
        text.decode(),
        leaf_hash(text),
        b"".join(root.chunk_roots) if root else hashes,
    )


def _advance(state: State, row: _Row) -> State:
    return replace(state, sequence=state.sequence + 1, previous=row[6])


def _append(tables: TrailTables, rows: Sequence[_Row], state: State, signer: Signer | None) -> None:
    """Append the rows in one Delta commit. ``state``: the state after them, which the commit's metadata repeats."""
    arrays = [pa.array(values, type) for values, type in zip(zip(*rows, strict=True), _ARROW, strict=True)]
    note = None if signer is None else signer.sign(state_checkpoint(tables.origin(), state))
    arrays.append(pa.array([*[None] * (len(rows) - 1), note], pa.string()))
    tables.append(
        LEDGER, tables.create_rows(pa.table(arrays, RECORD.names), RECORD), about={"state": state_fields(state)}
    )
