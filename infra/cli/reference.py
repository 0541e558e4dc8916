"""Writes ``docs/reference/cli.md`` from the commands themselves; ``--check`` says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["reference", "main"]

OUTPUT = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def reference() -> str:
    from typer.main import get_command

    from infra.cli.main import app

    root: Any = get_command(app)
    lines = ["# Command line", "", "<!-- generated: make references -->", "", root.help, "", root.epilog, ""]
    return "\n".join(lines + _commands("", root, level=2))


def _commands(before: str, group: Any, *, level: int) -> list[str]:
    lines = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            lines += [f"{'#' * level} `deltarelay {before}{name}`", "", command.help, ""]
            lines += _commands(f"{before}{name} ", command, level=level + 1)
        else:
            lines += _section(f"{before}{name}", command, level=level)
    return lines


def _section(name: str, command: Any, *, level: int) -> list[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join(["deltarelay", name, *map(_placeholder, arguments), "[OPTIONS]"])
    lines = [f"{'#' * level} `{usage}`", "", command.help.strip(), ""]
    rows = [(f"`{one.name.upper()}`", one.help or "", "") for one in arguments]
    for one in options:
        value = "" if one.is_flag else f" {one.metavar or one.name.upper()}"
        default = "" if one.is_flag or one.default in (None, ()) or callable(one.default) else f"`{one.default}`"
        rows.append((", ".join(f"`{text}{value}`" for text in one.opts), one.help or "", default))
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.append("")
    return lines


def _placeholder(argument: Any) -> str:
    name: str = argument.name.upper()
    return name if argument.required else f"[{name}]"


def main(arguments: list[str] | None = None) -> int:
    wanted = reference()
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
