"""The pages of trails and erasure requests: verified, signed, anchored; due dates, and nothing that identifies a person."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.checkpoints.coverage import read_coverage
from audit.erasure.model import Request
from audit.erasure.register.store import Register
from audit.signing.signer import Signer
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from infra.config.limits import Limits
from infra.config.load import load
from infra.diagnostics.verified_state import VerifiedStateFile
from infra.monitoring.page.access import Access
from infra.monitoring.page.app import build_app
from infra.monitoring.page.collector import Collector
from infra.output import Output
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.test_erasure_register import CANARY, KEYS

SIGNER = Signer.generate("trail.example.org/page")
TODAY = dt.datetime.now(dt.UTC).date()


@contextmanager
def serving(config: Path) -> Iterator[TestClient]:
    project = load(config)
    collector = Collector(project, list(project.pipelines), interval_seconds=600)
    app = build_app(collector, Access(), Limits(), config=config)
    try:
        yield TestClient(app, base_url="http://localhost")
    finally:
        collector.close()


def test_a_trail_is_shown_as_far_as_it_is_verified_signed_and_anchored(
    spark: SparkSession, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source, anchors = Table(spark, delta_path), tmp_path / "anchors"
    anchors.mkdir()
    source.sql(f"insert into {{t}} values (1, '{CANARY}')", f"insert into {{t}} values (2, '{CANARY}')")
    SIGNER.write(tmp_path / "audit.key")
    trail = {
        "kind": "delta_audit",
        "path": str(tmp_path / "trails"),
        "signing_key": f"${{file:{tmp_path / 'audit.key'}}}",
        "anchors": [{"kind": "file", "path": str(anchors)}],
    }
    config = tmp_path / "deltarelay.yaml"
    config.write_text(
        f"version: 1\nconnections:\n  trail: {json.dumps(trail)}\npipelines:\n  people:\n"
        f"    source: {{table: {delta_path}, key: [id], start: earliest}}\n    sink: {{connection: trail, table: people}}\n"
    )
    with serving(config) as web:
        assert "has not written a trail yet" in web.get("/audit").text
    path = str(tmp_path / "trails/people")
    anchored = DeltaAuditSink(path, spark=spark, signer=SIGNER, anchors=[NamedAnchor("safe", FileAnchor(anchors))])
    Pipeline(ChangeFeed(spark, delta_path), anchored, key="id", start="earliest", name="people").run()
    found, state = anchored.trail.verify()
    assert found.intact
    assert state is not None
    VerifiedStateFile(None, path).write(state.to_json(), Output("test"))

    with serving(config) as web:
        page = web.get("/audit").text
    records = anchored.trail.tables.read("ledger").count()
    assert "verified, signed and anchored" in page
    assert f"{records} records, through version 2" in page
    assert f"signed through {records} records, version 2" in page
    assert "the last record is signed by a trusted key" in page
    assert f"through version 2, {records} records, at {dt.datetime.now(dt.UTC):%Y-%m}" in page

    assert (covered := anchored.coverage()) is not None
    assert (covered.unanchored_commits, covered.unanchored_since) == (0, None)

    # A window whose checkpoint reaches no anchor
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    source.sql(f"insert into {{t}} values (3, '{CANARY}')")
    Pipeline(
        ChangeFeed(spark, delta_path), DeltaAuditSink(path, spark=spark, signer=SIGNER), key="id", name="people"
    ).run()
    assert (uncovered := anchored.coverage()) is not None
    assert uncovered.unanchored_commits == 1
    assert uncovered.unanchored_since is not None
    assert before < uncovered.unanchored_since < dt.datetime.now(dt.UTC)
    with serving(config) as web:
        page = web.get("/audit").text
        assert f"1 of {records + 1} records are covered by no anchor yet" in page
        shutil.rmtree(anchors)
        assert "needs a person" not in page
    with serving(config) as web:
        page = web.get("/audit").text
    assert "needs a person" in page
    assert re.search("<li>the anchor [^<:]* cannot be used", page)
    # Another key than the trail's own makes nothing of it trusted
    other = read_coverage(path, None, [Signer.generate("other.example.org/a").verifier], [])
    assert other is not None
    assert (other.version, other.is_end_signed) == (3, False)
    # The control: the values are in the trail's files that the page reads beside
    assert CANARY in str(DeltaTable(f"{path}/payload").to_pyarrow_table().to_pylist())
    assert CANARY not in page
    assert SIGNER.secret() not in page


def test_requests_are_shown_by_due_date_without_anything_that_identifies_a_person(pg: Pg, tmp_path: Path) -> None:
    register = Register(pg.dsn, schema=pg.schema)
    register.prepare()
    received = TODAY - dt.timedelta(days=40)
    dates = {
        "late": TODAY - dt.timedelta(days=3),
        "soon": TODAY + dt.timedelta(days=2),
        "later": TODAY + dt.timedelta(20),
    }
    register.add(
        [
            Request(id, "customer", {"email": CANARY}, received, due, f"basis {CANARY}", f"requester {CANARY}")
            for id, due in dates.items()
        ],
        KEYS,
    )
    register.record_return(["later"], "lake/customers", 7)
    SIGNER.write(tmp_path / "erasure.key")
    config = tmp_path / "deltarelay.yaml"
    config.write_text(
        f"version: 1\nconnections:\n  warehouse: {{kind: postgres, dsn: '{pg.dsn}'}}\npipelines:\n  people:\n"
        "    source: {table: lake/customers, key: [id]}\n"
        f"    sink: {{connection: warehouse, table: {pg.schema}.people}}\n"
        f"erasure:\n  state: {{connection: warehouse, schema: {pg.schema}}}\n"
        f"  signing_key: ${{file:{tmp_path / 'erasure.key'}}}\n"
        "  subjects: {customer: {identifiers: {email: exact}}}\n"
        "  tables:\n    lake/customers: {subject: customer, identified_by: email, personal: [name]}\n"
    )
    with serving(config) as web:
        page = web.get("/erasure").text
        assert web.get("/audit").status_code == 404
        assert '<a href="./erasure" aria-current="page">Erasure</a>' in page
    assert re.findall(r'role="rowheader">(\w+)', page) == ["late", "later", "soon"]
    assert f'{dates["late"]} <b class="warn">overdue</b>' in page
    assert page.count('class="warn"') == 1
    assert "the person returned at" in page
    assert "in lake/customers" in page
    assert CANARY not in page
    assert CANARY in str(pg.query("select r::text from {schema}.request r")), "the control: it is in the register"


def test_a_register_that_does_not_answer_is_an_error_on_the_page(tmp_path: Path) -> None:
    SIGNER.write(tmp_path / "erasure.key")
    config = tmp_path / "deltarelay.yaml"
    config.write_text(
        "version: 1\nconnections:\n  warehouse: {kind: postgres, dsn: 'postgresql://relay@127.0.0.1:1/x'}\npipelines:\n"
        "  people: {source: {table: t, key: [id]}, sink: {connection: warehouse, table: people}}\n"
        "erasure:\n  state: {connection: warehouse, schema: s}\n"
        f"  signing_key: ${{file:{tmp_path / 'erasure.key'}}}\n"
        "  subjects: {customer: {identifiers: {email: exact}}}\n"
        "  tables:\n    t: {subject: customer, identified_by: email, personal: [name]}\n"
    )
    with serving(config) as web:
        page = web.get("/erasure")
    assert page.status_code == 200
    assert "when the database can be reached" in page.text
    assert "There are no requests" not in page.text
