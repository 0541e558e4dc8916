"""Does a change get dearer as the target grows?

The window of ``postgres_window`` onto a table of 300,000 rows and onto one of 3,000,000: from reading the feed to the
commit, as the step reports it, in an order left to chance. The ratio is that of the medians, large ÷ small.

The keys are random, so on the large table nearly every change touches a page of its own, and on the small one several share
a page. How much of the growth is PostgreSQL's is told as well: ``bare_growth`` is the ratio for the bare DELETE and
key-sorted upsert of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from benchmarks.postgres_state import Changes, apply_bare, connected, fresh, windows
from cdf import Step

__all__ = ["measure"]

AIM = 1.2


def measure(lab: Lab) -> Iterator[Answer]:
    small, large, changes = (10_000, 100_000, 2_200) if lab.quick else (300_000, 3_000_000, 110_000)
    states = {rows: windows(lab, f"growth_{rows}", rows, [Changes.of(changes)]) for rows in (small, large)}
    variants = [(rows, who) for rows in states for who in ("ours", "bare")]
    seconds: dict[tuple[int, str], list[float]] = {one: [] for one in variants}
    for counts in lab.rounds(warm_up=2, timed=5):
        for rows, who in lab.shuffled(variants):
            state = states[rows]
            with fresh(lab, template=state.database) as database:
                if who == "bare":
                    with connected(lab, database) as connection:
                        took = apply_bare(connection, [1])
                else:
                    done: list[Step] = []
                    state.pipeline(database).run(until=1, progress=done.append)
                    took = sum(done[0].applied.seconds.values())
                state.check(database, 1)
            if counts:
                seconds[rows, who].append(took)
    middle = {one: median(took) for one, took in seconds.items()}
    yield Answer(
        question="postgres_growth",
        ratio=middle[large, "ours"] / middle[small, "ours"],
        aim=AIM,
        better="lower",
        words=f"{changes:,} changes: {middle[large, 'ours']:.2f} s onto {large:,} rows, {middle[small, 'ours']:.2f} s onto"
        f" {small:,}; bare apply {middle[large, 'bare']:.2f} and {middle[small, 'bare']:.2f} s",
        detail={
            "changes": changes,
            "rows": [small, large],
            "seconds": [round(middle[rows, "ours"], 4) for rows in states],
            "bare_seconds": [round(middle[rows, "bare"], 4) for rows in states],
            "bare_growth": round(middle[large, "bare"] / middle[small, "bare"], 3),
            "repetitions": len(seconds[large, "ours"]),
        },
    )
