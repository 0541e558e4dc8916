"""How long does it take to check a proof, where there is neither Spark nor the trail?

The proof of one event out of a commit of 500,000, with its row: read from its file and checked by ``audit.proof``,
which is all that an auditor has. The limit is what no check can do without: the file read, and one Ed25519 signature
verified by the same library. The two take turns in an order left to chance. ``detail`` has the time of the whole
command too, most of which is Python's start.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import audit.proof
from benchmarks import audit_state as state
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM = 4.0


def measure(lab: Lab) -> Iterator[Answer]:
    source, folder, file = state.one_commit(lab, updates=False), lab.folder / "audit-proof", lab.folder / "event.proof"
    state.pipeline_to(lab, source.path, folder, start=source.first).run(until=source.last)
    began = time.monotonic()
    index = lab.chance.randrange(source.events)
    file.write_text(state.trail_at(lab, folder).prove(source.last, index, show_row=True))
    made = time.monotonic() - began
    key = str(state.signer(lab).verifier)
    bare, text = Ed25519PrivateKey.generate(), b"one checkpoint"
    signature = bare.sign(text)

    def check() -> None:
        checked = audit.proof.check(file.read_bytes(), [key])
        assert checked.event["index"] == index
        assert checked.row is not None

    def limit() -> None:
        file.read_bytes()
        bare.public_key().verify(signature, text)

    seconds: dict[Callable[[], None], list[float]] = {check: [], limit: []}
    for counts in lab.rounds(warm_up=50, timed=500):
        for way in lab.shuffled((check, limit)):
            began = time.monotonic()
            way()
            if counts:
                seconds[way].append(time.monotonic() - began)
    ours, least = median(seconds[check]) * 1e3, median(seconds[limit]) * 1e3
    command = median([_command(file, key) for _ in range(5)]) * 1e3
    yield Answer(
        question="audit_proof",
        ratio=ours / least,
        aim=AIM,
        better="lower",
        words=f"a proof of {file.stat().st_size:,} bytes checked in {ours:.2f} ms, one signature in {least:.2f} ms; "
        f"the command {command:.0f} ms",
        detail={
            "milliseconds": [round(ours, 3), round(least, 3)],
            "command_milliseconds": round(command, 1),
            "bytes": file.stat().st_size,
            "seconds_to_make_it": round(made, 3),
            "repetitions": len(seconds[check]),
        },
    )


def _command(file: Path, key: str) -> float:
    """As an auditor calls it: that one module as a script. → seconds"""
    began = time.monotonic()
    subprocess.run([sys.executable, audit.proof.__file__, file, "--key", key], stdout=subprocess.PIPE, check=True)
    return time.monotonic() - began
