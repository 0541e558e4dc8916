"""From which share of a table on is a copy cheaper than the changes?

One window updates a quarter, half or all of a table's rows. Three ways to take it in
(``connectors.postgres.load.copy_threshold``): its changes, a copy of the table swapped in, a copy merged. Each starts
from a copy of one database, in an order left to chance. The ratio is that of the way the sink chooses by itself to the
best of those it may choose from, the worst of all cases: 1 means that it always chooses right. For tables that may not
be replaced only the changes and the merge count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from benchmarks.postgres_state import TABLE, Changes, State, connected, fresh, windows
from cdf import Step
from connectors.postgres.load import copy_threshold as large

__all__ = ["measure"]

AIM = 1.15
SHARES = (0.25, 0.5, 1.0)


def measure(lab: Lab) -> Iterator[Answer]:
    rows = 20_000 if lab.quick else 300_000
    states = {
        share: windows(lab, f"share_{share:.0%}"[:-1], rows, [Changes(int(rows * share), 0, 0)]) for share in SHARES
    }
    took: dict[tuple[float, str], list[float]] = {}
    for counts in lab.rounds(warm_up=1, timed=3):
        for share, state in states.items():
            for way in lab.shuffled(("changes", "swap", "merge")):
                seconds = _timed(lab, state, way)
                if counts:
                    took.setdefault((share, way), []).append(seconds)
    medians = {case: median(seconds) for case, seconds in took.items()}
    cases: dict[str, Any] = {}
    worst = 1.0
    for share in SHARES:
        cases[f"{share:.0%}"] = {"bytes_share": round(_bytes_share(states[share]), 2)}
        for ours, ways in ((True, ("changes", "swap")), (False, ("changes", "merge"))):
            chosen = _chosen(lab, states[share], ours=ours)
            best = min(medians[share, way] for way in ways)
            worst = max(worst, medians[share, chosen] / best)
            cases[f"{share:.0%}"]["of ours" if ours else "of others"] = chosen
        cases[f"{share:.0%}"] |= {way: round(medians[share, way], 3) for way in ("changes", "swap", "merge")}
    yield Answer(
        question="large_windows",
        ratio=worst,
        aim=AIM,
        better="lower",
        words=", ".join(
            f"{share} updated: changes {case['changes']:.1f} s, swap {case['swap']:.1f} s, merge {case['merge']:.1f} s"
            for share, case in cases.items()
        ),
        detail={"rows": rows, "cases": cases, "repetitions": len(took[SHARES[0], "changes"])},
    )


def _timed(lab: Lab, state: State, way: str) -> float:
    done: list[Step] = []
    with fresh(lab, template=state.database) as database:
        if way == "merge":
            _made_by_others(lab, database)
        with _forced(way):
            state.pipeline(database).run(until=1, progress=done.append)
        state.check(database, 1)
    found = set(done[0].applied.seconds)
    assert (way in found) == (way != "changes"), (way, found)
    return sum(done[0].applied.seconds.values())


def _chosen(lab: Lab, state: State, *, ours: bool) -> str:
    with fresh(lab, template=state.database) as database, _limits(least=0):
        if not ours:
            _made_by_others(lab, database)
        (window,) = state.pipeline(database).plan(until=1).windows
        return window.way


def _bytes_share(state: State) -> float:
    with fresh(state.lab, template=state.database) as database:
        pipeline = state.pipeline(database)
        (window,) = pipeline.plan(until=1).windows
        return window.change_bytes / pipeline.feed.log.size_bytes(1)


def _made_by_others(lab: Lab, database: str) -> None:
    with connected(lab, database) as connection:
        connection.execute(f"comment on table {TABLE} is 'mine'")


@contextmanager
def _forced(way: str) -> Iterator[None]:
    with _limits(least=2**62) if way == "changes" else _limits(least=0, share=0.0):
        yield


@contextmanager
def _limits(*, least: int, share: float | None = None) -> Iterator[None]:
    before = large.MIN_BYTES, large.SWAP_SHARE, large.MERGE_SHARE
    large.MIN_BYTES = least
    if share is not None:
        large.SWAP_SHARE = large.MERGE_SHARE = share
    try:
        yield
    finally:
        large.MIN_BYTES, large.SWAP_SHARE, large.MERGE_SHARE = before
