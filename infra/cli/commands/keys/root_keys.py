"""``deltarelay keys new-root``, ``rotate`` and ``root-gone``: root keys and the epochs that begin with them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.commands.keys.context import KeysContext, show_progress
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count

__all__ = ["new_root", "root_gone", "rotate"]


def new_root(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file for the key; an existing file is not overwritten.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create a root key in a file, for the configuration or for `keys rotate`. Changes nothing else."""
    from audit.encryption.root_keys import FileRoot

    output = Output("keys new-root", as_json, debug)
    root = FileRoot.generate()
    root.write(file)
    output.line(
        f"root key {root.name}: {file} (readable only by you; store a copy elsewhere: without it all keys are lost)"
    )
    output.result({"root": root.name, "root_key_file": str(file)})


def rotate(
    to: Annotated[str, typer.Option("--to", metavar="FILE|aws_kms:ARN", help="The new root key.")],
    retire_after: Annotated[
        int | None,
        typer.Option(
            "--retire-after",
            metavar="DAYS",
            min=7,
            max=30,
            help="Schedule the destruction of the former root key in AWS KMS after this many days, and record the date.",
        ),
    ] = None,
    destroyed_on: Annotated[
        str | None,
        typer.Option("--destroyed-on", metavar="DATE", help="Record the day on which you destroy the former root key."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Begin an epoch: rewrap all active keys under another root key, so that older backups can become unreadable.

    If it is interrupted, run it again to continue. No data can be encrypted until the new root key is configured.
    """
    output = Output("keys rotate", as_json, debug)
    context = KeysContext(config)
    former, new = context.root, context.open_root(to)
    day = None if destroyed_on is None else _parse_day(destroyed_on)
    if retire_after is not None and former.name.startswith("file:"):
        raise ConfigError(
            "--retire-after needs a root key in AWS KMS; you must destroy a root key in a file yourself",
            hint="destroy the former key after the new one is configured, and record the day with --destroyed-on or `keys "
            "root-gone`",
        )
    if retire_after is not None and day is not None:
        raise ConfigError("--retire-after determines the day itself", hint="leave out --destroyed-on")
    registry = context.open_registry()
    epoch = registry.rotate(new, progress=show_progress(output, "keys rewrapped"))
    output.line(f"epoch {epoch.epoch} under the root key {epoch.root}: {format_count(epoch.keys, 'active key')}")
    if retire_after is not None:
        day = former.retire(retire_after)
    if day is not None:
        registry.record_root_destruction(former.name, day)
        output.line(f"earlier backups are unreadable from {day} on, when the root key {former.name} is destroyed")
    output.line("next: configure the new root key (erasure.keys.root_key), and take a backup")
    if day is None:
        output.line(f"then destroy the root key {former.name}, and run `deltarelay keys root-gone {former.name} DATE`")
    output.result({**epoch.to_dict(), "former_root": former.name, "former_root_gone_on": day})


def root_gone(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="The name of a former root key, as `keys status` shows it.")
    ],
    date: Annotated[str, typer.Argument(metavar="DATE", help="The day on which all copies of it are destroyed.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Record the day on which a former root key is destroyed: from then on, backups made under it are unreadable."""
    output = Output("keys root-gone", as_json, debug)
    day = _parse_day(date)
    KeysContext(config).open_registry().record_root_destruction(root, day)
    output.line(f"backups made under the root key {root} are unreadable from {day} on")
    output.result({"root": root, "root_gone_on": day})


def _parse_day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"`{text}` is not a date", hint="write it like 2026-12-31") from None
