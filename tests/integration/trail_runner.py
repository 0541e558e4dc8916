"""A process that writes a trail and stands still at one of its durable steps: where it is to be killed.

The one argument is a JSON object (``Told``). One line on stdout says that it stands there.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from audit.trail.tables import LEDGER, TrailTables


class Told(TypedDict):
    source: str
    path: str
    folder: str
    jars: list[str]
    table: str
    moment: Literal["before", "after"]
    version: int | None
    """Of the window that is being written; None: while the trail is opened."""
    small_window_bytes: int
    remote: NotRequired[str]
    """The address of a Spark Connect server."""


def stands_still(told: Told) -> None:
    real = TrailTables.append

    def reached(name: str, moment: str, about: dict[str, Any]) -> bool:
        version = about.get("state", {}).get("version") if name == LEDGER else about.get("last")
        return (name, moment, version) == (told["table"], told["moment"], told["version"])

    def append(tables: TrailTables, name: str, rows: Any, *, about: dict[str, Any], **more: Any) -> int:
        for moment in ("before", "after"):
            if moment == "after":
                landed = real(tables, name, rows, about=about, **more)
            if reached(name, moment, about):
                print("there", flush=True)
                signal.pause()
        return landed

    TrailTables.append = append  # type: ignore[method-assign, assignment]


def main(told: Told) -> None:
    from pyspark.sql import SparkSession

    from cdf import ChangeFeed, Limits, Pipeline
    from connectors.delta_audit.sink import DeltaAuditSink
    from infra.spark.session_builder import session

    folder = Path(told["folder"])
    address = told.get("remote")
    spark = (
        SparkSession.builder.remote(address).getOrCreate()
        if address
        else session(
            app_name="deltarelay-trail-runner",
            master="local[1]",
            jars=told["jars"],
            conf={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "local"),
            },
            log_file=folder / "spark.log",
        )
    )
    stands_still(told)
    sink = DeltaAuditSink(told["path"], spark=spark, small_window_bytes=told["small_window_bytes"])
    limits = Limits(max_commits=1)
    Pipeline(ChangeFeed(spark, told["source"]), sink, key=("id",), start="earliest", limits=limits).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
