"""Drift that the target cannot go along with is refused by name, before anything of that run is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf.changes.commits import Limits
from cdf.errors import CdfError, PositionError, RowRejected, SchemaDrift, TargetNotReady
from cdf.pipeline.move_position import plan_move
from cdf.results import Step
from connectors.postgres.column_mapping import Columns
from connectors.postgres.options import Modes
from connectors.postgres.state import position as positions
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.drift_case import MAPPED, WIDENING, Replica, replica, replicated, told

COLUMNS = "id long, a string, b string, n int, s struct<f: float, d: date>"
ROW = "(1, 'a', 'b', 1, named_struct('f', 0.1f, 'd', date'2026-01-01'))"


@pytest.fixture(scope="module")
def mapped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One row at version 1. Made once: each test gets a copy."""
    path = tmp_path_factory.mktemp("drift") / "table"
    table = Table(spark, str(path), COLUMNS, **MAPPED, **WIDENING, **{"feature.timestampNtz": "supported"})
    table.sql(f"insert into {{t}} values {ROW}")
    return table


@pytest.fixture
def table(spark: SparkSession, mapped: Table, delta_path: str) -> Table:
    shutil.copytree(mapped.path, delta_path)
    made = object.__new__(Table)
    made.spark, made.path, made.log = spark, delta_path, Path(delta_path, "_delta_log")
    return made


def begun(spark: SparkSession, pg: Pg, table: Table, **options: object) -> Replica:
    made = replica(spark, pg, table, **options)
    made.run()
    return made


def refused(made: Replica, *words: str, kind: type[CdfError] = SchemaDrift, until: int | None = None) -> CdfError:
    """A run is refused in these words, a plan tells them too, and the target is as it was."""
    before = made.state()
    try:
        planned = " ".join(made.pipeline.plan(until).problems)
    except CdfError as error:  # without its key there is nothing to plan
        planned = error.message
    with pytest.raises(kind) as caught:
        made.run(until)
    assert made.state() == before
    for word in words:
        assert word in caught.value.message
        assert word in planned
    return caught.value


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("alter table {t} rename column id to number", "column 'id' was renamed to 'number' (it is part of the key)"),
        ("alter table {t} alter column s.f type double", "float to double inside of a nested value"),
        ("alter table {t} alter column s.d type timestamp_ntz", "date to timestamp_ntz inside of a nested value"),
        ("alter table {t} add columns (m map<date, int>)", "its type has no faithful image in PostgreSQL"),
        ("alter table {t} add columns (xmin int)", "every table of PostgreSQL has a system column of this name"),
    ],
    ids=["key", "float", "date", "type", "system"],
)
def test_what_cannot_be_followed(spark: SparkSession, pg: Pg, table: Table, change: str, word: str) -> None:
    made = begun(spark, pg, table)
    table.sql("insert into {t} values (2, 'a', 'b', 2, null)", change)
    error = refused(made, word)
    assert error.hint is not None
    assert "--until 2" in error.hint
    assert "run --reload" in error.hint
    assert made.run(until=2).position == 2
    made.equals()


@pytest.mark.parametrize("kind", ["string", "date", "int"])
def test_a_type_that_an_overwrite_has_changed(spark: SparkSession, pg: Pg, delta_path: str, kind: str) -> None:
    made = replicated(spark, pg, Table(spark, delta_path, "id long, v timestamp"), "(1, null)")
    rows = spark.sql(f"select 1L as id, cast(null as {kind}) as v")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(delta_path)
    refused(
        made,
        f"column 'v' changed its type from timestamp to {kind} (the new type cannot hold every value of the old type",
    )


def test_an_instant_does_not_become_a_local_time(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "id long, v timestamp", **{"feature.timestampNtz": "supported"})
    made = replicated(spark, pg, table, "(1, null)")
    rows = spark.sql("select 1L as id, cast(null as timestamp_ntz) as v")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(delta_path)
    refused(made, "column 'v' changed its type from timestamp to timestamp_ntz")
    # The way that the hint names
    made.pipeline.reload()
    made.equals()
    assert made.columns() == {"id": "bigint", "v": "timestamp without time zone"}


