"""Which tests a commit runs: a share by each test's own id, and every test of a changed file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fixtures.fix_spread import LONG_SHARES, SHARES, changed_files, runs

FILES = [f"tests/acceptance/test_{at}.py" for at in range(40)]


def test_files_with_one_long_test_each_are_spread_over_the_shares() -> None:
    """They all fell into one share once, and three commits of four killed no process."""
    tests = [f"{file}::test_survives_a_kill" for file in FILES]
    counts = [sum(runs(one, long=True, share=share, changed=()) for one in tests) for share in range(LONG_SHARES)]
    assert sum(counts) == len(tests)
    assert min(counts) >= len(tests) // LONG_SHARES // 2


@pytest.mark.parametrize(("long", "shares"), [(True, LONG_SHARES), (False, SHARES)])
def test_each_test_is_in_exactly_one_share(long: bool, shares: int) -> None:
    for test in (f"tests/integration/test_a.py::test_b[{at}]" for at in range(50)):
        assert sum(runs(test, long=long, share=share, changed=()) for share in range(shares)) == 1


def test_a_changed_file_runs_whole_in_every_share() -> None:
    test, changed = "tests/acceptance/test_kill.py::test_killed", frozenset({"tests/acceptance/test_kill.py"})
    assert all(runs(test, long=True, share=share, changed=changed) for share in range(LONG_SHARES))


def test_unit_tests_always_run() -> None:
    assert all(runs("tests/unit/test_a.py::test_b", long=False, share=share, changed=()) for share in range(SHARES))


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
