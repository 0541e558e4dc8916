"""Rows that name several people: one of them goes, and what the row says of the others stays, in every copy."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.errors import SinkBehind
from audit.erasure.find.copies import Copy
from audit.erasure.find.plan import make_plan
from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.register.secrets import Keys
from audit.erasure.register.store import Register
from audit.erasure.run import delete_rows
from audit.erasure.run.context import RunContext
from audit.erasure.run.runner import ErasureReport, ErasureRun
from audit.erasure.run.tasks import make_task
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer
from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows
from tests.integration.postgres_case import sink_of

pytestmark = pytest.mark.usefixtures("interpreted")

SUBJECTS = {"customer": Subject("customer", {"email": "email", "id": "exact"})}
CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)
ASKED = Request("r1", "customer", {"email": CANARY}, NOW.date(), NOW.date() + dt.timedelta(30), "GDPR Art. 17", "desk")
RECIPIENT = ("recipient", "recipient_name")


class Bank:
    """7 has asked. The numbers of transfers are numbers of customers too, and 2 came by a recommendation of 7's."""

    def __init__(self, spark: SparkSession, folder: Path, pg: Pg) -> None:
        self.spark, self.pg = spark, pg
        self.customers = Table(spark, f"{folder}/customers", "id long, email string, recommended_by long")
        named = "id long, sender long, sender_name string, recipient long, recipient_name string, cents long"
        self.transfers = Table(spark, f"{folder}/transfers", named)
        self.trail = DeltaAuditSink(f"{folder}/trail", spark=spark)
        self.sinks: dict[str, Any] = {
            "customers": sink_of(pg, table="customers", modes=Modes(deletes="soft")),
            "transfers": sink_of(pg, table="transfers", modes=Modes(deletes="soft")),
            "history": self.trail,
        }
        self.table = {"customers": self.customers, "transfers": self.transfers, "history": self.transfers}
        self.pipelines = [
            Pipeline(
                ChangeFeed(spark, self.table[name].path),
                sink,
                key=["id"],
                name=name,
                start="earliest",
                guard=Knows(),
            )
            for name, sink in self.sinks.items()
        ]
        self.customers.sql(f"insert into {{t}} values (1, 'p1@x.org', null), (2, 'p2@x.org', 7), (7, '{CANARY}', null)")
        self.transfers.sql(
            "insert into {t} values (7, 1, 'One', 2, 'Two', 50), (10, 7, 'Seven', 1, 'One', 51), "
            "(11, 1, 'One', 7, 'Seven', 52), (12, 7, 'Seven', 7, 'Seven', 53), (14, 1, 'One', null, null, 54)",
            "update {t} set recipient = 7, recipient_name = 'Seven' where id = 14",
        )

    def run(self) -> None:
        for pipeline in self.pipelines:
            pipeline.run()

    def copies(self) -> Sequence[Copy]:
        return [Copy(name, self.table[name].path, ("id",), sink) for name, sink in self.sinks.items()]

    def graph(self, on_erase: Any = "nullify") -> Graph:
        customers, transfers = self.customers.path, self.transfers.path

        def to_customer(column: str) -> Link:
            return Link(column, customers, "id")

        recommended = PersonalTable(
            customers, "customer", to_customer("recommended_by"), ("recommended_by",), "nullify"
        )
        received = PersonalTable(transfers, "customer", to_customer("recipient"), RECIPIENT, "nullify")
        sent = PersonalTable(
            transfers, "customer", to_customer("sender"), ("sender", "sender_name"), on_erase, (received,)
        )
        return Graph.of(SUBJECTS, [PersonalTable(customers, "customer", "id", others=(recommended,)), sent])

    def there(self, table: Table) -> set[tuple[Any, ...]]:
        return {tuple(row) for row in self.spark.read.format("delta").load(table.path).collect()}

    def history(self) -> list[tuple[int, str, list[Any]]]:
        rows = self.spark.read.format("delta").load(f"{self.trail.path}/payload").collect()
        return sorted(((row["version"], row["change_type"], list(row["row"])) for row in rows), key=str)


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, pg: Pg) -> Bank:
    return Bank(spark, tmp_path, pg)


def _run(bank: Bank, graph: Graph, register: Register, held: Any, asked: Request) -> ErasureRun:
    return ErasureRun(
        RunContext(
            spark=bank.spark,
            graph=graph,
            copies=bank.copies(),
            register=register,
            held=held,
            keys=Keys(SIGNER),
            signer=SIGNER,
            run="er-1",
            requests=[asked],
            approve_above=10,
            out_of_reach=(),
            now=NOW,
            immediate=True,
        )
    )


