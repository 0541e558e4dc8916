"""What the questions about memory share: work in a process with the default heap of Spark (2 GB), and its peaks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.answer import Answer
from cdf import ChangeFeed, Pipeline
from infra.spark.session_builder import session

if TYPE_CHECKING:
    from benchmarks.lab import Lab
    from cdf.sink import Sink

__all__ = ["WINDOW_ROWS", "apply_window", "compare_peaks", "measure_work", "run_process"]

AIM = 1.2
ROOT = Path(__file__).resolve().parent.parent


WINDOW_ROWS = (100_000, 1_000_000, 5_000_000)


def compare_peaks(
    lab: Lab,
    question: str,
    measure_size: Callable[[Lab, int], dict[str, Any]],
    sizes: tuple[int, ...] = WINDOW_ROWS,
    unit: str = "changes",
) -> Answer:
    """Each size once, in a random order. ``measure_size(lab, rows)`` returns what ``run_process`` does."""
    if lab.quick:
        sizes = (2_200, 11_000)
    found: dict[int, dict[str, Any]] = {}
    for rows in lab.shuffled(sizes):
        found[rows] = measure_size(lab, rows)
        lab.say(f"  {rows:,} {unit}: " + ", ".join(f"{name} {value}" for name, value in found[rows].items()))
    small, large = found[sizes[0]]["driver_megabytes"], found[sizes[-1]]["driver_megabytes"]
    return Answer(
        question=question,
        ratio=large / small,
        aim=AIM,
        better="lower",
        words=f"the driver's Python at most {large:.0f} MB for {sizes[-1]:,} {unit}, {small:.0f} MB for {sizes[0]:,};"
        " Spark's heap 2 GB",
        detail={"sizes": [{unit: rows, **found[rows]} for rows in sizes]},
    )


def run_process(module: str, settings: dict[str, Any], rows: int) -> dict[str, Any]:
    """Run the module with ``settings`` as JSON. Returns what it prints, without the number of rows, which is checked."""
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(settings)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if (found := printed.pop("rows")) != rows:
        raise AssertionError(f"the process worked on {found} rows or changes instead of {rows}")
    return printed


def measure_work(table: str, sink: Sink, *, name: str, work: Callable[[Pipeline], int]) -> None:
    """In the process: do the work, which returns a number of rows or changes. Prints one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log")
        pipeline = Pipeline(ChangeFeed(spark, table), sink, key=["id"], name=name)
        began = time.monotonic()
        rows = work(pipeline)
        seconds = time.monotonic() - began
        jvm: Any = spark._jvm
        printed = {
            "rows": rows,
            "driver_megabytes": _peak("self"),
            "jvm_megabytes": _peak(jvm.java.lang.ProcessHandle.current().pid()),
            "seconds": round(seconds, 1),
        }
        spark.stop()
        print(json.dumps(printed), flush=True)


def apply_window(pipeline: Pipeline) -> int:
    result = pipeline.run(until=1)
    return result.inserts + result.updates + result.deletes


def _peak(process: int | str) -> float:
    """Linux alone tells it. ``getrusage`` would tell the peak of the process that this one was forked from, if larger."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return round(int(line.split()[1]) / 1024, 1)
