"""What does a window cost beyond what PostgreSQL needs for its rows?

One window of 110,000 changes (80,000 updates, 20,000 inserts, 10,000 deletes of random keys) onto a table of a million
rows. Ours is timed from reading the feed to the commit, which is what the step itself reports; the limit is the bare DELETE
and key-sorted upsert of the very same rows, which lie in an unlogged table of the database already. Both start from copies
of one database and in an order left to chance. The ratio is that of changes per second, of the medians: 1 would mean that
reading Delta, the net effect and staging cost nothing.

Two more answers say what metrics and lineage cost: the same run with them ÷ without, which take turns. ``the window`` is the
step as above; ``the run`` has everything, from opening the target until metrics and lineage have ended.

``run_seconds`` has the whole ``run``: opening, lease and checks too. ``cold_seconds`` has the first window that was applied
to this table, in a session that had only made and copied it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from benchmarks.monitored import Measured, build_project, compare, measure_processor, monitor
from benchmarks.postgres_state import TABLE, Changes, State, apply_bare, connected, fresh, windows
from cdf import Pipeline, Step
from infra.config.models import Project

__all__ = ["WINDOWS", "measure", "sizes"]

AIM = 0.6
WINDOWS = 10


def sizes(lab: Lab) -> tuple[int, list[Changes]]:
    """The rows and the commits of the table that this question and ``postgres_catch_up`` share."""
    rows, changes, count = (20_000, 2_200, 3) if lab.quick else (1_000_000, 110_000, WINDOWS)
    return rows, [Changes.of(changes)] * count


def measure(lab: Lab) -> Iterator[Answer]:
    rows, commits = sizes(lab)
    state = windows(lab, "windows", rows, commits)
    ours: list[float] = []
    whole: list[float] = []
    bare: list[float] = []
    parts: dict[str, list[float]] = {}
    for counts in lab.rounds(warm_up=3, timed=9):
        for variant in lab.shuffled(("ours", "bare")):
            with fresh(lab, template=state.database) as database:
                if variant == "bare":
                    with connected(lab, database) as connection:
                        seconds = apply_bare(connection, [1])
                    if counts:
                        bare.append(seconds)
                else:
                    done: list[Step] = []
                    began = time.monotonic()
                    state.pipeline(database).run(until=1, progress=done.append)
                    seconds = time.monotonic() - began
                    step = sum(done[0].applied.seconds.values())
                    if counts:
                        whole.append(seconds)
                        ours.append(step)
                        for part, took in done[0].applied.seconds.items():
                            parts.setdefault(part, []).append(took)
                state.check(database, 1)
    changes = commits[0].total
    window, limit = median(ours), median(bare)
    yield Answer(
        question="postgres_window",
        ratio=limit / window,
        aim=AIM,
        better="higher",
        words=f"{changes:,} changes in {window:.2f} s ({changes / window:,.0f}/s), bare apply {limit:.2f} s",
        detail={
            "rows": rows,
            "changes": changes,
            "seconds": round(window, 4),
            "bare_seconds": round(limit, 4),
            "cold_seconds": round(state.first_seconds or 0.0, 4),
            "run_seconds": round(median(whole), 4),
            "steps": {part: round(median(took), 4) for part, took in parts.items()},
            "repetitions": len(ours),
        },
    )
    yield from _measure_monitoring(lab, state)


def _measure_monitoring(lab: Lab, state: State) -> Iterator[Answer]:
    steps, runs = ({variant: Measured() for variant in ("on", "off")} for _ in range(2))
    for counts in lab.rounds(warm_up=3, timed=30):
        for variant in lab.shuffled(("on", "off")):
            with fresh(lab, template=state.database) as database:
                # As in all runs but the first of a database, which creates this table
                state.sink(database).change_controls(lambda controls: controls)
                project = build_project(lab, "people", source=state.path, dsn=lab.address(database), table=TABLE)
                step, run = (steps[variant], runs[variant]) if counts else (Measured(), Measured())
                began = time.monotonic()
                with measure_processor(lab, run):
                    step.seconds.append(_run(state.pipeline(database), project if variant == "on" else None))
                run.seconds.append(time.monotonic() - began)
                step.python, step.jvm = run.python, run.jvm
                state.check(database, 1)
    yield compare("postgres_window: monitored, the window", steps["on"], steps["off"], pairs_are="windows")
    yield compare("postgres_window: monitored, the run", runs["on"], runs["off"], pairs_are="runs")


def _run(pipeline: Pipeline, monitored: Project | None) -> float:
    """→ seconds of the window"""
    done: list[Step] = []
    if monitored is None:
        pipeline.run(until=1, progress=done.append)
    else:
        with monitor(monitored, "people") as observers:

            def record(step: Step) -> None:
                done.append(step)
                observers.record_step("people", step)

            pipeline.run(until=1, progress=record)
    return sum(done[0].applied.seconds.values())
