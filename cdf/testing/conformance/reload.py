"""Promises of sinks that can be reloaded from a snapshot (``cdf.sink.Reloadable``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from cdf.errors import CdfError, Fenced, KeyViolation, LeaseHeld, PositionError
from cdf.sink import Reloadable
from cdf.testing.changes import Row, SampleTable, update
from cdf.testing.conformance.harness import (
    START,
    SinkHarness,
    assert_rows,
    assert_start,
    assert_unchanged,
    expect_error,
    load_sink,
    open_sink,
    orders,
    read_position,
    require_holds,
    row,
)
from cdf.testing.faulty import before_reading, unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER = [row(1, "other", 7), row(4, None), row(5, "e", 5)]
"""Compared with START: one row differs, two are new, and one is gone."""


def load_orders(spark: SparkSession | None, harness: SinkHarness) -> SampleTable:
    """A table whose rows a run has loaded. Skips the promise if the sink does not hold a state."""
    require_holds("state", harness)
    table = orders(spark)
    with load_sink(harness, table):
        pass
    return table


@contextmanager
def open_to_reload(harness: SinkHarness, table: SampleTable) -> Iterator[Reloadable]:
    sink = harness.new_sink()
    if not isinstance(sink, Reloadable):
        pytest.skip("this sink is not Reloadable")
    try:
        # All tables here had the columns of ``orders``: the source says which of the target's columns may be dropped
        former = frozenset(orders(table.spark).schema.names)
        sink.open_to_reload(dataclasses.replace(table.source(), former=former))
        yield sink
    finally:
        sink.close()


def check_reload(harness: SinkHarness, table: SampleTable, version: int, rows: Sequence[Row] = OTHER) -> None:
    with open_to_reload(harness, table) as sink:
        applied = sink.reload(table.snapshot(version, rows))
    assert (applied.position, applied.inserts) == (version, len(rows))
    assert_rows(harness, table, rows)
    found = read_position(harness, table)
    assert (found.version, found.table_id, found.pending) == (version, table.table_id, None)


class ReloadPromises:
    def test_a_reload_makes_the_target_equal_the_snapshot(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = load_orders(spark, harness)
        check_reload(harness, table, 9)
        with open_sink(harness, table) as sink:  # and windows follow it
            sink.apply(table.window(10, [update(OTHER[0], row(1, "next"))]))
        assert_rows(harness, table, [row(1, "next"), *OTHER[1:]])

    def test_a_reload_of_an_empty_target_fills_it(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        check_reload(harness, orders(spark), 3)

    def test_a_reload_may_leave_nothing(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = load_orders(spark, harness)
        check_reload(harness, table, 5, [])

    def test_a_reload_may_go_back_in_versions(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = load_orders(spark, harness)
        check_reload(harness, table, 2)
        check_reload(harness, table, 2, START)  # and to the target's present version

    def test_a_reload_takes_another_table(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = load_orders(spark, harness)
        schema = StructType().add("id", "long").add("name", "integer").add("note", "string")
        other = dataclasses.replace(table, table_id="5a3b0c5e-0000-4000-8000-000000000002", schema=schema)
        check_reload(harness, other, 1, [{"id": 1, "name": 5, "note": "x"}])

    def test_an_interrupted_reload_changes_nothing_and_is_called_again(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = load_orders(spark, harness)
        with open_to_reload(harness, table) as sink:
            with expect_error(CdfError):
                sink.reload(unreadable(table.snapshot(9, OTHER), at={"id": OTHER[0]["id"]}))
            assert_unchanged(harness, table)
            sink.reload(table.snapshot(9, OTHER))
        assert_rows(harness, table, OTHER)

    def test_a_reload_refuses_keys_that_identify_no_row(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = load_orders(spark, harness)
        with open_to_reload(harness, table) as sink, expect_error(KeyViolation) as found:
            sink.reload(table.snapshot(9, [*OTHER, row(1, "again"), {"name": "no key"}]))
        assert (found.error.fields["null_rows"], found.error.fields["duplicate_keys"]) == (1, 1)
        assert_unchanged(harness, table)

    def test_a_reload_waits_for_its_turn(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        table = orders(spark)
        with load_sink(harness, table), expect_error(LeaseHeld), open_to_reload(harness, table):
            pass
        assert_start(harness, table)

    def test_a_runner_overtaken_in_the_midst_of_a_reload_is_fenced(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = load_orders(spark, harness)
        second = harness.new_sink()
        overtaken = False

        def overtake() -> None:
            nonlocal overtaken
            if not overtaken:
                harness.expire_lease()
                second.open(table.source())
                overtaken = True

        with open_to_reload(harness, table) as first, expect_error(Fenced):
            first.reload(before_reading(table.snapshot(9, OTHER), overtake))
        assert overtaken
        second.close()
        assert_unchanged(harness, table)

    def test_nothing_is_reloaded_unopened(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = load_orders(spark, harness)
        with open_to_reload(harness, table) as sink:
            sink.close()
            with expect_error(PositionError):
                sink.reload(table.snapshot(9, OTHER))
        assert_start(harness, table)
