"""What does it cost that a change is not only kept, but provable?

Half a million changes of a table with twenty mixed columns: inserts of one commit, inserts of 50 commits in one window,
and one commit of updates, whose two images are paired. Ours is the window from the look at the log until its records are
in the ledger. Held against it is what one would do without a trail: the same change feed, read by Spark and appended to
one Delta table with its change types, versions and times. The tables are there before. The two take turns in an order
left to chance; the ratio is that of events per second.

A runner signs once a minute, however much it has written: what that takes is told apart, in ``detail``, beside what an
event takes on disk by table, Delta's log included, and how much of the processors' time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from audit.trail.tables import TABLES
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIMS = {"one commit": 0.5, "50 commits": 0.5, "updates": 0.4}
OURS, PLAIN = "ours", "plain"


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    processor_seconds: float
    size: Mapping[str, int]
    """Bytes by table."""
    steps: Mapping[str, float] = field(default_factory=dict)


def measure(lab: Lab) -> Iterator[Answer]:
    cases = {
        "one commit": state.one_commit(lab, updates=False),
        "50 commits": state.many_commits(lab),
        "updates": state.one_commit(lab, updates=True),
    }
    runs: dict[tuple[str, str], list[_Run]] = {(case, way): [] for case in cases for way in (OURS, PLAIN)}
    cold: dict[tuple[str, str], float] = {}
    for counts in lab.rounds(warm_up=2, timed=5):
        for case, way in lab.shuffled(list(runs)):
            folder = lab.folder / "audit-append"
            done = (_ours if way == OURS else _plainly)(lab, cases[case], folder, intact=not counts)
            shutil.rmtree(folder)
            cold.setdefault((case, way), done.seconds)
            if counts:
                runs[case, way].append(done)
    for case, source in cases.items():
        yield _answer(
            case, source.events, runs[case, OURS], runs[case, PLAIN], [cold[case, way] for way in (OURS, PLAIN)]
        )


def _ours(lab: Lab, source: state.Source, folder: Path, *, intact: bool) -> _Run:
    pipeline = state.pipeline_to(lab, source.path, folder, start=source.first, signed=False)
    with pipeline.runner.open(source.last) as position:
        processor, began = state.processor_seconds(lab), time.monotonic()
        (step,) = pipeline.runner.steps(position, source.last)
        seconds = time.monotonic() - began
        processor = state.processor_seconds(lab) - processor
    began = time.monotonic()
    state.trail_at(lab, folder).checkpoint(accept=True)
    steps = {**step.applied.seconds, "seal": time.monotonic() - began}
    state.check_contents(lab, source, folder)
    if intact:  # once for each kind of window: it takes longer than the window
        state.check_intact(lab, folder, source.events)
    sizes = {name: state.bytes_of(folder / name) for name in TABLES}
    return _Run(seconds, processor, sizes, steps)


def _plainly(lab: Lab, source: state.Source, folder: Path, *, intact: bool) -> _Run:  # noqa: ARG001
    def append(first: int, last: int) -> None:
        rows = state.feed_rows(lab, source.path, first, last)
        rows = rows.toDF(*(name.removeprefix("_") for name in rows.columns))  # Delta's own names are not for tables
        rows.write.format("delta").mode("append").save(str(folder))

    append(0, 0)
    processor, began = state.processor_seconds(lab), time.monotonic()
    append(source.first, source.last)
    seconds = time.monotonic() - began
    processor = state.processor_seconds(lab) - processor
    assert lab.spark.read.format("delta").load(str(folder)).count() == source.events
    return _Run(seconds, processor, {PLAIN: state.bytes_of(folder)})


def _answer(case: str, events: int, ours: list[_Run], plain: list[_Run], cold: list[float]) -> Answer:
    seconds, limit = (median([one.seconds for one in runs]) for runs in (ours, plain))
    core = [median([one.processor_seconds for one in runs]) / events * 1e6 for runs in (ours, plain)]
    size = {name: round(bytes / events, 1) for name, bytes in {**ours[-1].size, **plain[-1].size}.items()}
    return Answer(
        question=f"audit_append: {case}",
        ratio=limit / seconds,
        aim=AIMS[case],
        better="higher",
        words=f"{events:,} events in {seconds:.2f} s ({events / seconds:,.0f}/s), plain append {limit:.2f} s; "
        f"{core[0]:.0f} and {core[1]:.0f} core-µs an event; bytes an event: "
        + ", ".join(f"{name} {one:.0f}" for name, one in size.items()),
        detail={
            "events": events,
            "seconds": [round(seconds, 3), round(limit, 3)],
            "steps": {part: round(median([one.steps[part] for one in ours]), 3) for part in ours[0].steps},
            "core_microseconds_per_event": [round(one, 1) for one in core],
            "bytes_per_event": size,
            "cold_seconds": [round(one, 3) for one in cold],
            "repetitions": len(ours),
        },
    )
