"""How long after a commit at the source is the row visible in PostgreSQL?

The ratio is commit → visible ÷ the time that Spark needs just to read that version's feed (``readChangeFeed`` of exactly
that version, to Arrow), medians of the same run. The read happens right after the version became visible, in the session
that follows, which knows the version by then: it is the cheapest way to those rows that Spark has.

Who commits matters. A writer in the session that follows would hand it the new version for nothing, because both share one
view of the table's log. A writer that is not Spark leaves out the ``.crc`` file beside a commit, without which Spark needs
about 0.2 s more to take a version in. So a second process with a Spark of its own commits, as in production, and pays for
it on the same cores. The clock starts when the commit's file is in the log, which the file's own time tells, and not when
the writer's call returns, which is later. It stops when a connection of the writer's process, asking every 2 ms, sees the
last row; that a whole commit became visible is counted at once.

One more answer says what metrics and lineage cost: commit → visible with them ÷ without, in blocks that take turns.

The sizes take turns in an order left to chance. In the end the whole target is compared with the source.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median, p95
from benchmarks.monitored import Measured, build_project, compare, measure_processor, monitor_follower
from cdf import ChangeFeed, Followed, Pipeline
from connectors.postgres import PostgresSink

if TYPE_CHECKING:
    from cdf.pipeline.follow import Following
    from infra.monitoring.observers import Observers

__all__ = ["measure"]

Commit = Callable[[int], dict[str, Any]]

AIM = 2.0
SIZES = (1, 100, 1_000)
TABLE = "public.freshness"
BLOCK = 15
"""Commits that are measured with metrics and lineage, then as many without: about as long as the interval at which metrics
ask the source and the target."""


def measure(lab: Lab) -> Iterator[Answer]:
    path = str(lab.folder / "freshness")
    lab.spark.sql(
        f"create table delta.`{path}` (id bigint, name string, amount decimal(12,2)) using delta"
        " tblproperties (delta.enableChangeDataFeed=true)"
    )
    sink = PostgresSink(lab.dsn, table=TABLE)
    pipeline = Pipeline(ChangeFeed(lab.spark, path), sink, key=["id"], name="freshness")
    pipeline.run()
    visible: dict[int, list[float]] = {size: [] for size in SIZES}
    cold: dict[int, float] = {}
    read: dict[int, list[float]] = {size: [] for size in SIZES}
    with _writer(lab, path) as commit:
        recording = _Recording()
        handle = pipeline.follow(trigger={"processingTime": "0 seconds"}, progress=recording.record)
        try:
            for counts in lab.rounds(warm_up=10, timed=30):
                for size in lab.shuffled(SIZES):
                    seen = _commit(lab, commit, size, handle)
                    took = _read(lab, path, seen["version"], size)
                    cold.setdefault(size, seen["seconds"])
                    if counts:
                        visible[size].append(seen["seconds"])
                        read[size].append(took)
            monitored = _measure_monitoring(lab, path, commit, handle, recording)
        finally:
            handle.stop()
        handle.await_termination()
    lab.check(pipeline)
    for size in SIZES:
        spark_read, middle, late = median(read[size]), median(visible[size]), p95(visible[size])
        yield Answer(
            question=f"freshness, {size:,} row{'s' if size > 1 else ''}",
            ratio=middle / spark_read,
            aim=AIM,
            better="lower",
            words=f"visible after {middle:.3f} s, p95 {late:.3f} s; Spark's read {spark_read:.3f} s",
            detail={
                "rows": size,
                "visible_seconds": round(middle, 4),
                "visible_p95_seconds": round(late, 4),
                "p95_ratio": round(late / spark_read, 3),
                "read_seconds": round(spark_read, 4),
                "cold_seconds": round(cold[size], 3),
                "repetitions": len(visible[size]),
            },
        )
    yield monitored


@dataclass
class _Recording:
    """Passes the follower's steps to metrics and lineage while they are on."""

    observers: Observers | None = None

    def record(self, step: Followed) -> None:
        if self.observers is not None:
            self.observers.record_step("people", step)


def _measure_monitoring(lab: Lab, path: str, commit: Commit, handle: Following, recording: _Recording) -> Answer:
    project = build_project(lab, "people", source=path, dsn=lab.dsn, table=TABLE)
    measured = {"on": Measured(), "off": Measured()}
    sizes = [SIZES[number % len(SIZES)] for number in range(3 if lab.quick else BLOCK)]
    for counts in lab.rounds(warm_up=1, timed=10):
        for variant in lab.shuffled(("on", "off")):
            into = measured[variant] if counts else Measured()
            with measure_processor(lab, into), ExitStack() as open_:
                if variant == "on":
                    monitored = monitor_follower(project, "people", handle.status, lab.free_port())
                    recording.observers = open_.enter_context(monitored)
                    open_.callback(setattr, recording, "observers", None)
                seconds = [_commit(lab, commit, size, handle)["seconds"] for size in sizes]
            into.seconds.append(statistics.geometric_mean(seconds))
    return compare("freshness: monitored", measured["on"], measured["off"], pairs_are=f"blocks of {len(sizes)} commits")


def _commit(lab: Lab, commit: Commit, size: int, handle: Following) -> dict[str, Any]:
    # At any moment of the trigger's round, as commits come in production
    time.sleep(lab.chance.uniform(0.2, 0.7))
    seen = commit(size)
    if "seconds" not in seen:
        raise AssertionError(f"version {seen['version']} never became visible: {handle.status()}")
    return seen


def _read(lab: Lab, path: str, version: int, size: int) -> float:
    began = time.monotonic()
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", version).option("endingVersion", version).load(path).toArrow()
    seconds = time.monotonic() - began
    assert rows.num_rows == size, (rows.num_rows, size)
    return seconds


@contextmanager
def _writer(lab: Lab, path: str) -> Iterator[Any]:
    """The process that commits: ``commit(rows)`` → what ``benchmarks.freshness_writer`` says of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.freshness_writer", path, lab.dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        start_new_session=True,  # Ctrl-C is for us; the writer ends when its stdin does
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def commit(rows: int) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{rows}\n")
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    try:
        yield commit
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
