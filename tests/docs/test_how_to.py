"""The how-to pages run as they are printed: files are written, shell blocks are one script, in the order of the page."""

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

pytestmark = pytest.mark.long

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def parts(page: str) -> tuple[dict[str, str], str]:
    """→ the files that the page shows, and its shell blocks as one script"""
    text = (REPOSITORY / "docs" / "how-to" / f"{page}.md").read_text()
    files, script = {}, ["set -euo pipefail"]
    for language, file, body in _BLOCK.findall(text):
        if file:
            files[file] = body
        elif language == "sh":
            script.append(body)
    return files, "\n".join(script)


def run(page: str, folder: Path, **variables: str) -> str:
    """Run the page in the folder. → what its commands printed"""
    files, script = parts(page)
    for name, body in files.items():
        (folder / name).write_text(body)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
def test_keep_a_replica_fresh(tmp_path: Path, database: Database, jars: str, spark: SparkSession) -> None:
    said = run("keep-a-replica-fresh", tmp_path, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn)
    assert "customers: equal at version 5, 3 rows" in said
    columns = ("id", "name", "city", "since")
    source = spark.read.format("delta").load(str(tmp_path / "lake" / "customers")).select(*columns)
    assert sorted(database.query(f"select {', '.join(columns)} from customers")) == sorted(map(tuple, source.collect()))


@pytest.mark.timeout(600)
def test_replicate_from_s3(tmp_path: Path, database: Database, jars: str, aws: Aws) -> None:
    said = run(
        "replicate-from-s3", tmp_path, DELTARELAY_JARS=jars, WAREHOUSE_DSN=database.dsn, S3_ENDPOINT=aws.endpoint
    )
    assert "customers: equal at version 20, 21 rows" in said
    expected = [(1000, "writer 1")] + [(1000 * one + n, f"writer {one}") for one in (2, 3) for n in range(10)]
    assert sorted(database.query("select id, name from customers")) == expected
    entries = aws.dynamodb.scan(TableName="delta_log")["Items"]
    assert {one["complete"]["S"] for one in entries} == {"true"}
    assert {one["tablePath"]["S"] for one in entries} == {"s3a://my-lake/customers"}
