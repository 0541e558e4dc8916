"""A plan is what the register has: a file names its run, and nothing in it is believed."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

from audit.erasure.find.plan import digest_of
from audit.erasure.find.plan_file import check_plan, check_tables, read_plan
from audit.erasure.register.records import Run
from cdf.errors import ConfigError

PLAN: dict[str, Any] = {"run": "er-1", "requests": ["R-1", "R-2"], "sinks": [{"pipeline": "crm"}], "problems": []}


def test_tables_that_are_other_ones_since() -> None:
    plan = {"tables": [{"table": "/a"}, {"table": "/b"}]}
    check_tables(plan, ["/b", "/a"])
    for tables, other in ((["/a"], "/b"), (["/a", "/b", "/c"], "/c")):
        with pytest.raises(ConfigError, match=f"since the plan was made: {other}$"):
            check_tables(plan, tables)


def run(*requests: str, plan: dict[str, Any] = PLAN) -> Run:
    return Run("er-1", digest_of(plan), dt.datetime(2026, 11, 1, tzinfo=dt.UTC), None, requests)


def test_the_plan_as_it_was_made() -> None:
    check_plan(run("R-1", "R-2"), PLAN, None)
    check_plan(run("R-2", "R-1"), PLAN, {**PLAN})


@pytest.mark.parametrize(
    ("stored", "given", "requests", "said"),
    [
        (PLAN, {**PLAN, "sinks": []}, ("R-1", "R-2"), "the file is not the plan of run er-1"),
        (PLAN, {**PLAN, "requests": ["R-1"]}, ("R-1", "R-2"), "the file is not the plan of run er-1"),
        (PLAN, {**PLAN, "problems": ["x"]}, ("R-1", "R-2"), "the file is not the plan of run er-1"),
        ({**PLAN, "sinks": []}, None, ("R-1", "R-2"), "in the register was altered"),
        (PLAN, None, ("R-1",), "no longer has the requests of its plan: R-2$"),
        (PLAN, None, ("R-1", "R-2", "R-3"), "no longer has the requests of its plan: R-3$"),
    ],
)
def test_any_other(stored: dict[str, Any], given: dict[str, Any] | None, requests: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_plan(run(*requests), stored, given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "is not a plan"),
        ('{"digest": "x", "run": 1.5}', "is not a plan"),
        ('{"digest": "x", "run": NaN}', "is not a plan"),
        ('{"digest": "x", "run": 9007199254740993}', "is not a plan"),
        ('{"digest": "x", "run": "\\ud800"}', "is not a plan"),
        ('{"run": "er-1"}', "is not a plan"),
        ("[]", "is not a plan"),
        ('{"digest": 1, "run": "er-1"}', "was changed"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "plan.json"
    if text is None:
        os.mkfifo(file)
    else:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_plan(file)
