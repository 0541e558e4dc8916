"""How near is the initial copy to what PostgreSQL can take in?

A million rows of ten mixed columns become a logged table with a primary key, in a warm session. Ours is the whole ``run`` of
a pipeline whose target is empty: opening, reading the snapshot, COPY from the tasks, the key, the swap, the statistics. Two
are held against it, each into a new database and in an order left to chance:

* **the limit**: ``psql \\copy`` of a ready file in PostgreSQL's own binary format into a new table, then ADD PRIMARY KEY.
  Nothing is read from Delta there, nothing converted. It is the quickest of psql's ways: with the key made before it takes
  twice as long. Aim: 0.6 of its rows per second.
* **Spark's JDBC writer**, with rewritten batches and a good batch size, then ADD PRIMARY KEY. Aim: 2 times its rows per
  second.

``cold_seconds`` has the first copy of the session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import postgres_peers as peers
from benchmarks.answer import Answer
from benchmarks.lab import PGJDBC, Lab, median
from benchmarks.postgres_state import TABLE, State, connected, digest, fresh, make_source, run_psql

__all__ = ["measure"]

LIMIT_AIM, JDBC_AIM = 0.6, 2.0
_TYPES = (
    "id bigint, region integer, name text, city text, amount numeric(18,2), score double precision, active boolean,"
    " seen timestamptz, born date, note text"
)


def measure(lab: Lab) -> Iterator[Answer]:
    rows = 20_000 if lab.quick else 1_000_000
    state = State(lab, make_source(lab, "copied", rows, []), "copied", [])
    file = lab.folder / "copied.binary"
    with fresh(lab) as database:
        pipeline = state.pipeline(database)
        began = time.monotonic()
        pipeline.run()
        cold = time.monotonic() - began
        lab.check(pipeline)
        with connected(lab, database) as connection:
            state.digests.append(digest(connection))
        run_psql(lab, database, f"\\copy {TABLE} to '{file}' (format binary)")
    variants = ["ours", "psql", *(["jdbc"] if lab.has_package(PGJDBC) else [])]
    seconds: dict[str, list[float]] = {one: [] for one in variants}
    steps: dict[str, list[float]] = {}
    for counts in lab.rounds(warm_up=2, timed=7):
        for variant in lab.shuffled(variants):
            with fresh(lab) as database:
                took, parts = _run(lab, state, variant, database, file)
                state.check(database, 0)
            if counts:
                seconds[variant].append(took)
                for part, one in parts.items():
                    steps.setdefault(part, []).append(one)
    file.unlink()
    ours, limit = median(seconds["ours"]), median(seconds["psql"])
    detail = {
        "rows": rows,
        "seconds": round(ours, 3),
        "cold_seconds": round(cold, 3),
        "steps": {part: round(median(took), 3) for part, took in steps.items()},
        "repetitions": len(seconds["ours"]),
    }
    yield Answer(
        question="postgres_copy: the limit",
        ratio=limit / ours,
        aim=LIMIT_AIM,
        better="higher",
        words=f"{rows:,} rows in {ours:.2f} s ({rows / ours:,.0f}/s, {cold:.1f} s cold), psql \\copy and key {limit:.2f} s",
        detail={**detail, "psql_seconds": round(limit, 3)},
    )
    if not lab.has_package(PGJDBC):
        lab.say("  no answer for JDBC: its driver cannot be had here")
        return
    jdbc = median(seconds["jdbc"])
    yield Answer(
        question="postgres_copy: Spark's JDBC writer",
        ratio=jdbc / ours,
        aim=JDBC_AIM,
        better="higher",
        words=f"{rows:,} rows in {ours:.2f} s, by JDBC and key {jdbc:.2f} s",
        detail={**detail, "jdbc_seconds": round(jdbc, 3)},
    )


def _run(lab: Lab, state: State, variant: str, database: str, file: Path) -> tuple[float, dict[str, float]]:
    parts: dict[str, float] = {}
    began = time.monotonic()
    if variant == "ours":
        state.pipeline(database).run(progress=lambda step: parts.update(step.applied.seconds))
    elif variant == "psql":
        run_psql(
            lab,
            database,
            f"create table {TABLE} ({_TYPES})",
            f"\\copy {TABLE} from '{file}' (format binary)",
            f"alter table {TABLE} add primary key (id)",
        )
    else:
        peers.copy_by_jdbc(lab, state.path, database)
    return time.monotonic() - began, parts