def test_columns_that_the_configuration_speaks_of(spark: SparkSession, pg: Pg, table: Table) -> None:
    columns = Columns(exclude=("a", "s"), rename={"b": "title"})
    made = begun(spark, pg, table, columns=columns)
    table.sql(
        "alter table {t} alter column s.f type double", "alter table {t} drop column s", "alter table {t} drop column n"
    )
    made.follows()  # what is left out may change as it likes
    assert made.columns() == {"id": "bigint", "title": "text"}
    version = made.latest
    for change, word in (
        (
            "alter table {t} rename column b to c",
            "column 'b' was renamed to 'c' (the sink's include, exclude or rename",
        ),
        ("alter table {t} drop column c", "column 'b' was renamed"),
    ):
        table.sql(change)
        refused(made, word)
    assert made.run(until=version).position == version


def test_a_new_column_does_not_take_the_name_of_another(spark: SparkSession, pg: Pg, table: Table) -> None:
    made = begun(spark, pg, table, columns=Columns(rename={"b": "title"}))
    table.sql("alter table {t} add columns (title string)")
    refused(made, "column 'title' (string) was added (the sink's rename gives its name to another column)")


def test_only_added_columns_or_no_change_at_all(spark: SparkSession, pg: Pg, table: Table) -> None:
    adding = begun(spark, pg, table, modes=Modes(schema_changes="add_columns"))
    table.sql("alter table {t} add columns (w int)", "insert into {t} values (2, 'a', 'b', 2, null, 2)")
    refused(replica(spark, pg, table, modes=Modes(schema_changes="refuse")), "column 'w' (int) was added")
    adding.follows()
    table.sql("alter table {t} rename column a to c", "alter table {t} drop column b")
    error = refused(adding, "column 'a' was renamed to 'c'")
    assert "version 4" in error.message


@pytest.mark.parametrize(
    ("dependent", "change", "word"),
    [
        ("create view seen as select id, a from target", "alter table {t} drop column a", "column 'a' was dropped"),
        ("create view seen as select id, n from target", "alter table {t} alter column n type bigint", "become bigint"),
    ],
    ids=["drop", "type"],
)
def test_a_view_on_the_column(
    spark: SparkSession, pg: Pg, table: Table, dependent: str, change: str, word: str
) -> None:
    made = begun(spark, pg, table)
    pg.query(dependent)
    table.sql("insert into {t} values (2, 'a', 'b', 2, null)", change)
    error = refused(made, word, "view", "seen depends on it: drop that object", kind=TargetNotReady)
    assert error.fields["problems"]
    pg.query("drop view seen")
    # One that comes while the run is at work is met in the transaction
    before: list[object] = []

    def create(_: Step) -> None:
        if not before:
            pg.query(dependent)
            before.append(made.state())

    with pytest.raises(TargetNotReady) as caught:
        made.pipeline.run(progress=create)
    assert made.state() == before[0]
    assert made.position == 2
    assert caught.value.condition in ("2BP01", "0A000")
    assert "drop the dependent object" in told(caught.value)
    pg.query("drop view seen")
    made.follows()


def test_what_else_depends_on_a_column(spark: SparkSession, pg: Pg, table: Table) -> None:
    """Everything for which PostgreSQL would refuse the statement is foreseen, and nothing that goes with the column."""
    made = begun(spark, pg, table)
    for statement in (
        "create index on target (a, b)",
        "alter table target add check (a <> b or n > 0)",
        "create statistics seen_together on a, n from target",
        "alter table target alter column n set default 7",
        "create view renamed as select id, b from target",
    ):
        pg.query(statement)
    table.sql(
        "alter table {t} drop column a",
        "alter table {t} alter column n type bigint",
        "alter table {t} rename column b to c",
    )
    assert made.pipeline.plan().problems == ()
    for make, drop in (
        ("alter table target add twice int generated always as (n * 2) stored", "alter table target drop twice"),
        (
            "create function nothing() returns trigger language plpgsql as 'begin return new; end';"
            "create trigger changed before update of a on target for each row execute function nothing()",
            "drop trigger changed on target",
        ),
        (
            "create policy seen on target using (n > 0)",
            "drop policy seen on target",
        ),
        (
            "create table pointing (a text); create unique index by_a on target (a);"
            "alter table pointing add foreign key (a) references target (a)",
            "drop table pointing",
        ),
    ):
        for statement in make.replace("; end'", "\0").split(";"):
            pg.query(statement.replace("\0", "; end'"))
        refused(made, "depends on it: drop that object", kind=TargetNotReady)
        pg.query(drop)
    made.follows()


