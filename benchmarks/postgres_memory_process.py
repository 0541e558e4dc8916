"""The process of ``benchmarks.postgres_memory``."""

import json
import sys

from benchmarks.memory import window_of_its_own
from benchmarks.postgres_state import TABLE
from connectors.postgres import PostgresSink

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    window_of_its_own(told["table"], PostgresSink(told["dsn"], table=TABLE), name="memory")
