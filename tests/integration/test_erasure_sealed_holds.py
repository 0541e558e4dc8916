"""An erasure while a class is under a hold: its keys stay, and the certificate says so whatever the calendar does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.audit_trail import Trail
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import Registry
from audit.encryption.root_keys import FileRoot
from audit.erasure.errors import SinkBehind
from audit.erasure.find.copies import Copy
from audit.erasure.find.plan import make_plan
from audit.erasure.model import Hold, PersonalTable, Request, Subject
from audit.erasure.register.secrets import Keys
from audit.erasure.register.store import Register
from audit.erasure.run.context import RunContext
from audit.erasure.run.delete_rows import DeleteRows
from audit.erasure.run.runner import ErasureReport, ErasureRun
from audit.erasure.run.scan_storage import ScanStorage
from audit.erasure.table_graph import Graph
from audit.queries.view import view
from audit.signing.signer import Signer
from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError
from connectors.delta_audit.sink import DeltaAuditSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows

pytestmark = pytest.mark.usefixtures("interpreted")

SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(1)
HELD = Hold(None, NOW.date() + 30 * DAY, "tax law", "billing")
ASKED = [
    Request(id, "customer", {"email": email}, NOW.date(), NOW.date() + 30 * DAY, "GDPR Art. 17", "desk")
    for id, email in (("r1", "seven@x.org"), ("r2", "nine@x.org"))
]


class Shop:
    """Customers, sealed in two classes; whose a row is is in neither of them. 7 has an account, 9 has none."""

    def __init__(self, spark: SparkSession, folder: Path, pg: Pg) -> None:
        self.spark, self.pg, self.root, self.classes = spark, pg, FileRoot.generate(), {"contact": ("email",)}
        self.keys_configured = True
        self.table = Table(spark, f"{folder}/customers", "no long, id long, email string, iban string, state string")
        self.registry().prepare()
        self.path = f"{folder}/trail"
        self.register = Register(pg.dsn, schema=pg.schema)
        self.register.prepare()
        self.register.add(ASKED, Keys(SIGNER))
        self.table.sql(
            "insert into {t} values (1, 7, 'seven@x.org', 'DE77', 'a'), (2, 8, 'eight@x.org', 'DE88', 'b'), "
            "(3, 9, 'nine@x.org', null, 'c')"
        )
        self.pipeline().run()

    def registry(self) -> Registry:
        return Registry(self.pg.dsn, self.root, schema=f"{self.pg.schema}_keys")

    def graph(self, *holds: Hold) -> Graph:
        classes = (*self.classes.items(), ("billing", ("iban",)))
        one = PersonalTable(self.table.path, "customer", "id", ("id", "email"), classes=classes)
        return Graph.of({"customer": Subject("customer", {"id": "exact", "email": "email"})}, [one], holds)

    def sink(self) -> DeltaAuditSink:
        sealing = ColumnEncryption(self.graph().encrypted_people(self.table.path), self.registry)
        return DeltaAuditSink(self.path, spark=self.spark, sealing=sealing if self.keys_configured else None)

    def pipeline(self) -> Pipeline:
        feed = ChangeFeed(self.spark, self.table.path)
        return Pipeline(feed, self.sink(), key=["no"], name="trail", start="earliest", guard=Knows())

    def copies(self) -> list[Copy]:
        return [Copy("trail", self.table.path, ("no",), self.sink())]

    def go(self, *holds: Hold, run: str = "er-1", only: slice = slice(None), now: dt.datetime = NOW) -> ErasureReport:
        """To its end, with the pipeline in between."""
        requests = ASKED[only]
        self.register.begin(run, [one.id for one in requests], f"digest of {run}")
        for _ in range(5):
            try:
                with self.register.lease(run) as held:
                    return ErasureRun(
                        RunContext(
                            spark=self.spark,
                            graph=self.graph(*holds),
                            copies=self.copies(),
                            register=self.register,
                            held=held,
                            keys=Keys(SIGNER),
                            signer=SIGNER,
                            run=run,
                            requests=requests,
                            approve_above=10,
                            out_of_reach=(),
                            now=now,
                            immediate=True,
                            registry=self.registry() if self.keys_configured else None,
                        )
                    ).execute()
            except SinkBehind:
                self.pipeline().run()
        raise AssertionError("it waits for ever")

    def shown(self) -> list[tuple[Any, ...]]:
        """What whoever has the keys sees of the first commit."""
        rows = (
            view(Trail(self.spark, self.path, states=self.registry().read_states))
            .where("version = 1")
            .orderBy("row.state")
        )
        names = ("id", "email", "iban", "state")
        return [
            tuple(str((row["unreadable"] or {}).get(name, row["row"][name]))[:8] for name in names)
            for row in rows.collect()
        ]

    def certificate(self, id: str) -> Mapping[str, Any]:
        found = self.register.certificate(id)
        assert found is not None
        return found


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, pg: Pg) -> Shop:
    return Shop(spark, tmp_path, pg)


GONE = "[erased "


def test_a_class_under_a_hold_keeps_its_key_until_the_hold_ends(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is certified without the keys of what is sealed
    classes = shop.classes
    shop.classes, shop.keys_configured = {}, False
    with pytest.raises(ConfigError, match=r"in the trail of trail are readable with keys .* `erasure\.keys`"):
        shop.go(run="er-0")
    assert shop.shown()[0][1] == "seven@x."
    shop.classes, shop.keys_configured = classes, True

    plan = make_plan(shop.spark, shop.graph(HELD), shop.copies(), ASKED, (), run="er-1", approve_above=10, now=NOW)
    assert plan.problems == ()
    assert [one for one in plan.warnings if one.startswith("class billing is held until")]
    events = shop.spark.read.format("delta").load(f"{shop.path}/events").count()
    former = shop.root.name

    def rotated(*_: object) -> None:
        """Weeks later, with the hold over and the registry under another root key meanwhile."""
        shop.root, old = FileRoot.generate(), shop.registry()
        old.rotate(shop.root)
        old.record_root_destruction(former, NOW.date() + 60 * DAY)
        raise KeyboardInterrupt

    # A class that is called otherwise by now goes as well
    shop.classes = {"person": ("email",)}
    # A hold of the day on which the run is taken up holds, also when what is held was written down already
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "destroy_keys", dies)
        with pytest.raises(KeyboardInterrupt):
            shop.go()
    with monkeypatch.context() as patch:
        patch.setattr(ScanStorage, "run", rotated)
        with pytest.raises(KeyboardInterrupt):
            shop.go(HELD)
    report = shop.go(now=NOW + 31 * DAY)
    assert report.state == "partial", report
    assert shop.shown() == [
        (GONE, GONE, "DE77", "a"),
        ("8", "eight@x.", "DE88", "b"),
        (GONE, GONE, "None", "c"),
    ]
    assert shop.sink().trail.verify()[0].intact
    assert {id: shop.certificate(id)["outcome"] for id in ("r1", "r2")} == {"r1": "partial", "r2": "partial"}
    [hold] = shop.certificate("r1")["holds"]
    assert (hold["class"], hold["until"], hold["basis"]) == ("billing", str(HELD.until), "tax law")
    # The backups that could bring them back are those from before, and the day is known by now
    [backups] = [one for one in shop.certificate("r1")["out_of_reach"] if "key registry" in one]
    assert backups.endswith(f"under the root key {former}: until {NOW.date() + 60 * DAY}, when it is destroyed")

    assert shop.go(run="er-2", now=NOW + 32 * DAY).state == "certified"
    assert shop.shown() == [(GONE, GONE, GONE, "a"), ("8", "eight@x.", "DE88", "b"), (GONE, GONE, GONE, "c")]
    assert {shop.certificate(id)["outcome"] for id in ("r1", "r2")} == {"erased"}
    kept = shop.spark.read.format("delta").load(f"{shop.path}/events")
    assert kept.where("version = 1").count() == events
    assert shop.sink().trail.verify()[0].intact


def test_a_hold_that_ends_before_the_copies_forget_holds_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything readable that a trail had not read yet, also where the run has nothing to delete: the row went before,
    in the ordinary way, and the trail was behind."""
    shop.table.sql("delete from {t} where no = 1")
    with monkeypatch.context() as patch:
        patch.setattr(DeleteRows, "run", dies)
        with pytest.raises(KeyboardInterrupt):
            shop.go(HELD, only=slice(1))
    assert shop.shown()[0] == (GONE, GONE, "DE77", "a")
    assert shop.go(only=slice(1), now=NOW + 31 * DAY).state == "certified"
    assert shop.shown()[0] == (GONE, GONE, GONE, "a")
    assert shop.certificate("r1")["holds"] == []
    rows = view(Trail(shop.spark, shop.path, states=shop.registry().read_states)).where("row.state = 'a'").collect()
    assert [(row["change_type"], (row["unreadable"] or {}).get("id", "")[:8]) for row in rows] == [
        ("insert", GONE[:8]),
        ("delete", GONE[:8]),
    ]


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
