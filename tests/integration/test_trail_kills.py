"""Kill -9 before and after each durable step of a trail: the next runner goes on, and each change is there once.

No point is guessed at: the process says that it stands there, and the tables show it after its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables
from audit.verify import verify_trail
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.acceptance.commands import REPOSITORY, descendants
from tests.integration.delta_table import Table, changes
from tests.integration.trail_runner import Told

KILLED_AT = 1
"""The version in whose window the process dies."""


def killed(spark: SparkSession, told: dict[str, Any]) -> None:
    """A runner in a process of its own, killed where it is told to stand still; its JVM with it."""
    jars = (spark.sparkContext.getConf().get("spark.jars") or "").replace("file://", "").split(",")
    whole = Told(jars=[jar for jar in jars if jar], **told)  # type: ignore[typeddict-item]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.trail_runner", json.dumps(whole)],
        env={**kept, "PYTHONPATH": str(REPOSITORY), "TMPDIR": told["folder"]},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (said, process.returncode) == ("there\n", -signal.SIGKILL)


LONG, TASKS = pytest.mark.long, {"small_window_bytes": -1}
POINTS = [
    pytest.param(LEDGER, "after", None, (), {}, id="only-the-ledger-is-made", marks=LONG),
    pytest.param(PAYLOAD, "before", KILLED_AT, (), {}, id="nothing-of-the-window", marks=LONG),
    pytest.param(PAYLOAD, "after", KILLED_AT, (PAYLOAD,), {}, id="payload", marks=LONG),
    pytest.param(EVENTS, "after", KILLED_AT, (PAYLOAD, EVENTS), {}, id="events"),
    pytest.param(LEDGER, "after", KILLED_AT, (PAYLOAD, EVENTS, LEDGER), {}, id="ledger", marks=LONG),
    pytest.param(PAYLOAD, "after", KILLED_AT, (PAYLOAD,), TASKS, id="payload-by-tasks", marks=LONG),
    pytest.param(EVENTS, "after", KILLED_AT, (PAYLOAD, EVENTS), TASKS, id="events-by-tasks", marks=LONG),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("table", "moment", "version", "durable", "options"), POINTS)
def test_killed_at_a_durable_step(
    spark: SparkSession,
    tmp_path: Path,
    table: str,
    moment: str,
    version: int | None,
    durable: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    source, path, folder = Table(spark, str(tmp_path / "source")), tmp_path / "trail", tmp_path / "runner"
    folder.mkdir()
    source.sql(
        "insert into {t} values (1, 'a'), (2, 'b'), (2, 'b')",
        "update {t} set v = 'c' where id = 1",
    )
    point = {"table": table, "moment": moment, "version": version, "small_window_bytes": 1 << 20} | options
    killed(spark, {"source": source.path, "path": str(path), "folder": str(folder), **point})
    tables = TrailTables(spark, str(path))
    there = [name for name in TABLES if (path / name).exists()]
    assert there == ([LEDGER] if version is None else list(TABLES))
    found = tuple(name for name in there if not tables.read(name).where(f"version = {KILLED_AT}").isEmpty())
    assert found == durable

    lease = path / "_lease"  # as if its time were over
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "seconds": 0}))
    source.sql("delete from {t} where id = 2")
    sink = DeltaAuditSink(str(path), spark=spark)
    Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest").run()
    events = tables.read(EVENTS).join(tables.read(PAYLOAD).select("id", "row"), "id")
    trailed = events.selectExpr("version as _commit_version", "change_type as _change_type", "row.id", "row.v")
    assert changes(trailed, "id", "v") == changes(source.raw_feed(startingVersion=0), "id", "v")
    verified, _ = verify_trail(tables, [])
    assert (verified.findings, verified.first_version, verified.last_version) == ((), 0, 3)
    assert (verified.events, verified.values, verified.unrecorded) == (7, 7, 0)
