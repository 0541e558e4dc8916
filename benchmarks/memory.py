"""What the questions about memory share: a window in a process of its own, whose Spark has a heap of 2 GB, and its peaks."""

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

__all__ = ["in_a_process", "peaks", "window_of_its_own"]

AIM = 1.2
ROOT = Path(__file__).resolve().parent.parent


def peaks(lab: Lab, question: str, one_size: Callable[[Lab, int], dict[str, Any]]) -> Answer:
    """Each size once, in an order left to chance. ``one_size(lab, changes)`` → what the process tells"""
    sizes = (2_200, 11_000) if lab.quick else (100_000, 1_000_000, 5_000_000)
    found: dict[int, dict[str, Any]] = {}
    for changes in lab.shuffled(sizes):
        found[changes] = one_size(lab, changes)
        lab.say(f"  {changes:,} changes: " + ", ".join(f"{name} {value}" for name, value in found[changes].items()))
    small, large = found[sizes[0]]["driver_megabytes"], found[sizes[-1]]["driver_megabytes"]
    return Answer(
        question=question,
        ratio=large / small,
        aim=AIM,
        better="lower",
        words=f"the driver's Python at most {large:.0f} MB for {sizes[-1]:,} changes, {small:.0f} MB for {sizes[0]:,};"
        " Spark's heap 2 GB",
        detail={"sizes": [{"changes": changes, **found[changes]} for changes in sizes]},
    )


def in_a_process(module: str, told: dict[str, Any], changes: int) -> dict[str, Any]:
    """Run the module with what it is told. → what it tells, without the number of changes, which has to be this one"""
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(told)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    told_back: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if told_back.pop("changes") != changes:
        raise AssertionError(f"the window of {changes} changes was applied as another number of them")
    return told_back


def window_of_its_own(table: str, sink: Sink, *, name: str) -> None:
    """The process: one run to version 1. Prints one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.driver.memory": "2g"}
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log", conf=conf)
        pipeline = Pipeline(ChangeFeed(spark, table), sink, key=["id"], name=name)
        began = time.monotonic()
        result = pipeline.run(until=1)
        seconds = time.monotonic() - began
        jvm: Any = spark._jvm
        told = {
            "changes": result.inserts + result.updates + result.deletes,
            "driver_megabytes": _peak("self"),
            "jvm_megabytes": _peak(jvm.java.lang.ProcessHandle.current().pid()),
            "seconds": round(seconds, 1),
        }
        spark.stop()
        print(json.dumps(told), flush=True)


def _peak(process: int | str) -> float:
    """Linux alone tells it. ``getrusage`` would tell the peak of the process that this one was forked from, if larger."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return round(int(line.split()[1]) / 1024, 1)
