"""Brakes and controls: which windows are stopped, what an approval lets pass, what a pause holds back. Without Spark."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from cdf import Brakes, Limits, Pipeline
from cdf.changes.commits import Commit
from cdf.changes.window import Window
from cdf.errors import BrakeStopped, ConfigError, Paused
from cdf.pipeline import brakes as brakes_module
from cdf.pipeline import heed_controls as heed_controls_module
from cdf.pipeline.brakes import judge_window
from cdf.pipeline.heed_controls import HeededControls
from cdf.sink.controls import Approval, Controls, approve_window, pause, resume
from cdf.testing import MemorySink, MemoryTable
from tests.unit.memory_source import feed_of, memory_table, steps_of

NOW = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def small_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are judged from 10 rows on, not from 10,000."""
    monkeypatch.setattr(brakes_module, "MIN_ROWS", 10)


def filled(rows: int = 20) -> MemoryTable:
    table = memory_table()
    table.append(*({"id": number, "v": "a"} for number in range(rows)))
    return table


def pipeline_of(table: MemoryTable, sink: MemorySink, brakes: Brakes | None = None, **options: Any) -> Pipeline:
    return Pipeline(feed_of(table), sink, key="id", brakes=brakes, **options)


def approve(sink: MemorySink, first: int, last: int, table: MemoryTable) -> None:
    approval = Approval(first, last, feed_of(table).log.metadata().table_id, NOW, "maria")
    sink.change_controls(lambda controls: approve_window(controls, approval))


@pytest.mark.parametrize(
    ("rows", "deleted", "brakes", "stops"),
    [
        (20, 10, None, False),  # half is not more than half
        (20, 11, None, True),
        (9, 9, None, False),  # a small target
        (20, 20, Brakes(max_delete_share=None), False),
        (20, 3, Brakes(max_delete_share=None, max_delete_rows=3), False),
        (20, 4, Brakes(max_delete_share=None, max_delete_rows=3), True),
        (9, 1, Brakes(max_delete_rows=0), True),
        (20, 5, Brakes(max_change_share=0.2), True),
        (20, 4, Brakes(max_change_share=0.2), False),
    ],
)
@pytest.mark.parametrize("holds", ["state", "history"])
def test_deletes(rows: int, deleted: int, brakes: Brakes | None, stops: bool, holds: Any) -> None:
    table, sink = filled(rows), MemorySink(holds=holds)
    pipeline_of(table, sink, brakes).run()
    table.delete(lambda row: row["id"] < deleted)
    pipeline, before = pipeline_of(table, sink, brakes), sink.store.contents
    if not stops:
        assert pipeline.run().deletes == deleted
        assert sink.controls() == Controls()
        return
    with pytest.raises(BrakeStopped) as found:
        pipeline.run()
    assert sink.store.contents is before
    assert sink.store.owner is None  # the lease was given back
    assert (found.value.fields["first"], found.value.fields["last"]) == (2, 2)
    stopped = sink.controls().stopped
    assert stopped is not None
    assert (stopped.first, stopped.last, stopped.message) == (2, 2, found.value.message)


def test_the_error_gives_the_figures_and_what_helps() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    with pytest.raises(BrakeStopped) as found:
        pipeline_of(table, sink, name="shop").run()
    assert found.value.message == (
        "the window 2..2 would delete 15 of 20 rows (75%), and brakes.max_delete_share is 0.5"
    )
    assert "`deltarelay approve shop --window 2..2 --by YOU`" in (found.value.hint or "")


def test_the_net_effect_is_judged_and_not_the_feed() -> None:
    """An overwrite with the same keys deletes every row in the feed, and none in the target."""
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] >= 0)
    table.append(*({"id": number, "v": "b"} for number in range(20)))
    result = pipeline_of(table, sink).run()
    assert (result.inserts, result.updates, result.deletes) == (0, 20, 0)


