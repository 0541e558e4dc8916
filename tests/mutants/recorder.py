"""A pytest plugin in the process that runs the tests of a mutant: what failed, and whether the copy was tested."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.mutants.model import PACKAGES

__all__ = ["Recorder"]


class Recorder:
    """Writes its findings to ``result`` when the session ends."""

    def __init__(self, tree: Path, result: Path) -> None:
        self._tree = tree
        self._result = result
        self._failed: list[str] = []
        self._skipped: list[str] = []
        self._broken: list[str] = []
        self._seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        # That an example fails is enough: a small one is searched for minutes
        settings.register_profile("mutants", phases=(Phase.explicit, Phase.reuse, Phase.generate))
        settings.load_profile("mutants")
        for name in ("deltarelay", *PACKAGES):
            file = import_module(name).__file__
            if file is None or not Path(file).is_relative_to(self._tree):
                raise pytest.UsageError(f"{name} is imported from {file}, not from {self._tree}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._broken.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._failed.append(f"{report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"))
        elif report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        found = {
            "failed": self._failed,
            "skipped": self._skipped,
            "broken": self._broken,
            "ran": len(self._seconds),
            "seconds": sum(self._seconds.values()),
        }
        self._result.write_text(json.dumps(found), encoding="utf-8")
