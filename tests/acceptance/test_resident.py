"""Programs as forks of the resident process (``tests/fixtures/resident.py``) do what new processes do, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.commands import REPOSITORY, wait_for
from tests.fixtures.resident import Process, Resident

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
