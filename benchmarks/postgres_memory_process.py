"""The process of ``benchmarks.postgres_memory``."""

import json
import sys

from benchmarks.memory import window_of_its_own
from benchmarks.postgres_state import TABLE
from connectors.postgres import PostgresSink
from connectors.postgres.load import copy_threshold as large

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    large.MIN_BYTES = 2**62  # the sink would rather copy a table of which it is told as many changes as it has rows
    window_of_its_own(told["table"], PostgresSink(told["dsn"], table=TABLE), name="memory")
