"""An audit trail as a target like any other: from the configuration to what it holds, by the commands of every sink."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from tests.acceptance.commands import Project, change, create_source
from tests.acceptance.in_process import Command, here

__all__ = ["here"]  # a fixture


def test_a_pipeline_into_a_trail(project: Project, here: Command, spark: SparkSession, delta_path: str) -> None:
    create_source(spark, delta_path)
    change(spark, delta_path, "insert into {t} select id, 'a', 1 from range(10)")
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

    # No JVM in what comes first
    (project.folder / "anchors").rmdir()
    [looked] = here("validate", "--connect", "--json").document["result"]["connected"]
    [warning] = looked["warnings"]
    assert "will not be published there" in warning
    (project.folder / "anchors").mkdir()
    assert here("validate", "--connect").code == 0
    assert project.run("doctor").code == 0
    status = here("status", "--json").pipeline("customers")
    assert (status["state"], status["position"]) == ("empty", None)
    assert not (project.folder / "trails").exists()

    plan = here("plan", "--json").pipeline("customers")
    assert (plan["problems"], plan["warnings"]) == ([], [])
    assert not (project.folder / "trails").exists()
    done = project.run("run", "--json").pipeline("customers")
    assert (done["inserts"], done["position"]) == (10, 1)
    change(spark, delta_path, "update {t} set name = 'b' where id = 7", "delete from {t} where id = 8")
    status = here("status", "--json").pipeline("customers")
    assert (status["state"], status["position"], status["lag_versions"]) == ("behind", 1, 2)
    done = here("run", "--json").pipeline("customers")
    assert (done["updates"], done["deletes"], done["position"]) == (1, 1, 3)
    for table in ("ledger", "events", "payload"):
        change(spark, f"{project.folder}/trails/customers/{table}", "optimize {t}")
    status = here("status", "--json").pipeline("customers")
    assert (status["state"], status["position"]) == ("up_to_date", 3)
    verified = here("verify", "--json").pipeline("customers")
    assert (verified["equal"], verified["version"], verified["target_rows"]) == (True, 3, 9)
    # One checkpoint of each run that wrote something
    assert len(list((project.folder / "anchors").rglob("*.txt"))) == 2
    secret = signer.secret()
    assert not [file for file in project.folder.rglob("*.out") if secret in file.read_text()]
