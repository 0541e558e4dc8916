"""``deltarelay erase keygen``: creates the key of an erasure register."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.cli.files import create_signing_key
from infra.cli.options import Debug, Json
from infra.output import Output

__all__ = ["keygen"]


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
    create_signing_key(
        Output("erase keygen", as_json, debug),
        name,
        out,
        private="readable only by you; without it the register's identifiers are lost",
        public="public; it checks certificates",
    )
