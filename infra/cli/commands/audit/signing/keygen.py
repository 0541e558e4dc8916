"""``deltarelay audit keygen``: creates a signing key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.cli.files import create_signing_key
from infra.cli.options import Debug, Json
from infra.output import Output

__all__ = ["keygen"]


def keygen(
    name: Annotated[str, typer.Argument(help="The name of the signer, preferably like an address: example.org/trail.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file for the private key; an existing file is not overwritten.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create a signing key, and print its verifier key. Starts no JVM."""
    create_signing_key(
        Output("audit keygen", as_json, debug),
        name,
        out,
        private="readable only by you; anyone who has it can sign in this name",
        public="public",
    )
