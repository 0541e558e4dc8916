"""Which tests a commit runs: a share by each test's own id, and every test of a changed file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fixtures import fix_order
from tests.fixtures.fix_spread import SHARES, changed_files, runs, slow_files

SLOW = frozenset(f"tests/acceptance/test_{at}.py" for at in range(40))


def test_files_with_one_slow_test_each_are_spread_over_the_shares() -> None:
    """They all fell into one share once, and three commits of four killed no process."""
    tests = [f"{file}::test_survives_a_kill" for file in SLOW]
    counts = [sum(runs(one, share=share, slow=SLOW, changed=()) for one in tests) for share in range(SHARES)]
    assert sum(counts) == len(tests)
    assert min(counts) >= len(tests) // SHARES // 2


def test_each_slow_test_is_in_exactly_one_share() -> None:
    for test in (f"tests/acceptance/test_1.py::test_b[{at}]" for at in range(50)):
        assert sum(runs(test, share=share, slow=SLOW, changed=()) for share in range(SHARES)) == 1


def test_a_changed_file_runs_whole_in_every_share() -> None:
    file = "tests/acceptance/test_1.py"
    for test in (f"{file}::test_b[{at}]" for at in range(50)):
        assert all(runs(test, share=share, slow=SLOW, changed={file}) for share in range(SHARES))


def test_all_other_files_always_run() -> None:
    for test in (f"tests/integration/test_a.py::test_b[{at}]" for at in range(50)):
        assert all(runs(test, share=share, slow=SLOW, changed=()) for share in range(SHARES))


def test_slow_are_files_of_more_than_a_minute_but_for_what_others_rest_on() -> None:
    assert slow_files({"a.py": 60, "b.py": 61, "tests/acceptance/test_resident.py": 120}) == {"b.py"}
    assert not [file for file in slow_files(fix_order.read()) if file.startswith(fix_order.FIRST)]


def test_changed_are_the_last_commits_files_and_those_not_committed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=tmp_path, check=True)

    git("init", "--quiet")
    for name in ("first", "second", "third"):
        (tmp_path / name).touch()
        git("add", name)
        if name == "first":
            git("commit", "--quiet", "--message", name)
            assert changed_files(tmp_path) is None  # no parent to compare with, as in a shallow clone
        elif name == "second":
            git("commit", "--quiet", "--message", name)
    (tmp_path / "fourth").touch()
    assert changed_files(tmp_path) == {"second", "third", "fourth"}
