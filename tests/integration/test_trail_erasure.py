"""A trail forgets a person: no fresh copy of the row that is erased, values of former versions removed, and it verifies."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.erasure.erase.delete import erase_table, erased_keys
from audit.erasure.find.resolve import Resolution
from audit.erasure.model import PersonalTable, Request, Subject
from audit.erasure.scan.search_terms import Needle, Needles
from audit.erasure.sink_contract import Erasing, Reached
from audit.queries.questions import erasures, history
from audit.reconciliation.comparison import reconcile
from audit.report import make_report
from cdf import ChangeFeed, Pipeline
from cdf.errors import WindowOutOfOrder
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.erasures import MARKER, Knows

pytestmark = pytest.mark.usefixtures("interpreted")

CANARY = "canary.person@example.org"
NEEDLES = Needles([Needle("R-1", CANARY, "email")])
SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}


class Trailed:
    def __init__(self, spark: SparkSession, folder: Path, *, small_window_bytes: int) -> None:
        self.spark = spark
        self.table = Table(spark, f"{folder}/customers", "customer_id long, email string, tags array<string>")
        self.table.sql("insert into {t} select id, concat('p', id, '@example.org'), array('a') from range(5)")
        rows = spark.createDataFrame([(700, CANARY, ["x", "y"])], "customer_id long, email string, tags array<string>")
        rows.coalesce(1).write.format("delta").mode("append").save(self.table.path)
        self.table.sql("update {t} set tags = array('b') where customer_id in (3, 700)")
        self.sink = DeltaAuditSink(f"{folder}/trail", spark=spark, small_window_bytes=small_window_bytes)
        self.pipeline = Pipeline(
            ChangeFeed(spark, self.table.path), self.sink, key=["customer_id"], start="earliest", guard=Knows()
        )

    def erase(self, on_erase: str = "delete") -> Erasing:
        personal = ("email", "customer_id")
        one = PersonalTable(self.table.path, "customer", "customer_id", personal, on_erase)  # type: ignore[arg-type]
        day = dt.date(2026, 11, 1)
        asked = Request("R-1", "customer", {"email": CANARY}, day, day, "GDPR Art. 17", "desk")
        found = Resolution.of(self.spark, [one], SUBJECTS, [asked])
        since = found.versions[one.table]
        done = erase_table(
            self.spark, one, found.caught(one.table), run="er-1", requests=["R-1"], since=since, marker=MARKER
        )
        assert done.rows == 1
        return Erasing(
            run="er-1",
            requests=("R-1",),
            table=one.table,
            versions=done.versions,
            key=("customer_id",),
            on_erase=one.on_erase,
            personal=personal,
            keys=lambda: erased_keys(self.spark, one.table, done.versions, ["customer_id"]),
            catch=lambda frame: found.catch(one.table, frame),
            needles=NEEDLES,
            immediately=True,
        )

    def payload(self) -> list[tuple[int, str, int | None, str | None]]:
        rows = self.spark.read.format("delta").load(f"{self.sink.path}/payload").collect()
        told = [(row["version"], row["change_type"], *list(row["row"].asDict().values())[:2]) for row in rows]
        return sorted(told, key=str)

    def intact(self) -> bool:
        return self.sink.trail.verify()[0].intact


@pytest.fixture
def trailed(spark: SparkSession, tmp_path: Path) -> Trailed:
    return Trailed(spark, tmp_path, small_window_bytes=2**20)


@pytest.mark.parametrize("small_window_bytes", [2**20, 0], ids=["driver", "tasks"])
def test_from_the_commit_to_the_last_file(spark: SparkSession, tmp_path: Path, small_window_bytes: int) -> None:
    trailed = Trailed(spark, tmp_path, small_window_bytes=small_window_bytes)
    trailed.pipeline.run()
    before = [one for one in trailed.payload() if one[2] != 700]
    erasing = trailed.erase()
    with pytest.raises(WindowOutOfOrder):
        trailed.sink.erase(erasing)
    trailed.table.sql("delete from {t} where customer_id = 4")  # the control: an ordinary delete has its image
    trailed.pipeline.run()
    [version] = erasing.versions
    kept = [one for one in trailed.payload() if one[0] >= version]
    assert kept == [(version, "delete", 700, None), (version + 1, "delete", 4, "p4@example.org")]
    assert trailed.intact()
    assert reconcile(trailed.sink.trail, trailed.pipeline).equal

    assert trailed.sink.erase(erasing) == {"values removed": 4}
    assert [one for one in trailed.payload() if one[0] < version] == before
    assert not [one for one in trailed.payload() if one[2] == 700]
    assert trailed.intact()
    assert reconcile(trailed.sink.trail, trailed.pipeline).equal
    events = trailed.spark.read.format("delta").load(f"{trailed.sink.path}/events").count()
    assert trailed.sink.erase(erasing) == {"values removed": 0}
    assert history(trailed.sink.trail, {"customer_id": 700}).count() == 0  # type: ignore[arg-type]
    assert {one.reason for one in trailed.sink.scan(NEEDLES).finds} >= {"former file"}

    assert trailed.sink.purge(erasing, now=dt.datetime.now(dt.UTC)).waits_until is None
    assert trailed.sink.scan(NEEDLES).finds == ()
    assert trailed.intact()
    assert trailed.spark.read.format("delta").load(f"{trailed.sink.path}/events").count() == events
    assert trailed.pipeline.run().windows == 0


def test_who_comes_back_keeps_what_is_new(trailed: Trailed) -> None:
    trailed.pipeline.run()
    erasing = trailed.erase()
    trailed.table.sql("insert into {t} values (700, 'new@example.org', null)")
    trailed.pipeline.run()
    assert trailed.sink.erase(erasing) == {"values removed": 4}
    assert [one[1:] for one in trailed.payload() if one[2] == 700] == [("insert", 700, "new@example.org")]
    assert trailed.intact()


def test_steps_are_events(trailed: Trailed) -> None:
    trailed.pipeline.run()
    at = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
    steps = [Reached("received", at, ("R-1", "R-2")), Reached("deleted", at, ("R-1",))]
    for told in (steps[:1], steps, steps):
        trailed.sink.note_erasure(trailed.table.path, ("customer_id",), "er-1", told)
    trailed.sink.note_erasure(trailed.table.path, ("customer_id",), "er-2", steps[:1])
    assert [tuple(row)[2:] for row in erasures(trailed.sink.trail).drop("reached_at").collect()] == [
        ("er-1", "received", ["R-1", "R-2"]),
        ("er-1", "deleted", ["R-1"]),
        ("er-2", "received", ["R-1", "R-2"]),
    ]
    assert trailed.intact()
    trailed.table.sql("delete from {t} where customer_id = 4")
    trailed.pipeline.run()
    assert trailed.intact()
    assert reconcile(trailed.sink.trail, trailed.pipeline).equal
    made = make_report(trailed.sink.trail, pipeline="p", source="s", keys=())
    assert [(one.state, one.requests) for one in made.erasures] == [("received", 2), ("deleted", 1), ("received", 2)]
    assert made.scope.unreadable == 0


def test_emptied_rows(trailed: Trailed) -> None:
    trailed.pipeline.run()
    erasing = trailed.erase("nullify")
    trailed.pipeline.run()
    assert trailed.intact()
    trailed.sink.erase(erasing)
    assert trailed.sink.scan(NEEDLES).finds
    assert trailed.intact()
    trailed.sink.purge(erasing, now=dt.datetime.now(dt.UTC))
    assert trailed.sink.scan(NEEDLES).finds == ()
