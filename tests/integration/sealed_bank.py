"""A bank whose trails are sealed: customers, and transfers between them. Customer 7 has asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from audit.audit_trail import Trail
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import Registry
from audit.encryption.root_keys import FileRoot
from audit.erasure.find.copies import Copy
from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.table_graph import Graph
from audit.queries.view import view
from audit.signing.signer import Signer
from audit.trail.column_history import SEALED
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows

CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)
ASKED = Request("r1", "customer", {"email": CANARY}, NOW.date(), NOW.date() + dt.timedelta(30), "GDPR Art. 17", "desk")


class Bank:
    """7 has asked. All of a customer is sealed, and of transfers who sends and who gets. ``plain_sender``: not who sends."""

    def __init__(self, spark: SparkSession, folder: Path, pg: Pg, *, plain_sender: bool = False) -> None:
        self.spark, self.pg, self.root, self.plain_sender = spark, pg, FileRoot.generate(), plain_sender
        self.customers = Table(spark, f"{folder}/customers", "no long, id long, email string, segment string")
        columns = "no long, sender long, sender_name string, recipient long, recipient_name string, cents long"
        self.transfers = Table(spark, f"{folder}/transfers", columns)
        self.table = {"customers": self.customers, "transfers": self.transfers}
        self.registry().prepare()
        self.sinks = {
            name: DeltaAuditSink(
                f"{folder}/trail-{name}",
                spark=spark,
                sealing=ColumnEncryption(self.graph().encrypted_people(table.path), self.registry),
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
            classes = () if who == "sender" and self.plain_sender else (("contact", columns),)
            return PersonalTable(self.transfers.path, "customer", to_customer(who), columns, "nullify", others, classes)

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
        """What whoever has the keys is shown of a trail, up to its erasure; without rows that went as a whole."""
        rows = view(Trail(self.spark, path, states=self.registry().read_states)).where(
            "operation = 'WRITE' and row is not null"
        )
        return [
            tuple(str((row["unreadable"] or {}).get(name, row["row"][name]))[:8] for name in columns)
            for row in rows.orderBy("version", "row.no").collect()
        ]

    def tokens(self, name: str) -> DataFrame:
        """Whose there is something sealed in a trail."""
        payload = self.spark.read.format("delta").load(f"{self.sinks[name].path}/payload")
        return payload.select(F.explode(F.col("row").getField(SEALED)["token"])).distinct()

    def intact(self) -> bool:
        return all(sink.trail.verify()[0].intact for sink in self.sinks.values())
