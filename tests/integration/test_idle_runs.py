"""Runs without Spark: with real tables, and PostgreSQL. Whatever a run with Spark would refuse or apply is left to it."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from psycopg.conninfo import make_conninfo
from pyspark.sql.types import StructType

from cdf.errors import CdfError, Paused
from cdf.sink.controls import pause
from cdf.testing.changes import SampleTable
from connectors.postgres import spare_connections
from connectors.postgres.sink import PostgresSink
from infra import idle_runs
from infra.config.load import load
from infra.config.models import Project
from infra.idle_runs import build_idle_pipeline, keep_connections, list_candidates
from infra.latest_feed import NeedsSpark
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.setups import delta_table

ROWS = {"id": [1, 2], "name": ["a", "b"]}
SCHEMA = StructType().add("id", "long").add("name", "string")


@dataclass
class Case:
    """A source at version 0, and a target that equals it."""

    pg: Pg
    folder: Path
    key: str = "id"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def target(self) -> str:
        return f"{self.pg.schema}.customers"

    def project(self, spark: str = "{}", table: str | None = None) -> Project:
        file = self.folder / "deltarelay.yaml"
        file.write_text(
            f"version: 1\nconnections: {{warehouse: {{kind: postgres, dsn: '{self.pg.dsn}'}}}}\n"
            f"pipelines: {{customers: {{source: {{table: '{table or self.source}', key: [{self.key}]}}, "
            f"sink: {{connection: warehouse, table: {self.target}}}}}}}\nspark: {spark}\n"
        )
        return load(file)

    def fill(self) -> None:
        delta_table(self.source, ROWS)
        sample = SampleTable(None, SCHEMA, ("id",), str(self.source), DeltaTable(str(self.source)).metadata().id)
        sink = self.project().build_sink("customers")
        sink.open(sample.source("customers"))
        sink.load(sample.snapshot(0, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
        sink.close()

    def move(self, version: int) -> None:
        self.pg.query("update deltarelay.position set version = %s where target = %s", version, self.target)

    def run(self) -> Any:
        return build_idle_pipeline(self.project(), "customers").run()

    def state(self) -> tuple[Any, ...]:
        """Position, epoch, lease, and whether a success is recorded."""
        (row,) = self.pg.query(
            "select version, epoch, owner, (select figures->>'run' from deltarelay.progress g where g.target = p.target)"
            " from deltarelay.position p where target = %s",
            self.target,
        )
        return row

    def history(self) -> list[tuple[Any, ...]]:
        return self.pg.query("select kind, code from deltarelay.runs where target = %s order by id", self.target)


@pytest.fixture
def case(pg: Pg, tmp_path: Path) -> Case:
    made = Case(pg, tmp_path)
    made.fill()
    return made


def test_a_run_with_nothing_to_apply_acquires_the_lease_and_records_its_success(case: Case) -> None:
    assert case.state() == (0, 1, None, None)
    result = case.run()
    assert (result.position, result.latest_version, result.windows, result.loaded_rows) == (0, 0, 0, None)
    assert (result.pipeline, result.table) == ("customers", str(case.source))
    assert case.state() == (0, 2, None, "succeeded")
    assert case.history() == [("load", None)]


def add_version(case: Case) -> None:
    delta_table(case.source, ROWS, mode="append")


def replace_table(case: Case) -> None:
    shutil.rmtree(case.source)
    delta_table(case.source, ROWS)


def empty_target(case: Case) -> None:
    case.pg.query("delete from deltarelay.position where target = %s", case.target)


def go_beyond(case: Case) -> None:
    case.move(7)


def hold_lease(case: Case) -> None:
    case.pg.query(
        "update deltarelay.position set owner = 'another', lease_until = now() + interval '1 hour' where target = %s",
        case.target,
    )


@pytest.mark.parametrize("change", [add_version, replace_table, empty_target, go_beyond, hold_lease])
def test_what_may_need_work_is_left_to_spark_before_the_sink_is_opened(
    case: Case, change: Callable[[Case], None]
) -> None:
    change(case)
    before = case.pg.query("select epoch, owner from deltarelay.position where target = %s", case.target)
    with pytest.raises(NeedsSpark):
        case.run()
    assert case.pg.query("select epoch, owner from deltarelay.position where target = %s", case.target) == before


def turn_feed_off(case: Case) -> None:
    DeltaTable(str(case.source)).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    case.move(1)


def need_unknown_feature(case: Case) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    commit = case.source / "_delta_log" / f"{1:020}.json"
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    case.move(1)


def lose_source(case: Case) -> None:
    shutil.rmtree(case.source)


def name_unknown_key(case: Case) -> None:
    case.key = "nope"


def drop_target(case: Case) -> None:
    case.pg.query("drop table {schema}.customers")


def lose_rows(case: Case) -> None:
    case.pg.query("truncate {schema}.customers")


def drop_column(case: Case) -> None:
    case.pg.query("alter table {schema}.customers drop column name")


def change_type(case: Case) -> None:
    case.pg.query("alter table {schema}.customers alter column name type integer using 1")


def drop_key(case: Case) -> None:
    case.pg.query("alter table {schema}.customers drop constraint customers_pkey")


def make_unlogged(case: Case) -> None:
    case.pg.query("alter table {schema}.customers set unlogged")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (turn_feed_off, "feed_not_enabled"),
        (need_unknown_feature, "feature_not_supported"),
        (lose_source, "table_not_found"),
        (name_unknown_key, "type_not_supported"),
        (drop_target, "target_not_ready"),
        (lose_rows, "target_not_ready"),
        (drop_column, "target_not_ready"),
        (change_type, "target_not_ready"),
        (drop_key, "target_not_ready"),
        (make_unlogged, "target_not_ready"),
    ],
)
def test_what_a_run_refuses_is_refused_here_as_well_and_not_recorded_twice(
    case: Case, change: Callable[[Case], None], code: str
) -> None:
    change(case)
    with pytest.raises(CdfError) as refused:
        case.run()
    assert refused.value.code == code
    assert case.history() == [("load", None)]  # the run with Spark, which follows, records it
    assert case.state()[2:] == (None, None)


@pytest.mark.parametrize("change", [lambda _: None, add_version])
def test_a_paused_pipeline_stays_paused_whatever_its_source_has(case: Case, change: Callable[[Case], None]) -> None:
    sink: Any = case.project().build_sink("customers")
    sink.change_controls(lambda one: pause(one, now=dt.datetime.now(dt.UTC), by="maria", reason="rebuild"))
    change(case)
    with pytest.raises(Paused, match=r"customers is paused since .* by maria: rebuild"):
        case.run()
    assert case.state() == (0, 1, None, None)


def test_runs_use_one_connection_after_the_other_and_replace_a_broken_one(case: Case) -> None:
    case = replace(case, pg=replace(case.pg, dsn=make_conninfo(case.pg.dsn, application_name="kept")))

    def list_backends() -> list[int]:
        return [pid for (pid,) in case.pg.query("select pid from pg_stat_activity where application_name = 'kept'")]

    with keep_connections(case.project(), ["customers"]):
        case.run()
        (first,) = list_backends()
        case.run()
        assert list_backends() == [first]
        case.pg.query("select pg_terminate_backend(%s, 10000)", first)
        case.run()
        assert len(list_backends()) == 1
    wait_for(lambda: list_backends() == [])
    assert case.state() == (0, 4, None, "succeeded")


def test_few_connections_are_kept_and_none_of_a_cancelled_run(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_connections, "MOST", 1)
    dsns = [make_conninfo(case.pg.dsn, application_name=f"kept-{number}") for number in range(2)]
    first, second = (replace(case, pg=replace(case.pg, dsn=dsn)).project().build_sink("customers") for dsn in dsns)
    assert isinstance(first, PostgresSink)
    assert isinstance(second, PostgresSink)

    def list_names() -> list[str]:
        rows = case.pg.query(
            "select application_name from pg_stat_activity where application_name like 'kept-%' order by 1"
        )
        return [name for (name,) in rows]

    with spare_connections.SPARE.keep():
        first.position()
        second.position()
        wait_for(lambda: list_names() == ["kept-1"])
        second.cancel()
        second.position()
        wait_for(lambda: list_names() == [])
        first.position()
        assert list_names() == ["kept-0"]
    wait_for(lambda: list_names() == [])


def wait_for(is_reached: Callable[[], bool]) -> None:
    """A server process ends after its connection."""
    deadline = time.monotonic() + 10
    while not is_reached() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_reached()


def test_only_tables_that_spark_would_read_in_the_same_place_are_candidates(
    pg: Pg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_runs, "_has_session", lambda: False)
    case = Case(pg, tmp_path)

    def candidates(**settings: Any) -> list[str]:
        return list_candidates(case.project(**settings), ["customers"])

    assert candidates() == ["customers"]
    assert candidates(spark="{master: 'local[2]', conf: {spark.driver.memory: 3g}}") == ["customers"]
    assert candidates(table=f"file://{tmp_path}/source") == ["customers"]
    for spark in (
        "{remote: 'sc://host:15002'}",
        "{master: yarn}",
        "{conf: {spark.master: yarn}}",
        "{conf: {spark.hadoop.fs.defaultFS: 'hdfs://x'}}",
        "{conf: {spark.sql.files.ignoreMissingFiles: 'true'}}",
    ):
        assert candidates(spark=spark) == []
    for table in ("sales.customers", "abfss://lake@store.dfs.core.windows.net/customers", f"{tmp_path}/a%20b"):
        assert candidates(table=table) == []
    for name in ("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "")
            assert candidates() == []
    monkeypatch.setattr(idle_runs, "_has_session", lambda: True)
    assert candidates() == []
