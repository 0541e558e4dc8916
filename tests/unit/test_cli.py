"""The command line as a whole: help texts, shared options, and a former name; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from infra.cli.main import app, main
from infra.cli.options import Json, expand_options


def commands(group: Any, name: str = "deltarelay") -> Iterator[tuple[str, Any]]:
    yield name, group
    for word, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {word}")


@pytest.mark.parametrize(("name", "command"), list(commands(get_command(app))), ids=lambda value: str(value))
def test_every_command_and_option_has_a_help_text(name: str, command: Any) -> None:
    assert command.help, name
    assert command.help[0].isupper(), name
    for option in command.params:
        if option.name not in ("help", "install_completion", "show_completion"):
            assert option.help, f"{name} {option.name}"


def test_a_former_name_is_hidden_and_names_the_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "seal", "--config", str(tmp_path / "missing.yaml"), "--json"])
    printed = capsys.readouterr()
    assert "`audit encrypt`" in printed.err
    assert "until 1.0" in printed.err
    assert json.loads(printed.out)["command"] == "audit seal"
    shown = CliRunner().invoke(app, ["audit", "--help"]).output
    assert "encrypt" in shown
    assert " seal " not in shown


@dataclass(frozen=True, slots=True)
class Shared:
    name: Annotated[str, typer.Option("--name", help="A name.")]
    as_json: Json = False


def test_shared_options_are_options_of_the_command() -> None:
    command = typer.Typer()
    received: list[tuple[int, Shared]] = []

    @command.command()
    @expand_options
    def greet(number: int, shared: Shared) -> None:
        """Greet."""
        received.append((number, shared))

    assert CliRunner().invoke(command, ["7", "--name", "Ada", "--json"]).exit_code == 0
    assert CliRunner().invoke(command, ["7"]).exit_code == 2, "--name is required"
    assert received == [(7, Shared("Ada", True))]
