"""Somebody who was erased comes back: seen before a sink gets the row, in any spelling, by any way into the table."""

from __future__ import annotations

import datetime as dt

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from audit.checkpoint import Signer
from audit.database import DatabaseMissing, LoginRefused
from audit.erasure.commits import erasing_metadata, make_proof
from audit.erasure.model import Hold, Link, PersonalTable, Request, Subject
from audit.erasure.register import Carrier, Register, RegisterIncomplete, RegisterMismatch, RegisterMissing
from audit.erasure.sealing import Keys, SealKey, WatchKey
from audit.erasure.subjects import Graph
from audit.erasure.watch import ErasedPersonReturned, ErasureAtWork, ErasureNotRecorded, Watch, marks_of
from cdf import ChangeFeed, Pipeline
from cdf.errors import CdfError, SinkUnavailable
from cdf.replay import replay
from cdf.sink import Bounds, Position
from cdf.testing import MemorySink
from cdf.window import Commit
from connectors.postgres.modes import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table, setting
from tests.integration.postgres_case import sink_of

pytestmark = pytest.mark.usefixtures("interpreted")

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


class Watched:
    """Customers, watched; DSR-1 was erased, with e-mail and number."""

    def __init__(self, spark: SparkSession, path: str, register: Register, *, on_erase: str = "delete") -> None:
        self.table = Table(spark, path, "customer_id long, email string, name string")
        self.table.sql("insert into {t} select id, concat('p', id, '@example.org'), 'n' from range(5)")
        one = PersonalTable(path, "customer", "customer_id", ("email", "customer_id"), on_erase)  # type: ignore[arg-type]
        self.graph = Graph.of(SUBJECTS, [one])
        self.register = register
        known = {"email": CANARY, "customer_id": "700"}
        asked = Request("DSR-1", "customer", known, TODAY, TODAY + dt.timedelta(days=30), "GDPR Art. 17", "desk")
        register.add([asked], KEYS)
        register.begin("er-1", ["DSR-1"], "digest")
        with register.held("er-1") as held:
            marks = {("DSR-1", *mark) for mark in marks_of(KEYS, self.graph, "customer", known.items())}
            held.suppress(["DSR-1"], marks, TODAY + dt.timedelta(days=365))
        self.sink = MemorySink()
        self.watch = Watch(lambda: register, KEYS.marker, self.graph)
        self.pipeline = Pipeline(ChangeFeed(spark, path), self.sink, key=["customer_id"], guard=self.watch)


@pytest.fixture
def watched(spark: SparkSession, delta_path: str, register: Register) -> Watched:
    return Watched(spark, delta_path, register)


@pytest.mark.parametrize(
    "row",
    [
        f"(9, ' {CANARY.upper()} ', 'n')",
        "(700, 'other@example.org', 'n')",
        f"(9, '{CANARY.replace('c', chr(0xFF43)).replace('@', chr(0x200B) + ' @')}', 'n')",
    ],
)
def test_the_window_is_not_applied(watched: Watched, row: str) -> None:
    watched.pipeline.run()
    watched.table.sql(f"insert into {{t}} values (8, 'q@example.org', 'n'), {row}")
    for _ in range(2):
        with pytest.raises(ErasedPersonReturned) as refused:
            watched.pipeline.run()
        assert refused.value.fields["requests"] == ["DSR-1"]
        assert "canary" not in str(refused.value).lower()
        assert watched.sink.store.contents.position.version == 1
    # Without the guard it would have gone through
    watched.pipeline.guard = None
    assert watched.pipeline.run().position == 2


def test_who_was_erased_by_an_earlier_version_is_known(watched: Watched) -> None:
    """It told one composition of an accent from the other; so did its marks."""
    watched.pipeline.run()
    mark = KEYS.mark("customer.email", "jo\u0308rg@example.org")
    with watched.register.held("er-1") as held:
        held.suppress(["DSR-1"], {("DSR-1", "email", mark)}, TODAY + dt.timedelta(days=365))
    watched.watch._read_at = float("-inf")  # what it knows of the register is up to ten seconds old
    watched.table.sql("insert into {t} values (9, 'J\u00f6rg@Example.org', 'n')")
    with pytest.raises(ErasedPersonReturned):
        watched.pipeline.run()


def test_a_first_copy_is_not_made(watched: Watched) -> None:
    watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')")
    with pytest.raises(ErasedPersonReturned):
        watched.pipeline.run()
    assert watched.sink.store.contents.position.version is None


def test_identifiers_that_are_no_text_hide_nobody(watched: Watched) -> None:
    """In the first copy and in windows: the others' values are asked for all the same."""
    bad = "insert into {t} select 9, cast(X'61FF40' as string), 'n'"
    watched.table.sql(bad)
    watched.pipeline.run()
    watched.table.sql(bad, f"insert into {{t}} values (9, '{CANARY}', 'n')")
    with pytest.raises(ErasedPersonReturned):
        watched.pipeline.run()


