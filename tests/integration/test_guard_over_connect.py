"""The erasure register's guard over a real Spark Connect server: an erased person stays out, as in a classic session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.commit_marker import erasing_metadata
from audit.erasure.guard import ErasedPersonReturned, Watch
from audit.erasure.register.store import Register
from audit.trail.tables import EVENTS, PAYLOAD, TrailTables
from cdf import ChangeFeed, Following, Limits, Pipeline
from cdf.errors import ConfigError
from cdf.sink import Sink
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.postgres.load import copy_threshold
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_connect import connect_session
from tests.fixtures.fix_kafka import Kafka, Message
from tests.fixtures.fix_postgres import Pg, new_schema
from tests.integration.delta_table import Table, setting
from tests.integration.postgres_case import ON_BOTH_PATHS, position, sink_of, tells
from tests.integration.test_erasure_watch import CANARY, Watching
from tests.integration.test_kafka_pipeline import WAYS, Topic

LOADED, ERASING, LAST = 2, 11, 13
PATIENCE_SECONDS = 120.0
HISTORY = (
    "insert into {t} select id, concat('p', id, '@example.org'), 'n' from range(5)",
    f"insert into {{t}} values (9, '{CANARY}', 'n'), (8, 'q@example.org', 'n')",
    f"update {{t}} set email = '{CANARY}' where customer_id = 1",  # into their rows
    "update {t} set name = 'm' where customer_id = 1",  # within
    "update {t} set email = 'p1@example.org' where customer_id = 1",  # out of
    "update {t} set customer_id = 700 where customer_id = 2",  # into, by the key
    "update {t} set customer_id = 2 where customer_id = 700",
    f"insert into {{t}} values (10, ' {CANARY.upper()} ', 'n'), (11, 'r@example.org', 'n')",
    "delete from {t} where customer_id = 9",
    "delete from {t} where customer_id = 8",
    "delete from {t} where customer_id = 10",  # erases
    f"insert into {{t}} values (12, '{CANARY.replace('c', chr(0xFF43))}', 'n')",
    "update {t} set name = 'z' where customer_id in (0, 3, 12)",
)
LEFT = [
    (0, "p0@example.org", "z"),
    (1, "p1@example.org", "m"),
    (2, "p2@example.org", "n"),
    (3, "p3@example.org", "z"),
    (4, "p4@example.org", "n"),
    (11, "r@example.org", "n"),
]


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Tests read copies."""
    table = Table(spark, str(tmp_path_factory.mktemp("guarded") / "t"), "customer_id long, email string, name string")
    table.sql(*HISTORY[: ERASING - 1])
    with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", erasing_metadata("er-1", ["DSR-1"])):
        table.sql(HISTORY[ERASING - 1])
    table.sql(*HISTORY[ERASING:])
    return table


class Guarded(Watching):
    """A copy of the history, read with one session, with a register of its own."""

    def __init__(self, spark: SparkSession, history: Table, path: Path, pg: Pg) -> None:
        register = Register(pg.dsn, schema=pg.schema)
        register.prepare()
        super().__init__(register, str(path))
        self.table = history.copy(path)
        self.table.spark = spark
        with register.lease("er-1") as held:
            held.record_step(self.path, "delete", {"rows": 1, "versions": [ERASING]})
        self.watch.on_return = "leave_out"

    def pipeline(self, sink: Sink) -> Pipeline:
        feed = ChangeFeed(self.table.spark, self.path)
        limits = Limits(max_commits=3)
        return Pipeline(feed, sink, key="customer_id", name="people", limits=limits, guard=self.watch)

    def replicate(self, sink: Sink) -> None:
        """The windows that a plan names are applied, after a copy."""
        pipeline = self.pipeline(sink)
        assert pipeline.run(until=LOADED).position == LOADED
        planned = pipeline.plan()
        assert planned.problems == ()
        windows = [(window.first, window.last) for window in planned.windows]
        assert windows == [(3, 5), (6, 8), (9, 11), (12, 13)]
        assert (done := pipeline.run()).position == LAST
        assert done.windows == len(windows)

    def records(self) -> tuple[Any, ...]:
        """What a run leaves in the register, without times and the folder of this copy."""
        [request] = self.register.requests(["DSR-1"])
        assert request.returned_at is not None
        assert request.returned_to == self.path
        same = replace(request, changed_at=request.received, returned_at=None, returned_to=None)  # type: ignore[arg-type]
        carriers = [replace(one, table="") for one in self.register.carriers([self.path])]
        return same, carriers, [replace(one, request="") for one in self.register.marks()]


@pytest.fixture
def on_each_session(
    spark: SparkSession, connect_address: str, history: Table, postgres_dsn: str, tmp_path: Path
) -> Callable[[Callable[[Guarded, Pg], Any]], list[Any]]:
    """Calls a function with the history in a classic session, then over Spark Connect. → its results, with the records"""

    def run(function: Callable[[Guarded, Pg], Any]) -> list[Any]:
        found = []
        for name in ("classic", "connect"):
            with new_schema(postgres_dsn) as pg:
                if name == "classic":
                    guarded = Guarded(spark, history, tmp_path / name, pg)
                    found.append((function(guarded, pg), guarded.records()))
                else:
                    with connect_session(connect_address) as session:
                        guarded = Guarded(session, history, tmp_path / name, pg)
                        found.append((function(guarded, pg), guarded.records()))
        return found

    return run


@ON_BOTH_PATHS
def test_a_table_gets_the_same_rows_and_never_the_person(on_each_session: Any, path: dict[str, Any]) -> None:
    def replicate(guarded: Guarded, pg: Pg) -> Any:
        with closing(sink_of(pg, **path)) as sink:
            guarded.replicate(sink)
        return pg.query("select * from {schema}.target order by customer_id")

    classic, over_connect = on_each_session(replicate)
    assert classic[0] == LEFT
    assert over_connect == classic


