"""``deltarelay audit``: a key is made, trails are signed and verified, an event is proven; then somebody is at the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.signing.signer import Signer
from audit.trail.tables import PAYLOAD
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.acceptance.commands import Project, change, create_source
from tests.acceptance.in_process import Command, here
from tests.integration.intruder import rewrite

__all__ = ["here"]  # a fixture

VERIFIED = {
    "ok", "pipeline", "trail", "origin", "level", "intact", "first_version", "last_version", "last_committed_at",
    "sealed_version", "sealed_committed_at", "records", "events", "values", "removed", "resealed", "unrecorded",
    "checkpoints", "unfinished", "unreachable", "findings", "more_findings", "seconds", "not_covered",
}  # fmt: skip


def test_keys(project: Project, here: Command) -> None:
    """No JVM, and no configuration."""
    done = project.run("audit", "keygen", "example.org/trail", "--out", "audit.key", "--json")
    assert done.code == 0, done.err
    made, secret = done.document["result"], (project.folder / "audit.key").read_text()
    assert made == {"key_file": "audit.key", "verifier_key": str(Signer.parse(secret).verifier)}
    assert (project.folder / "audit.key").stat().st_mode & 0o077 == 0
    again = here("audit", "keygen", "example.org/trail", "--out", "audit.key")
    assert (again.code, (project.folder / "audit.key").read_text()) == (2, secret)
    assert "already exists" in again.err
    assert here("audit", "keygen", "two words", "--out", "other.key").code == 2
    assert not [file for file in project.folder.glob("*.[oe][ur][tr]") if secret.strip() in file.read_text()]

    trail = {"kind": "delta_audit", "path": "trails", "keys": [made["verifier_key"][:-4] + "AAAA"]}
    project.write({}, connections=f"  trail: {json.dumps(trail)}")
    refused = here("validate")
    assert refused.code == 2
    assert "is not a verifier key" in refused.err


def test_trails(project: Project, here: Command, spark: SparkSession, tmp_path: Path) -> None:
    signer, folder = Signer.generate("example.org/trail"), project.folder
    signer.write(folder / "audit.key")
    (folder / "anchors").mkdir()
    trail = {
        "kind": "delta_audit",
        "path": "trails",
        "signing_key": "${file:audit.key}",
        "anchors": [{"kind": "file", "path": "anchors"}],
    }
    sources = {name: str(tmp_path / name) for name in ("customers", "orders")}
    pipelines = {
        name: {
            "source": {"table": path, "key": ["id"], "start": "earliest"},
            "sink": {"connection": "trail", "table": name},
        }
        for name, path in sources.items()
    }
    project.write(pipelines, connections=f"  trail: {json.dumps(trail)}")

    def run(name: str, anchors: str = "anchors") -> None:
        named = NamedAnchor(anchors, FileAnchor(folder / anchors))
        sink = DeltaAuditSink(str(folder / "trails" / name), spark=spark, signer=signer, anchors=[named])
        Pipeline(ChangeFeed(spark, sources[name]), sink, key=["id"], start="earliest", name=name).run()

    for name, path in sources.items():
        create_source(spark, path)
        change(spark, path, "insert into {t} values (1, 'canary-4711', 1), (2, 'b', 2)")
        run(name)
    kept = sorted((folder / "anchors").rglob("*.txt"))
    verify = ("audit", "verify", "--state", "state")

    done = project.run(*verify)
    assert done.code == 0, done.out + done.err
    for name in sources:
        assert f"{name}: intact and signed through version 1 (20" in done.out
        for step in ("ledger", "events", "values", "statistics"):
            assert f"{name}: checking the {step}" in done.err
    assert "false data in the source" in done.out
    states = {file: file.read_text() for file in (folder / "state").iterdir()}
    assert len(states) == len(sources)

    change(spark, sources["customers"], "update {t} set name = 'c' where id = 2")
    run("customers")
    checkpoints = [word for file in kept for word in ("--anchor", str(file))]
    done = here(*verify, "--level", "quick", *checkpoints, "--json")  # each to the trail that it is of
    assert done.code == 0, done.out + done.err
    found = done.pipeline("customers")
    assert set(found) == VERIFIED
    assert (found["level"], found["intact"], found["findings"]) == ("quick", True, [])
    assert (found["events"], found["last_version"], found["sealed_version"]) == (2, 2, 2)
    assert done.pipeline("orders")["events"] == 0

    done = here("audit", "checkpoint", "--json")
    assert done.code == 0, done.err
    assert [done.pipeline(name)["version"] for name in sources] == [2, 1]
    done = here("audit", "anchors", "--json")
    assert done.code == 0, done.err
    listed = done.pipeline("customers")["checkpoints"]
    assert [(one["records"], one["signed"]) for one in listed] == [(2, True), (3, True)]

    done = here("audit", "prove", "customers", "1", "0", "--out", "event.proof", "--show-row")
    assert done.code == 0, done.err
    assert (folder / "event.proof").stat().st_mode & 0o077 == 0  # a person's row is in it
    again = here("audit", "prove", "customers", "1", "0", "--out", "event.proof")
    assert (again.code, "already" in again.err) == (2, True)
    check = ("audit", "check", "event.proof", "--key", str(signer.verifier))
    done = here(*check)
    assert (done.code, done.out.startswith("PROVEN")) == (0, True)
    assert "canary-4711" not in done.out
    proven = here(*check, "--show-row", "--json").document["result"]
    assert proven["proven"] is True
    assert proven["row"]["name"] in ("canary-4711", "b")
    proof = folder / "event.proof"
    proof.write_text(proof.read_text().replace("leaf 0 of 2", "leaf 1 of 2"))
    done = here(*check, "--json")
    assert (done.code, done.document["result"]["step"]) == (1, "commit")
    assert here(*check[:-1], "no key").code == 2

    # Somebody alters a row; and the other trail is made anew, together with its anchor
    def edit(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("row")
        values = [{**row, "name": "forged"} for row in rows["row"].to_pylist()]
        return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

    assert rewrite(folder / "trails/customers" / PAYLOAD, edit) == 2
    shutil.rmtree(folder / "trails/orders")
    run("orders")
    states = {file: file.read_text() for file in (folder / "state").iterdir()}
    done = here(*verify, "--json")
    assert done.code == 3, done.out + done.err
    customers, orders = (done.pipeline(name) for name in sources)
    assert {(one["kind"], one["table"]) for one in customers["findings"]} == {("altered", PAYLOAD)}
    assert [(one["version"], one["first"]) for one in customers["findings"]] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [(one["kind"], one["table"]) for one in orders["findings"]] == [("replaced", "ledger")]
    assert {file: file.read_text() for file in (folder / "state").iterdir()} == states
    assert "canary" not in done.out + done.err

    # Without what was kept the checkpoint of before tells it; and that an anchor is gone is told, and hides nothing
    (folder / "anchors").rename(folder / "unmounted")
    old = [str(folder / "unmounted" / file.relative_to(folder / "anchors")) for file in kept]
    words = ("audit", "verify", "--state", "fresh", "-p", "orders")
    done = here(*words)
    assert done.code == 1
    assert "orders: intact through version 1" in done.out
    assert "NOT COMPARED" in done.out
    assert "anchor_unavailable" in done.err
    done = here(*words, *[word for file in old for word in ("--anchor", file)])
    assert done.code == 3
    assert done.out.count("replaced: ") == len(old)
    done = here("audit", "verify", "--state", "fresh", *[word for file in old for word in ("--anchor", file)])
    assert (done.code, "belongs to none of these trails" in done.err) == (2, True)
