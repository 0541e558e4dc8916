"""A real Delta table into a real topic: the whole walk, and what is refused before anything is written."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.errors import CdfError, ConfigError, RowRejected, SchemaDrift, SinkError, SinkUnavailable, TargetNotReady
from cdf.sink import Bounds
from connectors.kafka import Cluster, EventFormat, KafkaSink, topics
from connectors.kafka.write import event_builder, window_writer
from infra.embedded.kafka import EmbeddedKafka
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_kafka import IMPATIENT, JAVA_OPTIONS, Kafka, Message
from tests.integration.delta_table import Table

WAYS = pytest.mark.parametrize("small", [1024 * 1024, -1], ids=["driver", "tasks"])


class Topic:
    """A topic fed from a table."""

    def __init__(self, kafka: Kafka, table: Table, *, name: str = "", **options: Any) -> None:
        self.kafka, self.table = kafka, table
        self.topic = name or kafka.topic(**options.pop("config", {}))
        self.options = {"lanes": 3, "position_topic": f"{kafka.prefix}-positions", **options}

    def sink(self, **options: Any) -> KafkaSink:
        cluster = options.pop("cluster", Cluster(self.kafka.bootstrap))
        options = {**self.options, **options}
        return KafkaSink(cluster, topic=self.topic, **options)

    def pipeline(self, *, limits: Limits | None = None, start: Any = "snapshot", **options: Any) -> Pipeline:
        feed = ChangeFeed(self.table.spark, self.table.path)
        return Pipeline(feed, self.sink(**options), key=("id",), name="people", limits=limits, start=start)

    def messages(self) -> list[Message]:
        return self.kafka.consume(self.topic)

    def folded(self) -> dict[int, Any]:
        """The last row of each key that has one."""
        last: dict[int, Any] = {}
        for message in self.messages():
            key = json.loads(message.key or b"")["id"]
            last.pop(key, None)
            if message.value is not None:
                said = json.loads(message.value)
                row = said.get("after", said)
                if row is not None:
                    last[key] = row
        return last

    def ids(self) -> list[bytes | None]:
        return [value for message in self.messages() for name, value in message.headers if name.endswith("event_id")]

    def holds_the_table(self) -> None:
        rows = self.table.spark.read.format("delta").load(self.table.path).collect()
        assert self.folded() == {row["id"]: row.asDict() for row in rows}
        ids = self.ids()
        assert len(ids) == len(set(ids)), "an event is there twice"


def people(spark: SparkSession, path: str) -> Table:
    table = Table(spark, path)
    table.sql("insert into {t} select id, concat('a', id) from range(20)")
    return table


STORY = (
    "update {t} set v = 'b' where id < 5",
    "delete from {t} where id = 7",
    "update {t} set id = 100 where id = 3",
    "merge into {t} using (select 7 as k union all select 8) s on id = k"
    " when matched then update set v = 'c' when not matched then insert (id, v) values (k, 'again')",
    "optimize {t}",
)


@WAYS
def test_a_table_and_its_story_become_events(spark: SparkSession, kafka: Kafka, delta_path: str, small: int) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table, small_window_bytes=small)
    loaded = topic.pipeline().run()
    assert (loaded.loaded_rows, loaded.position) == (20, 1)
    topic.holds_the_table()
    table.sql(*STORY)
    result = topic.pipeline(limits=Limits(max_commits=2)).run()
    assert result.position == 6
    topic.holds_the_table()
    ops = Counter(json.loads(one.value)["op"] for one in topic.messages() if one.value is not None)
    # five updates, one key changed, one delete; then one update and one insert
    assert ops == {"r": 20, "u": 6, "d": 2, "c": 2}
    assert sum(one.value is None for one in topic.messages()) == 2
    again = topic.pipeline().run()
    assert (again.position, again.windows) == (6, 0)


def test_a_task_with_several_lanes_is_refused(
    spark: SparkSession, kafka: Kafka, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events would all be written as those of the first lane."""
    topic = Topic(kafka, people(spark, delta_path), small_window_bytes=-1)
    with monkeypatch.context() as patch:
        patch.setattr(event_builder, "repartition_by_number", lambda rows, *_: rows.repartition(1))
        with pytest.raises(SinkError, match="events of several lanes") as refused:
            topic.pipeline().run()
    assert refused.value.condition == "SEVERAL_LANES_IN_ONE_TASK"
    assert (topic.sink().position().version, topic.messages()) == (None, [])
    assert topic.pipeline().run().loaded_rows == 20
    topic.holds_the_table()


