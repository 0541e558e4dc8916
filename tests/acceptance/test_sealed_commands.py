"""A trail with sealed columns by the commands: without the keys, with them for a purpose, and once they are gone."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from tests.acceptance.commands import Project, change
from tests.acceptance.in_process import Command, here
from tests.integration.delta_table import Table

__all__ = ["here"]  # a fixture

CANARY = "Zelda.Canary@example.org"


def configure(project: Project, table: str, *columns: str) -> None:
    """``columns``: those of the class."""
    classes = {"classes": {"contact": columns}} if columns else {}
    erasure = {
        "state": {"connection": "warehouse"},
        "keys": {"connection": "warehouse", "root_key": "${file:root.key}"},
        "signing_key": "${file:erasure.key}",
        "subjects": {"customer": {"identifiers": {"email": "email", "customer_id": "exact"}}},
        "tables": {table: {"subject": "customer", "identified_by": "customer_id", "personal": ["email"], **classes}},
    }
    trail = {
        "source": {"table": table, "key": ["no"], "start": "earliest"},
        "sink": {"connection": "trails", "table": "customers"},
    }
    project.write(
        {"trail": trail},
        connections='  trails: {"kind": "delta_audit", "path": "trails"}',
        rest=f"erasure: {json.dumps(erasure)}",
    )


def test_from_the_first_key_to_the_certificate(
    project: Project, here: Command, spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, str(tmp_path / "customers"), "no long, customer_id long, email string, segment string")
    table.sql(
        "insert into {t} values (1, 7, 'anna@example.org', 'a')", f"insert into {{t}} values (2, 700, '{CANARY}', 'b')"
    )
    Signer.generate("example.org/erasure").write(project.folder / "erasure.key")
    assert here("keys", "new-root", "root.key").code == 0
    configure(project, table.path, "customer_id", "email")
    assert here("erase", "init").code == 0
    unmade = here("run")
    assert (unmade.code, "deltarelay keys init" in unmade.err) == (2, True), unmade.err
    assert here("keys", "init").code == 0
    done = here("run")
    assert done.code == 0, done.err

    asked = ("audit", "history", "trail", "--key", "no=2", "--format", "json")
    closed = here(*asked)
    assert closed.code == 0, closed.err
    [row] = closed.document["result"]["rows"]
    assert (row["row.email"], row["row.customer_id"], row["row.segment"]) == ("[sealed]", "[sealed]", "b")
    for words, said in (
        ((*asked, "--decrypt"), "--purpose"),
        ((*asked, "--purpose", "why"), "--decrypt"),
        ((*asked, "--decrypt", "--purpose", "x" * 201), "200 characters"),
        (("audit", "history", "trail", "--key", f"email={CANARY}"), "encrypted"),
    ):
        refused = here(*words)
        assert (refused.code, said in refused.err, CANARY in refused.err) == (2, True, False), refused.err

    found = here(
        "audit", "history", "trail", "--key", f"email={CANARY}", "--decrypt", "--purpose", "DPO-17", "--format", "json"
    )
    assert found.code == 0, found.err
    [row] = found.document["result"]["rows"]
    assert (row["row.email"], row["row.customer_id"]) == (CANARY, 700)
    change(spark, table.path, "update {t} set segment = 'c' where no = 1")
    assert here("run").code == 0
    readings = here("audit", "query", "readings", "--pipeline", "trail", "--format", "json").document["result"]["rows"]
    assert {(one["purpose"], one["question"]) for one in readings} == {("DPO-17", "history")}
    assert here("audit", "verify").code == 0

    (project.folder / "requests.csv").write_text(f"id,email,requester\nDSR-1,{CANARY.lower()},privacy desk\n")
    assert here("erase", "plan", "requests.csv").code == 0
    code, runs = 75, 0
    while code == 75:
        runs += 1
        assert runs < 6
        code = here("erase", "run", "erasure-plan.json", "--purge-immediately").code
        if code == 75:
            shown = here(*asked, "--decrypt", "--purpose", "looking")
            assert shown.document["result"]["rows"][0]["row.email"].startswith("[erased ")
            assert here("run").code == 0
    assert code == 0
    assert here("audit", "verify").code == 0
    last = here(*asked, "--decrypt", "--purpose", "looking")
    assert last.document["result"]["rows"][0]["row.segment"] == "b"
    assert here("erase", "status", "--json").document["result"]["requests"][0]["state"] == "certified"

    # The trail keeps the encrypted row, and the delete after it: the record no longer exists
    kinds = [one["change_type"] for one in here(*asked).document["result"]["rows"]]
    assert kinds == ["insert", "delete"]
    verified = here("verify", "--json")
    assert verified.code == 0, verified.out
    [entry] = verified.document["result"]["pipelines"]
    assert (entry["equal"], entry["source_rows"], entry["target_rows"]) == (True, 1, 1)
    assert "encrypted columns are not compared" in verified.err


def test_what_was_written_before_a_class_was_named(
    project: Project, here: Command, spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, str(tmp_path / "customers"), "no long, customer_id long, email string, segment string")
    table.sql(
        "insert into {t} values (1, 7, 'anna@example.org', 'a')", f"insert into {{t}} values (2, 700, '{CANARY}', 'b')"
    )
    Signer.generate("example.org/erasure").write(project.folder / "erasure.key")
    assert here("keys", "new-root", "root.key").code == 0
    configure(project, table.path)
    assert here("erase", "init").code == 0
    assert here("keys", "init").code == 0
    assert here("run").code == 0
    none = here("audit", "encrypt")
    assert (none.code, "no rows to encrypt" in none.out) == (0, True), none.err

    configure(project, table.path, "customer_id", "email")
    told = here("audit", "encrypt", "--check", "--json")
    assert told.code == 3, told.err
    [entry] = told.document["result"]["pipelines"]
    assert (entry["rows"], entry["classes"], entry["sealed"]) == (2, {"contact": 2}, 0)
    assert (entry["first_version"], entry["last_version"]) == (1, 2)
    (project.folder / "requests.csv").write_text(f"id,email,requester\nDSR-1,{CANARY.lower()},privacy desk\n")
    planned = here("erase", "plan", "requests.csv", "--json")
    [problem] = planned.document["result"]["problems"]
    assert "`deltarelay audit encrypt --pipeline trail`" in problem
    refused = here("erase", "run", "erasure-plan.json")
    assert (refused.code, "audit encrypt" in refused.err) == (2, True), refused.err

    done = here("audit", "encrypt", "--ticket", "SEC-4")
    assert done.code == 0, done.err
    assert "2 rows" in done.out
    assert here("audit", "encrypt", "--check").code == 0
    former = here("audit", "seal", "--check")  # the name before 1.0
    assert (former.code, "use `audit encrypt`" in former.err, former.out.count("no rows to encrypt")) == (0, True, 1)
    removals = here("audit", "query", "removals", "--pipeline", "trail", "--format", "json").document["result"]["rows"]
    assert [(one["kind"], one["events"], one["ticket"]) for one in removals] == [("sealing", 2, "SEC-4")]
    assert here("audit", "verify").code == 0
    closed = here("audit", "history", "trail", "--key", "no=2", "--format", "json").document["result"]["rows"]
    assert closed[0]["row.email"] == "[sealed]"
    for form, name in (("html", "report.html"), ("md", "report.md")):
        assert here("audit", "report", "trail", "--out", name).code == 0
        assert "encrypted; readable before" in (project.folder / name).read_text(), form

    # What is held on whom is told to them alone
    for name in ("access.html", "access.json"):
        made = here("erase", "access-report", "DSR-1", "--out", name)
        assert made.code == 0, made.err
        assert "1 row in 1 table" in made.out
        assert CANARY not in made.out + made.err
        text = (project.folder / name).read_text()
        assert CANARY in text
        assert "anna@example.org" not in text
        assert (project.folder / name).stat().st_mode & 0o777 == 0o600
    held = json.loads((project.folder / "access.json").read_text())
    assert [one["email"] for one in held["history"][0]["events"][0]["rows"]] == [CANARY]
    assert held["recipients"][0]["target"] == "customers of trails (delta_audit)"
    kept = project.database.query("select request, counts ->> 'rows' from erasure.access order by number")
    assert kept == [("DSR-1", "1"), ("DSR-1", "1")]
    for words, said in (
        (("DSR-1", "--out", "access.json"), "already"),
        (("DSR-1", "--out", "nowhere/access.json"), "does not exist"),
        (("DSR-9", "--out", "other.json"), "DSR-9"),
        (("DSR-9", "--out", "other.json", "--requests", "requests.csv"), "no request DSR-9"),
    ):
        refused = here("erase", "access-report", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert here("run").code == 0
    readings = here("audit", "query", "readings", "--pipeline", "trail", "--format", "json").document["result"]["rows"]
    assert {one["question"] for one in readings} == {"access report"}
