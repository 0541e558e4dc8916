"""What an auditor is handed, by the commands: a trail that matches its source, its report, and both once somebody lied."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from tests.acceptance.commands import Project, change, create_source
from tests.acceptance.in_process import Command, here
from tests.integration.intruder import rewrite

__all__ = ["here"]  # a fixture

SECRET_VALUE = "canary-4711"


def test_reconcile_and_report(project: Project, here: Command, spark: SparkSession, delta_path: str) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        f"insert into {{t}} select id, '{SECRET_VALUE}', 1 from range(10)",
        "delete from {t} where id = 8",
    )
    (project.folder / "anchors").mkdir()
    signer = Signer.generate("example.org/test")
    signer.write(project.folder / "audit.key")
    trail = {
        "kind": "delta_audit",
        "path": "trails",
        "signing_key": "${file:audit.key}",
        "anchors": [{"kind": "file", "path": "anchors"}],
    }
    source = {"table": delta_path, "key": ["id"], "start": "earliest"}
    sink = {"connection": "trail", "table": "customers"}
    project.write({"customers": {"source": source, "sink": sink}}, connections=f"  trail: {json.dumps(trail)}")
    assert here("run").code == 0

    done = project.run("audit", "reconcile", "--json")
    found = done.pipeline("customers")
    assert (done.code, found["equal"], found["versions"], found["rows"], found["pins"]) == (0, True, 3, 11, 3)
    done = project.run("audit", "report", "customers", "--out", "report.html")
    page = (project.folder / "report.html").read_text()
    assert (done.code, done.out) == (0, "report.html: intact\n")
    assert page.startswith("<!doctype html>")
    assert str(signer.verifier) in page
    assert SECRET_VALUE not in page + done.err

    # Somebody rewrites the source's log, and takes an event out of the trail
    file = Path(delta_path, "_delta_log", f"{2:020}.json")
    file.write_text(file.read_text().replace('"operation":"DELETE"', '"operation":"UPDATE"'))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    rewrite(project.folder / "trails/customers/events", lambda rows: rows.slice(1))
    done = here("audit", "reconcile")
    assert done.code == 3
    assert "DIFFERENT from the source: 2 findings" in done.out
    assert "log: version 2: its commit file" in done.out
    done = here("audit", "report", "customers", "--out", "report.json", "--json")
    report = json.loads((project.folder / "report.json").read_text())
    assert (done.code, done.document["result"]["format"], done.document["result"]["intact"]) == (3, "json", False)
    assert [one["kind"] for one in report["verification"]["findings"]] == ["missing"]
    assert SECRET_VALUE not in done.out + done.err + json.dumps(report)
    assert here("audit", "report", "customers", "--out", "no/such/folder.html").code == 2