EVERY = (
    "id long, b boolean, y tinyint, s smallint, i int, f float, d double, m decimal(38,10), t string, x binary, dt date,"
    " ts timestamp, n timestamp_ntz, a array<decimal(5,2)>, st struct<p: timestamp, q: binary>, mp map<int, date>"
)
ROWS = (
    "1, true, -128, -32768, 2147483647, cast('NaN' as float), double('-Infinity'), 1234567890123456789012345678.0123456789,"
    " 'é \"q\" \\\\ 😀', unhex('00ff'), date'0001-01-01', timestamp'2024-03-10 07:00:00.000001Z',"
    " timestamp_ntz'1582-10-10 00:00:00.5', array(1.50, null),"
    " named_struct('p', timestamp'9999-12-31 23:59:59.999999Z', 'q', x''), map(1, date'9999-12-31')",
    "2, null, null, null, null, 0.1, 1e-300, -0.5, '', null, null, null, null, array(), null, map()",
    "9223372036854775807, false, 127, 32767, 0, -0.0, 1.7976931348623157E308, null, null, x'', date'1970-01-01',"
    " timestamp'0001-01-01 00:00:00Z', timestamp_ntz'9999-12-31 23:59:59.999999', null,"
    " named_struct('p', null, 'q', null), null",
)


@WAYS
@pytest.mark.parametrize("envelope", ["debezium", "row"])
def test_verify_reads_every_type_back(
    spark: SparkSession, kafka: Kafka, delta_path: str, envelope: Any, small: int
) -> None:
    table = Table(spark, delta_path, EVERY, **{"feature.timestampNtz": "supported"})
    table.sql(f"insert into {{t}} values ({'), ('.join(ROWS)})")
    net = envelope == "row"
    topic = Topic(
        kafka,
        table,
        format=EventFormat(envelope),
        changes="net" if net else "all",
        config={"cleanup_policy": "compact"} if net else {},
        small_window_bytes=small,
    )
    topic.pipeline().run()
    found = topic.pipeline().verify()
    assert (found.equal, found.source_rows, found.target_rows) == (True, 3, 3)
    table.sql("update {t} set t = 'new' where id = 2", "delete from {t} where id = 1")
    topic.pipeline().run()
    assert topic.pipeline().verify().equal

    # What somebody else writes, and what is lost, is seen
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(topic.topic, None, b'{"id":2}')
    producer.flush(10)
    found = topic.pipeline().verify(show_keys=True)
    assert (found.equal, found.missing, found.extra, found.different) == (False, 1, 0, 0)


