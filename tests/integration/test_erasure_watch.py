"""Somebody who was erased comes back: seen before a sink gets the row, in any spelling, by any way into the table."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from audit.database import DatabaseMissing, LoginRefused
from audit.erasure.commit_marker import erasing_metadata, make_proof
from audit.erasure.guard import ErasedPersonReturned, ErasureAtWork, ErasureNotRecorded, Watch, marks_of
from audit.erasure.model import Hold, Link, PersonalTable, Request, Subject
from audit.erasure.register.identity import RegisterIncomplete, RegisterMismatch, RegisterMissing
from audit.erasure.register.records import Carrier
from audit.erasure.register.secrets import Keys, SealKey, WatchKey
from audit.erasure.register.store import Register
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer
from cdf import ChangeFeed, Pipeline
from cdf.changes.commits import Commit
from cdf.changes.window import Window
from cdf.errors import CdfError, SinkUnavailable
from cdf.pipeline.replay import replay
from cdf.sink import Bounds, Position
from cdf.testing import MemorySink
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table, setting
from tests.integration.postgres_case import sink_of

SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
KEYS = Keys(SIGNER)
TODAY = dt.datetime.now(dt.UTC).date()


@pytest.fixture
def register(pg: Pg) -> Register:
    made = Register(pg.dsn, schema=pg.schema)
    made.prepare()
    return made


class Watching:
    """Customers at a path, watched; DSR-1 was erased, with e-mail and number."""

    def __init__(self, register: Register, path: str) -> None:
        self.register, self.path = register, path
        self.graph = Graph.of(
            SUBJECTS, [PersonalTable(path, "customer", "customer_id", ("email", "customer_id"), "delete")]
        )
        known = {"email": CANARY, "customer_id": "700"}
        asked = Request("DSR-1", "customer", known, TODAY, TODAY + dt.timedelta(days=30), "GDPR Art. 17", "desk")
        register.add([asked], KEYS)
        register.begin("er-1", ["DSR-1"], "digest")
        with register.lease("er-1") as held:
            marks = {("DSR-1", *mark) for mark in marks_of(KEYS, self.graph, "customer", known.items())}
            held.suppress(["DSR-1"], marks, TODAY + dt.timedelta(days=365))
        self.watch = Watch(lambda: register, KEYS.marker, self.graph)


class Watched(Watching):
    """With the table, and a pipeline that carries it into memory."""

    def __init__(self, register: Register, table: Table) -> None:
        super().__init__(register, table.path)
        self.table, self.sink = table, MemorySink()
        feed = ChangeFeed(table.spark, table.path)
        self.pipeline = Pipeline(feed, self.sink, key=["customer_id"], guard=self.watch)

    def forget_marks(self) -> None:
        """What it knows of the register is up to ten seconds old."""
        self.watch._read_at = float("-inf")

    def stops(self) -> None:
        """Nothing is applied, and nobody's identifier is shown."""
        before = self.sink.store.contents.position
        with pytest.raises(ErasedPersonReturned) as refused:
            self.pipeline.run()
        assert refused.value.fields["requests"] == ["DSR-1"]
        assert "canary" not in str(refused.value).lower()
        assert self.sink.store.contents.position == before


