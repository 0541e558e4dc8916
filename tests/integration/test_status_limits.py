"""The status of a pipeline as a monitor reads it: runner, times, dead letters, limits. A real target, no JVM."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdf.sink.controls import pause
from cdf.testing import SampleTable
from connectors.postgres import PostgresSink
from infra.cli.main import main
from infra.config.load import load
from infra.config.models import Project
from infra.diagnostics.status import PipelineStatus, read_pipeline_status
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import opened, people, person

ROWS = pa.table({"id": pa.array([1], pa.int64()), "name": ["Ada"]})
MINUTES = dt.timedelta(minutes=1)


@pytest.fixture
def source(pg: Pg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SampleTable:
    """A table at version 0, and a configuration that replicates it into ``pg``."""
    table = tmp_path / "people"
    write_deltalake(table, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    (tmp_path / "deltarelay.yaml").write_text(
        "version: 1\n"
        "connections: {warehouse: {kind: postgres, dsn: '${DSN}'}}\n"
        "pipelines:\n"
        "  people:\n"
        f"    source: {{table: {table}, key: [id]}}\n"
        f"    sink: {{connection: warehouse, table: {pg.schema}.target}}\n"
    )
    monkeypatch.setenv("DSN", pg.dsn)
    monkeypatch.chdir(tmp_path)
    return dataclasses.replace(people(), table=str(table), table_id=str(DeltaTable(table).metadata().id))


def project() -> Project:
    return load(Path("deltarelay.yaml"))


def read(after: dt.timedelta = dt.timedelta(), **options: Any) -> PipelineStatus:
    return read_pipeline_status(project(), "people", now=dt.datetime.now(dt.UTC) + after, **options)


def commit(source: SampleTable) -> None:
    write_deltalake(source.table, ROWS, mode="append")


def test_a_runner_that_does_not_move_is_stuck_and_a_killed_one_is_not(pg: Pg, source: SampleTable) -> None:
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
        loaded = read()
        assert (loaded.state, loaded.has_runner, loaded.dead_letters) == ("up_to_date", True, 0)
        commit(source)
        assert (read().state, read(14 * MINUTES).state, read(16 * MINUTES).state) == ("behind", "behind", "stuck")
        assert read(16 * MINUTES, stuck_after=17 * MINUTES).state == "behind"
        # Ages the position and the id of the runner: one that began a moment ago works off what came before it
        pg.query(
            "update deltarelay.position set updated_at = now() - interval '1 day' where target = %s",
            f"{pg.schema}.target",
        )
        assert read(14 * MINUTES).state == "behind"
        pg.query(
            "update deltarelay.position set owner = 'of an earlier release' where target = %s", f"{pg.schema}.target"
        )
        assert read(16 * MINUTES).state == "stuck"
    ended = read(16 * MINUTES)
    assert (ended.state, ended.has_runner, ended.lag_versions) == ("behind", False, 1)
    assert ended.moved_at is not None
    assert loaded.moved_at is not None
    assert loaded.moved_at - ended.moved_at > dt.timedelta(hours=23)


def test_a_run_without_new_commits_is_a_success_that_is_recorded(pg: Pg, source: SampleTable) -> None:
    assert read().succeeded_at is None
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
    pg.query(
        "update deltarelay.position set updated_at = now() - interval '1 day' where target = %s", f"{pg.schema}.target"
    )
    first = read()
    assert first.succeeded_at == first.moved_at
    with opened(pg, source.source("people")) as sink:
        sink.report({"pipeline": "people", "run": "succeeded"})
        following = read(MINUTES)  # a runner that has nothing to do succeeds all the time
    second = read()
    assert second.moved_at == first.moved_at
    assert second.succeeded_at is not None
    assert dt.datetime.now(dt.UTC) - second.succeeded_at < MINUTES
    assert following.succeeded_at is not None
    assert following.succeeded_at - second.succeeded_at > MINUTES / 2
    assert second.last is None  # those figures belong to a follower


def test_a_status_needs_one_connection(pg: Pg, source: SampleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
        sink.change_controls(lambda found: pause(found, now=dt.datetime.now(dt.UTC), by="maria", reason="migration"))
    opening: list[str] = []
    connect = PostgresSink._connect
    monkeypatch.setattr(PostgresSink, "_connect", lambda self, doing: opening.append(doing) or connect(self, doing))
    found = read()
    assert found.controls is not None
    assert found.controls.paused is not None
    assert (found.state, found.controls.paused.by, opening) == ("paused", "maria", ["reading the position"])


def test_a_role_that_may_read_positions_only_still_gets_a_status(
    pg: Pg, source: SampleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
        sink.report({"pipeline": "people", "run": "succeeded"})
    role = f"{pg.schema}_reader"
    pg.query(f"create role {role} login password 'x'")
    pg.query(f"grant usage on schema deltarelay to {role}")
    pg.query(f"grant select on deltarelay.position to {role}")
    try:
        monkeypatch.setenv("DSN", psycopg.conninfo.make_conninfo(pg.dsn, user=role, password="x"))
        found = read()
        assert (found.state, found.error) == ("up_to_date", None)
        assert found.succeeded_at == found.moved_at
    finally:
        pg.query(f"drop owned by {role}")
        pg.query(f"drop role {role}")


def status(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[dict[str, str]]]:
    with pytest.raises(SystemExit) as left:
        main(["status", "--json", *options])
    (entry,) = json.loads(capsys.readouterr().out)["result"]["pipelines"]
    return int(left.value.code or 0), entry["incidents"]


def test_limits_give_exit_code_3_and_the_reasons(
    pg: Pg, source: SampleTable, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
    commit(source)
    time.sleep(1.2)
    assert status(capsys) == (0, [])
    assert status(capsys, "--max-lag", "15m", "--min-feed-days", "2", "--max-age", "1h", "--stuck-after", "1h") == (
        0,
        [],
    )
    code, incidents = status(capsys, "--max-lag", "1s", "--max-age", "1s", "--min-feed-days", "8")
    assert (code, [one["kind"] for one in incidents]) == (3, ["feed_expiring", "lagging", "stale"])
    assert incidents[1]["text"].startswith("1 version is not applied, the oldest for ")

    with pytest.raises(SystemExit) as left:
        main(["status", "--max-lag", "1s"])
    assert left.value.code == 3
    assert "people: lagging: 1 version is not applied, the oldest for " in capsys.readouterr().out


def test_a_stuck_pipeline_is_shown_and_fails_only_a_check_with_limits(
    pg: Pg, source: SampleTable, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
        commit(source)
        time.sleep(1.2)
        assert status(capsys) == (0, [])
        code, incidents = status(capsys, "--stuck-after", "1s")
        assert (code, [one["kind"] for one in incidents]) == (3, ["stuck"])


def test_an_unreachable_target_keeps_its_exit_code(
    source: SampleTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSN", "postgresql://me:secret@127.0.0.1:1/x")
    code, incidents = status(capsys, "--max-lag", "1s")
    assert (code, [one["kind"] for one in incidents]) == (75, ["unreachable"])


@pytest.mark.parametrize("option", ["--max-lag", "--max-age", "--stuck-after"])
def test_a_wrong_duration_is_refused_by_the_name_of_its_option(
    option: str, source: SampleTable, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["status", option, "soon"])
    assert left.value.code == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Invalid value for {option}: 'soon' is not a duration: write a number and s, m, h or d, as in 15m" in shown
