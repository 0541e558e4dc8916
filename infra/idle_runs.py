"""Runs pipelines that have nothing to apply without starting Spark.

It is the same ``Pipeline``, over a feed that knows only the latest state of its table. So source and target are checked, the
lease is acquired and the success is recorded as in every run. What this feed cannot answer, and every error except a pause,
is left to the run with Spark, which reports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from cdf.errors import CdfError, Interrupted
from cdf.pipeline.runner import Runner
from cdf.session import IGNORING, find_session
from cdf.sink import Tracked
from infra.diagnostics.delta_table import explain_spark_only, open_source
from infra.diagnostics.status import read_activity
from infra.latest_feed import LatestFeed, NeedsSpark
from infra.runtime import assemble_pipeline
from infra.s3.address import is_s3

if TYPE_CHECKING:
    from cdf import Pipeline
    from infra.config.models import Project

__all__ = ["build_idle_pipeline", "keep_connections", "list_candidates"]

_ELSEWHERE = (
    "DATABRICKS_RUNTIME_VERSION",
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_REMOTE",
    "YARN_CONF_DIR",
)
"""Environment variables by which Spark gets a session, or settings from outside of the configuration: then a path without a
scheme may be on another storage."""
_STORAGE = ("spark.hadoop.", "spark.delta.logStore.", "spark.io.delta.storage.")
"""Settings that decide what a path means, or where commits are."""


def list_candidates(project: Project, names: Sequence[str]) -> list[str]:
    """The pipelines whose source delta-rs reads as Spark would with this configuration. Asks no server."""
    if any(name in os.environ for name in _ELSEWHERE) or _has_session() or not _has_plain_spark(project):
        return []
    return [name for name in names if _is_readable(project, project.pipeline(name).source.table)]


def _has_session() -> bool:
    return "pyspark" in sys.modules and find_session() is not None


def _has_plain_spark(project: Project) -> bool:
    """Whether Spark runs on this machine, without settings that decide what a path means, or that a run refuses."""
    spark, settings = project.spark, project.spark.settings()
    return (
        spark.remote is None
        and settings.get("spark.master", spark.master or "local").startswith("local")
        and not any(name.startswith(_STORAGE) or name in IGNORING for name in settings)
    )


def _is_readable(project: Project, address: str) -> bool:
    if explain_spark_only(address) is not None:
        return False
    if is_s3(address):
        # Only Delta sees a version that another writer has recorded in the lock table and not yet copied into the log
        return project.storage.lock is None
    return "://" not in address or address.startswith("file:")


def keep_connections(project: Project, names: Sequence[str]) -> AbstractContextManager[None]:
    """In the block, each pipeline uses the connections to PostgreSQL that an earlier one no longer needs."""
    if all(project.connections[project.pipeline(name).sink.connection].kind != "postgres" for name in names):
        return nullcontext()  # psycopg is not imported for other targets
    from connectors.postgres.spare_connections import SPARE

    return SPARE.keep()


def build_idle_pipeline(project: Project, name: str) -> Pipeline:
    """A pipeline whose ``run`` applies nothing, or raises Paused. Raises NeedsSpark where there is something to apply."""
    sink, source = project.build_sink(name), project.pipeline(name).source.table
    if not isinstance(sink, Tracked):
        raise NeedsSpark
    table, activity = open_source(source, project.storage), read_activity(sink)
    position, controls = activity.position, activity.controls
    is_paused = controls is not None and controls.paused is not None
    is_idle = (position.version, position.table_id, position.pending) == (table.version, table.table_id, None)
    if not is_paused and (activity.has_runner or not is_idle or not sink.capabilities.opens_without_spark):
        raise NeedsSpark
    pipeline = assemble_pipeline(project, name, LatestFeed(source, table), sink)
    pipeline.runner = _IdleRunner(pipeline.context)
    return pipeline


class _IdleRunner(Runner):
    """Records no failure: the run with Spark, which follows, meets it again and records it."""

    def _record(self, error: CdfError, retries: int) -> None:
        if isinstance(error, Interrupted):
            super()._record(error, retries)
