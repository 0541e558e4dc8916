"""The command is killed within every step of a run; afterwards nothing that it left anywhere says who was erased.

All there is gets searched, not what deltarelay knows of: the files of the project, of the tables and of the trail as bytes
and, where they are Parquet, by their values; Spark's event logs, in which every plan stands; what the commands printed; the
rows of every table of the database, its statistics and its statements. The same search finds the person beforehand.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from tests.acceptance.commands import KILLED, Project

EMAIL, NUMBER = "Quokka.Canary@example.org", 7_000_700_700
SPELLINGS = [
    spelling.encode()
    for email in (EMAIL.lower(), urllib.parse.quote(EMAIL.lower(), safe=""), str(NUMBER))
    for spelling in (email, base64.b64encode(email.encode()).decode().rstrip("=").lower())
] + [b"quokka"]
STEPS = ("resolve", "deleting", "delete", "forget", "purging", "purge", "scan")
"""The steps of a run, in the order in which it writes them down."""


class Office:
    """Customers and their orders, replicated; the customers into a trail as well. Every command keeps an event log."""

    def __init__(self, project: Project, spark: SparkSession) -> None:
        self.project, self.spark, self.database = project, spark, project.database
        self.data, self.events = project.folder / "data", project.folder / "events"
        self.events.mkdir()
        self.customers, self.orders = str(self.data / "customers"), str(self.data / "orders")
        people = [(n, f"c{n}@example.org", f"name {n}") for n in range(20)]
        self._create(self.customers, "customer_id long, email string, name string", people)
        self._create(self.orders, "order_id long, customer_id long", [(n, n % 20) for n in range(60)])
        self._append(self.customers, "customer_id long, email string, name string", [(NUMBER, EMAIL, "Quokka")])
        self._append(self.orders, "order_id long, customer_id long", [(900, NUMBER), (901, NUMBER)])
        self._configure()

    @property
    def event_log(self) -> list[tuple[str, str]]:
        return [
            ("spark.eventLog.enabled", "true"),
            ("spark.eventLog.compress", "false"),
            ("spark.eventLog.dir", self.events.as_uri()),
        ]

    def _create(self, path: str, columns: str, rows: Sequence[tuple[object, ...]]) -> None:
        self.spark.sql(
            f"create table delta.`{path}` ({columns}) using delta tblproperties (delta.enableChangeDataFeed = true)"
        )
        self._append(path, columns, rows)

    def _append(self, path: str, columns: str, rows: Sequence[tuple[object, ...]]) -> None:
        self.spark.createDataFrame(rows, columns).coalesce(1).write.format("delta").mode("append").save(path)

    def _configure(self) -> None:
        Signer.generate("example.org/erasure").write(self.project.folder / "erasure.key")
        pipelines = {
            name: {
                "source": {"table": path, "key": [key]},
                "sink": {"connection": "warehouse", "table": f"public.{name}"},
            }
            for name, path, key in (
                ("customers", self.customers, "customer_id"),
                ("orders", self.orders, "order_id"),
            )
        }
        pipelines["trail"] = {
            "source": {"table": self.customers, "key": ["customer_id"], "start": "earliest"},
            "sink": {"connection": "trails", "table": "customers"},
        }
        erasure = {
            "state": {"connection": "warehouse", "schema": "erasure"},
            "signing_key": "${file:erasure.key}",
            "subjects": {"customer": {"identifiers": {"email": "email", "customer_id": "exact"}}},
            "tables": {
                self.customers: {"subject": "customer", "identified_by": "customer_id", "personal": ["email", "name"]},
                self.orders: {"subject": "customer", "identified_by": f"customer_id -> {self.customers}.customer_id"},
            },
        }
        spark = {"conf": dict(self.event_log)}
        self.project.write(
            pipelines,
            connections='  trails: {"kind": "delta_audit", "path": "trails"}',
            rest=f"erasure: {json.dumps(erasure)}\nspark: {json.dumps(spark)}",
        )

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────

    def others(self) -> tuple[object, ...]:
        """All that is kept of everybody else, in the tables and in PostgreSQL."""
        feed = [
            sorted(map(tuple, self.spark.read.format("delta").load(path).where(f"customer_id <> {NUMBER}").collect()))
            for path in (self.customers, self.orders)
        ]
        rows = [
            self.database.query(f"select * from public.{name} where customer_id <> %s order by 1", NUMBER)
            for name in ("customers", "orders")
        ]
        return feed, rows

    def traces(self) -> set[str]:
        """The places in which the person is found: files below the project's folder, and tables of the database."""
        found = {str(file.relative_to(self.project.folder)) for file in self._files() if _told(file)}
        return found | {place for place, text in self._database() if _holds(text.encode())}

    def _files(self) -> Iterator[Path]:
        return (file for file in self.project.folder.rglob("*") if file.is_file())

    def _database(self) -> Iterator[tuple[str, str]]:
        tables = self.database.query(
            "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where c.relkind = 'r' and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"
        )
        for table in [*(name for (name,) in tables), "pg_stats"]:
            yield table, "\n".join(row for (row,) in self.database.query(f"select one::text from {table} one"))

    def killed(self, step: str) -> None:
        """Kill the run when its work for a step is done and what it came to is about to be written down."""
        run = self.project.start("erase", "run", "erasure-plan.json", "--purge-immediately", own_jvm=KILLED)
        recorded = self.steps()
        before = STEPS[: STEPS.index(step)]
        run.until(lambda: set(before) <= self.steps().keys(), f"what comes before {step}")
        with self.database.locked("erasure.step", "share row exclusive"):
            run.until(lambda: self.database.waiting("erasure.step"), f"{step} to be written down")
            run.freeze()
            run.kill()
        self.database.no_backends()
        assert self.steps().get(step) == recorded.get(step)

    def steps(self) -> dict[str, int]:
        """What the register has, and how often."""
        return dict(self.database.query("select step, count(*) from erasure.step group by 1"))


