"""Starts the JVM to which the runs of mutants attach, as the fixture ``spark`` would start it; ends with its stdin."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkConf

from infra.s3.model import Storage
from infra.s3.settings import fill_in_region
from infra.s3.spark_settings import java_options
from infra.spark.java import start_java
from infra.spark.session_builder import build_settings
from infra.temporary import private_folder
from tests.class_archive import java_options as quick_start


def main() -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_start())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="dr-mutants-") as folder:
        storage = fill_in_region(Storage())
        chosen = build_settings(
            "local[2]",
            conf={
                "spark.driver.memory": "3g",
                "spark.sql.shuffle.partitions": "2",
                "spark.databricks.delta.snapshotPartitions": "1",
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.local.dir": f"{folder}/local",
            },
            storage=storage,
            java=java_options(storage, private_folder()),
        )
        chosen["spark.executorEnv.PYTHONPATH"] = sys.argv[1]  # where tasks find the product: the changed copy
        conf = SparkConf(loadDefaults=False).setAll(list(chosen.items())).setAppName("deltarelay-mutants")
        gateway = start_java(conf, Path(folder) / "spark.log", fetches=False)
        wanted = gateway.gateway_parameters
        environment = {
            "PYSPARK_GATEWAY_PORT": str(wanted.port),
            "PYSPARK_GATEWAY_SECRET": wanted.auth_token,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        print(json.dumps(environment), flush=True)
        sys.stdin.read()
        gateway.proc.kill()
        gateway.proc.wait()


if __name__ == "__main__":
    main()
