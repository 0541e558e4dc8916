"""Keys of a million people (QUICK: 20,000): made, asked for again, wrapped anew; ten thousand people shredded.

Held against sealing and opening as many keys without a database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from audit.encryption.key_registry import Registry
from audit.encryption.root_keys import FileRoot
from benchmarks.answer import Answer
from benchmarks.lab import Lab

__all__ = ["measure", "registry_at"]


def registry_at(lab: Lab, schema: str = "bench_keys") -> Registry:
    root = lab.once("bench root key", FileRoot.generate)
    registry = Registry(lab.dsn, root, schema=schema)
    lab.once(f"registry {schema}", registry.prepare)
    return registry


def measure(lab: Lab) -> Iterator[Answer]:
    count, gone = (20_000, 500) if lab.quick else (1_000_000, 10_000)
    registry = registry_at(lab, "bench_people")
    people = [[("id", str(number))] for number in range(count)]

    def timed(work: object) -> float:
        assert callable(work)
        began = time.monotonic()
        work()
        return time.monotonic() - began

    tokens: list[bytes] = []
    made = timed(lambda: tokens.extend(filter(None, registry.find_or_create_tokens("customer", people))))
    made += timed(lambda: registry.find_or_create_keys([(token, "contact") for token in tokens]))
    batch = tokens[: count // 10]
    asked = timed(lambda: registry.find_keys([(token, "contact") for token in batch]))
    # What the machine gives: as many wraps and unwraps of keys without a database
    wraps = timed(lambda: _wraps(len(batch))) / len(batch)
    rewrapped = timed(lambda: registry.rotate(FileRoot.generate()))
    shredded = timed(lambda: registry.destroy_keys(tokens[:gone], run="bench"))
    for what, aim, rate, words in (
        ("keys looked up", 0.3, len(batch) / asked, f"{len(batch) / asked:,.0f} keys/s of {count:,} people"),
        ("keys created", 0.05, count / made, f"{count / made:,.0f} people/s, with token and key"),
        (
            "keys wrapped again",
            0.1,
            count / rewrapped,
            f"{count / rewrapped:,.0f} keys/s, {rewrapped:.0f} s for {count:,}",
        ),
    ):
        yield Answer(
            question=f"key_registry: {what}",
            ratio=rate * wraps,
            aim=aim,
            better="higher",
            words=f"{words}; encryption alone {1 / wraps:,.0f}/s",
            detail={"people": count, "per_second": round(rate), "sealing_per_second": round(1 / wraps)},
        )
    yield Answer(
        question="key_registry: keys destroyed",
        ratio=gone * wraps / shredded,
        aim=0.05,
        better="higher",
        words=f"{gone:,} people in {shredded:.2f} s",
        detail={"people": gone, "seconds": round(shredded, 3)},
    )


def _wraps(count: int) -> None:
    from audit.encryption.aead import Encryptor, decrypt

    encryptor, shard = Encryptor(), os.urandom(32)
    for _ in range(count):
        decrypt(shard, encryptor.encrypt(shard, os.urandom(32), associated_data=b"bench"), associated_data=b"bench")
