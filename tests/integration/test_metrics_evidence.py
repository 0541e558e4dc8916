"""Metrics of trails and erasure requests: a ledger of delta-rs, a real anchor and a real register; exact values."""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from prometheus_client import generate_latest

from audit.anchors.file import FileAnchor
from audit.checkpoints.coverage import read_coverage
from audit.erasure.model import Request
from audit.erasure.register.store import Register
from audit.proof import Checkpoint
from audit.signing.signer import Signer
from infra.config.load import load
from infra.config.models import Project
from infra.monitoring import metric_names as names
from infra.monitoring.metric_names import Metric
from infra.monitoring.metric_store import MetricStore
from infra.monitoring.metrics import MetricsObserver
from infra.monitoring.metrics_evidence import EvidenceReader
from tests.fixtures.fix_postgres import Pg
from tests.integration.test_erasure_register import CANARY, KEYS

SIGNER = Signer.generate("trail.example.org/metrics")
TODAY = dt.datetime.now(dt.UTC).date()
RECORDS = pa.schema(
    {
        "sequence": pa.int64(),
        "version": pa.int64(),
        "committed_at": pa.timestamp("us", "UTC"),
        "signed_state": pa.string(),
    }
)


def configure(folder: Path, dsn: str, schema: str, *, anchors: bool = True, rest: str = "") -> Project:
    if not (folder / "audit.key").exists():
        SIGNER.write(folder / "audit.key")
    key = f"${{file:{folder / 'audit.key'}}}"
    trail: dict[str, Any] = {"kind": "delta_audit", "path": str(folder / "trails"), "signing_key": key}
    if anchors:
        trail["anchors"] = [{"kind": "file", "path": str(folder / "anchors")}]
    config = folder / "deltarelay.yaml"
    config.write_text(
        f"version: 1\nconnections:\n  trail: {json.dumps(trail)}\n  warehouse: {{kind: postgres, dsn: '{dsn}'}}\n"
        "pipelines:\n"
        "  people: {source: {table: lake/customers, key: [id]}, sink: {connection: trail, table: people}}\n"
        "  copy: {source: {table: lake/customers, key: [id]}, sink: {connection: warehouse, table: people}}\n"
        f"erasure:\n  state: {{connection: warehouse, schema: {schema}}}\n  signing_key: {key}\n"
        "  subjects: {customer: {identifiers: {email: exact}}}\n"
        "  tables:\n    lake/customers: {subject: customer, identified_by: email, personal: [name]}\n" + rest
    )
    return load(config)


def write_ledger(folder: Path, versions: list[int | None], *, age: dt.timedelta = dt.timedelta(0)) -> str:
    """→ the origin of its checkpoints. Records without a version are no commits. ``age``: of the source's commits."""
    now = dt.datetime.now(dt.UTC) - age
    records = [
        {"sequence": at, "version": version, "committed_at": None if version is None else now, "signed_state": None}
        for at, version in enumerate(versions)
    ]
    ledger = folder / "trails" / "people" / "ledger"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    position = max((one for one in versions if one is not None), default=None)
    state = {"sequence": len(versions), "version": position, "table_id": None}
    metadata = {"userMetadata": json.dumps({"state": state})}
    write_deltalake(
        ledger,
        pa.Table.from_pylist(records, schema=RECORDS),
        mode="overwrite",
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
    return f"deltarelay.audit/{DeltaTable(ledger).metadata().id}"


def read(project: Project, metric: Metric, labels: tuple[str, ...]) -> float | None:
    store = MetricStore()
    reader = EvidenceReader(project, ["people", "copy"], store)
    reader.stop()
    reader.join(30)
    found: float | None = store.copy_values()[metric.name].get(labels)
    return found


def test_commits_that_no_anchor_covers_are_counted(pg: Pg, tmp_path: Path) -> None:
    anchors = tmp_path / "anchors"
    anchors.mkdir()
    project = configure(tmp_path, pg.dsn, pg.schema)
    people = ("people",)
    assert read(project, names.UNANCHORED_COMMITS, people) is None  # no trail yet
    origin = write_ledger(tmp_path, [0, 1, None])
    assert read(project, names.UNANCHORED_COMMITS, people) == 2
    FileAnchor(anchors).publish(origin, SIGNER.sign(Checkpoint(origin, 3, bytes(32))))
    assert read(project, names.UNANCHORED_COMMITS, people) == 0
    write_ledger(tmp_path, [0, 1, None, 2, None, 3, 4])
    assert read(project, names.UNANCHORED_COMMITS, people) == 3
    shutil.rmtree(anchors)  # the anchor is lost
    assert read(project, names.UNANCHORED_COMMITS, people) == 5
    assert read(project, names.UNANCHORED_COMMITS, ("copy",)) is None
    assert read(configure(tmp_path, pg.dsn, pg.schema, anchors=False), names.UNANCHORED_COMMITS, people) is None
    coverage = read_coverage(str(tmp_path / "trails" / "people"), None, [SIGNER.verifier], [])
    assert coverage is not None
    assert coverage.unanchored_commits is None


def test_overdue_requests_are_counted_and_nothing_of_a_person_is_shown(pg: Pg, tmp_path: Path) -> None:
    register = Register(pg.dsn, schema=pg.schema)
    register.prepare()
    dues = {"late": -3, "later": -1, "today": 0, "soon": 2}
    received = TODAY - dt.timedelta(days=40)
    register.add(
        [
            Request(id, "customer", {"email": CANARY}, received, TODAY + dt.timedelta(days), "basis", CANARY)
            for id, days in dues.items()
        ],
        KEYS,
    )
    project, file = configure(tmp_path, pg.dsn, pg.schema), tmp_path / "x.prom"
    for _ in range(2):  # the second run reads what the first has written
        observer = MetricsObserver(project, ["copy"], textfile=file)
        observer.close()
        assert "deltarelay_erasures_overdue 2.0\n" in file.read_text()
    text = generate_latest(observer.store.build_registry()).decode()
    assert CANARY not in text
    assert CANARY in str(pg.query("select r::text from {schema}.request r")), "the control: it is in the register"


def test_a_register_that_does_not_answer_is_an_unknown_figure_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project = configure(tmp_path, "postgresql://relay:secret-4711@127.0.0.1:1/x", "deltarelay_erasure", anchors=False)
    store = MetricStore()
    store.set(names.ERASURES_OVERDUE, (), 3)
    with caplog.at_level(logging.INFO, "deltarelay"):
        reader = EvidenceReader(project, ["people"], store)
        began = time.monotonic()
        while names.ERASURES_OVERDUE.name not in str([one.__dict__ for one in caplog.records]):
            assert time.monotonic() - began < 30
            time.sleep(0.05)
        reader.stop()  # reads once more
        reader.join(30)
    assert store.copy_values()[names.ERASURES_OVERDUE.name] == {}
    assert [one.getMessage() for one in caplog.records] == ["a metric was not read"]
    assert "4711" not in str([one.__dict__ for one in caplog.records])
