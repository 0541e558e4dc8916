"""The public API as a user writes it; mypy (strict) reads this file, nobody runs it."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import DataFrame, SparkSession

from cdf import Applied, CdfError, ChangeFeed, Limits, Pipeline, RunResult, Sink, Step, Verification
from connectors.postgres import PostgresSink


def replicate(spark: SparkSession, dsn: str) -> RunResult:
    feed = ChangeFeed(spark, "/data/customers")
    since: int = feed.enable().since_version
    gaps: tuple[int, ...] = feed.status().gaps
    changes: DataFrame = feed.read(start_version=since, end_timestamp=dt.datetime.now(dt.UTC))
    stream: DataFrame = feed.stream(start_version="latest", max_files_per_trigger=100)
    snapshot: DataFrame = feed.snapshot(version=3)
    print(changes, stream, snapshot, gaps)

    sink: Sink = PostgresSink(dsn, table="public.customers", conflicts="refuse")
    pipeline = Pipeline(feed, sink, key=["customer_id"], start="snapshot", limits=Limits(max_commits=10))

    def watch(step: Step) -> None:
        applied: Applied = step.applied
        print(step.kind, applied.inserts, applied.conflicts.total)

    try:
        print(pipeline.plan().problems)
        result = pipeline.run(until=7, progress=watch)
        result = pipeline.reload(progress=watch)
    except CdfError as error:
        print(error.code, error.hint, error.condition)
        raise
    found: Verification = pipeline.verify()
    print(found.equal)
    return result
