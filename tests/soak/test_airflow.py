"""The recipes for Airflow in a real Airflow (`airflow dags test`), in an environment of its own, which the first run makes.

DELTARELAY_TEST_AIRFLOW names an environment that has it already: a folder with `bin/airflow`, and with deltalake installed.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.acceptance.commands import REPOSITORY, Database, Project, pipeline

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

RECIPE = REPOSITORY / "infra" / "deploy" / "airflow"
PACKAGES = ("apache-airflow==3.3.2", "deltalake>=1.6,<2")
SECONDS = 1800

STUB = '''#!{python}
"""Stands for deltarelay: the n-th call for a pipeline ends with the n-th exit code of plan.json."""
import json, pathlib, signal, sys, time
folder = pathlib.Path(__file__).parent
command, name = sys.argv[1], sys.argv[sys.argv.index("-p") + 1]
with open(folder / (name + ".calls"), "a") as calls:
    calls.write(command + "\\n")
number = (folder / (name + ".calls")).read_text().split().count(command)
step = json.loads((folder / "plan.json").read_text())[name][command][number - 1]
def stop(*_):
    with open(folder / (name + ".calls"), "a") as calls:
        calls.write("terminated\\n")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
print(json.dumps({{"result": {{"pipelines": [{{"pipeline": name, **step["entry"]}}]}}}}), flush=True)
time.sleep(step.get("sleep", 0))
sys.exit(step["code"])
'''

STUB_DAG = """
from datetime import datetime, timedelta
from airflow.sdk import dag
from deltarelay_airflow import DeltaRelayOperator, DeltaVersionSensor

@dag(schedule=None, start_date=datetime(2026, 1, 1), default_args={{"retries": 3, "retry_delay": timedelta(seconds=0)}})
def stubs():
    for name in {names}:
        limit = {{"execution_timeout": timedelta(seconds=3), "retries": 0}} if name == "slow" else {{}}
        DeltaRelayOperator(task_id=name, pipelines=[name], program="{program}", poll_seconds=0.1, **limit)
    DeltaVersionSensor(task_id="newer", table="{table}", after=1, poll_seconds=0.1)