@pytest.fixture(scope="module")
def customers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Tests change copies."""
    path = tmp_path_factory.mktemp("watched") / "customers"
    table = Table(spark, str(path), "customer_id long, email string, name string")
    table.sql("insert into {t} select id, concat('p', id, '@example.org'), 'n' from range(5)")
    return table


@pytest.fixture
def watching(register: Register) -> Watching:
    return Watching(register, "/data/customers")


@pytest.fixture
def watched(interpreted: None, customers: Table, delta_path: str, register: Register) -> Watched:
    return Watched(register, customers.copy(delta_path))


def test_pipelines_stop_until_it_is_mended_or_decided(watched: Watched) -> None:
    """One table whose pipeline meets the person in every way, each time mended by one more delete."""
    table, pipeline = watched.table, watched.pipeline
    bad = "cast(X'61FF40' as string)"  # identifiers that are no text hide nobody
    watched.watch.targets = {pipeline.name: "table a"}

    # A first copy is not made
    table.sql(f"insert into {{t}} values (10, {bad}, 'n'), (9, '{CANARY}', 'n')")
    watched.stops()
    assert watched.sink.store.contents.position.version is None
    table.sql("delete from {t} where customer_id = 9")
    assert pipeline.run().position == 3
    # The register knows who carries the table
    known = watched.register.carriers([table.path])
    assert known == (Carrier(pipeline.name, table.path, "table a"),)

    # Nor a window applied, however it is written; those who are erased again pass
    hidden = CANARY.replace("c", chr(0xFF43)).replace("@", chr(0x200B) + " @")
    for row in (f"9, ' {CANARY.upper()} '", "700, 'other@example.org'", f"9, '{hidden}'"):
        table.sql(f"insert into {{t}} values (8, 'q@example.org', 'n'), ({row}, 'n'), (11, {bad}, 'n')")
        watched.stops()
        watched.stops()
        table.sql("delete from {t} where customer_id in (8, 9, 11, 700)")
        pipeline.run()
    assert held(watched) == {0, 1, 2, 3, 4, 10}

    # Others pass, and deletes do
    table.sql("update {t} set name = 'm' where customer_id = 2", "delete from {t} where customer_id = 3")
    assert pipeline.run().position == 11

    # Who was erased by an earlier version, which told one composition of an accent from the other; so did its marks
    mark = KEYS.mark("customer.email", "jo\u0308rg@example.org")
    with watched.register.lease("er-1") as held_register:
        held_register.suppress(["DSR-1"], {("DSR-1", "email", mark)}, TODAY + dt.timedelta(days=365))
    watched.forget_marks()
    table.sql("insert into {t} values (9, 'J\u00f6rg@Example.org', 'n')")
    watched.stops()

    # The control: without the guard it goes through
    pipeline.context.guard = None
    assert pipeline.run().position == 12
    pipeline.context.guard = watched.watch

    # A recorded decision
    table.sql("insert into {t} values (700, 'new@example.org', 'n')")
    watched.stops()
    watched.register.release(["DSR-1"], "the privacy desk", "a customer again, by a contract of today")
    watched.forget_marks()
    assert pipeline.run().position == 13


def test_what_is_there_by_right(watching: Watching) -> None:
    """A column that nobody empties, and a table under a hold."""
    path, rows = watching.path, cast(Any, SimpleNamespace(columns=["customer_id", "email", "name"]))
    [one] = watching.graph.order
    assert set(watching.watch._columns(path, rows)) == {"customer_id", "email"}
    emptied = PersonalTable(path, "customer", Link("customer_id", path + "2", "customer_id"), ("email",))
    for tables, holds in (
        ([one], [Hold(path, TODAY + dt.timedelta(days=9), "tax law")]),
        ([PersonalTable(path + "2", "customer", "customer_id"), emptied], []),
    ):
        graph = Graph.of(SUBJECTS, tables, holds)
        expected = set() if holds else {"customer_id"}
        assert set(Watch(lambda: watching.register, KEYS.marker, graph)._columns(path, rows)) == expected


def held(watched: Watched) -> set[int]:
    return {key for (key,) in watched.sink.store.contents.rows}


class TestLeftOut:
    """As if the table had never held their rows."""

    def test_the_others_go_on(self, watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
        """In a first copy, and in windows."""
        watched.watch.on_return = "leave_out"
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')")
        assert watched.pipeline.run().position == 2
        assert held(watched) == {0, 1, 2, 3, 4}
        [standing] = watched.register.requests(["DSR-1"])
        assert standing.returned_at
        assert standing.returned_to == watched.table.path
        caplog.clear()
        watched.table.sql(f"insert into {{t}} values (8, 'q@example.org', 'n'), (90, ' {CANARY.upper()} ', 'n')")
        assert watched.pipeline.run().position == 3
        assert held(watched) == {0, 1, 2, 3, 4, 8}
        [alarm] = [one for one in caplog.records if one.name == "deltarelay.erasure"]
        assert (alarm.levelname, alarm.code, alarm.requests) == ("ERROR", "erased_person_returned", ["DSR-1"])  # type: ignore[attr-defined]
        assert "canary" not in str(vars(alarm)).lower()

    def test_every_change(self, watched: Watched) -> None:
        """An update into their rows is a delete, one out of them an insert; a delete has its key alone."""
        watched.watch.on_return = "leave_out"
        watched.pipeline.run()
        watched.table.sql(
            f"update {{t}} set email = '{CANARY}' where customer_id = 1",  # into
            "update {t} set name = 'm' where customer_id = 1",  # within
            "update {t} set email = 'p1@example.org' where customer_id = 1",  # out of
            "update {t} set customer_id = 700 where customer_id = 2",  # into, by the key
            "update {t} set customer_id = 2 where customer_id = 700",  # out of, by the key
            f"insert into {{t}} values (9, '{CANARY}', 'n')",
            "delete from {t} where customer_id = 9",
            f"insert into {{t}} values (10, '{CANARY}', 'n')",  # who is still there
        )
        [window] = watched.pipeline.windows(Position(1), 9)
        left = watched.pipeline.context.apply_guard(window)
        rows = left.read().select("_commit_version", "_change_type", "customer_id", "email", "name").collect()
        assert sorted(map(tuple, rows)) == [
            (2, "delete", 1, "p1@example.org", "n"),
            (4, "insert", 1, "p1@example.org", "m"),
            (5, "update_preimage", 2, "p2@example.org", "n"),
            (6, "delete", 700, None, None),
            (6, "update_postimage", 2, "p2@example.org", "n"),
            (8, "delete", 9, None, None),
        ]
        assert left.read().columns == window.read().columns
        assert watched.pipeline.run().position == 9
        assert held(watched) == {0, 1, 2, 3, 4}

    def test_a_dead_letter_does_not_bring_them_in(self, watched: Watched, pg: Pg) -> None:
        """The window that left their row out has deleted the letter of its key; a replay asks the guard besides."""
        watched.watch.on_return = "leave_out"
        sink = sink_of(pg, modes=Modes(rejects="dead_letter"))
        feed = ChangeFeed(watched.table.spark, watched.table.path)
        pipeline = Pipeline(feed, sink, key=["customer_id"], guard=watched.watch)
        pipeline.run()
        pg.query("alter table target add constraint short check (length(name) < 3)")
        watched.table.sql("update {t} set name = 'long' where customer_id in (1, 2)")
        assert pipeline.run().rejected == 2
        watched.table.sql(f"update {{t}} set name = 'm', email = '{CANARY}' where customer_id = 1")
        pipeline.run()
        pg.query("alter table target drop constraint short")
        replay(pipeline.runner)
        assert pg.query("select customer_id, name from target order by 1") == [
            (0, "n"),
            (2, "long"),
            (3, "n"),
            (4, "n"),
        ]

    def test_what_erased_them_passes_as_it_is(self, watched: Watched) -> None:
        """Sinks know what to do with such a commit: the pipeline says which one it is."""
        watched.pipeline.run()
        # Who was deleted again, where pipelines stop: nothing stops them, and no sink of history gets the row on the way
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')", "delete from {t} where customer_id = 9")
        [window] = watched.pipeline.windows(Position(1), 3)
        assert [tuple(row)[:4] for row in watched.pipeline.context.apply_guard(window).read().collect()] == [
            (9, None, None, "delete")
        ]
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')")
        metadata = erasing_metadata("er-1", [])
        with setting(watched.table.spark, "spark.databricks.delta.commitInfo.userMetadata", metadata):
            watched.table.sql("delete from {t} where customer_id = 9", "delete from {t} where customer_id = 2")
        with watched.register.lease("er-1") as held:
            held.record_step(watched.table.path, "delete", {"rows": 1, "versions": [5]})

        def told(window: Window) -> list[tuple[int, bool]]:
            return [(one.version, one.erasing) for one in window.commits]

        first, second = watched.pipeline.windows(Position(3), 6)  # one ends where somebody was erased
        assert [told(first), told(second)] == [[(4, False), (5, True)], [(6, False)]]
        [row] = watched.pipeline.context.apply_guard(first).read().collect()
        assert (row["_commit_version"], row["email"]) == (5, CANARY)
        [pending] = watched.pipeline.windows(Position(3, pending=Bounds(4, 6)), 6)  # begun by a runner that died
        assert told(pending) == [(4, False), (5, True), (6, False)]


def test_a_register_that_cannot_answer(watched: Watched, pg: Pg) -> None:
    """Nothing is applied, and no commit counts as an ordinary one: whatever is not known is not "no one was erased"."""
    good, other = watched.watch, Keys(Signer.generate("example.org/another"))
    unreachable = "postgresql://127.0.0.1:1/nowhere?connect_timeout=1"
    refused, nowhere = make_conninfo(pg.dsn, user="no_such_role"), make_conninfo(pg.dsn, dbname="no_such_database")

    def watch(dsn: str = pg.dsn, schema: str = pg.schema, keys: Keys = KEYS, **more: str) -> Watch:
        return Watch(lambda: Register(dsn, schema=schema), keys.marker, watched.graph, **more)  # type: ignore[arg-type]

    def stops(guard: Watch, kind: type[CdfError]) -> None:
        watched.pipeline.context.guard = guard
        with pytest.raises(kind) as found:
            watched.pipeline.run()
        assert type(found.value) is kind
        assert watched.sink.store.contents.position.version is None
        with pytest.raises(kind):
            guard.erased([commit(3, "er-1")], table=watched.table.path)

    stops(watch(unreachable), SinkUnavailable)
    stops(watch(refused), LoginRefused)
    stops(watch(nowhere), DatabaseMissing)
    stops(watch(schema="mis_spelt"), RegisterMissing)
    stops(watch(identity="of-another-register"), RegisterMismatch)
    stops(watch(keys=other), RegisterMismatch)
    identity = watched.register.bind(KEYS)
    pg.query("alter table {schema}.mark rename to hidden")
    stops(watch(), RegisterIncomplete)
    with pytest.raises(RegisterIncomplete, match=r"no table mark$"):
        watched.register.prepare()  # it would be empty
    pg.query("alter table {schema}.hidden rename to mark")
    watched.pipeline.context.guard = watch(identity=identity)
    assert watched.pipeline.run().position == 1
    watched.pipeline.context.guard = good
    assert watched.pipeline.run().position == 1


def test_a_register_of_an_earlier_version(watched: Watched, pg: Pg) -> None:
    pg.query("drop table {schema}.register, {schema}.carrier, {schema}.schema_version")
    with pytest.raises(RegisterIncomplete) as found:
        watched.pipeline.run()
    assert "erase init" in str(found.value.hint)
    watched.register.prepare()
    with pytest.raises(RegisterIncomplete, match="earlier version"):
        watched.pipeline.run()
    with pytest.raises(RegisterMismatch):
        watched.register.bind(Keys(Signer.generate("example.org/another")))
    watched.register.bind(KEYS)
    assert watched.pipeline.run().position == 1


def test_a_watch_key_that_was_replaced_is_known_as_a_former_one(watching: Watching) -> None:
    """Until the register is bound to the new key both sides go on; afterwards one that only has the old key is refused."""
    old, new = WatchKey.generate(), WatchKey.generate()
    before, after = (Keys(None, watch=watch, seal=[SealKey.generate()]) for watch in ([old], [new, old]))
    identity = watching.register.bind(KEYS)
    with pytest.raises(RegisterMismatch):
        watching.register.check(before.marker)
    both = Keys(SIGNER, watch=[old], seal=[SealKey.generate()])
    assert watching.register.bind(both) == identity  # the keys that come from the signing key are former ones now
    for keys in (before, after):
        watching.register.check(keys.marker)
    assert watching.register.bind(after) == identity
    watching.register.check(after.marker)
    with pytest.raises(RegisterMismatch, match="other keys"):
        watching.register.check(before.marker)


def commit(version: int, run: str) -> Commit:
    return Commit(version, dt.datetime.now(dt.UTC), user_metadata=erasing_metadata(run, ["DSR-1"]))


def test_only_what_a_run_has_recorded_is_an_erasure(watching: Watching) -> None:
    """Or anybody could have a trail keep no image of what they deleted."""
    table = watching.path
    watch, commits = watching.watch, [commit(3, "er-1"), commit(4, "er-1"), commit(5, "of-nobody")]
    assert watch.erased([Commit(3, dt.datetime.now(dt.UTC))], table=table) == frozenset()
    assert watch.erased(commits[2:], table=table) == frozenset()
    with pytest.raises(ErasureAtWork):
        watch.erased(commits, table=table)
    with watching.register.lease("er-1") as held:
        held.record_step(table, "delete", {"rows": 1, "versions": [3]})
    assert watch.erased(commits, table=table) == {3}
    with pytest.raises(ErasureAtWork):
        watch.erased(commits, table="/another/table")
    with watching.register.lease("er-1") as held:
        held.finish()
    assert watch.erased(commits, table="/another/table") == frozenset()


@pytest.mark.parametrize("run", ["of-nobody", "er-1"])
def test_a_register_that_has_lost_what_a_run_did(watching: Watching, run: str) -> None:
    """Restored from a backup from before: the commit would pass for an ordinary one, with all that the person's rows had."""
    table, watch = watching.path, watching.watch
    with watching.register.lease("er-1") as held:
        held.finish()

    def said(of: str, table: str, person: int = 0) -> list[Commit]:
        metadata = erasing_metadata(run, ["DSR-1"], 0, make_proof(KEYS, of, table, person))
        return [Commit(3, dt.datetime.now(dt.UTC), user_metadata=metadata)]

    with pytest.raises(ErasureNotRecorded, match=f"run {run} erased rows in version 3 of {table}"):
        watch.erased(said(run, table), table=table)
    for copied in (said("another", table), said(run, "/another/table"), said(run, table, 1)):
        assert watch.erased(copied, table=table) == frozenset()
