"""What does it cost that a trail can be forgotten?

The half million inserts of ``audit_append``, five of whose twenty columns are sealed as one class: where a thousand people
own them, and where each row is another person's. Held against it is the same window with nothing sealed. The people have
their keys; those of new ones are a question of the registry. Then all of the trail is read, opened by its keys and as it
stands. The two take turns in an order left to chance; ratios are those of rows per second.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from audit.keys.groups import SealedPerson
from audit.keys.opening import opened
from audit.keys.registry import Registry
from audit.keys.roots import FileRoot
from audit.keys.sealing import Sealing
from audit.tables import PAYLOAD
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink

__all__ = ["measure", "registry_at"]

AIM, READ_AIM = 0.5, 0.1  # who opens a row holds it against its hash, too
CLASS = ("contact", ("name", "city", "street", "mail", "account"))
OWNERS = {"1,000 people": "region", "each row another person": "id"}
PLAIN = "nothing sealed"


def registry_at(lab: Lab, schema: str = "bench_keys") -> Registry:
    root = lab.once("bench root key", FileRoot.generate)
    registry = Registry(lab.dsn, root, schema=schema)
    lab.once(f"registry {schema}", registry.prepare)
    return registry


def _sink(lab: Lab, folder: Path, owner: str | None) -> DeltaAuditSink:
    person = None if owner is None else SealedPerson("customer", "id", owner, "exact", (CLASS,))
    sealing = None if person is None else Sealing((person,), lambda: registry_at(lab))
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
            with pipeline.opened(source.last) as position:
                began = time.monotonic()
                list(pipeline.steps(position, source.last))
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
            words=f"{source.events:,} events in {took:.2f} s ({source.events / took:,.0f}/s), unsealed {limit:.2f} s; "
            f"{sizes[case] / source.events:.0f} bytes an event in the payload, unsealed {sizes[PLAIN] / source.events:.0f}",
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
    yield from _registry(lab)


def _read(lab: Lab, sink: DeltaAuditSink, way: str) -> float:
    rows = lab.spark.read.format("delta").load(f"{sink.path}/{PAYLOAD}")
    began = time.monotonic()
    if way == "opened":
        rows = opened(rows, [(0, sink.trail.columns())], registry_at(lab).states)
        assert rows.where("unreadable is not null or row.mail is null").isEmpty()
        began = time.monotonic()
        rows = opened(
            lab.spark.read.format("delta").load(f"{sink.path}/{PAYLOAD}"),
            [(0, sink.trail.columns())],
            registry_at(lab).states,
        )
    rows.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _registry(lab: Lab) -> Iterator[Answer]:
    """Keys of a million people (QUICK: 20,000): made, asked for again, wrapped anew; ten thousand people shredded."""
    count, gone = (20_000, 500) if lab.quick else (1_000_000, 10_000)
    registry = registry_at(lab, "bench_people")
    people = [[("id", str(number))] for number in range(count)]

    def timed(work: object) -> float:
        assert callable(work)
        began = time.monotonic()
        work()
        return time.monotonic() - began

    tokens: list[bytes] = []
    made = timed(lambda: tokens.extend(filter(None, registry.tokens("customer", people, create=True))))
    made += timed(lambda: registry.keys([(token, "contact") for token in tokens], create=True))
    batch = tokens[: count // 10]
    asked = timed(lambda: registry.keys([(token, "contact") for token in batch]))
    # What the machine gives: as many wraps and unwraps of keys without a database
    wraps = timed(lambda: _wraps(len(batch))) / len(batch)
    rewrapped = timed(lambda: registry.rotate(FileRoot.generate()))
    shredded = timed(lambda: registry.shred(tokens[:gone], None, run="bench"))
    for what, aim, rate, words in (
        ("keys asked for", 0.3, len(batch) / asked, f"{len(batch) / asked:,.0f} keys/s of {count:,} people"),
        ("keys made", 0.05, count / made, f"{count / made:,.0f} people/s, with token and key"),
        (
            "keys wrapped anew",
            0.1,
            count / rewrapped,
            f"{count / rewrapped:,.0f} keys/s, {rewrapped:.0f} s for {count:,}",
        ),
    ):
        yield Answer(
            question=f"audit_sealed: {what}",
            ratio=rate * wraps,
            aim=aim,
            better="higher",
            words=f"{words}; sealing alone {1 / wraps:,.0f}/s",
            detail={"people": count, "per_second": round(rate), "sealing_per_second": round(1 / wraps)},
        )
    yield Answer(
        question="audit_sealed: shredding",
        ratio=gone * wraps / shredded,
        aim=0.05,
        better="higher",
        words=f"{gone:,} people in {shredded:.2f} s",
        detail={"people": gone, "seconds": round(shredded, 3)},
    )


def _wraps(count: int) -> None:
    from audit.keys.cipher import Sealer, open_sealed

    sealer, shard = Sealer(), os.urandom(32)
    for _ in range(count):
        open_sealed(shard, sealer.seal(shard, os.urandom(32), about=b"bench"), about=b"bench")
