"""The runbook has a section for each kind of incident, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from infra.monitoring.health import IncidentKind
from tests.unit.test_deploy import code_of, parse, typed_commands

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
RUNBOOK = (DOCS / "runbook.md").read_text()
KINDS = get_args(IncidentKind)


def test_each_kind_of_incident_has_a_section() -> None:
    headings = re.findall(r"^## ([a-z ]+?)(?: \{ #([a-z-]+) \})?$", RUNBOOK, re.MULTILINE)
    assert [anchor or title for title, anchor in headings] == [kind.replace("_", "-") for kind in KINDS]
    assert [title.replace(" ", "_") for title, _ in headings] == list(KINDS)
    for section in RUNBOOK.split("\n## ")[1:]:
        assert all(f"**{part}.**" in section for part in ("Meaning", "Look", "Fix")), section[:30]


@pytest.mark.parametrize("page", ["runbook", "back-up-and-restore", "plan-capacity"])
def test_the_commands_of_the_page_exist(page: str) -> None:
    commands = list(typed_commands(code_of((DOCS / f"{page}.md").read_text())))
    assert commands
    for words in commands:
        parse(words)
