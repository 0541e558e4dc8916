"""The Kafka sink over a real Spark Connect server: whole commits, each event once, also after a failure."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf.changes.window import Window
from cdf.errors import SinkUnavailable, SourceError
from connectors.kafka.event_format import EventFormat
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import State
from connectors.kafka.write import window_writer
from tests.fixtures.fix_kafka import Kafka
from tests.integration.delta_table import Table
from tests.integration.test_kafka_pipeline import WAYS, Topic

CHANGES = (
    "update {t} set v = 'B' where id = 2",
    "merge into {t} using (select id from values (3), (4) as s(id)) s on {t}.id = s.id "
    "when matched then delete when not matched then insert (id, v) values (s.id, 'd')",
    "alter table {t} add columns (w timestamp)",
    "delete from {t} where id = 1",
    "insert into {t} values (5, 'e', timestamp'2024-02-29 12:00:00')",
)


def holds_the_table(topic: Topic) -> None:
    rows = topic.table.spark.read.format("delta").load(topic.table.path).collect()
    assert {key: row["v"] for key, row in topic.folded().items()} == {row["id"]: row["v"] for row in rows}
    assert len(topic.ids()) == len(set(topic.ids())), "an event is there twice"


def fail_before_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first position after a window's lanes is not written: its runner is gone."""
    failed: list[int | None] = []
    real = Lease.write_position

    def write(lease: Lease, state: State) -> None:
        if state.pending is None and not failed:
            failed.append(state.version)
            raise SinkUnavailable("the runner is gone")
        real(lease, state)

    monkeypatch.setattr(Lease, "write_position", write)
    monkeypatch.setattr(window_writer, "TRANSACTION_BYTES", 0)


@WAYS
def test_every_change_is_an_event_over_connect(
    connect: SparkSession, kafka: Kafka, delta_path: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(connect, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    topic = Topic(kafka, table, small_window_bytes=small)
    pipeline = topic.pipeline(start="earliest")
    assert pipeline.plan().problems == ()
    assert (pipeline.run().position, len(topic.ids())) == (1, 3)
    table.sql(*CHANGES)
    with monkeypatch.context() as patch:
        fail_before_position(patch)
        with pytest.raises(SinkUnavailable, match="the runner is gone"):
            pipeline.run()
    result = pipeline.run()
    assert (result.position, result.inserts, result.updates, result.deletes) == (6, 2, 1, 2)
    holds_the_table(topic)
    changes = [dict(message.headers)["deltarelay.change_type"] for message in topic.messages() if message.value]
    assert sorted(changes) == [b"delete"] * 2 + [b"insert"] * 5 + [b"update"]

    table.sql("insert into {t} values (6, cast(x'ff' as string), null)")
    with pytest.raises(SourceError, match=r"U\+FFFD"):
        pipeline.run()
    assert topic.sink().position().version == 6


@WAYS
def test_a_compacted_topic_equals_the_table_over_connect(
    connect: SparkSession, kafka: Kafka, delta_path: str, small: int
) -> None:
    table = Table(connect, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    topic = Topic(
        kafka,
        table,
        small_window_bytes=small,
        changes="net",
        format=EventFormat(envelope="row"),
        config={"cleanup_policy": "compact"},
    )
    pipeline = topic.pipeline()
    assert (pipeline.run().loaded_rows, pipeline.verify().equal) == (3, True)
    table.sql(*CHANGES)
    assert pipeline.run().position == 6
    assert pipeline.verify().equal
    holds_the_table(topic)


@WAYS
def test_events_are_complete_although_a_commit_file_goes_after_the_check(
    connect: SparkSession, kafka: Kafka, delta_path: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta reads across a missing commit file without an error: nothing may be read after the check."""
    table = Table(connect, delta_path)
    table.sql(*(f"insert into {{t}} values ({number}, 'a')" for number in (1, 2, 3)))
    topic = Topic(kafka, table, small_window_bytes=small)
    real = Window.confirm

    def confirm(window: Window) -> None:
        real(window)
        (table.log / f"{2:020d}.json").unlink(missing_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(Window, "confirm", confirm)
        assert topic.pipeline(start="earliest").run().position == 3
    assert sorted(topic.folded()) == [1, 2, 3]
