"""`deltarelay demo` as a process: what it leaves can be used, changed and stopped, and nobody else's files are touched."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest

from cdf.errors import ConfigError
from infra.embedded.postgres import EmbeddedPostgres, programs
from infra.embedded.s3 import EmbeddedS3
from infra.spark.java import require_java
from tests.fixtures.fix_spark import missing_service
from tests.fixtures.resident import Resident

ROOT = Path(__file__).parents[2]
DELTARELAY = [sys.executable, "-m", "infra.cli.main"]
PATIENCE = 500
"""Seconds. A demo takes about 60; a machine that is busy with other things is given more."""


def environment(**changed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110", **changed}


def command(
    resident: Resident, *words: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = [*DELTARELAY[1:], *map(str, words)]
    return resident.run(*arguments, folder=cwd, environment=env or environment(), seconds=PATIENCE)


def everything(folder: Path) -> dict[str, str | None]:
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def services() -> None:
    try:
        require_java()
        programs()
    except ConfigError as error:
        missing_service("what the demo needs", error)


class Demo:
    """One demo that came through, for the tests of this file; they run in their order."""

    def __init__(self, cwd: Path, resident: Resident) -> None:
        self.cwd, self._resident = cwd, resident
        self.folder = cwd / "deltarelay-demo"
        self.done = self.command("demo", "--json")
        assert self.done.returncode == 0, self.done.stderr
        self.document: dict[str, Any] = json.loads(self.done.stdout)
        self.result: dict[str, Any] = self.document["result"]
        self.config = self.folder / "deltarelay.yaml"

    def command(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return command(self._resident, *words, cwd=self.cwd)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.result["dsn"], autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def demo(services: None, tmp_path_factory: pytest.TempPathFactory, resident: Resident) -> Iterator[Demo]:
    cwd = tmp_path_factory.mktemp("demo")
    try:
        yield Demo(cwd, resident)
    finally:
        EmbeddedPostgres(cwd / "deltarelay-demo" / "postgres").close()


def test_it_ends_well_and_says_where_things_are(demo: Demo) -> None:
    assert demo.document["command"] == "demo"
    assert demo.document["ok"] is True
    found = demo.result
    assert (found["equal"], found["verified"], found["compared"]) == (True, True, True)
    assert (found["version"], found["rows"], found["windows"]) == (17, 1027, 7)
    assert len(found["live_seconds"]) == 3
    assert (found["trail"]["intact"], found["trail"]["sealed_version"], found["trail"]["records"]) == (True, 17, 18)
    assert Path(found["directory"]) == demo.folder
    assert Path(found["table"]) == demo.folder / "customers"
    assert Path(found["config"]) == demo.config
    assert str(demo.folder) in demo.done.stderr


def test_it_tells_every_commit_and_every_window(demo: Demo) -> None:
    said = [" ".join(line.split()) for line in demo.done.stderr.splitlines()]
    for line in (
        "0 create table customers, its change feed on",
        "3 delete every 25th customer leaves 40 rows",
        "11 restore back to version 9",
        "12 optimize small files made large; no row changes",
    ):
        assert line in said
    windows = [line.rsplit(" deletes ", 1)[0] for line in said if line.startswith("version") and " deletes " in line]
    assert windows == [
        "versions 2..3 0 inserts 250 updates 40",
        "versions 4..5 100 inserts 0 updates 40",
        "version 6 0 inserts 66 updates 13",
        "versions 7..8 0 inserts 599 updates 0",
        "versions 9..10 0 inserts 78 updates 91",
        "versions 11..12 91 inserts 0 updates 0",
        "versions 13..14 20 inserts 212 updates 0",
        # The trail: all since the beginning, cut where the schema changes
        "versions 0..6 1,146 inserts 279 updates 139",
        "versions 7..17 112 inserts 890 updates 92",
    ]
    assert not [line for line in said if "WARN" in line or "ERROR" in line]


def test_nothing_is_left_outside_of_its_folder(demo: Demo) -> None:
    assert [path.name for path in demo.cwd.iterdir()] == ["deltarelay-demo"]
    assert sorted(path.name for path in demo.folder.iterdir()) == [
        ".deltarelay-demo",
        "anchors",
        "audit",
        "audit.key",
        "customers",
        "deltarelay.schema.json",
        "deltarelay.yaml",
        "postgres",
    ]


def test_the_target_holds_what_the_history_left(demo: Demo) -> None:
    assert demo.query("select count(*), sum(balance) from customers") == [(1027, Decimal("2560097.07"))]
    # The key of 17 was changed, 18 joined with it, 3 deleted; 12 was deleted with all of Italy and restored
    rows = demo.query(
        "select customer_id, name, country, balance, loyalty from customers"
        " where customer_id in (3, 12, 17, 18, 5017) order by customer_id"
    )
    assert rows == [
        (12, "Femke Moreau", "IT", Decimal("3842.56"), "silver"),
        (5017, "Chloé Ricci", "DE", Decimal("2641.60"), "silver"),
    ]
    loyalty = demo.query("select loyalty, count(*) from customers group by loyalty order by loyalty")
    assert loyalty == [("gold", 212), ("new", 21), ("silver", 387), (None, 407)]
    assert demo.query("select tags from customers where customer_id = 15") == [(["app", "business", "newsletter"],)]


def test_its_configuration_can_be_used_as_it_is(demo: Demo) -> None:
    status = demo.command("status", "--config", demo.config, "--json")
    assert status.returncode == 0, status.stderr
    pipelines = json.loads(status.stdout)["result"]["pipelines"]
    assert {(one["pipeline"], one["state"], one["position"], one["lag_versions"]) for one in pipelines} == {
        ("customers", "up_to_date", 17, 0),
        ("customers_audit", "up_to_date", 17, 0),
    }
    run = demo.command("run", "--config", "deltarelay-demo/deltarelay.yaml", "--json")
    assert run.returncode == 0, run.stderr
    for pipeline in json.loads(run.stdout)["result"]["pipelines"]:
        assert (pipeline["position"], pipeline["windows"], pipeline["loaded_rows"]) == (17, 0, None)


def test_the_psql_line_works(demo: Demo) -> None:
    said = subprocess.run(
        [*shlex.split(demo.result["psql"]), "-Atc", "select count(*) from customers"],
        env=environment(PGPORT="1", PGDATABASE="no_such_database"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "1027\n"


def test_verify_finds_what_was_changed_by_hand(demo: Demo) -> None:
    demo.query("update customers set balance = balance + 0.01 where customer_id = 5017")
    verify = demo.command("verify", "--config", demo.config, "--show-keys", "--json")
    assert verify.returncode == 3, verify.stderr
    pipeline, trail = json.loads(verify.stdout)["result"]["pipelines"]
    assert (trail["pipeline"], trail["equal"], trail["target_rows"]) == ("customers_audit", True, 1027)
    assert (pipeline["missing"], pipeline["extra"], pipeline["different"]) == (0, 0, 1)
    assert "5017" in pipeline["examples"][0]["key"]


def test_a_foreign_file_beside_a_demo_keeps_it_from_being_replaced(demo: Demo) -> None:
    notes = demo.folder / "notes.txt"
    notes.write_text("mine")
    again = demo.command("demo")
    notes.unlink()
    assert again.returncode == 2
    assert "notes.txt" in again.stderr
    assert demo.query("select count(*) from customers") == [(1027,)]


def test_the_printed_command_stops_the_server(demo: Demo) -> None:
    assert demo.result["stop"] == shlex.join([*DELTARELAY, "demo", "--stop", "--directory", "deltarelay-demo"])
    for answer in ("is stopped", "was not running"):
        stopped = subprocess.run(
            shlex.split(demo.result["stop"]),
            cwd=demo.cwd,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer in stopped.stdout
        assert not (demo.folder / "postgres" / "data" / "postmaster.pid").exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(demo.result["dsn"])
    shutil.rmtree(demo.folder)


@pytest.mark.usefixtures("services")
def test_on_s3_it_ends_the_same_way_and_both_servers_are_stopped(tmp_path: Path, resident: Resident) -> None:
    # A user's own keys, profile and region are none of the demo's business
    env = environment(
        AWS_ACCESS_KEY_ID="mine", AWS_SECRET_ACCESS_KEY="mine", AWS_PROFILE="none", AWS_REGION="eu-west-1"
    )
    store = EmbeddedS3(tmp_path / "deltarelay-demo" / "s3")
    try:
        done = command(resident, "demo", "--s3", "--json", cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["result"]
        assert (found["equal"], found["version"], found["rows"], found["windows"]) == (True, 17, 1027, 7)
        assert found["table"] == "s3a://deltarelay-demo/customers"
        client = boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            region_name="us-east-1",
            aws_access_key_id="demo",
            aws_secret_access_key="demo",
        )
        there = client.list_objects_v2(Bucket="deltarelay-demo", Prefix="customers/_delta_log/")["Contents"]
        assert len([one for one in there if one["Key"].endswith(".json")]) == 18
        assert not (tmp_path / "deltarelay-demo" / "customers").exists()
        env |= {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
        status = command(resident, "status", "--config", found["config"], "--json", cwd=tmp_path, env=env)
        assert status.returncode == 0, status.stderr
        for pipeline in json.loads(status.stdout)["result"]["pipelines"]:
            assert (pipeline["state"], pipeline["position"], pipeline["lag_versions"]) == ("up_to_date", 17, 0)
        stopped = command(resident, "demo", "--stop", cwd=tmp_path)
        assert stopped.returncode == 0
        assert not store.running()
        assert not EmbeddedPostgres(tmp_path / "deltarelay-demo" / "postgres").running()
    finally:
        store.close()
        EmbeddedPostgres(tmp_path / "deltarelay-demo" / "postgres").close()


@pytest.mark.usefixtures("services")
def test_ctrl_c_leaves_no_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DELTARELAY, "demo", "--directory", "d"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    server = EmbeddedPostgres(tmp_path / "d" / "postgres")
    try:
        assert process.stderr is not None
        with process.stderr:
            said = list(takewhile(lambda line: "starting Spark" not in line, process.stderr))
            assert server.running(), said
            process.send_signal(signal.SIGINT)
            process.stderr.read()
        assert process.wait(timeout=60) == 130
        assert not server.running()
    finally:
        process.kill()
        process.wait()
        server.close()


def test_a_folder_with_foreign_files_is_refused(tmp_path: Path, resident: Resident) -> None:
    (tmp_path / "customers").mkdir()
    (tmp_path / "customers" / "mine.txt").write_text("mine")
    before = everything(tmp_path)
    done = command(resident, "demo", "--directory", tmp_path, "--json", cwd=ROOT)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "config"
    assert everything(tmp_path) == before
    stop = command(resident, "demo", "--stop", "--directory", tmp_path, cwd=ROOT)
    assert stop.returncode == 2
    assert "there is no demo" in stop.stderr
    assert everything(tmp_path) == before


def test_without_java_nothing_is_written(tmp_path: Path, resident: Resident) -> None:
    env = environment(PATH=str(tmp_path))
    env.pop("JAVA_HOME", None)
    done = command(resident, "demo", "--directory", tmp_path / "demo", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "Java" in done.stderr
    assert list(tmp_path.iterdir()) == []