def test_a_stranger_s_columns(spark: SparkSession, pg: Pg, table: Table) -> None:
    made = begun(spark, pg, table)
    for statement in (
        "alter table target add w int default 7",
        "alter table target add c text",
        "alter table target add m text",
    ):
        pg.query(statement)
    table.sql("alter table {t} add columns (w int, m int)", "alter table {t} rename column b to c")
    refused(
        made,
        "has another column 'w' with values in it, and the source has added one of that name",
        "target.m is text, the source needs integer",
        "has another column 'c', and the source's column 'b' was renamed to that name",
        kind=TargetNotReady,
    )
    for column in "wmc":
        pg.query(f"alter table target drop column {column}")
    made.follows()
    pg.query("alter table target drop column a")
    error = refused(made, "has no column 'a'", "`run --reload` rebuilds it", kind=TargetNotReady)
    assert error.hint
    made.pipeline.reload()
    made.equals()


def test_a_column_that_goes_while_a_run_is_at_work(spark: SparkSession, pg: Pg, table: Table) -> None:
    made = begun(spark, pg, table, limits=Limits(max_commits=1))
    table.sql("insert into {t} values (2, 'a', 'b', 2, null)", "insert into {t} values (3, 'a', 'b', 3, null)")
    with pytest.raises(TargetNotReady, match="dropped or renamed the column 'a'"):
        made.pipeline.run(progress=lambda _: pg.query("alter table target drop column a") and None)
    assert made.position == 2
    assert "a" not in made.columns()


def test_neither_columns_nor_rows_where_the_transaction_fails(
    spark: SparkSession, pg: Pg, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begun(spark, pg, table)
    table.sql("insert into {t} values (2, 'a', 'b', 2, null)")
    for statement in (
        "create function refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end'",
        "create trigger refuse before insert on target for each row execute function refuse()",
    ):
        pg.query(statement)
    # The row and the new column in one commit
    rows = spark.sql("select 3L as id, 'a' as a, 'b' as b, 3 as n, 3 as w")
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(table.path)
    before = made.state()
    with pytest.raises(RowRejected):
        made.run()
    assert made.state() == before
    pg.query("drop trigger refuse on target")
    assert made.run(until=2).position == 2
    before = made.state()

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(positions, "move_position", die)  # rows and columns are there, in the transaction
        with pytest.raises(Killed):
            made.run()
    assert made.state() == before
    made.follows()
    assert made.rows("id, w") == [(1, None), (2, None), (3, 3)]


def test_a_position_is_not_moved_across_columns_that_changed(spark: SparkSession, pg: Pg, table: Table) -> None:
    made = begun(spark, pg, table)
    table.sql(
        "alter table {t} add columns (w int)",
        "insert into {t} values (2, 'a', 'b', 2, null, 2)",
        "update {t} set w = 1 where id = 1",
        "alter table {t} rename column a to c",
        "insert into {t} values (3, 'c', 'b', 3, null, 3)",
    )
    made.run(until=4)
    for action, version in (("set", 5), ("set", 6)):
        with pytest.raises(PositionError) as caught:
            plan_move(made.pipeline.context, action, version)
        assert "version 5" in caught.value.message
        assert "column 'a' was renamed to 'c'" in caught.value.message
        assert caught.value.hint is not None
        assert "run --reload" in caught.value.hint
    # Over an added column the way back is open: what it holds is written again
    move = plan_move(made.pipeline.context, "rewind", 1)
    sink = made.pipeline.sink
    sink.move(move._source, move._before, move._to, action="rewind")
    assert made.position == 1
    made.follows()
    for action in ("rewind", "set"):
        with pytest.raises(PositionError, match="version 5") as caught:
            plan_move(made.pipeline.context, action, 4)
        assert caught.value.fields["changes"] == ["column 'a' was renamed to 'c'"]
    assert plan_move(made.pipeline.context, "rewind", 5).to_version == 5
    made.pipeline.reload()
    made.equals()
