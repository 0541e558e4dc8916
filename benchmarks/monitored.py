"""What metrics and lineage cost: the same work with and without them, in turns.

They are those of the command line: a text file of metrics, and lineage in a file. A follower also serves its metrics over
HTTP, and is scraped every second.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median, quartiles
from infra.config.load import load
from infra.config.models import Project
from infra.monitoring.observers import Listen, Observers, ReadStatus, observe

__all__ = ["Measured", "build_project", "compare", "measure_processor", "monitor", "monitor_follower"]

AIM = 1.03
SCRAPE_SECONDS = 1.0


def build_project(lab: Lab, name: str, *, source: str, dsn: str, table: str) -> Project:
    """One pipeline with metrics and lineage."""
    folder = lab.folder / "monitored"
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(
        "version: 1\n"
        "connections: {target: {kind: postgres, dsn: '${TARGET_DSN}'}}\n"
        f"pipelines: {{{name}: {{source: {{table: {source}, key: [id]}}, sink: {{connection: target, table: {table}}}}}}}\n"
        f"lineage: {{namespace: bench, transport: {{kind: file, path: {folder / 'events.json'}}}}}\n"
        f"metrics: {{textfile: {folder / 'metrics.prom'}}}\n"
    )
    return load(file, environ={**os.environ, "TARGET_DSN": dsn})


@contextmanager
def monitor(project: Project, name: str) -> Iterator[Observers]:
    """Around a run that ends: from its beginning until metrics and lineage have ended too."""
    with observe(project, [name], has_metrics=True) as observers:
        observers.begin(name)
        yield observers
        observers.end(name, None)


@contextmanager
def monitor_follower(project: Project, name: str, read_status: ReadStatus, port: int) -> Iterator[Observers]:
    with observe(project, [name], has_metrics=True, listen=Listen("127.0.0.1", port)) as observers, _scrape(port):
        observers.begin(name, read_status)
        yield observers
        observers.end(name, None)


@contextmanager
def _scrape(port: int) -> Iterator[None]:
    stopping = threading.Event()

    def repeat() -> None:
        while not stopping.wait(SCRAPE_SECONDS):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@dataclass
class Measured:
    """The same work, once for each element."""

    seconds: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)
    """Processor time of the driver's Python."""
    jvm: list[float] = field(default_factory=list)
    """Processor time of its JVM."""

    @property
    def processor(self) -> list[float]:
        return [python + jvm for python, jvm in zip(self.python, self.jvm, strict=True)]


@contextmanager
def measure_processor(lab: Lab, into: Measured) -> Iterator[None]:
    python, jvm = time.process_time(), _processor_seconds(lab.jvm_pid)
    yield
    into.python.append(time.process_time() - python)
    into.jvm.append(_processor_seconds(lab.jvm_pid) - jvm)


def _processor_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def compare(question: str, on: Measured, off: Measured, *, pairs_are: str) -> Answer:
    """The median over all pairs of *on ÷ off*; a pair is measured one right after the other.

    Processor time depends less on what else the machine does. Most of what metrics and lineage do is done in Python, and its
    time differs less from one run to the next than the JVM's, so it is named by itself.
    """
    wall, processor = _ratios(on.seconds, off.seconds), _ratios(on.processor, off.processor)
    python = median(on.python) - median(off.python)
    low, high = quartiles(wall)
    return Answer(
        question=question,
        ratio=median(wall),
        aim=AIM,
        better="lower",
        words=f"{len(wall)} pairs of {pairs_are}: {_percent(median(wall))} (quartiles {_percent(low)} and"
        f" {_percent(high)}); processor time {_percent(median(processor))}, of Python {1000 * python:+.0f} ms"
        f" of {median(off.processor):.2f} s",
        detail={
            "pairs": len(wall),
            "seconds_on": round(median(on.seconds), 4),
            "seconds_off": round(median(off.seconds), 4),
            "quartiles": [round(low, 4), round(high, 4)],
            "processor_off": round(median(off.processor), 4),
            "python_on": round(median(on.python), 4),
            "python_off": round(median(off.python), 4),
            "processor_ratio": round(median(processor), 4),
            "processor_quartiles": [round(one, 4) for one in quartiles(processor)],
        },
    )


def _ratios(on: Sequence[float], off: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(on, off, strict=True)]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