def _told(file: Path) -> bool:
    if _holds(str(file.name).encode()) or _holds(file.read_bytes()):
        return True
    if file.suffix != ".parquet":
        return False
    return _holds(str(pq.ParquetFile(file).read().to_pylist()).encode())


def _holds(content: bytes) -> bool:
    content = content.lower()
    return any(spelling in content for spelling in SPELLINGS)


@pytest.fixture
def office(project: Project, spark: SparkSession) -> Office:
    return Office(project, spark)


@pytest.mark.timeout(1500)
def test_killed_within_every_step(office: Office) -> None:
    project, database = office.project, office.database
    requests = project.folder / "requests.csv"
    requests.write_text(f"id,email,requester\nDSR-1,{EMAIL.upper()},privacy desk\n")
    assert project.run("erase", "init").code == 0
    assert project.run("run").code == 0
    before = office.others()

    # The control: the search sees whatever is not hidden from it
    options = "".join(f".config({name!r}, {value!r})" for name, value in office.event_log)
    literal = (
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master('local[1]'){options}.getOrCreate()\n"
        f"spark.range(1).where(\"cast(id as string) = '{EMAIL}'\").collect()\n"
    )
    subprocess.run([sys.executable, "-c", literal], env=project.environment, check=True, capture_output=True)
    found = office.traces()
    for place in ("requests.csv", "data/customers/", "data/orders/", "trails/", "public.customers", "public.orders"):
        assert any(one.startswith(place) for one in found), (place, found)
    controls = [project.folder / place for place in found if place.startswith("events/")]
    assert len(controls) == 1

    planned = project.run("erase", "plan", "requests.csv")
    assert planned.code == 0, planned.err
    for file in (requests, *controls):
        file.unlink()
    for step in ("resolve", "delete"):
        office.killed(step)
    behind = project.run("erase", "run", "erasure-plan.json", "--purge-immediately")
    assert behind.code == 75, behind.err
    for path, rows in ((office.customers, 1), (office.orders, 2)):  # the commit of the killed run is the only one
        history = office.spark.sql(f"describe history delta.`{path}`").where("operation = 'MERGE'").collect()
        assert [one["operationMetrics"]["numTargetRowsDeleted"] for one in history] == [str(rows)]
    assert project.run("run").code == 0
    assert project.run("audit", "verify").code == 0
    for step in ("forget", "purge", "scan"):
        office.killed(step)
        assert database.value("select count(*) from erasure.certificate") == 0
    over = project.run("erase", "run", "erasure-plan.json", "--purge-immediately", "--json", own_jvm=KILLED)
    assert over.code == 0, over.out + over.err
    assert over.document["result"]["state"] == "certified"

    # Each step was written down once
    assert office.steps() == {
        "resolve": 1,
        "deleting": 1,
        "delete": 2,
        "forgetting": 3,
        "forget": 3,
        "purging": 5,
        "purge": 5,
        "scan": 1,
    }
    assert project.run("audit", "verify").code == 0
    assert project.run("run").code == 0
    assert project.run("erase", "certificate", "DSR-1", "--out", "DSR-1.json", "--html", "DSR-1.html").code == 0

    assert office.others() == before
    assert office.traces() == set()