def test_one_of_several_people_goes(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    bank.run()
    register = Register(bank.pg.dsn, schema=bank.pg.schema)
    register.prepare()
    register.add([ASKED], Keys(SIGNER))
    register.begin("er-1", ["r1"], "digest")

    def go() -> ErasureReport:
        with register.lease("er-1") as held:
            return _run(bank, bank.graph(), register, held, ASKED).execute()

    whole, died = delete_rows.erase_table, []

    def dies_before_the_recipients(*args: Any, person: int, **named: Any) -> Any:
        if person == 1 and not died:
            died.append(person)
            raise KeyboardInterrupt
        return whole(*args, person=person, **named)

    monkeypatch.setattr(delete_rows, "erase_table", dies_before_the_recipients)
    with pytest.raises(KeyboardInterrupt):
        go()
    report, waited = None, 0
    while report is None:
        try:
            report = go()
        except SinkBehind:
            waited += 1
            assert waited < 5
            bank.run()
    assert report.state == "certified"
    assert report.deleted == {bank.customers.path: 2, bank.transfers.path: 5}

    customers = {(1, "p1@x.org", None), (2, "p2@x.org", None)}
    transfers = {
        (7, 1, "One", 2, "Two", 50),
        (10, None, None, 1, "One", 51),
        (11, 1, "One", None, None, 52),
        (12, None, None, None, None, 53),
        (14, 1, "One", None, None, 54),
    }
    assert bank.there(bank.customers) == customers
    assert bank.there(bank.transfers) == transfers
    assert set(bank.pg.query("select id, email, recommended_by from {schema}.customers")) == customers
    columns = "id, sender, sender_name, recipient, recipient_name, cents"
    assert set(bank.pg.query(f"select {columns} from {{schema}}.transfers")) == transfers

    [facts] = [one.facts for one in register.steps("er-1") if (one.table, one.step) == (bank.transfers.path, "delete")]
    [first], [second] = facts["by_person"]
    kept = [(version, kind, row) for version, kind, row in bank.history() if version < first]
    to_nobody_yet = [14, 1, "One", None, None, 54]
    assert kept == [
        (1, "insert", to_nobody_yet),
        (1, "insert", [7, 1, "One", 2, "Two", 50]),
        (2, "update_preimage", to_nobody_yet),
    ]
    # As they are now: of what the first commit had emptied the second one has made the rest
    now = [(version, kind, row) for version, kind, row in bank.history() if version >= first]
    assert {tuple(row) for _, _, row in now} == transfers - {(7, 1, "One", 2, "Two", 50)}
    assert {(version, kind) for version, kind, _ in now} == {
        (first, "update_postimage"),
        (second, "update_postimage"),
    }
    assert bank.trail.trail.verify()[0].intact

    certificate = register.certificate("r1")
    assert certificate is not None
    told = {Path(one["table"]).name: (one["rows"], one["on_erase"]) for one in certificate["tables"]}
    assert told == {"customers": (2, "delete, nullify"), "transfers": (4, "nullify")}


def test_a_plan_tells_of_rows_that_go_with_others_in_them(bank: Bank) -> None:
    def warnings(on_erase: str) -> list[str]:
        plan = make_plan(bank.spark, bank.graph(on_erase), (), [ASKED], (), run="er-1", approve_above=10, now=NOW)
        assert {Path(one.table).name: dict(one.rows) for one in plan.tables} == {
            "customers": {"r1": 2},
            "transfers": {"r1": 4},
        }
        return [one.partition(": ")[2] for one in plan.warnings if "about other people" in one]

    assert warnings("nullify") == []
    assert warnings("delete") == [
        "2 rows are deleted as a whole (on_erase: delete), with what they say about other people"
    ]


def test_nobody_is_asked_about_the_rows_of_others(bank: Bank) -> None:
    """Whom a request is not about is not looked for, whatever kind of person the table names besides."""
    clerk = Subject("clerk", {"staff_no": "exact"})
    graph = bank.graph()
    [customers, transfers] = graph.order
    named = PersonalTable(transfers.table, "clerk", "staff_no", ("staff_no",), "nullify")
    both = replace(transfers, others=(*transfers.others, named))
    bank.transfers.sql("alter table {t} add column staff_no string", "update {t} set staff_no = 'S-1' where id = 7")
    of_all = Graph.of({**SUBJECTS, "clerk": clerk}, [customers, both])
    asked = replace(ASKED, subject="clerk", identifiers={"staff_no": "S-1"})
    plan = make_plan(bank.spark, of_all, (), [asked], (), run="er-1", approve_above=10, now=NOW)
    assert [(Path(one.table).name, dict(one.rows), one.on_erase) for one in plan.tables] == [
        ("transfers", {"r1": 1}, "nullify")
    ]

    # A copy is told of the others all the same: a transfer is not the clerk's, nor what it was before
    register = Register(bank.pg.dsn, schema=bank.pg.schema)
    register.prepare()
    register.add([asked], Keys(SIGNER))
    register.begin("er-1", ["r1"], "digest")
    with register.lease("er-1") as held:
        run = _run(bank, of_all, register, held, asked)
        run.resolve.run()
        run.delete.run()
        erasing = make_task(run.context, run.keys, run.context.tables()[0], ("id",))
        assert (erasing.link, erasing.others) == ("staff_no", ("sender", "recipient"))
        with pytest.raises(ConfigError, match="has changed since the run began"):
            _run(
                bank, Graph.of({**SUBJECTS, "clerk": clerk}, [replace(named, table="elsewhere")]), register, held, asked
            ).execute()
