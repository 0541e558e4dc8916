"""The command as a process: its configuration, its database, and what it can be seen to do there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from tests.fixtures import fix_report
from tests.fixtures.resident import Process, Resident

REPOSITORY = Path(__file__).resolve().parents[2]
CANARY = "canary-hunter2-9f1c"
"""The password in every dsn that has none of its own: it must not turn up in any output."""
PATIENCE_SECONDS = 180.0
KILLED = "it is killed, or succeeds one that was, and the JVM of a killed driver has to end by itself"
SIGNALLED = "signals reach its JVM and its workers too"
"""Reasons for a JVM of its own."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def pipeline(self, name: str) -> dict[str, Any]:
        """The entry of one pipeline in a ``--json`` document."""
        return next(one for one in self.document["result"]["pipelines"] if one["pipeline"] == name)


# ── the database ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Database:
    """A database of the test's own, watched through a connection that commits by itself."""

    def __init__(self, dsn: str, password: str) -> None:
        self.dsn = dsn
        self.password = password
        self.connection = psycopg.connect(dsn, autocommit=True, application_name="test")

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, values or None)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, *values: Any) -> Any:
        rows = self.query(statement, *values)
        return rows[0][0] if rows else None

    def exists(self, relation: str) -> bool:
        return bool(self.value("select to_regclass(%s) is not null", relation))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.query(f"select * from {table}"))

    # The position and the epoch, as everybody can see them

    def position(self, target: str = "public.customers") -> int | None:
        return self._kept("version", target)

    def is_copied(self, target: str = "public.customers") -> bool:
        """Whether the initial copy has ended, with the statistics that follow its commit and wait for locks as well."""
        found = self.query(
            "select last_analyze is not null from pg_stat_user_tables where relid = to_regclass(%s)", target
        )
        return found == [(True,)]

    def epoch(self, target: str = "public.customers") -> int:
        return self._kept("epoch", target) or 0

    def _kept(self, column: str, target: str) -> int | None:
        if not self.exists("deltarelay.position"):
            return None
        found: int | None = self.value(f"select {column} from deltarelay.position where target = %s", target)
        return found

    def leftovers(self) -> list[str]:
        """Every table in the schema deltarelay but the positions: staging, and tables that are being loaded."""
        rows = self.query(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = 'deltarelay' and c.relkind = 'r'"
            " and c.relname !~ '^(position(_log)?|progress|runs|schema_version)$' order by 1"
        )
        return [name for (name,) in rows]

    def staging(self, kind: str, epoch: int) -> str | None:
        """The table of that kind (``stage``, ``load``) that the runner of that epoch has made, once it is there."""
        found = [name for name in self.leftovers() if re.fullmatch(f"{kind}_[0-9a-f]+_{epoch}", name)]
        return f"deltarelay.{found[0]}" if found else None

    def waiting(self, table: str, statement: str = "") -> list[int]:
        """The runners' backends that wait for a lock on the table, in a statement that starts so."""
        rows = self.query(
            "select a.pid from pg_stat_activity a join pg_locks l on l.pid = a.pid"
            " where a.datname = current_database() and a.application_name = 'deltarelay' and not l.granted"
            " and a.wait_event_type = 'Lock' and l.relation = to_regclass(%s) and a.query ~* %s",
            table,
            f"^\\s*({statement})",
        )
        return [pid for (pid,) in rows]

    def backends(self) -> list[str]:
        """What the runners' sessions do or did last; empty when nobody is connected."""
        rows = self.query(
            "select query from pg_stat_activity where datname = current_database() and application_name = 'deltarelay'"
        )
        return [text for (text,) in rows]

    def no_backends(self) -> None:
        wait_for(lambda: not self.backends(), "the sessions of a dead runner to end")

    @contextmanager
    def locked(self, table: str, mode: str = "access exclusive") -> Iterator[None]:
        with psycopg.connect(self.dsn, application_name="test lock") as connection:
            statement = sql.SQL("lock table {} in " + mode + " mode")  # type: ignore[operator]
            connection.execute(statement.format(sql.Identifier(*table.split("."))))
            yield
            connection.rollback()


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS) -> T:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.005)
    return found


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Running:
    """A command that has been started, in a process group of its own as a terminal would have it."""

    def __init__(
        self, words: tuple[str, ...], process: subprocess.Popen[bytes] | Process, out: Path, err: Path
    ) -> None:
        self.words, self.process = words, process
        self._out, self._err = out, err

    def until(self, condition: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS) -> T:
        """Wait until the condition holds; fails at once where the command ends before."""

        def holds() -> T:
            ended = self.process.poll() is not None
            found = condition()
            if not found and ended:
                raise AssertionError(f"the command ended before {what}\n{self.describe()}")
            return found

        return wait_for(holds, what, seconds=seconds)

    def done(self, seconds: float = 2 * PATIENCE_SECONDS) -> Done:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:.0f} s\n{self.describe()}") from None
        return Done(code, self._out.read_text(), self._err.read_text())

    def describe(self) -> str:
        return f"{' '.join(self.words)}\n{self._out.read_text()}\n{self._err.read_text()}"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group, in which a lent JVM is not."""
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """What a scheduler sends: to the driver alone."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill -9 the driver, nothing else; its JVM has to notice by itself."""
        assert isinstance(self.process, subprocess.Popen), "needs own_jvm: a lent JVM is not below it"
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        try:
            wait_for(lambda: not alive(below), "the JVM and the workers of a killed driver to end")
        finally:
            for pid in alive(below):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def workers(self) -> list[int]:
        """The Python workers: forked by PySpark's daemon, and named like it."""
        below = descendants(self.process.pid)
        daemons = {pid for pid, (_, command) in below.items() if "pyspark.daemon" in command}
        return [pid for pid in daemons if below[pid][0] in daemons]


