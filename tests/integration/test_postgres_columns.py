"""Which columns go to the target, under which names, and the columns of ours beside them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.errors import TargetNotReady
from cdf.pipeline.move_position import make_move, plan_move
from cdf.testing import MemoryFeed, MemoryTable, SampleTable, delete, insert, update
from connectors.postgres.column_mapping import Columns
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, people, person, sink_of

OWN = ("_commit_version", "_commit_timestamp", "_applied_at")


@pytest.fixture
def source(spark: SparkSession, delta_path: str) -> Table:
    """Versions 1 to 3: rows, changes, and changes again."""
    table = Table(spark, delta_path, "id long, region string, name string, `secret.note` string, `Größe%` int")
    table.sql(
        "insert into {t} values (1, 'n', 'a', 'x', 10), (2, 'n', 'b', 'y', 20), (3, 's', 'c', 'z', null)",
        "update {t} set name = 'aa', `secret.note` = 'xx' where id = 1",
        "merge into {t} s using (select 2L as id union all select 4) c on s.id = c.id when matched then delete "
        "when not matched then insert (id, region, name, `secret.note`, `Größe%`) values (4, 'w', 'd', 'q', 40)",
    )
    return table


def pipeline_of(source: Table, pg: Pg, **options: Any) -> Pipeline:
    feed = ChangeFeed(source.spark, source.path)
    return Pipeline(feed, sink_of(pg, **options), key=("id", "region"), name="test", start=1)


def columns_of(pg: Pg, table: str = "target") -> list[str]:
    rows = pg.query(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
        "order by attnum",
        table,
    )
    return [name for (name,) in rows]


def test_a_plan_lists_a_key_column_that_is_left_out(pg: Pg) -> None:
    table = MemoryTable(StructType().add("id", "long").add("name", "string"))
    table.append({"id": 1, "name": "a"})
    pipeline = Pipeline(MemoryFeed(table), sink_of(pg, columns=Columns(exclude=("id",))), key="id", start="earliest")
    assert any("the key column 'id' is left out" in problem for problem in pipeline.plan().problems)


CHOICES = {
    "include": (Columns(include=("id", "region", "Größe%")), ["id", "region", "Größe%"]),
    "exclude": (Columns(exclude=("secret.note",)), ["id", "region", "name", "Größe%"]),
    "rename": (
        # two change places, and the key has other names
        Columns(rename={"id": 'the "id".%s', "region": "name", "name": "region", "Größe%": "select"}),
        ['the "id".%s', "name", "region", "secret.note", "select"],
    ),
    "all": (
        Columns(exclude=("name",), rename={"id": "ID", "secret.note": "Note"}, own=OWN),
        ["ID", "region", "Note", "Größe%", *OWN],
    ),
}


@ON_BOTH_PATHS
@pytest.mark.parametrize("choice", CHOICES)
def test_chosen_columns_on_every_way_to_the_target(source: Table, pg: Pg, choice: str, path: dict[str, int]) -> None:
    columns, expected = CHOICES[choice]
    pipeline = pipeline_of(source, pg, columns=columns, conflicts="refuse", **path)
    taken = [name for name in ("id", "region", "name", "secret.note", "Größe%") if columns.includes(name)]
    listed = ", ".join('"' + columns.target_name(name).replace('"', '""') + '"' for name in taken)
    sources = ", ".join(f"`{name}`" for name in taken)

    def check(version: int) -> None:
        assert columns_of(pg) == expected
        query = f"select {sources} from delta.`{source.path}` version as of {version}"
        rows = pg.connection.execute(f"select {listed} from target").fetchall()  # type: ignore[arg-type]
        assert sorted(map(repr, rows)) == sorted(repr(tuple(row)) for row in source.spark.sql(query).collect())
        found = pipeline.verify()
        assert (found.equal, found.version, found.source_rows) == (True, version, len(rows))

    pipeline.run(until=1)
    check(1)
    pipeline.run(until=2)
    check(2)
    pipeline.run()
    check(3)
    last = '"' + columns.target_name(taken[-1]).replace('"', '""') + '"'
    pg.connection.execute(f"update target set {last} = null where {last} is not null")  # type: ignore[arg-type]
    assert (pipeline.verify().different or 0) >= 2
    pipeline.reload()
    check(3)
    pg.query("delete from deltarelay.position where target = %s", f"{pg.schema}.target")
    make_move(pipeline.sink, plan_move(pipeline.context, "adopt", 3))
    source.sql("insert into {t} values (7, 'e', 'n', 'o', 70)")
    pipeline.run()
    check(4)


def test_what_is_left_out_does_not_travel(source: Table, pg: Pg) -> None:
    """A column that has no image in PostgreSQL, and a value that no target could hold."""
    source.sql(
        "alter table {t} add column odd map<date, string>",
        "insert into {t} (id, region, name) values (8, 'n', 'nul\\u0000')",
    )
    pipeline = pipeline_of(source, pg, columns=Columns(exclude=("odd", "name")))
    pipeline.run()
    assert pg.query("select id, region from target where id = 8") == [(8, "n")]
    assert pipeline.verify().equal


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────

AWKWARD = [
    "ID", "_attempt", "_operation", "_version", "_timestamp", "_applied_at", "_deleted_at", "_reject", "c0", "c1", "s",
    "t", "g", "excluded", "select", "user", "a.b", 'say "so"', "it's", "back\\slash", "50% off", "%s", "%(x)s", "{}", "{0}",
    "漢字", "naïve", "ä" * 31, "x" * 63, "with space", ":colon", "$1", "null",
]  # fmt: skip


@ON_BOTH_PATHS
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_names_of_any_kind_reach_the_target_as_they_are(
    session: SparkSession | None, pg: Pg, deletes: Any, path: dict[str, int]
) -> None:
    """Also those by which we know columns of our own; where both would meet, ours is another."""
    wanted = [name for name in AWKWARD if deletes == "hard" or name != "_deleted_at"]
    schema = StructType()
    for name in wanted:
        schema.add(name, "string")
    table = SampleTable(session, schema, ("ID", "%s"), table="awkward")
    row = {name: f"of {name}" for name in wanted}
    own = ("_commit_version",)
    with loaded(pg, table, [row], columns=Columns(own=own), modes=Modes(deletes=deletes), **path) as sink:
        changed = {**row, "c0": "new", "%(x)s": "new"}
        applied = sink.apply(
            table.window(2, [update(row, changed), insert({**row, "ID": "2"}), insert({**row, "ID": "3"})])
        )
        assert applied.conflicts.total == 0
        sink.apply(table.window(3, [delete({**row, "ID": "2"})]))
        with sink.image(table.source()) as image:
            assert image.row_count() == sum(digest.rows for digest in image.digest(3).values()) == 2
    cursor = pg.connection.execute("select * from target where \"ID\" <> '2'")
    ours = [*own, *(["_deleted_at"] if deletes == "soft" else [])]
    assert [column.name for column in cursor.description or ()] == [*wanted, *ours]
    found = sorted(one[: len(wanted)] for one in cursor.fetchall())
    assert found == sorted([tuple(changed.values()), tuple({**row, "ID": "3"}.values())])


def test_renamed_they_may_have_any_name_there(session: SparkSession | None, pg: Pg) -> None:
    """The source's names that PostgreSQL cannot have, or that are ours in the target."""
    schema = StructType()
    for name in ("id", "x" * 64, "ctid", "_applied_at", "xmin"):
        schema.add(name, "string")
    table = SampleTable(session, schema, ("id",), table="taken")
    row = {name: name for name in schema.names}
    (too_long, *system) = sink_of(pg).inspect(table.source()).problems[::-1]
    assert "63 bytes: rename it" in too_long
    assert len(system) == 2
    columns = Columns(rename={"x" * 64: "x" * 63, "ctid": "the ctid", "xmin": "XMIN", "_applied_at": "theirs"}, own=OWN)
    with loaded(pg, table, [row], columns=columns) as sink:
        sink.apply(table.window(2, [update(row, {**row, "xmin": "new"})]))
    rows = pg.query(f'select id, {"x" * 63}, "the ctid", theirs, "XMIN", _commit_version from target')
    assert rows == [("id", "x" * 64, "ctid", "_applied_at", "new", 2)]