def test_others_and_deletes_pass(watched: Watched) -> None:
    watched.pipeline.run()
    watched.table.sql("update {t} set name = 'm' where customer_id = 2", "delete from {t} where customer_id = 3")
    assert watched.pipeline.run().position == 3


def test_who_is_erased_again_passes(watched: Watched) -> None:
    watched.pipeline.run()
    watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')", "delete from {t} where customer_id = 9")
    assert watched.pipeline.run().position == 3


def test_a_recorded_decision_lets_them_pass(watched: Watched) -> None:
    watched.pipeline.run()
    watched.table.sql("insert into {t} values (700, 'new@example.org', 'n')")
    with pytest.raises(ErasedPersonReturned):
        watched.pipeline.run()
    watched.register.release(["DSR-1"], "the privacy desk", "a customer again, by a contract of today")
    watched.watch._read_at = float("-inf")  # what it knows of the register is up to ten seconds old
    assert watched.pipeline.run().position == 2


def test_what_is_there_by_right(spark: SparkSession, delta_path: str, register: Register) -> None:
    """A column that nobody empties, and a table under a hold."""
    watched = Watched(spark, delta_path, register)
    [one] = watched.graph.order
    rows = spark.read.format("delta").load(delta_path)
    assert set(watched.watch._columns(delta_path, rows)) == {"customer_id", "email"}
    emptied = PersonalTable(delta_path, "customer", Link("customer_id", delta_path + "2", "customer_id"), ("email",))
    for tables, holds in (
        ([one], [Hold(delta_path, TODAY + dt.timedelta(days=9), "tax law")]),
        ([PersonalTable(delta_path + "2", "customer", "customer_id"), emptied], []),
    ):
        graph = Graph.of(SUBJECTS, tables, holds)
        expected = set() if holds else {"customer_id"}
        assert set(Watch(lambda: register, KEYS.marker, graph)._columns(delta_path, rows)) == expected


def held(watched: Watched) -> set[int]:
    return {key for (key,) in watched.sink.store.contents.rows}


