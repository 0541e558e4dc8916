"""A real Kafka broker in a folder, for the demo, the tests and a laptop. Never for production.

One node that is both broker and controller (KRaft), run from its published jars by the Java that Spark needs anyway: no
Docker, no installation. It listens on 127.0.0.1 only, without passwords.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from cdf.errors import ConfigError
from infra.embedded.kafka_jars import KAFKA_VERSION, jar_folder, kafka_jars
from infra.embedded.kafka_ports import find_free_port, is_free, read_cluster_id
from infra.spark.java import require_java

__all__ = ["EmbeddedKafka", "StopMode", "kafka_jars"]

StopMode = Literal["fast", "immediate"]

START_SECONDS = 90
STOP_SECONDS = 30
_TRIES = 5
_TAKEN = "Address already in use"
_REASON = re.compile(r"^(?:Exception in thread \S+ |Caused by: )?[\w.$]+(?:Exception|Error): (\S[^\n]*)$", re.MULTILINE)

_LOGGING = """<Configuration status="warn">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %m (%c{1})%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""

# Its input ends with this process, even when it is killed. The process id may be reused by then, so the command line is
# compared as well. ``detach`` ends the watcher first.
_WATCHER = """
read -r _
ours() { { tr '\\0' ' ' < "/proc/$1/cmdline" || ps -o command= -p "$1"; } 2> /dev/null | grep -qF -- "$2"; }
ours "$@" && kill "$1"
sleep 30
ours "$@" && kill -9 "$1"
"""


