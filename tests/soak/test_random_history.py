"""Random commits on a real Delta table, random windows, random faults: in the end the target equals the source.

DELTARELAY_SOAK=full makes it long; DELTARELAY_TEST_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline, RunResult
from cdf.errors import CdfError
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.soak.random_source import Source, assert_equal_rows, disturb

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROUNDS = 120 if os.environ.get("DELTARELAY_SOAK") == "full" else 6


def test_after_random_commits_and_faults_the_target_equals_the_source(
    spark: SparkSession, pg: Pg, delta_path: str, seed: int
) -> None:
    chance = random.Random(seed)
    source = Source(spark, delta_path, chance)
    done: list[str] = []
    failures = 0
    for number in range(ROUNDS):
        done += [source.change() for _ in range(chance.randint(1, 4))]
        sink = PostgresSink(pg.dsn, table=f"{pg.schema}.soak", small_window_bytes=chance.choice([0, 1 << 20]))
        pipeline = Pipeline(
            ChangeFeed(spark, delta_path), sink, key=["a", "b"], limits=Limits(max_commits=chance.randint(1, 4))
        )
        stop = threading.Event()
        faults = threading.Thread(target=disturb, args=(pg.dsn, stop, random.Random(seed + number)))
        if chance.random() < 0.6:
            faults.start()
        try:
            pipeline.run()
        except CdfError as error:
            if not error.transient:
                print(f"seed {seed}: {done}")
                raise
            failures += 1
        finally:
            stop.set()
            if faults.ident is not None:
                faults.join()
    result = until_done(pipeline)
    print(f"{len(done)} changes, {failures} runs disturbed, at version {result.position}")
    assert_equal_rows(spark, pg, source, f"seed {seed}: {done}")
    assert pipeline.verify().equal
    assert result.conflicts.total == 0


def until_done(pipeline: Pipeline) -> RunResult:
    deadline = time.monotonic() + 180
    while True:
        try:
            return pipeline.run()
        except CdfError as error:
            if not error.transient or time.monotonic() > deadline:
                raise
