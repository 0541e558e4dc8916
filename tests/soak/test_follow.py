"""Random commits while the table is followed, and faults every few seconds: at the end the target equals the source.

DELTARELAY_SOAK=full makes it long (2,000 commits, or DELTARELAY_SOAK_COMMITS); DELTARELAY_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Followed, Limits, Pipeline
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.soak.random_source import Source, assert_equal_rows, disturb

pytestmark = [pytest.mark.long, pytest.mark.soak, pytest.mark.timeout(5400)]

FULL = os.environ.get("DELTARELAY_SOAK") == "full"
COMMITS = int(os.environ.get("DELTARELAY_SOAK_COMMITS") or (2_000 if FULL else 25))
GROWTH_MIB = 300


def test_followed_through_random_commits_and_faults_the_target_equals_the_source(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    seed = int(os.environ.get("DELTARELAY_SEED", random.randrange(10**9)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    source = Source(spark, delta_path, chance)
    told: list[Followed] = []
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.soak", small_window_bytes=chance.choice([0, 1 << 20]))
    limits = Limits(max_commits=chance.randint(1, 8))
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key=["a", "b"], limits=limits)
    stop = threading.Event()
    faults = threading.Thread(target=disturb, args=(pg.dsn, stop, random.Random(seed)), kwargs={"seldom": 10})
    handle = pipeline.follow(trigger={"processingTime": "100 milliseconds"}, progress=told.append)
    faults.start()
    done: list[str] = []
    memory: list[tuple[int, int]] = []
    try:
        for number in range(COMMITS):
            done.append(source.change())
            if number % max(1, COMMITS // 20) == 0:
                memory.append((resident_mib(), heap_mib(spark)))
                assert handle.status().state != "failed", (seed, handle.status())
    finally:
        stop.set()
        faults.join()
    last = pipeline.feed.log.latest()
    deadline = time.monotonic() + 180
    while not told or told[-1].position < last:
        assert time.monotonic() < deadline, (seed, handle.status())
        assert handle.status().state != "failed", (seed, handle.status())
        time.sleep(0.1)
    handle.stop()
    handle.await_termination()
    print(f"{len(done)} changes, {handle.status().queries} queries, {len(told)} windows")
    print(f"MiB of Python and of the JVM's heap: {memory}")
    assert_equal_rows(spark, pg, source, f"seed {seed}: {done}")
    assert pipeline.verify().equal
    # Not "+ 1": of a window whose COMMIT lost its answer nobody is told
    assert all(after.first > before.last for before, after in pairwise(told)), "each version once, in order"
    if FULL:
        settled = memory[len(memory) // 4 :]
        for process in zip(*settled, strict=True):
            assert max(process) - process[0] < GROWTH_MIB, memory


def resident_mib() -> int:
    """Memory of the driver's Python; 0 where the system does not tell."""
    file = Path("/proc/self/statm")
    pages = int(file.read_text().split()[1]) if file.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def heap_mib(spark: SparkSession) -> int:
    """What the JVM still needs after a collection; its size says nothing, it grows as far as it may."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) // 2**20
