"""What does the start of a command cost that needs Spark?

``deltarelay run`` that copies a table of 10 rows, and ``deltarelay verify`` of that copy, each a process of its own, ÷ a
process that does the least: it starts a plain ``SparkSession`` with the same jars, given by path, and reads the same table
once. They take turns in a random order, with a new target in each round. After each round the target is compared with what
was written to the source.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from infra.spark.jars import find_cached_jars, ivy_folder, user_home

__all__ = ["measure"]

AIM = 1.5
ROWS = 10
COMMAND = str(Path(sys.executable).with_name("deltarelay"))
BARE = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[*,4]").config("spark.jars", sys.argv[1]).config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.getOrCreate()
assert len(spark.read.format("delta").load(sys.argv[2]).collect()) == int(sys.argv[3])
spark.stop()
"""


def measure(lab: Lab) -> Iterator[Answer]:
    from deltalake import write_deltalake

    folder = lab.folder / "start"
    folder.mkdir()
    database, table = lab.address("start"), folder / "table"
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute("create database start")
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "name": [f"name {one}" for one in range(ROWS)]})
    write_deltalake(table, rows, configuration={"delta.enableChangeDataFeed": "true"})
    jars = ",".join(jar.file for jar in find_cached_jars(ivy_folder(user_home())))
    seconds: dict[str, list[float]] = {"run": [], "verify": [], "bare": []}
    for number, counts in enumerate(lab.rounds(warm_up=1, timed=5)):
        _configure(folder, table, database, number)
        took = {}
        for kind in lab.shuffled(["commands", "bare"]):
            if kind == "bare":
                took[kind] = _time([sys.executable, "-c", BARE, jars, str(table), str(ROWS)], folder)
            else:
                took["run"], took["verify"] = (_time([COMMAND, name], folder) for name in ("run", "verify"))
        _check(database, number)
        if counts:
            for kind, one in took.items():
                seconds[kind].append(one)
    bare = median(seconds["bare"])
    for kind, what in (("run", "the first copy"), ("verify", "verify")):
        yield Answer(
            question=f"start: {what} of {ROWS} rows",
            ratio=median(seconds[kind]) / bare,
            aim=AIM,
            better="lower",
            words=f"`deltarelay {kind}` {median(seconds[kind]):.1f} s, a plain session that reads the table {bare:.1f} s",
            detail={"seconds": [round(one, 2) for one in seconds[kind]], "repetitions": len(seconds[kind])},
        )


def _configure(folder: Path, table: Path, database: str, number: int) -> None:
    (folder / "deltarelay.yaml").write_text(
        f"version: 1\nconnections: {{target: {{kind: postgres, dsn: '{database}'}}}}\n"
        f"pipelines: {{t: {{source: {{table: '{table}', key: [id]}}, "
        f"sink: {{connection: target, table: public.t{number}}}}}}}\n"
    )


def _time(command: list[str], folder: Path) -> float:
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise AssertionError(f"{command[:2]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return took


def _check(database: str, number: int) -> None:
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"select id, name from public.t{number} order by id").fetchall()
    if rows != [(one, f"name {one}") for one in range(ROWS)]:
        raise AssertionError("the target differs from its source")
