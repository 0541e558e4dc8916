"""A target that is made anew: what it keeps, what its readers see, which way is taken, and what a crash leaves."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.errors import RowRejected, SinkUnavailable, TableReplaced, TargetNotReady
from cdf.sink import Applied
from cdf.testing import SampleTable, insert
from cdf.testing.changes import Row
from connectors.postgres import PostgresSink
from connectors.postgres.load import merge, open_readers, reload, swap
from connectors.postgres.state import position as positions
from connectors.postgres.target import catalog
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import left_of, loaded, names, opened, people, person, position, sink_of, tells

A, B = person(1, "a"), person(2, "b")
AFTER = [person(2, "bb"), person(3, "c")]


@contextmanager
def open_to_reload(pg: Pg, table: SampleTable, **options: Any) -> Iterator[PostgresSink]:
    sink = sink_of(pg, **options)
    try:
        sink.open_to_reload(replace(table.source(), former=frozenset({"id", "name"})))
        yield sink
    finally:
        sink.close()


def reloaded(pg: Pg, table: SampleTable, rows: Sequence[Row] = AFTER, version: int = 9) -> Applied:
    with open_to_reload(pg, table) as sink:
        return sink.reload(table.snapshot(version, rows))


def filled(pg: Pg, table: SampleTable) -> None:
    with loaded(pg, table, [A, B]):
        pass


# ── the swap ─────────────────────────────────────────────────────────────────────────────────────────────────────────

LOOKS = (
    "select indexdef from pg_indexes where schemaname = '{schema}' and tablename = 'target' order by 1",
    "select indexrelid::regclass::text, indisunique, indisprimary, indimmediate, indisreplident, indisclustered,"
    " obj_description(indexrelid) from pg_index where indrelid = 'target'::regclass order by 1",
    "select conname, contype, pg_get_constraintdef(oid), condeferrable, obj_description(oid) from pg_constraint"
    " where conrelid = 'target'::regclass order by 1",
    "select relowner, relacl::text, reloptions, relreplident, relpersistence, obj_description(oid) from pg_class"
    " where oid = 'target'::regclass",
    "select reloptions from pg_class where oid = (select reltoastrelid from pg_class where oid = 'target'::regclass)",
    "select attname, format_type(atttypid, atttypmod), attnotnull, attcollation, attgenerated, attstorage, attcompression,"
    " attstattarget, attoptions, attacl::text, pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)"
    " from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum"
    " where attrelid = 'target'::regclass and attnum > 0 and not attisdropped order by attnum",
)


def looks(pg: Pg) -> list[list[tuple[Any, ...]]]:
    return [pg.query(query) for query in LOOKS]


def test_everything_but_the_rows_survives(spark: SparkSession, pg: Pg) -> None:
    table, role, owner = people(spark), f"reader_{pg.schema}", f"owner_{pg.schema}"
    pg.query(
        'create table target (upper_name text generated always as (upper(name)) stored, name text collate "C" not null'
        " default 'none', id bigint constraint the_key primary key) with (fillfactor = 55, toast.autovacuum_enabled = false)"
    )
    filled(pg, table)
    for statement in (
        f"create role {role}",
        f"create role {owner}",
        "create index by_name on target (lower(name) desc nulls last) include (id) with (fillfactor = 80) where id > 0",
        'create unique index "Odd USING name" on target (name, id)',
        'alter table target replica identity using index "Odd USING name"',
        "alter table target add constraint one_name unique (name) deferrable initially deferred",
        "alter table target add constraint small check (id < 100) not valid",
        "alter table target add constraint no_twin exclude using btree (name with =)",
        "alter table target cluster on the_key",
        "alter table target alter column name set statistics 77, alter column name set storage external,"
        " alter column name set (n_distinct = -0.5)",
        "comment on table target is 'all it''s people'",
        "comment on column target.name is 'a name'",
        "comment on index by_name is 'an index'",
        "comment on constraint small on target is 'a check'",
        "comment on constraint the_key on target is 'a key'",
        f"grant select, insert on target to {role} with grant option",
        f"grant update (name) on target to {role}",
        "grant select on target to public",
        f"alter table target owner to {owner}",
        f"revoke truncate on target from {owner}",
    ):
        pg.query(statement)
    before, oid = looks(pg), pg.query("select 'target'::regclass::oid")
    try:
        applied = reloaded(pg, table)
        assert looks(pg) == before
        assert pg.query("select 'target'::regclass::oid") != oid, "it was swapped"
        assert {"copy", "build", "swap"} == set(applied.seconds)
        assert pg.query("select id, name, upper_name from target order by id") == [(2, "bb", "BB"), (3, "c", "C")]
        assert pg.query("select count(*) from pg_stats where tablename = 'target' and schemaname = '{schema}'") != [
            (0,)
        ]
        assert (position(pg), left_of(pg, sink_of(pg))) == (9, [])
        with opened(pg, table.source()) as sink:
            sink.apply(table.window(10, [insert(person(4, "d"))]))
        assert names(pg) == {2: "bb", 3: "c", 4: "d"}
    finally:
        pg.query("drop table target")
        pg.query(f"drop role {role}, {owner}")


def test_a_not_null_that_has_no_name_survives(spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in servers before 18, whose catalog has no constraint for it; a check of the same column is no NOT NULL."""
    pg.query("create table target (id bigint primary key, name text not null check (name <> ''))")
    filled(pg, people(spark))
    monkeypatch.setattr(catalog, "CONSTRAINTS", catalog.CONSTRAINTS.replace("in ('c', 'n')", "= 'c'"))
    before = looks(pg)
    assert "swap" in reloaded(pg, people(spark)).seconds
    assert looks(pg) == before


