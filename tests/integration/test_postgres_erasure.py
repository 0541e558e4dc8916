"""A person is forgotten in a target: what the feed's delete has left there goes, and a scan tells what is left."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from audit.erasure.scan.results import ScanResult
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import Erasable, ErasureTask
from cdf import ChangeFeed, Pipeline
from cdf.errors import LeaseHeld, RowRejected, SinkUnavailable, WindowOutOfOrder
from connectors.postgres.column_mapping import Columns
from connectors.postgres.erasure import purge
from connectors.postgres.errors import StagingFailed
from connectors.postgres.options import Deletes, Modes
from connectors.postgres.state import migrations
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import left_of, names, opened, people, sink_of, tells

pytestmark = pytest.mark.usefixtures("interpreted")

WHO = "xanadu@example.org"
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


class PlainSearchTerms(SearchTerms):
    def find(self, data: bytes) -> Iterator[tuple[str, str]]:
        for term in self.terms:
            if term.value.encode() in data:
                yield term.request, "value"


TERMS = PlainSearchTerms([SearchTerm("r1", WHO, "email")])


class Replica:
    """A Delta table of people and its target, brought up to date by runs."""

    def __init__(self, spark: SparkSession, pg: Pg, path: str, **options: Any) -> None:
        self.spark, self.pg, self.path = spark, pg, path
        self.source = Table(spark, path, "id long, name string")
        self.sink = sink_of(pg, **options)
        self.pipeline = Pipeline(ChangeFeed(spark, path), self.sink, key="id", name="erasure")

    def run(self, *statements: str) -> int:
        """→ the version of the last one"""
        for statement in statements:
            self.source.sql(statement)
            self.pipeline.run()
        return ChangeFeed(self.spark, self.path).log.latest()

    def erasing(self, ids: Sequence[int], *versions: int, **changed: Any) -> ErasureTask:
        def keys() -> DataFrame:
            return self.spark.createDataFrame(self.spark.sparkContext.parallelize([(i,) for i in ids]), "id long")

        catch: Callable[[DataFrame], DataFrame] = lambda rows: rows.where(F.col("name").startswith("xanadu"))  # noqa: E731
        values = {"on_erase": "delete", "personal": ("name",)} | changed
        return ErasureTask(
            "run-1", ("r1",), self.path, versions, ("id",), keys=keys, catch=catch, search_terms=TERMS, **values
        )


def finds(scanned: ScanResult) -> set[tuple[str, str]]:
    assert all(find.request == "r1" and WHO not in repr(find) for find in scanned.finds)
    return {(find.place.rpartition(".")[2], find.reason) for find in scanned.finds}


def rows(pg: Pg) -> dict[int, str]:
    return dict(pg.query("select id, name from {schema}.target"))


def test_what_soft_deletes_keep_goes_and_only_that(
    spark: SparkSession,
    pg: Pg,
    delta_path: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG, logger="deltarelay")
    replica = Replica(spark, pg, delta_path, modes=Modes(deletes="soft"))
    sink = replica.sink
    assert isinstance(sink, Erasable)
    first = f"insert into {{t}} values (1, '{WHO}'), (2, 'other'), (3, '{WHO}'), (4, '{WHO} of old'), (5, 'gone')"
    erased = replica.run(first, "delete from {t} where id in (4, 5)", "delete from {t} where id in (1, 3)")
    assert rows(pg).keys() == {1, 2, 3, 4, 5}
    assert ("target", "soft-deleted row") in finds(sink.erasure.scan(TERMS))
    back = replica.run("insert into {t} values (3, 'came back')")

    with pytest.raises(WindowOutOfOrder, match="is at version") as refused:
        sink.erasure.erase(replica.erasing([1, 3], erased, back + 1))
    assert refused.value.hint is not None
    assert "run the pipeline" in refused.value.hint
    assert rows(pg).keys() == {1, 2, 3, 4, 5}

    # A database that goes away meanwhile is told as that
    def gone(_: str) -> None:
        raise StagingFailed("08006")

    with monkeypatch.context() as patch:
        patch.setattr("connectors.postgres.staging.adbc_copy.bulk_connection", gone)
        with pytest.raises(SinkUnavailable) as told:
            sink.erasure.erase(replica.erasing([1, 3], erased))
    assert told.value.transient
    with monkeypatch.context() as patch:  # as if a crash of the server had emptied staging, which is UNLOGGED
        patch.setattr("connectors.postgres.staging.adbc_copy.copy_batches", lambda *_: None)
        with pytest.raises(SinkUnavailable, match="does not have the number of keys"):
            sink.erasure.erase(replica.erasing([1, 3], erased))
    assert rows(pg).keys() == {1, 2, 3, 4, 5}

    pg.query(f"drop table if exists deltarelay.stage_{sink._session._tag}_0")
    pg.query(f"create table deltarelay.stage_{sink._session._tag}_0 as select '{WHO}' as c0")
    assert any(reason == "staging" for _, reason in finds(sink.erasure.scan(TERMS)))
    with opened(pg, people(spark).source()), pytest.raises(LeaseHeld) as held:
        sink.erasure.erase(replica.erasing([1, 3], erased))
    assert WHO not in tells(held.value)
    assert sink.standing().lease_holder is None

    pg.query(f"create table deltarelay.stage_{sink._session._tag}_0 as select '{WHO}' as c0")
    assert sink.erasure.erase(replica.erasing([1, 3], erased)) == {"rows": 2, "dead letters": 0, "staging tables": 1}
    # 4 was lost by the source before, and is the person's by what it holds
    assert rows(pg) == {2: "other", 3: "came back", 5: "gone"}
    assert left_of(pg, sink) == []
    assert sink.erasure.erase(replica.erasing([1, 3], erased)) == {"rows": 0, "dead letters": 0, "staging tables": 0}
    assert rows(pg) == {2: "other", 3: "came back", 5: "gone"}
    replica.run("insert into {t} values (6, 'next')")  # goes on as before
    assert WHO not in caplog.text


def test_ignored_deletes_are_made_good_where_the_source_has_no_such_row(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    columns = Columns(rename={"name": "title", "id": "nummer"})
    replica = Replica(spark, pg, delta_path, modes=Modes(deletes="ignore"), columns=columns)
    erased = replica.run(f"insert into {{t}} values (1, '{WHO}'), (2, 'b'), (3, 'c'), (4, '{WHO}')", "delete from {t}")
    replica.run("insert into {t} values (2, 'back'), (4, 'xanadu again')")
    assert replica.sink.erasure.erase(replica.erasing([1, 2], erased))["rows"] == 1
    assert pg.query("select nummer, title from target order by 1") == [(2, "back"), (3, "c"), (4, "xanadu again")]


def test_a_key_with_a_backtick_in_its_name_is_caught(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(spark, delta_path, "`i``d` long, name string")
    sink = sink_of(pg, modes=Modes(deletes="ignore"))
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="i`d", name="erasure")
    for statement in (f"insert into {{t}} values (1, '{WHO}'), (2, 'other')", "delete from {t} where `i``d` = 1"):
        table.sql(statement)
        pipeline.run()
    erasing = ErasureTask(
        "run-1",
        ("r1",),
        delta_path,
        (),
        ("i`d",),
        keys=lambda: spark.createDataFrame(spark.sparkContext.emptyRDD(), "`i``d` long"),
        catch=lambda rows: rows.where(F.col("name").startswith("xanadu")),
        search_terms=TERMS,
        on_erase="delete",
        personal=("name",),
    )
    assert sink.erasure.erase(erasing)["rows"] == 1
    assert pg.query('select "i`d", name from target') == [(2, "other")]


def test_nullified_rows_keep_their_key_and_the_server_logs_no_value(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    logged = psycopg.conninfo.make_conninfo(pg.dsn, options="-c log_statement=all -c log_min_error_statement=log")
    replica = Replica(spark, pg, delta_path, modes=Modes(deletes="soft"), dsn=logged)
    replica.run(f"insert into {{t}} values (1, '{WHO}'), (7654321, 'b'), (3, 'c')", "delete from {t} where id <> 3")
    erasing = replica.erasing([7654321], on_erase="nullify")
    assert replica.sink.erasure.erase(erasing)["rows"] == 2
    assert rows(pg) == {1: None, 7654321: None, 3: "c"}
    assert replica.sink.erasure.erase(erasing)["rows"] == 0
    ((log,),) = pg.query("select pg_read_file('server.log', 0, 100000000, true)")
    if log is not None:  # a server that is not ours keeps its log elsewhere
        assert "set name = null" in log.replace('"', "").lower()
        assert "7654321" not in log


def test_keys_are_met_in_the_types_of_the_target(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    pg.query("create table target (k uuid, number smallint, at timestamp(3), name text, primary key (k, number, at))")
    source = Table(spark, delta_path, "k string, number decimal(9,2), at timestamp, name string")
    sink = sink_of(pg, modes=Modes(deletes="soft"))
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key=("k", "number", "at"), name="erasure")
    one, two = (f"{digit * 8}-1111-4111-8111-{digit * 12}" for digit in "12")
    at = "timestamp'2026-03-29 01:30:00.125Z'"
    source.sql(f"insert into {{t}} values ('{one}', 7, {at}, 'a'), ('{two}', 7, {at}, 'b')")
    pipeline.run()
    source.sql("delete from {t}")
    pipeline.run()

    def keys() -> DataFrame:
        found = [(one, "7.00"), (one, "7.50"), ("no uuid", "7"), (one + "\0", "7"), (two, "40000")]
        texts = spark.createDataFrame(spark.sparkContext.parallelize(found), "k string, number string")
        return texts.selectExpr("k", "cast(number as decimal(9,2)) number", f"{at} as at")

    erasing = ErasureTask(
        "run-1",
        (),
        delta_path,
        (2,),
        ("k", "number", "at"),
        "delete",
        (),
        keys=keys,
        catch=lambda rows: rows.where("name = 'nobody'"),
        search_terms=TERMS,
    )
    assert sink.erasure.erase(erasing)["rows"] == 1
    assert pg.query("select name from target") == [("b",)]


def test_letters_of_the_person_go_and_later_ones_stay(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    pg.query("create table target (id bigint primary key, name text check (name not like 'xanadu%'))")
    replica = Replica(spark, pg, delta_path, modes=Modes(rejects="dead_letter", reject_rows=True))
    first = replica.run(f"insert into {{t}} values (1, '{WHO}'), (2, '{WHO}'), (3, 'c')")
    last = replica.run("insert into {t} values (4, 'xanadu of late')")
    sink = replica.sink
    assert finds(sink.erasure.scan(TERMS)) >= {("dead_letter", "dead letter")}
    # as after a runner that knew nothing of letters: the source's delete has settled none
    emptied = replica.erasing([1, 4], first, on_erase="nullify")
    assert sink.erasure.erase(emptied)["dead letters"] == 1
    assert [letter.row is None for letter in sink.dead_letters()] == [True, False, False]
    assert sink.erasure.erase(emptied)["dead letters"] == 0
    assert sink.erasure.erase(replica.erasing([1, 4], first))["dead letters"] == 1
    assert {int(json.loads(letter.key)["id"]) for letter in sink.dead_letters()} == {2, 4}
    assert sink.erasure.erase(replica.erasing([1, 2, 4], first, last))["dead letters"] == 2
    assert names(pg) == {3: "c"}


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_row_whose_erasing_delete_was_refused_goes_with_its_letter(
    spark: SparkSession, pg: Pg, delta_path: str, deletes: Deletes
) -> None:
    replica = Replica(spark, pg, delta_path, modes=Modes(deletes=deletes, rejects="dead_letter", reject_rows=True))
    sink = replica.sink
    replica.run(f"insert into {{t}} values (1, '{WHO}'), (2, '{WHO}'), (3, '{WHO}'), (4, 'other')")
    pg.query(
        "create function {schema}.keep() returns trigger language plpgsql as $$ begin raise exception 'kept'; end $$"
    )
    pg.query(
        "create trigger keep before update or delete on target for each row when (old.id = 1) execute function keep()"
    )
    replica.run("delete from {t} where id in (0, 1)")  # an ordinary one, before the person asked
    erased = replica.run("delete from {t} where id < 4")
    replica.run("insert into {t} values (3, 'came back')")
    erasing = replica.erasing([2, 3], erased)
    source = ChangeFeed(spark, delta_path)
    kept = [row.name for part in sink.erasure.retained_rows(source, {"name"}) for row in part.collect()]
    assert sorted(kept) == sorted(rows(pg).values())
    assert WHO in kept
    for body in "raise exception 'kept'", "return null":
        pg.query(f"create or replace function keep() returns trigger language plpgsql as $$ begin {body}; end $$")
        with pytest.raises(RowRejected) as refused:
            sink.erasure.erase(erasing)
        assert "nothing was changed" in (refused.value.hint or "")
        assert WHO not in tells(refused.value)
        assert rows(pg) == {1: WHO, 3: "came back", 4: "other"} | ({2: WHO} if deletes == "soft" else {})
        assert [letter.change for letter in sink.dead_letters()] == ["delete"]
    pg.query("drop trigger keep on target")
    assert sink.erasure.erase(erasing) == {
        "rows": 2 if deletes == "soft" else 1,
        "dead letters": 1,
        "staging tables": 0,
    }
    assert (rows(pg), sink.dead_letters()) == ({3: "came back", 4: "other"}, [])

    # Whether the row is from before the erasure, only whoever mends the letter finds out
    pg.query("alter table target add check (name <> 'of late')")
    replica.run("update {t} set name = 'of late' where id = 3")
    with pytest.raises(RowRejected, match="1 row"):
        sink.erasure.erase(erasing)
    assert rows(pg) == {3: "came back", 4: "other"}
    assert len(sink.dead_letters()) == 1


def test_a_row_that_refused_to_be_emptied_is_emptied_under_its_letter(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    pg.query("create table target (id bigint primary key, name text not null)")
    replica = Replica(spark, pg, delta_path, modes=Modes(rejects="dead_letter", reject_rows=True))
    sink = replica.sink
    first = f"insert into {{t}} values (1, '{WHO}'), (2, '{WHO}'), (3, 'other')"
    erased = replica.run(first, "update {t} set name = null where id < 3")
    replica.run("update {t} set name = 'came back' where id = 2")
    erasing = replica.erasing([1, 2], erased, on_erase="nullify")
    with pytest.raises(RowRejected, match="'name'"):
        sink.erasure.erase(erasing)
    assert rows(pg) == {1: WHO, 2: "came back", 3: "other"}
    assert [letter.row is None for letter in sink.dead_letters()] == [False]
    pg.query("alter table target alter name drop not null")
    assert sink.erasure.erase(erasing) == {"rows": 1, "dead letters": 1, "staging tables": 0}
    assert rows(pg) == {1: None, 2: "came back", 3: "other"}
    assert [letter.row is None for letter in sink.dead_letters()] == [True]


def test_short_identifiers_are_found_under_the_names_of_the_target(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    pg.query("create table target (title text check (title not like 'xanadu%'), nummer bigint primary key)")
    renamed = Columns(rename={"name": "title", "id": "nummer"})
    replica = Replica(spark, pg, delta_path, modes=Modes(rejects="dead_letter", reject_rows=True), columns=renamed)
    sink, terms = replica.sink, SearchTerms([SearchTerm("r1", "4711", "id")])
    replica.run("insert into {t} values (1, '4711'), (2, 'b')")
    assert finds(sink.erasure.scan(terms)) == set()
    replica.run("insert into {t} values (4711, 'xanadu')")
    assert finds(sink.erasure.scan(terms)) == {("dead_letter", "dead letter")}
    replica.run("update {t} set name = 'c' where id = 4711")
    assert finds(sink.erasure.scan(terms)) == {("target", "current row")}
    replica.run("delete from {t} where id = 4711")

    loading, on_its_way = (f"deltarelay.{kind}_{sink._session._tag}_0" for kind in ("load", "stage"))
    pg.query(f"create table {loading} as select 'x' as title, 4711 as nummer")
    pg.query(f"create table {on_its_way} as select 4711 as c0, null as _reject_key")
    scanned = sink.erasure.scan(terms)
    assert {find.place for find in scanned.finds} == {loading}
    assert [one.place for one in scanned.unseen if "a staged row" in one.why] == [on_its_way]
    pg.query(f"""update {on_its_way} set c0 = 4712, _reject_key = '{{"nummer":4711}}'""")
    scanned = sink.erasure.scan(terms)
    assert {find.place for find in scanned.finds} == {loading, on_its_way}
    assert not [one for one in scanned.unseen if "a staged row" in one.why]
    pg.query(f"drop table {loading}, {on_its_way}")


def test_letters_of_other_targets_are_not_told_of_and_their_numbers_are_nobodys(
    spark: SparkSession, pg: Pg, delta_path: str
) -> None:
    """The table of dead letters is everybody's, and numbers them in a column that is called ``id``."""
    named = PlainSearchTerms([SearchTerm("r1", other := "zaphod@example.org", "email")])  # no other test looks for it
    replica = Replica(spark, pg, delta_path, modes=Modes(rejects="dead_letter", reject_rows=True))
    sink = replica.sink
    replica.run("insert into {t} values (1, 'a')")
    pg.query(migrations.CREATE_DEAD_LETTER)
    for number in range(40):
        said = f'{{"id": {number}, "name": "{other}"}}' if number % 2 else '{"id": 0}'
        pg.query(
            "insert into deltarelay.dead_letter (target, pipeline, source, change, reason, key_digest, key, row) "
            "values ('{schema}.other', 'p', 's', 'insert', 'r', %s, '{}', %s)",
            str(number),
            said,
        )
    [(last,)] = pg.query("select max(id) from deltarelay.dead_letter")
    numbered = SearchTerms([SearchTerm("r1", str(last), "id")])
    pg.query("analyze deltarelay.dead_letter")
    try:
        assert found_in_letters(pg, other)
        for terms in (named, numbered):
            assert finds(sink.erasure.scan(terms)) == set()
    finally:
        pg.query("delete from deltarelay.dead_letter where target = '{schema}.other'")


