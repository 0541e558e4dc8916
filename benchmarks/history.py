"""Does a long history make each window dearer?

Two tables with one schema, one of 50 and one of 2,000 commits of a few rows each. Each is copied once; then every round
adds one commit to both and brings both targets up to date, in an order left to chance. Timed is the whole ``run`` of that
one window: looking for the new version, the checks, the lease, reading, applying. The ratio is that of the medians.

delta-rs writes the histories, which is fast, and the timed commits are Spark's, as they would be in production. The longer
history leaves 2,000 files in the table, as tiny appends do: what a table's state costs Delta is a part of the answer.
How much of it is Delta's own is told as well: the same version's feed, read by Spark alone right after the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from cdf import ChangeFeed, Pipeline, Step
from connectors.postgres import PostgresSink

__all__ = ["measure"]

AIM = 1.2
COMMIT_ROWS = 10


def measure(lab: Lab) -> Iterator[Answer]:
    short, long = (5, 20) if lab.quick else (50, 2_000)
    pipelines = {commits: _replica(lab, commits) for commits in (short, long)}
    runs: dict[int, list[float]] = {short: [], long: []}
    steps: dict[int, list[float]] = {short: [], long: []}
    reads: dict[int, list[float]] = {short: [], long: []}
    cold: dict[int, float] = {}
    for counts in lab.rounds(warm_up=4, timed=11):
        for commits in lab.shuffled((short, long)):
            pipeline = pipelines[commits]
            low = 10**9 + COMMIT_ROWS * pipeline.feed.log.latest()
            rows = lab.spark.range(low, low + COMMIT_ROWS).selectExpr("id", "concat('name ', id) as name")
            rows.coalesce(1).write.format("delta").mode("append").save(pipeline.feed.table)
            done: list[Step] = []
            began = time.monotonic()
            result = pipeline.run(progress=done.append)
            seconds = time.monotonic() - began
            assert (result.windows, result.inserts) == (1, COMMIT_ROWS), result
            read = _read(lab, pipeline.feed.table, result.latest_version)
            lab.check(pipeline)
            cold.setdefault(commits, seconds)
            if counts:
                reads[commits].append(read)
                runs[commits].append(seconds)
                steps[commits].append(sum(done[0].applied.seconds.values()))
    before, after = median(runs[short]), median(runs[long])
    yield Answer(
        question="history",
        ratio=after / before,
        aim=AIM,
        better="lower",
        words=f"a run of one window: {after:.3f} s after {long:,} commits, {before:.3f} s after {short}; "
        f"Spark's read alone {median(reads[long]):.3f} and {median(reads[short]):.3f} s",
        detail={
            "commits": [short, long],
            "run_seconds": [round(before, 4), round(after, 4)],
            "read_seconds": [round(median(reads[short]), 4), round(median(reads[long]), 4)],
            "stage_and_apply_seconds": [round(median(steps[short]), 4), round(median(steps[long]), 4)],
            "cold_seconds": round(cold[long], 3),
            "repetitions": len(runs[long]),
        },
    )


def _read(lab: Lab, path: str, version: int) -> float:
    began = time.monotonic()
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", version).option("endingVersion", version).load(path).toArrow()
    seconds = time.monotonic() - began
    assert rows.num_rows == COMMIT_ROWS
    return seconds


def _replica(lab: Lab, commits: int) -> Pipeline:
    """A table with that many commits, and its copy in PostgreSQL."""
    path = lab.folder / f"history-{commits}"
    _write(path, commits)
    sink = PostgresSink(lab.dsn, table=f"public.history_{commits}")
    pipeline = Pipeline(ChangeFeed(lab.spark, str(path)), sink, key=["id"], name=f"history of {commits}")
    pipeline.run()
    lab.say(f"  {commits} commits are there")
    return pipeline


def _write(path: Path, commits: int) -> None:
    from deltalake import write_deltalake

    for number in range(commits):
        ids = range(number * COMMIT_ROWS, (number + 1) * COMMIT_ROWS)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name {one}" for one in ids]})
        write_deltalake(path, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
