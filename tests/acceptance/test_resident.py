"""Commands as forks of the resident process (``tests/fixtures/resident.py``) do what new processes do, seen from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import REPOSITORY, Database, Project, Running, change, create_source, pipeline, wait_for
from tests.fixtures.resident import Process, Resident

TARGET = "public.customers"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2"
_DIFFERS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?", "TIME"),
    (r"\d\d:\d\d:\d\d", "TIME"),
    (r"\d+\.\d+", "SECONDS"),
    (r"\d+ +SECONDS", "SECONDS"),  # in a table: a lag in whole seconds
    (r"spark-\d+\.log", "spark-PID.log"),
)

Seen = tuple[tuple[str, ...], int, str, str]


def alike(text: str) -> str:
    for pattern, name in _DIFFERS:
        text = re.sub(pattern, name, text)
    return text


# ── commands, with Spark and without ─────────────────────────────────────────────────────────────────────────────────


class Story:
    """Commands of every kind of exit, one after the other; the second telling begins where the first began."""

    def __init__(self, project: Project, database: Database) -> None:
        self.project, self.database = project, database
        self.seen: list[Seen] = []

    def run(self, *words: str, environment: Mapping[str, str | None] | None = None) -> None:
        self._ended(self.project.start(*words, environment=environment))

    def interrupted(self, *words: str, when: Callable[[Running], object], number: int = signal.SIGINT) -> None:
        running = self.project.start(*words)
        running.until(lambda: when(running), "the moment of the signal")
        os.killpg(running.process.pid, number)
        self._ended(running)

    def _ended(self, running: Running) -> None:
        done = running.done()
        self.seen.append((running.words, done.code, alike(done.out), alike(done.err)))

    def tell(self) -> None:
        self.run("--version")
        self.run("nope")
        self.run("validate")
        self.run("validate", "--config", "absent.yaml", "--json")
        self.run("run", "--until", "2")
        self.run("run", "--json")  # fails at version 3
        self.run("status", "--json")
        self.run("runs", "--json", environment={"WAREHOUSE_DSN": NOWHERE})
        self.database.query(f"update {TARGET} set name = 'changed by hand' where id = 1")
        self.run("verify", "--json", "--debug")
        with self.database.locked(TARGET):
            self.interrupted("verify", when=lambda _: self.database.waiting(TARGET))
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.interrupted(
                "status",
                "--watch",
                "--interval-seconds",
                "0.2",
                when=lambda running: running._out.read_text().count("customers") >= 1,
                number=number,
            )

    def left(self) -> list[str]:
        folder = self.project.folder
        return sorted({alike(str(file.relative_to(folder))) for file in folder.rglob("*")})


@pytest.mark.timeout(600)
def test_a_command_is_what_it_is_as_a_new_process(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        "insert into {t} select id, concat('n', id), id from range(5)",
        "update {t} set amount = 7.5 where id < 2",
        "update {t} set name = concat('n', char(0)) where id = 3",
    )
    folder, told, left = project.folder, [], []
    for own_jvm in ("to compare with", None):
        database.query("drop schema if exists deltarelay cascade")
        database.query(f"drop table if exists {TARGET}")
        project.own_jvm = own_jvm
        project.write({"customers": pipeline(delta_path, start=1, window={"max_commits": 1})})
        story = Story(project, database)
        story.tell()
        database.no_backends()
        told.append(story.seen)
        left.append(story.left())
        folder.rename(folder.with_name(f"told-{len(told)}"))
        folder.mkdir()
        project.started.clear()
    real, forked = told
    assert {code for _, code, _, _ in real} >= {0, 1, 2, 3, 75, 130, -signal.SIGKILL}
    for one, other in zip(real, forked, strict=True):
        assert one == other
    assert left[0] == left[1]


WITH_SPARK = """
import sys, time
from pathlib import Path
from infra.spark.session_builder import session

mark = sys.argv[1]
spark = session(master="local[1]", conf={f"spark.test.{mark}": "yes"})
spark.range(1).createOrReplaceTempView(f"view_{mark}")
spark.range(int(mark)).coalesce(1).write.format("delta").save("table")
assert spark.read.format("delta").load("table").count() == int(mark)
others = [name for name, _ in spark.sparkContext.getConf().getAll() if name.startswith("spark.test.")]
views = [one.name for one in spark.catalog.listTables()]
print(spark._jvm.java.lang.ProcessHandle.current().pid(), others, views, flush=True)
while "wait" in sys.argv and not Path("go").exists():
    time.sleep(0.05)