def descendants(root: int) -> dict[int, tuple[int, str]]:
    """Everything below a process: pid → (parent, command line)."""
    every = _processes()
    found: dict[int, tuple[int, str]] = {}
    new = {root}
    while new:
        new = {pid for pid, (parent, _) in every.items() if parent in new}
        found |= {pid: every[pid] for pid in new}
    return found


def alive(recorded: Mapping[int, tuple[int, str]]) -> list[int]:
    """Those of the recorded processes that still run: same pid and same command line, so nobody else's."""
    now = _processes()
    return [pid for pid, (_, command) in recorded.items() if command and now.get(pid, (0, ""))[1] == command]


def _processes() -> dict[int, tuple[int, str]]:
    """pid → (parent, command line); the line of a zombie is empty."""
    found = {}
    if Path("/proc/self/stat").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(folder.name)] = (parent, (folder / "cmdline").read_text().replace("\0", " ").strip())
        return found
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent, command = line.split(None, 2)
        found[int(pid)] = (int(parent), "" if command == "<defunct>" else command)
    return found


@dataclass
class Project:
    """A folder with a ``deltarelay.yaml`` in it, and the commands that are run there."""

    folder: Path
    database: Database
    jars: str
    resident: Resident | None
    own_jvm: str | None = None
    """Why its commands are new processes, each with a JVM of its own, and no forks of the resident process."""
    started: list[Running] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "deltarelay.yaml"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **kept,
            "PYTHONPATH": str(REPOSITORY),
            "TMPDIR": str(temporary),
            "DELTARELAY_JARS": self.jars,
            # A JVM that lives for seconds spends half of its time on optimizing itself
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            "WAREHOUSE_DSN": self.database.dsn,
        }

    def write(self, pipelines: Mapping[str, Mapping[str, Any]], *, connections: str = "", rest: str = "") -> None:
        """The configuration. JSON is YAML too, which makes the inner parts easy."""
        lines = ["version: 1", "connections:", "  warehouse: {kind: postgres, dsn: '${WAREHOUSE_DSN}'}", connections]
        lines += ["pipelines:", *(f"  {name}: {json.dumps(one)}" for name, one in pipelines.items()), rest]
        self.config.write_text("\n".join(filter(None, lines)) + "\n")

    def start(
        self, *words: str, environment: Mapping[str, str | None] | None = None, own_jvm: str | None = None
    ) -> Running:
        """``own_jvm``: why this one command needs a new process."""
        number = len(self.started)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        variables = {**self.environment, **(environment or {})}
        kept = {name: value for name, value in variables.items() if value is not None}
        arguments = ("-m", "infra.cli.main", *words)
        reason = own_jvm or self.own_jvm
        process: subprocess.Popen[bytes] | Process
        with out.open("wb") as stdout, err.open("wb") as stderr:
            if reason is not None:
                fix_report.own_jvm(reason)
                process = subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=self.folder,
                    env=kept,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            else:
                assert self.resident is not None
                process = self.resident.start(
                    *arguments, folder=self.folder, environment=kept, stdout=stdout, stderr=stderr
                )
        running = Running(words, process, out, err)
        self.started.append(running)
        return running

    def run(self, *words: str, environment: Mapping[str, str | None] | None = None, own_jvm: str | None = None) -> Done:
        done = self.start(*words, environment=environment, own_jvm=own_jvm).done()
        self.check_secret()
        return done

    def check_secret(self) -> None:
        """The password is in no output and in no log file, nor in what lent JVMs have said."""
        files = [*self.folder.glob("*.out"), *self.folder.glob("*.err"), *(self.folder / "tmp").rglob("*.log")]
        files += self.resident.jvm_logs() if self.resident is not None else []
        assert [file.name for file in files if self.database.password in file.read_text(errors="replace")] == []

    def close(self) -> None:
        for running in self.started:
            if running.process.poll() is None:
                below = descendants(running.process.pid)
                running.process.kill()
                running.process.wait()
                for pid in alive(below):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────


def create_source(
    spark: SparkSession, path: str, columns: str = "id bigint, name string, amount decimal(10,2)"
) -> None:
    """Version 0: an empty table with its feed on."""
    spark.sql(f"create table delta.`{path}` ({columns}) using delta tblproperties (delta.enableChangeDataFeed = true)")


def change(spark: SparkSession, path: str, *statements: str) -> None:
    """One version each. ``{t}`` stands for the table."""
    for statement in statements:
        spark.sql(statement.replace("{t}", f"delta.`{path}`"))


def source_rows(spark: SparkSession, path: str, version: int) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").option("versionAsOf", version).load(path).collect()
    return sorted(tuple(row) for row in rows)


def pipeline(path: str, *, table: str = "public.customers", **settings: Any) -> dict[str, Any]:
    """A pipeline of the configuration file, keyed by ``id``. ``start`` and ``window`` may be given."""
    source: dict[str, Any] = {"table": path, "key": ["id"]}
    if "start" in settings:
        source["start"] = settings.pop("start")
    connection = settings.pop("connection", "warehouse")
    return {"source": source, "sink": {"connection": connection, "table": table}, **settings}
