"""Commands for an audit trail over a real Spark Connect server: signed, stopped by a brake, paused, its server stopped."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from audit.trail.position import read_position
from tests.acceptance.commands import Done, Project, change, create_source
from tests.acceptance.test_run_over_connect import NO_JVM
from tests.fixtures.fix_connect import connect_server, connect_session


def write_config(project: Project, table: str, address: str | None, *, signed: bool = False, **settings: Any) -> None:
    """A pipeline ``people`` into a trail. ``address``: of a Spark Connect server; None: a classic session."""
    connection: dict[str, Any] = {"kind": "delta_audit", "path": "trails"}
    if signed:
        connection |= {"signing_key": "${file:audit.key}", "anchors": [{"kind": "file", "path": "anchors"}]}
    source = {"table": table, "key": ["id"], "start": "earliest"}
    spark = {"remote": address, "conf": {"spark.sql.shuffle.partitions": "1"}}
    project.write(
        {"people": {"source": source, "sink": {"connection": "trail", "table": "people"}, **settings}},
        connections=f"  trail: {json.dumps(connection)}",
        rest="" if address is None else f"spark: {json.dumps(spark)}",
    )


def run(project: Project, *words: str) -> Done:
    return project.run(*words, "--json", own_jvm=NO_JVM)


def test_a_signed_trail_is_written(
    project: Project, connect: SparkSession, connect_address: str, delta_path: str
) -> None:
    create_source(connect, delta_path, "id bigint, name string")
    change(connect, delta_path, "insert into {t} values (1, 'a'), (2, 'b')")
    (project.folder / "anchors").mkdir()
    Signer.generate("example.org/test").write(project.folder / "audit.key")
    write_config(project, delta_path, connect_address, signed=True)
    planned = run(project, "plan").pipeline("people")
    assert (planned["problems"], planned["warnings"]) == ([], [])
    for inserts, deletes in ((2, 0), (0, 1)):
        done = run(project, "run")
        assert done.code == 0, done.err
        assert (done.pipeline("people")["inserts"], done.pipeline("people")["deletes"]) == (inserts, deletes)
        change(connect, delta_path, "delete from {t} where id = 1")
    verified = run(project, "verify")
    assert verified.code == 0, verified.err
    assert verified.pipeline("people")["target_rows"] == 1
    assert list((project.folder / "anchors").iterdir())
    refused = run(project, "audit", "verify")
    assert (refused.code, "this command needs a classic Spark session" in refused.err) == (2, True)


def test_a_window_that_a_brake_stops_waits_for_its_approval_and_a_paused_trail_for_its_resumption(
    project: Project, connect: SparkSession, connect_address: str, delta_path: str
) -> None:
    create_source(connect, delta_path, "id bigint, name string")
    change(connect, delta_path, "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    write_config(project, delta_path, connect_address, brakes={"max_delete_rows": 1})
    trail = str(project.folder / "trails" / "people")
    assert run(project, "run").pipeline("people")["inserts"] == 3
    change(connect, delta_path, "delete from {t} where id < 3")
    stopped = run(project, "run")
    assert stopped.code == 3, stopped.err
    assert stopped.pipeline("people")["error"]["fields"] == {"first": 2, "last": 2, "deletes": 2, "changes": 2}
    assert (run(project, "plan").code, read_position(trail).version) == (3, 1)
    assert run(project, "approve", "people", "--window", "2..2", "--by", "maria").code == 0
    assert run(project, "run").pipeline("people")["deletes"] == 2

    assert run(project, "pause", "people", "--reason", "maintenance", "--by", "maria").code == 0
    change(connect, delta_path, "insert into {t} values (4, 'd')")
    paused = run(project, "run")
    assert (paused.code, read_position(trail).version) == (0, 2), paused.err
    assert run(project, "resume", "people").code == 0
    assert run(project, "run").pipeline("people")["inserts"] == 1
    assert read_position(trail).version == 3


def test_a_server_that_stops_ends_the_run_and_the_next_one_completes_the_trail(
    project: Project, spark: SparkSession, delta_path: str
) -> None:
    commits = 12
    create_source(spark, delta_path, "id bigint, name string")
    change(spark, delta_path, *(f"insert into {{t}} values ({id_}, 'a')" for id_ in range(commits)))
    trail = str(project.folder / "trails" / "people")
    conf = {"spark.sql.shuffle.partitions": "2"}
    (first := project.folder / "first").mkdir()
    with connect_server(first, conf) as address:
        write_config(project, delta_path, address, window={"max_commits": 1})
        running = project.start("run", "--json", own_jvm=NO_JVM)
        running.until(lambda: (read_position(trail).version or 0) >= 2, "two windows of the trail")
    ended = running.done()
    assert ended.code == 75, ended.err
    assert "the Spark Connect server does not answer, or has ended this session" in ended.err
    assert "Traceback" not in ended.err
    reached = read_position(trail).version
    assert reached is not None
    assert 2 <= reached < commits

    (second := project.folder / "second").mkdir()
    with connect_server(second, conf) as address:
        write_config(project, delta_path, address)
        done = run(project, "run")
        assert done.code == 0, done.err
        with connect_session(address) as session:
            assert session.read.format("delta").load(f"{trail}/events").count() == commits
    write_config(project, delta_path, None)
    verified = project.run("audit", "verify", "--json")
    assert verified.code == 0, verified.err
    assert (read_position(trail).version, verified.pipeline("people")["events"]) == (commits, commits)
