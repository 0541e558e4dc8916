"""``deltarelay storage``: tables on S3, and the lock table for commits of several writers. Starts no JVM."""

from __future__ import annotations

import typer

from infra.cli.commands.storage.lock.entries import forget, list_, repair
from infra.cli.commands.storage.lock.table import check, create
from infra.cli.commands.storage.show import show
from infra.cli.commands.storage.template import template

__all__ = ["app"]

app = typer.Typer(
    help="Manage tables on S3: the lock table for their commits, and the permissions they need.", no_args_is_help=True
)
lock = typer.Typer(
    help="Create, check and repair the lock table, which prevents conflicting commits.", no_args_is_help=True
)
app.add_typer(lock, name="lock")
app.command()(show)
app.command()(template)
lock.command()(create)
lock.command()(check)
lock.command("list")(list_)
lock.command()(repair)
lock.command()(forget)
