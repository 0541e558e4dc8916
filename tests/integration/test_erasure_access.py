"""What a person is told that is held on them: their rows, copies and history, and nothing of others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.erasure.access.html import access_page
from audit.erasure.access.report import AccessReport, access_report
from audit.erasure.find.copies import Copy
from audit.erasure.model import EncryptedColumns, Link, PersonalTable, Request, Subject
from audit.erasure.table_graph import Graph
from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError
from connectors.postgres.options import Modes
from connectors.postgres.sink import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.sealed_bank import ASKED, CANARY, NOW, Bank

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, pg: Pg) -> Bank:
    bank = Bank(spark, tmp_path, pg)
    bank.run()
    return bank


def report_of(bank: Bank, *copies: Copy, asked: Request = ASKED) -> AccessReport:
    every = [*bank.copies(), *copies]
    return access_report(
        bank.spark,
        bank.graph(),
        every,
        asked,
        [],
        targets={one.pipeline: f"the target of {one.pipeline}" for one in every},
        registry=bank.registry(),
        reader="desk",
        approve_above=10,
        now=NOW,
    )


def test_everything_of_theirs_and_nothing_of_others(bank: Bank, pg: Pg) -> None:
    report = report_of(bank)
    assert [(one.name, one.value, one.given) for one in report.identifiers] == [
        ("email", CANARY, True),
        ("id", "7", False),
    ]
    customers, transfers = report.tables
    assert customers.held[0].rows == ({"no": 3, "id": 7, "email": CANARY, "segment": "d"},)
    sent, got = transfers.held
    assert (sent.column, sent.rows, sent.withheld) == (
        "sender",
        ({"no": 10, "sender": 7, "sender_name": "Seven of nine", "cents": 51},),
        ("recipient", "recipient_name"),
    )
    assert (got.column, got.rows[0]["recipient_name"], got.withheld) == (
        "recipient",
        "Seven of nine",
        ("sender", "sender_name"),
    )
    assert [(one.pipeline, one.version is not None, one.forgets) for one in report.recipients] == [
        ("customers", True, True),
        ("transfers", True, True),
    ]
    past = {one.pipeline: one.events for one in report.history}
    [own] = past["customers"]
    assert [(row["_change_type"], row["email"], row["segment"]) for row in own.rows] == [
        ("insert", CANARY, "c"),
        ("update_preimage", CANARY, "c"),
        ("update_postimage", CANARY, "d"),
    ]
    assert own.rows[0]["_operation"] == "WRITE"
    assert own.rows[0]["_unreadable"] is None
    assert {(one.column, len(one.rows)) for one in past["transfers"]} == {("sender", 1), ("recipient", 1)}
    text = json.dumps(report.to_dict())
    for page in (text, access_page(report)):
        assert CANARY in page
        assert "Seven of nine" in page
        assert not any(one in page for one in ("p1@x.org", "p2@x.org", '"One"', ">One<", "Two"))
    # The keys of nobody else were handed out, and that they were stands in the registry
    taken = [bank.registry().list_new_readings(sink.path) for sink in bank.sinks.values()]
    assert [(one.keys, one.reader, one.question) for each in taken for one in each] == [
        (1, "desk", "access report"),
        (1, "desk", "access report"),
        (1, "desk", "access report"),
    ]
    assert all(ASKED.id in one.purpose for each in taken for one in each)

    # Whoever is not known gets an empty report
    report = report_of(bank, asked=replace(ASKED, id="r9", identifiers={"email": "nobody@example.org"}))
    assert report.counts() == {"tables": 2, "rows": 0, "kept": 0, "events": 0}
    assert "No data is stored on this person" in access_page(report)

    # A request that may be about two people is looked at first
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.customers", modes=Modes(deletes="soft"))
    pipeline = Pipeline(ChangeFeed(bank.spark, bank.customers.path), sink, key=["no"], name="pg", start="earliest")
    pipeline.run()
    bank.customers.sql(f"insert into {{t}} values (4, 9, '{CANARY}', 'e')")
    bank.run()  # the trails have the readings by now
    nothing: list[list[Any]] = [[], []]
    assert [bank.registry().list_new_readings(sink.path) for sink in bank.sinks.values()] == nothing
    with pytest.raises(
        ConfigError, match=r"request r1 may be about more than one person \(2 values of id\)"
    ) as refused:
        report_of(bank)
    assert "erase approve" in str(refused.value.hint)
    assert [
        bank.registry().list_new_readings(sink.path) for sink in bank.sinks.values()
    ] == nothing  # no key was handed out
    approved = replace(ASKED, approver="boss")
    assert [row["id"] for row in report_of(bank, asked=approved).tables[0].held[0].rows] == [7, 9]

    # Rows that only a copy keeps are told
    bank.customers.sql("delete from {t} where no in (3, 4)")
    pipeline.run()
    bank.run()
    report = report_of(bank, Copy("pg", bank.customers.path, ("no",), sink), asked=approved)
    assert report.tables[0].held[0].rows == ()
    [kept] = next(one for one in report.recipients if one.pipeline == "pg").kept
    assert [(row["id"], row["email"]) for row in kept.rows] == [(7, CANARY)]
    assert report.counts()["kept"] == 1


def test_history_of_a_shared_row_leaves_out_whoever_is_readable_in_it(
    spark: SparkSession, tmp_path: Path, pg: Pg
) -> None:
    bank = Bank(spark, tmp_path, pg, plain_sender=True)
    bank.run()
    bank.transfers.sql("alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')")
    bank.transfers.sql("alter table {t} rename column recipient_name to to_name")
    bank.run()
    report = report_of(bank)
    past = {one.pipeline: one.events for one in report.history}
    rows = {one.column: one.rows for one in past["transfers"]}
    assert {column: [row["no"] for row in found] for column, found in rows.items()} == {
        "sender": [10],
        "recipient": [11],
    }
    assert not any("One" in str(row) for row in rows["recipient"])
    # An erased value is told by the name that its column has now
    tokens = frozenset(one for one in bank.registry().find_tokens("customer", [[("id", "7")]]) if one is not None)
    bank.registry().destroy_keys(tokens, run="er-9")
    whose = EncryptedColumns(tokens, frozenset({"recipient", "to_name"}), frozenset({"sender", "sender_name"}))
    [event] = (
        bank.sinks["transfers"]
        .erasure.read_history(lambda rows: rows.where("false"), whose, lambda _: bank.registry().read_states)
        .collect()
    )
    assert (event["no"], event["to_name"]) == (11, None)
    assert event["_unreadable"]["to_name"].startswith("[erased ")


def test_what_rows_say_of_another_kind_of_person_stays_out(spark: SparkSession, tmp_path: Path) -> None:
    customers = Table(spark, f"{tmp_path}/customers", "id long, email string")
    shops = Table(spark, f"{tmp_path}/shops", "id long, email string")
    orders = Table(
        spark, f"{tmp_path}/orders", "no long, buyer long, name string, shop long, shop_mail string, cents long"
    )
    customers.sql(f"insert into {{t}} values (7, '{CANARY}')")
    shops.sql("insert into {t} values (7, 'shop@x.org')")
    orders.sql("insert into {t} values (1, 7, 'Seven', 7, 'shop@x.org', 12), (2, 8, 'Eight', 7, 'shop@x.org', 13)")
    seller = PersonalTable(orders.path, "shop", Link("shop", shops.path, "id"), ("shop_mail",))
    graph = Graph.of(
        {kind: Subject(kind, {"email": "email", "id": "exact"}) for kind in ("customer", "shop")},
        [
            PersonalTable(customers.path, "customer", "id", ("email",)),
            PersonalTable(shops.path, "shop", "id", ("email",)),
            PersonalTable(orders.path, "customer", Link("buyer", customers.path, "id"), ("name",), others=(seller,)),
        ],
    )
    report = access_report(
        spark, graph, [], ASKED, [], targets={}, registry=None, reader="desk", approve_above=10, now=NOW
    )
    assert [Path(one.table).name for one in report.tables] == ["customers", "orders"]
    [bought] = report.tables[1].held
    assert bought.rows == ({"no": 1, "buyer": 7, "name": "Seven", "cents": 12},)
    assert bought.withheld == ("shop", "shop_mail")
    # A row that is somebody else's as a whole, of which nothing is said: what tells of them stays out, and all the rest
    clerk = PersonalTable(orders.path, "clerk", "no", ("no", "cents"), "nullify")
    whole = PersonalTable(orders.path, "customer", Link("buyer", customers.path, "id"), others=(clerk,))
    graph = Graph.of(
        {
            "customer": Subject("customer", {"email": "email", "id": "exact"}),
            "clerk": Subject("clerk", {"no": "exact"}),
        },
        [PersonalTable(customers.path, "customer", "id", ("email",)), whole],
    )
    asked = replace(ASKED, subject="clerk", identifiers={"no": "1"})
    report = access_report(
        spark, graph, [], asked, [], targets={}, registry=None, reader="desk", approve_above=10, now=NOW
    )
    [served] = report.tables[0].held
    assert (served.rows, served.withheld) == (({"no": 1, "cents": 12},), ("buyer", "name", "shop", "shop_mail"))
