"""The processes of ``benchmarks.s3``: each is started as ``python -m benchmarks.s3_process WHAT JSON``.

Each prints one line of JSON. ``window``: runs of one window from S3 and from the disk; ``commits``: commits by delta-rs
1.6.0 with the lock and without; ``start``: one start of Spark.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from benchmarks.lab import Lab
from infra.s3.model import Storage
from infra.spark.session_builder import session

COMMIT_ROWS = 1_000


def window(told: Mapping[str, Any]) -> None:
    from cdf import ChangeFeed, Pipeline, Step
    from connectors.postgres import PostgresSink

    lab, tables = Lab(quick=told["quick"]), dict[str, str](told["tables"])
    runs: dict[str, list[float]] = {where: [] for where in tables}
    reads: dict[str, list[float]] = {where: [] for where in tables}
    with tempfile.TemporaryDirectory() as folder:
        spark = session(
            app_name="deltarelay-bench-s3",
            master="local[2]",
            log_file=Path(folder) / "spark.log",
            conf={"spark.driver.memory": "4g"},
            storage=Storage.model_validate(told["storage"]),
        )
        pipelines: dict[str, Pipeline] = {}
        for where, table in tables.items():
            spark.sql(
                f"create table delta.`{table}` (id bigint, name string) using delta"
                " tblproperties (delta.enableChangeDataFeed=true)"
            )
            sink = PostgresSink(told["dsn"], table=f"public.s3_{where}")
            pipelines[where] = Pipeline(ChangeFeed(spark, table), sink, key=["id"], name=where)
            pipelines[where].run()
        for number, counts in enumerate(lab.rounds(warm_up=5, timed=15)):
            for where in lab.shuffled(list(tables)):
                pipeline, low = pipelines[where], number * COMMIT_ROWS
                rows = spark.range(low, low + COMMIT_ROWS).selectExpr("id", "concat('name ', id) as name")
                rows.coalesce(1).write.format("delta").mode("append").save(tables[where])
                done: list[Step] = []
                began = time.monotonic()
                result = pipeline.run(progress=done.append)
                seconds = time.monotonic() - began
                assert (result.windows, result.inserts) == (1, COMMIT_ROWS), result
                lab.check(pipeline)
                if counts:
                    runs[where].append(seconds)
                    reads[where].append(sum(done[0].applied.seconds.values()))
        spark.stop()
    _say({"run": runs, "stage_and_apply": reads})


def commits(told: Mapping[str, Any]) -> None:
    """With whichever deltalake is first on the path."""
    import pyarrow as pa
    from deltalake import write_deltalake

    from infra.s3.settings import delta_rs_options

    lab, tables = Lab(quick=told["quick"]), dict[str, Mapping[str, Any]](told["tables"])
    seconds: dict[str, list[float]] = {kind: [] for kind in tables}
    options = {
        kind: delta_rs_options(Storage.model_validate(one["storage"]), one["address"], writing=True)
        for kind, one in tables.items()
    }
    for number, counts in enumerate(lab.rounds(warm_up=5, timed=25)):
        for kind in lab.shuffled(list(tables)):
            rows = pa.table({"id": [number]})
            began = time.monotonic()
            write_deltalake(tables[kind]["address"], rows, mode="append", storage_options=options[kind])
            if counts:
                seconds[kind].append(time.monotonic() - began)
    _say(seconds)


def start(told: Mapping[str, Any]) -> None:
    storage = None if told["storage"] is None else Storage.model_validate(told["storage"])
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log", storage=storage)
        seconds = time.monotonic() - began
        jvm: Any = spark._jvm
        jars = str(jvm.java.lang.System.getProperty("spark.jars"))
        files = [unquote(urlsplit(name).path) for name in jars.split(",")]
        spark.stop()
    _say({"seconds": seconds, "jar_bytes": sum(Path(file).stat().st_size for file in files)})


def _say(found: Mapping[str, Any]) -> None:
    print(json.dumps(found), flush=True)


_WHAT = {"window": window, "commits": commits, "start": start}

if __name__ == "__main__":
    _WHAT[sys.argv[1]](json.loads(sys.argv[2]))
