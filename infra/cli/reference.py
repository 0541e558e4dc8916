"""Generates ``docs/reference/cli.md`` from the commands; ``--check`` only reports whether the file is current."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["build_reference", "main"]

OUTPUT = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def build_reference() -> str:
    from typer.main import get_command

    from infra.cli.main import app

    root: Any = get_command(app)
    lines = ["# Command line", "", "<!-- generated: make references -->", "", root.help, "", root.epilog, ""]
    return "\n".join(lines + _describe_commands("", root, level=2))


def _describe_commands(before: str, group: Any, *, level: int) -> list[str]:
    lines = []
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            lines += [f"{'#' * level} `deltarelay {before}{name}`", "", command.help, ""]
            lines += _describe_commands(f"{before}{name} ", command, level=level + 1)
        else:
            lines += _describe_command(f"{before}{name}", command, level=level)
    return lines


def _describe_command(name: str, command: Any, *, level: int) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    usage = " ".join(["deltarelay", name, *map(_format_placeholder, arguments), "[OPTIONS]"])
    lines = [f"{'#' * level} `{usage}`", "", command.help.strip(), ""]
    rows = [(f"`{argument.name.upper()}`", argument.help or "", "") for argument in arguments]
    for option in options:
        value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
        default = (
            "" if option.is_flag or option.default in (None, ()) or callable(option.default) else f"`{option.default}`"
        )
        rows.append((", ".join(f"`{text}{value}`" for text in option.opts), option.help or "", default))
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.append("")
    return lines


def _format_placeholder(argument: Any) -> str:
    name: str = argument.name.upper()
    return name if argument.required else f"[{name}]"


def main(arguments: list[str] | None = None) -> int:
    wanted = build_reference()
    if "--check" in (sys.argv[1:] if arguments is None else arguments):
        current = OUTPUT.exists() and OUTPUT.read_text() == wanted
        if not current:
            print(f"{OUTPUT.name} is not current: run `make references`", file=sys.stderr)
        return 0 if current else 1
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
