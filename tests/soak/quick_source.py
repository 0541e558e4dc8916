"""The same table, changed by delta-rs: a commit takes milliseconds, where Spark's takes seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.soak.random_source import Source

FIRST_KEY = 200_000_000
"""Above every key that ``Source`` chooses."""
BULK_ROWS, BULK_TEXT = 4_000, 400
"""More than goes through the driver (``SMALL_WINDOW_BYTES``), whatever compresses it."""


class QuickSource:
    """Changes of ``source``'s table. Keys stay unique: those of an append are used once, all others come by MERGE."""

    def __init__(self, source: Source, path: str, chance: random.Random, *, by_spark: float) -> None:
        self._source, self._chance, self._by_spark = source, chance, by_spark
        self._open = DeltaTable(path)
        self._next_key = FIRST_KEY + 1
        self._batches = [(FIRST_KEY, 1)]

    def change(self) -> str:
        """One commit as a rule; a few kinds make two or none."""
        if self._chance.random() < self._by_spark:
            return f"spark {self._source.change()}"
        kinds: list[tuple[Callable[[], None], float]] = [
            (self.append, 6), (self.update, 6), (self.delete, 5), (self.merge, 6), (self.swap_keys, 2), (self.no_op, 1),
            (self.bulk, 0.2),
        ]  # fmt: skip
        ways, weights = zip(*kinds, strict=True)
        kind: Callable[[], None] = self._chance.choices(ways, weights)[0]
        kind()
        return kind.__name__

    def version(self) -> int:
        return int(self._table().version())

    def append(self) -> None:
        count = self._chance.choice([1, 3, 3, 40, 40, 400])
        write_deltalake(self._table(), self._rows(*self._fresh(count)), mode="append")

    def bulk(self) -> None:
        """Two large commits: rows that are copied by tasks, and the same rows deleted."""
        low, count = self._fresh(BULK_ROWS)
        rows = self._rows(low, count)
        text = [self._chance.randbytes(BULK_TEXT).hex() for _ in range(count)]
        write_deltalake(self._table(), rows.set_column(2, "v", pa.array(text)), mode="append")
        self._table().delete(f"a >= {low} and a < {low + count}")

    def update(self) -> None:
        changes = {"v": "concat(v, '~')", "n": "cast(n + 0.01 as decimal(12,2))"}
        self._table().update(predicate=self._some(), updates=changes)

    def no_op(self) -> None:
        self._table().update(predicate=self._some(), updates={"v": "v"})

    def swap_keys(self) -> None:
        swapped = "case b when 'b0' then 'b1' when 'b1' then 'b0' else b end"
        self._table().update(predicate=self._some(), updates={"b": swapped})

    def delete(self) -> None:
        self._table().delete(self._some())

    def merge(self) -> None:
        """Some rows of a batch deleted, some changed; those that are gone by now come back."""
        rows = self._rows(*self._chance.choice(self._batches[-20:]))
        merging = self._table().merge(rows, "s.a = t.a and s.b = t.b", source_alias="s", target_alias="t")
        deleted = merging.when_matched_delete(f"t.a % 3 = {self._chance.randrange(3)}")
        deleted.when_matched_update_all().when_not_matched_insert_all().execute()

    def _table(self) -> DeltaTable:
        self._open.update_incremental()  # reading a long log anew would take longer than the commit
        return self._open

    def _fresh(self, count: int) -> tuple[int, int]:
        low = self._next_key
        self._next_key += count
        if count < BULK_ROWS:
            self._batches.append((low, count))
        return low, count

    def _some(self) -> str:
        return f"a % {self._chance.choice([5, 7, 7, 50])} = {self._chance.randrange(5)}"

    def _rows(self, low: int, count: int) -> pa.Table:
        salt = self._chance.randrange(10**6)
        keys = range(low, low + count)
        columns = {
            "a": pa.array(keys, pa.int32()),
            "b": pa.array([f"b{key % 3}" for key in keys]),
            "v": pa.array([f"v{key}-{salt}" for key in keys]),
            "n": pa.array([key % 1000 for key in keys], pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(12, 2)),
            "t": pa.array([salt * 1_000_003 + key for key in keys], pa.timestamp("us", tz="UTC")),
        }
        for number in range(self._source.columns):
            columns[f"x{number}"] = pa.array([f"x{salt}" if key % 2 else None for key in keys], pa.string())
        return pa.table(columns)
