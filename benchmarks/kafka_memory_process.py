"""The process of ``benchmarks.kafka_memory``: one run to version 1, with a Spark of 2 GB. Prints one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.postgres_memory_process import _peak
from cdf import ChangeFeed, Pipeline
from connectors.kafka import Cluster, KafkaSink
from infra.spark import session


def main(told: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.driver.memory": "2g"}
        spark = session(master="local[2]", log_file=Path(folder) / "spark.log", conf=conf)
        # Through the tasks, as the large windows go
        sink = KafkaSink(Cluster(told["servers"]), topic=told["topic"], small_window_bytes=0)
        pipeline = Pipeline(ChangeFeed(spark, told["table"]), sink, key=["id"], name="kafka")
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


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
