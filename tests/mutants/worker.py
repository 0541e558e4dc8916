"""A warm process that runs tests in forked children: libraries are imported already, the product never is.

One JSON object a line on stdin asks for a run, one on stdout answers. Tests that need Spark find a JVM that is warm as well:
``tests.mutants.jvm`` starts it with the unchanged product, the children attach to it as a driver of spark-submit does.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = [
    "pytest",
    "pytest_timeout",
    "_hypothesis_pytestplugin",
    "hypothesis",
    "hypothesis.strategies",
    "pyspark.sql",
    "pyspark.sql.functions",
    "pyspark.sql.types",
    "pyspark.pandas.utils",
    "pandas",
    "pyarrow",
    "pyarrow.parquet",
    "pyarrow.compute",
    "psycopg",
    "adbc_driver_postgresql",
    "adbc_driver_manager",
    "boto3",
    "botocore.session",
    "deltalake",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "ahocorasick_rs",
    "pydantic",
    "ruamel.yaml",
    "typer",
    "rich.console",
    "structlog",
    "stamina",
    "confluent_kafka",
    "confluent_kafka.admin",
    "jsonschema",
]
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Jvm:
    """Started when the first run needs it, and again after a run that had to be killed."""

    def __init__(self, product: Path, tree: Path) -> None:
        """``product``: the unchanged one."""
        self._product, self._tree = product, tree
        self._process: subprocess.Popen[str] | None = None
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.jvm", str(self._tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._product,
            env={**os.environ, "PYTHONPATH": str(self._product)},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.environment = json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pids(self) -> set[int]:
        return set() if self._process is None else {self._process.pid}


def run(tree: Path, asked: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """One run of pytest in a child."""
    folder = Path(asked["folder"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result = folder / "result.json"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(tree, asked["tests"], folder, result, environment)
    while not (found := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() - began < asked["timeout"]:
        time.sleep(0.02)
    if timed_out := not found[0]:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        found = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(found[1])
    answer = {"code": code, "timed_out": timed_out, "took": time.monotonic() - began}
    if result.exists():
        answer |= json.loads(result.read_text(encoding="utf-8"))
    return answer


def _child(tree: Path, tests: list[str], folder: Path, result: Path, environment: dict[str, str]) -> None:
    import pytest

    from tests.mutants.recorder import Recorder

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, stream in ((null, 0), (log, 1), (log, 2)):
        os.dup2(number, stream)
    os.environ.update(environment)
    temporary = folder / "temporary"
    arguments = ["-x", "-q", "-p", "no:xdist", "--assert=plain", f"--rootdir={tree}", f"--basetemp={temporary}", *tests]
    sys.exit(pytest.main(arguments, plugins=[Recorder(tree, result)]))


def kill_others(known: set[int]) -> None:
    """What a run has left behind: this process is the parent of all whose parent has ended (Linux)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            pid, parent = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and pid not in known:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main() -> None:
    tree, own = Path.cwd(), os.getpid()
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the runner closes our stdin
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    jvm = Jvm(Path(sys.argv[1]), tree)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            environment = {"CI": "true", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
            if asked["jvm"]:
                jvm.start()
                environment |= jvm.environment
            answer = run(tree, asked, environment)
            kill_others(jvm.pids())
            if asked["jvm"] and answer["code"] not in (0, 1):
                jvm.stop()  # a Spark context may be active in it still
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        if os.getpid() == own:  # not in a child
            jvm.stop()


if __name__ == "__main__":
    main()
