"""A person erased from the table, its history, PostgreSQL and the trail, by the commands that a privacy team would type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.erasure.find.plan import digest_of
from audit.signing.signer import Signer
from tests.acceptance.commands import Project
from tests.acceptance.in_process import Command, here

__all__ = ["here"]  # a fixture

EMAIL = "Zelda.Canary@example.org"
"""As it stands in the table; the request spells it otherwise."""
REQUESTS = "id,email,requester\nDSR-1, zelda.canary@EXAMPLE.org ,privacy desk\n"


class Shop:
    """Two tables, one of which leads to the other, replicated to PostgreSQL, the first also into a trail."""

    def __init__(self, project: Project, spark: SparkSession, folder: Path) -> None:
        self.project, self.spark = project, spark
        self.customers, self.orders = str(folder / "customers"), str(folder / "orders")
        for path, columns in (
            (self.customers, "customer_id long, email string, name string"),
            (self.orders, "order_id long, customer_id long, item string"),
        ):
            self.sql(
                f"create table delta.`{path}` ({columns}) using delta tblproperties (delta.enableChangeDataFeed = true)"
            )
        self.sql(
            f"insert into delta.`{self.customers}`"
            " select id, concat('c', id, '@example.org'), concat('name ', id) from range(20)",
            f"insert into delta.`{self.orders}` select id, id % 20, 'thing' from range(60)",
        )
        rows = spark.createDataFrame([(700, EMAIL, "Zelda Canary")], "customer_id long, email string, name string")
        rows.coalesce(1).write.format("delta").mode("append").save(self.customers)
        self.sql(f"insert into delta.`{self.orders}` values (900, 700, 'lamp'), (901, 700, 'rug')")
        self.state = {"connection": "warehouse", "schema": "erasure"}
        self.configure(Signer.generate("example.org/erasure"))

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement)

    def configure(self, signer: Signer) -> None:
        self.signer = signer
        key = self.project.folder / "erasure.key"
        key.unlink(missing_ok=True)
        self.signer.write(key)
        keys = {"customers": "customer_id", "orders": "order_id"}
        pipelines = {
            name: {
                "source": {"table": getattr(self, name), "key": [key]},
                "sink": {"connection": "warehouse", "table": f"public.{name}"},
            }
            for name, key in keys.items()
        }
        pipelines["trail"] = {
            "source": {"table": self.customers, "key": ["customer_id"], "start": "earliest"},
            "sink": {"connection": "trails", "table": "customers"},
        }
        erasure = {
            "state": self.state,
            "signing_key": "${file:erasure.key}",
            "subjects": {"customer": {"identifiers": {"email": "email", "customer_id": "exact"}}},
            "tables": {
                self.customers: {"subject": "customer", "identified_by": "customer_id", "personal": ["email", "name"]},
                self.orders: {"subject": "customer", "identified_by": f"customer_id -> {self.customers}.customer_id"},
            },
            "out_of_reach": ["nightly dumps"],
        }
        self.project.write(
            pipelines,
            connections='  trails: {"kind": "delta_audit", "path": "trails"}',
            rest=f"erasure: {json.dumps(erasure)}\n",
        )
        (self.project.folder / "requests.csv").write_text(REQUESTS)


@pytest.fixture
def shop(project: Project, spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(project, spark, tmp_path)


def test_the_whole_way(shop: Shop, here: Command) -> None:
    database = shop.project.database
    unmade = here("run")  # nobody knows who was erased
    assert (unmade.code, "deltarelay erase init" in unmade.err) == (2, True), unmade.err
    made = here("erase", "init", "--json")
    assert made.code == 0, made.err
    shop.state["identity"] = made.document["result"]["identity"]
    shop.configure(shop.signer)
    assert here("run").code == 0
    others = database.query("select * from public.customers where customer_id <> 700 order by 1")

    planned = here("erase", "plan", "requests.csv", "--json")
    assert planned.code == 0, planned.err
    tables = {Path(one["table"]).name: one for one in planned.document["result"]["tables"]}
    assert tables["customers"]["rows"] == {"DSR-1": 1}
    assert tables["orders"]["rows"] == {"DSR-1": 2}
    assert {one["pipeline"] for one in planned.document["result"]["sinks"]} == {"customers", "orders", "trail"}
    assert shop.spark.read.format("delta").load(shop.orders).count() == 62  # nothing was erased

    # Whoever edits the file can compute its digest as well: with a sink taken out it is no plan of the register's
    edited = {**planned.document["result"], "sinks": [], "run": planned.document["result"]["run"]}
    (shop.project.folder / "edited.json").write_text(json.dumps({**edited, "digest": digest_of(edited)}))
    forged = here("erase", "run", "edited.json")
    assert (forged.code, "is not the plan of run" in forged.err) == (2, True), forged.err

    first = here("erase", "run", "erasure-plan.json")
    assert first.code == 75, first.err
    assert all(name in first.err for name in ("customers", "orders", "trail")), first.err
    assert shop.spark.read.format("delta").load(shop.customers).count() == 20
    assert shop.spark.read.format("delta").load(shop.orders).count() == 60

    # Nobody plans it again meanwhile, and a plan that is lost can be gone on with
    run = planned.document["result"]["run"]
    twice = here("erase", "plan", "requests.csv", "--out", "other.json")
    assert twice.code == 2
    assert f"`deltarelay erase run {run}`" in twice.err, twice.err
    assert not (shop.project.folder / "other.json").exists()
    (shop.project.folder / "erasure-plan.json").unlink()

    assert here("run").code == 0
    waiting = here("erase", "run", run, "--json")
    assert waiting.code == 0, waiting.err
    report = waiting.document["result"]
    assert report["state"] == "propagated"
    assert report["waits_until"]
    assert report["forgotten"]["trail"] == {"values removed": 2}
    [standing] = here("erase", "status", "--json").document["result"]["requests"]
    assert standing["state"] == "propagated"
    assert standing["waits_until"]
    assert here("audit", "verify").code == 0
    assert database.query("select * from public.customers order by 1") == others

    found = here("erase", "scan", "--json")
    assert found.code == 3  # former files still have the person
    assert {one["request"] for one in found.document["result"]["finds"]} == {"DSR-1"}
    assert all(one["clears_on"] for one in found.document["result"]["finds"])

    # Somebody puts the table back
    before = shop.spark.sql(f"describe history delta.`{shop.customers}`").where("operation = 'MERGE'").first()
    assert before is not None
    shop.sql(f"restore table delta.`{shop.customers}` to version as of {before['version'] - 1}")
    refused = here("run", "-p", "customers")
    assert refused.code == 1
    assert "erased_person_returned" in refused.err, refused.err
    assert database.query("select * from public.customers order by 1") == others

    # Erased again under a new request, the pipelines go on
    (shop.project.folder / "again.csv").write_text(REQUESTS.replace("DSR-1", "DSR-2"))
    again = here("erase", "plan", "again.csv", "--out", "again.json")
    assert again.code == 0, again.err
    assert here("erase", "run", "again.json").code == 75
    assert here("run").code == 0
    assert database.query("select * from public.customers order by 1") == others
    over = here("erase", "run", "again.json", "--purge-immediately", "--json")
    assert over.code == 0, over.out + over.err
    assert (over.document["result"]["state"], over.document["result"]["certificates"]) == ("certified", ["DSR-2"])
    assert here("audit", "verify").code == 0
    told = here("audit", "query", "erasures", "-p", "trail", "--format", "csv")
    assert told.code == 0, told.err
    assert [line.split(",")[4].strip('"') for line in told.out.splitlines()[1:]][-6:] == [
        "approved", "deleted", "propagated", "purged", "verified", "certified"
    ]  # fmt: skip
    assert here("erase", "scan").code == 0  # nor is anything left of the first request
    assert here("run").code == 0

    # The certificate, checked offline; the identifiers are nowhere any more
    assert here("erase", "certificate", "DSR-1").code == 2
    shown = here("erase", "certificate", "DSR-2", "--out", "DSR-2.json", "--html", "DSR-2.html")
    assert shown.code == 0, shown.err
    key = str(shop.signer.verifier)
    assert here("erase", "check", "DSR-2.json", "--key", key).code == 0
    changed = (shop.project.folder / "DSR-2.json").read_text().replace('"outcome": "erased"', '"outcome": "partial"')
    (shop.project.folder / "changed.json").write_text(changed)
    assert here("erase", "check", "changed.json", "--key", key).code == 1
    database.query("alter table erasure.certificate disable trigger all")
    database.query("update erasure.certificate set document = jsonb_set(document, '{run}', '\"er-1\"')")
    altered = here("erase", "certificate", "DSR-2", "--html", "altered.html")
    assert (altered.code, "this key did not sign the certificate" in altered.err) == (1, True), altered.err
    database.query("update erasure.certificate set document = jsonb_set(document, '{signature,id}', '\"ffffffff\"')")
    assert here("erase", "certificate", "DSR-2", "--html", "altered.html", "--key", key).code == 1
    assert here("erase", "certificate", "DSR-2", "--html", "altered.html").code == 1
    assert not (shop.project.folder / "altered.html").exists()
    assert database.query("select id, sealed is null from erasure.request order by id") == [
        ("DSR-1", False),
        ("DSR-2", True),
    ]
    for done in (planned, first, twice, waiting, found, refused, again, over, shown):
        assert "canary" not in (done.out + done.err).lower()
    for file in shop.project.folder.rglob("*"):
        if file.is_file() and file.suffix in (".json", ".html", ".err", ".out", ".log", ".yaml"):
            assert b"zelda.canary" not in file.read_bytes().lower(), file


class TestBadInput:
    def test_no_block(self, project: Project, here: Command, delta_path: str) -> None:
        project.write(
            {
                "customers": {
                    "source": {"table": delta_path, "key": ["id"]},
                    "sink": {"connection": "warehouse", "table": "t"},
                }
            }
        )
        done = here("erase", "status")
        assert done.code == 2
        assert "erasure:" in done.err

    def test_requests_with_faults(self, shop: Shop, here: Command) -> None:
        assert here("erase", "init").code == 0
        (shop.project.folder / "requests.csv").write_text("id,e_mail\nDSR-1,zelda.canary@example.org\n")
        done = here("erase", "plan", "requests.csv")
        assert done.code == 2
        assert "e_mail" in done.err
        assert "canary" not in done.err
        assert not (shop.project.folder / "erasure-plan.json").exists()
