"""Promises about the start: the position of an empty target, and loading a whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import CdfError, KeyViolation, VersionsExpired, WindowOutOfOrder
from cdf.testing.changes import Row
from cdf.testing.conformance.harness import (
    START,
    SinkHarness,
    holds_start,
    loaded,
    only,
    opened,
    orders,
    position,
    refused,
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
        with opened(harness, table) as sink:
            assert sink.load(start(table)).position == 4
        holds_start(harness, table)
        assert (position(harness, table).version, position(harness, table).table_id) == (4, table.table_id)

    def test_an_empty_table_can_be_loaded(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with loaded(harness, table, []) as sink:
            assert harness.read_rows() == []
            assert position(harness, table).version == 4
            with refused(WindowOutOfOrder):
                sink.load(start(table))

    def test_loading_twice_is_refused(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with loaded(harness, table) as sink, refused(WindowOutOfOrder):
            sink.load(table.snapshot(4, [row(9, "z")]))
        holds_start(harness, table)

    def test_load_refuses_null_and_duplicate_keys_with_their_number(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        only("state", harness)
        table = orders(spark)
        keyless: Row = {"name": "no key"}
        with opened(harness, table) as sink:
            with refused(KeyViolation) as found:
                sink.load(start(table, [*START, *START, row(1, "again"), row(3, "c"), keyless, keyless, keyless]))
            fields = found.error.fields
            assert (fields["null_rows"], fields["duplicate_keys"]) == (3, 2)
            assert harness.read_rows() == []
            assert position(harness, table).version is None

    def test_an_interrupted_load_leaves_nothing_and_is_called_again(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with opened(harness, table) as sink:
            with refused(CdfError):
                sink.load(unreadable(start(table), at={"id": START[1]["id"]}))
            assert position(harness, table).version is None
            if harness.capabilities.holds == "state":
                assert harness.read_rows() == []
            sink.load(start(table))
        holds_start(harness, table)

    def test_a_load_interrupted_by_its_process_is_called_again_by_the_next(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        sink = harness.new_sink()
        sink.open(table.source())
        with refused(CdfError):
            sink.load(unreadable(start(table), at={"id": START[1]["id"]}))
        harness.expire_lease()  # the sink is not closed: its process is gone
        with opened(harness, table) as successor:
            successor.load(start(table))
            sink.close()
        holds_start(harness, table)

    def test_errors_of_reading_come_through_as_they_are(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)

        def gone() -> None:
            raise VersionsExpired("version 4 of orders is gone")

        with opened(harness, table) as sink, refused(VersionsExpired):
            sink.load(before_reading(start(table), gone))
        assert harness.read_rows() == []

    def test_null_and_the_empty_string_are_two_values(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        rows: list[Row] = [row(1, None), row(2, "")]
        with loaded(harness, table, rows):
            names = {row["id"]: row["name"] for row in harness.read_rows()}
        assert names == {row["id"]: row["name"] for row in rows}
        assert {row["amount"] for row in harness.read_rows()} == {None}
