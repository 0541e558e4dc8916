"""The quickstart and the how-to pages run as they are printed: files are written, shell blocks are one script in their
order.

``deltarelay`` and ``python`` are programs of the resident process; on the page with a ``kill -9`` they are new processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import REPOSITORY, Database
from tests.fixtures.fix_aws import Aws
from tests.fixtures.fix_report import own_jvm
from tests.fixtures.resident import Resident

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def parts(page: str) -> tuple[dict[str, str], str]:
    """→ the files that the page shows, and its shell blocks as one script"""
    text = (REPOSITORY / "docs" / f"{page}.md").read_text()
    files, script = {}, ["set -euo pipefail"]
    for language, file, body in _BLOCK.findall(text):
        if file:
            files[file] = body
        elif language == "sh":
            script.append(body)
    return files, "\n".join(script)


def run(page: str, folder: Path, resident: Resident | None, *, seconds: float = 500, **variables: str) -> str:
    """Run the page in the folder. → what its commands printed"""
    files, script = parts(page)
    for name, body in files.items():
        (folder / name).write_text(body)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
    environment = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        **variables,
    }
    if resident is not None:
        environment = resident.shims(environment)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
def test_quickstart(tmp_path: Path, database: Database, jars: str, resident: Resident) -> None:
    said = run("get-started/quickstart", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    assert "orders: equal at version 1, 3 rows" in said
    assert database.query("select order_id, item, amount::text from orders order by 1") == [
        (1, "lamp", "20.00"),
        (2, "chair", "45.00"),
        (3, "desk", "180.00"),
    ]


@pytest.mark.timeout(600)
def test_keep_a_replica_fresh(
    tmp_path: Path, database: Database, jars: str, spark: SparkSession, resident: Resident
) -> None:
    said = run("how-to/keep-a-replica-fresh", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    assert "customers: equal at version 5, 3 rows" in said
    columns = ("id", "name", "city", "since")
    source = spark.read.format("delta").load(str(tmp_path / "lake" / "customers")).select(*columns)
    assert sorted(database.query(f"select {', '.join(columns)} from customers")) == sorted(map(tuple, source.collect()))


@pytest.mark.timeout(600)
def test_replicate_many_tables(tmp_path: Path, database: Database, jars: str, resident: Resident) -> None:
    said = run("how-to/replicate-many-tables", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    for name in ("orders", "items", "returns"):
        assert f"sales.{name}: equal at version 1, 2 rows" in said
        assert sorted(database.query(f"select * from {name}")) == [(1, f"{name} one"), (2, f"{name} two")]
    assert not database.exists("public.scratch_1")
    assert "3 pipelines: 3 copied" in said
    assert "no failed attempts" in said


@pytest.mark.timeout(600)
def test_replicate_into_existing_tables(tmp_path: Path, database: Database, jars: str, resident: Resident) -> None:
    said = run(
        "how-to/replicate-into-existing-tables", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn
    )
    assert "clients: equal at version 4, 2 rows" in said
    columns = (
        '"Client Id", full_name, mood::text, balance::text, shown, remark, _commit_version, _deleted_at is not null'
    )
    assert sorted(database.query(f"select {columns} from clients")) == [
        (1, "Katja", "happy", "20.75", "KATJA", "none", 2, False),
        (2, "Nuno", "sad", "3.00", "NUNO", "none", 3, True),
        (3, "Olga", "happy", "7.25", "OLGA", "none", 4, False),
    ]
    assert database.query("select action, to_version from deltarelay.position_log") == [("adopt", 1)]
    assert database.query("select data_type from information_schema.columns where column_name = 'Client Id'") == [
        ("integer",)
    ]


@pytest.mark.timeout(600)
def test_replicate_from_s3(tmp_path: Path, database: Database, jars: str, aws: Aws, resident: Resident) -> None:
    said = run(
        "how-to/replicate-from-s3",
        tmp_path,
        resident,
        DELTARELAY_JARS=jars,
        WAREHOUSE_DSN=database.dsn,
        S3_ENDPOINT=aws.endpoint,
    )
    assert "customers: equal at version 20, 21 rows" in said
    expected = [(1000, "writer 1")] + [(1000 * one + n, f"writer {one}") for one in (2, 3) for n in range(10)]
    assert sorted(database.query("select id, name from customers")) == expected
    entries = aws.dynamodb.scan(TableName="delta_log")["Items"]
    assert {one["complete"]["S"] for one in entries} == {"true"}
    assert {one["tablePath"]["S"] for one in entries} == {"s3a://my-lake/customers"}


@pytest.mark.timeout(600)
def test_follow_schema_changes(tmp_path: Path, database: Database, jars: str, resident: Resident) -> None:
    said = run("how-to/follow-schema-changes", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    assert 'rename column "who" to "customer"' in said
    assert "orders: equal at version 7, 2 rows" in said
    assert "orders: equal at version 8, 2 rows" in said
    assert sorted(database.query("select id, customer, amount, place ->> 'city' from orders")) == [
        (1, "Ada", 10, "Porto"),
        (2, "Hugo", 5000000000, "Lyon"),
    ]


@pytest.mark.timeout(600)
def test_handle_rejected_rows(tmp_path: Path, database: Database, jars: str, resident: Resident) -> None:
    said = run("how-to/handle-rejected-rows", tmp_path, resident, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    assert "2 rows dead-lettered" in said
    assert "a check constraint is violated" in said
    assert "members: 1 stored, 0 deleted, 0 rejected again" in said
    assert "members: equal at version 3, 5 rows" in said
    assert sorted(database.query("select id, name, mail from members")) == [
        (1, "Ada", "ada@example.org"),
        (2, "Hugo", "hugo@example.org"),
        (3, "Vera", "vera@example.org"),
        (4, "Leo", "ada@example.org"),
        (5, "Nora", "x"),
    ]
    assert database.query("select count(*) from deltarelay.dead_letter") == [(0,)]


@pytest.mark.timeout(600)
def test_send_changes_to_kafka(tmp_path: Path, jars: str) -> None:
    own_jvm("a command is killed, and its JVM has to end by itself")
    said = run("how-to/send-changes-to-kafka", tmp_path, None, DELTARELAY_JARS=jars)
    half_way, whole = (int(count) for count in re.findall(r"^(\d+) events, \1 different$", said, re.MULTILINE)[-2:])
    assert 0 < half_way < whole == 200_000
    assert "customers: equal at version 1, 200000 rows" in said
    assert "customers: equal at version 3, 199999 rows" in said
    assert re.findall(r'"op":"(\w)"|^(tombstone)$', said, re.MULTILINE) == [
        ("r", ""),
        ("u", ""),
        ("d", ""),
        ("", "tombstone"),
    ]
