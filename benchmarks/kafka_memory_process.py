"""The process of ``benchmarks.kafka_memory``."""

import json
import sys

from benchmarks.memory import apply_window, measure_work
from connectors.kafka import Cluster, KafkaSink

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    # Through the tasks, as the large windows go
    sink = KafkaSink(Cluster(told["servers"]), topic=told["topic"], small_window_bytes=0)
    measure_work(told["table"], sink, name="kafka", work=apply_window)
