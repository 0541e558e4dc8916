"""A table in memory for tests of what the pipeline decides: columns ``id`` and ``v``, ten minutes between commits."""

from __future__ import annotations

import datetime as dt
from itertools import count
from typing import Any

from pyspark.sql.types import StructType

from cdf import Pipeline, Step
from cdf.testing import MemoryFeed, MemorySink, MemoryTable

__all__ = ["SCHEMA", "at", "feed_of", "held", "inserted", "memory_table", "steps_of"]

SCHEMA = StructType().add("id", "long").add("v", "string")
AGES = {f"delta.{kind}RetentionDuration": "interval 36500 days" for kind in ("deletedFile", "log")}


def at(minute: float) -> dt.datetime:
    return dt.datetime(2026, 1, 5, 10, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


def memory_table(schema: StructType = SCHEMA, *, feed: bool = True) -> MemoryTable:
    """Version n is committed at ``at(n)``."""
    minutes = count()
    return MemoryTable(schema, name="orders", feed=feed, properties=AGES, clock=lambda: at(next(minutes)))


def inserted(commits: int) -> MemoryTable:
    """Versions 1, 2, … insert the row with that id."""
    table = memory_table()
    for version in range(1, commits + 1):
        table.append({"id": version, "v": "a"})
    return table


def feed_of(table: MemoryTable) -> MemoryFeed:
    return MemoryFeed(table)


def steps_of(pipeline: Pipeline, **options: Any) -> list[tuple[str, int, int]]:
    """The durable steps of a run."""
    steps: list[Step] = []
    pipeline.run(progress=steps.append, **options)
    return [(step.kind, step.first, step.last) for step in steps]


def held(sink: MemorySink) -> dict[Any, Any]:
    """id → v, as the target holds them."""
    return {row["id"]: row["v"] for row in sink.store.read_rows()}
