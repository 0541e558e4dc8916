"""The history: a row for each step in the step's own transaction, a row for each try that failed, and never a value."""

from __future__ import annotations

import datetime as dt
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.errors import CdfError, ConflictFound, KeyViolation, RowRejected, TargetNotReady
from cdf.sink import Monitored, RunRecord
from cdf.testing import insert, update
from connectors.postgres import PostgresSink
from connectors.postgres.state import run_history as runs
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, opened, people, person, position, sink_of

START = [person(index, f"xanadu-{index}") for index in range(1, 6)]


def history(pg: Pg, **options: Any) -> list[RunRecord]:
    """The oldest first."""
    return list(reversed(sink_of(pg).runs(100, **options)))


def told(pg: Pg) -> str:
    return str(pg.query("select r::text from deltarelay.runs r where target = %s", f"{pg.schema}.target"))


@pytest.fixture(autouse=True)
def clean(pg: Pg) -> None:
    if pg.query("select to_regclass('deltarelay.runs')") != [(None,)]:
        pg.query("delete from deltarelay.runs where starts_with(target, %s)", f"{pg.schema}.")


@ON_BOTH_PATHS
def test_every_step_leaves_its_figures(spark: SparkSession, pg: Pg, delta_path: str, path: dict[str, int]) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    table.sql("update {t} set v = 'x' where id < 3")
    table.sql("delete from {t} where id = 1", "insert into {t} values (4, 'd')", "optimize {t}")
    sink = sink_of(pg, **path)
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=1, name="p", limits=Limits(max_commits=2))
    result = pipeline.run()
    assert isinstance(sink, Monitored)
    found = history(pg)
    assert [(one.kind, one.first, one.last) for one in found] == [("load", 1, 1), ("window", 2, 3), ("window", 4, 5)]
    assert [(one.rows_in, one.inserts, one.updates, one.deletes, one.conflicts) for one in found] == [
        (3, 3, 0, 0, 0),
        (5, 0, 1, 1, 0),
        (1, 1, 0, 0, 0),
    ]
    commits = {commit.version: commit.change_bytes for commit in pipeline.feed.log.commits(2, 5)}
    assert [one.change_bytes for one in found] == [None, commits[2] + commits[3], commits[4] + commits[5]]
    assert [set(one.seconds) for one in found] == [{"copy", "apply"}, {"stage", "apply"}, {"stage", "apply"}]
    for one in found:
        assert (one.pipeline, one.source, one.target) == ("p", delta_path, f"{pg.schema}.target")
        assert (one.retries, one.code, one.condition) == (0, None, None)
        assert dt.timedelta(0) <= one.ended_at - one.started_at < dt.timedelta(seconds=60)
        assert abs((one.ended_at - one.started_at).total_seconds() - sum(one.seconds.values())) < 0.5
    assert result.windows == 2
    assert pipeline.run().windows == 0
    assert history(pg) == found, "nothing to do leaves no row"


def test_a_reload_is_a_step(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a'), (2, 'b')")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id")
    pipeline.run()
    pipeline.reload()
    pg.query("create view seen as select * from target")  # what a swap would lose: so it is merged
    pg.query("update target set v = 'by hand' where id = 1")
    pipeline.reload()
    found = history(pg)
    assert [one.kind for one in found] == ["load", "reload", "reload"]
    assert [(one.rows_in, one.inserts, one.updates, one.deletes) for one in found[1:]] == [(2, 2, 0, 0), (2, 0, 1, 0)]


def test_what_was_rolled_back_is_no_step_but_a_failed_try(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'xanadu-1'), (2, 'xanadu-2')", "update {t} set v = 'xanadu-x' where id = 2")
    sink = sink_of(pg, conflicts="refuse")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=1)
    pipeline.run(until=1)
    pg.query("delete from target where id = 2")
    with pytest.raises(ConflictFound):
        pipeline.run(retries=3)
    assert position(pg) == 1
    _, failed = history(pg)
    assert (failed.kind, failed.first, failed.last, failed.code) == ("window", 2, 2, "conflict_found")
    assert (failed.inserts, failed.updates, failed.retries) == (None, None, 3)
    assert history(pg, failed=True) == [failed]
    pg.query("insert into target values (2, 'xanadu-2')")
    pipeline.run(retries=3)
    assert [(one.kind, one.code, one.retries) for one in history(pg)[2:]] == [("window", None, 3)]
    assert "xanadu" not in told(pg)


