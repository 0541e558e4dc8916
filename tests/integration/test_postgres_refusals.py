"""What a target's own rules refuse, by a real server: the error says which rule, and which ways there are out of it."""

from __future__ import annotations

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdf.errors import CdfError, RowRejected, TargetNotReady
from cdf.testing import delete, insert, update
from connectors.postgres.errors import translate
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import loaded, names, people, person, position, tells

A, B = person(1, "xanadu-a"), person(2, "xanadu-b")


def test_a_row_before_the_one_it_refers_to_names_the_way_out(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query("create table parent (id bigint primary key)")
        pg.query("insert into parent values (1)")
        pg.query("alter table target add constraint has_parent foreign key (id) references parent")
        with pytest.raises(RowRejected, match="has_parent") as found:
            sink.apply(table.window(2, [insert(B)]))
        assert "first update the table at the other end" in str(found.value.hint)
        assert "xanadu" not in tells(found.value)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        pg.query("insert into parent values (2)")
        sink.apply(table.window(2, [insert(B)]))
    assert (names(pg), position(pg)) == ({1: "xanadu-a", 2: "xanadu-b"}, 2)


def test_a_row_that_others_refer_to_is_not_deleted_before_them(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A, B]) as sink:
        pg.query("create table child (id bigint constraint of_parent references target)")
        pg.query("insert into child values (1)")
        with pytest.raises(RowRejected, match="of_parent"):
            sink.apply(table.window(2, [delete(A)]))
        pg.query("delete from child")
        sink.apply(table.window(2, [delete(A)]))
    assert (names(pg), position(pg)) == ({2: "xanadu-b"}, 2)


def test_a_deferred_reference_is_refused_by_the_commit_and_named_alike(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query("create table parent (id bigint primary key)")
        pg.query("insert into parent values (1)")
        pg.query("alter table target add foreign key (id) references parent deferrable initially deferred")
        with pytest.raises(RowRejected, match="target_id_fkey") as found:
            sink.apply(table.window(2, [insert(B)]))
        assert found.value.condition == "23503"
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)


def test_a_published_table_without_an_identity_is_named(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query("alter table target replica identity nothing")
        pg.query("create publication seen for table target")
        try:
            with pytest.raises(TargetNotReady, match="does not allow it") as found:
                sink.apply(table.window(2, [update(A, person(1, "xanadu-n"))]))
            assert "replica identity" in str(found.value.hint)
            assert position(pg) == 1
            pg.query("alter table target replica identity default")
            sink.apply(table.window(2, [update(A, person(1, "xanadu-n"))]))
        finally:
            pg.query("drop publication seen")
    assert (names(pg), position(pg)) == ({1: "xanadu-n"}, 2)


@pytest.mark.parametrize(("using", "condition"), [("", "P0001"), (" using errcode = '23514'", "23514")])
def test_a_trigger_that_raises_is_named(session: SparkSession | None, pg: Pg, using: str, condition: str) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query(
            "create function {schema}.no() returns trigger language plpgsql as"
            f" $$begin raise exception 'I refuse %', new.name{using}; end$$"
        )
        pg.query("create trigger no before insert on target for each row execute function {schema}.no()")
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [insert(B)]))
        assert found.value.condition == condition
        assert "xanadu" not in tells(found.value)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("alter table target alter column name type int using 1", "0A000"),
        ("alter table target drop column name", "2BP01"),
    ],
)
def test_a_view_that_keeps_a_column_from_being_altered_is_named(pg: Pg, statement: str, condition: str) -> None:
    pg.query("create table target (id bigint, name text)")
    pg.query("create view seen as select name from target")
    with pytest.raises(psycopg.Error) as refused:
        pg.query(statement)
    found: CdfError = translate(refused.value, "changing the target's columns")
    assert isinstance(found, TargetNotReady)
    assert found.condition == condition
    assert "view" in str(found)
    assert "recreate it" in str(found.hint)