"""


class WithSpark:
    """A program with a session, in a folder of its own."""

    def __init__(self, resident: Resident, folder: Path, jars: str, mark: int, *words: str) -> None:
        self.mark, self.folder = mark, folder / str(mark)
        self.folder.mkdir()
        environment = {**os.environ, "DELTARELAY_JARS": jars, "TMPDIR": str(self.folder)}
        self.out = self.folder / "out"
        with self.out.open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = resident.start(
                "-c",
                WITH_SPARK,
                str(mark),
                *words,
                folder=self.folder,
                environment=environment,
                stdout=out,
                stderr=err,
            )

    def jvm(self) -> int:
        """The process id of its JVM, and what it saw there was its own."""
        wait_for(lambda: self.out.read_text().endswith("\n") or self.process.poll(), "it to say its JVM")
        pid, _, saw = self.out.read_text().partition(" ")
        assert saw == f"['spark.test.{self.mark}'] ['view_{self.mark}']\n", (self.folder / "err").read_text()
        assert (self.folder / "table" / "_delta_log").is_dir()
        return int(pid)

    def go(self) -> int:
        (self.folder / "go").touch()
        return self.process.wait(60)


def test_a_jvm_is_lent_to_one_program_at_a_time_and_ends_with_a_killed_one(
    resident: Resident, tmp_path: Path, jars: str
) -> None:
    first = WithSpark(resident, tmp_path, jars, 1, "wait")
    lent = first.jvm()
    beside = WithSpark(resident, tmp_path, jars, 2)
    other = beside.jvm()
    assert beside.process.wait(60) == 0
    assert other != lent
    assert first.go() == 0
    after = WithSpark(resident, tmp_path, jars, 3, "wait")
    assert after.jvm() in (lent, other)
    after.process.kill()
    wait_for(lambda: not Path(f"/proc/{after.jvm()}").exists(), "the JVM of a killed program to end", seconds=20)
    last = WithSpark(resident, tmp_path, jars, 4)
    assert last.jvm() in {lent, other} - {after.jvm()}
    assert last.process.wait(60) == 0


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PROGRAMS = (
    "import sys; print(sys.argv, sys.stdin.read()); print('no', file=sys.stderr)",
    "import sys; sys.exit(7)",
    "raise SystemExit('a text')",
    "1 / 0",
    "raise KeyboardInterrupt",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os; print('lost'); os._exit(4)",
    "import atexit; atexit.register(print, 'the end'); print(__name__)",
    "import os; print(os.getcwd(), sorted(os.environ), os.getpid() == os.getsid(0), os.umask(0))",
    "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "import threading; threading.Timer(0.2, print, ['a thread']).start()",
    "import tempfile; print(tempfile.gettempdir())",
    "from signal import *; print([getsignal(one) for one in (SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE)])",
    "import signal; print(signal.pthread_sigmask(0, []))",
    "import subprocess; print(subprocess.run(['sh', '-c', 'exit 3']).returncode)",
)


def of(resident: Resident, program: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    done = resident.run("-c", program, "one", "two words", folder=folder, environment=environment, seconds=60)
    return done.returncode, done.stdout, _last(done.stderr)


def _last(text: str) -> str:
    """Of a trace the error; the frames above it are the interpreter's."""
    return "".join(text.splitlines(keepends=True)[-1:])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_what_it_is_in_a_new_process(resident: Resident, tmp_path: Path, program: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "ONLY_HERE": "yes"}
    done = subprocess.run(
        [sys.executable, "-c", program, "one", "two words"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=False,
    )
    assert of(resident, program, tmp_path, environment) == (done.returncode, done.stdout, _last(done.stderr))


def waiting_program(resident: Resident, folder: Path) -> Process:
    """It has said that it waits; it tells a TERM and goes on."""
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "print('waits', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    with (folder / "out").open("wb") as out:
        process = resident.start("-c", program, folder=folder, environment=os.environ, stdout=out, stderr=out)
    wait_for(lambda: "waits" in (folder / "out").read_text(), "it to wait")
    return process


def test_signals_reach_it_and_a_killed_one_is_told(resident: Resident, tmp_path: Path) -> None:
    process = waiting_program(resident, tmp_path)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.terminate()
    wait_for(lambda: "told" in (tmp_path / "out").read_text(), "the signal to come")
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: "T" in Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2], "it to stop")
    process.send_signal(signal.SIGCONT)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(10) == process.poll() == -signal.SIGKILL
    process.kill()  # nothing any more
    assert not Path(f"/proc/{process.pid}").exists()


SCRIPT = """
deltarelay --version
deltarelay nope 2> /dev/null || echo "exit $?"
echo "print('from stdin')" | python -
python -c 'import sys; print(sys.argv)' 'two words' "quo'ted"
echo 'import sys; print(__file__, sys.argv, sys.path[0] == sys.argv[1])' > program.py
python program.py "$PWD"
python -c 'print("x" * 100000)' | head -c 3; echo
python -c 'import time; print("waits", flush=True); time.sleep(60)' > out & program=$!
until grep -q waits out; do sleep 0.05; done
kill $program; wait $program || echo "exit $?"
python -V > /dev/null && echo options
word=$(python -c 'import os; print(os.environ["WORD"])'); echo "$word"
"""


def test_a_script_finds_the_programs_on_its_path(resident: Resident, tmp_path: Path) -> None:
    said = []
    for number, shims in enumerate((False, True)):
        folder = tmp_path / "project"
        folder.mkdir()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "WORD": "a word"}
        environment = resident.shims(environment) if shims else environment
        done = subprocess.run(
            ["bash", "-c", SCRIPT],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said.append((done.returncode, done.stdout))
        folder.rename(tmp_path / f"{number}")
    assert said[0] == said[1]
    assert "exit 143" in said[0][1]


def test_what_looks_at_the_interpreter_needs_one(resident: Resident, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, pytest.raises(AssertionError, match="PYTHONPATH is set"):
        resident.start(
            "-c", "", folder=tmp_path, environment={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=out, stderr=out
        )
    with (tmp_path / "out").open("wb") as out:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        assert resident.start("-c", "", folder=tmp_path, environment=environment, stdout=out, stderr=out).wait(60) == 0


def test_programs_end_with_the_resident_process(tmp_path: Path) -> None:
    resident = Resident()
    process = waiting_program(resident, tmp_path)
    resident.close()
    wait_for(lambda: not Path(f"/proc/{process.pid}").exists(), "it to end", seconds=20)
