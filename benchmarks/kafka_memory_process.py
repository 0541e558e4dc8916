"""The process of ``benchmarks.kafka_memory``."""

import json
import sys

from benchmarks.memory import apply_window, measure_work
from connectors.kafka import Cluster, KafkaSink

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    # Through the tasks, as the large windows go
    sink = KafkaSink(Cluster(settings["servers"]), topic=settings["topic"], small_window_bytes=0)
    measure_work(settings["table"], sink, name="kafka", work=apply_window)
