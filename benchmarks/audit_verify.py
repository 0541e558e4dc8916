"""How much longer than reading a trail does it take to prove that it is whole?

A trail of half a million events in 50 commits, with twenty columns. Ours is the verification at its full level: every
row encoded and hashed anew and held against its event, every event against the ledger, the ledger against the
checkpoint outside. Held against it is a plain scan of the same three tables: Spark reads every column of every row, and
takes one 64-bit hash of it. The two take turns in an order left to chance. The processors' time of an event says what a
larger trail will cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from audit.trail.tables import TABLES
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM = 8.0


def measure(lab: Lab) -> Iterator[Answer]:
    source, folder = state.many_commits(lab), lab.folder / "audit-verify"
    state.pipeline_to(lab, source.path, folder, start=source.first).run()
    state.check_contents(lab, source, folder)
    ways = {"verify": lambda: state.check_intact(lab, folder, source.events), "scan": lambda: _scan(lab, folder)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    processor: dict[str, list[float]] = {way: [] for way in ways}
    cold: dict[str, float] = {}
    for counts in lab.rounds(warm_up=2, timed=5):
        for way in lab.shuffled(list(ways)):
            before, began = state.processor_seconds(lab), time.monotonic()
            ways[way]()
            took = time.monotonic() - began
            cold.setdefault(way, took)
            if counts:
                seconds[way].append(took)
                processor[way].append(state.processor_seconds(lab) - before)
    verify, scan = median(seconds["verify"]), median(seconds["scan"])
    core = {way: round(median(took) / source.events * 1e6, 1) for way, took in processor.items()}
    yield Answer(
        question="audit_verify",
        ratio=verify / scan,
        aim=AIM,
        better="lower",
        words=f"{source.events:,} events verified in {verify:.2f} s, scanned in {scan:.2f} s;"
        f" {core['verify']:.0f} and {core['scan']:.0f} core-µs an event",
        detail={
            "events": source.events,
            "seconds": [round(verify, 3), round(scan, 3)],
            "core_microseconds_per_event": core,
            "cold_seconds": [round(cold[way], 3) for way in ways],
            "repetitions": len(seconds["verify"]),
        },
    )


def _scan(lab: Lab, folder: Path) -> None:
    for name in TABLES:
        rows = lab.spark.read.format("delta").load(f"{folder}/{name}")
        rows.selectExpr("sum(cast(xxhash64(*) as decimal(20, 0)))").collect()
