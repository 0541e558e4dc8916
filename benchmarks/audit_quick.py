"""Does a long trail make it dearer to verify what is new?

Two trails of one schema, one over 10 and one over 1,000 commits of a few rows each, taken in windows of 20 commits.
Both are verified in full; then every round adds one commit to either source, takes it into the trail, which signs a
checkpoint, and verifies what is new since the verification before, in an order left to chance. Timed is that quick
verification alone. The ratio is that of the medians.

delta-rs writes the histories, which is fast, and the timed commits are Spark's, as they would be in production.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from audit.audit_trail import Trail
from audit.verification import VerifiedState
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from cdf import Limits, Pipeline

__all__ = ["measure"]

AIM = 1.5
COMMIT_ROWS = 10


@dataclass(slots=True)
class _Kept:
    pipeline: Pipeline
    trail: Trail
    verified: VerifiedState | None = None

    def verify(self, events: int) -> float:
        """What is new since the last time. → seconds"""
        began = time.monotonic()
        found, self.verified = self.trail.verify(since=self.verified)
        seconds = time.monotonic() - began
        if not found.intact or found.events != events or found.sealed_version != self.pipeline.feed.log.latest():
            raise AssertionError(f"{self.pipeline.name}: {found.events} of {events} events; {found.findings}")
        return seconds


def measure(lab: Lab) -> Iterator[Answer]:
    short, long = (2, 45) if lab.quick else (10, 1_000)
    trails = {commits: _trail(lab, commits) for commits in (short, long)}
    seconds: dict[int, list[float]] = {short: [], long: []}
    for counts in lab.rounds(warm_up=3, timed=11):
        for commits in lab.shuffled((short, long)):
            kept = trails[commits]
            low = 10**9 + COMMIT_ROWS * kept.pipeline.feed.log.latest()
            rows = lab.spark.range(low, low + COMMIT_ROWS).selectExpr("id", "concat('name ', id) as name")
            rows.coalesce(1).write.format("delta").mode("append").save(kept.pipeline.feed.table)
            kept.pipeline.run()
            took = kept.verify(COMMIT_ROWS)
            if counts:
                seconds[commits].append(took)
    before, after = median(seconds[short]), median(seconds[long])
    yield Answer(
        question="audit_quick",
        ratio=after / before,
        aim=AIM,
        better="lower",
        words=f"one new commit verified in {after:.3f} s after {long:,} commits, in {before:.3f} s after {short}",
        detail={
            "commits": [short, long],
            "seconds": [round(before, 4), round(after, 4)],
            "repetitions": len(seconds[long]),
        },
    )


def _trail(lab: Lab, commits: int) -> _Kept:
    source, folder = lab.folder / f"audit-quick-source-{commits}", lab.folder / f"audit-quick-{commits}"
    ids = (range(number * COMMIT_ROWS, (number + 1) * COMMIT_ROWS) for number in range(commits))
    state.write_commits(
        source, (pa.table({"id": pa.array(some, pa.int64()), "name": [f"name {one}" for one in some]}) for some in ids)
    )
    pipeline = state.pipeline_to(lab, str(source), folder, start=0, limits=Limits(max_commits=20))
    pipeline.run()
    kept = _Kept(pipeline, state.trail_at(lab, folder))
    kept.verify(commits * COMMIT_ROWS)
    lab.say(f"  a trail of {commits:,} commits is there")
    return kept
