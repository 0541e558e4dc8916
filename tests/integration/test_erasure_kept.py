"""Somebody whom the source deleted in the ordinary way before they asked: what copies keep of them leads to the rest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.errors import SinkBehind
from audit.erasure.find.copies import Copy
from audit.erasure.find.known_values import without_links
from audit.erasure.find.plan import make_plan
from audit.erasure.find.resolve import Resolution
from audit.erasure.find.retained_rows import rows_from_copies
from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.register.secrets import Keys
from audit.erasure.register.steps import with_mac
from audit.erasure.register.store import Register
from audit.erasure.run.context import RunContext
from audit.erasure.run.runner import ErasureReport, ErasureRun
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows
from tests.integration.postgres_case import sink_of

pytestmark = pytest.mark.usefixtures("interpreted")

SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)
KEYS = {"customers": "customer_id", "orders": "order_id", "lines": "line_id"}


class Shop:
    """Three tables and their copies. 700 has asked; 1 was deleted like them, and has not."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        pg: Pg,
        trails: Sequence[str] = (),
        *,
        deletes: Any = "soft",
        **properties: str,
    ) -> None:
        self.spark, self.pg = spark, pg
        self.tables = {
            "customers": Table(spark, f"{folder}/customers", "customer_id long, email string", **properties),
            "orders": Table(spark, f"{folder}/orders", "order_id long, customer_id long", **properties),
            "lines": Table(spark, f"{folder}/lines", "line_id long, order_id long", **properties),
        }
        self.sinks: dict[str, Any] = {
            name: DeltaAuditSink(f"{folder}/trail-{name}", spark=spark)
            if name in trails
            else sink_of(pg, table=name, modes=Modes(deletes=deletes))
            for name in self.tables
        }
        self.pipelines = {
            name: Pipeline(
                ChangeFeed(spark, table.path),
                self.sinks[name],
                key=KEYS[name],
                name=name,
                start="earliest",
                guard=Knows(),
            )
            for name, table in self.tables.items()
        }
        self.sql(
            "customers", f"insert into {{t}} values (1, 'p1@example.org'), (2, 'p2@example.org'), (700, '{CANARY}')"
        )
        self.sql("orders", "insert into {t} values (10, 1), (20, 2), (90, 700), (91, 700)")
        self.sql("lines", "insert into {t} values (100, 10), (200, 20), (900, 90), (910, 91)")

    def sql(self, table: str, statement: str) -> None:
        self.tables[table].sql(statement)

    def run(self) -> None:
        for pipeline in self.pipelines.values():
            pipeline.run()

    def copies(self, *names: str) -> tuple[Copy, ...]:
        return tuple(
            Copy(name, self.tables[name].path, (KEYS[name],), self.sinks[name]) for name in names or self.tables
        )

    def graph(self) -> Graph:
        customers, orders, lines = (table.path for table in self.tables.values())
        return Graph.of(
            SUBJECTS,
            [
                PersonalTable(customers, "customer", "customer_id"),
                PersonalTable(orders, "customer", Link("customer_id", customers, "customer_id")),
                PersonalTable(lines, "customer", Link("order_id", orders, "order_id")),
            ],
            [],
        )

    def of(self, name: str) -> set[int]:
        """The keys that the copy has."""
        if isinstance(sink := self.sinks[name], DeltaAuditSink):
            payload = self.spark.read.format("delta").load(f"{sink.path}/payload").select("row").collect()
            return {next(iter(row["row"].asDict().values())) for row in payload}
        return {row[0] for row in self.pg.query(f"select {KEYS[name]} from {{schema}}.{name}")}


def asked(id: str = "r1", email: str = CANARY) -> Request:
    return Request(id, "customer", {"email": email}, NOW.date(), NOW.date() + dt.timedelta(30), "GDPR Art. 17", "desk")


