"""Dead letters tried again: what the source holds under their keys at the target's position, of a real Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.errors import WindowOutOfOrder
from cdf.pipeline.replay import replay
from cdf.sink import Applied
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import names, position, sink_of


class Case:
    """A source and a target that takes no name of more than five letters."""

    def __init__(self, spark: SparkSession, pg: Pg, folder: Path, **modes: Any) -> None:
        self.spark, self.pg = spark, pg
        self.table = Table(spark, str(folder / "source"), "id long, name string")
        self.table.sql("insert into {t} values (1, 'one'), (2, 'two'), (3, 'three')")
        self.options: dict[str, Any] = {"modes": Modes(rejects="dead_letter", **modes)}
        self.run()
        pg.query("alter table target add constraint short check (length(name) <= 5)")

    def pipeline(self) -> Pipeline:
        sink = sink_of(self.pg, **self.options)
        feed = ChangeFeed(self.spark, self.table.path)
        return Pipeline(feed, sink, key=["id"], name="case", limits=Limits(max_commits=1))

    def run(self, until: int | None = None) -> int:
        return self.pipeline().run(until).rejected

    def replay(self) -> Applied:
        return replay(self.pipeline().runner)

    def mend(self) -> None:
        self.pg.query("alter table target drop constraint short")

    def keys(self) -> list[str]:
        return sorted(one.key for one in sink_of(self.pg).dead_letters())

    def check_equal(self, set_aside: int = 0) -> None:
        found = self.pipeline().verify()
        assert (found.equal, found.set_aside) == (True, set_aside)


@pytest.fixture
def case(spark: SparkSession, pg: Pg, tmp_path: Path) -> Case:
    return Case(spark, pg, tmp_path)


def test_rows_are_stored_once_they_fit(case: Case, pg: Pg) -> None:
    case.table.sql("update {t} set name = 'longer' where id < 3", "insert into {t} values (4, 'longest'), (5, 'fine')")
    assert case.run() == 3
    case.check_equal(set_aside=3)
    assert case.replay().rejected == 3
    assert len(case.keys()) == 3
    assert names(pg) == {1: "one", 2: "two", 3: "three", 5: "fine"}
    case.mend()
    applied = case.replay()
    assert (applied.inserts, applied.rejected, applied.deletes) == (3, 0, 0)
    assert names(pg) == {1: "longer", 2: "longer", 3: "three", 4: "longest", 5: "fine"}
    assert (case.keys(), position(pg)) == ([], 3)
    case.check_equal()
    again = case.replay()
    assert (again.inserts, again.rejected, again.deletes) == (0, 0, 0)
    case.check_equal()


def test_refusing_conflicts_is_no_hindrance(case: Case, pg: Pg) -> None:
    """The former row is there: that a replay meets it contradicts nothing."""
    case.options["conflicts"] = "refuse"
    case.table.sql("update {t} set name = 'longer' where id = 1")
    case.run()
    case.mend()
    case.replay()
    assert names(pg)[1] == "longer"


def test_a_letter_keeps_its_id_while_its_row_does_not_fit(case: Case) -> None:
    case.table.sql("update {t} set name = 'longer' where id = 1")
    case.run()
    (before,) = sink_of(case.pg).dead_letters()
    case.replay()
    (after,) = sink_of(case.pg).dead_letters()
    assert (after.id, after.key_digest) == (before.id, before.key_digest)


def test_the_row_is_that_of_the_position(case: Case, pg: Pg) -> None:
    """Neither the one that was set aside, nor one that comes with a later window."""
    case.table.sql(
        "update {t} set name = 'longer' where id = 1",
        "update {t} set name = 'longest' where id = 1",
        "update {t} set name = 'last' where id = 1",
    )
    case.run(until=3)
    case.mend()
    case.replay()
    assert (names(pg)[1], position(pg)) == ("longest", 3)
    case.run()
    assert names(pg)[1] == "last"
    case.check_equal()


def test_a_key_that_the_source_has_no_more(case: Case, pg: Pg) -> None:
    case.table.sql("update {t} set name = 'longer' where id < 3")
    case.run()
    # As if a letter had outlived its key: somebody wrote it there, or a trigger refused the delete
    case.table.sql("delete from {t} where id = 1")
    pg.query("create table kept as select * from deltarelay.dead_letter where target = %s", f"{pg.schema}.target")
    case.run()
    assert names(pg) == {2: "two", 3: "three"}
    assert case.keys() == ['{"id" : "2"}']
    pg.query("insert into target values (1, 'one')")
    pg.query("insert into deltarelay.dead_letter overriding system value select * from kept where key like '%%1%%'")
    assert len(case.keys()) == 2
    applied = case.replay()
    assert (applied.deletes, applied.rejected) == (1, 1)
    assert names(pg) == {2: "two", 3: "three"}
    case.check_equal(set_aside=1)


def test_a_delete_that_the_target_refuses(case: Case, pg: Pg) -> None:
    pg.query(
        "create function keep() returns trigger language plpgsql as "
        "$$ begin if old.id < 3 then raise exception 'no'; end if; return old; end $$"
    )
    pg.query("create trigger keep before delete on target for each row execute function keep()")
    case.table.sql("delete from {t}")
    assert case.run() == 2
    case.check_equal(set_aside=2)
    applied = case.replay()
    assert (applied.deletes, applied.rejected) == (0, 2)
    assert names(pg) == {1: "one", 2: "two"}
    pg.query("drop trigger keep on target")
    applied = case.replay()
    assert (applied.deletes, applied.rejected) == (2, 0)
    assert (names(pg), case.keys()) == ({}, [])
    case.check_equal()


def test_soft_deletes_are_marked(spark: SparkSession, pg: Pg, tmp_path: Path) -> None:
    case = Case(spark, pg, tmp_path, deletes="soft")
    case.table.sql("update {t} set name = 'longer' where id = 1")
    case.run()
    pg.query("create table kept as select * from deltarelay.dead_letter where target = %s", f"{pg.schema}.target")
    case.table.sql("delete from {t} where id = 1")
    case.run()
    pg.query("update target set _deleted_at = null")
    pg.query("insert into deltarelay.dead_letter overriding system value select * from kept")
    assert case.replay().deletes == 1
    assert pg.query("select id from target where _deleted_at is not null") == [(1,)]


def test_what_cannot_be_stored_anywhere(case: Case, pg: Pg) -> None:
    case.table.sql("insert into {t} values (7, concat('a', char(0)))")
    assert case.run() == 1
    assert case.replay().rejected == 1
    case.table.sql("update {t} set name = 'ab' where id = 7")
    case.run()
    assert names(pg)[7] == "ab"
    assert case.keys() == []


def test_a_difference_beside_the_letters_is_found(case: Case, pg: Pg) -> None:
    case.table.sql("update {t} set name = 'longer' where id = 1")
    case.run()
    pg.query("update target set name = 'other' where id = 2")
    found = case.pipeline().verify()
    assert (found.equal, found.different, found.set_aside) == (False, 1, 1)


def test_a_replay_goes_by_the_position_alone(case: Case, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is applied between looking and writing is not overwritten."""
    case.table.sql("update {t} set name = 'longer' where id = 1", "update {t} set name = 'last' where id = 1")
    case.run(until=2)
    case.mend()
    pipeline = case.pipeline()
    with _opened(pipeline) as stale:
        pg.query("update deltarelay.position set version = 3 where target = %s", f"{pg.schema}.target")
        with pytest.raises(WindowOutOfOrder):
            pipeline.sink.replay(stale)  # type: ignore[attr-defined]
    assert names(pg)[1] == "one"
    assert case.keys() == ['{"id" : "1"}']


@contextmanager
def _opened(pipeline: Pipeline) -> Iterator[Any]:
    with pipeline.runner.open(2):
        yield pipeline.snapshot(2)


def test_a_reload_leaves_no_letter_behind(case: Case, pg: Pg) -> None:
    case.table.sql("update {t} set name = 'longer' where id = 1")
    case.run()
    case.mend()
    case.pipeline().reload()
    assert names(pg)[1] == "longer"
    assert case.keys() == []
    case.check_equal()
