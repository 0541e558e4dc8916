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

pytestmark = pytest.mark.long

PAGES = ("keep-a-replica-fresh",)
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_it_runs_as_it_is_printed(
    page: str, tmp_path: Path, database: Database, jars: str, spark: SparkSession
) -> None:
    files, script = parts(page)
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "DELTARELAY_JARS": jars,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            "WAREHOUSE_DSN": database.dsn,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "customers: equal at version 5, 3 rows" in done.stdout
    columns = ("id", "name", "city", "since")
    source = spark.read.format("delta").load(str(tmp_path / "lake" / "customers")).select(*columns)
    assert sorted(database.query(f"select {', '.join(columns)} from customers")) == sorted(map(tuple, source.collect()))
