"""A runner dies before and after each durable step of a trail: the next one goes on, and each change is there once.

At every step it dies by an exception that nobody catches, and at one by kill -9 of a process of its own. No point is
guessed at: the tables show it afterwards.
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

from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables
from audit.verification import verify_trail
from cdf import ChangeFeed, Limits, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.acceptance.commands import REPOSITORY, descendants
from tests.integration.delta_table import Table, changes
from tests.integration.trail_runner import Told

KILLED_AT = 1
"""The version in whose window the process dies."""


def killed(spark: SparkSession, told: dict[str, Any]) -> None:
    """A runner in a process of its own, killed where it is told to stand still; its JVM with it."""
    jvm: Any = spark._jvm
    jars = str(jvm.java.lang.System.getProperty("spark.jars") or "").replace("file://", "").split(",")
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


class Died(BaseException):
    """The process is gone."""


TASKS = {"small_window_bytes": -1}
STEPS = [
    (LEDGER, "after", None, (), {}),  # while the trail is made: there is nothing but the ledger
    *(
        (table, moment, version, durable, options)
        for first, options in ((1, {}), (5, TASKS))
        for version, (table, moment, durable) in enumerate(
            (
                (PAYLOAD, "before", ()),
                (PAYLOAD, "after", (PAYLOAD,)),
                (EVENTS, "after", (PAYLOAD, EVENTS)),
                (LEDGER, "after", (PAYLOAD, EVENTS, LEDGER)),
            ),
            start=first,
        )
    ),
]
"""Table, moment and version of the step at which a runner dies, and in which tables the version is then."""


def test_each_of_many_runners_dies_at_another_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interpreted: None
) -> None:
    """Each takes up what the one before has left, and comes as far as to its own step in the window after it."""
    source, path = Table(spark, str(tmp_path / "source")), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a'), (2, 'b'), (2, 'b')")
    source.sql(*(f"update {{t}} set v = 'c{version}' where id = 1" for version in range(2, 9)))
    tables, real = TrailTables(spark, str(path)), TrailTables.append

    def run(**options: Any) -> None:
        sink = DeltaAuditSink(str(path), spark=spark, **options)
        limits = Limits(max_commits=1)
        Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest", limits=limits).run()

    for table, moment, version, durable, options in STEPS:

        def append(own: TrailTables, name: str, rows: Any, *, about: dict[str, Any], **more: Any) -> int:
            said = about.get("state", {}).get("version") if name == LEDGER else about.get("last")
            reached = (name, said) == (table, version)  # noqa: B023
            if reached and moment == "before":  # noqa: B023
                raise Died
            landed = real(own, name, rows, about=about, **more)
            if reached:
                raise Died
            return landed

        with monkeypatch.context() as patched:
            patched.setattr(TrailTables, "append", append)
            with pytest.raises(Died):
                run(**options)
        there = [name for name in TABLES if (path / name).exists()]
        assert there == ([LEDGER] if version is None else list(TABLES))
        assert durable == tuple(
            name
            for name in there
            if version is not None and not tables.read(name).where(f"version = {version}").isEmpty()
        )
        out_of_time(path)
    source.sql("delete from {t} where id = 2")
    run()
    assert_each_change_once(spark, source, path, last_version=9, events=3 + 7 * 2 + 2)


def out_of_time(path: Path) -> None:
    """As if the time of the dead runner's lease were over."""
    lease = path / "_lease"
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "seconds": 0}))


def assert_each_change_once(spark: SparkSession, source: Table, path: Path, *, last_version: int, events: int) -> None:
    tables = TrailTables(spark, str(path))
    joined = tables.read(EVENTS).join(tables.read(PAYLOAD).select("id", "row"), "id")
    trailed = joined.selectExpr("version as _commit_version", "change_type as _change_type", "row.id", "row.v")
    assert changes(trailed, "id", "v") == changes(source.raw_feed(startingVersion=0), "id", "v")
    verified, _ = verify_trail(tables, [])
    assert (verified.findings, verified.first_version, verified.last_version) == ((), 0, last_version)
    assert (verified.events, verified.values, verified.unrecorded) == (events, events, 0)


@pytest.mark.timeout(300)
def test_killed_between_the_events_and_their_records(spark: SparkSession, tmp_path: Path) -> None:
    source, path, folder = Table(spark, str(tmp_path / "source")), tmp_path / "trail", tmp_path / "runner"
    folder.mkdir()
    source.sql(
        "insert into {t} values (1, 'a'), (2, 'b'), (2, 'b')",
        "update {t} set v = 'c' where id = 1",
    )
    point = {"table": EVENTS, "moment": "after", "version": KILLED_AT, "small_window_bytes": 1 << 20}
    killed(spark, {"source": source.path, "path": str(path), "folder": str(folder), **point})
    tables = TrailTables(spark, str(path))
    found = [name for name in TABLES if not tables.read(name).where(f"version = {KILLED_AT}").isEmpty()]
    assert found == [PAYLOAD, EVENTS]

    out_of_time(path)
    source.sql("delete from {t} where id = 2")
    sink = DeltaAuditSink(str(path), spark=spark)
    Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest").run()
    assert_each_change_once(spark, source, path, last_version=3, events=7)
