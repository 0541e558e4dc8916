"""The settings of a session, computed without starting one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdf.errors import ConfigError
from infra.spark import session_builder as module
from infra.spark.session_builder import (
    CATALOG,
    EXTENSION,
    build_settings,
    choose_worker_python,
    find_jar_files,
)
from infra.spark_pairs import delta_package


def made(master: str | None = "local[2]", **given: Any) -> dict[str, str]:
    return build_settings(master, environment={}, **given)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_local_session() -> None:
    chosen = made("local[3]")
    assert chosen["spark.master"] == "local[3]"
    assert chosen["spark.sql.extensions"] == EXTENSION
    assert chosen["spark.sql.catalog.spark_catalog"] == CATALOG
    assert chosen["spark.jars.packages"] == delta_package()
    assert "hadoop-client-runtime" in chosen["spark.jars.excludes"]
    assert chosen["spark.sql.session.timeZone"] == "UTC"
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.driver.memory"] == "2g"
    assert "spark.jars" not in chosen


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[4,2]", 4),
        ("local[*]", os.cpu_count()),
        ("local[*, 3]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
        ("local-cluster[2, 1, 1024]", 2),
    ],
)
def test_as_many_partitions_as_cores(master: str, cores: int) -> None:
    chosen = made(master)
    assert chosen["spark.sql.shuffle.partitions"] == str(cores)
    assert chosen["spark.databricks.delta.snapshotPartitions"] == str(cores)
    assert chosen["spark.executorEnv.PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://host"])
def test_a_cluster_keeps_its_own_sizes(master: str) -> None:
    chosen = made(master)
    assert "spark.driver.host" not in chosen
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.memory" not in chosen
    assert chosen["spark.jars.packages"] == delta_package()


def test_under_spark_submit_master_and_jars_are_not_ours() -> None:
    chosen = made(None)
    assert not {"spark.master", "spark.jars", "spark.jars.packages", "spark.driver.memory"} & set(chosen)
    assert chosen["spark.sql.extensions"] == EXTENSION


def test_what_the_caller_sets_wins() -> None:
    chosen = made(conf={"spark.driver.memory": "9g", "spark.sql.shuffle.partitions": "7", "spark.new": "x"})
    assert chosen["spark.driver.memory"] == "9g"
    assert chosen["spark.sql.shuffle.partitions"] == "7"
    assert chosen["spark.new"] == "x"


def test_lists_are_joined_so_that_delta_stays() -> None:
    chosen = made(conf={"spark.jars.packages": "a:b:1, c:d:2", "spark.sql.extensions": "x.Y"})
    assert chosen["spark.jars.packages"] == f"{delta_package()},a:b:1,c:d:2"
    assert chosen["spark.sql.extensions"] == f"{EXTENSION},x.Y"
    assert made(conf={"spark.sql.extensions": EXTENSION})["spark.sql.extensions"] == EXTENSION


def test_another_version_of_delta_replaces_ours() -> None:
    other = delta_package().rsplit(":", 1)[0] + ":0.0.1"
    assert made(conf={"spark.jars.packages": other})["spark.jars.packages"] == other


def test_jars_by_path_replace_the_packages(jars: Path) -> None:
    chosen = made(jars=[jars])
    assert chosen["spark.jars"] == f"{jars}/a.jar,{jars}/b.jar"
    assert "spark.jars.packages" not in chosen


@pytest.mark.parametrize("separator", [",", os.pathsep, " , "])
def test_the_variable_holds_files(jars: Path, separator: str) -> None:
    value = separator.join([f"{jars}/b.jar", f"{jars}/a.jar"])
    assert find_jar_files(None, {"DELTARELAY_JARS": value}) == [f"{jars}/b.jar", f"{jars}/a.jar"]


def test_the_variable_holds_a_folder(jars: Path) -> None:
    assert find_jar_files(None, {"DELTARELAY_JARS": str(jars)}) == [f"{jars}/a.jar", f"{jars}/b.jar"]
    assert find_jar_files([jars / "b.jar"], {"DELTARELAY_JARS": str(jars)}) == [f"{jars}/b.jar"]


def test_jars_in_other_storage_are_left_to_spark() -> None:
    assert find_jar_files(["s3a://bucket/delta.jar"], {}) == ["s3a://bucket/delta.jar"]


def test_jars_that_are_not_there_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_jar_files(None, {"DELTARELAY_JARS": f"/nowhere/x.jar,{tmp_path},/nowhere/y.jar"})
    for name in ("DELTARELAY_JARS", "/nowhere/x.jar", f"no *.jar in {tmp_path}", "/nowhere/y.jar"):
        assert name in caught.value.message


class AnswerOfSpark(Exception):
    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.getCondition = lambda: condition


@pytest.mark.parametrize(
    ("condition", "text", "refused"),
    [
        ("TABLE_OR_VIEW_NOT_FOUND", "The table or view `detail` cannot be found.", True),
        ("COLUMN_NOT_FOUND", "The column `delta`.`/deltarelay/no-table` cannot be found.", True),
        ("DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG", "This Delta operation requires", True),
        ("", "Cannot find catalog plugin class for catalog 'spark_catalog'", True),
        ("DELTA_MISSING_DELTA_TABLE", "`/deltarelay/no-table` is not a Delta table.", False),
        ("INSUFFICIENT_PERMISSIONS", "User does not have permission SELECT on any file.", False),
        (None, "", False),
    ],
)
def test_a_foreign_session_is_refused_only_if_it_answers_that_it_has_no_delta(
    condition: str | None, text: str, refused: bool
) -> None:
    def sql(statement: str) -> Any:
        assert statement.startswith("describe detail delta.")
        if condition is None:
            return SimpleNamespace(first=lambda: None)
        raise AnswerOfSpark(condition, text)

    active: Any = SimpleNamespace(sql=sql)
    if refused:
        with pytest.raises(ConfigError, match="has no Delta Lake"):
            module._reuse_session(active)
    else:
        assert module._reuse_session(active) is active


@pytest.mark.parametrize(
    ("master", "conf", "environment", "chosen"),
    [
        ("local[2]", {}, {"PYSPARK_PYTHON": "/opt/python"}, sys.executable),
        ("local-cluster[2,1,1024]", {"spark.pyspark.python": "/opt/python"}, {}, sys.executable),
        ("spark://m:7077", {}, {}, sys.executable),
        ("spark://m:7077", {}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ("spark://m:7077", {"spark.pyspark.python": "/opt/conf"}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/conf"),
    ],
)
def test_workers_of_a_cluster_have_the_python_that_the_user_names(
    master: str, conf: dict[str, str], environment: dict[str, str], chosen: str
) -> None:
    assert choose_worker_python(master, conf, environment) == chosen
