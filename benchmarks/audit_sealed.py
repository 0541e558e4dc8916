"""What does it cost that a trail can be forgotten?

The half million inserts of ``audit_append``, five of whose twenty columns are sealed as one class: where a thousand people
own them, and where each row is another person's. Compared with it is the same window with nothing sealed. The people have
their keys; those of new ones are a question of ``key_registry``. Then all of the trail is read, opened by its keys and as it
stands. The two take turns in an order left to chance; ratios are those of rows per second.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from audit.encryption.column_groups import PersonColumns
from audit.encryption.decrypt import decrypt_rows
from audit.encryption.encrypt import ColumnEncryption
from audit.trail.tables import PAYLOAD
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.key_registry import registry_at
from benchmarks.lab import Lab, median
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink

__all__ = ["measure"]

AIM, READ_AIM = 0.5, 0.1  # who opens a row holds it against its hash, too
CLASS = ("contact", ("name", "city", "street", "mail", "account"))
OWNERS = {"1,000 people": "region", "each row another person": "id"}
PLAIN = "nothing sealed"


def _sink(lab: Lab, folder: Path, owner: str | None) -> DeltaAuditSink:
    person = None if owner is None else PersonColumns("customer", "id", owner, "exact", (CLASS,))
    sealing = None if person is None else ColumnEncryption((person,), lambda: registry_at(lab))
    return DeltaAuditSink(str(folder), spark=lab.spark, sealing=sealing)


def measure(lab: Lab) -> Iterator[Answer]:
    source = state.one_commit(lab, updates=False)
    cases = {PLAIN: None, **OWNERS}
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    sizes: dict[str, int] = {}
    reads: dict[str, list[float]] = {"opened": [], "as it stands": []}
    for counts in lab.rounds(warm_up=1, timed=3):
        for case in lab.shuffled(list(cases)):
            folder = lab.folder / "audit-sealed"
            feed = lab.once(f"feed of {source.path}", lambda: ChangeFeed(lab.spark, source.path))
            sink = _sink(lab, folder, cases[case])
            pipeline = Pipeline(feed, sink, key=["id"], start=source.first, name="sealed")
            with pipeline.runner.open(source.last) as position:
                began = time.monotonic()
                list(pipeline.runner.steps(position, source.last))
                took = time.monotonic() - began
            if counts:
                seconds[case].append(took)
            else:
                sizes[case] = state.bytes_of(folder / PAYLOAD)
                state.trail_at(lab, folder).checkpoint(accept=True)
                state.check_intact(lab, folder, source.events)
            if case == next(iter(OWNERS)):
                for way in lab.shuffled(list(reads)):
                    took = _read(lab, sink, way)
                    if counts:
                        reads[way].append(took)
            shutil.rmtree(folder)
    limit = median(seconds[PLAIN])
    for case in OWNERS:
        took = median(seconds[case])
        yield Answer(
            question=f"audit_sealed: {case}",
            ratio=limit / took,
            aim=AIM,
            better="higher",
            words=f"{source.events:,} events in {took:.2f} s ({source.events / took:,.0f}/s), without encryption"
            f" {limit:.2f} s; {sizes[case] / source.events:.0f} bytes an event in the payload, without encryption"
            f" {sizes[PLAIN] / source.events:.0f}",
            detail={"events": source.events, "seconds": [round(took, 3), round(limit, 3)], "bytes": sizes},
        )
    took, limit = median(reads["opened"]), median(reads["as it stands"])
    yield Answer(
        question="audit_sealed: reading",
        ratio=limit / took,
        aim=READ_AIM,
        better="higher",
        words=f"{source.events:,} rows opened in {took:.2f} s, read as they stand in {limit:.2f} s",
        detail={"rows": source.events, "seconds": [round(took, 3), round(limit, 3)]},
    )


def _read(lab: Lab, sink: DeltaAuditSink, way: str) -> float:
    rows = lab.spark.read.format("delta").load(f"{sink.path}/{PAYLOAD}")
    began = time.monotonic()
    if way == "opened":
        rows = decrypt_rows(rows, [(0, sink.trail.columns())], registry_at(lab).read_states)
        assert rows.where("unreadable is not null or row.mail is null").isEmpty()
        began = time.monotonic()
        rows = decrypt_rows(
            lab.spark.read.format("delta").load(f"{sink.path}/{PAYLOAD}"),
            [(0, sink.trail.columns())],
            registry_at(lab).read_states,
        )
    rows.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
