"""``deltarelay audit check``: checks a proof offline, without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.options import Debug, Json
from infra.output import FAILED, Output

__all__ = ["check"]


def check(
    proof: Annotated[Path, typer.Argument(help="The file that `audit prove` wrote.")],
    key: Annotated[list[str], typer.Option("--key", help="The trail's verifier key; can be repeated.")],
    origin: Annotated[str | None, typer.Option("--origin", help="The expected identity of the trail.")] = None,
    show_row: Annotated[
        bool, typer.Option("--show-row", help="Print the row's values, if the proof includes them.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a proof offline, like `python -m audit.proof`. Starts no JVM.

    Exit code 0: proven. 1: not proven.
    """
    from audit import proof as proofs

    output = Output("audit check", as_json, debug)
    try:
        proven = proofs.report(proofs.check(proof.read_bytes(), key, origin=origin), show_row=show_row)
    except OSError as error:
        raise ConfigError(
            f"{proof} cannot be read: {error.strerror}", hint="`deltarelay audit prove` writes proofs"
        ) from None
    except proofs.ProofError as error:
        if error.step == "key":
            raise ConfigError(f"--key {error}", hint="`deltarelay audit keygen` prints the verifier key") from None
        output.line(f"NOT PROVEN ({error.step}): {error}")
        output.finish({"proven": False, "step": error.step, "reason": str(error)}, FAILED)
    output.line(proofs.as_text(proven))
    output.result(proven)
