"""What happens to the source behind the pipeline's back, and a role that may not do what is needed."""

from __future__ import annotations

import secrets
import shutil

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline, source_rows

HISTORY = (
    "insert into {t} select id, concat('n', id), id from range(50)",
    "update {t} set name = 'changed' where id < 20",
    "delete from {t} where id % 9 = 0",
)


@pytest.mark.timeout(600)
def test_recreated_restored_and_not_allowed(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    recreated, restored = f"{delta_path}/recreated", f"{delta_path}/restored"
    for path in (recreated, restored):
        create_source(spark, path)
        change(spark, path, *HISTORY)
    role = f"nobody_{secrets.token_hex(4)}"
    name = sql.Identifier(role)
    database.connection.execute(sql.SQL("create role {} login password {}").format(name, database.password))
    pipelines = {
        "recreated": pipeline(recreated, table="public.recreated"),
        "restored": pipeline(restored, table="public.restored"),
    }
    project.write(pipelines)
    assert project.run("run").code == 0
    before = database.rows("public.recreated")
    assert before == source_rows(spark, recreated, 3)

    # Dropped and made again: the same path, the same schema, more versions than before
    shutil.rmtree(recreated)
    create_source(spark, recreated)
    change(spark, recreated, *HISTORY, "insert into {t} values (900, 'new', 1)")
    change(spark, restored, "insert into {t} values (900, 'new', 1)", "restore table {t} to version as of 1")
    project.write(
        {**pipelines, "not_allowed": pipeline(restored, table="public.elsewhere", connection="reader")},
        connections="  reader: {kind: postgres, dsn: '${READER_DSN}'}",
    )
    done = project.run("run", "--json", environment={"READER_DSN": make_conninfo(database.dsn, user=role)})
    database.connection.execute(sql.SQL("drop role {}").format(name))

    assert done.code == 1
    refused = done.pipeline("recreated")["error"]
    assert refused["code"] == "table_replaced"
    assert "name a new target table" in refused["hint"], "the way out"
    assert database.rows("public.recreated") == before
    assert database.position("public.recreated") == 3

    assert done.pipeline("restored")["ok"]
    assert database.position("public.restored") == 5
    assert database.rows("public.restored") == source_rows(spark, restored, 5) == source_rows(spark, restored, 1)

    denied = done.pipeline("not_allowed")["error"]
    assert denied["code"] == "target_not_ready"
    problems = denied["fields"]["problems"]
    assert any("may not create tables in schema" in problem for problem in problems), problems
    assert any("schema deltarelay" in problem for problem in problems), "all problems at once"
    assert not database.exists("public.elsewhere")
    assert database.position("public.elsewhere") is None

    # The way out is walked: a new target table, filled from a snapshot
    project.write({**pipelines, "recreated": pipeline(recreated, table="public.anew")})
    assert project.run("run", "-p", "recreated").code == 0
    assert database.rows("public.anew") == source_rows(spark, recreated, 4)
    assert database.rows("public.recreated") == before
