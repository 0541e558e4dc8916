"""Shows for each mutant that its tests find it.

    python -m tests.mutants                         all of them
    python -m tests.mutants 'cut-*' infra.toml      by name, or all of a file
    python -m tests.mutants --kind pure             those whose tests need neither a JVM nor a service
    python -m tests.mutants --list

The product is never changed in place: each job has a copy of the repository, changes one file in it, runs the tests that
the mutant names and puts the file back. A mutant is caught where a test fails, and only there: not by a broken import, not
by an error of pytest. Before that the same tests pass on the unchanged copy (``--unchecked`` leaves that out).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.model import PACKAGES, AnchorNotFound, Mutant, load, mutate

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = {".git", ".venv", ".hypothesis", ".mypy_cache", ".ruff_cache", ".import_linter_cache", "__pycache__"}
PURE = ("tests/unit/",)
OWN_PROCESSES = ("tests/acceptance/", "tests/docs/", "tests/soak/")
"""What these start would attach to the JVM that serves the tests."""
LONGEST_SECONDS = 1200.0
GOOD = ("caught", "timed out")


def kind(tests: Sequence[str]) -> str:
    """``pure``, ``process`` (a JVM of its own for everything that is started) or ``service``."""
    if all(test.startswith(PURE) for test in tests):
        return "pure"
    return "process" if any(test.startswith(OWN_PROCESSES) for test in tests) else "service"


def needs_spark(tests: Sequence[str]) -> bool:
    """Whether a file of these mentions Spark, or the suite for sinks, which needs it: else no JVM is started for them."""
    texts = ((ROOT / test.partition("::")[0]).read_text(encoding="utf-8").lower() for test in tests)
    return any("spark" in text or "conformance" in text for text in texts)


@dataclass(slots=True)
class Outcome:
    mutant: Mutant
    what: str
    """``caught``, ``timed out``, ``SURVIVED``, ``ANCHOR NOT FOUND``, ``TESTS FAIL ANYWAY``, ``NOT A TEST``, ``SKIPPED``."""
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.what:<17} {self.mutant.name} {self.detail} in {self.seconds:.1f} s".replace("  in", " in")


class Job:
    """A copy of the repository, and a process that runs tests in it."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._runs = folder / "run"
        shutil.copytree(ROOT, self.tree, ignore=lambda _, names: NOT_COPIED & set(names))
        (self.tree / ".venv").symlink_to(ROOT / ".venv")
        environment = {**os.environ, "PYTHONPATH": str(self.tree)}
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", *PACKAGES, "tests"], cwd=self.tree, env=environment, check=True
        )
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker", str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.tree,
            env=environment,
        )
        self._passed: dict[tuple[str, str], float] = {}
        self._clock = int(time.time())

    def close(self) -> None:
        assert self._worker.stdin is not None
        self._worker.stdin.close()
        self._worker.wait()

    def judge(self, mutant: Mutant, *, checked: bool) -> Outcome:
        path = self.tree / mutant.file
        try:
            source = path.read_text(encoding="utf-8")
            changed = mutate(source, mutant)
        except (AnchorNotFound, OSError) as error:
            return Outcome(mutant, "ANCHOR NOT FOUND", str(error))
        lent, timeout = kind(mutant.tests) == "service" and needs_spark(mutant.tests), LONGEST_SECONDS
        if checked:
            lent, needed, failure = self._check(mutant.tests, lent)
            if failure:
                return Outcome(mutant, "TESTS FAIL ANYWAY", failure)
            timeout = min(timeout, 60.0 + 4 * needed)
        times = path.stat()
        try:
            path.write_text(changed, encoding="utf-8")
            self._clock += 10  # no compiled file is as old as this
            os.utime(path, (self._clock, self._clock))
            found = self._run(mutant.tests, lent=lent, timeout=timeout)
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return _outcome(mutant, found)

    def _check(self, tests: Sequence[str], lent: bool) -> tuple[bool, float, str]:
        """→ whether they pass with a JVM that is lent, how long they took, and what is wrong with them."""
        new = [test for test in tests if not any((test, how) in self._passed for how in (str(lent), "False"))]
        if new:
            found = self._run(new, lent=lent, timeout=LONGEST_SECONDS)
            if lent and found["code"] != 0:
                lent = False
                found = self._run(new, lent=False, timeout=LONGEST_SECONDS)
            if found["code"] != 0:
                return lent, 0.0, ", ".join(found.get("failed") or found.get("broken") or [f"code {found['code']}"])
            if found.get("skipped"):
                return lent, 0.0, "skipped: " + ", ".join(found["skipped"])
            self._passed |= {(test, str(lent)): found["took"] for test in new}
        lent = lent and all((test, "True") in self._passed for test in tests)
        return lent, sum(self._passed.get((test, "True"), self._passed.get((test, "False"), 0.0)) for test in tests), ""

    def _run(self, tests: Sequence[str], *, lent: bool, timeout: float) -> dict[str, Any]:
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        asked = {"tests": list(tests), "folder": str(self._runs), "jvm": lent, "timeout": timeout}
        self._worker.stdin.write(json.dumps(asked) + "\n")
        self._worker.stdin.flush()
        answer: dict[str, Any] = json.loads(self._worker.stdout.readline())
        return answer


