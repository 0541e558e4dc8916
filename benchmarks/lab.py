"""Where questions are measured: one Spark, one PostgreSQL, a folder, and chance for the order of what is compared."""

from __future__ import annotations

import datetime as dt
import os
import platform
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from infra.embedded_postgres import EmbeddedPostgres
from infra.java import find_java
from infra.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf import Pipeline

__all__ = ["Lab", "conditions", "median", "p95"]

T = TypeVar("T")


class Lab:
    """Nothing is started before a question needs it; everything ends with the ``with`` block.

    ``quick`` asks the questions for their smallest sizes: to see that they work, not for their figures.
    """

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self.chance = random.Random()
        self._open = ExitStack()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @cached_property
    def folder(self) -> Path:
        return Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="deltarelay-bench-")))

    @cached_property
    def spark(self) -> SparkSession:
        spark = session(
            app_name="deltarelay-bench",
            master="local[2]",
            log_file=self.folder / "spark.log",
            conf={"spark.driver.memory": "4g"},
        )
        self._open.callback(spark.stop)
        return spark

    @cached_property
    def dsn(self) -> str:
        return self._open.enter_context(EmbeddedPostgres(self.folder / "postgres")).dsn

    def rounds(self, *, warm_up: int, timed: int) -> Iterator[bool]:
        """True for the rounds that count, after the first ones, which only warm the JVM up."""
        warm_up, timed = (1, 2) if self.quick else (warm_up, timed)
        for number in range(warm_up + timed):
            yield number >= warm_up

    def shuffled(self, variants: Sequence[T]) -> list[T]:
        """The variants in an order of their own for each round: whoever always comes second looks faster than it is."""
        return self.chance.sample(variants, len(variants))

    def check(self, pipeline: Pipeline) -> None:
        """The target holds what the source holds: a figure of wrong contents is worth nothing."""
        found = pipeline.verify()
        if not found.equal:
            raise AssertionError(f"{pipeline.name}: the target differs from the source at version {found.version}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def conditions() -> dict[str, Any]:
    """What the figures depend on."""
    java = find_java()
    return {
        "measured_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "load_before": round(os.getloadavg()[0], 1),
        },
        "versions": {
            "python": platform.python_version(),
            "java": java.version if java else None,
            "postgres": EmbeddedPostgres.version(),
            **{name: version(name) for name in ("deltarelay", "pyspark", "delta-spark", "deltalake", "pyarrow")},
        },
    }


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
