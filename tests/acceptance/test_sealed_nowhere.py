"""After everything that is done with sealed columns, no key and nobody who was erased is found anywhere.

All there is gets searched, as in ``test_erase_kill``: files as bytes and, where they are Parquet, by their values; Spark's
event logs, what the commands printed, the rows of every table, and the server's own files. The same search finds both
where they are put on purpose, and the person beforehand.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from audit.encryption.key_registry import Registry
from audit.encryption.root_keys import FileRoot
from audit.signing.signer import Signer
from tests.acceptance.commands import Project
from tests.integration.delta_table import Table

EMAIL, NUMBER = "wombat.canary@example.org", 7_000_800_800


class Found:
    """What is searched, and for what."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.person = [EMAIL.encode(), b"wombat", str(NUMBER).encode(), base64.b64encode(EMAIL.encode())[:-4]]
        self.keys: list[bytes] = []

    def know(self, key: bytes) -> None:
        self.keys += [key, key.hex().encode(), base64.b64encode(key)[:-2], repr(key)[2:-1].encode()]

    def files(self) -> Iterator[Path]:
        server = Path(str(self.project.database.value("show data_directory")))
        for folder in (self.project.folder, server):
            yield from (file for file in folder.rglob("*") if file.is_file())

    def places(self, terms: list[bytes]) -> set[str]:
        lowered = [term.lower() for term in terms]
        found = {file.name for file in self.files() if any(term in _bytes(file) for term in lowered)}
        for table, text in self.database():
            if any(term in text.lower().encode() for term in lowered):
                found.add(table)
        return found

    def database(self) -> Iterator[tuple[str, str]]:
        tables = self.project.database.query(
            "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where c.relkind = 'r' and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"
        )
        for table in [*(name for (name,) in tables), "pg_stats"]:
            yield table, "\n".join(row for (row,) in self.project.database.query(f"select one::text from {table} one"))


def _bytes(file: Path) -> bytes:
    """Lower case, and with the values of Parquet."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:  # the server has let go of it
        return b""
    if file.suffix == ".parquet":
        rows = pq.read_table(file).to_pylist()
        data += repr(rows).encode()
    return data.lower()


@pytest.mark.timeout(1200)
def test_no_key_and_nobody_who_was_erased_is_found(project: Project, spark: SparkSession) -> None:
    table = Table(spark, str(project.folder / "customers"), "no long, customer_id long, email string, segment string")
    table.sql(
        "insert into {t} values (1, 7, 'anna@example.org', 'a')",
        f"insert into {{t}} values (2, {NUMBER}, '{EMAIL}', 'b')",
    )
    events = project.folder / "events"
    events.mkdir()
    Signer.generate("example.org/erasure").write(project.folder / "erasure.key")
    erasure = {
        "state": {"connection": "warehouse"},
        "keys": {"connection": "warehouse", "root_key": "${file:root.key}"},
        "signing_key": "${file:erasure.key}",
        "subjects": {"customer": {"identifiers": {"email": "email", "customer_id": "exact"}}},
        "tables": {
            table.path: {
                "subject": "customer",
                "identified_by": "customer_id",
                "personal": ["email"],
                "classes": {"contact": ["customer_id", "email"]},
            }
        },
    }
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    trail = {
        "source": {"table": table.path, "key": ["no"], "start": "earliest"},
        "sink": {"connection": "trails", "table": "customers"},
    }
    assert project.run("keys", "new-root", "root.key").code == 0
    project.write(
        {"trail": trail},
        connections='  trails: {"kind": "delta_audit", "path": "trails"}',
        rest=f"erasure: {json.dumps(erasure)}\nspark: {json.dumps({'conf': conf})}",
    )
    assert project.run("keys", "init").code == 0
    assert project.run("erase", "init").code == 0
    assert project.run("run").code == 0
    found = Found(project)
    root = FileRoot.parse((project.folder / "root.key").read_text().strip())
    registry = Registry(project.database.dsn, root, schema="keys")
    for number in (7, NUMBER):
        [token] = registry.find_tokens("customer", [[("customer_id", str(number))]])
        assert token is not None
        found.know(registry.find_keys([(token, "contact")])[token, "contact"].key)
    assert found.places(found.person) & {one.name for one in (project.folder / "customers").rglob("*.parquet")}

    shown = project.run(
        "audit", "history", "trail", "--key", "no=2", "--decrypt", "--purpose", "DPO-1", "--format", "json"
    )
    assert EMAIL in shown.out
    (project.folder / f"{len(project.started) - 1}.out").unlink()  # that is what was asked for
    (project.folder / "requests.csv").write_text(f"id,email,requester\nDSR-1,{EMAIL},privacy desk\n")
    assert project.run("erase", "plan", "requests.csv").code == 0
    (project.folder / "requests.csv").unlink()
    codes = [project.run("erase", "run", "erasure-plan.json", "--purge-immediately").code]
    while codes[-1] == 75 and len(codes) < 6:
        assert project.run("run").code == 0
        codes.append(project.run("erase", "run", "erasure-plan.json", "--purge-immediately").code)
    assert codes[-1] == 0
    assert project.run("audit", "verify").code == 0

    assert found.places(found.person) == set()
    assert found.places(found.keys) == set()
    for control in (found.person[0], found.keys[0], found.keys[5], found.keys[6]):
        (project.folder / "control").write_bytes(b"..." + control + b"...")
        assert found.places([control]) == {"control"}
