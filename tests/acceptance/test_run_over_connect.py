"""``spark: {remote: sc://…}``: commands over a real Spark Connect server."""

from __future__ import annotations

import json
import socket

from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, create_source, pipeline
from tests.fixtures.fix_kafka import Kafka

NO_JVM = "a client of Spark Connect, which starts no JVM"


def use_server(project: Project, table: str, address: str) -> None:
    spark = json.dumps({"remote": address, "conf": {"spark.sql.shuffle.partitions": "1"}})
    project.write({"people": pipeline(table, table="public.people")}, rest=f"spark: {spark}")


def test_commands_over_spark_connect(
    project: Project, database: Database, connect: SparkSession, connect_address: str, delta_path: str
) -> None:
    create_source(connect, delta_path, "id bigint, name string")
    connect.sql(f"insert into delta.`{delta_path}` values (1, 'a'), (2, 'b')")
    use_server(project, delta_path, connect_address)

    planned = project.run("plan", "--json", own_jvm=NO_JVM)
    assert planned.code == 0, planned.err
    assert not database.exists("public.people")
    done = project.run("run", own_jvm=NO_JVM)
    assert done.code == 0, done.err
    assert done.err.startswith("connecting to Spark …\n")
    assert database.rows("people") == [(1, "a"), (2, "b")]
    connect.sql(f"delete from delta.`{delta_path}` where id = 1")
    assert project.run("run", own_jvm=NO_JVM).code == 0
    assert database.rows("people") == [(2, "b")]
    verified = project.run("verify", "--json", own_jvm=NO_JVM)
    assert verified.code == 0, verified.err
    shown = project.run("feed", "show", delta_path, "--from", "2", "--format", "json", own_jvm=NO_JVM)
    assert [one["_change_type"] for one in shown.document["result"]["changes"]] == ["delete"]


def test_a_server_that_does_not_answer_is_named_at_once(project: Project, delta_path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    use_server(project, delta_path, f"sc://127.0.0.1:{port}/;token=hidden")
    done = project.run("plan", own_jvm=NO_JVM)
    assert done.code == 75
    assert f"cannot connect to the Spark Connect server at 127.0.0.1:{port}: Connection refused" in done.err
    assert "hidden" not in done.err

    use_server(project, delta_path, "spark://127.0.0.1")
    done = project.run("plan", own_jvm=NO_JVM)
    assert (done.code, "spark.remote is not the address of a Spark Connect server" in done.err) == (2, True)


def test_a_topic_is_written_over_spark_connect(
    project: Project, connect: SparkSession, connect_address: str, kafka: Kafka, delta_path: str
) -> None:
    create_source(connect, delta_path, "id bigint, name string")
    connect.sql(f"insert into delta.`{delta_path}` values (1, 'a'), (2, 'b')")
    source = {"table": delta_path, "key": ["id"], "start": "earliest"}
    topic = {"connection": "events", "topic": f"{kafka.prefix}-made", "create": {"partitions": 3}}
    project.write(
        {"topic": {"source": source, "sink": topic}},
        connections=f"  events: {{kind: kafka, bootstrap_servers: '{kafka.bootstrap}', "
        f"position_topic: {kafka.prefix}-positions}}",
        rest=f"spark: {json.dumps({'remote': connect_address, 'conf': {'spark.sql.shuffle.partitions': '1'}})}",
    )
    assert project.run("plan", own_jvm=NO_JVM).code == 0
    for inserts in (2, 1):
        done = project.run("run", "--json", own_jvm=NO_JVM)
        assert done.code == 0, done.err
        assert done.pipeline("topic")["inserts"] == inserts
        connect.sql(f"insert into delta.`{delta_path}` values (3, 'c')")
    assert len(kafka.consume(f"{kafka.prefix}-made")) == 3
