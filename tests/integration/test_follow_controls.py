"""A follower heeds pauses and brakes: it waits with the lease free, and continues by itself after the decision."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import SparkSession

from cdf import Brakes, ChangeFeed, Pipeline
from cdf.sink import Approval
from cdf.sink.controls import approve_window, pause, resume
from cdf.testing import MemorySink
from tests.acceptance.commands import wait_for
from tests.integration.delta_table import Table

NOW = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def decide_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdf.pipeline.heed_controls.DECISION_SECONDS", 0.2)
    monkeypatch.setattr("cdf.pipeline.heed_controls.MAX_AGE_SECONDS", 0.1)


def test_a_paused_follower_frees_the_lease_and_continues(spark: SparkSession, delta_path: str) -> None:
    table, sink = Table(spark, delta_path), MemorySink()
    table.sql("insert into {t} values (1, 'a')")
    handle = Pipeline(ChangeFeed(spark, delta_path), sink, key="id").follow()
    try:
        wait_for(lambda: handle.status().state == "following", "the follower")
        sink.change_controls(lambda controls: pause(controls, now=NOW, by="maria", reason="migration"))
        wait_for(lambda: handle.status().state == "paused", "the pause of an idle follower")
        assert sink.store.owner is None
        table.sql("insert into {t} values (2, 'b')")
        assert handle.await_termination(1.0) is False
        assert sink.store.contents.position.version == 1
        sink.change_controls(lambda controls: resume(controls, now=NOW, by="maria"))
        wait_for(lambda: sink.store.contents.position.version == 2, "the change after the pause")
        wait_for(lambda: handle.status().state == "following", "the follower")
    finally:
        assert handle.stop()


def test_a_follower_waits_for_the_approval_of_a_window(spark: SparkSession, delta_path: str) -> None:
    table, sink = Table(spark, delta_path), MemorySink()
    table.sql("insert into {t} values (1, 'a'), (2, 'b')")
    brakes = Brakes(max_delete_rows=0)
    handle = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", brakes=brakes).follow()
    try:
        wait_for(lambda: handle.status().state == "following", "the follower")
        table.sql("delete from {t} where id = 1")
        wait_for(lambda: handle.status().state == "stopped_by_brake", "the brake")
        table.sql("insert into {t} values (3, 'c')")
        assert handle.await_termination(1.0) is False
        assert sink.store.contents.position.version == 1
        approval = Approval(2, 2, ChangeFeed(spark, delta_path).log.metadata().table_id, NOW, "maria")
        sink.change_controls(lambda controls: approve_window(controls, approval))
        wait_for(lambda: sink.store.contents.position.version == 3, "the approved window and the one after it")
        assert sorted(row["id"] for row in sink.store.read_rows()) == [2, 3]
    finally:
        assert handle.stop()