def test_rows_inserted_and_deleted_within_the_window_are_not_rows_of_the_target() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.append(*({"id": number, "v": "b"} for number in range(100, 200)))
    table.delete(lambda row: row["id"] < 11)
    with pytest.raises(BrakeStopped, match="delete 11 of 20 rows"):
        pipeline_of(table, sink).run()


@pytest.mark.parametrize(
    ("deleted", "brakes", "counts"),
    [
        ([50, 50], Brakes(), False),
        ([50, 51], Brakes(), True),
        ([50, None], Brakes(), True),
        ([10, 10], Brakes(max_delete_rows=20), False),
        ([10, 11], Brakes(max_delete_rows=20), True),
        ([1, 1], Brakes(max_change_share=0.5), True),
    ],
)
def test_the_log_alone_clears_windows_that_delete_few_of_the_rows_that_there_were(
    deleted: list[int | None], brakes: Brakes, counts: bool
) -> None:
    """Rows that a later commit finds may be new ones: they do not count."""
    commits = [
        Commit(version, NOW, change_files=1, deleted_rows=rows, rows_before=before)
        for version, rows, before in zip((2, 3), deleted, (200, 5_000), strict=True)
    ]
    counted: list[str] = []

    class Rows(Window):
        def count_changes(self) -> dict[str, int]:
            counted.append("changes")
            return {}

    window = Rows("t", "id", StructType(), ("id",), tuple(commits), read=lambda: pytest.fail("read"))
    assert judge_window(window, brakes, pipeline="p", rows_after=lambda: pytest.fail("counted")) is None
    assert bool(counted) is counts


def test_new_keys_are_no_deletes() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    for number in range(20):
        table.update(lambda row, number=number: row["id"] == number, id=number + 100)
    assert pipeline_of(table, sink).run().windows == 1
    assert sorted(row["id"] for row in sink.store.read_rows()) == list(range(100, 120))


