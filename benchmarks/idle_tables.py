"""What does a table cost a run in which nothing has happened to it?

``deltarelay run``, the command in a process of its own, with 100 pipelines and with one of them; all targets are up to date.
The answer is not a ratio but seconds: (time with 100 - time with one) ÷ 99, of the medians, so that the start of Python and
Java is not in it. The two take turns in an order left to chance. After each run every target is compared with what was
written to its source.
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

AIM = 0.3
ROWS = 10


def measure(lab: Lab) -> Iterator[Answer]:
    many = 5 if lab.quick else 100
    folder = lab.folder / "idle"
    folder.mkdir()
    database = lab.address("idle")
    with psycopg.connect(lab.address("postgres"), autocommit=True) as server:
        server.execute("create database idle")
    _write(folder, many, database)
    began = time.monotonic()
    _command(folder)
    first = time.monotonic() - began
    lab.say(f"  {many} tables are copied")
    seconds: dict[int, list[float]] = {1: [], many: []}
    for counts in lab.rounds(warm_up=1, timed=4):
        for tables in lab.shuffled([1, many]):
            began = time.monotonic()
            found = _command(folder, *(["-p", "t0"] if tables == 1 else []))
            took = time.monotonic() - began
            if len(found) != tables or any(one["windows"] for one in found):
                raise AssertionError(f"{len(found)} pipelines ran instead of {tables}, or one of them found changes")
            _check(many, database)
            if counts:
                seconds[tables].append(took)
    one, all_of_them = median(seconds[1]), median(seconds[many])
    yield Answer(
        question="idle_tables: seconds a table",
        ratio=(all_of_them - one) / (many - 1),
        aim=AIM,
        better="lower",
        words=f"a run of {many} idle tables {all_of_them:.1f} s, of one {one:.1f} s",
        detail={
            "tables": many,
            "seconds": [round(one, 3), round(all_of_them, 3)],
            "first_copy_seconds": round(first, 3),
            "repetitions": len(seconds[1]),
        },
    )


def _write(folder: Path, tables: int, database: str) -> None:
    """Tables by delta-rs, which is fast, and the file that names them."""
    from deltalake import write_deltalake

    lines = ["version: 1", "connections:", f"  target: {{kind: postgres, dsn: '{database}'}}", "pipelines:"]
    for number in range(tables):
        rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "name": [f"{number} {one}" for one in range(ROWS)]})
        table = folder / f"table{number}"
        write_deltalake(table, rows, configuration={"delta.enableChangeDataFeed": "true"})
        lines += [
            f"  t{number}:",
            f"    source: {{table: '{table}', key: [id], start: snapshot}}",
            f"    sink: {{connection: target, table: public.t{number}}}",
        ]
    (folder / "deltarelay.yaml").write_text("\n".join(lines) + "\n")


def _command(folder: Path, *options: str) -> list[dict[str, object]]:
    """``deltarelay run --json`` → its entries for the pipelines."""
    command = [str(Path(sys.executable).with_name("deltarelay")), "run", "--json", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"deltarelay run ended with {done.returncode}: {done.stderr[-2000:]}")
    found: list[dict[str, object]] = json.loads(done.stdout)["result"]["pipelines"]
    return found


def _check(tables: int, database: str) -> None:
    with psycopg.connect(database) as connection:
        for number in range(tables):
            rows = connection.execute(f"select id, name from public.t{number} order by id").fetchall()
            if rows != [(one, f"{number} {one}") for one in range(ROWS)]:
                raise AssertionError(f"the target t{number} differs from its source")