class TestLeftOut:
    """As if the table had never held their rows."""

    def test_the_others_go_on(self, watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
        watched.watch.on_return = "leave_out"
        watched.pipeline.run()
        watched.table.sql(f"insert into {{t}} values (8, 'q@example.org', 'n'), (9, ' {CANARY.upper()} ', 'n')")
        assert watched.pipeline.run().position == 2
        assert held(watched) == {0, 1, 2, 3, 4, 8}
        [alarm] = [one for one in caplog.records if one.name == "deltarelay.erasure"]
        assert (alarm.levelname, alarm.code, alarm.requests) == ("ERROR", "erased_person_returned", ["DSR-1"])  # type: ignore[attr-defined]
        assert "canary" not in str(vars(alarm)).lower()
        [standing] = watched.register.requests(["DSR-1"])
        assert standing.returned_at
        assert standing.returned_to == watched.table.path

    def test_a_first_copy_is_made_without_them(self, watched: Watched) -> None:
        watched.watch.on_return = "leave_out"
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')")
        assert watched.pipeline.run().position == 2
        assert held(watched) == {0, 1, 2, 3, 4}

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
        left = watched.pipeline.admitted(window)
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

    def test_also_of_whoever_was_deleted_again(self, watched: Watched) -> None:
        """Where pipelines stop: nothing stops them by then, and no sink of history gets the row on the way."""
        watched.pipeline.run()
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')", "delete from {t} where customer_id = 9")
        [window] = watched.pipeline.windows(Position(1), 3)
        assert [tuple(row)[:4] for row in watched.pipeline.admitted(window).read().collect()] == [
            (9, None, None, "delete")
        ]

    def test_a_dead_letter_does_not_bring_them_in(self, watched: Watched, pg: Pg) -> None:
        """Replays do not ask the guard: the window that left their row out has deleted the letter of its key."""
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
        replay(pipeline)
        assert pg.query("select customer_id, name from target order by 1") == [
            (0, "n"),
            (2, "long"),
            (3, "n"),
            (4, "n"),
        ]

    def test_what_erased_them_passes_as_it_is(self, watched: Watched) -> None:
        """Sinks know what to do with such a commit."""
        watched.pipeline.run()
        watched.table.sql(f"insert into {{t}} values (9, '{CANARY}', 'n')")
        with setting(
            watched.table.spark, "spark.databricks.delta.commitInfo.userMetadata", erasing_metadata("er-1", [])
        ):
            watched.table.sql("delete from {t} where customer_id = 9")
        with watched.register.held("er-1") as held:
            held.done(watched.table.path, "delete", {"rows": 1, "versions": [3]})
        [window] = watched.pipeline.windows(Position(1), 3)
        [row] = watched.pipeline.admitted(window).read().collect()
        assert (row["_commit_version"], row["email"]) == (3, CANARY)


def test_a_register_that_cannot_answer(watched: Watched, pg: Pg) -> None:
    """Nothing is applied, and no commit counts as an ordinary one: whatever is not known is not "no one was erased"."""
    good, other = watched.watch, Keys(Signer.generate("example.org/another"))
    unreachable = "postgresql://127.0.0.1:1/nowhere?connect_timeout=1"
    refused, nowhere = make_conninfo(pg.dsn, user="no_such_role"), make_conninfo(pg.dsn, dbname="no_such_database")

    def watch(dsn: str = pg.dsn, schema: str = pg.schema, keys: Keys = KEYS, **more: str) -> Watch:
        return Watch(lambda: Register(dsn, schema=schema), keys.marker, watched.graph, **more)  # type: ignore[arg-type]

    def stops(guard: Watch, kind: type[CdfError]) -> None:
        watched.pipeline.guard = guard
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
    watched.pipeline.guard = watch(identity=identity)
    assert watched.pipeline.run().position == 1
    watched.pipeline.guard = good
    assert watched.pipeline.run().position == 1


def test_a_register_of_an_earlier_version(watched: Watched, pg: Pg) -> None:
    pg.query("drop table {schema}.register, {schema}.carrier")
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


def test_a_watch_key_that_was_replaced_is_known_as_a_former_one(watched: Watched) -> None:
    """Until the register is bound to the new key both sides go on; afterwards one that only has the old key is refused."""
    old, new = WatchKey.generate(), WatchKey.generate()
    before, after = (Keys(None, watch=watch, seal=[SealKey.generate()]) for watch in ([old], [new, old]))
    identity = watched.register.bind(KEYS)
    with pytest.raises(RegisterMismatch):
        watched.register.check(before.marker)
    both = Keys(SIGNER, watch=[old], seal=[SealKey.generate()])
    assert watched.register.bind(both) == identity  # the keys that come from the signing key are former ones now
    for keys in (before, after):
        watched.register.check(keys.marker)
    assert watched.register.bind(after) == identity
    watched.register.check(after.marker)
    with pytest.raises(RegisterMismatch, match="other keys"):
        watched.register.check(before.marker)


def test_the_register_knows_who_carries_the_table(watched: Watched) -> None:
    watched.watch.targets = {watched.pipeline.name: "table a"}
    watched.pipeline.run()
    known = watched.register.carriers([watched.table.path])
    assert known == (Carrier(watched.pipeline.name, watched.table.path, "table a"),)


def commit(version: int, run: str) -> Commit:
    return Commit(version, dt.datetime.now(dt.UTC), user_metadata=erasing_metadata(run, ["DSR-1"]))


def test_only_what_a_run_has_recorded_is_an_erasure(watched: Watched) -> None:
    """Or anybody could have a trail keep no image of what they deleted."""
    table = watched.table.path
    watch, commits = watched.watch, [commit(3, "er-1"), commit(4, "er-1"), commit(5, "of-nobody")]
    assert watch.erased([Commit(3, dt.datetime.now(dt.UTC))], table=table) == frozenset()
    assert watch.erased(commits[2:], table=table) == frozenset()
    with pytest.raises(ErasureAtWork):
        watch.erased(commits, table=table)
    with watched.register.held("er-1") as held:
        held.done(table, "delete", {"rows": 1, "versions": [3]})
    assert watch.erased(commits, table=table) == {3}
    with pytest.raises(ErasureAtWork):
        watch.erased(commits, table="/another/table")
    with watched.register.held("er-1") as held:
        held.finish()
    assert watch.erased(commits, table="/another/table") == frozenset()


@pytest.mark.parametrize("run", ["of-nobody", "er-1"])
def test_a_register_that_has_lost_what_a_run_did(watched: Watched, run: str) -> None:
    """Restored from a backup from before: the commit would pass for an ordinary one, with all that the person's rows had."""
    table, watch = watched.table.path, watched.watch
    with watched.register.held("er-1") as held:
        held.finish()

    def said(of: str, table: str, person: int = 0) -> list[Commit]:
        metadata = erasing_metadata(run, ["DSR-1"], 0, make_proof(KEYS, of, table, person))
        return [Commit(3, dt.datetime.now(dt.UTC), user_metadata=metadata)]

    with pytest.raises(ErasureNotRecorded, match=f"version 3 of {table} was erased by run {run}"):
        watch.erased(said(run, table), table=table)
    for copied in (said("another", table), said(run, "/another/table"), said(run, table, 1)):
        assert watch.erased(copied, table=table) == frozenset()


def test_the_pipeline_tells_its_sink(watched: Watched) -> None:
    watched.pipeline.run()
    with setting(watched.table.spark, "spark.databricks.delta.commitInfo.userMetadata", erasing_metadata("er-1", [])):
        watched.table.sql("delete from {t} where customer_id = 1", "delete from {t} where customer_id = 2")
    with watched.register.held("er-1") as held:
        held.done(watched.table.path, "delete", {"rows": 1, "versions": [2]})
    windows = list(watched.pipeline.windows(Position(1), 3))  # one ends where somebody was erased
    assert [[(one.version, one.erasing) for one in window.commits] for window in windows] == [[(2, True)], [(3, False)]]
    [pending] = watched.pipeline.windows(Position(1, pending=Bounds(2, 3)), 3)  # begun by a runner that died
    assert [(one.version, one.erasing) for one in pending.commits] == [(2, True), (3, False)]
