"""What does a run cost in which nothing has happened?

``deltarelay run``, the command in a process of its own, over 200 pipelines into PostgreSQL, and over one of these tables,
whose configuration names no other; all targets are up to date. The answer for one is a ratio to ``deltarelay --version``,
which only starts Python and the command line. The answer for 200 is in seconds, because nothing else does that work. The
three take turns in a random order. After each run every target is compared with what was written to its source.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM_OF_ONE = 4.0
AIM_OF_MANY = 5.0
ROWS = 10
ONE = "one.yaml"
COMMAND = str(Path(sys.executable).with_name("deltarelay"))


def measure(lab: Lab) -> Iterator[Answer]:
    many = 5 if lab.quick else 200
    folder = lab.folder / "idle"
    folder.mkdir()
    database = lab.address("idle")
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute("create database idle")
    _write_tables(folder, many)
    _write_config(folder / "deltarelay.yaml", many, database)
    _write_config(folder / ONE, 1, database)
    first, _ = _run(folder)
    lab.say(f"  {many} tables are copied")
    seconds: dict[str, list[float]] = {"version": [], "one": [], "many": []}
    for counts in lab.rounds(warm_up=1, timed=7):
        for kind in lab.shuffled(list(seconds)):
            took = _time_version(folder) if kind == "version" else _time_run(folder, 1 if kind == "one" else many)
            _check(many, database)
            if counts:
                seconds[kind].append(took)
    version, one, all_of_them = (median(seconds[kind]) for kind in ("version", "one", "many"))
    detail = {"tables": many, "seconds": [round(one, 3), round(all_of_them, 3)], "first_copy_seconds": round(first, 3)}
    yield Answer(
        question="idle_run: one table",
        ratio=one / version,
        aim=AIM_OF_ONE,
        better="lower",
        words=f"an idle run {one:.2f} s, `deltarelay --version` {version:.2f} s",
        detail={**detail, "repetitions": len(seconds["one"])},
    )
    yield Answer(
        question="idle_run: seconds of 200 tables",
        ratio=all_of_them,
        aim=AIM_OF_MANY,
        better="lower",
        words=f"{all_of_them - one:.2f} s more than one of the {many} tables",
        detail={**detail, "repetitions": len(seconds["many"])},
    )


def _write_tables(folder: Path, tables: int) -> None:
    """By delta-rs, which is fast."""
    from deltalake import write_deltalake

    for number in range(tables):
        rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "name": [f"{number} {one}" for one in range(ROWS)]})
        write_deltalake(folder / f"table{number}", rows, configuration={"delta.enableChangeDataFeed": "true"})


def _write_config(file: Path, tables: int, database: str) -> None:
    lines = ["version: 1", "connections:", f"  target: {{kind: postgres, dsn: '{database}'}}", "pipelines:"]
    for number in range(tables):
        table = file.with_name(f"table{number}")
        lines += [
            f"  t{number}:",
            f"    source: {{table: '{table}', key: [id], start: snapshot}}",
            f"    sink: {{connection: target, table: public.t{number}}}",
        ]
    file.write_text("\n".join(lines) + "\n")


def _time_version(folder: Path) -> float:
    began = time.monotonic()
    subprocess.run([COMMAND, "--version"], cwd=folder, capture_output=True, check=True)
    return time.monotonic() - began


def _time_run(folder: Path, tables: int) -> float:
    took, found = _run(folder, *(["-c", ONE] if tables == 1 else []))
    if len(found) != tables or any(one["windows"] for one in found):
        raise AssertionError(f"{len(found)} pipelines ran instead of {tables}, or one of them found changes")
    return took


def _run(folder: Path, *options: str) -> tuple[float, list[dict[str, object]]]:
    """``deltarelay run --json`` → its seconds, and its entries for the pipelines."""
    began = time.monotonic()
    done = subprocess.run([COMMAND, "run", "--json", *options], cwd=folder, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise AssertionError(f"deltarelay run ended with {done.returncode}: {done.stderr[-2000:]}")
    found: list[dict[str, object]] = json.loads(done.stdout)["result"]["pipelines"]
    return took, found


def _check(tables: int, database: str) -> None:
    with psycopg.connect(database) as connection:
        for number in range(tables):
            rows = connection.execute(f"select id, name from public.t{number} order by id").fetchall()
            if rows != [(one, f"{number} {one}") for one in range(ROWS)]:
                raise AssertionError(f"the target t{number} differs from its source")