def test_a_compacted_topic_is_the_table(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = people(spark, delta_path)
    config = {"cleanup_policy": "compact"}
    topic = Topic(kafka, table, changes="net", format=EventFormat("row"), config=config)
    topic.pipeline().run()
    table.sql(*STORY)
    topic.pipeline().run()
    rows = table.spark.read.format("delta").load(table.path).collect()
    assert topic.folded() == {row["id"]: row.asDict() for row in rows}


@WAYS
@pytest.mark.parametrize("changes", ["net", "all"])
def test_a_key_that_the_source_holds_twice_is_counted_and_told_once(
    spark: SparkSession,
    kafka: Kafka,
    delta_path: str,
    caplog: pytest.LogCaptureFixture,
    changes: Literal["net", "all"],
    small: int,
) -> None:
    """As far as it can be seen: in one window of a net effect, in one version of a history and in its first copy."""
    net = changes == "net"
    table = people(spark, delta_path)
    config = {"cleanup_policy": "compact"} if net else {}
    topic = Topic(kafka, table, changes=changes, config=config, small_window_bytes=small)
    if not net:
        table.sql("insert into {t} values (1, 'also')")
    pipeline = topic.pipeline(limits=Limits(max_commits=2))
    assert pipeline.run().conflicts.within_window == (0 if net else 1)
    table.sql("insert into {t} values (30, 'a')", "insert into {t} values (30, 'b')")  # two versions of one window
    assert pipeline.run().conflicts.within_window == (1 if net else 0)
    if not net:
        table.sql("insert into {t} values (40, 'a'), (40, 'b'), (40, 'c')", "update {t} set v = 'd' where id = 40")
        table.sql("delete from {t} where id = 40")
        # two puts too many; two removes and two puts too many; two removes too many
        assert pipeline.run().conflicts.within_window == 2 + 4 + 2
    told = [record for record in caplog.records if "more than once" in record.getMessage()]
    assert [(record.__dict__["target"], record.__dict__["changes"]) for record in told] == [(topic.topic, 1)]


@WAYS
def test_a_window_that_broke_off_between_lanes_is_finished_and_nothing_is_doubled(
    spark: SparkSession, kafka: Kafka, delta_path: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lane has an event that the topic does not take; the others are there. Whatever the table has got since,
    the same bounds come first, in lanes again: also where the window's events are few enough for one transaction."""
    table = people(spark, delta_path)
    topic = Topic(kafka, table, small_window_bytes=small, config={"max_message_bytes": 20_000})
    topic.pipeline().run()
    before = len(topic.messages())
    last = next(number for number in range(15) if zlib.crc32(f'{{"id":{number}}}'.encode()) % 3 == 2)
    table.sql(f"update {{t}} set v = if(id = {last}, repeat('b', 30000), 'b')", "delete from {t} where id > 15")
    with monkeypatch.context() as patch:
        patch.setattr(window_writer, "TRANSACTION_BYTES", 0)
        with pytest.raises(RowRejected):
            topic.pipeline().run()
    # A lane that was given up in the middle hides others behind it until the brokers end its transaction
    partly = wait_for(lambda: (found := len(topic.messages())) > before and found, "the lanes that are there")
    assert partly < before + 20 + 2 * 4
    stands = topic.sink().position()
    assert (stands.version, stands.pending) == (1, Bounds(2, 3))
    with pytest.raises(TargetNotReady, match="partly written"):
        topic.pipeline(format=EventFormat("row")).run()

    table.sql("insert into {t} values (50, 'later')")
    _set(kafka, topic.topic, "max.message.bytes", "1000000")
    assert topic.pipeline().run().position == 4
    topic.holds_the_table()
    assert len(topic.messages()) == before + 20 + 2 * 4 + 1


def _set(kafka: Kafka, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_an_added_column_is_in_the_events_from_there_on(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql(
        "insert into {t} values (30, 'a')",
        "alter table {t} add columns (w int)",
        "insert into {t} values (31, 'a', 5)",
    )
    topic.pipeline().run()
    assert topic.folded()[30] == {"id": 30, "v": "a"}
    assert topic.folded()[31] == {"id": 31, "v": "a", "w": 5}


def test_a_key_that_would_be_written_otherwise_is_refused(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = Table(spark, delta_path, "id decimal(10,2), v string", enableTypeWidening="true")
    table.sql("insert into {t} values (1.5, 'a')")
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql("alter table {t} alter column id type decimal(12,3)", "insert into {t} values (2.125, 'b')")
    with pytest.raises(SchemaDrift, match="id"):
        topic.pipeline().run()
    assert len(topic.messages()) == 1


def test_every_problem_of_the_topic_is_named_before_anything_is_written(
    spark: SparkSession, kafka: Kafka, delta_path: str
) -> None:
    table = people(spark, delta_path)
    missing = Topic(kafka, table, name=f"{kafka.prefix}-none")
    with pytest.raises(TargetNotReady, match="create"):
        missing.pipeline().run()
    made = Topic(kafka, table, name=f"{kafka.prefix}-made", create=topics.NewTopic(2))
    planned = made.pipeline().plan()
    assert any("create topic" in statement for statement in planned.ddl)
    assert made.pipeline().run().loaded_rows == 20

    _set(kafka, f"{kafka.prefix}-positions", "cleanup.policy", "delete")
    wrong = made.pipeline().plan()
    assert wrong.position == 1, "the position can be read all the same"
    assert len(wrong.problems) == 1
    assert "cleanup.policy=delete: set it to compact" in wrong.problems[0]
    _set(kafka, f"{kafka.prefix}-positions", "cleanup.policy", "compact")

    policy = Topic(kafka, table, changes="net", format=EventFormat("row"), name=kafka.topic("deleted"))
    with pytest.raises(TargetNotReady, match="compact"):
        policy.pipeline().run()
    assert policy.messages() == []


@pytest.mark.parametrize("changed", ["lanes", "partitions"])
def test_what_the_position_depends_on_must_not_change(
    spark: SparkSession, kafka: Kafka, delta_path: str, changed: str
) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql("insert into {t} values (30, 'a')")
    if changed == "partitions":
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topic.topic, 5)])[topic.topic].result(30)
        wait_for(lambda: len(admin.list_topics(topic.topic, 30).topics[topic.topic].partitions) == 5, "the partitions")
    with pytest.raises(TargetNotReady, match=changed):
        topic.pipeline(**({"lanes": 5} if changed == "lanes" else {})).run()
    assert len(topic.messages()) == 20


def test_an_event_that_is_too_large_is_refused_by_version_or_set_aside(
    spark: SparkSession, kafka: Kafka, delta_path: str
) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table, config={"max_message_bytes": 50_000}, lanes=1)
    topic.pipeline().run()
    table.sql("insert into {t} select 40, repeat('secret', 20000)", "insert into {t} values (41, 'a')")
    with pytest.raises(RowRejected, match="version 2") as caught:
        topic.pipeline().run()
    assert "secret" not in str(caught.value.to_dict())
    assert len(topic.messages()) == 20
    letters = kafka.topic("letters", 1)
    result = topic.pipeline(rejects="dead_letter", dead_letter_topic=letters).run()
    assert (result.position, result.rejected) == (3, 1)
    assert 41 in topic.folded()
    assert len(kafka.consume(letters)) == 1


@WAYS
@pytest.mark.parametrize("values", ["cast(X'FD' as string), 'a'", "'b', cast(X'FF' as string)"], ids=["key", "value"])
def test_bytes_of_a_real_feed_that_are_no_utf8_are_refused(
    spark: SparkSession, kafka: Kafka, delta_path: str, small: int, values: str
) -> None:
    table = Table(spark, delta_path, "id string, v string")
    table.sql("insert into {t} values ('kept', '�')")
    topic = Topic(kafka, table, small_window_bytes=small)
    topic.pipeline().run()
    table.sql(f"insert into {{t}} select {values}")
    column = "id" if "FD" in values else "v"
    with pytest.raises(RowRejected, match=f"version 2 of .* that is not UTF-8, .* in column '{column}'") as refused:
        topic.pipeline().run()
    assert [json.loads(one.key or b"")["id"] for one in topic.messages()] == ["kept"]
    # What the hint says: a correction removes no version from the window (its delete has the bytes as well), and a new topic
    # begins after it
    table.sql("delete from {t} where id <> 'kept'")
    with pytest.raises(RowRejected, match=r"version [23] of "):
        topic.pipeline(rejects="dead_letter", dead_letter_topic=kafka.topic("letters", 1)).run()
    assert "new topic" in (refused.value.hint or "")
    anew = Topic(kafka, table, name=kafka.topic("anew"), small_window_bytes=small)
    assert anew.pipeline().run().position == 3
    assert [json.loads(one.key or b"")["id"] for one in anew.messages()] == ["kept"]


def test_another_key_or_a_topic_made_anew_is_refused(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    topic = Topic(kafka, people(spark, delta_path))
    topic.pipeline().run()
    with pytest.raises(TargetNotReady, match="key"):
        Pipeline(ChangeFeed(spark, delta_path), topic.sink(), key=("v",), name="people").run()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic.topic], operation_timeout=30)[topic.topic].result(30)
    with pytest.raises(TargetNotReady, match="deleted"):
        topic.pipeline(create=topics.NewTopic(3)).run()
    topics.create_topic(Cluster(kafka.bootstrap), topic.topic, topics.NewTopic(3))
    with pytest.raises(TargetNotReady, match="recreated"):
        topic.pipeline().run()


