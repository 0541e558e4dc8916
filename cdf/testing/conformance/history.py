"""Promises of sinks that hold history: every change once, in order for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from cdf.changes.schema_diff import ChangeKind
from cdf.testing.changes import delete, insert, update
from cdf.testing.conformance.harness import (
    NEXT,
    START,
    SinkHarness,
    assert_changes,
    baseline,
    load_sink,
    log_entries,
    next_window,
    open_sink,
    orders,
    read_position,
    require_holds,
    row,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = START


class HistoryPromises:
    def test_every_change_is_kept_once_in_the_order_of_its_key(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        require_holds("history", harness)
        table = orders(spark)
        # Puts come before removes here: the sink must order the changes inside a version.
        fifth = [insert(row(1, "new")), delete(A), update(B, B)]
        sixth = [update(row(1, "new"), row(2, "new")), update(B, row(1, "b"))]
        seventh = [delete(row(1, "b"))]
        with load_sink(harness, table) as sink:
            applied = sink.apply(table.window(5, fifth, sixth, seventh))
        one = [
            *log_entries(5, [delete(A), insert(row(1, "new"))]),
            (6, "update_preimage", row(1, "new")),
            (6, "update_postimage", row(1, "b")),
            *log_entries(7, seventh),
        ]
        two = [
            *log_entries(5, [update(B, B)]),
            (6, "update_preimage", B),
            (6, "update_postimage", row(2, "new")),
        ]
        assert_changes(harness, table, [*baseline(START), *one, *two])
        assert (applied.position, applied.inserts, applied.updates, applied.deletes) == (7, 1, 3, 2)

    def test_a_history_may_begin_with_any_window(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("history", harness)
        table = orders(spark)
        with open_sink(harness, table) as sink:
            sink.apply(next_window(table))
        assert_changes(harness, table, log_entries(5, NEXT))
        assert read_position(harness, table).version == 5

    def test_windows_add_to_each_other(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("history", harness)
        table = orders(spark)
        with load_sink(harness, table) as sink:
            sink.apply(next_window(table))
            sink.apply(table.window(6, [update(row(3, "d"), row(3, "e"))]))
        later = log_entries(6, [update(row(3, "d"), row(3, "e"))])
        assert_changes(harness, table, [*baseline(START), *log_entries(5, NEXT), *later])

    def test_a_history_follows_an_added_column(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("history", harness)
        if ChangeKind.ADD_COLUMN not in harness.capabilities.schema_changes:
            pytest.skip("this sink does not follow an added column")
        table = orders(spark)
        wider = table.with_schema(StructType([*table.schema.fields]).add("note", "string"))
        added = [insert({**row(3, "c"), "note": "new"})]
        with load_sink(harness, table) as sink:
            sink.apply(wider.window(5, added))
        assert_changes(harness, wider, [*baseline(START), *log_entries(5, added)])
