"""Does a large window need more memory on the driver?

Windows of 0.1, 1 and 5 million changes, each one commit onto a table of as many rows, each applied by a process of its own
whose Spark has a heap of 2 GB. That it gets through at all is half of the answer; the other half is the ratio of the peak
resident memory of the driver's Python process, 5 million ÷ 0.1 million. Once per size: memory, unlike time, hardly varies.
The order is left to chance. Afterwards each target is compared with its source. The way of a copy is shut: a window that
large is otherwise taken in by one (``large_windows``), which streams the table.

``jvm_megabytes`` is the peak of the Java process, which the heap bounds, and ``seconds`` the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from benchmarks.answer import Answer
from benchmarks.lab import Lab
from benchmarks.memory import in_a_process, peaks
from benchmarks.postgres_state import Changes, State, make_source

__all__ = ["measure"]


def measure(lab: Lab) -> Iterator[Answer]:
    yield peaks(lab, "postgres_memory", _one_size)


def _one_size(lab: Lab, changes: int) -> dict[str, Any]:
    name = f"memory_{changes}"
    commit = Changes.of(changes)
    state = State(lab, make_source(lab, name, changes, [commit]), name, [commit])
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute(f"create database {name}")
    state.pipeline(name).run(until=0)
    told = {"table": state.path, "dsn": lab.address(name)}
    told_back = in_a_process("benchmarks.postgres_memory_process", told, changes)
    lab.check(state.pipeline(name))
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute(f"drop database {name}")
    return told_back
