"""Proves that one event is covered by a checkpoint: collects the inclusion proofs, for ``audit.proof`` to check."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from audit.checkpoints.anchored import AnchoredCheckpoints
from audit.hashing.merkle import format_proof, inclusion_path
from audit.hashing.row_encoding import encode_rows
from audit.proof import Proof, ProofError, check, leaf_hash
from audit.trail.column_history import Column, row_type
from audit.trail.events import CHUNK_EVENTS
from audit.trail.ledger_state import read_record_at, read_record_of_version
from audit.trail.record_kinds import CommitRecord, parse_record
from audit.trail.tables import EVENT, EVENTS, LEDGER, PAYLOAD, TrailTables
from cdf.errors import CdfError, ConfigError, VerificationError
from cdf.spark_versions import collect_arrow

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = ["prove_event", "read_columns_of_version"]


def prove_event(checkpoints: AnchoredCheckpoints, version: int, index: int, *, show_row: bool) -> str:
    """Return the proof file of an event (``Trail.prove``)."""
    from pyspark.sql import functions as F

    tables = checkpoints.tables
    events = tables.read(EVENTS).where(F.col("version") == version)
    first = index // CHUNK_EVENTS * CHUNK_EVENTS
    rows = collect_arrow(events.where(F.col("index").between(first, first + CHUNK_EVENTS - 1)).orderBy("index"))
    places = rows.column("index").to_pylist()
    if index not in places:
        raise ConfigError(
            f"version {version} has no event {index} in the trail", hint="`deltarelay audit history` lists the events"
        )
    note, size = _newest_note(checkpoints)
    try:
        event = rows.slice(places.index(index), 1)
        leaves, record = _read_leaves(tables, size), _read_record(tables, version, size)
        text, roots = record["record"].encode(), bytes(record["chunk_roots"])
        parsed = parse_record(text)
        if not isinstance(parsed, CommitRecord):
            raise ValueError("not the record of a commit")
        path = [
            *inclusion_path([leaf_hash(leaf) for leaf in encode_rows(rows.select(EVENT.names), EVENT)], index - first),
            *inclusion_path([roots[at : at + 32] for at in range(0, len(roots), 32)], index // CHUNK_EVENTS),
        ]
        id, hash = (event.column(name)[0].as_py() for name in ("id", "row_hash"))
        salt, row = _read_row(tables, id, version, hash) if show_row else (None, None)
        proof = format_proof(
            Proof(
                event=encode_rows(event.select(EVENT.names), EVENT)[0],
                salt=salt,
                row=row,
                index=index,
                size=parsed.rows,
                path=path,
                record=text,
                sequence=parsed.sequence,
                ledger_path=inclusion_path(leaves, parsed.sequence),
                note=note,
            )
        )
        check(proof, [str(key) for key in checkpoints.keys])
    except (ProofError, ValueError, KeyError, IndexError, TypeError) as error:
        raise VerificationError(
            f"event {index} of version {version} cannot be proven"
            + (f": {error}" if isinstance(error, ProofError) else ""),
            hint="`deltarelay audit verify` reports what is altered",
        ) from error
    return proof


def _newest_note(checkpoints: AnchoredCheckpoints) -> tuple[str, int]:
    """The largest trusted checkpoint, and its number of records."""
    failures: dict[str, CdfError] = {}
    notes = checkpoints.read_newest(failures)
    if failures and not notes:
        raise next(iter(failures.values()))
    if not notes:
        raise ConfigError(
            "the trail has no checkpoint, and a proof needs one",
            hint="`deltarelay audit checkpoint` signs one and publishes it to the anchors",
        )
    return max(((note, checkpoints.trusted_size(note) or 0) for note in notes), key=itemgetter(1))


def _read_leaves(tables: TrailTables, size: int) -> list[bytes]:
    """The hashes of the first ``size`` records."""
    from pyspark.sql import functions as F

    ledger = tables.read(LEDGER).where(F.col("sequence") < size)
    return [bytes(row["leaf"]) for row in ledger.select("leaf", "sequence").orderBy("sequence").collect()]


def _read_record(tables: TrailTables, version: int, size: int) -> Row:
    """``record`` and ``chunk_roots`` of the version, among the first ``size`` records."""
    from pyspark.sql import functions as F

    ledger = tables.read(LEDGER).where(F.col("sequence") < size)
    rows = ledger.where(F.col("version") == version).select("record", "chunk_roots").collect()
    if not rows:
        raise ConfigError(
            f"version {version} is not covered by a checkpoint yet", hint="`deltarelay audit checkpoint` signs one"
        )
    return rows[0]


def _read_row(tables: TrailTables, id: bytes, version: int, hash: bytes) -> tuple[bytes, bytes]:
    """Salt and encoding of an event's row, which must have this hash."""
    from pyspark.sql import functions as F

    rows = tables.read(PAYLOAD).where((F.col("version") == version) & (F.col("id") == F.lit(bytearray(id))))
    found = collect_arrow(rows.select("salt", "row", "row_hash"))
    if found.num_rows != 1:
        raise ConfigError("the values of this event were removed from the trail", hint="leave out --show-row")
    if found.column("row_hash")[0].as_py() != hash:
        raise ConfigError(
            "the values of this event were encrypted after they were written, or altered: no proof covers them",
            hint="leave out --show-row; `deltarelay audit verify` reports whether they were altered",
        )
    import pyarrow as pa
    import pyarrow.compute as pc

    live = [column for column in read_columns_of_version(tables, version) if column.live]
    values = [pc.struct_field(found.column("row").combine_chunks(), column.stored) for column in live]
    schema = row_type(live, stored=False)
    encoded = encode_rows(pa.RecordBatch.from_arrays(values, names=schema.names), schema)[0]
    return bytes(found.column("salt")[0].as_py()), encoded


def read_columns_of_version(tables: TrailTables, version: int) -> tuple[Column, ...]:
    """Read where the payload stores the values of each column, as of a version of the source."""
    record = read_record_of_version(tables, version)
    if record.columns is not None:
        return record.columns
    with_columns = read_record_at(tables, record.columns_at)
    if not isinstance(with_columns, CommitRecord) or with_columns.columns is None:
        raise LookupError("the record has no columns")
    return with_columns.columns
