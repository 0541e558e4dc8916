"""The frame of the tests themselves: their order, their seeds, their kinds, the report, and the soak's deadline."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures import fix_order, fix_report
from tests.fixtures.fix_report import JVM, Ran, kind_of, lines, reason_of
from tests.fixtures.fix_seed import SOAK_VARIABLE, UNTIL_VARIABLE, examples, seed_of
from tests.fixtures.fix_spark import cannot_run
from tests.soak.__main__ import exit_code, soak

ROOT = Path(__file__).parents[2]
FILES = {
    "tests/unit/test_a.py": 9,
    "tests/integration/test_b.py": 5,
    "tests/acceptance/test_kill.py": 10,
    "tests/x/new.py": 1,
}
DURATIONS = {"tests/unit/test_a.py": 2.0, "tests/integration/test_b.py": 100.0, "tests/acceptance/test_kill.py": 400.0}


def ordered(shuffled_by: int | None = None) -> list[str]:
    order = fix_order.ranks(FILES, DURATIONS, shuffled_by=shuffled_by)
    return sorted(FILES, key=lambda file: order[file])


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_unit_tests_come_first_and_then_the_longest_piece() -> None:
    """The tests of ``test_kill`` are given out one by one, so that 40 s is what it may delay the end by."""
    names = ["unit/test_a.py", "integration/test_b.py", "x/new.py", "acceptance/test_kill.py"]
    assert ordered() == [f"tests/{name}" for name in names]


def test_a_seed_shuffles_the_files_and_repeats_its_order() -> None:
    assert ordered(1) == ordered(1)
    assert len({tuple(ordered(seed)) for seed in range(40)}) > 5


def test_tests_of_a_file_stay_together_except_where_they_share_nothing() -> None:
    assert fix_order.unit_of("tests/unit/test_a.py::test_b[1]") == "tests/unit/test_a.py"
    assert fix_order.unit_of("tests/acceptance/test_kill.py::test_b[x]") == "tests/acceptance/test_kill.py::test_b[x]"
    assert [file for file in fix_order.ONE_BY_ONE if not (ROOT / file).is_file()] == []


def test_new_figures_replace_those_of_their_files_and_lost_files_go(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    found = fix_order.recorded({"b.py": 3, "gone.py": 9}, {"a.py": 1.6}, root=tmp_path)
    assert list(found.items()) == [("a.py", 2), ("b.py", 3)]


# ── seeds and the soak ───────────────────────────────────────────────────────────────────────────────────────────────


def test_each_test_draws_its_own_and_the_same_again(seed: int, request: pytest.FixtureRequest) -> None:
    assert seed == seed_of(request.node.nodeid)
    assert seed_of("a", 1) == seed_of("a", 1)
    assert len({seed_of(test, run) for test in "abc" for run in range(3)}) == 9


def test_a_commit_tries_few_examples_and_the_soak_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, expected in (("", 50), ("rounds", 200), ("full", 3_000)):
        monkeypatch.setattr("tests.fixtures.fix_seed.SOAK", mode)
        assert examples(50, full=3_000) == expected


def rounds(
    minutes: float | None, codes: list[int], *, seconds: float = 25.0
) -> tuple[dict[int, int], list[dict[str, str]]]:
    """Of a soak whose rounds take that long, and end so."""
    now, given = 1_000.0, list[dict[str, str]]()

    def run(variables: dict[str, str]) -> int:
        nonlocal now
        now += seconds
        given.append(variables)
        return codes[min(len(given), len(codes)) - 1]

    return soak(7, minutes, run, clock=lambda: now), given


def test_a_soak_goes_on_with_new_seeds_until_its_minutes_are_over() -> None:
    codes, given = rounds(1, [0, 1, 0])
    assert codes == {7: 0, 8: 1, 9: 0}, "a failure does not end it"
    assert {one[UNTIL_VARIABLE] for one in given} == {"1060.0"}
    assert {one[SOAK_VARIABLE] for one in given} == {"rounds"}


def test_without_minutes_it_goes_once_through_everything_at_full_length() -> None:
    codes, given = rounds(None, [0])
    assert codes == {7: 0}
    assert given[0][SOAK_VARIABLE] == "full"
    assert UNTIL_VARIABLE not in given[0]


@pytest.mark.parametrize("code", [2, 5])
def test_an_interrupt_or_an_empty_choice_ends_it(code: int) -> None:
    assert rounds(60, [code])[0] == {7: code}


def test_a_round_that_was_killed_is_no_good_one() -> None:
    assert [exit_code(code) for code in (0, 1, -9)] == [0, 1, 137]
    assert rounds(60, [0, exit_code(-9)])[0] == {7: 0, 8: 137}


INNER = """
import random, os
import pytest
from hypothesis import given, settings, strategies as st
from tests.fixtures.fix_seed import examples

def test_not_random(): ...

def test_random(seed):
    print("drawn", seed)
    assert os.environ.get("FINE")

@settings(max_examples=examples(3))
@given(st.integers())
def test_hypothesis(drawn): ...

@pytest.mark.soak
def test_soak(): ...
"""


def inner(folder: Path, text: str, *words: str, **variables: str) -> str:
    """What pytest says in a process of its own about tests of such a file, with the plugins of the suite's frame."""
    (folder / "test_inner.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = soak: s\n")
    names = ("seed", "order", "report")
    plugins = [word for name in names for word in ("-p", f"tests.fixtures.fix_{name}")]
    kept = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder), **variables}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        *plugins,
        *words,
        f"--basetemp={folder}/t",
        "test_inner.py",
    ]
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> str:
    return inner(tmp_path_factory.mktemp("inner"), INNER, DELTARELAY_TEST_SEED="41")


