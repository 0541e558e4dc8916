"""An erasure where trails are sealed: the keys go first, and what is said of others stays, in every copy."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.checkpoint import Signer
from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.plan import Copy
from audit.erasure.purge import SinkBehind
from audit.erasure.register import Register
from audit.erasure.run import ErasureReport, ErasureRun
from audit.erasure.sealing import Keys
from audit.erasure.subjects import Graph
from audit.keys.registry import Registry
from audit.keys.roots import FileRoot
from audit.keys.sealing import Sealing
from audit.reconcile import reconcile
from audit.trail import Trail
from audit.view import view
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.long]

CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)
ASKED = Request("r1", "customer", {"email": CANARY}, NOW.date(), NOW.date() + dt.timedelta(30), "GDPR Art. 17", "desk")


class Bank:
    """7 has asked. All of a customer is sealed, and of transfers who sends and who gets."""

    def __init__(self, spark: SparkSession, folder: Path, pg: Pg) -> None:
        self.spark, self.pg, self.root = spark, pg, FileRoot.generate()
        self.customers = Table(spark, f"{folder}/customers", "no long, id long, email string, segment string")
        columns = "no long, sender long, sender_name string, recipient long, recipient_name string, cents long"
        self.transfers = Table(spark, f"{folder}/transfers", columns)
        self.table = {"customers": self.customers, "transfers": self.transfers}
        self.registry().prepare()
        self.sinks = {
            name: DeltaAuditSink(
                f"{folder}/trail-{name}", spark=spark, sealing=Sealing(self.graph().sealed(table.path), self.registry)
            )
            for name, table in self.table.items()
        }
        self.pipelines = [
            Pipeline(
                ChangeFeed(spark, table.path), self.sinks[name], key=["no"], name=name, start="earliest", guard=Knows()
            )
            for name, table in self.table.items()
        ]
        self.customers.sql(
            f"insert into {{t}} values (1, 1, 'p1@x.org', 'a'), (2, 2, 'p2@x.org', 'b'), (3, 7, '{CANARY}', 'c')",
            "update {t} set segment = 'd' where no = 3",
        )
        self.transfers.sql(
            "insert into {t} values (7, 1, 'One', 2, 'Two', 50), (10, 7, 'Seven of nine', 1, 'One', 51), "
            "(11, 1, 'One', 7, 'Seven of nine', 52)"
        )

    def registry(self) -> Registry:
        return Registry(self.pg.dsn, self.root, schema=f"{self.pg.schema}_keys")

    def graph(self) -> Graph:
        def to_customer(column: str) -> Link:
            return Link(column, self.customers.path, "id")

        def named(who: str, others: tuple[PersonalTable, ...] = ()) -> PersonalTable:
            columns = (who, f"{who}_name")
            return PersonalTable(
                self.transfers.path, "customer", to_customer(who), columns, "nullify", others, (("contact", columns),)
            )

        customers = PersonalTable(
            self.customers.path, "customer", "id", ("id", "email"), classes=(("contact", ("id", "email")),)
        )
        return Graph.of(
            {"customer": Subject("customer", {"email": "email", "id": "exact"})},
            [customers, named("sender", (named("recipient"),))],
        )

    def run(self) -> None:
        for pipeline in self.pipelines:
            pipeline.run()

    def copies(self) -> Sequence[Copy]:
        return [Copy(name, self.table[name].path, ("no",), sink) for name, sink in self.sinks.items()]

    def events(self) -> int:
        return sum(self.spark.read.format("delta").load(f"{sink.path}/events").count() for sink in self.sinks.values())

    def read(self, path: str, *columns: str) -> list[tuple[Any, ...]]:
        """What whoever has the keys is shown of a trail, up to its erasure."""
        rows = view(Trail(self.spark, path, states=self.registry().states)).where("operation = 'WRITE'")
        return [
            tuple(str((row["unreadable"] or {}).get(name, row["row"][name]))[:8] for name in columns)
            for row in rows.orderBy("version", "row.no").collect()
        ]

    def intact(self) -> bool:
        return all(sink.trail.verify()[0].intact for sink in self.sinks.values())


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, pg: Pg) -> Bank:
    bank = Bank(spark, tmp_path, pg)
    bank.run()
    return bank


def run_of(bank: Bank, register: Register, held: Any) -> ErasureRun:
    return ErasureRun(
        spark=bank.spark,
        graph=bank.graph(),
        copies=bank.copies(),
        register=register,
        held=held,
        keys=Keys(SIGNER),
        signer=SIGNER,
        run="er-1",
        requests=[ASKED],
        approve_above=10,
        out_of_reach=(),
        now=NOW,
        immediate=True,
        registry=bank.registry(),
    )


def test_the_keys_go_first_and_everything_else_follows(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = Register(bank.pg.dsn, schema=bank.pg.schema)
    register.prepare()
    register.add([ASKED], Keys(SIGNER))
    register.begin("er-1", ["r1"], "digest")
    # What its pipeline has not read yet when the keys go
    bank.transfers.sql("insert into {t} values (12, 7, 'Seven of nine', 2, 'Two', 53)")
    events = bank.events()
    copy = f"{tmp_path}/yesterday"
    shutil.copytree(bank.sinks["transfers"].path, copy)
    assert bank.read(copy, "sender_name", "recipient_name", "cents") == [
        ("One", "Two", "50"),
        ("Seven of", "One", "51"),
        ("One", "Seven of", "52"),
    ]

    def go() -> ErasureReport:
        with register.held("er-1") as held:
            return run_of(bank, register, held).go()

    with monkeypatch.context() as patch:
        # Where the tokens are known, and where the keys are gone
        for name in ("shred", "gone"):
            patch.setattr(Registry, name, dies)
            with pytest.raises(KeyboardInterrupt):
                go()
            patch.undo()
    assert {one.state for one in register.requests(["r1"])} == {"approved"}
    with monkeypatch.context() as patch:
        patch.setattr(ErasureRun, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            go()
    assert {one.state for one in register.requests(["r1"])} == {"shredded"}
    gone = [("One", "Two", "50"), ("[erased ", "One", "51"), ("One", "[erased ", "52")]
    for path in (copy, bank.sinks["transfers"].path):
        assert bank.read(path, "sender_name", "recipient_name", "cents") == gone
    assert bank.intact()
    assert bank.events() == events

    report, waited = None, 0
    while report is None:
        try:
            report = go()
        except SinkBehind:
            waited += 1
            assert waited < 5
            bank.run()
    assert report.state == "certified", report
    # The erasing commits' own images go as a whole: they had the key alone
    assert report.forgotten["transfers"] == {"values removed": 3, "sealed values removed": 3}
    assert report.forgotten["customers"] == {"values removed": 1, "sealed values removed": 3}
    assert bank.intact()
    shown = bank.read(bank.sinks["transfers"].path, "sender", "sender_name", "recipient", "recipient_name", "cents")
    assert shown == [
        ("1", "One", "2", "Two", "50"),
        ("[erased ", "[erased ", "1", "One", "51"),
        ("1", "One", "[erased ", "[erased ", "52"),
        ("[erased ", "[erased ", "2", "Two", "53"),
    ]
    assert bank.read(bank.sinks["customers"].path, "id", "segment")[2] == ("[erased ", "c")
    for sink, pipeline in zip(bank.sinks.values(), bank.pipelines, strict=True):
        trail = Trail(bank.spark, sink.path, states=bank.registry().states)
        assert reconcile(trail, pipeline).equal is not False
        kept = [one for one in Path(sink.path).rglob("*") if one.is_file()]
        assert not [one for one in kept if b"Seven of nine" in one.read_bytes() or CANARY.encode() in one.read_bytes()]
    certificate = register.certificate("r1")
    assert certificate is not None
    assert "shred" in {one["step"] for one in certificate["evidence"]}
    assert [one for one in certificate["out_of_reach"] if bank.root.name in one]


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
