"""``deltarelay erase check``: checks a certificate offline, without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.options import Debug, Json
from infra.output import FAILED, Output

if TYPE_CHECKING:
    from audit.proof import VerifierKey

__all__ = ["check", "parse_verifier_key"]


def check(
    file: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The file that `erase certificate --out` wrote.")],
    key: Annotated[str, typer.Option("--key", help="The verifier key that `erase keygen` printed.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a certificate offline. Starts no JVM.

    Exit code 0: genuine. 1: not genuine.
    """
    from audit.erasure.evidence import certificate as certificates
    from audit.proof import ProofError

    output = Output("erase check", as_json, debug)
    verifier = parse_verifier_key(key)
    try:
        document = certificates.read_certificate(file.read_bytes())
        certificates.check(document, verifier)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except ProofError as error:
        output.line(f"NOT GENUINE: {error}")
        output.finish({"genuine": False, "reason": str(error)}, FAILED)
    output.line(f"genuine: {document['request']['id']}, {document['outcome']}, issued {document['issued_at']}")
    output.result({"genuine": True, "request": document["request"]["id"], "outcome": document["outcome"]})


def parse_verifier_key(key: str) -> VerifierKey:
    from audit.proof import ProofError, VerifierKey

    try:
        return VerifierKey.parse(key)
    except ProofError:
        raise ConfigError("--key is not a verifier key", hint="`deltarelay erase keygen` prints it") from None
