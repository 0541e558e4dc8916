"""``deltarelay keys backup`` and ``restore-check``: backups of the key registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.commands.keys.context import KeysContext, format_minute, show_progress
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import DIFFERENCE, DONE, Output, format_count

if TYPE_CHECKING:
    from audit.encryption.restore_check import BackupChecked

__all__ = ["backup", "restore_check"]

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(file: BackupFile, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Write the whole registry to a new file, with every key wrapped by the root key; `psql` restores it.

    Its last line is a MAC under a key that the root key wraps, so the root key must be configured. Store the root key
    separately: anyone who has both has every key, including the keys of people who are erased later.
    """
    from audit.encryption.backup import write_backup

    output = Output("keys backup", as_json, debug)
    context = KeysContext(config)
    schema = context.settings.schema_name
    progress = show_progress(output, "rows written")
    result = write_backup(context.open_database(), context.root, file, schema, progress=progress)
    output.line(f"{file}: {format_count(result.keys, 'key')}, {result.bytes:,} bytes, epoch {result.epoch}")
    output.line(f"only the root key {result.root} can open it")
    output.result(result)


def restore_check(
    file: BackupFile,
    root: Annotated[
        str | None,
        typer.Option(
            "--root", metavar="FILE|aws_kms:ARN", help="The root key of the backup; default: the configured one."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Check only the file, for example because the registry is lost.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Open every key of a backup, and show what restoring it would do.

    Exit code 3: restoring would bring back keys of erased people, or lose keys. A backup is approved only if it is, byte for
    byte, a script that `keys backup` wrote for this schema under this root key.
    """
    from audit.encryption.restore_check import check_backup

    output = Output("keys restore-check", as_json, debug)
    context = KeysContext(config)
    opening_root = context.root if root is None else context.open_root(root)
    current = None if alone else context.open_database()
    schema = context.settings.schema_name
    checked = check_backup(file, opening_root, current, schema, progress=show_progress(output, "keys checked"))
    output.line(
        f"{file}: complete, from {format_minute(checked.made_at)}, epoch {checked.epoch}; the root key {checked.root} opens "
        f"all {format_count(checked.living, 'active key')}; {checked.shredded} are destroyed in it"
    )
    consequences = _describe_consequences(checked)
    for line in consequences:
        output.line(line)
    if alone:
        output.line("the consequences of restoring it were not checked")
    elif not consequences:
        output.line("restoring it brings back no erased person, and loses no key")
    output.finish(checked, DIFFERENCE if consequences else DONE)


def _describe_consequences(checked: BackupChecked) -> Sequence[str]:
    lines = []
    if checked.brings_back:
        lines.append(
            f"restoring it would bring erased people back: it contains {format_count(checked.brings_back, 'key')} "
            "destroyed since, which would have to be destroyed again"
        )
    if checked.loses:
        lines.append(
            f"restoring it would lose {format_count(checked.loses, 'active key')} created since: data encrypted with them "
            "would be erased permanently"
        )
    if checked.unknown:
        lines.append(
            f"the current registry has never had {format_count(checked.unknown, 'key')} of it: it belongs to another "
            "registry, or this one was restored from an older backup"
        )
    return lines
