"""Promises about the position: it moves with the data, and no window is applied twice, in part or not at all."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cdf.changes.window import WindowSource
from cdf.errors import CdfError, TableReplaced, VersionsExpired, WindowOutOfOrder
from cdf.sink import Bounds
from cdf.testing.changes import delete, insert, update
from cdf.testing.conformance.harness import (
    NEXT,
    SinkHarness,
    assert_contents,
    assert_next,
    assert_start,
    assert_unchanged,
    expect_error,
    load_sink,
    next_window,
    open_sink,
    orders,
    read_position,
    require_holds,
    row,
)
from cdf.testing.faulty import unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PositionPromises:
    def test_a_new_instance_sees_the_position_of_each_step(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            assert read_position(harness, table).version == 4
            assert sink.apply(next_window(table)).position == 5
            assert read_position(harness, table).version == 5
        with open_sink(harness, table) as later:
            later.apply(table.window(6, [update(row(1, "c", 10), row(1, "e"))], []))
        reopened = harness.new_sink()
        found = reopened.open(table.source())
        reopened.close()
        assert (found.version, found.table_id, found.pending) == (7, table.table_id, None)

    def test_the_same_window_again_changes_nothing(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            sink.apply(next_window(table))
            again = sink.apply(next_window(table))
        assert_next(harness, table)
        assert (again.replayed, again.position) == (True, 5)
        with open_sink(harness, table) as successor:
            again = successor.apply(next_window(table))
        assert_next(harness, table)
        assert (again.replayed, again.position) == (True, 5)
        assert read_position(harness, table).version == 5

    def test_a_window_from_before_the_position_changes_nothing(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            applied = sink.apply(table.window(3, [insert(row(8, "old"))], [delete(row(2, "b", 2))]))
        assert_start(harness, table)
        assert (applied.replayed, applied.position) == (True, 4)
        assert read_position(harness, table).version == 4

    def test_a_window_with_a_gap_before_it_is_refused(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink, expect_error(WindowOutOfOrder):
            sink.apply(table.window(6, NEXT))
        assert_unchanged(harness, table)

    def test_a_window_that_overlaps_the_position_is_refused(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink, expect_error(WindowOutOfOrder):
            sink.apply(table.window(4, [], NEXT))
        assert_unchanged(harness, table)

    def test_the_window_of_another_table_is_refused(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        other = dataclasses.replace(table, table_id="5a3b0c5e-0000-4000-8000-000000000002")
        with load_sink(harness, table) as sink, expect_error(TableReplaced):
            sink.apply(next_window(other))
        assert_start(harness, table)
        assert (read_position(harness, table).version, read_position(harness, table).table_id) == (4, table.table_id)

    def test_a_window_without_rows_moves_the_position(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            applied = sink.apply(table.window(5, [], []))
            assert (applied.position, applied.replayed) == (6, False)
            assert (applied.inserts, applied.updates, applied.deletes) == (0, 0, 0)
        assert_start(harness, table)
        assert read_position(harness, table).version == 6

    def test_a_window_whose_rows_cancel_out_moves_the_position(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        require_holds("state", harness)
        table = orders(spark)
        with load_sink(harness, table) as sink:
            sink.apply(table.window(5, [insert(row(3, "c"))], [delete(row(3, "c"))]))
        assert_start(harness, table)
        assert read_position(harness, table).version == 6

    def test_a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            with expect_error(CdfError):
                sink.apply(unreadable(next_window(table), at={"id": row(3, "d")["id"]}))
            found_position = read_position(harness, table)
            assert found_position.version == 4
            if harness.capabilities.transactional:
                assert found_position.pending is None
            if found_position.pending is None:
                assert_start(harness, table)
            else:
                assert found_position.pending == Bounds(5, 5)
                with expect_error(WindowOutOfOrder):  # a window begun is applied with exactly its bounds
                    sink.apply(table.window(5, NEXT, []))
            sink.apply(next_window(table))
        assert_next(harness, table)
        found_position = read_position(harness, table)
        assert (found_position.version, found_position.pending) == (5, None)

    def test_a_window_whose_commits_vanish_while_it_is_read_is_not_applied(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        class Gone(WindowSource):
            def confirm(self) -> None:
                raise VersionsExpired("the commit files of version 5 are gone")

        table = orders(spark)
        with load_sink(harness, table) as sink, expect_error(VersionsExpired):
            sink.apply(dataclasses.replace(next_window(table), source=Gone()))
        assert_unchanged(harness, table)

    def test_a_runner_that_dies_in_a_window_is_succeeded_without_a_trace(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink:
            with expect_error(CdfError):
                sink.apply(unreadable(next_window(table), at={"id": row(3, "d")["id"]}))
            harness.expire_lease()
            with open_sink(harness, table) as successor:
                successor.apply(next_window(table))
        assert_contents(harness, table, [row(1, "c", 10), row(3, "d")], NEXT)
