"""``deltarelay audit keygen``: creates a signing key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cdf.result import Result
from infra.cli.options import Debug, Json
from infra.output import Output

__all__ = ["KeyMade", "keygen"]


@dataclass(frozen=True, slots=True)
class KeyMade(Result):
    key_file: str
    verifier_key: str


def keygen(
    name: Annotated[str, typer.Argument(help="The name of the signer, preferably like an address: example.org/trail.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file for the private key; an existing file is not overwritten.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create a signing key, and print its verifier key. Starts no JVM."""
    from audit.signing.signer import Signer

    output = Output("audit keygen", as_json, debug)
    signer = Signer.generate(name)
    signer.write(out)
    result = KeyMade(str(out), str(signer.verifier))
    output.line(f"private key   {out}  (readable only by you; anyone who has it can sign in this name)")
    output.line(f"verifier key  {result.verifier_key}  (public)")
    output.result(result)
