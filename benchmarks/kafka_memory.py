"""Does a large window into Kafka need more memory on the driver?

As ``postgres_memory`` has it: windows of 0.1, 1 and 5 million changes, each one commit onto a table of as many rows, each
written by a process of its own whose Spark has a heap of 2 GB. That it gets through at all is half of the answer; the other
half is the ratio of the peak resident memory of the driver's Python process, 5 million ÷ 0.1 million. Once per size: memory,
unlike time, hardly varies. The order is left to chance. Afterwards each topic, which had the table before, is folded to the
last value of each key and compared with its source.

``jvm_megabytes`` is the peak of the Java process, which the heap bounds, and ``seconds`` the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.answer import Answer
from benchmarks.kafka_state import fresh, pipeline_to
from benchmarks.lab import Lab
from benchmarks.memory import compare_peaks, run_process
from benchmarks.postgres_state import Changes, make_source

__all__ = ["measure"]


def measure(lab: Lab) -> Iterator[Answer]:
    yield compare_peaks(lab, "kafka_memory", _measure_size)


def _measure_size(lab: Lab, changes: int) -> dict[str, Any]:
    path = make_source(lab, f"kafka_memory_{changes}", changes, [Changes.of(changes)])
    with fresh(lab) as topic:
        pipeline = pipeline_to(lab, path, topic, start=0)
        pipeline.run(until=0)
        settings = {"table": path, "servers": lab.kafka.bootstrap_servers, "topic": topic}
        printed = run_process("benchmarks.kafka_memory_process", settings, changes)
        lab.check(pipeline)
    return printed
