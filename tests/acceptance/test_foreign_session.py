"""Sessions that deltarelay did not start, as on Databricks: Delta's classes have other names, and the session stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from cdf.errors import ConfigError
from cdf.session import lacks_delta
from infra.cli.main import main
from infra.spark.session_builder import session
from tests.acceptance import in_process
from tests.acceptance.commands import Database, Project, create_source, pipeline
from tests.acceptance.in_process import Command, here

__all__ = ["here"]

DELTA = "org.apache.spark.sql.delta"
CATALOG = "spark.sql.catalog.spark_catalog"


@contextmanager
def other_class_names() -> Iterator[None]:
    """In the block Python finds none of Delta's classes: py4j answers with packages, whose use is an error."""
    look_up = JavaPackage.__getattr__

    def find(package: Any, name: str) -> Any:
        if package._fqn.startswith(DELTA):
            return JavaPackage(f"{package._fqn}.{name}", package._gateway_client, package._jvm_id)
        return look_up(package, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JavaPackage, "__getattr__", find)
        yield


def test_commands_use_the_active_session_without_delta_s_classes_and_leave_it_running(
    spark: SparkSession,
    project: Project,
    database: Database,
    here: Command,
    delta_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def main_there(words: list[str]) -> None:
        with other_class_names():
            main(words)

    stopped: list[SparkSession] = []
    monkeypatch.setattr(SparkSession, "stop", stopped.append)
    monkeypatch.setattr(in_process, "main", main_there)
    create_source(spark, delta_path, "id bigint, name string")
    assert ChangeFeed(spark, delta_path).reaches_delta
    with other_class_names():
        assert not ChangeFeed(spark, delta_path).reaches_delta
        with pytest.raises(TypeError, match="'JavaPackage' object is not callable"):
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable()  # type: ignore[union-attr]
    spark.sql(f"insert into delta.`{delta_path}` values (1, 'a'), (2, 'b')")
    project.write({"people": pipeline(delta_path, table="public.people")})

    done = here("run")
    assert done.code == 0, done.err
    assert done.err.startswith("using the active Spark session …\n")
    assert database.rows("people") == [(1, "a"), (2, "b")]
    spark.sql(f"delete from delta.`{delta_path}` where id = 1")
    spark.sql(f"update delta.`{delta_path}` set name = 'c' where id = 2")
    assert here("run").code == 0
    assert database.rows("people") == [(2, "c")]
    verified = here("verify", "--json")
    assert verified.code == 0, verified.err
    assert here("feed", "status", delta_path).code == 0
    assert stopped == []


def test_a_session_lacks_delta_if_delta_s_sql_does_not_run_in_it(spark: SparkSession) -> None:
    assert not lacks_delta(spark)
    assert session() is SparkSession.getActiveSession()
    other = spark.newSession()
    other.conf.set(CATALOG, "no.such.Catalog")
    assert lacks_delta(other)
    with pytest.raises(ConfigError, match="the Spark session has no Delta Lake"), other_class_names():
        ChangeFeed(other, "/no/table")
