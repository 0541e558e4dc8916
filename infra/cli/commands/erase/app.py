"""``deltarelay erase``: the commands for erasing people, in the order of ``--help``."""

from __future__ import annotations

import typer

from infra.cli.commands.erase.accept import accept
from infra.cli.commands.erase.access_report import access_report
from infra.cli.commands.erase.approve import approve
from infra.cli.commands.erase.certificates.certificate import certificate
from infra.cli.commands.erase.certificates.check import check
from infra.cli.commands.erase.plan import plan
from infra.cli.commands.erase.release import release
from infra.cli.commands.erase.run import run
from infra.cli.commands.erase.scan import scan
from infra.cli.commands.erase.setup.init import init
from infra.cli.commands.erase.setup.keygen import keygen
from infra.cli.commands.erase.setup.split_keys import split_keys
from infra.cli.commands.erase.status import status

__all__ = ["app"]

app = typer.Typer(help="Erase people from all tables and copies, and certify the result.", no_args_is_help=True)
app.command()(keygen)
app.command("split-keys")(split_keys)
app.command()(init)
app.command()(plan)
app.command()(approve)
app.command()(run)
app.command()(status)
app.command()(scan)
app.command()(accept)
app.command()(release)
app.command()(certificate)
app.command()(check)
app.command("access-report")(access_report)
