"""Runners over Spark Connect and with classic sessions die at each durable step of a trail, and succeed each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.trail.ledger_state import read_state
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables, read_commit_info
from cdf import ChangeFeed, Limits, Pipeline
from cdf.sink import Bounds
from connectors.delta_audit.sink import DeltaAuditSink
from tests.acceptance.commands import REPOSITORY
from tests.fixtures.fix_connect import SHORT_LIVED, connect_server, connect_session
from tests.integration.delta_table import Table
from tests.integration.test_trail_kills import Died, assert_each_change_once
from tests.integration.trail_runner import Told

TASKS = {"small_window_bytes": -1}
STEPS = [
    (table, durable, options)
    for options in ({}, TASKS)
    for table, durable in (
        (PAYLOAD, (PAYLOAD,)),
        (EVENTS, (PAYLOAD, EVENTS)),
        (LEDGER, TABLES),
    )
]
"""After which step a runner dies, and in which tables its window is then."""


class Runs:
    """Runners of both kinds, on one trail of one source."""

    def __init__(self, connect: SparkSession, classic: SparkSession, folder: Path) -> None:
        self.connect, self.classic = connect, classic
        self.source, self.path = folder / "source", folder / "trail"
        self.written = 1
        with classic_functions():
            self.write = Table(classic, str(self.source)).sql
            self.write("insert into {t} values (1, 'a'), (2, 'b'), (2, 'b')")

    def add_window(self) -> Bounds:
        """Two commits more, the last of them without rows."""
        first = self.written + 1
        with classic_functions():
            self.write(
                f"update {{t}} set v = 'c{first}' where id = 1",
                f"alter table {{t}} set tblproperties ('windows' = '{first}')",
            )
        self.written += 2
        return Bounds(first, self.written)

    def run(self, kind: str, **options: Any) -> None:
        if kind == "connect":
            self._run(self.connect, **options)
        else:
            with classic_functions():
                self._run(self.classic, **options)

    def _run(self, spark: SparkSession, until: int | None = None, **options: Any) -> None:
        sink = DeltaAuditSink(str(self.path), spark=spark, **options)
        Pipeline(ChangeFeed(spark, str(self.source)), sink, key=("id",), start="earliest").run(until)

    def assert_whole(self) -> list[int]:
        """→ the last version of each window in the ledger."""
        with classic_functions():
            source = Table.at(self.classic, str(self.source))
            assert_each_change_once(
                self.classic, source, self.path, last_version=self.written, events=3 + (self.written - 1)
            )
            log = TrailTables(self.classic, str(self.path)).log(LEDGER)
            infos = map(read_commit_info, log.commits(0, log.latest()))
            return [info["state"]["version"] for info in infos if "state" in info]


@contextmanager
def classic_functions() -> Iterator[None]:
    """In the block PySpark's functions belong to classic sessions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
        yield


def kinds(first: str) -> Callable[[int], str]:
    both = ("connect", "classic") if first == "connect" else ("classic", "connect")
    return lambda at: both[at % 2]


ORDERS = {
    "connect dies first": kinds("connect"),
    "classic dies first": kinds("classic"),
    "connect only": lambda _: "connect",
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind_at", ORDERS.values(), ids=ORDERS)
def test_each_of_many_runners_dies_at_another_step(
    connect: SparkSession,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interpreted: None,
    kind_at: Callable[[int], str],
) -> None:
    """Each finishes what the one before has left, and dies in the window after it."""
    runs = Runs(connect, spark, tmp_path)
    runs.run(kind_at(1))
    real = TrailTables.append
    for at, (table, durable, options) in enumerate(STEPS):
        bounds = runs.add_window()
        reached: list[Any] = []

        def append(own: TrailTables, name: str, rows: Any, *, about: dict[str, Any], **more: Any) -> int:
            said = about.get("state", {}).get("version") if name == LEDGER else about.get("last")
            landed = real(own, name, rows, about=about, **more)
            if (name, said) == (table, bounds.last):  # noqa: B023
                reached.append(name)  # noqa: B023
                raise Died
            return landed

        with monkeypatch.context() as patched:
            patched.setattr(TrailTables, "append", append)
            with pytest.raises(Died):
                runs.run(kind_at(at), **options)
        assert reached == [table]
        with classic_functions():
            tables = TrailTables(spark, str(runs.path))
            within = f"version between {bounds.first} and {bounds.last}"
            assert durable == tuple(name for name in TABLES if not tables.read(name).where(within).isEmpty())
            # The window whose payload was deleted was begun again, together with the new commits
            assert read_state(tables).pending == (Bounds(bounds.first - 2, bounds.last) if table == EVENTS else None)
    runs.run(kind_at(len(STEPS)))
    assert runs.assert_whole() == [1, 5, 7, 11, 13]


def start_runner(told: dict[str, Any], address: str) -> subprocess.Popen[str]:
    whole = Told(jars=[], remote=address, **told)  # type: ignore[typeddict-item]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.trail_runner", json.dumps(whole)],
        env={**kept, "PYTHONPATH": str(REPOSITORY), "TMPDIR": told["folder"]},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


@pytest.mark.timeout(900)
def test_client_and_server_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The client while payload without events is durable; then the server while events without records are."""
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.defaultJavaOptions": SHORT_LIVED,
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    folder = tmp_path / "runner"
    folder.mkdir()
    source, path = Table(spark, str(tmp_path / "source")), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a'), (2, 'b'), (2, 'b')")
    source.sql("update {t} set v = 'c' where id = 1", "update {t} set v = 'd' where id = 1")
    tables = TrailTables(spark, str(path))

    def durable(version: int) -> list[str]:
        return [name for name in TABLES if not tables.read(name).where(f"version = {version}").isEmpty()]

    told: dict[str, Any] = {"source": source.path, "path": str(path), "folder": str(folder), "moment": "after"}
    with server(tmp_path / "first", conf) as address:
        runner = start_runner({**told, "table": PAYLOAD, "version": 1, "small_window_bytes": -1}, address)
        kill(runner.pid)
        runner.communicate()
        assert durable(1) == [PAYLOAD]
        with connect_session(address) as session:  # waits until the lease of the killed runner has ended
            run(session, source, path, until=1)
    with server(tmp_path / "second", conf) as address:
        runner = start_runner({**told, "table": EVENTS, "version": 2, "small_window_bytes": 1 << 20}, address)
        kill(*server_pids(tmp_path / "second"))
        kill(runner.pid)
        runner.communicate()
    assert durable(2) == [PAYLOAD, EVENTS]
    with server(tmp_path / "third", conf) as address, connect_session(address) as session:
        run(session, source, path, until=2)
    run(spark, source, path)
    source.sql("delete from {t} where id = 2")
    run(spark, source, path)
    assert_each_change_once(spark, source, path, last_version=4, events=3 + 4 + 2)


@contextmanager
def server(folder: Path, conf: dict[str, str]) -> Iterator[str]:
    folder.mkdir()
    with connect_server(folder, conf) as address:
        yield address


def server_pids(folder: Path) -> list[int]:
    found = subprocess.run(["pgrep", "-f", str(folder / "warehouse")], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def run(spark: SparkSession, source: Table, path: Path, until: int | None = None) -> None:
    sink = DeltaAuditSink(str(path), spark=spark)
    limits = Limits(max_commits=1)
    Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest", limits=limits).run(until)