stubs()
"""


def step(code: int, error: str | None = None, **entry: object) -> dict[str, object]:
    return {
        "code": code,
        "entry": {"ok": code == 0, **entry, **({"error": {"code": error, "message": "-"}} if error else {})},
    }


PLAN = {
    "temporary": {"run": [step(75, "sink_unavailable"), step(75, "sink_unavailable"), step(0, position=4)]},
    "killed": {"run": [step(137), step(0, position=4)]},
    "failed": {"run": [step(1, "row_rejected")]},
    "config": {"run": [step(2)]},
    "brake": {"run": [step(3, "brake_stopped")]},
    "held": {
        "run": [step(75, "lease_held"), step(0, position=7)],
        "position": [step(0, lease_holder="a"), step(75, "sink_unavailable"), step(0, lease_holder=None)],
    },
    "slow": {"run": [{**step(0), "sleep": 60}]},
}


@dataclass
class Airflow:
    program: Path
    home: Path

    def run(self, *words: str, **environment: str) -> str:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
        own = {"AIRFLOW_HOME": str(self.home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "NO_COLOR": "1"}
        done = subprocess.run(
            [self.program, *words],
            env={**variables, **own, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        (self.home / f"{words[-1]}.log").write_text(done.stdout)
        return done.stdout

    def states(self, dag: str) -> dict[str, tuple[str, int]]:
        """State and attempts of each task."""
        with sqlite3.connect(self.home / "airflow.db") as store:
            rows = store.execute(
                "select task_id, map_index, state, try_number from task_instance where dag_id = ?", [dag]
            ).fetchall()
        return {task if index < 0 else f"{task} {index}": (state, tries) for task, index, state, tries in rows}

    def write_dag(self, name: str, text: str) -> None:
        (self.home / "dags").mkdir(exist_ok=True)
        (self.home / "dags" / name).write_text(text)


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    there = os.environ.get("DELTARELAY_TEST_AIRFLOW")
    folder = Path(there) if there else REPOSITORY / "build" / "airflow"
    if not (folder / "bin" / "airflow").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    made = Airflow(folder / "bin" / "airflow", tmp_path / "airflow")
    (made.home / "plugins").mkdir(parents=True)
    (made.home / "plugins" / "deltarelay_airflow.py").write_text((RECIPE / "deltarelay_airflow.py").read_text())
    made.run("db", "migrate")
    return made


def test_exit_codes_leases_timeouts_and_versions(airflow: Airflow, tmp_path: Path) -> None:
    folder = tmp_path / "stub"
    folder.mkdir()
    program, table = folder / "deltarelay", tmp_path / "table"
    program.write_text(STUB.format(python=sys.executable))
    program.chmod(0o755)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    for _ in range(3):
        write_deltalake(table, pa.table({"id": [1]}), mode="append")
    airflow.write_dag("stubs.py", STUB_DAG.format(names=list(PLAN), program=program, table=table))
    printed = airflow.run("dags", "test", "stubs")

    assert airflow.states("stubs") == {
        "temporary": ("success", 3),
        "killed": ("success", 2),
        "failed": ("failed", 1),
        "config": ("failed", 1),
        "brake": ("failed", 1),
        "held": ("success", 1),
        "slow": ("failed", 1),
        "newer": ("success", 1),
    }, printed
    calls = {name: (folder / f"{name}.calls").read_text().split() for name in PLAN}
    assert calls["temporary"] == ["run"] * 3
    assert [calls[name] for name in ("failed", "config", "brake")] == [["run"]] * 3
    assert calls["held"] == ["run", "position", "position", "position", "run"]
    assert calls["slow"] == ["run", "terminated"]


def test_the_recipes_replicate_what_is_new(airflow: Airflow, project: Project, database: Database) -> None:
    names = ["orders", "customers", "items", "idle"]
    for name in names:
        table = DeltaTable.create(
            str(project.folder / name),
            pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.int64())]),
            configuration={"delta.enableChangeDataFeed": "true"},
        )
        write_deltalake(table, pa.table({"id": [1, 2], "name": ["a", "b"], "amount": [1, 2]}), mode="append")
    project.write({name: pipeline(str(project.folder / name), table=f"public.{name}") for name in names})
    program = project.folder / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m infra.cli.main "$@"\n')
    program.chmod(0o755)
    module = airflow.home / "plugins" / "deltarelay_airflow.py"
    module.write_text(module.read_text().replace("/opt/deltarelay/bin/deltarelay", str(program)))
    for recipe in ("deltarelay_dag.py", "deltarelay_tables_dag.py"):
        text = (RECIPE / recipe).read_text().replace("/lake/orders", str(project.folder / "orders"))
        text = text.replace(
            'task_id="catch_up", pipelines', f'task_id="catch_up", config="{project.config}", pipelines'
        )
        text = text.replace('command="verify"', f'command="verify", config="{project.config}"')
        text = text.replace("/etc/deltarelay/deltarelay.yaml", str(project.config)).replace("BATCH = 20", "BATCH = 2")
        airflow.write_dag(recipe, text)

    printed = airflow.run("dags", "test", "deltarelay", **project.environment)
    assert airflow.states("deltarelay") == {"catch_up": ("success", 1), "verify": ("success", 1)}, printed
    assert database.rows("public.orders") == [(1, "a", 1), (2, "b", 2)]

    assert project.run("pause", "idle", "--reason", "test").code == 0
    printed = airflow.run("dags", "test", "deltarelay_tables", **project.environment)
    assert airflow.states("deltarelay_tables") == {"find_work": ("success", 1), "catch_up 0": ("success", 1)}, printed
    assert database.rows("public.items") == database.rows("public.customers") == [(1, "a", 1), (2, "b", 2)]
    assert not database.exists("public.idle")
    assert re.search(r"orders.*error", printed) is None