def test_records_without_a_position_are_somebody_elses(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    """Or all events would be there twice after the position topic was lost."""
    topic = Topic(kafka, people(spark, delta_path))
    topic.pipeline().run()
    sink = KafkaSink(Cluster(kafka.bootstrap), topic=topic.topic, position_topic=f"{kafka.prefix}-another")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    with pytest.raises(TargetNotReady, match="no position"):
        pipeline.run()
    assert len(topic.messages()) == 20


@pytest.mark.parametrize(
    "client", [{"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}, {"foo.bar": "secret"}]
)
def test_settings_that_the_client_does_not_take_are_named(client: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaSink(Cluster("127.0.0.1:1", client), topic="t").position()
    assert "secret" not in str(caught.value.to_dict())
    assert ("foo.bar" in caught.value.message) == ("foo.bar" in client)


def test_brokers_that_cannot_be_reached_are_worth_another_try(
    spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "CONNECT_SECONDS", 2.0)
    table = people(spark, delta_path)
    feed = ChangeFeed(spark, table.path)
    nowhere = Cluster("127.0.0.1:1", {"socket.connection.setup.timeout.ms": 1000})
    with pytest.raises(SinkUnavailable) as caught:
        Pipeline(feed, KafkaSink(nowhere, topic="t"), key="id").run()
    assert caught.value.transient


def test_a_broker_that_is_killed_in_the_middle(spark: SparkSession, kafka_folder: Path, delta_path: str) -> None:
    table = people(spark, delta_path)
    with EmbeddedKafka(kafka_folder / "killed", config=IMPATIENT, java_options=JAVA_OPTIONS) as server:
        topic = Topic(Kafka(server.bootstrap_servers, "k"), table)
        topic.pipeline().run()
        table.sql(*STORY)
        pipeline = topic.pipeline(limits=Limits(max_commits=1))
        killed = False

        def kill(_: Any) -> None:
            nonlocal killed
            if not killed:
                killed = True
                server.kill()

        with pytest.raises(CdfError) as caught:
            pipeline.run(progress=kill)
        assert caught.value.transient
        server.start()
        topic.pipeline().run()
        topic.holds_the_table()