# ── what is wrong is one list ────────────────────────────────────────────────────────────────────────────────────────


def test_everything_wrong_with_the_columns_is_one_list(session: SparkSession | None, pg: Pg) -> None:
    schema = StructType()
    for name in ("id", "a", "b", "c", "xmin", "_applied_at", "d"):
        schema.add(name, "long")
    source = replace(people(session).source(), schema=schema)
    columns = Columns(
        exclude=("id", "nothing"),
        rename={"a": "b", "absent": "there", "c": "_Change_Type", "d": "_commit_timestamp"},
        own=("_applied_at",),
    )
    sink = sink_of(pg, columns=columns)
    problems = sink.inspect(source).problems
    assert problems[:8] == (
        "exclude names a column 'nothing' that the source does not have",
        "rename names a column 'absent' that the source does not have",
        "the key column 'id' is left out: include it",
        "2 columns would be called 'b' in the target",
        "no column can be renamed to '_Change_Type': the change feed has one of that name",
        "every table of PostgreSQL has a system column 'xmin': rename it",
        "the source has a column '_applied_at' itself: rename it, or leave out that metadata column",
        "no column can be renamed to '_commit_timestamp': the change feed has one of that name",
    )
    with pytest.raises(TargetNotReady) as refused:
        sink.open(source)
    assert refused.value.fields["problems"] == list(problems)
    with pytest.raises(TargetNotReady):
        sink.open_to_reload(source)
    assert pg.query("select to_regclass('target')") == [(None,)]


