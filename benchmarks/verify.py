"""What does ``verify`` cost beyond reading both sides?

A million rows of ten mixed columns, equal on both sides. Ours is the whole comparison: it hashes every row on each side, and
compares the sums. Held against it is a plain scan of both sides: Spark reads every column of the
source, PostgreSQL the last column of every row (so it walks over the others). The two take turns in an order left to chance.

The second answer is about a target that keeps deleted rows (``deletes: ignore``): the source has lost every tenth row, so
that every bucket of keys differs, and all digests of both sides have to be compared. The ratio is that of 8 million rows to
2 million.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import psycopg

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from benchmarks.postgres_state import TABLE, State, connected, make_source
from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from connectors.postgres.options import Modes

__all__ = ["measure", "measure_equal", "measure_kept"]

AIM, GROWTH_AIM = 3.0, 4.5


def measure(lab: Lab) -> Iterator[Answer]:
    yield measure_equal(lab, 20_000 if lab.quick else 1_000_000)
    yield measure_kept(lab, (20_000, 80_000) if lab.quick else (2_000_000, 8_000_000))


def measure_equal(lab: Lab, rows: int) -> Answer:
    state = State(lab, make_source(lab, "verified", rows, []), "verified", [])
    _create_database(lab, "verified")
    pipeline = state.pipeline("verified")
    pipeline.run()
    parts: dict[str, list[float]] = {"source": [], "target": []}

    def scan() -> None:
        began = time.monotonic()
        lab.spark.read.format("delta").load(state.path).write.format("noop").mode("overwrite").save()
        parts["source"].append(time.monotonic() - began)
        began = time.monotonic()
        with connected(lab, "verified") as connection:
            connection.execute(f"select count(note) from {TABLE}")
        parts["target"].append(time.monotonic() - began)

    seconds, cold = _measure(lab, {"verify": lambda: lab.check(pipeline), "scan": scan})
    ours, limit = median(seconds["verify"]), median(seconds["scan"])
    return Answer(
        question="verify",
        ratio=ours / limit,
        aim=AIM,
        better="lower",
        words=f"{rows:,} rows on each side compared in {ours:.2f} s, scanned in {limit:.2f} s",
        detail={
            "rows": rows,
            "seconds": [round(ours, 3), round(limit, 3)],
            "scans": {side: round(median(took[-len(seconds["scan"]) :]), 3) for side, took in parts.items()},
            "cold_seconds": [round(cold["verify"], 3), round(cold["scan"], 3)],
            "repetitions": len(seconds["verify"]),
        },
    )


def measure_kept(lab: Lab, sizes: tuple[int, int]) -> Answer:
    pipelines = {rows: _keep_deleted(lab, rows) for rows in sizes}

    def compare(rows: int) -> None:
        found = pipelines[rows].verify()
        if (found.equal, found.kept, found.complete) != (True, rows // 10, True):
            raise AssertionError(f"{found.kept} of {rows} rows kept, equal: {found.equal}, complete: {found.complete}")

    few, many = sizes  # a round of both takes minutes
    seconds, cold = _measure(lab, {"few": lambda: compare(few), "many": lambda: compare(many)}, warm_up=1, timed=3)
    least, most = median(seconds["few"]), median(seconds["many"])
    return Answer(
        question="verify: deletes ignored",
        ratio=most / least,
        aim=GROWTH_AIM,
        better="lower",
        words=f"{many:,} rows of which the source has lost a tenth compared in {most:.1f} s, {few:,} in {least:.1f} s",
        detail={
            "rows": list(sizes),
            "seconds": [round(least, 2), round(most, 2)],
            "cold_seconds": [round(cold["few"], 2), round(cold["many"], 2)],
            "repetitions": len(seconds["few"]),
        },
    )


def _keep_deleted(lab: Lab, rows: int) -> Pipeline:
    name = f"kept_{rows}"
    path = make_source(lab, name, rows, [])
    _create_database(lab, name)
    sink = PostgresSink(lab.address(name), table=TABLE, modes=Modes(deletes="ignore"))
    pipeline = Pipeline(ChangeFeed(lab.spark, path), sink, key=["id"], start=0, name=name)
    pipeline.run()
    lab.spark.sql(f"delete from delta.`{path}` where id % 160 = 0")  # the ids are multiples of 16
    pipeline.run()
    return pipeline


def _measure(
    lab: Lab, variants: Mapping[str, Callable[[], None]], *, warm_up: int = 2, timed: int = 7
) -> tuple[dict[str, list[float]], dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    cold: dict[str, float] = {}
    for counts in lab.rounds(warm_up=warm_up, timed=timed):
        for name in lab.shuffled(list(variants)):
            began = time.monotonic()
            variants[name]()
            took = time.monotonic() - began
            cold.setdefault(name, took)
            if counts:
                seconds[name].append(took)
    return seconds, cold


def _create_database(lab: Lab, name: str) -> None:
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute(f"create database {name}")
