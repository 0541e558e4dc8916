"""``make bench``: asks the questions, prints one table, keeps the answers in ``benchmarks/results``.

The environment chooses: ``ONLY=history,freshness`` asks only these, ``QUICK=1`` asks each in its smallest size and keeps the
answers apart. The exit code is 0 whatever the figures, 1 where a question could not be answered, 2 where there is no such
question, 130 after Ctrl-C, which keeps what was measured before.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import (
    audit_append,
    audit_history,
    audit_proof,
    audit_quick,
    audit_sealed,
    audit_verify,
    erase_run,
    erase_scan,
    freshness,
    history,
    idle_run,
    kafka_events,
    kafka_freshness,
    kafka_guarantee,
    kafka_lanes,
    kafka_memory,
    key_registry,
    large_windows,
    postgres_catch_up,
    postgres_copy,
    postgres_debezium,
    postgres_growth,
    postgres_memory,
    postgres_window,
    report,
    s3,
    shapes,
    small_windows,
    start,
    verify,
)
from benchmarks.answer import Answer, keep, show
from benchmarks.lab import Lab, conditions, now
from infra.signals import raise_interrupt_on_signal

Question = Callable[[Lab], Iterator[Answer]]

QUESTIONS: dict[str, Question] = {
    "audit_append": audit_append.measure,
    "audit_history": audit_history.measure,
    "audit_proof": audit_proof.measure,
    "audit_quick": audit_quick.measure,
    "audit_sealed": audit_sealed.measure,
    "audit_verify": audit_verify.measure,
    "erase_run": erase_run.measure,
    "erase_scan": erase_scan.measure,
    "freshness": freshness.measure,
    "history": history.measure,
    "idle_run": idle_run.measure,
    "kafka_events": kafka_events.measure,
    "kafka_guarantee": kafka_guarantee.measure,
    "kafka_lanes": kafka_lanes.measure,
    "kafka_freshness": kafka_freshness.measure,
    "kafka_memory": kafka_memory.measure,
    "key_registry": key_registry.measure,
    "large_windows": large_windows.measure,
    "postgres_copy": postgres_copy.measure,
    "postgres_window": postgres_window.measure,
    "postgres_catch_up": postgres_catch_up.measure,
    "postgres_debezium": postgres_debezium.measure,
    "postgres_growth": postgres_growth.measure,
    "postgres_memory": postgres_memory.measure,
    "s3": s3.measure,
    "shapes": shapes.measure,
    "small_windows": small_windows.measure,
    "start": start.measure,
    "verify": verify.measure,
}
RESULTS = Path(__file__).parent / "results"


def main(environment: Mapping[str, str]) -> int:
    quick = environment.get("QUICK", "") not in ("", "0")
    names = [name for name in environment.get("ONLY", "").replace(",", " ").split() if name] or list(QUESTIONS)
    if unknown := set(names) - set(QUESTIONS):
        print(f"no such question: {', '.join(sorted(unknown))} (there are {', '.join(QUESTIONS)})", file=sys.stderr)
        return 2
    before = conditions()
    file = RESULTS / ("quick.json" if quick else "latest.json")
    answers: list[Answer] = []

    def take(answer: Answer) -> None:
        # At once: a later question can end the process
        keep(answer, file, {"measured_at": now(), **before})
        answers.append(answer)

    code = 0
    try:
        with Lab(quick=quick) as lab:
            for name in names:
                code = max(code, _ask(name, lab, take))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    if answers:
        print(show(answers))
        print(f"kept in {os.path.relpath(file)}", file=sys.stderr)
    return code


def _ask(name: str, lab: Lab, take: Callable[[Answer], None]) -> int:
    lab.say(f"{name} …")
    began = time.monotonic()
    try:
        with raise_interrupt_on_signal():
            for answer in QUESTIONS[name](lab):
                take(answer)
                lab.say(f"  {answer.question}: {answer.ratio:.2f}  {answer.words}")
    except Exception:  # the other questions can still be answered
        traceback.print_exc()
        lab.say(f"{name} could not be answered")
        return 1
    lab.say(f"{name} took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    # There are no arguments: one that is given is refused, not ignored
    argparse.ArgumentParser("python -m benchmarks", description=__doc__).parse_args()
    code = main(os.environ)
    report.write()
    sys.exit(code)
