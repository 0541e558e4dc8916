"""``deltarelay keys``: the commands for the encryption keys of people, in the order of ``--help``."""

from __future__ import annotations

import typer

from infra.cli.commands.keys.backups import backup, restore_check
from infra.cli.commands.keys.registry import init, status, upgrade
from infra.cli.commands.keys.root_keys import new_root, root_gone, rotate

__all__ = ["app"]

app = typer.Typer(
    help="Manage the encryption keys of people. If the keys are lost, the data of these people is lost. Starts no JVM.",
    no_args_is_help=True,
)
app.command()(init)
app.command()(upgrade)
app.command("new-root")(new_root)
app.command()(status)
app.command()(rotate)
app.command("root-gone")(root_gone)
app.command()(backup)
app.command("restore-check")(restore_check)