def found_in_letters(pg: Pg, value: str) -> bool:
    """The statistics have it, or nothing would be shown here."""
    rows = pg.query(
        "select most_common_vals::text, histogram_bounds::text from pg_stats where tablename = 'dead_letter'"
    )
    return any(value in str(text) for texts in rows for text in texts)


def test_plain_vacuum_leaves_what_purge_removes(
    spark: SparkSession, pg: Pg, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(purge, "LOCK_TIMEOUT", "500ms")
    replica = Replica(spark, pg, delta_path, modes=Modes(deletes="soft"))
    sink = replica.sink
    replica.run(f"insert into {{t}} select id, concat('{WHO}', id % 3) from range(200)")
    pg.query("create index on target (name)")
    # Between the delete and the insert autovacuum would truncate the empty table, and the dead tuples with it
    pg.query("alter table target set (autovacuum_enabled = off)")
    pg.query("analyze target")
    assert finds(sink.erasure.scan(TERMS)) == {("target", "current row"), ("target", "planner statistics")}
    older = psycopg.connect(pg.dsn)
    older.execute("set transaction isolation level repeatable read")
    older.execute("select txid_current()")
    erased = replica.run("delete from {t}", "insert into {t} values (1000, 'other')")
    assert sink.erasure.erase(replica.erasing(range(200), erased - 1))["rows"] == 200
    pg.query("vacuum target")
    assert ("target", "planner statistics") in finds(sink.erasure.scan(TERMS))
    waiting = sink.erasure.purge(replica.erasing([], erased), now=NOW)
    assert waiting.waits_for is not None
    assert "older than the erasure" in waiting.waits_for
    assert waiting.waits_until == NOW + dt.timedelta(hours=1)
    older.close()
    pg.query("vacuum target")
    left = finds(sink.erasure.scan(TERMS))
    assert ("target", "dead tuple") in left

    with psycopg.connect(pg.dsn) as reader:
        reader.execute(f"lock table {pg.schema}.target in access share mode")
        waiting = sink.erasure.purge(replica.erasing([], erased), now=NOW)
    assert waiting.waits_for is not None
    assert "VACUUM FULL" in waiting.waits_for
    assert ("target", "dead tuple") in finds(sink.erasure.scan(TERMS))

    done = sink.erasure.purge(replica.erasing([], erased), now=NOW)
    assert (done.waits_for, done.waits_until) == (None, None)
    assert done.done["tables written anew"] >= 1
    assert any("write-ahead log" in text for text in done.out_of_reach)
    after = sink.erasure.scan(TERMS)
    assert (finds(after), after.unseen) == (set(), ())
    assert {"current rows of " + f"{pg.schema}.target", f"pages of {pg.schema}.target"} <= {
        c.what for c in after.checked
    }
    assert sink.erasure.purge(replica.erasing([], erased), now=NOW).done["tables written anew"] == 0
    assert rows(pg) == {1000: "other"}

    replica.run(f"insert into {{t}} select id, '{WHO}' from range(20)")
    pg.query("create statistics both_of (mcv) on id, name from target")
    pg.query("analyze target")
    assert pg.query(
        "select count(*) from pg_stats_ext where statistics_name = 'both_of' and most_common_vals is not null"
    ) != [(0,)]
    emptied = replica.run("delete from {t}")
    sink.erasure.erase(replica.erasing([*range(20), 1000], emptied))
    pg.query("vacuum analyze target")
    assert ("target", "planner statistics") in finds(sink.erasure.scan(TERMS))  # ANALYZE keeps those of an empty table
    scanned = sink.erasure.scan(SearchTerms([SearchTerm("r1", "7", "id")]))
    assert any("extended statistics" in unseen.why for unseen in scanned.unseen)
    sink.erasure.purge(replica.erasing([], emptied), now=NOW)
    assert finds(sink.erasure.scan(TERMS)) == set()
    # Nothing of it is in a catalog, and nothing unseen: no more is left to look at
    scanned = sink.erasure.scan(SearchTerms([SearchTerm("r1", "7", "id")]))
    assert not any("extended statistics" in unseen.why for unseen in scanned.unseen)


def test_pages_are_written_anew_for_a_number_that_nobody_would_find_there(
    spark: SparkSession, pg: Pg, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "LOCK_TIMEOUT", "500ms")
    replica = Replica(spark, pg, delta_path)
    sink, number = replica.sink, SearchTerms([SearchTerm("r1", "4711", "id")])
    replica.run(f"insert into {{t}} select id, '{WHO}' from range(4700, 4800)")
    # Between the delete and the insert autovacuum would truncate the empty table, and the dead tuples with it
    pg.query("alter table target set (autovacuum_enabled = off)")
    pg.query("analyze target")
    erased = replica.run("delete from {t}", "insert into {t} values (1, 'other')")
    erasing = dataclasses.replace(replica.erasing([4711], erased), search_terms=number)
    sink.erasure.erase(erasing)

    def anew() -> int:
        return sink.erasure.purge(erasing, now=NOW).done["tables written anew"]

    def is_unseen() -> bool:
        why = [one.why for one in sink.erasure.scan(number).unseen if one.place == f"dead tuples of {pg.schema}.target"]
        return any("short or numeric" in one for one in why)

    pg.query("vacuum target")
    assert ("target", "dead tuple") in finds(sink.erasure.scan(TERMS))
    assert is_unseen()
    assert finds(sink.erasure.scan(number)) == {("target", "planner statistics")}
    with psycopg.connect(pg.dsn) as reader:
        reader.execute(f"lock table {pg.schema}.target in access share mode")
        assert sink.erasure.purge(erasing, now=NOW).waits_for is not None
    assert is_unseen()
    assert anew() > 0
    assert finds(sink.erasure.scan(TERMS)) == set()
    assert (finds(sink.erasure.scan(number)), sink.erasure.scan(number).unseen) == (set(), ())
    assert anew() == 0

    # As long as there is a row it may die yet
    sink.erasure.erase(erasing)
    pg.query("insert into target values (4711, 'by hand')")
    assert is_unseen()
    assert anew() > 0
    assert is_unseen()
    pg.query("delete from target where id = 4711")
    assert anew() > 0
    assert not sink.erasure.scan(number).unseen
    assert anew() == 0


def test_pages_that_the_role_may_not_read_are_unseen(pg: Pg) -> None:
    role = f"r_{pg.schema}"
    pg.query("create table target (id bigint primary key, name text)")
    pg.query(f"create role {role} login password 'x'")
    try:
        pg.query(f"grant usage on schema {pg.schema} to {role}; grant select on {pg.schema}.target to {role}")
        pg.query("insert into target values (1, 'xanadu@example.org')")
        sink = sink_of(pg, dsn=psycopg.conninfo.make_conninfo(pg.dsn, user=role, password="x"))
        scanned = sink.erasure.scan(TERMS)
        assert finds(scanned) == {("target", "current row")}
        assert any(unseen.place == f"dead tuples of {pg.schema}.target" for unseen in scanned.unseen)
        done = sink.erasure.purge(ErasureTask("run", (), "t", (), ("id",), "delete", (), None, None, TERMS), now=NOW)  # type: ignore[arg-type]
        assert any("its owner must run VACUUM FULL" in text for text in done.out_of_reach)
    finally:
        pg.query(f"drop owned by {role}; drop role {role}")
