"""How fast is a backlog worked off?

Ten windows like that of ``postgres_window``, one commit each, in one ``run``; timed is the whole of it. Three are held
against it, each from copies of one database and in an order left to chance:

* **the limit**: the bare DELETE and key-sorted upsert of the same rows, staged already, in ten transactions. Aim: 0.85.
* **JDBC and MERGE**: a streaming query whose ``foreachBatch`` writes the latest changes into a staging table by Spark's JDBC
  writer, with its rewritten batches, and merges them. Aim: 2.
* **executemany**: the same with psycopg's ``executemany`` on the driver. Aim: 4.

All of them take one commit at a time. (By default ours would put these ten into fewer, larger windows:
``default_limits_seconds`` has that, and it is not a part of any ratio.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import postgres_peers as peers
from benchmarks.answer import Answer
from benchmarks.lab import PGJDBC, Lab, median
from benchmarks.postgres_state import State, apply_bare, connected, fresh, windows
from benchmarks.postgres_window import sizes

__all__ = ["measure"]

AIMS = {"bare": 0.85, "jdbc": 2.0, "executemany": 4.0}
NAMES = {"bare": "the limit", "jdbc": "JDBC and MERGE", "executemany": "executemany"}


def measure(lab: Lab) -> Iterator[Answer]:
    rows, commits = sizes(lab)
    state = windows(lab, "windows", rows, commits)
    variants = ["ours", "default", *(one for one in AIMS if one != "jdbc" or lab.has_package(PGJDBC))]
    seconds: dict[str, list[float]] = {one: [] for one in variants}
    cold: dict[str, float] = {}
    for counts in lab.rounds(warm_up=1, timed=3):
        for variant in lab.shuffled(variants):
            with fresh(lab, template=state.database) as database:
                took = _run(lab, state, variant, database)
                state.check(database, len(commits))
            lab.say(f"  {variant}: {took:.2f} s{'' if counts else ' (warm-up)'}")
            cold.setdefault(variant, took)
            if counts:
                seconds[variant].append(took)
    changes = sum(one.total for one in commits)
    ours = median(seconds["ours"])
    if not lab.has_package(PGJDBC):
        lab.say("  no answer for JDBC: its driver cannot be had here")
    for peer, aim in AIMS.items():
        if peer not in seconds:
            continue
        theirs = median(seconds[peer])
        yield Answer(
            question=f"postgres_catch_up: {NAMES[peer]}",
            ratio=theirs / ours,
            aim=aim,
            better="higher",
            words=f"{changes:,} changes in {len(commits)} windows: {ours:.1f} s ({changes / ours:,.0f}/s), {theirs:.1f} s",
            detail={
                "rows": rows,
                "changes": changes,
                "windows": len(commits),
                "seconds": round(ours, 3),
                "their_seconds": round(theirs, 3),
                "default_limits_seconds": round(median(seconds["default"]), 3),
                "cold_seconds": [round(cold["ours"], 3), round(cold[peer], 3)],
                "repetitions": len(seconds["ours"]),
            },
        )


def _run(lab: Lab, state: State, variant: str, database: str) -> float:
    versions = range(1, len(state.commits) + 1)
    if variant == "bare":
        with connected(lab, database) as connection:
            return apply_bare(connection, versions)
    began = time.monotonic()
    if variant == "ours":
        result = state.pipeline(database, max_commits=1).run()
        assert result.windows == len(versions), result
    elif variant == "default":
        state.pipeline(database).run()
    elif variant == "jdbc":
        peers.jdbc_and_merge(lab, state.path, database)
    else:
        peers.executemany(lab, state.path, database)
    return time.monotonic() - began
