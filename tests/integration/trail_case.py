"""What the tests of a trail's verification share: one trail, and how an intruder changes what is in its files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from audit.checkpoints.sign_ledger import sign_ledger as signed
from audit.hashing.row_encoding import encode_rows
from audit.proof import Checkpoint, leaf_hash, read_checkpoint, verify_note
from audit.signing.signer import Signer
from audit.trail.ledger_state import read_state_from_records
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENT, EVENTS, TrailTables
from audit.verification import FoundCheckpoint, verify_trail
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table

KEY = Signer.generate("trail.example.org/test")


@dataclasses.dataclass
class Trail:
    """A copy of the module's trail, for one intruder."""

    spark: SparkSession
    path: Path
    checkpoint: Checkpoint

    def table(self, name: str) -> Path:
        return self.path / name

    def sql(self, name: str, statement: str) -> None:
        self.spark.sql(statement.replace("{t}", f"delta.`{self.table(name)}`"))

    @property
    def tables(self) -> TrailTables:
        return TrailTables(self.spark, str(self.path))

    def findings(self, *seen: FoundCheckpoint, **asked: Any) -> list[tuple[str, str, int | None, int | None]]:
        found, _ = verify_trail(self.tables, seen or [FoundCheckpoint(self.checkpoint, "a safe", True)], **asked)
        assert found.intact == (not found.findings)
        return [(one.kind, one.table, one.version, one.first) for one in found.findings]


def write(source: Table) -> None:
    source.sql(
        "insert into {t} select id, concat('n', id), id / 4, timestamp'2026-01-01 00:00:00.000001' from range(6)",
        "update {t} set name = 'x' where id in (1, 2)",
        "delete from {t} where id = 3",
        "optimize {t}",
        "alter table {t} add column note string",
        "insert into {t} values (10, 'ten', 1.5, timestamp'2026-02-01 00:00:00', 'new')",
    )


def run(spark: SparkSession, source: Table, path: Path) -> None:
    sink = DeltaAuditSink(str(path), spark=spark, signer=KEY)
    Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest").run()


def sealed(spark: SparkSession, path: Path) -> Checkpoint:
    tables = TrailTables(spark, str(path))
    text, _ = verify_note(signed(tables, KEY, read_state_from_records(tables))[0], [KEY.verifier])
    return read_checkpoint(text)


def where(version: int, index: int | None = None) -> Callable[[pa.Table], Any]:
    def mask(rows: pa.Table) -> Any:
        found = pc.equal(rows["version"], version)
        return found if index is None else pc.and_(found, pc.equal(rows["index"], index))

    return mask


def put(rows: pa.Table, mask: Any, **columns: Callable[[Any], Any]) -> pa.Table:
    """The table with other values where the mask is."""
    chosen = mask.to_pylist()
    for name, new in columns.items():
        values = [new(value) if at else value for value, at in zip(rows[name].to_pylist(), chosen, strict=True)]
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))
    return rows


def event_of(trail: Trail, version: int, index: int) -> dict[str, Any]:
    return events_of(trail)[version, index]


def events_of(trail: Trail) -> dict[tuple[int, int], dict[str, Any]]:
    """Every event by its place; read from the files, without Spark."""
    files = DeltaTable(str(trail.table(EVENTS))).file_uris()
    rows = (row for file in files for row in pq.read_table(file, coerce_int96_timestamp_unit="us").to_pylist())
    return {(row["version"], row["index"]): row for row in rows}


def as_insert(rows: pa.Table) -> pa.Table:
    """The delete of version 3 becomes an insert, with the leaf that belongs to it."""
    return with_leaves(put(rows, where(3)(rows), change_type=lambda _: "insert"), where(3))


def with_leaves(rows: pa.Table, chosen: Callable[[pa.Table], Any]) -> pa.Table:
    """Events, of which the chosen ones have the leaf that belongs to them."""
    utc = pa.timestamp("us", tz="UTC")  # files do not have the zone that Spark knows by the type
    place = rows.schema.get_field_index("committed_at")
    as_read = rows.set_column(place, "committed_at", rows["committed_at"].cast(utc)).select(EVENT.names)
    leaves = iter([leaf_hash(event) for event in encode_rows(as_read.filter(chosen(rows)), EVENT)])
    return put(rows, chosen(rows), leaf=lambda _: next(leaves))


def chained(rows: pa.Table) -> pa.Table:
    """The records of one file of the ledger, each with its copies, its hash and that of the one before."""
    previous, out = bytes(32), list[dict[str, Any]]()
    for row in sorted(rows.to_pylist(), key=lambda row: row["sequence"]):
        record = {**json.loads(row["record"]), "previous": previous.hex(), "sequence": len(out)}
        text = canonical_json(record)
        previous = leaf_hash(text)
        out.append({**row, "sequence": len(out), "record": text.decode(), "leaf": previous})
    return pa.Table.from_pylist(out, schema=rows.schema)
