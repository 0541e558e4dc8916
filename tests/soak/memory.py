"""What the two processes of a command need, looked at from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from infra.spark.java import find_java
from tests.acceptance.commands import Running, descendants


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB; 0 for what this system does not tell."""

    at: float
    version: int
    python: int
    java: int
    heap: int
    """After a collection: before it the figure only says when the last one was."""
    classes: int

    def __str__(self) -> str:
        return (
            f"{self.at:6.0f} s  version {self.version:5}  python {self.python:4}  java {self.java:5}"
            f"  heap {self.heap:4}  classes {self.classes:4}"
        )


def memory_of(run: Running, *, version: int, began: float) -> Memory:
    java = next((pid for pid, (_, line) in descendants(run.process.pid).items() if "SparkSubmit" in line), None)
    heap, classes = (0, 0) if java is None else _collected(java)
    return Memory(
        at=time.monotonic() - began,
        version=version,
        python=_resident(run.process.pid),
        java=0 if java is None else _resident(java),
        heap=heap,
        classes=classes,
    )


def growth(samples: list[int]) -> int:
    """The least of the last quarter over the least of the second: caches come and go, what leaks is there at every look."""
    quarter = len(samples) // 4
    return min(samples[-quarter:]) - min(samples[quarter : 2 * quarter])


def _resident(pid: int) -> int:
    file = Path(f"/proc/{pid}/statm")
    pages = int(file.read_text().split()[1]) if file.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def _collected(pid: int) -> tuple[int, int]:
    """Heap and class data in use after a full collection, where there is a JDK and not only a JRE."""
    for _ in range(2):  # what Spark cleans up once the first collection has told it that nobody wants it any more
        _asked("jcmd", str(pid), "GC.run")
        time.sleep(0.5)
    lines = _asked("jstat", "-gc", str(pid)).splitlines()
    if len(lines) < 2:
        return 0, 0
    kib = dict(zip(lines[0].split(), lines[1].split(), strict=False))
    used = sum(float(kib.get(name, 0)) for name in ("S0U", "S1U", "EU", "OU"))
    return int(used) // 1024, int(float(kib.get("MU", 0))) // 1024


def _asked(tool: str, *words: str) -> str:
    """By the JDK of the Java that runs: another release's tools may not understand it."""
    java = find_java()
    beside = java.program.resolve().parent / tool if java is not None else Path(tool)
    program = str(beside) if beside.exists() else shutil.which(tool)
    if program is None:
        return ""
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else ""
