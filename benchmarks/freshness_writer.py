"""The process that commits for ``benchmarks.freshness``, with a Spark of its own.

A line of stdin is a number of rows to commit; the answer is a line of JSON: the version, and the seconds from the commit's
file in the log to the rows in PostgreSQL (missing where they did not come within a minute).
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from infra.spark.session_builder import session

PATIENCE_SECONDS = 60.0
EVERY_SECONDS = 0.002


class Watcher(threading.Thread):
    """Asks PostgreSQL for a commit's last row until it is there, while the commit is still being made."""

    def __init__(self, connection: psycopg.Connection[Any], first: int, rows: int) -> None:
        super().__init__(daemon=True)
        self._connection, self._first, self._rows = connection, first, rows
        self.seen_at: float | None = None

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        last = self._first + self._rows - 1
        while time.monotonic() < deadline:
            if self._connection.execute("select from public.freshness where id = %s", [last]).rowcount:
                self.seen_at = time.time()
                count = "select count(*) from public.freshness where id between %s and %s"
                there = self._connection.execute(count, [self._first, last]).fetchone()
                assert there == (self._rows,), f"part of a commit is visible: {there}"
                return
            time.sleep(EVERY_SECONDS)


def main(path: str, dsn: str) -> None:
    with tempfile.TemporaryDirectory() as folder, psycopg.connect(dsn, autocommit=True) as connection:
        spark = session(
            app_name="deltarelay-bench-writer",
            master="local[2]",
            log_file=Path(folder) / "spark.log",
            conf={"spark.driver.memory": "1g"},
        )
        first = 0
        for line in sys.stdin:
            rows = int(line)
            watcher = Watcher(connection, first, rows)
            watcher.start()
            frame = spark.range(first, first + rows).selectExpr(
                "id", "concat('name ', id) as name", "cast(id * 1.25 as decimal(12,2)) as amount"
            )
            frame.coalesce(1).write.format("delta").mode("append").save(path)
            file = max((Path(path) / "_delta_log").glob("*.json"))
            committed_at = file.stat().st_ctime  # when it got its name, and so became a commit
            watcher.join()
            found: dict[str, Any] = {"version": int(file.stem)}
            if watcher.seen_at is not None:
                found["seconds"] = watcher.seen_at - committed_at
            print(json.dumps(found), flush=True)
            first += rows
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
