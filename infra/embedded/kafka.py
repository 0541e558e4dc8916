"""A real Kafka broker in a folder, for the demo, the tests and a laptop. Never for production.

One node that is broker and controller at once (KRaft), run from its published jars by the Java that Spark needs anyway:
no Docker, no installation. It listens on 127.0.0.1 alone, without passwords.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from cdf.errors import ConfigError
from infra.embedded.kafka_jars import KAFKA_VERSION, jar_folder, kafka_jars
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

# Its input ends with us, also where we are killed. The process id may be somebody else's by then: so it has to be ours by
# its command line. ``detach`` ends it before its input.
_WATCHER = """
read -r _
ours() { { tr '\\0' ' ' < "/proc/$1/cmdline" || ps -o command= -p "$1"; } 2> /dev/null | grep -qF -- "$2"; }
ours "$@" && kill "$1"
sleep 30
ours "$@" && kill -9 "$1"
"""


class EmbeddedKafka:
    """One broker with its data in ``directory``; only this machine can reach it.

    ``config`` holds settings of server.properties and is written anew at every start. Topics have to be made before they
    are written to. The first start on a machine fetches the jars. ``java_options`` go to the broker's Java, after ours.
    Not for two processes at a time.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Known from the first start on, and then the same for as long as this object lives, also across a restart."""
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
        """The version of the broker, without fetching or starting any."""
        return KAFKA_VERSION

    def start(self) -> None:
        """Makes the data directory when there is none, starts the broker and waits until it answers."""
        if self._process is not None and self.running():
            return
        jars = kafka_jars()
        java = [str(require_java().program), "-cp", str(jars[0].parent / "*")]
        self.data.mkdir(parents=True, exist_ok=True)
        self.data.chmod(0o700)
        if self.running():
            # Left over from a process that was killed: its settings may be others than ours.
            self.stop()
        atexit.register(self.close)
        for last in [False] * (_TRIES - 1) + [True]:
            ports = self._ports or self._usable_ports()
            self._write_settings(ports)
            self._format(java)
            problem = self._run(java, ports)
            if problem is None:
                self._ports = ports
                return
            # Between our look at a port and the broker's somebody else can take it. Once we have named an address it stays.
            if last or self._ports is not None or _TAKEN not in problem:
                raise self._not_started(problem)

    def detach(self) -> None:
        """From here on the broker outlives this process. Another object for the same directory can stop it."""
        atexit.unregister(self.close)
        self._end_watcher()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the broker; ``immediate`` is a crash that the next start recovers from. Safe when it does not run."""
        if self.running():
            pid = self._pid()
            _signal(pid, signal.SIGTERM if mode == "fast" else signal.SIGKILL)
            if not self._ended(STOP_SECONDS):
                _signal(pid, signal.SIGKILL)
                self._ended(STOP_SECONDS)
        if self._process is not None:
            self._process.wait()
            self._process = None
        self._end_watcher()

    def kill(self) -> None:
        """SIGKILL: the broker has no time to put anything in order. The next start takes some seconds longer."""
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
        """Stops the broker and keeps the data. Safe to call twice."""
        atexit.unregister(self.close)
        self.stop()

    @property
    def _settings_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _call(self) -> str:
        """How the command line of our broker ends, and no other's."""
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

    def _usable_ports(self) -> tuple[int, int]:
        known = self._known_ports()
        if known is not None and all(map(_is_free, known)):
            return known
        first = _free_port()
        return first, _free_port(other_than=first)

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
            "log.dirs": "data",  # below the directory it is started in: a comma in an absolute path would make two of it
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            # By default 50 each, of which the first transaction would have to wait for every one
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
        """Gives the data directory the identity that a broker wants to find there, once."""
        if self._cluster() is not None:
            return
        # Kafka's own tool does not hand out ids that begin with a hyphen: they would be taken for an option.
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
            raise self._not_started(self._said_since(start))

    def _cluster(self) -> str | None:
        try:
            found = re.search(r"^cluster\.id=(\S+)$", (self.data / "meta.properties").read_text(), re.MULTILINE)
        except OSError:
            return None
        return found.group(1) if found else None

    def _run(self, java: list[str], ports: tuple[int, int]) -> str | None:
        """Start the broker and wait for its answer. → what it said, where it does not come up"""
        with self.log_file.open("ab") as log:
            start = log.tell()
            self._process = process = subprocess.Popen(
                [*java, *self._options("-Xmx512m"), "kafka.Kafka", str(self._settings_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # a Ctrl-C in the terminal is for us, not for the broker
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
            # The port may be somebody else's, another broker's even.
            if _cluster_at(ports[0]) == self._cluster():
                return None
            time.sleep(0.1)
        late = process.poll() is None
        self.kill()
        return f"no answer within {START_SECONDS} seconds" if late else self._said_since(start)

    def _options(self, own: str) -> list[str]:
        return [own, f"-Dlog4j2.configurationFile={(self.directory / 'log4j2.xml').as_uri()}", *self.java_options]

    def _said_since(self, start: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _not_started(self, said: str) -> ConfigError:
        reasons = _REASON.findall(said)
        reason = reasons[0] if reasons else (said.strip().splitlines() or ["it ended without a word"])[-1]
        hint = f"its log is {self.log_file}"
        if "NoClassDefFoundError" in said or "ClassNotFoundException" in said:
            hint = f"delete {jar_folder()}, and the next start fetches its jars anew; {hint}"
        return ConfigError(f"the embedded Kafka did not start: {reason[:500]}", hint=hint)

    def _ended(self, seconds: float) -> bool:
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
    """As a Java properties file has it, whose escapes are those of JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(str(value))[1:-1]


def _free_port(*, other_than: int = 0) -> int:
    """Below the ports that systems give to outgoing connections (from 32768 or 49152): while the broker is down none of
    them may sit on its port. A client that tries and tries even connects to itself there."""
    for _ in range(100):
        port = random.randrange(20000, 32768)
        if port != other_than and _is_free(port):
            return port
    raise ConfigError("no free port between 20000 and 32767", hint="look what listens there: ss -ltn")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Java does: a port with nothing but ended connections on it is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _cluster_at(port: int) -> str | None:
    """The id of the cluster that answers at the port with a broker ready to work; None: nobody does (yet)."""
    # Kafka's Metadata request, version 2, about no topic: length, key, version, correlation, no client id, no topics
    request = struct.pack(">ihhihi", 14, 3, 2, 0, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                (length,) = struct.unpack(">i", answer.read(4))
                # Who answers with another length speaks something else
                return _read_cluster(answer.read(length)) if 0 < length < 10_000 else None
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def _read_cluster(answer: bytes) -> str | None:
    def text(at: int) -> tuple[str | None, int]:
        (length,) = struct.unpack_from(">h", answer, at)
        end = at + 2 + max(length, 0)
        return (answer[at + 2 : end].decode() if length >= 0 else None), end

    _, brokers = struct.unpack_from(">ii", answer)
    at = 8
    for _ in range(brokers):
        _, at = text(at + 4)  # after its id the host
        _, at = text(at + 4)  # after the port the rack
    cluster, _ = text(at)
    return cluster if brokers else None
