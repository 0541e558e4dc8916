"""Does a large window into Kafka need more memory on the driver?

As ``postgres_memory`` has it: windows of 0.1, 1 and 5 million changes, each one commit onto a table of as many rows, each
written by a process of its own whose Spark has a heap of 2 GB. That it gets through at all is half of the answer; the other
half is the ratio of the peak resident memory of the driver's Python process, 5 million ÷ 0.1 million. Once per size: memory,
unlike time, hardly varies. The order is left to chance. Afterwards each topic, which had the table before, is folded to the
last value of each key and compared with its source.

``jvm_megabytes`` is the peak of the Java process, which the heap bounds, and ``seconds`` the whole run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.answer import Answer
from benchmarks.kafka_state import fresh, pipeline_to
from benchmarks.lab import Lab
from benchmarks.postgres_state import Changes, make_source

__all__ = ["measure"]

AIM = 1.2
ROOT = Path(__file__).resolve().parent.parent


def measure(lab: Lab) -> Iterator[Answer]:
    sizes = (2_200, 11_000) if lab.quick else (100_000, 1_000_000, 5_000_000)
    found: dict[int, dict[str, Any]] = {}
    for changes in lab.shuffled(sizes):
        found[changes] = _one_size(lab, changes)
        lab.say(f"  {changes:,} changes: " + ", ".join(f"{name} {value}" for name, value in found[changes].items()))
    small, large = found[sizes[0]]["driver_megabytes"], found[sizes[-1]]["driver_megabytes"]
    yield Answer(
        question="kafka_memory",
        ratio=large / small,
        aim=AIM,
        better="lower",
        words=f"the driver's Python at most {large:.0f} MB for {sizes[-1]:,} changes, {small:.0f} MB for {sizes[0]:,};"
        " Spark's heap 2 GB",
        detail={"sizes": [{"changes": changes, **found[changes]} for changes in sizes]},
    )


def _one_size(lab: Lab, changes: int) -> dict[str, Any]:
    path = make_source(lab, f"kafka_memory_{changes}", changes, [Changes.of(changes)])
    with fresh(lab) as topic:
        pipeline = pipeline_to(lab, path, topic, start=0)
        pipeline.run(until=0)
        told = {"table": path, "servers": lab.kafka.bootstrap_servers, "topic": topic}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.kafka_memory_process", json.dumps(told)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        told_back: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if told_back.pop("changes") != changes:
            raise AssertionError(f"the window of {changes} changes was written as another number of them")
        lab.check(pipeline)
    return told_back
