"""The process of ``benchmarks.postgres_memory``."""

import json
import sys

from benchmarks.memory import apply_window, measure_work
from benchmarks.postgres_state import TABLE
from cdf import Pipeline
from connectors.postgres import PostgresSink
from connectors.postgres.load import copy_threshold


def _copy(pipeline: Pipeline) -> int:
    return pipeline.run().loaded_rows or 0


def _verify(pipeline: Pipeline) -> int:
    found = pipeline.verify()
    if not found.equal or found.source_rows != found.target_rows:
        raise AssertionError(f"of {found.source_rows} rows, {found.missing + found.extra + found.different} differ")
    return found.source_rows


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    copy_threshold.MIN_BYTES = 2**62  # no window is applied as a copy of the table
    work = {"window": apply_window, "copy": _copy, "verify": _verify}[settings["work"]]
    measure_work(settings["table"], PostgresSink(settings["dsn"], table=TABLE), name=settings["name"], work=work)
