"""Says that a cluster gives no executors: Spark waits for them for ever, and says so in its log only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["report_missing_executors"]

SECONDS = 15.0
"""Before the first note; a cluster that grows on demand needs minutes, so this is no error."""


@contextmanager
def report_missing_executors(spark: SparkSession, note: Callable[[str], None]) -> Iterator[None]:
    """Within the block: one note if the session of a cluster has no executor after ``SECONDS``."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        yield
        return
    ended = threading.Event()

    def report() -> None:
        if ended.wait(SECONDS):
            return
        with suppress(Exception):  # the session has ended meanwhile
            scheduler: Any = context._jsc.sc()
            if scheduler.getExecutorMemoryStatus().size() == 1:  # the driver itself
                memory, cores = (
                    context.getConf().get(f"spark.executor.{name}") or unset
                    for name, unset in (("memory", "1g"), ("cores", "all of a worker"))
                )
                note(
                    f"still waiting for executors of {context.master}: no worker is registered and free with "
                    f"spark.executor.memory={memory} and spark.executor.cores={cores}"
                )

    threading.Thread(target=report, name="executors", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
