"""``deltarelay keys``: the registry of the keys that personal columns are sealed by, and the root key above them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.commands.keys.common import Safe, told
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import DIFFERENCE, DONE, Output, counted

if TYPE_CHECKING:
    from audit.encryption.key_registry import Epoch
    from audit.encryption.restore_check import BackupChecked

__all__ = ["app"]

app = typer.Typer(help="Keep the keys of persons: losing them is erasing everybody. No JVM.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@app.command()
def init(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Make the registry under the configured root key; again it changes nothing."""
    from audit.encryption.key_registry import another_root

    output = Output("keys init", as_json, debug)
    safe = Safe(config)
    registry = safe.registry()
    registry.prepare()
    found = registry.status()
    if found.epochs[0].root != safe.root.name:
        raise another_root(found.epochs[0].root, safe.root.name)
    output.line(f"key registry {safe.settings.schema_name}: epoch {found.epochs[0].epoch}, root key {safe.root.name}")
    output.result({"epoch": found.epochs[0].epoch, "root": safe.root.name})


@app.command()
def upgrade(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Authenticate the links of a registry that an earlier release made; once, and again it changes nothing.

    It takes every link from an identifier to a person as it is: make sure before that nobody has altered them. Runners of
    the earlier release create no keys afterwards. Take a new backup: `keys restore-check` refuses the earlier ones.
    """
    output = Output("keys upgrade", as_json, debug)
    safe = Safe(config)
    done = safe.registry().upgrade()
    output.line(f"{counted(done, 'link')} authenticated under the root key {safe.root.name}")
    output.line("next: take a backup (`deltarelay keys backup`)")
    output.result({"links": done, "root": safe.root.name})


@app.command("new-root")
def new_root(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the key goes; a file that is there is kept.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a root key in a file, for the configuration or for `keys rotate`. Changes nothing else."""
    from audit.encryption.root_keys import FileRoot

    output = Output("keys new-root", as_json, debug)
    made = FileRoot.generate()
    made.write(file)
    output.line(f"root key {made.name}: {file} (only you can read it; keep a copy apart: without it all is lost)")
    output.result({"root": made.name, "root_key_file": str(file)})


@app.command()
def status(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show epochs, how many keys live, and from when on older backups are unreadable."""
    from audit.encryption.key_registry import empty_registry

    output = Output("keys status", as_json, debug)
    safe = Safe(config)
    found, configured = safe.registry().status(), safe.root.name
    if not found.epochs:
        raise empty_registry()
    output.table(
        ("epoch", "root key", "began", "ended", "root key gone", "keys"),
        [
            (one.epoch, one.root, _minute(one.began_at), _minute(one.ended_at), one.root_gone_on, one.keys)
            for one in found.epochs
        ],
        numbers=("epoch", "keys"),
    )
    output.line()
    output.line(f"{counted(found.subjects, 'subject')}, {found.living} living keys, {found.shredded} shredded")
    for one in found.epochs:
        if one.ended_at is not None:
            output.line(_backups(one))
    if found.unlinked:
        output.note(
            f"warning: no identifier leads to {counted(found.unlinked, 'living key')}: somebody has removed links, and no "
            "erasure reaches these keys"
        )
    if len([one for one in found.epochs if one.ended_at is None]) > 1:
        output.note("warning: a rotation was begun and is not over: run `deltarelay keys rotate` again")
    elif found.epochs[0].root != configured:
        output.note(f"warning: the configured root key is {configured}, which does not open the registry")
    output.result({**found.to_dict(), "configured_root": configured})


def _backups(one: Epoch) -> str:
    when = _minute(one.ended_at)
    if one.root_gone_on is None:
        return (
            f"backups from before {when} can be read by whoever has the root key {one.root}: destroy it, then "
            f"`deltarelay keys root-gone {one.root} DATE`"
        )
    return f"backups of epoch {one.epoch}, from before {when}, are unreadable from {one.root_gone_on} on"


def _minute(moment: dt.datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}Z"


# ── epochs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def rotate(
    to: Annotated[str, typer.Option("--to", metavar="FILE|aws_kms:ARN", help="The new root key.")],
    retire_after: Annotated[
        int | None,
        typer.Option(
            "--retire-after",
            metavar="DAYS",
            min=7,
            max=30,
            help="Have AWS KMS destroy the former root key after so many days, and note the date.",
        ),
    ] = None,
    destroyed_on: Annotated[
        str | None,
        typer.Option("--destroyed-on", metavar="DATE", help="Note the day on which you destroy the former root key."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Begin an epoch: wrap all living keys anew under another root key, so that older backups can become unreadable.

    Cut off, it goes on where it stood when it is run again. Until the new root key is configured, nothing is sealed.
    """
    output = Output("keys rotate", as_json, debug)
    safe = Safe(config)
    former, new = safe.root, safe.root_at(to)
    day = None if destroyed_on is None else _day(destroyed_on)
    if retire_after is not None and former.name.startswith("file:"):
        raise ConfigError(
            "a root key in a file is destroyed by whoever keeps it",
            hint="do so once the new one is configured, and note the day with --destroyed-on or `keys root-gone`",
        )
    if retire_after is not None and day is not None:
        raise ConfigError("--retire-after finds the day by itself", hint="leave out --destroyed-on")
    registry = safe.registry()
    epoch = registry.rotate(new, progress=told(output, "keys wrapped anew"))
    output.line(f"epoch {epoch.epoch} under the root key {epoch.root}: {counted(epoch.keys, 'living key')}")
    if retire_after is not None:
        day = former.retire(retire_after)
    if day is not None:
        registry.root_gone(former.name, day)
        output.line(f"backups from before are unreadable from {day} on, when the root key {former.name} is gone")
    output.line("next: put the new root key into the configuration (erasure.keys.root_key), and take a backup")
    if day is None:
        output.line(f"then destroy the root key {former.name}, and `deltarelay keys root-gone {former.name} DATE`")
    output.result({**epoch.to_dict(), "former_root": former.name, "former_root_gone_on": day})


@app.command("root-gone")
def root_gone(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="The name of a former root key, as `keys status` shows it.")
    ],
    date: Annotated[str, typer.Argument(metavar="DATE", help="The day on which it is destroyed, with all copies.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Note when a former root key is destroyed: from then on backups that were made under it are unreadable."""
    output = Output("keys root-gone", as_json, debug)
    day = _day(date)
    Safe(config).registry().root_gone(root, day)
    output.line(f"backups made under the root key {root} are unreadable from {day} on")
    output.result({"root": root, "root_gone_on": day})


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"`{text}` is no date", hint="write it like 2026-12-31") from None


# ── backups ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def backup(file: File, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Write all of the registry into a new file, every key wrapped; `psql` restores it.

    Its last line is a MAC under a key that the root key wraps, so the root key has to be configured.
    Keep the root key apart from it. Whoever has both has every key, also of people who are erased later.
    """
    from audit.encryption.backup import write_backup

    output = Output("keys backup", as_json, debug)
    safe = Safe(config)
    schema = safe.settings.schema_name
    made = write_backup(safe.database(), safe.root, file, schema, progress=told(output, "rows written"))
    output.line(f"{file}: {counted(made.keys, 'key')}, {made.bytes:,} bytes, epoch {made.epoch}")
    output.line(f"it opens by the root key {made.root} alone")
    output.result(made)


@app.command("restore-check")
def restore_check(
    file: File,
    root: Annotated[
        str | None,
        typer.Option(
            "--root", metavar="FILE|aws_kms:ARN", help="The root key it is under; left out: the configured one."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Look at the file alone, such as where the registry is lost.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Open every key of a backup, and say what restoring it would do; 3 where it brings people back or loses keys.

    A backup is approved only if it is, byte for byte, a script that `keys backup` wrote for this schema under this root key.
    """
    from audit.encryption.restore_check import check_backup

    output = Output("keys restore-check", as_json, debug)
    safe = Safe(config)
    opened_by = safe.root if root is None else safe.root_at(root)
    today = None if alone else safe.database()
    schema = safe.settings.schema_name
    checked = check_backup(file, opened_by, today, schema, progress=told(output, "keys looked at"))
    output.line(
        f"{file}: whole, from {_minute(checked.made_at)}, epoch {checked.epoch}; the root key {checked.root} opens all "
        f"{counted(checked.living, 'living key')}; {checked.shredded} are shredded in it"
    )
    lines = _consequences(checked)
    for line in lines:
        output.line(line)
    code = DIFFERENCE if lines else DONE
    if alone:
        output.line("what restoring it would do was not looked at")
    elif not lines:
        output.line("restoring it brings nobody back, and loses no key")
    output.result(checked, exit_code=code)
    raise typer.Exit(code)


def _consequences(checked: BackupChecked) -> Sequence[str]:
    lines = []
    if checked.brings_back:
        lines.append(
            f"restoring it would bring people back: {counted(checked.brings_back, 'key')} of it "
            "had been shredded since, and would have to be shredded again"
        )
    if checked.loses:
        lines.append(
            f"restoring it would lose {counted(checked.loses, 'living key')} made since: what is sealed by them would be "
            "erased for good"
        )
    if checked.unknown:
        lines.append(
            f"{counted(checked.unknown, 'key')} of it the registry of today has never had: it is another one, or was "
            "restored before"
        )
    return lines