def test_readers_never_see_an_empty_table_nor_an_error(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    filled(pg, table)
    seen: set[int] = set()
    errors: list[Exception] = []
    done = threading.Event()

    def read(repeatable: bool) -> None:
        with psycopg.connect(pg.dsn) as connection:
            if repeatable:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not done.is_set():
                try:
                    connection.execute("select 1")  # the snapshot of a repeatable read is as old as this
                    done.wait(0.05 if repeatable else 0)
                    rows = connection.execute(f"select count(*) from {pg.schema}.target").fetchall()  # type: ignore[arg-type]
                    seen.add(rows[0][0])
                    connection.commit()
                except Exception as error:
                    errors.append(error)
                    return

    readers = [threading.Thread(target=read, args=(repeatable,)) for repeatable in (False, True)]
    for reader in readers:
        reader.start()
    try:
        for version in (5, 6, 7):
            reloaded(pg, table, [person(index, "x") for index in range(version)], version)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert errors == []
    assert seen <= {2, 5, 6, 7}
    assert {2, 7} <= seen | {pg.query("select count(*) from target")[0][0]}


def test_an_older_snapshot_is_waited_for(spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(spark)
    filled(pg, table)
    monkeypatch.setattr(open_readers, "PATIENCE_SECONDS", 1.0)
    with psycopg.connect(pg.dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1")  # not of the target: it holds no lock there
        with monkeypatch.context() as patch:
            patch.setattr(reload, "copy_snapshot", lambda *_, **__: pytest.fail("copied in vain"))
            with pytest.raises(
                SinkUnavailable, match=f"could still read.*process {reader.info.backend_pid}"
            ) as refused:
                reloaded(pg, table)
        assert "nothing was copied" in str(refused.value.hint)
        monkeypatch.setattr(open_readers, "check_readers", lambda _: None)
        with pytest.raises(SinkUnavailable, match="could still read") as refused:
            reloaded(pg, table)
        assert "the copy is dropped" in str(refused.value.hint)
        assert left_of(pg, sink_of(pg)) == []
        monkeypatch.setattr(open_readers, "wait_for_readers", lambda *_: None)
        reloaded(pg, table)
        found = reader.execute(f"select count(*) from {pg.schema}.target").fetchall()  # type: ignore[arg-type]
        assert found == [(0,)], "what the wait is for: without it that reader meets an empty table"
    assert names(pg) == {2: "bb", 3: "c"}


def test_only_what_can_read_the_target_is_waited_for(
    spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, role = people(spark), f"{pg.schema}_reader"
    filled(pg, table)
    monkeypatch.setattr(open_readers, "PATIENCE_SECONDS", 0.5)
    pg.query(f"create role {role} login")
    try:
        with psycopg.connect(make_conninfo(pg.dsn, user=role)) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("select 1")
            reloaded(pg, table)
            pg.query(f"grant select (id) on target to {role}")
            with pytest.raises(SinkUnavailable, match="could still read"):
                reloaded(pg, table, version=4)
    finally:
        pg.query(f"drop owned by {role}")
        pg.query(f"drop role {role}")
    assert names(pg) == {2: "bb", 3: "c"}


def test_a_reader_who_stays_keeps_nobody_else_out(spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(spark)
    filled(pg, table)
    monkeypatch.setattr(open_readers, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(swap, "LOCK_TIMEOUT", "200ms")
    with psycopg.connect(pg.dsn) as reader:
        reader.execute(f"select count(*) from {pg.schema}.target")  # type: ignore[arg-type]
        with pytest.raises(SinkUnavailable, match="locked for") as found:
            reloaded(pg, table)
        assert found.value.transient
        assert names(pg) == {1: "a", 2: "b"}
    assert position(pg) == 1
    reloaded(pg, table)
    assert names(pg) == {2: "bb", 3: "c"}


def test_another_schema_and_another_key_need_no_new_target(spark: SparkSession, pg: Pg) -> None:
    filled(pg, people(spark))
    pg.query("create index by_name on target (name)")
    pg.query("comment on column target.id is 'kept'")
    schema = StructType().add("id", "string").add("region", "integer").add("sum", "decimal(10,2)")
    other = SampleTable(spark, schema, ("region", "id"), table_id="another")
    applied = reloaded(pg, other, [{"id": "x", "region": 1}, {"id": "x", "region": 2}], 0)
    assert "swap" in applied.seconds
    assert pg.query("select id, region, sum from target order by region") == [("x", 1, None), ("x", 2, None)]
    assert [row[0] for row in pg.query("select attname from pg_attribute where attrelid = 'target'::regclass"
                                       " and attnum > 0 order by attnum")] == ["id", "region", "sum"]  # fmt: skip
    assert pg.query("select pg_get_constraintdef(oid) from pg_constraint where conrelid = 'target'::regclass"
                    " and contype = 'p'") == [("PRIMARY KEY (region, id)",)]  # fmt: skip
    of_the_load = "select conname from pg_constraint where conrelid = 'target'::regclass and conname like 'load%'"
    assert pg.query(of_the_load) == []
    assert pg.query("select col_description('target'::regclass, 1)") == [("kept",)]
    assert sink_of(pg).position().version == 0
    with opened(pg, other.source()) as sink:
        sink.apply(other.window(1, [insert({"id": "y", "region": 1})]))
    assert len(pg.query("select id from target")) == 3


def test_a_target_that_is_gone_is_made_anew(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    filled(pg, table)
    pg.query("drop table target")
    with pytest.raises(TargetNotReady, match="run --reload"):
        sink_of(pg).open(table.source())
    reloaded(pg, table)
    assert names(pg) == {2: "bb", 3: "c"}
    assert pg.query("select conname from pg_constraint where conrelid = 'target'::regclass and contype = 'p'") == [
        ("target_pkey",)
    ]


def test_rows_that_nobody_has_adopted_are_never_thrown_away(spark: SparkSession, pg: Pg) -> None:
    pg.query("create table target (id bigint primary key, name text)")
    pg.query("insert into target values (7, 'theirs')")
    with pytest.raises(TargetNotReady, match="position adopt"):
        reloaded(pg, people(spark))
    assert names(pg) == {7: "theirs"}


@pytest.mark.parametrize("way", ["swap", "merge"])
def test_rows_that_come_while_an_empty_table_is_reloaded_are_not_thrown_away(
    spark: SparkSession, pg: Pg, way: str
) -> None:
    table = people(spark)
    pg.query("create table target (id bigint primary key, name text)")
    if way == "merge":
        pg.query("create view seen as select id from target")
    with open_to_reload(pg, table) as sink:
        pg.query("insert into target values (7, 'theirs')")
        with pytest.raises(TargetNotReady, match="another session"):
            sink.reload(table.snapshot(9, AFTER))
    assert (names(pg), position(pg)) == ({7: "theirs"}, None)


def test_a_role_with_no_more_rights_than_it_needs(spark: SparkSession, pg: Pg) -> None:
    table, role = people(spark), f"clerk_{pg.schema}"
    with opened(pg, table.source(), table="other"):
        pass  # the administrator has made our tables by now
    pg.query(f"create role {role} login")
    try:
        pg.query(f"grant usage, create on schema {{schema}}, deltarelay to {role}")
        pg.query(f"grant select, insert, update on deltarelay.position to {role}")
        with psycopg.connect(make_conninfo(pg.dsn, user=role), autocommit=True) as connection:
            clerk = Pg(make_conninfo(pg.dsn, user=role), pg.schema, connection)
            filled(clerk, table)
            with pytest.raises(TargetNotReady, match="position_log"):
                reloaded(clerk, table)
            pg.query(f"grant select, insert on deltarelay.position_log to {role}")
            assert "swap" in reloaded(clerk, table).seconds
            pg.query("create view seen as select id from target")
            assert "merge" in reloaded(clerk, table, [A], 10).seconds
            pg.query("drop view seen")
            pg.query("alter table target owner to current_user")
            pg.query(f"grant select, insert, update, delete on target to {role}")
            assert "merge" in reloaded(clerk, table, AFTER, 11).seconds, "what belongs to others is not dropped"
            assert (names(pg), position(pg)) == ({2: "bb", 3: "c"}, 11)
    finally:
        pg.query(f"drop owned by {role}")
        pg.query(f"drop role {role}")


def test_a_row_that_a_constraint_refuses_leaves_everything(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    filled(pg, table)
    pg.query("alter table target add constraint short check (length(name) < 2)")
    too_long = [A, person(2, "Persephone")]
    with pytest.raises(RowRejected, match="short") as found:
        reloaded(pg, table, too_long)
    assert "Persephone" not in tells(found.value)
    assert (names(pg), position(pg), left_of(pg, sink_of(pg))) == ({1: "a", 2: "b"}, 1, [])


# ── the merge ────────────────────────────────────────────────────────────────────────────────────────────────────────

DEPENDENTS = {
    "view": ("create view seen as select id from target",),
    "materialized view": ("create materialized view seen as select id from target",),
    "foreign key to it": ("create table child (id bigint references target)", "insert into child values (2)"),
    "foreign key out of it": (
        "create table parent (name text primary key)",
        "insert into parent values ('a'), ('b'), ('bb'), ('c')",
        "alter table target add foreign key (name) references parent",
    ),
    "policy": ("create policy mine on target using (true)",),
    "row level security": ("alter table target enable row level security",),
    "publication": ("create publication pub_{schema} for table target",),
    "publication of the schema": ("create publication pub_{schema} for tables in schema {schema}",),
    "rule": ("create rule quiet as on update to target where false do instead nothing",),
    "trigger": (
        "create function nothing() returns trigger language plpgsql as 'begin return new; end'",
        "create trigger nothing before update on target for each row execute function nothing()",
    ),
    "function of its row type": ("create function shown(target) returns text language sql as 'select $1.name'",),
    "column of its row type": ("create table holder (one target)",),
    "inheritance": ("create table heir () inherits (target)",),
    "statistics": ("create statistics both_columns on id, name from target",),
    "own column": ("alter table target add column own text default 'kept'",),
    "identity": ("alter table target add column n int generated always as identity",),
    "serial": ("alter table target add column n serial",),
}


@pytest.mark.parametrize("kind", DEPENDENTS)
def test_what_hangs_on_the_table_stays(spark: SparkSession, pg: Pg, kind: str) -> None:
    table = people(spark)
    filled(pg, table)
    for statement in DEPENDENTS[kind]:
        pg.query(statement)
    before = pg.query("select 'target'::regclass::oid")
    try:
        applied = reloaded(pg, table)
        assert "merge" in applied.seconds
        assert pg.query("select 'target'::regclass::oid") == before
        assert names(pg) == {2: "bb", 3: "c"}
        assert (position(pg), left_of(pg, sink_of(pg))) == (9, [])
        assert applied.inserts == 2
    finally:
        pg.query("drop publication if exists pub_{schema}")


def test_partitions_stay(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    pg.query("create table target (id bigint primary key, name text) partition by hash (id)")
    for part in (0, 1):
        pg.query(f"create table part{part} partition of target for values with (modulus 2, remainder {part})")
    filled(pg, table)
    assert "merge" in reloaded(pg, table).seconds
    assert names(pg) == {2: "bb", 3: "c"}


def test_a_merge_writes_only_what_differs_and_adds_columns(spark: SparkSession, pg: Pg) -> None:
    schema = StructType().add("id", "long").add("name", "string")
    table = SampleTable(spark, schema, ("id",))
    with loaded(pg, table, [A, B, person(4, "same"), person(5, None)]):
        pass
    pg.query("alter table target add column own text default 'mine'")
    pg.query("update target set own = 'kept' where id in (4, 5)")
    unchanged = pg.query("select id, own, xmin::text from target where id in (4, 5) order by id")
    wider = table.with_schema(StructType([*schema.fields]).add("sum", "double"))
    rows = [{**row, "sum": None} for row in (*AFTER, person(4, "same"), person(5, None))]
    applied = reloaded(pg, wider, rows)
    assert pg.query("select id, own, xmin::text from target where id in (4, 5) order by id") == unchanged
    assert pg.query("select id, own from target where id in (2, 3) order by id") == [(2, "mine"), (3, "mine")]
    assert applied.ddl == (f'alter table "{pg.schema}"."target" add column "sum" double precision',)
    rows[2]["sum"] = -0.0
    rows[3]["sum"] = 0.0
    reloaded(pg, wider, rows, 10)
    rows[2]["sum"], rows[3]["sum"] = 0.0, -0.0  # equal to `is distinct from`, different to verify
    reloaded(pg, wider, rows, 11)
    assert pg.query("select id, sum::text from target where id > 3 order by id") == [(4, "0"), (5, "-0")]


def test_what_a_merge_cannot_follow_is_named_at_once(spark: SparkSession, pg: Pg) -> None:
    filled(pg, people(spark))
    pg.query("create view seen as select id, name from target")
    changed = SampleTable(spark, StructType().add("id", "string").add("title", "string"), ("id",), table_id="x")
    with pytest.raises(TargetNotReady) as found:
        reloaded(pg, changed, [])
    problems = " | ".join(found.value.fields["problems"])
    assert "target.id is bigint, the source needs text" in problems
    assert "no longer has a column 'name'" in problems
    assert f"view {pg.schema}.seen" in problems
    assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 1)


def test_a_trigger_that_keeps_rows_out_is_noticed(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    filled(pg, table)
    pg.query("create function keep_out() returns trigger language plpgsql as 'begin return null; end'")
    pg.query("create trigger keep_out before insert on target for each row execute function keep_out()")
    with pytest.raises(TargetNotReady, match="a trigger or a rule"):
        reloaded(pg, table)
    assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 1)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Nobody catches it."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("way", ["swap", "merge"])
@pytest.mark.parametrize("moment", ["copied", "before the commit", "after the commit"])
def test_a_reload_that_dies_leaves_the_old_or_the_new(
    spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch, way: str, moment: str
) -> None:
    table = people(spark)
    filled(pg, table)
    if way == "merge":
        pg.query("create view seen as select id from target")
    usual = positions.move_and_record
    with monkeypatch.context() as patch:
        if moment == "copied":
            patch.setattr(*((open_readers, "wait_for_readers") if way == "swap" else (merge, "add_key")), killed)
        elif moment == "before the commit":

            def move(*args: Any, **options: Any) -> None:
                usual(*args, **options)
                raise Killed

            patch.setattr(positions, "move_and_record", move)
        else:
            done = open_readers.retry_locked

            def then_killed(session: Any, step: Callable[[], tuple[str, ...]], patience: float) -> tuple[str, ...]:
                done(session, step, patience)
                raise Killed

            patch.setattr(open_readers, "retry_locked", then_killed)
        sink = sink_of(pg)
        sink.open_to_reload(table.source())
        with pytest.raises(Killed):
            sink.reload(table.snapshot(9, AFTER))
        # As when the process is gone: nobody closes the sink or renews its lease
        assert sink._open_target.renewal is not None
        sink._open_target.renewal.stop()
        sink._session.main().close()
        pg.query("update deltarelay.position set lease_until = null where target = %s", f"{pg.schema}.target")
    new = moment == "after the commit"
    assert (names(pg), position(pg)) == (({2: "bb", 3: "c"}, 9) if new else ({1: "a", 2: "b"}, 1))
    assert bool(left_of(pg, sink_of(pg))) is not new
    with opened(pg, table.source()):
        assert left_of(pg, sink_of(pg)) == [], "the next open sweeps"
    reloaded(pg, table)
    assert (names(pg), position(pg)) == ({2: "bb", 3: "c"}, 9)


# ── the way out, on a real Delta table ───────────────────────────────────────────────────────────────────────────────


def test_a_reload_heals_what_verify_finds_and_a_replaced_table(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    source = Table(spark, delta_path, "id long, name string")
    source.sql("insert into {t} values (1, 'a'), (2, 'b')", "insert into {t} values (3, 'c')")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id", name="healed")
    pipeline.run()
    pg.query("delete from target where id = 1")
    assert not pipeline.verify().equal
    result = pipeline.reload()
    assert (result.position, result.loaded_rows, result.windows) == (2, 3, 0)
    assert pipeline.verify().equal

    shutil.rmtree(delta_path)
    source.forget()
    again = Table(spark, delta_path, "id long, title string, extra int")
    again.sql("insert into {t} values (7, 'x', 1)")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id", name="healed")
    with pytest.raises((TableReplaced, TargetNotReady)):
        pipeline.run()
    with pytest.raises(TargetNotReady, match="column 'name' with values in it"):
        pipeline.reload()  # this log has never heard of it
    pg.query("alter table target drop column name")
    assert pipeline.reload().position == 1
    again.sql("insert into {t} values (8, 'y', 2)")
    pipeline.run()
    assert pipeline.verify().equal
    assert pg.query("select id, title, extra from target order by id") == [(7, "x", 1), (8, "y", 2)]
    recorded = [(one.action, one.from_version, one.to_version) for one in sink_of(pg).standing().records]
    assert recorded == [("reload", 2, 1), ("reload", 2, 2)]


def test_a_column_of_somebodys_own_is_not_thrown_away_with_its_values(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    with loaded(pg, table, [person(1, "a")]):
        pass
    pg.query("alter table target add column note text")
    pg.query("update target set note = 'mine'")
    with pytest.raises(TargetNotReady, match=r"note.*the source has never had"):
        reloaded(pg, table)
    assert pg.query("select id, name, note from target") == [(1, "a", "mine")]
    pg.query("update target set note = null")
    reloaded(pg, table)
    assert set(names(pg)) == {2, 3}