def test_a_failure_says_how_to_repeat_it(failing: str) -> None:
    assert "seed: 41 (DELTARELAY_TEST_SEED=41 repeats" in failing
    assert f"drawn {seed_of('test_inner.py::test_random', 41)}" in failing
    assert "DELTARELAY_TEST_SEED=41 .venv/bin/python -m pytest 'test_inner.py::test_random'" in failing
    assert "1 failed, 3 passed" in failing


@pytest.mark.parametrize(("until", "ends"), [("9e9", "3 passed, 1 deselected"), ("1", "1 deselected, 3 not started")])
def test_the_soak_takes_what_is_random_and_starts_nothing_after_its_deadline(
    tmp_path: Path, until: str, ends: str
) -> None:
    said = inner(tmp_path, INNER, **{SOAK_VARIABLE: "rounds", UNTIL_VARIABLE: until, "FINE": "1"})
    assert ends in said, said


# ── kinds and the report ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fixtures", "own_jvm", "kind"),
    [
        ((), False, "pure"),
        (("tmp_path", "seed"), False, "pure"),
        (("pg", "postgres_dsn"), False, "service"),
        (("kafka_bootstrap",), False, "service"),
        (("spark", "pg", "postgres_dsn"), False, "Spark"),
        (("project", "jars", "spark", "postgres_dsn"), False, "process"),
        (("here", "project", "jars", "spark"), False, "Spark"),
        (("tmp_path",), True, "process"),
    ],
)
def test_the_kind_follows_from_the_fixtures(fixtures: tuple[str, ...], own_jvm: bool, kind: str) -> None:
    assert kind_of(fixtures, own_jvm=own_jvm) == kind


def test_reasons_are_found_by_file_by_test_and_by_pattern() -> None:
    listed = {"tests/a.py": "why a", "tests/b.py::test_one": "why one", "tests/b.py::test_two*": "why two"}
    found = [
        reason_of(f"tests/{test}", listed) for test in ("a.py::x", "b.py::test_one", "b.py::test_two[3]", "b.py::c")
    ]
    assert found == ["why a", "why one", "why two", None]


def test_every_reason_is_of_a_test_that_exists() -> None:
    for pattern in fix_report._listed():
        file, _, test = pattern.partition("::")
        assert (ROOT / file).is_file(), pattern
        assert test.partition("[")[0].rstrip("*") in (ROOT / file).read_text(), pattern


def test_the_report_counts_by_kind_and_names_what_is_over_its_budget() -> None:
    tests = {f"tests/u.py::test_{at}": Ran("pure", 0.001) for at in range(1_000)}
    tests |= {f"tests/s.py::test_{at}": Ran("Spark", 2.0 + at / 10) for at in range(30)}
    tests["tests/u.py::test_slow"] = Ran("pure", 0.4)
    tests["tests/a.py::test_b"] = Ran("process", 50.0, Counter({JVM: 3}), "a real kill")
    tests["tests/a.py::test_c"] = Ran("process", 1.0, Counter({JVM: 1}))
    told = list(lines(tests, 31.0, {JVM: 2, "PostgreSQL": 1}))
    assert told[1] == "pure        1,001         1     1 of more than 0.05 s"
    assert any(line.startswith("shared") and "31" in line for line in told)
    assert "started: 6 JVM (2 shared), 1 PostgreSQL (1 shared)" in told
    assert "    3 own JVMs, a.py: a real kill" in told
    at = told.index("    1 own JVMs WITHOUT A REASON (tests/jvm_starts.toml):")
    assert told[at + 1].split() == ["1", "a.py::test_c"]
    slowest = told.index("slowest, in seconds:")
    assert told[slowest + 1].split() == ["50.00", "a.py::test_b", "(process)"]
    assert any(line.split()[:2] == ["8.0", "u.py::test_slow"] for line in told), "eight times its budget, if not slow"
    assert len(told) < 50


STARTS = """
from infra.embedded.postgres import EmbeddedPostgres

class Fake(EmbeddedPostgres):
    def __init__(self): ...

def test_pure():
    try:
        Fake().start()
    except AttributeError: ...  # it has no folder

def test_other(): ...
"""


def test_where_it_may_a_test_is_of_the_kind_of_what_it_starts(tmp_path: Path) -> None:
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    (tmp_path / "tests" / "integration" / "test_own.py").write_text(STARTS)
    said = inner(tmp_path, STARTS, "tests", "--deselect", "test_inner.py::test_pure")
    assert "3 passed, 1 deselected" in said, said
    assert "service         1 " in said, said


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "by workers"])
def test_a_pure_test_that_starts_a_server_fails(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = inner(tmp_path, STARTS, *words)
    assert "a pure test started PostgreSQL" in said, said
    assert "1 failed, 1 passed" in said
    assert "started: 1 PostgreSQL (0 shared)" in said


def test_durations_are_recorded_where_it_was_asked_for(tmp_path: Path) -> None:
    """By the workers' reports, as in ``make durations``."""
    into = tmp_path / "durations.json"
    text = (
        f"from tests.fixtures import fix_order\nfrom pathlib import Path\nfix_order.DURATIONS = Path({str(into)!r})\n"
    )
    (tmp_path / "conftest.py").write_text(text)
    inner(tmp_path, "import time\ndef test_a(): time.sleep(0.6)\n", "-n", "1")
    assert not into.exists()
    inner(tmp_path, "import time\ndef test_a(): time.sleep(0.6)\n", "-n", "1", DELTARELAY_RECORD_DURATIONS="1")
    assert json.loads(into.read_text()) == {"test_inner.py": 1}


# ── what cannot run ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_cannot_run_fails_in_ci_and_is_skipped_elsewhere(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no pgbouncer here"):
        cannot_run("no pgbouncer here")
