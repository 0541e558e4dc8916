"""The process of ``benchmarks.postgres_memory``: one run to version 1, with a Spark of 2 GB. Prints one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.postgres_state import TABLE
from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from infra.spark import session


def main(told: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.driver.memory": "2g"}
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log", conf=conf)
        pipeline = Pipeline(
            ChangeFeed(spark, told["table"]), PostgresSink(told["dsn"], table=TABLE), key=["id"], start=0
        )
        began = time.monotonic()
        result = pipeline.run(until=1)
        seconds = time.monotonic() - began
        jvm: Any = spark._jvm
        java = _peak(Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status"))
        spark.stop()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "changes": result.inserts + result.updates + result.deletes,
            "driver_megabytes": round(peak * (1 if sys.platform == "darwin" else 1024) / 2**20, 1),
            "jvm_megabytes": java,
            "seconds": round(seconds, 1),
        }


def _peak(status: Path) -> float | None:
    """The peak of another process; only Linux tells it."""
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