def _without_names(message: Message, path: str, topic: str) -> tuple[Any, ...]:
    value = message.value and message.value.decode().replace(path, "PATH").replace(topic, "TOPIC")
    # The id of an event depends on the names
    headers = [(name, header) for name, header in message.headers if not name.endswith(("event_id", "table"))]
    return message.partition, message.key, value, headers


@WAYS
def test_a_topic_gets_the_same_events_and_never_the_person(on_each_session: Any, kafka: Kafka, small: int) -> None:
    def replicate(guarded: Guarded, _pg: Pg) -> Any:
        name = Path(guarded.path).name
        topic = Topic(kafka, guarded.table, name=kafka.topic(name), small_window_bytes=small)
        with closing(topic.sink()) as sink:
            guarded.replicate(sink)
        assert len(set(topic.ids())) == len(topic.ids())
        # In the order of each key: that of other rows in one version is open
        messages = sorted(topic.messages(), key=lambda one: one.key or b"")
        assert not [one for one in messages if "canary" in repr(one).lower()]
        return [_without_names(one, guarded.path, topic.topic) for one in messages]

    classic, over_connect = on_each_session(replicate)
    assert len(classic[0]) > len(LEFT)
    assert over_connect == classic


@WAYS
def test_a_trail_gets_the_same_events_and_never_the_person(on_each_session: Any, small: int) -> None:
    def replicate(guarded: Guarded, _pg: Pg) -> Any:
        path = f"{guarded.path}-trail"
        with closing(DeltaAuditSink(path, spark=guarded.table.spark, small_window_bytes=small)) as sink:
            guarded.replicate(sink)
        tables = TrailTables(guarded.table.spark, path)
        events = tables.read(EVENTS).select("id", "version", "change_type")
        values = tables.read(PAYLOAD).select("id", "row.customer_id", "row.email", "row.name")
        return sorted(tuple(row)[1:] for row in events.join(values, "id", "left").collect())

    classic, over_connect = on_each_session(replicate)
    assert len(classic[0]) > len(LEFT)
    assert "canary" not in repr(classic[0]).lower()
    assert over_connect == classic


@pytest.fixture
def guarded(connect: SparkSession, history: Table, pg: Pg, tmp_path: Path) -> Guarded:
    return Guarded(connect, history, tmp_path / "t", pg)


def test_copies_of_the_table_leave_the_person_out(guarded: Guarded, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a first load, of a window that touches most rows but not the person's, and of a reload."""
    monkeypatch.setattr(copy_threshold, "MIN_BYTES", 0)
    pipeline = guarded.pipeline(sink_of(pg))
    assert pipeline.run().loaded_rows == len(LEFT)
    guarded.table.sql("update {t} set name = 'y' where customer_id <> 12")
    assert pipeline.run().copies == 1
    expected = [(key, email, "y") for key, email, _ in LEFT]
    assert pg.query("select * from {schema}.target order by customer_id") == expected
    pg.query("delete from {schema}.target where customer_id = 4")
    assert pipeline.reload().loaded_rows == len(LEFT)
    assert pg.query("select * from {schema}.target order by customer_id") == expected


def test_a_follower_stops_until_the_person_is_deleted_again(guarded: Guarded, pg: Pg) -> None:
    guarded.watch.on_return = "stop"
    pipeline = guarded.pipeline(sink_of(pg))
    with pytest.raises(ErasedPersonReturned, match=f"{LAST} to {LAST}") as refused:
        pipeline.run()
    assert (refused.value.fields["requests"], "canary" in tells(refused.value).lower()) == (["DSR-1"], False)
    assert position(pg) is None
    guarded.table.sql("delete from {t} where customer_id = 12")
    with following(pipeline) as handle:
        wait_for(lambda: handle.status().state == "following", "the copy", seconds=PATIENCE_SECONDS)
        guarded.table.sql("insert into {t} values (13, 's@example.org', 'n')")
        wait_for(lambda: position(pg) == LAST + 2, "an ordinary commit", seconds=PATIENCE_SECONDS)
        guarded.table.sql("insert into {t} values (14, 't@example.org', 'n'), (700, 'u@example.org', 'n')")
        with pytest.raises(ErasedPersonReturned):
            assert handle.await_termination(PATIENCE_SECONDS), handle.status()
    kept = [*LEFT, (13, "s@example.org", "n")]
    assert pg.query("select * from {schema}.target order by customer_id") == kept
    assert position(pg) == LAST + 2

    guarded.table.sql("delete from {t} where customer_id = 700")
    with following(pipeline, trigger={"availableNow": True}) as handle:
        assert handle.await_termination(PATIENCE_SECONDS)
    assert pg.query("select * from {schema}.target order by customer_id") == [*kept, (14, "t@example.org", "n")]
    assert position(pg) == LAST + 4


@contextmanager
def following(pipeline: Pipeline, **options: Any) -> Iterator[Following]:
    handle = pipeline.follow(**{"trigger": {"processingTime": "100 milliseconds"}, **options})
    try:
        yield handle
    finally:
        handle.stop()


def test_workers_without_a_module_of_the_guard_are_named(guarded: Guarded, pg: Pg) -> None:
    class Needy(Watch):
        executor_modules = ("no_such_module",)

    guarded.watch = Needy(guarded.watch.register, guarded.watch.marker, guarded.graph)
    pipeline = guarded.pipeline(sink_of(pg))
    for refused in (pipeline.run, pipeline.plan, pipeline.reload):
        with pytest.raises(ConfigError, match="the module no_such_module is missing on the executors"):
            refused()
    assert position(pg) is None
