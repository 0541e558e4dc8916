"""Does more work need more memory on the driver?

* Windows of 0.1, 1 and 5 million changes, each one commit onto a table of as many rows. The sink is kept from copying the
  table instead, as it would for a window that large (``large_windows``): a copy streams the table.
* The initial copy of 1 and 10 million rows of ten columns.
* ``verify`` of 1 and 100 million rows, equal on both sides, of two columns of eight bytes.

Each in a process of its own with the default heap of Spark, 2 GB. Half of the answer is that the work ends at all. The other
half is the ratio of the peak resident memory of the driver's Python process, the largest size ÷ the smallest. Once per size:
memory, unlike time, hardly varies. The order is random. Afterwards each target is compared with its source.

``jvm_megabytes`` is the peak of the Java process, which the heap bounds, and ``seconds`` the whole work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.answer import Answer
from benchmarks.lab import Lab
from benchmarks.memory import compare_peaks, run_process
from benchmarks.postgres_state import Changes, Shape, State, make_source

__all__ = ["measure"]

COPIED_ROWS = (1_000_000, 10_000_000)
VERIFIED_ROWS = (1_000_000, 100_000_000)
NARROW = Shape(("id", "value"), lambda generation: f"id, xxhash64(id, {generation}) as value")


def measure(lab: Lab) -> Iterator[Answer]:
    yield compare_peaks(lab, "postgres_memory", _apply_window)
    yield compare_peaks(lab, "postgres_memory: copy", _copy, COPIED_ROWS, "rows")
    yield compare_peaks(lab, "postgres_memory: verify", _verify, VERIFIED_ROWS, "rows")


def _apply_window(lab: Lab, changes: int) -> dict[str, Any]:
    commit = Changes.of(changes)
    name = f"memory_{changes}"
    state = State(lab, make_source(lab, name, changes, [commit]), name, [commit])
    with _database(lab, name):
        state.pipeline(name).run(until=0)
        printed = _run_process(state, "window", changes)
        lab.check(state.pipeline(name))
    return printed


def _copy(lab: Lab, rows: int) -> dict[str, Any]:
    name = f"memory_copy_{rows}"
    state = State(lab, make_source(lab, name, rows, []), name, [])
    with _database(lab, name):
        printed = _run_process(state, "copy", rows)
        lab.check(state.pipeline(name))
    return printed


def _verify(lab: Lab, rows: int) -> dict[str, Any]:
    name = f"memory_verify_{rows}"
    state = State(lab, make_source(lab, name, rows, [], NARROW), name, [], NARROW)
    with _database(lab, name):
        state.pipeline(name).run()
        return _run_process(state, "verify", rows)


def _run_process(state: State, work: str, rows: int) -> dict[str, Any]:
    settings = {"table": state.path, "dsn": state.lab.address(state.database), "name": state.database, "work": work}
    return run_process("benchmarks.postgres_memory_process", settings, rows)


@contextmanager
def _database(lab: Lab, name: str) -> Iterator[None]:
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute(f"create database {name}")
    yield
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute(f"drop database {name}")
