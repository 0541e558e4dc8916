"""Promises about the start: the position of an empty target, and loading a whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import CdfError, KeyViolation, VersionsExpired, WindowOutOfOrder
from cdf.testing.changes import Row
from cdf.testing.conformance.harness import (
    START,
    SinkHarness,
    assert_start,
    expect_error,
    load_sink,
    open_sink,
    orders,
    read_position,
    require_holds,
    row,
    start,
)
from cdf.testing.faulty import before_reading, unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LoadPromises:
    def test_a_fresh_target_has_no_position(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table, sink = orders(spark), harness.new_sink()
        found = sink.open(table.source())
        sink.close()
        assert (found.version, found.pending) == (None, None)
        assert harness.read_rows() == []

    def test_load_makes_the_target_equal_the_snapshot(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with open_sink(harness, table) as sink:
            assert sink.load(start(table)).position == 4
        assert_start(harness, table)
        assert (read_position(harness, table).version, read_position(harness, table).table_id) == (4, table.table_id)

    def test_an_empty_table_can_be_loaded(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table, []) as sink:
            assert harness.read_rows() == []
            assert read_position(harness, table).version == 4
            with expect_error(WindowOutOfOrder):
                sink.load(start(table))

    def test_loading_twice_is_refused(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table) as sink, expect_error(WindowOutOfOrder):
            sink.load(table.snapshot(4, [row(9, "z")]))
        assert_start(harness, table)

    def test_load_refuses_null_and_duplicate_keys_with_their_number(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        require_holds("state", harness)
        table = orders(spark)
        keyless: Row = {"name": "no key"}
        with open_sink(harness, table) as sink:
            with expect_error(KeyViolation) as found:
                sink.load(start(table, [*START, *START, row(1, "again"), row(3, "c"), keyless, keyless, keyless]))
            fields = found.error.fields
            assert (fields["null_rows"], fields["duplicate_keys"]) == (3, 2)
            assert harness.read_rows() == []
            assert read_position(harness, table).version is None

    def test_an_interrupted_load_leaves_nothing_and_is_called_again(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with open_sink(harness, table) as sink:
            with expect_error(CdfError):
                sink.load(unreadable(start(table), at={"id": START[1]["id"]}))
            assert read_position(harness, table).version is None
            if harness.capabilities.holds == "state":
                assert harness.read_rows() == []
            sink.load(start(table))
        assert_start(harness, table)

    def test_a_load_interrupted_by_its_process_is_called_again_by_the_next(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        sink = harness.new_sink()
        sink.open(table.source())
        with expect_error(CdfError):
            sink.load(unreadable(start(table), at={"id": START[1]["id"]}))
        harness.expire_lease()  # the sink is not closed: its process is gone
        with open_sink(harness, table) as successor:
            successor.load(start(table))
            sink.close()
        assert_start(harness, table)

    def test_errors_of_reading_come_through_as_they_are(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)

        def gone() -> None:
            raise VersionsExpired("version 4 of orders is gone")

        with open_sink(harness, table) as sink, expect_error(VersionsExpired):
            sink.load(before_reading(start(table), gone))
        assert harness.read_rows() == []

    def test_null_and_the_empty_string_are_two_values(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        rows: list[Row] = [row(1, None), row(2, "")]
        with load_sink(harness, table, rows):
            names = {row["id"]: row["name"] for row in harness.read_rows()}
        assert names == {row["id"]: row["name"] for row in rows}
        assert {row["amount"] for row in harness.read_rows()} == {None}
