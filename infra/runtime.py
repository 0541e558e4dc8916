"""From a configuration to what runs: its Spark session and its pipelines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cdf.errors import ConfigError
from cdf.extras import require_classic_spark, require_extra
from cdf.spark_versions import query_logger
from infra.output import Output
from infra.temporary import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf import ChangeFeed, Pipeline
    from cdf.sink import Sink
    from cdf.sink.guard import Guard
    from infra.config.models import Project
    from infra.s3.model import Storage

__all__ = ["BucketProbes", "assemble_pipeline", "build_pipeline", "spark_session"]

PROBE_SECONDS = 30.0
"""How long the answer of a bucket is trusted for the other tables in it."""


@contextmanager
def spark_session(
    output: Output, project: Project | None, *, tables: Sequence[str] = (), may_be_remote: bool = False
) -> Iterator[SparkSession]:
    """Start a session for one command that reads the tables of the project, or ``tables``; stop it afterwards.

    A session that this process already has is used, and stays: on Databricks it belongs to the cluster.

    ``may_be_remote``: the command works over Spark Connect as well.

    Tables on S3 are probed first: Spark would wait for minutes for a bucket that does not answer. Spark's own output goes to
    a file, which is kept with --debug.
    """
    require_extra("spark")
    # PySpark logs every error that it raises on stderr, with the text of the JVM, which may quote rows
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        query_logger(name).disabled = not output.debug
    if project is not None and project.spark.remote is not None:
        with _remote_session(output, project, may_be_remote) as spark:
            yield spark
        return
    require_classic_spark()
    from pyspark import SparkContext

    from infra.config.models import storage_of
    from infra.s3.probe import probe, probe_any
    from infra.s3.spark_settings import has_own_access
    from infra.signals import install_handlers
    from infra.spark.executors import report_missing_executors
    from infra.spark.session_builder import session

    storage = storage_of(project, tables)
    if project is not None and has_own_access(project.spark.settings()):
        pass  # Spark's own settings name an S3 endpoint or keys, which the probe cannot use
    elif storage is not None and tables:
        probe(storage, tables)
    elif storage is not None and project is not None:
        probe_any(storage, [pipeline.source.table for pipeline in project.pipelines.values()])

    log_file = private_folder() / f"spark-{os.getpid()}.log"
    is_ours = SparkContext._active_spark_context is None
    output.note("starting Spark …" if is_ours else "using the active Spark session …")
    spark = session(
        master=project.spark.master if project else None,
        conf=project.spark_settings() if project else None,
        jars=list(project.jars) or None if project else None,
        log_file=log_file,
        storage=storage,
    )
    install_handlers()
    try:
        with report_missing_executors(spark, output.note):
            yield spark
    finally:
        if is_ours:
            with suppress(Exception):  # a JVM that has died must not hide the error that ends the command
                spark.stop()
        if is_ours and (output.debug or output.needs_spark_log):
            output.note(f"Spark's log: {log_file}")
        else:
            log_file.unlink(missing_ok=True)


@contextmanager
def _remote_session(output: Output, project: Project, may_be_remote: bool) -> Iterator[SparkSession]:
    from infra.signals import install_handlers
    from infra.spark.connect import connect, probe

    assert project.spark.remote is not None
    if not may_be_remote:
        raise ConfigError(
            "this command needs a classic Spark session, and the configuration has spark.remote (Spark Connect)",
            hint="use a configuration with spark.master for it, or start it with spark-submit",
        )
    output.note("connecting to Spark …")
    remote = project.spark.remote.get_secret_value()
    spark = connect(remote, project.spark.settings())
    install_handlers()
    try:
        yield spark
    finally:
        with suppress(Exception):
            probe(remote)  # PySpark would wait for a server that is gone
            spark.stop()


class BucketProbes:
    """Probes S3 buckets, and skips a bucket that answered a moment ago: many tables may be in the same one."""

    def __init__(self) -> None:
        self._answered_at: dict[str, float] = {}

    def probe(self, storage: Storage, table: str) -> None:
        """Check that the bucket of ``table`` answers; does nothing for a table outside S3."""
        from infra.s3.address import S3Address, is_s3
        from infra.s3.probe import probe_buckets

        if not is_s3(table):
            return
        bucket = S3Address.parse(table).bucket
        if time.monotonic() - self._answered_at.get(bucket, float("-inf")) > PROBE_SECONDS:
            probe_buckets(storage, [table])
            self._answered_at[bucket] = time.monotonic()


def build_pipeline(project: Project, name: str, spark: SparkSession, *, probes: BucketProbes | None = None) -> Pipeline:
    """Build the pipeline ``name``. Raises if its source is not a Delta table; does not connect to the sink."""
    from cdf import ChangeFeed
    from infra.s3.spark_settings import has_own_access

    table = project.pipeline(name).source.table
    # Over Spark Connect the server's access counts, which this machine need not have
    if project.spark.remote is None and not has_own_access(project.spark.settings()):
        (probes or BucketProbes()).probe(project.storage, table)
    return assemble_pipeline(project, name, ChangeFeed(spark, table), project.build_sink(name))


def assemble_pipeline(project: Project, name: str, feed: ChangeFeed, sink: Sink) -> Pipeline:
    """The pipeline ``name`` over a feed and a sink that are there already."""
    from cdf import Pipeline

    settings = project.pipeline(name)
    return Pipeline(
        feed,
        sink,
        key=settings.source.key,
        start=settings.source.start,
        name=name,
        limits=settings.window.limits(),
        guard=_build_guard(project),
        brakes=settings.brakes.brakes(),
    )


def _build_guard(project: Project) -> Guard | None:
    """Build the guard that stops rows of erased people; it connects to the register when it gets the first rows."""
    if project.erasure is None:
        return None
    from audit.erasure.guard import Watch
    from audit.erasure.register.store import Register

    erasure = project.erasure
    dsn = project.erasure_dsn()

    def open_register() -> Register:
        return Register(dsn, schema=erasure.state.schema_name)

    return Watch(
        open_register,
        erasure.marker(),
        erasure.graph(),
        erasure.on_return,
        identity=erasure.state.identity,
        targets=project.targets(),
    )