class EmbeddedKafka:
    """One broker with its data in ``directory``; only this machine can reach it.

    ``config``: settings of server.properties, written at every start. Topics must be created before they are written to.
    The first start on a machine fetches the jars. ``java_options`` are appended to the options of the broker's Java.
    Only one process at a time may use it.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        config: Mapping[str, str | int | bool] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self.config: dict[str, str | int | bool] = dict(config or {})
        self.java_options = tuple(java_options)
        self._ports: tuple[int, int] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedKafka:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Known after the first start, and constant for the lifetime of this object, also across restarts."""
        ports = self._ports or self._known_ports()
        if ports is None:
            raise ConfigError("the embedded Kafka has no address before its first start", hint="call start() first")
        return f"127.0.0.1:{ports[0]}"

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @staticmethod
    def version() -> str:
        """The version of the broker; nothing is fetched or started."""
        return KAFKA_VERSION

    def start(self) -> None:
        """Create the data directory if needed, start the broker and wait until it answers."""
        if self._process is not None and self.running():
            return
        jars = kafka_jars()
        java = [str(require_java().program), "-cp", str(jars[0].parent / "*")]
        self.data.mkdir(parents=True, exist_ok=True)
        self.data.chmod(0o700)
        if self.running():
            # Left by a process that was killed; its settings may differ.
            self.stop()
        atexit.register(self.close)
        for last in [False] * (_TRIES - 1) + [True]:
            ports = self._ports or self._choose_ports()
            self._write_settings(ports)
            self._format(java)
            problem = self._run(java, ports)
            if problem is None:
                self._ports = ports
                return
            # Another program can take a port before the broker does. The address never changes once it was returned.
            if last or self._ports is not None or _TAKEN not in problem:
                raise self._start_error(problem)

    def detach(self) -> None:
        """Let the broker outlive this process. Another object for the same directory can stop it."""
        atexit.unregister(self.close)
        self._end_watcher()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the broker; ``immediate`` is a crash that the next start recovers from. Does nothing when it is down."""
        if self.running():
            pid = self._pid()
            _signal(pid, signal.SIGTERM if mode == "fast" else signal.SIGKILL)
            if not self._wait_until_ended(STOP_SECONDS):
                _signal(pid, signal.SIGKILL)
                self._wait_until_ended(STOP_SECONDS)
        if self._process is not None:
            self._process.wait()
            self._process = None
        self._end_watcher()

    def kill(self) -> None:
        """SIGKILL: the broker cannot shut down cleanly. The next start takes some seconds longer."""
        self.stop("immediate")

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        pid = self._pid()
        return pid > 0 and self._call in _command_line(pid)

    def close(self) -> None:
        """Stop the broker and keep the data. May be called twice."""
        atexit.unregister(self.close)
        self.stop()

    @property
    def _settings_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _call(self) -> str:
        """The end of this broker's command line, which identifies it."""
        return f"kafka.Kafka {self._settings_file}"

    @property
    def _state_file(self) -> Path:
        return self.directory / "server.json"

    def _state(self) -> dict[str, int]:
        try:
            found = json.loads(self._state_file.read_text())
            return {name: int(found[name]) for name in ("pid", "port", "controller_port")}
        except (OSError, ValueError, KeyError):
            return {}

    def _pid(self) -> int:
        return self._process.pid if self._process is not None else self._state().get("pid", 0)

    def _known_ports(self) -> tuple[int, int] | None:
        state = self._state()
        return (state["port"], state["controller_port"]) if state else None

    def _choose_ports(self) -> tuple[int, int]:
        known = self._known_ports()
        if known is not None and all(map(is_free, known)):
            return known
        first = find_free_port()
        return first, find_free_port(other_than=first)

    def _write_settings(self, ports: tuple[int, int]) -> None:
        port, controller_port = ports
        settings: dict[str, str | int | bool] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": "data",  # relative to its working directory: a comma in an absolute path would split it
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            # By default 50 each, and the first transaction waits for all of them
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": False,
            **self.config,
        }
        lines = [f"{name}={_escaped(value)}" for name, value in settings.items()]
        self._settings_file.write_text("\n".join(lines) + "\n")
        (self.directory / "log4j2.xml").write_text(_LOGGING)

    def _format(self, java: list[str]) -> None:
        """Give the data directory its cluster id, once, which the broker requires."""
        if self._cluster() is not None:
            return
        # An id must not begin with a hyphen: it would be read as an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        tool = [*java, *self._options("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        with self.log_file.open("ab") as log:
            start = log.tell()
            done = subprocess.run(
                [*tool, "-t", cluster, "-c", str(self._settings_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                check=False,
            )
        if done.returncode != 0:
            raise self._start_error(self._read_log_since(start))

    def _cluster(self) -> str | None:
        try:
            found = re.search(r"^cluster\.id=(\S+)$", (self.data / "meta.properties").read_text(), re.MULTILINE)
        except OSError:
            return None
        return found.group(1) if found else None

    def _run(self, java: list[str], ports: tuple[int, int]) -> str | None:
        """Start the broker and wait for its answer. → its output where it does not start, else None"""
        with self.log_file.open("ab") as log:
            start = log.tell()
            self._process = process = subprocess.Popen(
                [*java, *self._options("-Xmx512m"), "kafka.Kafka", str(self._settings_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # a Ctrl-C in the terminal must not reach the broker
            )
        state = {"pid": process.pid, "port": ports[0], "controller_port": ports[1]}
        self._state_file.write_text(json.dumps(state))
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCHER, "sh", str(process.pid), self._call],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            # Another program, even another broker, may answer at the port.
            if read_cluster_id(ports[0]) == self._cluster():
                return None
            time.sleep(0.1)
        late = process.poll() is None
        self.kill()
        return f"no answer within {START_SECONDS} seconds" if late else self._read_log_since(start)

    def _options(self, own: str) -> list[str]:
        return [own, f"-Dlog4j2.configurationFile={(self.directory / 'log4j2.xml').as_uri()}", *self.java_options]

    def _read_log_since(self, start: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _start_error(self, output: str) -> ConfigError:
        reasons = _REASON.findall(output)
        reason = reasons[0] if reasons else (output.strip().splitlines() or ["it ended without output"])[-1]
        hint = f"its log is {self.log_file}"
        if "NoClassDefFoundError" in output or "ClassNotFoundException" in output:
            hint = f"delete {jar_folder()}, then the next start fetches the jars again; {hint}"
        return ConfigError(f"the embedded Kafka did not start: {reason[:500]}", hint=hint)

    def _wait_until_ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _end_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.kill()  # before its input ends
            watcher.communicate()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # not Linux, or gone
        with contextlib.suppress(OSError):
            asked = ["ps", "-o", "command=", "-p", str(pid)]
            return subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        return ""


def _escaped(value: str | int | bool) -> str:
    """Escaped for a Java properties file, which has the escapes of JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(str(value))[1:-1]
