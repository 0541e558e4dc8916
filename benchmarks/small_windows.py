"""Which way is shorter for a small window: through the driver, or through the tasks?

For each size the same window is applied both ways, onto a table of its own each, in an order left to chance. The ratio is
driver ÷ tasks of the medians of staging and applying: the largest one among the windows that go through the driver by
default, so that above 1 the limit (``SMALL_WINDOW_BYTES``) is too high. ``detail`` has every size, also those above the
limit: where their ratio is below 1, it is too low.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from cdf import ChangeFeed, Pipeline, Step
from connectors.postgres import PostgresSink
from connectors.postgres.sink import SMALL_WINDOW_BYTES

__all__ = ["measure"]

AIM = 1.0
SIZES = (1, 1_000, 10_000, 20_000, 50_000)
WAYS = {"driver": 2**62, "tasks": 0}
COLUMNS = (
    "id, concat('name ', id) as name, cast(id * 1.25 as decimal(12,2)) as amount, id % 7 as kind,"
    " timestamp_micros(id * 1000003) as at, rand(1) as score, uuid() as note"
)


def measure(lab: Lab) -> Iterator[Answer]:
    sizes, table_rows = ((1, 100), 1_000) if lab.quick else (SIZES, 200_000)
    path = str(lab.folder / "small-windows")
    lab.spark.sql(
        f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed=true)"
        f" as select {COLUMNS} from range({table_rows})"
    )
    feed = ChangeFeed(lab.spark, path)
    pipelines = {
        way: Pipeline(
            feed, PostgresSink(lab.dsn, table=f"public.by_{way}", small_window_bytes=limit), key=["id"], name=way
        )
        for way, limit in WAYS.items()
    }
    for pipeline in pipelines.values():
        pipeline.run()
    figures = [_one_size(lab, pipelines, path, size, table_rows) for size in sizes]
    by_driver = [one for one in figures if one["change_bytes"] <= SMALL_WINDOW_BYTES]
    worst = max(by_driver, key=lambda one: one["ratio"])
    yield Answer(
        question="small_windows",
        ratio=worst["ratio"],
        aim=AIM,
        better="lower",
        words=f"{worst['changes']:,} changes: driver {worst['driver_seconds']:.3f} s, tasks {worst['tasks_seconds']:.3f} s",
        detail={"limit_bytes": SMALL_WINDOW_BYTES, "sizes": figures},
    )


def _one_size(lab: Lab, pipelines: dict[str, Pipeline], path: str, size: int, table_rows: int) -> dict[str, Any]:
    feed = pipelines["driver"].feed
    seconds: dict[str, list[float]] = {way: [] for way in pipelines}
    change_bytes: list[float] = []
    for counts in lab.rounds(warm_up=2, timed=7):
        # Half updates of rows all over the table, half new rows
        version = feed.log.latest()
        low = 10**9 + version * 10**6
        lab.spark.sql(
            f"merge into delta.`{path}` t using (select {COLUMNS} from"
            f" (select id * 37 % {table_rows} as id from range({size // 2}) union select {low} + id from"
            f" range({size - size // 2}))) s"
            " on t.id = s.id when matched then update set * when not matched then insert *"
        )
        change_bytes.append(sum(one.change_bytes for one in feed.log.commits(version + 1, version + 1)))
        for way in lab.shuffled(list(pipelines)):
            done: list[Step] = []
            pipelines[way].run(progress=done.append)
            lab.check(pipelines[way])
            if counts:
                seconds[way].append(sum(sum(step.applied.seconds.values()) for step in done))
    driver, tasks = median(seconds["driver"]), median(seconds["tasks"])
    figures = {
        "changes": size,
        "change_bytes": round(median(change_bytes)),
        "driver_seconds": round(driver, 4),
        "tasks_seconds": round(tasks, 4),
        "ratio": round(driver / tasks, 3),
    }
    lab.say("  " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    return figures
