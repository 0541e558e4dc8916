"""Which way is shorter for a small window: through the driver, or through the tasks?

For each size the same kind of window is applied both ways, in alternating order, onto a table of its own each; after every
timed run the target's rows are compared with the source's. Prints the ratio driver ÷ tasks of the medians (below 1: the
driver's way is shorter) and keeps it in ``benchmarks/results/small_windows.json``.

    python -m benchmarks.small_windows [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from infra.embedded_postgres import EmbeddedPostgres
from infra.spark import session

SIZES = (1, 1_000, 10_000, 50_000)
WAYS = {"driver": 2**62, "tasks": 0}
RESULTS = Path(__file__).parent / "results" / "small_windows.json"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log", conf={"spark.driver.memory": "4g"})
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            found = measure(spark, server.dsn, folder, rounds)
        spark.stop()
    print(f"{'changes':>8} {'driver s':>9} {'tasks s':>9} {'driver ÷ tasks':>15}")
    for one in found:
        print(f"{one['changes']:>8} {one['driver_seconds']:>9.3f} {one['tasks_seconds']:>9.3f} {one['ratio']:>15.2f}")
    machine = {"cores": 2, "python": platform.python_version(), "pyspark": version("pyspark"), "rounds": rounds}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "sizes": found}, indent=2) + "\n")


def measure(spark: Any, dsn: str, folder: str, rounds: int) -> list[dict[str, Any]]:
    path = f"{folder}/source"
    columns = (
        "id, concat('name ', id) as name, cast(id * 1.25 as decimal(12,2)) as amount, id % 7 as kind,"
        " timestamp_micros(id * 1000003) as at, rand(1) as score, uuid() as note"
    )
    spark.sql(
        f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed=true)"
        f" as select {columns} from range(200000)"
    )
    feed = ChangeFeed(spark, path)
    pipelines = {
        way: Pipeline(feed, PostgresSink(dsn, table=f"public.{way}", small_window_bytes=limit), key=["id"])
        for way, limit in WAYS.items()
    }
    for pipeline in pipelines.values():
        pipeline.run()
    results = []
    for size in SIZES:
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for round_number in range(rounds + 2):
            # Half updates of rows all over the table, half new rows
            low = 10**9 + size * 1000 + round_number * size
            spark.sql(
                f"merge into delta.`{path}` t using (select {columns} from"
                f" (select id * 37 % 200000 as id from range({size // 2}) union select {low} + id from"
                f" range({size - size // 2}))) s"
                " on t.id = s.id when matched then update set * when not matched then insert *"
            )
            order = list(WAYS) if round_number % 2 else list(reversed(WAYS))
            for way in order:
                steps: list[float] = []
                pipelines[way].run(progress=lambda step, steps=steps: steps.append(sum(step.applied.seconds.values())))
                if round_number >= 2:  # the first two warm up
                    seconds[way].append(sum(steps))
            check(spark, dsn, path)
        driver, tasks = statistics.median(seconds["driver"]), statistics.median(seconds["tasks"])
        results.append(
            {
                "changes": size,
                "driver_seconds": round(driver, 4),
                "tasks_seconds": round(tasks, 4),
                "ratio": round(driver / tasks, 3),
            }
        )
        print(f"{size} changes done", file=sys.stderr)
    return results


def check(spark: Any, dsn: str, path: str) -> None:
    expected = tuple(spark.sql(f"select count(*), sum(amount), sum(id) from delta.`{path}`").first())
    with psycopg.connect(dsn) as connection:
        for way in WAYS:
            found = connection.execute(f"select count(*), sum(amount), sum(id)::bigint from {way}").fetchone()
            assert found == expected, (way, found, expected)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