def _outcome(mutant: Mutant, found: dict[str, Any]) -> Outcome:
    took = found["took"]
    if found["timed_out"]:
        return Outcome(mutant, "timed out", "(the tests did not end)", took)
    if found["code"] == 1 and found.get("failed"):
        return Outcome(mutant, "caught", f"by {found['failed'][0]}", took)
    if found["code"] == 0:
        return Outcome(mutant, "SURVIVED", f"{found.get('ran', 0)} tests", took)
    return Outcome(mutant, "NOT A TEST", f"code {found['code']}: {', '.join(found.get('broken', []))}", took)


def select(mutants: Sequence[Mutant], wanted: Sequence[str], chosen_kind: str | None) -> list[Mutant]:
    def matches(mutant: Mutant) -> bool:
        names = (mutant.name, mutant.listed_in, mutant.file)
        return not wanted or any(fnmatch.fnmatchcase(name, glob) for glob in wanted for name in names)

    return [one for one in mutants if matches(one) and chosen_kind in (None, kind(one.tests))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("wanted", nargs="*", metavar="NAME", help="names, TOML files or product files; globs")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time, each with a JVM of its own if need be")
    parser.add_argument("--list", action="store_true", help="list them and run nothing")
    parser.add_argument("--kind", choices=["pure", "service", "process"], help="only those with tests of this kind")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests on the unchanged product first")
    given = parser.parse_args(arguments)
    mutants = select(load(), given.wanted, given.kind)
    if not mutants:
        parser.error("no mutant has such a name")
    if given.list:
        for one in mutants:
            print(f"{one.name}  {one.file}:{one.scope}  [{kind(one.tests)}] {' '.join(one.tests)}")
        print(f"{len(mutants)} mutants: {_counted(kind(one.tests) for one in mutants)}")
        return 0
    outcomes = _run_all(mutants, given.jobs, checked=not given.unchecked)
    print(f"{len(outcomes)} mutants: {_counted(one.what for one in outcomes)}")
    bad = [one for one in outcomes if one.what not in GOOD]
    for one in bad:
        print(one)
    return 1 if bad else 0


def _counted(words: Any) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _run_all(mutants: Sequence[Mutant], jobs: int, *, checked: bool) -> list[Outcome]:
    # Mutants with the same tests next to each other: what these tests have in common is warm
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in sorted(mutants, key=lambda one: (("pure", "service", "process").index(kind(one.tests)), one.tests)):
        waiting.put(mutant)
    outcomes: list[Outcome] = []
    failures: list[BaseException] = []

    def work(folder: Path) -> None:
        try:
            job = Job(folder)
            try:
                while True:
                    try:
                        mutant = waiting.get_nowait()
                    except queue.Empty:
                        return
                    outcomes.append(job.judge(mutant, checked=checked))
                    print(outcomes[-1], flush=True)
            finally:
                job.close()
        except BaseException as error:
            failures.append(error)

    with tempfile.TemporaryDirectory(prefix="dr-mutants-", ignore_cleanup_errors=True) as folder:
        threads = [
            threading.Thread(target=work, args=(Path(folder) / str(number),), daemon=True)
            for number in range(min(jobs, len(mutants)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
