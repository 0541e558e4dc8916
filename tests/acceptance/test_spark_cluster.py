"""A standalone cluster: jobs of users and the command, whose executors are processes of other machines but for the name."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from connectors.postgres.sink import SMALL_WINDOW_BYTES
from tests.acceptance.commands import REPOSITORY, Database, Project, change, create_source, pipeline, source_rows
from tests.fixtures.fix_spark_cluster import OURS, SPARK_HOME, SparkCluster, make_worker_python

OWN_JVM = "its driver is registered at a master, with executors on the cluster"
JOB = Path(__file__).with_name("cluster_job.py")
PYTHONS = Path(__file__).with_name("cluster_pythons.py")
NEWER_PYTHON = """
import collections, sys
version_info = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = version_info(3, 99, 0, "final", 0)
"""
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
TARGET = "public.customers"
TEXT = "sha2(cast(id as string), 512)"


@pytest.fixture(scope="session")
def postgres_dsn(tcp_postgres_dsn: str) -> str:
    """Of all databases of this file."""
    return tcp_postgres_dsn


def configure(
    project: Project,
    cluster: SparkCluster,
    delta_path: str,
    *,
    conf: Mapping[str, str] | None = None,
    **settings: object,
) -> None:
    spark = {"master": cluster.url, "conf": cluster.conf | dict(conf or {})}
    project.write({"customers": pipeline(delta_path, start=1, **settings)}, rest=f"spark: {json.dumps(spark)}")


def submit(cluster: SparkCluster, jars: str, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    conf = {**cluster.conf, "spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.url, "--jars", jars, *settings, *words],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def large_history(spark: SparkSession, path: str) -> None:
    """Versions 2 and 3 are windows that both executors copy: of files without varchars, one task would decode them all."""
    create_source(spark, path, "id bigint, name varchar(200), amount decimal(10,2)")
    change(
        spark,
        path,
        f"insert into {{t}} select id, {TEXT}, id / 4 from range(20000)",
        f"insert into {{t}} select id, {TEXT}, id / 4 from range(20000, 40000)",
        "delete from {t} where id % 2 = 0",
    )
    changes = list(ChangeFeed(spark, path).log.commits(2, 3))
    assert min(commit.change_bytes for commit in changes) > SMALL_WINDOW_BYTES, "the driver would copy a window"


def test_a_job_of_spark_submit(
    spark_cluster: SparkCluster, database: Database, spark: SparkSession, delta_path: str, jars: str, tmp_path: Path
) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        "insert into {t} select id, concat('n', id), id / 4 from range(1000)",
        "update {t} set name = concat(name, '+') where id % 3 = 0",
        "delete from {t} where id % 7 = 0",
    )
    done = submit(spark_cluster, jars, tmp_path, JOB, delta_path, database.dsn)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "position 3"
    assert database.position() == 3
    assert database.rows(TARGET) == source_rows(spark, delta_path, 3)
    assert database.leftovers() == []


def test_the_command_with_a_master(
    spark_cluster: SparkCluster, project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    large_history(spark, delta_path)
    configure(project, spark_cluster, delta_path, window={"max_commits": 1})

    run = project.start("run", "--json")
    stage = run.until(lambda: database.staging("stage", database.epoch()), "staging is made")
    with database.locked(stage):
        run.until(lambda: len(database.waiting(stage, "copy")) == 2, "both executors copy the window")
        addresses = database.query(
            "select distinct client_addr::text from pg_stat_activity where pid = any(%s)", database.waiting(stage)
        )
        assert addresses == [("127.0.0.1/32",)], "not over TCP"
        assert len(spark_cluster.executors()) == 2
    done = run.done()

    assert done.code == 0, done.err
    result = done.pipeline("customers")
    assert (result["position"], result["loaded_rows"], result["windows"]) == (3, 20_000, 2)
    assert (result["inserts"], result["deletes"]) == (20_000, 20_000)
    assert database.rows(TARGET) == source_rows(spark, delta_path, 3)
    assert database.leftovers() == []
    verified = project.run("verify", "--json")
    assert verified.code == 0, verified.err
    assert verified.pipeline("customers")["target_rows"] == 20_000


def test_workers_without_deltarelay_are_refused(
    spark_cluster: SparkCluster,
    project: Project,
    database: Database,
    spark: SparkSession,
    delta_path: str,
    tmp_path: Path,
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} values (1, 'Ada', 1.5)")
    configure(project, spark_cluster, delta_path)
    python = make_worker_python(tmp_path / "bare", without=OURS)

    refused = project.run("run", environment={"PYSPARK_PYTHON": str(python)})

    assert refused.code == 2
    (line,) = [line for line in refused.err.splitlines() if "deltarelay is not installed on the executors" in line]
    assert f"({python} on {socket.gethostname()})" in line
    assert "PYSPARK_PYTHON" in refused.err
    assert "Traceback" not in refused.err
    assert not database.exists("deltarelay.position"), "the refused run has written"


def test_workers_whose_python_lacks_something_are_refused(
    spark_cluster: SparkCluster, database: Database, spark: SparkSession, delta_path: str, jars: str, tmp_path: Path
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} values (1, 'Ada', 1.5)")
    no_driver = make_worker_python(tmp_path / "no_driver", without=["adbc_driver_postgresql"])
    older = make_worker_python(tmp_path / "older", without=[], release="0.0.9")
    newer = make_worker_python(tmp_path / "newer", without=[], customize=NEWER_PYTHON)
    nowhere = tmp_path / "nowhere" / "python"

    words = (delta_path, database.dsn, no_driver, older, newer, nowhere, sys.executable)
    done = submit(spark_cluster, jars, tmp_path, PYTHONS, *map(str, words))

    assert done.returncode == 0, done.stderr[-2000:]
    *refused, last = map(json.loads, done.stdout.splitlines())
    assert [one["code"] for one in refused] == ["config"] * 4
    assert [one["message"].partition(" (")[0] for one in refused] == [
        "the module adbc_driver_postgresql is missing on the executors",
        "the executors have deltarelay 0.0.9",
        f"the executors have Python 3.99, and the driver has Python {sys.version_info[0]}.{sys.version_info[1]}",
        f"the executors cannot start Python: there is no {nowhere}",
    ]
    assert ["PYSPARK_PYTHON" in one["hint"] for one in refused] == [True, False, True, True]
    assert refused[1]["hint"] == "install the driver's release in the Python environment of the workers"
    assert last == {"position": 1}


def test_a_cluster_without_room_is_named(
    spark_cluster: SparkCluster, project: Project, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} values (1, 'Ada', 1.5)")
    configure(project, spark_cluster, delta_path, conf={"spark.executor.memory": "64g"})

    run = project.start("run")

    text = f"still waiting for executors of {spark_cluster.url}"
    run.until(lambda: text in run.describe(), "the command says that it waits")
    (line,) = [line for line in run.describe().splitlines() if text in line]
    assert line.endswith("free with spark.executor.memory=64g and spark.executor.cores=all of a worker")
    run.terminate()
    assert run.done().code == 130


def test_workers_unpack_an_environment(
    spark_cluster: SparkCluster,
    project: Project,
    database: Database,
    spark: SparkSession,
    delta_path: str,
    tmp_path: Path,
) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} values (1, 'Ada', 1.5)")
    environment, archive = tmp_path / "environment", tmp_path / "environment.tar.gz"
    make_worker_python(environment, without=[])
    subprocess.run(["tar", "czf", archive, "-C", environment, "."], check=True)
    shutil.rmtree(environment)
    conf = {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}
    configure(project, spark_cluster, delta_path, conf=conf)

    done = project.run("run")

    assert done.code == 0, done.err
    assert database.rows(TARGET) == source_rows(spark, delta_path, 1)
