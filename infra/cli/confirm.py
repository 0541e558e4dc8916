"""Commands that ask before they change something that cannot be had back."""

from __future__ import annotations

import sys

import typer

from cdf.errors import CdfError, ConfigError

__all__ = ["confirm", "require_terminal"]


def require_terminal(command: str) -> None:
    """Asked for first, so that nothing is looked up in vain."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{command} asks before it changes anything, and there is no terminal to ask on",
            hint="give --yes to answer beforehand",
        )


def confirm() -> None:
    if not typer.confirm("Go ahead?", err=True):
        raise CdfError("not confirmed: nothing was changed", hint="answer y to go ahead")
