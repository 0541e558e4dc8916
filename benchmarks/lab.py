"""Where questions are measured: Spark, PostgreSQL, Kafka, a folder, and chance for the order of what is compared."""

from __future__ import annotations

import datetime as dt
import os
import platform
import random
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from cdf.errors import ConfigError
from infra.embedded.kafka import EmbeddedKafka
from infra.embedded.postgres import EmbeddedPostgres
from infra.spark.java import find_java
from infra.spark.session_builder import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf import Pipeline

__all__ = ["PGJDBC", "SPARK_KAFKA", "Lab", "conditions", "median", "now", "p95", "quartiles"]

T = TypeVar("T")

PGJDBC = "org.postgresql:postgresql:42.7.8"
"""For the peers that write by JDBC; from Maven through Ivy, as Delta's jars are."""
SPARK_KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
"""For the peer that writes into Kafka; the same way."""
POSTGRES = {
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    # It would come to one variant and not to the other. Nothing here lives long enough to need it.
    "autovacuum": False,
}
"""For a machine of 8 GB or more; everything else, fsync above all, is PostgreSQL's default."""

VERSIONS = ("deltarelay", "pyspark", "delta-spark", "deltalake", "pyarrow", "confluent-kafka")


class Lab:
    """Nothing is started before a question needs it; everything ends with the ``with`` block.

    ``quick`` asks the questions for their smallest sizes: to see that they work, not for their figures.
    """

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self.chance = random.Random()
        self._open = ExitStack()
        self._made: dict[str, Any] = {}

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
        """With what the peers need, where it can be had: ``has_package``."""
        packages = [PGJDBC, SPARK_KAFKA]
        while packages:
            try:
                # Spark itself has Hadoop and Scala
                excluded = "org.apache.hadoop:*,org.scala-lang:*"
                return self._session({"spark.jars.packages": ",".join(packages), "spark.jars.excludes": excluded})
            except ConfigError as error:
                self.say(f"without {packages.pop()}: {error.message}")
        return self._session({})

    def _session(self, conf: dict[str, str]) -> SparkSession:
        spark = session(
            app_name="deltarelay-bench",
            master="local[2]",
            log_file=self.folder / "spark.log",
            conf={"spark.driver.memory": "4g", **conf},
        )
        self._open.callback(spark.stop)
        return spark

    def has_package(self, package: str) -> bool:
        return package in str(self.spark.sparkContext.getConf().get("spark.jars.packages", ""))

    @property
    def jvm_pid(self) -> int:
        found: int = self.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        return found

    @cached_property
    def postgres(self) -> EmbeddedPostgres:
        config = {**POSTGRES, "listen_addresses": "127.0.0.1", "port": self.free_port()}
        return self._open.enter_context(EmbeddedPostgres(self.folder / "postgres", config=config))

    def free_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return int(free.getsockname()[1])

    @cached_property
    def dsn(self) -> str:
        """Over the Unix socket."""
        host, port = quote(str(self.postgres.socket_folder)), self.postgres.config["port"]
        return f"postgresql://postgres@/postgres?host={host}&port={port}"

    def address(self, database: str) -> str:
        """A database over TCP, which is the only way that JDBC has: all who are held against it go the same way."""
        return f"postgresql://postgres@127.0.0.1:{self.postgres.config['port']}/{database}"

    @cached_property
    def kafka(self) -> EmbeddedKafka:
        return self._open.enter_context(EmbeddedKafka(self.folder / "kafka"))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several questions need is made by the first of them."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

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


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def conditions() -> dict[str, Any]:
    """What the figures depend on."""
    java = find_java()
    return {
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
            "kafka": EmbeddedKafka.version(),
            **{name: version(name) for name in VERSIONS},
        },
    }


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
