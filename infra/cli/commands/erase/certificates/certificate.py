"""``deltarelay erase certificate``: shows or exports the certificate of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError, VerificationError
from infra.cli.commands.erase.certificates.check import parse_verifier_key
from infra.cli.commands.erase.context import ErasureContext, RequestId
from infra.cli.files import write_output
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["certificate"]

_KEY_HINT = "`--key` takes the verifier key that `erase keygen` printed for the key that signed it"


def certificate(
    request: RequestId,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the signed JSON to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write an HTML page to this file.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The verifier key of the certificate, if the configured key did not sign it."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the certificate of a request, or write it to files. Starts no JVM."""
    from audit.erasure.evidence.certificate import as_file
    from audit.erasure.evidence.certificate import check as check_certificate
    from audit.erasure.evidence.certificate_html import certificate_page
    from audit.proof import ProofError

    output = Output("erase certificate", as_json, debug)
    context = ErasureContext(config)
    register = context.open_register()
    document = register.certificate(request)
    if document is None:
        states = register.requests([request])
        raise ConfigError(
            f"request {request} has no certificate: "
            + (f"its state is {states[0].state}" if states else "no such request was received"),
            hint="`deltarelay erase status` shows what it waits for",
        )
    if key is not None:
        verifier = parse_verifier_key(key)
    elif context.erasure.signing_key is not None:
        verifier = context.signer.verifier
    else:
        raise ConfigError("there is no key to check the certificate with", hint=_KEY_HINT)
    try:
        check_certificate(document, verifier)
        if document["request"].get("id") != request:
            raise ProofError("file", f"it is for request {document['request'].get('id')}")
    except ProofError as error:
        raise VerificationError(
            f"this key did not sign the certificate of {request} in the register: {error}",
            hint=f"{_KEY_HINT}; otherwise the register was altered: restore it from its backup",
        ) from None
    text = as_file(document)
    for path, content in ((out, text), (html, None)):
        if path is None:
            continue
        write_output(
            path,
            certificate_page(document) if content is None else content,
            mode=0o644,
            what="the certificate",
        )
        output.note(f"wrote {path}")
    if out is None and html is None:
        output.line(text.rstrip())
    output.result(document)
