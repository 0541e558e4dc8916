"""How much of a trail has to be read for the history of one record?

5 M events in 1,000 commits, taken in windows of 20 commits. Each commit has 5,000 keys from all over the table, in no
order, and each key is in five commits. Then the files are laid out once, as `audit optimize` does it. Asked is the history
of some keys, chosen by chance, one after the other. The ratio is that of the files that were read to those there are,
payload, events and ledger together: the median of the keys. Spark's own metrics tell it, of everything that it ran for the
answer: a file that is read twice counts twice, and Delta's log is not in it.

delta-rs writes the source, which is fast. Each of a key's commits inserts it: to the trail that is as good as an
update.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from audit.queries.questions import history
from audit.trail.tables import TABLES
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from cdf import Limits

__all__ = ["measure"]

AIM = 0.2
TIMES = 5
"""So many events has each key."""


def measure(lab: Lab) -> Iterator[Answer]:
    commits, commit_rows = (40, 100) if lab.quick else (1_000, 5_000)
    source, folder = lab.folder / "audit-history-source", lab.folder / "audit-history"
    keys = commits * commit_rows // TIMES
    chance = np.random.default_rng(lab.chance.getrandbits(64))
    state.write_commits(source, _commits(chance, keys, commit_rows))
    began = time.monotonic()
    state.pipeline_to(lab, str(source), folder, start=0, limits=Limits(max_commits=20)).run()
    taken = time.monotonic() - began
    lab.say(f"  a trail of {commits:,} commits is there, after {taken:.0f} s")
    trail = state.trail_at(lab, folder)
    before = sum(trail.optimize(["id"]).before.values())
    tables = [lab.spark.read.format("delta").load(f"{folder}/{name}") for name in TABLES]
    files = sum(len(table.inputFiles()) for table in tables)
    seconds: list[float] = []
    read: list[int] = []
    for counts in lab.rounds(warm_up=2, timed=7):
        key = lab.chance.randrange(keys)
        last = _last_execution(lab)
        began = time.monotonic()
        rows = history(trail, {"id": key}).select("version", "row.id").collect()
        took = time.monotonic() - began
        if [row["id"] for row in rows] != [key] * TIMES or len({row["version"] for row in rows}) < 2:
            raise AssertionError(f"the history of a key has {len(rows)} events instead of {TIMES}")
        if counts:
            seconds.append(took)
            read.append(_files_read(lab, folder, last))
    yield Answer(
        question="audit_history",
        ratio=median(read) / files,
        aim=AIM,
        better="lower",
        words=f"{median(read):.0f} of {files} files read in {median(seconds):.2f} s, for one of {keys:,} keys among"
        f" {commits * commit_rows:,} events",
        detail={
            "events": commits * commit_rows,
            "commits": commits,
            "files": files,
            "files_before_optimize": before,
            "files_read": sorted(read),
            "seconds": round(median(seconds), 3),
            "seconds_to_take_all": round(taken, 1),
            "repetitions": len(read),
        },
    )


def _commits(chance: np.random.Generator, keys: int, rows: int) -> Iterator[pa.Table]:
    """Every key once, in another order each time."""
    for _ in range(TIMES):
        for ids in np.split(chance.permutation(keys), keys // rows):
            yield pa.table(
                {
                    "id": ids,
                    "name": [f"name {one}" for one in ids],
                    "amount": chance.random(rows),
                    "at": pa.array(chance.integers(0, 2**50, rows), pa.timestamp("us", tz="UTC")),
                }
            )


# ── what Spark has read ──────────────────────────────────────────────────────────────────────────────────────────────


def _executions(lab: Lab) -> Any:
    spark: Any = lab.spark
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return spark._jsparkSession.sharedState().statusStore()


def _last_execution(lab: Lab) -> int:
    executions = _executions(lab).executionsList()
    return max((executions.apply(at).executionId() for at in range(executions.size())), default=-1)


def _files_read(lab: Lab, folder: Path, after: int) -> int:
    """By all that ran after this execution, of the trail's tables."""
    store = _executions(lab)
    executions = store.executionsList()
    count = 0
    for number in (executions.apply(at).executionId() for at in range(executions.size())):
        if number > after:
            metrics, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
            for node in (nodes.apply(at) for at in range(nodes.size())):
                if f"{folder}/" in node.desc() and "_delta_log" not in node.desc():
                    count += _metric(node.metrics(), metrics, "number of files read")
    return count


def _metric(of_node: Any, values: Any, name: str) -> int:
    found = [of_node.apply(at) for at in range(of_node.size()) if of_node.apply(at).name() == name]
    return sum(int(values.apply(one.accumulatorId()).replace(",", "")) for one in found)