def test_tries_that_failed_keep_code_and_sqlstate_and_no_value(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'xanadu'), (1, 'xanadu')")
    with pytest.raises(KeyViolation):
        Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id").run()
    table.sql("delete from {t}", "insert into {t} values (1, concat('xanadu', chr(0)))")
    with pytest.raises(RowRejected) as caught:
        Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id").run()
    found = history(pg)
    assert [(one.kind, one.code, one.condition) for one in found] == [
        ("load", "key_violation", None),
        ("load", "row_rejected", caught.value.condition),
    ]
    pg.query("create table target (id bigint primary key, other text not null)")
    with pytest.raises(TargetNotReady):
        Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id").run()
    assert [(one.kind, one.first, one.code) for one in history(pg)[2:]] == [("open", None, "target_not_ready")]
    assert "xanadu" not in told(pg)


def test_the_row_is_written_by_the_applying_transaction(session: SparkSession | None, pg: Pg) -> None:
    """As long as that one is open nobody sees the row, and the commit that shows it moves the position."""
    table = people(session)
    with loaded(pg, table, START) as sink:
        sink.apply(table.window(2, [insert(person(6, "f"))]))
        rows = pg.query(
            "select r.xmin = p.xmin from deltarelay.runs r join deltarelay.position p using (target)"
            " where target = %s and kind = 'window'",
            f"{pg.schema}.target",
        )
    assert rows == [(True,)]


def test_old_rows_go(session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CLEAN_UP_EVERY", 1)
    monkeypatch.setattr(runs, "MOST_ROWS", 3)
    table = people(session)
    with loaded(pg, table, START) as sink:
        for version in range(2, 8):
            sink.apply(table.window(version, [update(START[0], person(1, str(version)))]))
    assert [one.first for one in history(pg)] == [5, 6, 7]


def test_short_runs_and_failures_tidy_up_as_well(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_ROWS", 3)
    table = people(session)
    with loaded(pg, table, START):
        pass
    for version in range(2, 8):
        with opened(pg, table.source()) as sink:
            sink.apply(table.window(version, [update(START[0], person(1, str(version)))]))
    assert [one.first for one in history(pg)] == [5, 6, 7]
    for _ in range(5):
        sink.record_failure(CdfError("x"), pipeline="p", source="s", retries=0)
    assert [one.code for one in history(pg)] == [CdfError("x").code] * 3


def test_without_the_rights_to_it_everything_else_goes_on(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, START):
        pass
    role = f"{pg.schema}_role"
    pg.query(f"create role {role} login")
    try:
        pg.query(f"grant usage, create on schema {{schema}}, deltarelay to {role}")
        pg.query(f"grant select, insert, update on deltarelay.position to {role}")
        pg.query(f"alter table target owner to {role}")
        dsn = psycopg.conninfo.make_conninfo(pg.dsn, options=f"-c role={role}")
        sink = PostgresSink(dsn, table=f"{pg.schema}.target")
        sink.open(table.source())
        sink.apply(table.window(2, [insert(person(6, "f"))]))
        sink.record_failure(CdfError("x"), pipeline="p", source="s", retries=0)
        sink.close()
        assert position(pg) == 2
        assert [one.kind for one in history(pg)] == ["load"]
        assert (
            sink_of(pg, dsn="host=127.0.0.1 port=9").record_failure(CdfError("x"), pipeline="p", source="s", retries=0)
            is None
        )
    finally:
        pg.query(f"drop owned by {role} cascade")
        pg.query(f"drop role {role}")