def test_a_history_with_a_key_that_is_not_unique_is_judged_by_its_rows() -> None:
    table, sink = filled(), MemorySink(holds="history")
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] >= 0)
    table.append(*({"id": number // 2, "v": "b"} for number in range(20)))
    assert pipeline_of(table, sink).run().position == 3
    table.delete(lambda row: row["id"] >= 0)
    table.append(*({"id": number // 2, "v": "c"} for number in range(8)))
    with pytest.raises(BrakeStopped, match="delete 12 of 20 rows"):
        pipeline_of(table, sink).run()


def test_a_repeated_stop_is_not_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    stored: list[Controls] = []
    change = sink.change_controls
    monkeypatch.setattr(sink, "change_controls", lambda how: stored.append(change(how)) or stored[-1])
    for _ in range(3):
        with pytest.raises(BrakeStopped):
            pipeline_of(table, sink).run()
    assert len(stored) == 1


def stopped_pipeline() -> tuple[MemoryTable, MemorySink, HeededControls, BrakeStopped]:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    pipeline = pipeline_of(table, sink)
    with pytest.raises(BrakeStopped) as stopped:
        pipeline.run()
    return table, sink, pipeline.runner.controls, stopped.value


class Waits(threading.Event):
    """Counts the waits, and is set after ten."""

    def __init__(self, act: Callable[[int], None]) -> None:
        super().__init__()
        self.count, self._act = 0, act

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        self.count += 1
        self._act(self.count)
        return self.count == 10


def test_a_follower_waits_for_a_decision_or_for_new_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink, controls, error = stopped_pipeline()
    nothing = Waits(lambda _: None)
    controls.wait_for_decision(error, nothing)
    assert nothing.count == 10
    approved = Waits(lambda count: approve(sink, 2, 2, table) if count == 3 else None)
    controls.wait_for_decision(error, approved)
    assert approved.count == 3
    table.append({"id": 50, "v": "b"})
    early = Waits(lambda _: None)  # not tried more often than once a minute
    controls.wait_for_decision(error, early)
    assert early.count == 10
    monkeypatch.setattr(heed_controls_module, "RETRY_SECONDS", -1.0)
    later = Waits(lambda _: None)
    controls.wait_for_decision(error, later)
    assert later.count == 1


def test_a_target_that_keeps_deleted_rows_needs_no_brake_on_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    monkeypatch.setattr(sink, "_capabilities", replace(sink.capabilities, applies_deletes=False))
    assert pipeline_of(table, sink).run().position == 2


def test_a_paused_pipeline_is_not_reloaded_either() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    sink.change_controls(lambda controls: pause(controls, now=NOW, by="maria", reason="migration"))
    before = sink.store.contents
    with pytest.raises(Paused):
        pipeline_of(table, sink).reload()
    assert sink.store.contents is before


def test_a_reload_settles_a_stop() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    with pytest.raises(BrakeStopped):
        pipeline_of(table, sink).run()
    pipeline_of(table, sink).reload()
    assert (len(sink.store.read_rows()), sink.controls().stopped) == (5, None)


def test_an_approval_lets_exactly_its_window_pass_and_is_used_up() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    with pytest.raises(BrakeStopped):
        pipeline_of(table, sink).run()
    table.append(*({"id": number, "v": "b"} for number in range(100, 115)))
    table.delete(lambda row: row["id"] >= 100)  # the run would go further than the approval
    approve(sink, 2, 2, table)
    steps = steps_of(pipeline_of(table, sink))
    assert steps == [("window", 2, 2), ("window", 3, 4)]
    controls = sink.controls()
    assert (controls.approvals, controls.stopped) == ((), None)
    assert [(record.action, record.by, record.text) for record in controls.records] == [("approve", "maria", "2..2")]


def test_an_approval_of_another_window_or_of_another_table_lets_nothing_pass() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    approve(sink, 2, 3, table)
    with pytest.raises(BrakeStopped):
        pipeline_of(table, sink).run()
    approval = Approval(2, 2, "another table", NOW, "maria")
    sink.change_controls(lambda controls: approve_window(controls, approval))
    with pytest.raises(BrakeStopped):
        pipeline_of(table, sink).run()


def test_a_repaired_source_passes_by_itself() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.delete(lambda row: row["id"] < 15)
    with pytest.raises(BrakeStopped):
        pipeline_of(table, sink).run()
    table.append(*({"id": number, "v": "a"} for number in range(15)))
    assert pipeline_of(table, sink).run().position == 3
    assert sink.controls().stopped is None


def test_windows_before_the_stopped_one_are_applied() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.append({"id": 50, "v": "b"})
    table.delete(lambda row: row["id"] < 15)
    with pytest.raises(BrakeStopped, match=r"the window 3\.\.3"):
        pipeline_of(table, sink, limits=Limits(max_commits=1)).run()
    assert sink.store.contents.position.version == 2


def test_a_paused_pipeline_applies_nothing_until_it_is_resumed() -> None:
    table, sink = filled(), MemorySink()
    pipeline_of(table, sink).run()
    table.append({"id": 50, "v": "b"})
    sink.change_controls(lambda controls: pause(controls, now=NOW, by="maria", reason="migration"))
    with pytest.raises(Paused, match=r"orders is paused since 2026-03-01 09:00 UTC by maria: migration"):
        pipeline_of(table, sink, name="orders").run()
    assert sink.store.contents.position.version == 1
    sink.change_controls(lambda controls: resume(controls, now=NOW, by="maria"))
    assert pipeline_of(table, sink).run().position == 2
    assert [record.action for record in sink.controls().records] == ["resume", "pause"]


def test_controls_survive_their_document() -> None:
    controls = pause(Controls(), now=NOW, by="maria", reason="migration")
    controls = approve_window(controls, Approval(2, 3, "id", NOW, "maria"))
    document = controls.to_document()
    assert Controls.from_document(document) == controls
    assert (
        Controls.from_document({**document, "of a later release": 1, "paused": {**document["paused"], "x": 1}})
        == controls
    )
    assert Controls.from_document(None) == Controls()


@pytest.mark.parametrize("wrong", [{"max_delete_rows": -1}, {"max_delete_share": 1.5}, {"max_change_share": -0.1}])
def test_wrong_limits(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Brakes(**wrong)
