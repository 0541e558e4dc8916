"""``deltarelay erase keygen``: creates the key of an erasure register."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cdf.result import Result
from infra.cli.options import Debug, Json
from infra.output import Output

__all__ = ["ErasureKeyMade", "keygen"]


@dataclass(frozen=True, slots=True)
class ErasureKeyMade(Result):
    key_file: str
    verifier_key: str


def keygen(
    name: Annotated[
        str, typer.Argument(help="The signer of certificates, preferably like an address: example.org/erasure.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file for the key; an existing file is not overwritten.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create the key that signs certificates and encrypts identifiers in the register. Starts no JVM."""
    from audit.signing.signer import Signer

    output = Output("erase keygen", as_json, debug)
    signer = Signer.generate(name)
    signer.write(out)
    result = ErasureKeyMade(str(out), str(signer.verifier))
    output.line(f"private key   {out}  (readable only by you; without it the register's identifiers are lost)")
    output.line(f"verifier key  {result.verifier_key}  (public; it checks certificates)")
    output.result(result)
