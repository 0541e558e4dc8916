"""``deltarelay audit``: the commands for audit trails, in the order of ``--help``."""

from __future__ import annotations

import typer

from infra.cli.commands.audit.encrypt import encrypt, seal
from infra.cli.commands.audit.optimize import optimize
from infra.cli.commands.audit.questions.commands import as_of, diff, history, queries, query, who
from infra.cli.commands.audit.questions.sql import sql
from infra.cli.commands.audit.signing.anchors import anchors
from infra.cli.commands.audit.signing.check import check
from infra.cli.commands.audit.signing.checkpoint import checkpoint
from infra.cli.commands.audit.signing.keygen import keygen
from infra.cli.commands.audit.signing.prove import prove
from infra.cli.commands.audit.sinks import sinks
from infra.cli.commands.audit.verification.reconcile import reconcile
from infra.cli.commands.audit.verification.report import report
from infra.cli.commands.audit.verification.verify import verify

__all__ = ["app"]

app = typer.Typer(help="Sign, verify, prove and query audit trails.", no_args_is_help=True)
app.command()(keygen)
app.command()(checkpoint)
app.command()(anchors)
app.command()(verify)
app.command()(reconcile)
app.command()(report)
app.command()(prove)
app.command()(check)
app.command()(queries)
app.command()(query)
app.command()(history)
app.command("as-of")(as_of)
app.command()(diff)
app.command()(who)
app.command()(sql)
app.command()(sinks)
app.command()(encrypt)
app.command(hidden=True)(seal)
app.command()(optimize)
