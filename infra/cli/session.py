"""From a command's options to what it works with: the project, a Spark session, the pipelines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.output import Output
from infra.logs import LOG_FORMAT_VARIABLE, LogFormat
from infra.temporary import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf import Pipeline
    from cdf.sink.guard import Guard
    from infra.config.models import Project
    from infra.s3.model import Storage

__all__ = [
    "Config",
    "Json",
    "Debug",
    "Verbose",
    "Logs",
    "Pipelines",
    "Until",
    "Answered",
    "DEFAULT_CONFIG",
    "address",
    "chosen",
    "spark_session",
    "build_pipeline",
]

DEFAULT_CONFIG = Path("deltarelay.yaml")
ANSWER_SECONDS = 30.0
"""So long a bucket's answer counts for the other tables in it."""

Config = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", envvar="DELTARELAY_CONFIG")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout (docs/reference/json.md).")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the trace of an error (it may quote row values), and keep Spark's log.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show details: the seconds of each step, the DDL that is run.")
]
Logs = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar=LOG_FORMAT_VARIABLE,
        help="How log lines look on stderr; auto: JSON from a command that stays up, unless stderr is a terminal.",
    ),
]
Pipelines = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline", "-p", help="Only this pipeline, or all that its `tables` stand for; may be given several times."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="VERSION|TIME", help="Stop at this version, or at this time with a zone."),
]


def address(table: str) -> str:
    """A table's address as it was typed, in the one spelling that S3 has here."""
    from infra.s3.address import normalize_address

    try:
        return normalize_address(table)
    except ValueError as error:
        raise ConfigError(f"the table's address {error}") from None


def chosen(project: Project, names: Sequence[str] | None) -> list[str]:
    """The pipelines to work on, each name checked, in the file's order."""
    if not names:
        return list(project.pipelines)
    wanted: set[str] = set()
    for name in names:
        wanted.update(project.names_of(name))
    return [name for name in project.pipelines if name in wanted]


@contextmanager
def spark_session(output: Output, project: Project | None, *, tables: Sequence[str] = ()) -> Iterator[SparkSession]:
    """A session for one command, which opens the project's tables or ``tables``.

    Tables on S3 are probed first: without an answer Spark would hang for minutes. Spark's own output goes to a file, which
    is kept with --debug.
    """
    from pyspark.logger import PySparkLogger

    from infra.config.models import storage_of
    from infra.s3.probe import probe, probe_any
    from infra.s3.spark_settings import has_own_access
    from infra.signals import install_handlers
    from infra.spark.session_builder import session

    storage = storage_of(project, tables)
    if project is not None and has_own_access(project.spark.settings()):
        pass  # what Spark will ask cannot be asked beforehand
    elif storage is not None and tables:
        probe(storage, tables)
    elif storage is not None and project is not None:
        probe_any(storage, [one.source.table for one in project.pipelines.values()])

    # PySpark logs every error that it raises on stderr, with the server's text, which may quote rows
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not output.debug
    log_file = private_folder() / f"spark-{os.getpid()}.log"
    output.note("starting Spark …")
    spark = session(
        master=project.spark.master if project else None,
        conf=project.spark_settings() if project else None,
        jars=list(project.jars) or None if project else None,
        log_file=log_file,
        storage=storage,
    )
    install_handlers()
    try:
        yield spark
    finally:
        with suppress(Exception):  # a JVM that is gone must not hide what ends the command
            spark.stop()
        if output.debug or output.puzzled:
            output.note(f"Spark's log: {log_file}")
        else:
            log_file.unlink(missing_ok=True)


class Answered:
    """The buckets that answered a moment ago: with many tables in one it is not asked for each of them."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def probe(self, storage: Storage, table: str) -> None:
        from infra.s3.address import S3Address, is_s3
        from infra.s3.probe import probe_buckets

        if not is_s3(table):
            return
        bucket = S3Address.parse(table).bucket
        if time.monotonic() - self._at.get(bucket, float("-inf")) > ANSWER_SECONDS:
            probe_buckets(storage, [table])
            self._at[bucket] = time.monotonic()


def build_pipeline(project: Project, name: str, spark: SparkSession, *, answered: Answered | None = None) -> Pipeline:
    """The pipeline of that name. Raises where its source is not a Delta table; opens nothing at the sink."""
    from cdf import ChangeFeed, Pipeline
    from infra.s3.spark_settings import has_own_access

    settings = project.pipeline(name)
    if not has_own_access(project.spark.settings()):
        (answered or Answered()).probe(project.storage, settings.source.table)
    return Pipeline(
        ChangeFeed(spark, settings.source.table),
        project.build_sink(name),
        key=settings.source.key,
        start=settings.source.start,
        name=name,
        limits=settings.window.limits(),
        guard=_guard(project),
    )


def _guard(project: Project) -> Guard | None:
    """The watch for people who were erased; connects to nothing before it has rows to look at."""
    if project.erasure is None:
        return None
    from audit.erasure.guard import Watch
    from audit.erasure.register.store import Register

    erasure = project.erasure
    dsn = project.erasure_dsn()

    def register() -> Register:
        return Register(dsn, schema=erasure.state.schema_name)

    return Watch(
        register,
        erasure.marker(),
        erasure.graph(),
        erasure.on_return,
        identity=erasure.state.identity,
        targets=project.targets(),
    )