def test_names_that_differ_by_case_only_are_refused(session: SparkSession | None, pg: Pg) -> None:
    """Spark would take them for one."""
    problems = sink_of(pg, columns=Columns(rename={"name": "ID"})).inspect(people(session).source()).problems
    assert [problem.split(" of the target")[0] for problem in problems] == ["column 'id'", "column 'ID'"]


def test_what_the_target_lacks_or_has_besides(session: SparkSession | None, pg: Pg) -> None:
    """A column that is left out is none of the target's; one that nobody fills has to fill itself."""
    table = people(session)
    pg.query("create table target (id bigint primary key, name text not null)")
    (problem,) = sink_of(pg, columns=Columns(exclude=("name",))).inspect(table.source()).problems
    assert "NOT NULL without a default" in problem
    pg.query("alter table target alter name set default 'filled'")
    with loaded(pg, table, [person(1, "a")], columns=Columns(exclude=("name",))) as sink:
        sink.apply(table.window(2, [insert(person(2, "b")), update(person(1, "a"), person(1, "aa"))]))
    assert pg.query("select id, name from target order by id") == [(1, "filled"), (2, "filled")]
    pg.query(
        "alter table target add column _applied_at text, add column _commit_version bigint generated always as (1) stored"
    )
    problems = sink_of(pg, columns=Columns(own=OWN)).inspect(table.source()).problems
    assert [problem.removeprefix(f"{pg.schema}.target.") for problem in problems] == [
        "_commit_version is generated by the database and cannot be filled",
        "_applied_at is text, and must be timestamp with time zone",
    ]


# ── columns of ours ──────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_metadata_tells_which_commit_a_row_is_of(source: Table, pg: Pg, path: dict[str, int]) -> None:
    pipeline = pipeline_of(source, pg, columns=Columns(own=OWN), **path)
    # Commit times of Delta have milliseconds
    times = {commit.version: commit.timestamp for commit in pipeline.feed.log.commits(1, 3)}
    began = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5)

    def found() -> dict[int, tuple[int, dt.datetime]]:
        rows = pg.query("select id, _commit_version, _commit_timestamp, _applied_at from target")
        assert all(began < row[3] <= dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5) for row in rows)
        return {row[0]: (row[1], row[2]) for row in rows}

    pipeline.run(until=1)
    assert found() == dict.fromkeys((1, 2, 3), (1, times[1]))
    applied = dict(pg.query("select id, _applied_at from target"))
    pipeline.run()
    expected = {1: (2, times[2]), 3: (1, times[1]), 4: (3, times[3])}
    assert found() == expected
    after = dict(pg.query("select id, _applied_at from target"))
    assert after[3] == applied[3]
    assert after[1] == after[4] > applied[1]
    pipeline.reload()
    assert found() == dict.fromkeys((1, 3, 4), (3, times[3]))
    # Where only what differs is written, the others keep what they have
    pg.query("create view looks as select * from target")
    source.sql("update {t} set name = 'late' where id = 4")
    before = found()
    pipeline.reload()
    late = next(iter(pipeline.feed.log.commits(4, 4))).timestamp
    assert found() == {**before, 4: (4, late)}


def test_columns_of_ours_that_come_later(source: Table, pg: Pg) -> None:
    """Added by the next step; rows from before tell nothing until they change, or are written anew by a reload."""
    pipeline_of(source, pg).run(until=2)
    later = pipeline_of(source, pg, columns=Columns(own=OWN))
    assert len(later.run().ddl) == 3
    assert pg.query("select id, _commit_version from target order by id") == [(1, None), (3, None), (4, 3)]
    assert later.verify().equal
    pg.query("create view looks as select id from target")
    later.reload()
    assert pg.query("select id, _commit_version from target order by id") == [(1, 3), (3, 3), (4, 3)]
