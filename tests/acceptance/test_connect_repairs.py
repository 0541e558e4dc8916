"""Commands that move positions and replay dead letters, over a real Spark Connect server."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, create_source, pipeline
from tests.acceptance.test_run_over_connect import NO_JVM


def test_positions_and_dead_letters_over_connect(
    project: Project, database: Database, connect: SparkSession, connect_address: str, delta_path: str
) -> None:
    create_source(connect, delta_path, "id bigint, name string")
    connect.sql(f"insert into delta.`{delta_path}` values (1, 'a')")
    connect.sql(f"insert into delta.`{delta_path}` values (2, 'refused')")
    database.query("create table public.people (id bigint primary key, name text, check (name <> 'refused'))")
    settings = pipeline(delta_path, table="public.people", start=1)
    settings["sink"] |= {"rejects": "dead_letter", "reject_rows": True}
    remote = json.dumps({"remote": connect_address, "conf": {"spark.sql.shuffle.partitions": "1"}})
    project.write({"people": settings}, rest=f"spark: {remote}")

    done = project.run("run", own_jvm=NO_JVM)
    assert done.code == 0, done.err
    assert database.rows("people") == [(1, "a")]
    again = project.run("deadletter", "replay", "-p", "people", own_jvm=NO_JVM)
    assert (again.code, database.rows("people")) == (3, [(1, "a")]), again.err
    database.query("alter table public.people drop constraint people_name_check")
    again = project.run("deadletter", "replay", "-p", "people", "--json", own_jvm=NO_JVM)
    assert again.code == 0, again.err
    assert again.document["result"] == {"pipeline": "people", "stored": 1, "deleted": 0, "rejected": 0}
    assert database.rows("people") == [(1, "a"), (2, "refused")]

    connect.sql(f"update delta.`{delta_path}` set name = 'b' where id = 2")
    done = project.run("position", "set", "3", "-p", "people", "--yes", own_jvm=NO_JVM)
    assert (done.code, database.position("public.people")) == (0, 3), done.err
    done = project.run("position", "rewind", "2", "-p", "people", "--yes", own_jvm=NO_JVM)
    assert (done.code, database.position("public.people")) == (0, 2), done.err
    assert project.run("run", own_jvm=NO_JVM).code == 0
    assert database.rows("people") == [(1, "a"), (2, "b")]

    database.query("delete from deltarelay.position")
    database.query("update public.people set name = 'x' where id = 1")
    done = project.run("position", "adopt", "-p", "people", "--yes", own_jvm=NO_JVM)
    assert (done.code, database.position("public.people")) == (3, None), done.err
    database.query("update public.people set name = 'a' where id = 1")
    done = project.run("position", "adopt", "-p", "people", "--yes", own_jvm=NO_JVM)
    assert (done.code, database.position("public.people")) == (0, 3), done.err
