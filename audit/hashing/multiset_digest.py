"""Order-independent keyed digests of changes: two sides have the same rows if their counts and sums are equal.

The digest of a change is HMAC-SHA-256 over its version, its type and the canonical encoding of its row. The sums of the two
halves of the digests reveal nothing about a row, and without the key no two different lists of rows can be made to agree.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Sums", "digest_rows", "digest_each_row", "sum_digests"]


@dataclass(slots=True)
class Sums:
    """The changes of one version: their number by type, and the sums of both halves of their digests."""

    counts: dict[str, int] = field(default_factory=dict)
    digest: tuple[int, int] = (0, 0)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items())) or "none"


_DIGEST = "version long, change_type string, count long, high decimal(38, 0), low decimal(38, 0)"


def digest_rows(rows: DataFrame, schema: StructType, key: bytes) -> DataFrame:
    """Sum the digests: → per task, version and change type the number of rows and the sums; ``side`` is ``rows``.

    ``rows``: the columns of ``schema`` in its order, under any names, then change type and version.
    """
    from pyspark.sql import functions as F

    return rows.mapInArrow(_make_digester(key, schema), _DIGEST).select(F.lit("rows").alias("side"), "*")


def digest_each_row(rows: DataFrame, schema: StructType, key: bytes) -> DataFrame:
    """→ ``place`` and ``digest`` of each row. ``rows``: as for ``digest_rows``, with ``place``, a number, after the
    version. Without the key a digest reveals nothing."""
    return rows.mapInArrow(_make_row_digester(key, schema), "place int, digest binary")


def sum_digests(digests: DataFrame) -> Mapping[str, Mapping[int, Sums]]:
    """→ the sums by side and version. ``side`` is ``rows``, or ``events`` for rows that were only counted."""
    from pyspark.sql import functions as F

    sums = (F.sum(name).alias(name) for name in ("count", "high", "low"))
    found: dict[str, dict[int, Sums]] = {"rows": {}, "events": {}}
    for row in digests.groupBy("side", "version", "change_type").agg(*sums).collect():
        side = found[row["side"]].setdefault(row["version"], Sums())
        side.counts[row["change_type"]] = row["count"]
        side.digest = side.digest[0] + int(row["high"]), side.digest[1] + int(row["low"])
    return found


def _make_row_digester(
    key: bytes, schema: StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            digests = [_digest(key, *change) for change in _changes(batch, schema)]
            names = ["place", "digest"]
            yield pa.RecordBatch.from_arrays(
                [batch.column(len(schema) + 2), pa.array(digests, pa.binary())], names=names
            )

    return digest


def _changes(batch: pa.RecordBatch, schema: StructType) -> Iterator[tuple[int, str, bytes]]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_rows

    width = len(schema)
    rows = encode_rows(pa.RecordBatch.from_arrays(batch.columns[:width], names=schema.names), schema)
    kinds, versions = batch.column(width).to_pylist(), batch.column(width + 1).to_pylist()
    return zip(versions, kinds, rows, strict=True)


def _digest(key: bytes, version: int, kind: str, row: bytes) -> bytes:
    return hmac.digest(key, f"{version} {kind} ".encode() + row, "sha256")


def _make_digester(key: bytes, schema: StructType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from decimal import Decimal

        import pyarrow as pa

        sums = dict[tuple[int, str], list[int]]()
        for batch in batches:
            for version, kind, row in _changes(batch, schema):
                hashed = _digest(key, version, kind, row)
                total = sums.setdefault((version, kind), [0, 0, 0])
                total[0] += 1
                total[1] += int.from_bytes(hashed[:8])
                total[2] += int.from_bytes(hashed[8:16])
        if sums:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([version for version, _ in sums], pa.int64()),
                    pa.array([kind for _, kind in sums], pa.string()),
                    pa.array([count for count, _, _ in sums.values()], pa.int64()),
                    pa.array([Decimal(high) for _, high, _ in sums.values()], pa.decimal128(38, 0)),
                    pa.array([Decimal(low) for _, _, low in sums.values()], pa.decimal128(38, 0)),
                ],
                names=["version", "change_type", "count", "high", "low"],
            )

    return digest
