"""``make soak``: everything random, with seeds that no commit has seen.

    python -m tests.soak [--minutes N] [--jobs N] [-- ARGUMENTS OF PYTEST]

Without minutes: once through everything, at full length (hours). With minutes: short rounds, each with a new seed and in an
order of its own, until the minutes are over; what would start later is reported as not started. From 60 minutes on a round
has full length. ``DELTARELAY_TEST_SEED=…`` begins with that seed, and so repeats the round that printed it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from tests.fixtures.fix_seed import SEED_VARIABLE, SOAK_VARIABLE, UNTIL_VARIABLE

FULL_FROM_MINUTES = 60
INTERRUPTED = 130
Round = Callable[[dict[str, str]], int]


def soak(
    first_seed: int, minutes: float | None, run: Round, *, clock: Callable[[], float] = time.time
) -> dict[int, int]:
    """→ the exit code of each seed's round. Goes on after a failure: another seed may find another fault."""
    until = None if minutes is None else clock() + 60 * minutes
    full = minutes is None or minutes >= FULL_FROM_MINUTES
    codes: dict[int, int] = {}
    while not codes or (until is not None and clock() < until):
        seed = first_seed + len(codes)
        variables = {SEED_VARIABLE: str(seed), SOAK_VARIABLE: "full" if full else "rounds"}
        if until is not None:
            variables[UNTIL_VARIABLE] = str(until)
        codes[seed] = run(variables)
        if codes[seed] not in (0, 1):  # interrupted, or no test could be collected: so would the next round be
            break
    return codes


def exit_code(code: int) -> int:
    """As a shell tells it: 137 where pytest was killed by signal 9, which Python tells as -9."""
    return code if code >= 0 else 128 - code


def _with_pytest(words: list[str]) -> Round:
    def run(variables: dict[str, str]) -> int:
        print(f"::: soak with {SEED_VARIABLE}={variables[SEED_VARIABLE]}", flush=True)
        with subprocess.Popen([sys.executable, "-m", "pytest", *words], env={**os.environ, **variables}) as process:
            # Ctrl-C reaches pytest as well: it stops its servers and reports before it ends
            def waits(_: int, __: FrameType | None) -> None: ...

            before = signal.signal(signal.SIGINT, waits)
            try:
                return exit_code(process.wait())
            finally:
                signal.signal(signal.SIGINT, before)

    return run


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a Spark and a PostgreSQL of its own")
    parser.add_argument("words", nargs="*", metavar="ARGUMENTS OF PYTEST")
    given = parser.parse_args(words)
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**9))
    codes = soak(
        seed, given.minutes, _with_pytest(["--numprocesses", str(given.jobs), "--timeout", "3600", *given.words])
    )
    failed = [seed for seed, code in codes.items() if code == 1]
    ended = "" if max(codes.values()) <= 1 else ", not finished"
    print(f"soak: {len(codes)} seeds from {seed} on, {len(failed)} failed{ended}")
    for seed in failed:
        print(f"  {SEED_VARIABLE}={seed} make soak{f' MINUTES={given.minutes:g}' if given.minutes else ''}")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
