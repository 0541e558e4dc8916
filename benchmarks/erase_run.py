"""How does an erasure grow with the number of people?

Three tables of a million rows each: customers, their orders, the orders' lines. One run erases 1, 100 or 10,000 customers,
each with three orders of a line: it resolves, deletes in all three tables, and goes on until it has to wait for retentions.
Timed is that; receiving the requests and planning are not. Each run works on a fresh copy of the tables. The ratio is that
of 10,000 to 1.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.register.secrets import Keys
from audit.erasure.register.store import Register
from audit.erasure.run.context import RunContext
from audit.erasure.run.runner import ErasureRun
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM = 5.0
SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
NAMES = ("customers", "orders", "lines")
EACH = {"customers": 1, "orders": 3, "lines": 3}
"""Rows of one customer."""


def measure(lab: Lab) -> Iterator[Answer]:
    rows, sizes = (12_000, (1, 10, 100)) if lab.quick else (1_000_000, (1, 100, 10_000))
    base = lab.once("erase-run", lambda: _tables(lab, lab.folder / "erase-run", rows))
    signer = Signer.generate("example.org/bench")
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    cold: dict[int, float] = {}
    number = 0
    for counts in lab.rounds(warm_up=1, timed=3):
        for size in lab.shuffled(sizes):
            number += 1
            folder = lab.folder / f"erase-run-{number}"
            shutil.copytree(base, folder)
            took = _run(lab, folder, signer, number, size, rows)
            shutil.rmtree(folder)
            cold.setdefault(size, took)
            if counts:
                seconds[size].append(took)
    least, most = median(seconds[sizes[0]]), median(seconds[sizes[-1]])
    yield Answer(
        question="erase_run",
        ratio=most / least,
        aim=AIM,
        better="lower",
        words=f"{sizes[-1]:,} people in {most:.1f} s, one in {least:.1f} s, of three tables of {rows:,} rows",
        detail={
            "subjects": list(sizes),
            "seconds": [round(median(seconds[size]), 2) for size in sizes],
            "rows": rows,
            "cold_seconds": round(cold[sizes[0]], 2),
            "repetitions": len(seconds[sizes[0]]),
        },
    )


def _tables(lab: Lab, folder: Path, rows: int) -> Path:
    selects = {
        "customers": "id as customer_id, concat('c', id, '@example.org') as email, concat('name ', id) as name",
        "orders": f"id as order_id, id % {rows // EACH['orders']} as customer_id, id % 997 as amount",
        "lines": "id as line_id, id as order_id, concat('item ', id % 991) as item",
    }
    for name in NAMES:
        path = folder / name
        lab.spark.sql(
            f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed = true)"
            f" as select {selects[name]} from range({rows})"
        )
    return folder


def _run(lab: Lab, folder: Path, signer: Signer, number: int, size: int, rows: int) -> float:
    customers, orders, lines = (str(folder / name) for name in NAMES)
    graph = Graph.of(
        SUBJECTS,
        [
            PersonalTable(customers, "customer", "customer_id"),
            PersonalTable(orders, "customer", Link("customer_id", customers, "customer_id")),
            PersonalTable(lines, "customer", Link("order_id", orders, "order_id")),
        ],
    )
    register, keys = Register(lab.dsn, schema=f"erase_bench_{number}"), Keys(signer)
    register.prepare()
    today = dt.datetime.now(dt.UTC)
    # Only the first third has orders; of the very first the remainder as well
    step = (rows // EACH["orders"] - 1) // size
    requests = [
        Request(
            f"R-{number}-{at}",
            "customer",
            {"email": f"c{1 + at * step}@example.org"},
            today.date(),
            today.date() + dt.timedelta(days=90),
            "GDPR Art. 17",
            "bench",
        )
        for at in range(size)
    ]
    register.add(requests, keys)
    run = f"run-{number}"
    register.begin(run, [one.id for one in requests], "bench")
    before = {name: _count(lab, folder / name) for name in NAMES}
    with register.lease(run) as held:
        began = time.monotonic()
        report = ErasureRun(
            RunContext(
                spark=lab.spark,
                graph=graph,
                copies=(),
                register=register,
                held=held,
                keys=keys,
                signer=signer,
                run=run,
                requests=requests,
                approve_above=10**9,
                out_of_reach=(),
                now=today,
            )
        ).execute()
        took = time.monotonic() - began
    gone = {name: before[name] - _count(lab, folder / name) for name in NAMES}
    if gone != {name: size * EACH[name] for name in NAMES} or report.waits_until is None:
        raise AssertionError(f"{gone} rows are gone for {size} customers; the run is {report.state}")
    return took


def _count(lab: Lab, path: Path) -> int:
    return int(lab.spark.read.format("delta").load(str(path)).count())
