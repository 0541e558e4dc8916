"""Commands without a process of their own: seconds less for each, where another JVM would show nothing new."""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.cli.main import main
from tests.acceptance.commands import Done, Project

__all__ = ["Command", "here"]

Command = Callable[..., Done]


@pytest.fixture
def here(spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Does what ``project.run`` does, in this process and on its Spark session."""
    jvm: Any = spark._jvm
    numbers = count()

    def run(*words: str) -> Done:
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # another process would know nothing yet
        out, err = (project.folder / f"here-{number}.{end}" for number in [next(numbers)] for end in ("out", "err"))
        with (
            out.open("w") as stdout,
            err.open("w") as stderr,
            redirect_stdout(stdout),
            redirect_stderr(stderr),
            pytest.raises(SystemExit) as left,
        ):
            main(list(words))
        project.check_secret()
        return Done(int(left.value.code or 0), out.read_text(), err.read_text())

    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(tempfile, "tempdir", str(project.folder / "tmp"))
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    for logger in map(logging.getLogger, (None, "deltarelay", "py4j")):
        for name in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logger, name, getattr(logger, name))
    terminated = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, terminated)
    logging.captureWarnings(False)
