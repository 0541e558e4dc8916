"""Every mutant still fits the code: moved code takes its mutants along, and tests that were renamed are named anew."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.model import AnchorNotFound, Mutant, load, mutate, mutated_scope

ROOT = Path(__file__).parents[2]
MUTANTS = load()
SMALL = """
class One:
    def run(self):
        return 1

def run():
    return 1
"""


def _mutant(**fields: str) -> Mutant:
    given = {"name": "x", "file": "x.py", "scope": "run", "old": "return 1", "new": "return 2", **fields}
    return Mutant(**given, tests=("tests/unit/test_mutants.py",), why="", listed_in="x.toml")


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def _functions(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"^\s*(?:def|class) (\w+)", _text(file), re.MULTILINE))


def test_there_are_mutants_of_every_package() -> None:
    count = Counter(mutant.file.split("/")[0] for mutant in MUTANTS)
    assert set(count) == {"cdf", "connectors", "audit", "infra"}
    assert len(MUTANTS) >= 80


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_they_fit_the_code(file: str) -> None:
    for mutant in (one for one in MUTANTS if one.file == file):
        changed = mutated_scope(_text(file), mutant)
        assert mutant.old != mutant.new, mutant.name
        ast.parse(f"if True:\n{changed}" if changed[:1] == " " else changed)  # an indented one is a method


def test_their_tests_are_there() -> None:
    for mutant in MUTANTS:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, *names = test.split("[")[0].split("::")
            assert (ROOT / file).is_file(), f"{mutant.name}: {test}"
            assert set(names) <= _functions(file), f"{mutant.name}: {test}"


def test_a_fault_is_put_into_the_function_that_is_named() -> None:
    assert mutate(SMALL, _mutant()) == SMALL.replace("def run():\n    return 1", "def run():\n    return 2")
    assert mutate(SMALL, _mutant(scope="One.run")) == SMALL.replace("    return 1\n\ndef", "    return 2\n\ndef")


@pytest.mark.parametrize("fields", [{"scope": ""}, {"old": "return 3"}, {"scope": "Two.run"}], ids=str)
def test_an_anchor_that_is_not_there_once_is_an_error(fields: dict[str, str]) -> None:
    with pytest.raises(AnchorNotFound):
        mutate(SMALL, _mutant(**fields))
