"""Spark's own Ivy, for real: what ``jars fetch`` brings, and that it fails on what ``doctor`` calls poisoned."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.spark.jars import examine_jars, find_cached_jars, find_incomplete_artifacts, ivy_folder, user_home
from tests.fixtures.fix_spark import cannot_run


@pytest.fixture
def ivy(spark: SparkSession) -> Path:
    """The cache that the test session's own start has filled, where it was Ivy that brought its jars."""
    folder = ivy_folder(user_home())
    if not find_cached_jars(folder):
        cannot_run("Ivy's cache is empty: the jars of this run are given by path")
    return folder


def fetch(folder: Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    moved = {} if home is None else {"JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}
    return subprocess.run(
        [sys.executable, "-m", "infra.cli.main", "jars", "fetch", str(folder)],
        env={**os.environ, **moved, "TMPDIR": str(folder.parent)},  # its log is kept where it fails
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_what_is_fetched_is_all_that_is_needed(ivy: Path, tmp_path: Path) -> None:
    done = fetch(tmp_path / "jars")
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "jars").glob("*.jar"))
    assert {jar.file.rpartition("/")[2] for jar in find_cached_jars(ivy)} <= {file.name for file in files}
    assert examine_jars(files).problems == ()


def test_ivy_fails_on_a_description_without_its_jar(ivy: Path, tmp_path: Path) -> None:
    """Maven leaves such folders where it needed the description alone. The rest of the cache is whole: no network."""
    home, version = tmp_path / "home", metadata.version("delta-spark")
    shutil.copytree(ivy, home / ivy.name)
    description = home / ivy.name / "cache" / "io.delta" / "delta-storage" / f"ivy-{version}.xml.original"
    folder = home / ".m2" / "repository" / "io" / "delta" / "delta-storage" / version
    folder.mkdir(parents=True)
    shutil.copy(description, folder / f"delta-storage-{version}.pom")
    shutil.rmtree(description.parent)
    (home / ivy.name / "jars" / f"io.delta_delta-storage-{version}.jar").unlink()
    assert [(one.folder, one.certain) for one in find_incomplete_artifacts(home)] == [(folder, True)]
    done = fetch(tmp_path / "jars", home)
    assert done.returncode == 2
    assert f"could not be fetched: io.delta:delta-storage:{version}" in done.stderr
