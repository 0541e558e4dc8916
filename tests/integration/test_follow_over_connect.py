"""Following over a real Spark Connect server: with the same windows, lease and errors as in a classic session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Followed, Pipeline
from cdf.errors import CdfError, FeedNotEnabled, Fenced, LeaseHeld, TableReplaced, VersionNotFound
from cdf.pipeline import polling
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import inserted
from tests.integration.postgres_case import position, sink_of

PATIENCE_SECONDS = 120.0


class Watched:
    """A pipeline that is followed, and its durable steps."""

    def __init__(self, pipeline: Pipeline, **options: Any) -> None:
        self.pipeline = pipeline
        self.steps: list[Followed] = []
        options.setdefault("trigger", {"processingTime": "100 milliseconds"})
        self.handle = pipeline.follow(progress=self.steps.append, **options)

    def until(self, reached: Callable[[], Any], what: str) -> None:
        wait_for(lambda: reached() or self.handle.await_termination(0), what, seconds=PATIENCE_SECONDS)
        assert reached(), self.handle.status()

    def following(self) -> None:
        self.until(lambda: self.handle.status().state == "following", "the state `following`")

    def at(self, version: int) -> None:
        self.until(lambda: any(step.position >= version for step in self.steps), f"version {version}")

    def stopped_by(self) -> CdfError:
        with pytest.raises(CdfError) as caught:
            assert self.handle.await_termination(PATIENCE_SECONDS), self.handle.status()
        return caught.value


@pytest.fixture
def follow(connect: SparkSession, pg: Pg, delta_path: str) -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def start(**options: Any) -> Watched:
        started.append(Watched(Pipeline(ChangeFeed(connect, delta_path), sink_of(pg), key="id", name="p"), **options))
        return started[-1]

    yield start
    for watched in started:
        watched.handle.stop()


def rows(pg: Pg) -> list[tuple[Any, ...]]:
    return sorted(pg.query("select * from {schema}.target"))


def test_commits_arrive_while_it_follows_also_after_a_new_column(
    connect: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(connect, delta_path, 2)
    watched = follow()
    watched.following()
    time.sleep(2)  # some polls without anything new
    assert [(step.kind, step.position) for step in watched.steps] == [("load", 2)]
    table.sql("insert into {t} values (3, 'b')", "update {t} set v = 'c' where id = 1", "delete from {t} where id = 2")
    watched.at(5)
    assert rows(pg) == [(1, "c"), (3, "b")]
    table.sql("optimize {t}", "alter table {t} add columns (n int)", "insert into {t} values (4, 'd', 7)")
    last = watched.pipeline.feed.log.latest()
    watched.at(last)
    watched.following()
    table.sql("update {t} set n = 8 where id = 1")
    watched.at(last + 1)
    assert rows(pg) == [(1, "c", 8), (3, "b", None), (4, "d", 7)]
    windows = watched.steps[1:]
    assert [step.first for step in windows] == [3, *(step.last + 1 for step in windows[:-1])], "each version once"
    status = watched.handle.status()
    assert (status.state, status.position, status.lag_versions) == ("following", last + 1, 0)
    assert (windows[-1].rows_applied, windows[-1].batch_id) == (1, None)
    assert watched.handle.stop()
    assert watched.handle.status().state == "stopped"
    assert position(pg) == last + 1


def test_asking_delta_itself_finds_new_versions_too(
    connect: SparkSession, pg: Pg, delta_path: str, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "REFRESH_SECONDS", 0.0)
    table = inserted(connect, delta_path, 1)
    watched = follow()
    watched.following()
    table.sql("insert into {t} values (2, 'a')")
    watched.at(2)
    assert watched.handle.status().lag_versions == 0


def test_available_now_ends_after_catching_up(connect: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    inserted(connect, delta_path, 2)
    watched = follow(trigger={"availableNow": True})
    assert watched.handle.await_termination(PATIENCE_SECONDS)
    assert position(pg) == 2


def test_a_decision_ends_it_with_the_same_error_as_in_a_classic_session(
    connect: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(connect, delta_path, 2)
    watched = follow()
    watched.following()
    table.sql("alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'false')")
    error = watched.stopped_by()
    assert isinstance(error, FeedNotEnabled), error
    assert (position(pg), watched.handle.status().code) == (2, error.code)


@pytest.mark.parametrize("versions", [1, 5])
def test_a_table_that_was_created_again_is_noticed(
    connect: SparkSession, pg: Pg, delta_path: str, follow: Any, versions: int
) -> None:
    inserted(connect, delta_path, 3)
    watched = follow()
    watched.following()
    other = f"{delta_path}-again"
    inserted(connect, other, versions)
    Path(delta_path).rename(f"{delta_path}-before")
    Path(other).rename(delta_path)
    error = watched.stopped_by()
    assert isinstance(error, (TableReplaced, VersionNotFound)), error
    assert position(pg) == 3


def test_a_second_follower_is_refused_and_a_take_over_ends_the_first(
    connect: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(connect, delta_path, 1)
    first = follow()
    first.following()
    assert isinstance(follow().stopped_by(), LeaseHeld)
    pg.connection.execute(
        "update deltarelay.position set epoch = epoch + 1, owner = 'another' where target = %s", [f"{pg.schema}.target"]
    )
    table.sql("insert into {t} values (2, 'a')")
    assert isinstance(first.stopped_by(), Fenced)
    assert position(pg) == 1


def test_lost_connections_are_waited_for(connect: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    table = inserted(connect, delta_path, 1)
    watched = follow()
    watched.following()
    pg.connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'deltarelay'"
    )
    table.sql("insert into {t} values (2, 'a')")
    watched.at(2)
