"""``deltarelay`` with a Kafka target as a process: from the configuration to the events, and killed on the way there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from connectors.kafka.client import Cluster
from connectors.kafka.state.position import PositionReader, State
from tests.acceptance.commands import KILLED, Project, change, create_source, wait_for
from tests.fixtures.fix_kafka import Kafka

ROWS = 200_000
LANES = 8


@pytest.fixture
def ledger(kafka: Kafka) -> Iterator[Callable[[], State]]:
    """What the position topic says of the test's topic."""
    made: list[PositionReader] = []

    def read() -> State:
        if not made:
            made.append(PositionReader(Cluster(kafka.bootstrap), f"{kafka.prefix}-positions", f"{kafka.prefix}-made"))
        return made[0].read()

    yield read
    for one in made:
        one.close()


def configured(project: Project, kafka: Kafka, path: str) -> None:
    connection = (
        f"  events: {{kind: kafka, bootstrap_servers: '{kafka.bootstrap}', position_topic: {kafka.prefix}-positions}}"
    )
    sink = {"connection": "events", "topic": f"{kafka.prefix}-made", "lanes": LANES, "create": {"partitions": 3}}
    project.write(
        {"customers": {"source": {"table": path, "key": ["id"]}, "sink": sink}},
        connections=connection,
        rest="spark: {master: 'local[2,4]'}",
    )


def events(kafka: Kafka) -> list[tuple[int, str]]:
    """Version and op of each event of key 7, in order; and no event is there twice."""
    messages = kafka.consume(f"{kafka.prefix}-made")
    ids = [dict(message.headers)["deltarelay.event_id"] for message in messages]
    assert len(ids) == len(set(ids))
    mine = [json.loads(one.value) for one in messages if one.key == b'{"id":7}' and one.value is not None]
    return [(one["source"]["commit_version"], one["op"]) for one in mine]


def test_from_the_configuration_to_the_events(
    project: Project, kafka: Kafka, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} select id, 'a', 1 from range(10)")
    configured(project, kafka, delta_path)
    plan = project.run("plan", "--json").pipeline("customers")
    assert any("create topic" in statement for statement in plan["ddl"])
    done = project.run("run", "--json").pipeline("customers")
    assert (done["ok"], done["loaded_rows"], done["position"]) == (True, 10, 1)
    change(spark, delta_path, "update {t} set name = 'b' where id = 7", "delete from {t} where id = 7")
    done = project.run("run", "--json").pipeline("customers")
    assert (done["updates"], done["deletes"], done["position"]) == (1, 1, 3)
    assert events(kafka) == [(1, "r"), (2, "u"), (3, "d")]
    status = project.run("status", "--json").pipeline("customers")
    assert (status["state"], status["position"]) == ("up_to_date", 3)
    # Nothing to apply: without Spark, and with the result of a run with Spark
    runs = [
        project.run("run", "--json", environment={"SPARK_CONF_DIR": ""}),
        project.run("run", "--json", environment={"PATH": "/nowhere", "JAVA_HOME": None}, own_jvm="it has no Java"),
    ]
    assert [one.code for one in runs] == [0, 0], runs[1].err
    assert "starting Spark" in runs[0].err
    idle = [{**one.pipeline("customers"), "seconds": 0} for one in runs]
    assert idle[0] == idle[1]
    assert (idle[1]["position"], idle[1]["windows"]) == (3, 0)
    assert events(kafka) == [(1, "r"), (2, "u"), (3, "d")]
    assert project.run("verify").code == 0
    shown = project.run("position", "show", "--json").pipeline("customers")
    assert (shown["position"], shown["pending"]) == (3, None)
    configured(project, Kafka("127.0.0.1:1", kafka.prefix), delta_path)
    assert project.run("run", "--retry-seconds", "0").code == 75


@pytest.mark.timeout(900)
def test_killed_before_between_and_after_the_lanes(
    project: Project, kafka: Kafka, spark: SparkSession, delta_path: str, ledger: Callable[[], State]
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, f"insert into {{t}} select id, 'a', 1 from range({ROWS})")
    configured(project, kafka, delta_path)
    assert project.run("run").code == 0
    assert events(kafka) == [(1, "r")]

    def lanes_done(state: State) -> int:
        return sum((done := state.get_progress(lane)) is not None and done.whole for lane in range(LANES))

    change(spark, delta_path, "update {t} set name = 'b'")
    run = project.start("run", own_jvm=KILLED)
    run.until(lambda: ledger().pending is not None, "the window's bounds are recorded")
    run.kill()
    state = ledger()
    assert (state.version, lanes_done(state)) == (1, 0)
    assert events(kafka) == [(1, "r")]

    run = project.start("run", own_jvm=KILLED)
    run.until(lambda: lanes_done(ledger()) > 0, "the first lane is there")
    run.kill()
    state = ledger()
    assert state.version == 1
    assert 0 < lanes_done(state) < LANES, "the kill came too late"
    # A lane that was open hides others behind it until the brokers end its transaction
    partly = wait_for(
        lambda: (found := len(kafka.consume(f"{kafka.prefix}-made"))) > ROWS and found, "the events of that lane"
    )
    assert partly < 2 * ROWS

    change(spark, delta_path, "update {t} set name = 'c' where id % 2 = 1")  # what comes later changes no bounds
    run = project.start("run", own_jvm=KILLED)
    run.until(lambda: ledger().version == 2, "the window is there")
    run.kill()
    assert events(kafka)[:2] == [(1, "r"), (2, "u")]

    done = project.run("run", own_jvm=KILLED)
    assert done.code == 0, done.err
    assert events(kafka) == [(1, "r"), (2, "u"), (3, "u")]
    assert len(kafka.consume(f"{kafka.prefix}-made")) == ROWS + ROWS + ROWS // 2
    assert project.run("verify").code == 0
