"""Confirmation before a command makes a change that cannot be undone."""

from __future__ import annotations

import sys

import typer

from cdf.errors import CdfError, ConfigError

__all__ = ["confirm", "require_terminal"]


def require_terminal(command: str) -> None:
    """Raise if there is no terminal for a prompt; called before the command collects what it would ask about."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{command} needs a confirmation, and there is no terminal for the question", hint="confirm with --yes"
        )


def confirm() -> None:
    if not typer.confirm("Continue?", err=True):
        raise CdfError("not confirmed: nothing was changed", hint="answer y to continue")
