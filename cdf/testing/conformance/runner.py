"""Promises about runners: one at a time, a stale runner is fenced, inspecting disturbs no runner, errors have no values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from cdf.changes.schema_diff import ChangeKind
from cdf.errors import CdfError, Fenced, LeaseHeld, TargetNotReady
from cdf.sink import Position, Sink
from cdf.testing.conformance.harness import (
    START,
    SinkHarness,
    assert_next,
    assert_start,
    assert_unchanged,
    expect_error,
    load_sink,
    next_window,
    open_sink,
    orders,
    read_position,
    start,
)
from cdf.testing.faulty import before_reading, unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunnerPromises:
    def test_the_sink_implements_the_protocol(self, spark: SparkSession | None, harness: SinkHarness) -> None:  # noqa: ARG002
        sink = harness.new_sink()
        assert isinstance(sink, Sink)
        assert sink.capabilities == harness.capabilities

    def test_a_second_runner_is_refused_while_the_first_is_alive(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        with load_sink(harness, table) as first:
            second = harness.new_sink()
            with expect_error(LeaseHeld) as found:
                second.open(table.source())
            assert found.error.transient
            second.close()
            first.apply(next_window(table))  # the failed attempt and its close did not affect the lease
        assert_next(harness, table)

    def test_close_gives_the_lease_back(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table):
            pass
        with open_sink(harness, table) as second:
            second.apply(next_window(table))
        assert_next(harness, table)

    def test_a_stale_runner_cannot_apply(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with load_sink(harness, table) as first:
            harness.expire_lease()
            with open_sink(harness, table) as second:
                with expect_error(Fenced):
                    first.apply(next_window(table))
                assert_unchanged(harness, table)
                first.close()
                # A stale runner must not release its successor's lease.
                with expect_error(LeaseHeld):
                    harness.new_sink().open(table.source())
                second.apply(next_window(table))
        assert_next(harness, table)

    def test_a_stale_runner_cannot_load(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with open_sink(harness, table) as first:
            harness.expire_lease()
            with open_sink(harness, table):
                with expect_error(Fenced):
                    first.load(start(table))
                assert harness.read_rows() == []
                assert read_position(harness, table).version is None

    def test_a_runner_overtaken_in_the_midst_of_a_window_is_fenced(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        table = orders(spark)
        second = harness.new_sink()
        overtaken = False

        def overtake() -> None:
            nonlocal overtaken
            if not overtaken:
                harness.expire_lease()
                second.open(table.source())
                second.apply(next_window(table))
                overtaken = True

        with load_sink(harness, table) as first:
            with expect_error(Fenced):
                first.apply(before_reading(next_window(table), overtake))
            assert overtaken
        second.close()
        assert_next(harness, table)
        assert read_position(harness, table).version == 5

    def test_closing_twice_and_unopened_is_safe(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        harness.new_sink().close()
        with load_sink(harness, table) as sink:
            sink.close()
            sink.close()
            assert sink.inspect(table.source()).position.version == 4
        assert_start(harness, table)

    def test_inspecting_changes_nothing(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        inspector = harness.new_sink()
        found = inspector.inspect(table.source())
        assert (found.position, found.problems) == (Position(), ())
        assert harness.read_rows() == []
        with load_sink(harness, table) as sink:  # the inspector holds no lease
            assert inspector.inspect(table.source()).position.version == 4
            sink.apply(next_window(table))  # and has not taken this one
            assert inspector.inspect(table.source()).position.version == 5
        assert_next(harness, table)

    def test_all_problems_are_named_at_once(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        if ChangeKind.CHANGE_TYPE in harness.capabilities.schema_changes:
            pytest.skip("this sink follows every change of type: there is no problem to report")
        table = orders(spark)
        schema = StructType().add("id", "long").add("name", "integer").add("amount", "string")
        changed = table.with_schema(schema)
        with load_sink(harness, table):
            pass
        named = " ".join(harness.new_sink().inspect(changed.source()).problems)
        assert "name" in named
        assert "amount" in named
        sink = harness.new_sink()
        with expect_error(TargetNotReady) as found:
            sink.open(changed.source())
        sink.close()
        text = f"{found.error} {found.error.to_dict()}"
        assert "name" in text
        assert "amount" in text
        assert_start(harness, table)
        with open_sink(harness, table) as later:  # nothing is left that would hinder the next runner
            later.apply(next_window(table))
        assert_next(harness, table)

    def test_errors_carry_no_values(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        table = orders(spark)
        with open_sink(harness, table) as sink:
            self._check_fails_without_values(lambda: sink.load(unreadable(start(table), at={"id": START[1]["id"]})))
            sink.load(start(table))
            window = unreadable(next_window(table), at={"id": START[0]["id"]})
            self._check_fails_without_values(lambda: sink.apply(window))

    @staticmethod
    def _check_fails_without_values(call: Any) -> None:
        with expect_error(CdfError):  # ``expect_error`` searches the error for values
            call()