def test_rows_that_the_source_has_lost_lead_to_the_rest(spark: SparkSession, tmp_path: Path, pg: Pg) -> None:
    # With deletion vectors the purge rewrites files, in commits that no sink has read
    shop = Shop(spark, tmp_path, pg, ["orders"], enableDeletionVectors="true")
    shop.run()
    shop.sql("lines", "delete from {t} where line_id in (100, 900)")
    shop.sql("orders", "delete from {t} where order_id in (10, 90)")  # 91 and its line are still there
    shop.sql("customers", "delete from {t} where customer_id in (1, 700)")
    shop.run()
    register, keys = Register(pg.dsn, schema=pg.schema), Keys(SIGNER)
    register.prepare()
    register.add([asked()], keys)

    plan = make_plan(spark, shop.graph(), shop.copies(), [asked()], (), run="er-1", approve_above=10, now=NOW)
    found = {Path(one.table).name: dict(one.rows) for one in plan.tables}
    assert found == {"customers": {}, "orders": {"r1": 1}, "lines": {"r1": 1}}
    assert plan.needs_approval == {}
    register.begin("er-1", ["r1"], plan.digest)

    def go() -> ErasureReport:
        with register.lease("er-1") as held:
            return ErasureRun(
                RunContext(
                    spark=spark,
                    graph=shop.graph(),
                    copies=shop.copies(),
                    register=register,
                    held=held,
                    keys=keys,
                    signer=SIGNER,
                    run="er-1",
                    requests=[asked()],
                    approve_above=10,
                    out_of_reach=(),
                    now=NOW,
                    immediate=True,
                )
            ).execute()

    with pytest.raises(SinkBehind, match="have not reached every sink"):
        go()
    shop.run()
    with register.lease("er-1") as held:  # as one that died between the target's commit and its own entry
        held.record_step("pipeline orders", "forgetting", with_mac(keys, "er-1", "pipeline orders", "forgetting", {}))
    with pytest.raises(SinkBehind, match=r"the log of .*; the log of .*; the log of"):  # of all tables at once
        go()
    shop.run()
    report = go()
    assert report.state == "certified"
    for name, others in {"customers": {1, 2}, "orders": {10, 20}, "lines": {100, 200}}.items():
        assert shop.of(name) == others
    certificate = register.certificate("r1")
    assert certificate is not None
    told = {one["pipeline"]: one for one in certificate["sinks"]}
    assert "several attempts" in told["orders"]["counted"]
    assert "counted" not in told["customers"]
    for name, others in {"customers": {2}, "orders": {20}, "lines": {200}}.items():
        assert {row[0] for row in spark.read.format("delta").load(shop.tables[name].path).collect()} == others


def test_what_a_copy_has_not_got_yet_counts(spark: SparkSession, tmp_path: Path, pg: Pg) -> None:
    shop = Shop(spark, tmp_path, pg, deletes="hard")
    shop.run()
    shop.sql("orders", "delete from {t} where order_id = 90")
    shop.sql("customers", "delete from {t} where customer_id = 700")
    graph, kept = shop.graph(), rows_from_copies(shop.copies())
    alone = Resolution.of(spark, graph.order, SUBJECTS, [asked()])
    assert alone.learned() == []
    assert {table for table, _ in alone.counts()} == set()
    behind = Resolution.of(spark, graph.order, SUBJECTS, [asked()], retained=kept)
    assert without_links(behind.learned()) == [("r1", "customer_id", "700")]
    expected = {"orders": 1, "lines": 2}
    assert {Path(table).name: caught.rows for (table, _), caught in behind.counts().items()} == expected
    assert behind.fan_out(10) == {}
    shop.run()  # taken up it is the same one, though nothing tells of the rows any more
    again = Resolution.of(
        spark, graph.order, SUBJECTS, [asked()], behind.learned(), versions=behind.versions, retained=kept
    )
    assert again.counts() == behind.counts()


def test_what_is_somebody_elses_by_now(spark: SparkSession, tmp_path: Path, pg: Pg) -> None:
    """An order that was passed on leads to no lines; a number that was given away needs somebody who looks."""
    shop = Shop(spark, tmp_path, pg, ["customers", "orders"])
    shop.sql("orders", "update {t} set customer_id = 2 where order_id = 90")
    shop.sql("customers", "update {t} set email = 'p700@example.org' where customer_id = 700")
    shop.run()
    graph = shop.graph()
    found = Resolution.of(spark, graph.order, SUBJECTS, [asked()], retained=rows_from_copies(shop.copies()))
    caught = {Path(table).name: caught.rows for (table, _), caught in found.counts().items()}
    assert caught == {"customers": 1, "orders": 1, "lines": 1}  # 91 and its line
    assert found.fan_out(10) == {
        "r1": "2 values of email, one of deleted rows and rows of "
        f"{shop.tables['customers'].path} that only deleted rows lead to"
    }


def test_an_identifier_of_a_row_that_is_gone_needs_somebody_who_looks(
    spark: SparkSession, tmp_path: Path, pg: Pg
) -> None:
    """It may be the person's own of old, or of somebody who had the number before."""
    shop = Shop(spark, tmp_path, pg, ["customers"])
    shop.sql("customers", "update {t} set email = 'canary@new.example.org' where customer_id = 700")
    shop.run()
    graph, kept = shop.graph(), rows_from_copies(shop.copies())
    found = Resolution.of(spark, graph.order, SUBJECTS, [asked(email="canary@new.example.org")], retained=kept)
    assert found.learned() == [("r1", "customer_id", "700"), ("r1", "email", CANARY)]
    assert found.fan_out(10) == {"r1": "2 values of email, one of deleted rows"}
    known = Resolution.of(spark, graph.order, SUBJECTS, [asked(email="p2@example.org")], retained=kept)
    assert known.fan_out(10) == {}
