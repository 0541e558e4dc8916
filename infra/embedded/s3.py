"""S3 and DynamoDB on this machine, by moto's server: for the demo, the documentation and benchmarks. Never for production.

A separate process, because delta-rs holds Python's GIL while it reads, so that a server in the same process could not
answer. Its data are in memory and lost when it ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from cdf.errors import ConfigError

__all__ = ["EmbeddedS3"]

START_SECONDS = 30
_FILE = "server.json"


class EmbeddedS3:
    """One server, recorded in a file in ``directory``; only this machine can connect to it."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedS3:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._known()['port']}"

    def start(self) -> None:
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            raise ConfigError(
                "moto's server is not installed", hint="pip install 'moto[server]', or use a bucket of your own"
            )
        self.close()
        self.directory.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        with (self.directory / "server.log").open("w") as log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it outlives the process that started it, until close()
                cwd=self.directory,
            )
        (self.directory / _FILE).write_text(json.dumps({"pid": process.pid, "port": port}))
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ConfigError(
                    "moto's server did not start", hint=f"its output is in {self.directory / 'server.log'}"
                )
            time.sleep(0.1)

    def running(self) -> bool:
        known = self._known()
        return bool(known) and self._answers(known["port"])

    def close(self) -> None:
        """Stop the server, if it is the one that was started here. May be called twice."""
        known = self._known()
        if known and _is_moto(known["pid"], known["port"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(known["pid"], signal.SIGTERM)
            deadline = time.monotonic() + 10
            while self._answers(known["port"]) and time.monotonic() < deadline:
                time.sleep(0.05)
        process, self._process = self._process, None
        if process is not None:
            process.wait(10)
        (self.directory / _FILE).unlink(missing_ok=True)

    def _known(self) -> dict[str, int]:
        try:
            found = json.loads((self.directory / _FILE).read_text())
            return {"pid": int(found["pid"]), "port": int(found["port"])}
        except (OSError, ValueError, KeyError):
            return {}

    @staticmethod
    def _answers(port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=2):
                return True
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_moto(pid: int, port: int) -> bool:
    """A process id may be reused: the command line must be that of the server."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # not Linux, or gone
        try:
            listing = subprocess.run(
                ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
            )
        except OSError:
            return False
        words = [word.encode() for word in listing.stdout.split()]
    return b"moto.server" in words and str(port).encode() in words
