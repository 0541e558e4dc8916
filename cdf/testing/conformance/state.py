"""Promises of sinks that hold state: after a window, the target equals the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from cdf.changes.schema_diff import ChangeKind
from cdf.errors import KeyViolation, WindowOutOfOrder
from cdf.sink import Applied, Conflicts
from cdf.testing.changes import Edit, Row, SampleTable, delete, insert, update
from cdf.testing.conformance.harness import (
    START,
    SinkHarness,
    assert_rows,
    expect_error,
    load_sink,
    number,
    open_sink,
    orders,
    read_position,
    require_holds,
    row,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = START


def _counts_conflicts(harness: SinkHarness) -> None:
    if not harness.capabilities.counts_conflicts:
        pytest.skip("this sink writes without reading the target")


def check_window(
    harness: SinkHarness, spark: SparkSession | None, commits: Sequence[Sequence[Edit]], expected: Sequence[Row]
) -> Applied:
    """Load START, apply one window with these commits from version 5 on, and check the target's rows."""
    require_holds("state", harness)
    table = orders(spark)
    with load_sink(harness, table) as sink:
        applied = sink.apply(table.window(5, *commits))
    assert_rows(harness, table, expected)
    assert applied.position == read_position(harness, table).version == 4 + len(commits)
    return applied


class StatePromises:
    def test_inserts_updates_and_deletes_arrive(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        edits = [insert(row(3, "c")), insert(row(4, "d")), update(A, row(1, "z", 9)), delete(B)]
        applied = check_window(harness, spark, [edits], [row(1, "z", 9), row(3, "c"), row(4, "d")])
        assert (applied.inserts, applied.updates, applied.deletes) == (2, 1, 1)
        assert applied.conflicts == Conflicts()
        assert not applied.replayed

    def test_a_key_change_moves_the_row(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        check_window(harness, spark, [[update(A, row(7, "a", 1))]], [row(7, "a", 1), B])

    def test_keys_are_swapped_within_one_version(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        swapped = [row(2, "a", 1), row(1, "b", 2)]
        check_window(harness, spark, [[update(A, swapped[0]), update(B, swapped[1])]], swapped)

    def test_delete_and_insert_of_one_key_in_one_version(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        edits = [insert(row(1, "new")), delete(A), delete(B), insert(B)]
        check_window(harness, spark, [edits], [row(1, "new"), B])

    def test_a_sequence_over_versions_counts_as_its_end(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        third, fourth = row(3, "c"), row(4, "d")
        commits = [
            [delete(A), insert(third), insert(fourth)],
            [insert(row(1, "again")), update(third, row(3, "cc")), delete(fourth)],
            [update(row(1, "again"), row(1, "last")), delete(B)],
        ]
        check_window(harness, spark, commits, [row(1, "last"), row(3, "cc")])

    def test_an_update_that_changes_nothing_changes_nothing(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        check_window(harness, spark, [[update(A, A)]], [A, B])

    def test_an_update_may_set_values_to_null_and_to_empty(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        after = [row(1, None), row(2, "")]
        check_window(harness, spark, [[update(A, after[0]), update(B, after[1])]], after)

    def test_every_column_of_a_composite_key_counts(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        schema = StructType().add("region", "string").add("id", "long").add("name", "string")
        table = SampleTable(spark, schema, ("region", "id"), table="composite")

        def place(region: str, id_: int, name: str) -> Row:
            return {"region": region, "id": id_, "name": name}

        # Concatenated, the first two keys have the same text.
        rows = [place("a1", 1, "p"), place("a", 11, "q"), place("", 11, "r")]
        with load_sink(harness, table, rows) as sink:
            assert_rows(harness, table, rows)
            sink.apply(table.window(5, [update(rows[0], place("a1", 1, "pp")), delete(rows[2])]))
        assert_rows(harness, table, [place("a1", 1, "pp"), place("a", 11, "q")])

    def test_columns_are_found_by_their_exact_name(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        names = ("select", "a.b", 'q"q', "it`s")
        schema = StructType().add(names[0], "long")
        for name in names[1:]:
            schema.add(name, "string")
        table = SampleTable(spark, schema, (names[0],), table="awkward")
        first = dict(zip(names, (1, "p", "q", "r"), strict=True))
        second = dict(zip(names, (1, "x", "y", "z"), strict=True))
        reordered = table.with_schema(StructType([schema.fields[at] for at in (3, 0, 2, 1)]))
        with load_sink(harness, table, [first]) as sink:
            sink.apply(reordered.window(5, [update(first, second)]))
        assert_rows(harness, table, [second])

    def test_an_added_column_is_followed(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        if ChangeKind.ADD_COLUMN not in harness.capabilities.schema_changes:
            pytest.skip("this sink does not follow an added column")
        table = orders(spark)
        wider = table.with_schema(StructType([*table.schema.fields]).add("note", "string"))
        with load_sink(harness, table) as sink:
            sink.apply(wider.window(5, [insert({**row(3, "c"), "note": "new"})]))
            assert_rows(harness, wider, [A, B, {**row(3, "c"), "note": "new"}])
            sink.apply(wider.window(6, [update(A, {**A, "note": "later"})]))
        assert_rows(harness, wider, [{**A, "note": "later"}, B, {**row(3, "c"), "note": "new"}])

    def test_two_puts_of_one_key_in_one_version_are_refused_whole(
        self, spark: SparkSession | None, harness: SinkHarness
    ) -> None:
        require_holds("state", harness)
        table = orders(spark)
        with load_sink(harness, table) as sink:
            with expect_error(KeyViolation) as found:
                sink.apply(table.window(5, [delete(A)], [insert(row(3, "c")), insert(row(3, "d"))]))
            assert found.error.fields["version"] == 6
            assert_rows(harness, table, START)
            assert read_position(harness, table).version == 4

    def test_a_null_key_is_refused_whole(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        table = orders(spark)
        with load_sink(harness, table) as sink:
            with expect_error(KeyViolation) as found:
                sink.apply(table.window(5, [delete(A), insert({"name": "no key"})]))
            assert found.error.fields["version"] == 5
            assert_rows(harness, table, START)
            assert read_position(harness, table).version == 4

    def test_conflicts_with_the_target_are_counted(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        _counts_conflicts(harness)
        absent = row(8, "absent"), row(9, "absent")
        edits = [insert(row(1, "i")), update(absent[0], row(8, "u")), delete(absent[1])]
        applied = check_window(harness, spark, [edits], [row(1, "i"), B, row(8, "u")])
        assert applied.conflicts == Conflicts(insert_met_row=1, update_met_none=1, delete_met_none=1)
        assert (applied.inserts, applied.updates, applied.deletes) == (1, 1, 1)

    def test_conflicts_within_the_window_are_counted(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        _counts_conflicts(harness)
        commits = [[insert(row(3, "one"))], [insert(row(3, "two"))]]
        applied = check_window(harness, spark, commits, [A, B, row(3, "two")])
        assert applied.conflicts == Conflicts(within_window=1)

    def test_an_empty_state_takes_no_window(self, spark: SparkSession | None, harness: SinkHarness) -> None:
        require_holds("state", harness)
        table = orders(spark)
        with open_sink(harness, table) as sink, expect_error(WindowOutOfOrder):
            sink.apply(table.window(5, [insert({"id": number(1)})]))
        assert harness.read_rows() == []
