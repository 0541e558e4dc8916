"""No key of AWS turns up anywhere: not in output, logs, plans, documents, nor in what Spark says of its settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.embedded.s3 import EmbeddedS3
from tests.acceptance.commands import Database, Done, Project

KEY_ID, SECRET, TOKEN = "AKIACANARY7E2QX4MPLE", "canary-secret-5b1e77", "canary-token-c03d9a"
CANARIES = (KEY_ID, SECRET, TOKEN)

MAKE = """
from infra.spark.session_builder import session
from infra.config.load import load
project = load("deltarelay.yaml")
spark = session(master="local[1]", conf=project.spark.settings(), storage=project.storage)
table = "delta.`s3a://lake/customers`"
feed = "tblproperties (delta.enableChangeDataFeed = true)"
spark.sql(f"create table if not exists {table} (id bigint, name string) using delta {feed}")
spark.sql(f"insert into {table} select id, 'a' from range(50)")
spark.sql(f"delete from {table} where id % 3 = 0")
spark.sql("set").show(1000, truncate=False)
spark.sql("set -v").show(1000, truncate=False)
print(spark.sparkContext.getConf().getAll() if {dump_all} else "")
"""

WITH_EITHER = (
    ("run", "--debug", "--verbose"),
    ("status", "--json"),
    ("storage", "show", "--for", "spark"),
    ("storage", "show", "--for", "delta-rs", "--json"),
)
MORE = (
    ("validate", "--json"),
    ("validate", "--connect"),
    ("doctor", "--json"),
    ("plan", "--json"),
    ("verify", "--json"),
    ("storage", "show", "--for", "spark-submit"),
    ("storage", "show", "--for", "databricks"),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["environment", "spark.conf"])
def test_a_whole_day_of_commands_shows_no_key(
    how: str, project: Project, database: Database, server_folder: Path, jars: str
) -> None:
    with EmbeddedS3(server_folder / f"secrets-{how}") as store:
        import boto3

        boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        ).create_bucket(Bucket="lake")
        env = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
        storage = (
            f"storage: {{s3: {{region: us-east-1, endpoint: '{store.endpoint}', path_style: true, credentials: default}}, "
            "commits: {kind: single_writer}}\n"
        )
        if how == "spark.conf":
            storage += (
                "spark:\n  conf:\n"
                "    spark.hadoop.fs.s3a.access.key: ${AWS_ACCESS_KEY_ID}\n"
                "    spark.hadoop.fs.s3a.secret.key: ${AWS_SECRET_ACCESS_KEY}\n"
                "    spark.hadoop.fs.s3a.session.token: ${AWS_SESSION_TOKEN}\n"
            )
        entry = {
            "source": {"table": "s3a://lake/customers", "key": ["id"], "start": 1},
            "sink": {"connection": "warehouse", "table": "public.customers"},
        }
        project.write({"customers": entry}, rest=storage)
        made = python(project, MAKE.replace("{dump_all}", "False"), env)
        assert made.code == 0, made.err
        said = [made]
        said += [
            # A JVM of its own also prints what Spark says when it starts
            project.run(*words, environment=env, own_jvm="its log is searched" if "--debug" in words else None)
            for words in (*WITH_EITHER, *(MORE if how == "spark.conf" else ()))
        ]
        assert [one.code for one in said] == [0] * len(said), [one.err for one in said]
        said.append(project.run("feed", "status", "s3a://lake/nothing-there", "--debug", environment=env))
        assert said[-1].code == 1
        logs = [
            Path(line.split("Spark's log: ")[1])
            for one in said
            for line in one.err.splitlines()
            if "Spark's log: " in line
        ]
        assert logs
        text = "\n".join([*(one.out + one.err for one in said), *(log.read_text(errors="replace") for log in logs)])
        assert "s3a://lake/customers" in text
        assert [canary for canary in CANARIES if canary in text] == []

        if how == "spark.conf":  # the search finds them where they are
            control = python(project, MAKE.replace("{dump_all}", "True"), env)
            assert [canary for canary in CANARIES if canary in control.out] == list(CANARIES)


def python(project: Project, program: str, env: dict[str, str]) -> Done:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project.folder,
        env={**project.environment, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
