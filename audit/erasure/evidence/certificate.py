"""The certificate of an erasure: a signed JSON document, checked offline with the file and a public key alone.

    certificate = sign(make_certificate(...), signer)      as_file(certificate) is the file
    check(read_certificate(file), VerifierKey.parse(key))

It tells what was deleted, where and when, by counts and hashes of evidence; what is pending and until when; what nobody
could look at. Of the person it has the request's id.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeAlias

from audit.erasure.scan.search_terms import SearchTerms
from audit.proof import ProofError, VerifierKey, base64_text
from audit.signing.signer import Signer
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError
from cdf.result import plain

__all__ = [
    "NOT_PROVEN",
    "Asked",
    "Outcome",
    "as_file",
    "check",
    "evidence",
    "make_certificate",
    "read_certificate",
    "refuse_identifiers",
    "refuse_unfinished",
    "sign",
    "signed_bytes",
]

FORMAT = "deltarelay erasure certificate v1"
NOT_PROVEN = (
    "that the request named every identifier of the person: only what it named, and what is linked to it, was looked for",
    "that nothing is left in a form that the scan does not read, for instance compressed, or spread over several cells",
    "anything of copies that are out of reach: backups, exports, other people's copies",
    "that the person has not come back since: whoever suppresses them notices that, this document does not",
)

Outcome: TypeAlias = Literal["erased", "partial"]
Rows: TypeAlias = Iterable[Mapping[str, Any]]

_REQUEST = ("id", "subject", "received", "due", "legal_basis", "approver")
_FIELDS: Mapping[str, type] = {
    "format": str,
    "outcome": str,
    "issued_at": str,
    "request": dict,
    "run": str,
    "tables": list,
    "sinks": list,
    "purges": list,
    "scan": dict,
    "pending": list,
    "unverified": list,
    "out_of_reach": list,
    "holds": list,
    "evidence": list,
}
_SIGNATURE = ("key", "id", "ed25519")


class Asked(Protocol):
    """What the certificate tells of a request; ``model.Request`` and ``register.Standing`` both have it.

    Who requested it is left out: often that is the person.
    """

    @property
    def id(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def received(self) -> dt.date: ...
    @property
    def due(self) -> dt.date: ...
    @property
    def legal_basis(self) -> str: ...
    @property
    def approver(self) -> str | None: ...


# ── making ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_certificate(
    *,
    request: Asked,
    run: str,
    outcome: Outcome,
    tables: Rows,
    sinks: Rows,
    purges: Rows,
    scan: Mapping[str, Any],
    pending: Rows,
    unverified: Rows,
    out_of_reach: Iterable[str],
    holds: Rows,
    evidence: Rows,
    unfinished: Iterable[str],
    issued_at: dt.datetime,
) -> dict[str, Any]:
    """Not yet signed.

    ``scan``: what was looked through, with ``finds``, their number. ``pending``: ``place``, ``reason`` and ``clears_on`` (a
    date, or None) of what is still there. ``evidence``: of ``evidence()``, one for each step. ``unfinished``: names of
    steps that have failed, were skipped or have not been taken. The other rows are shown as they are: names and counts.

    Raises VerificationError as ``refuse_unfinished`` does.
    """
    document: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "outcome": outcome,
            "issued_at": issued_at,
            "request": {name: getattr(request, name) for name in _REQUEST},
            "run": run,
            "tables": list(tables),
            "sinks": list(sinks),
            "purges": list(purges),
            "scan": scan,
            "pending": list(pending),
            "unverified": list(unverified),
            "out_of_reach": list(out_of_reach),
            "holds": list(holds),
            "evidence": list(evidence),
        }
    )
    refuse_unfinished(
        outcome,
        unfinished=list(unfinished),
        finds=scan["finds"],
        pending=len(document["pending"]),
        holds=len(document["holds"]),
        evidence=len(document["evidence"]),
    )
    return document


def refuse_unfinished(
    outcome: Outcome, *, unfinished: Sequence[str], finds: int, pending: int, holds: int, evidence: int
) -> None:
    """No certificate is issued over a step that failed, was skipped or left no evidence; none of an erased person over
    data that is still there, whether it was found, goes later or is held."""
    if unfinished:
        raise VerificationError(
            f"no certificate is issued over unfinished steps: {', '.join(unfinished)}",
            hint="`deltarelay erase run` takes them up where they stand",
            unfinished=list(unfinished),
        )
    if not evidence:
        raise VerificationError("no certificate is issued without evidence of any step")
    left = {"found by the scan": finds, "pending": pending, "under a hold": holds}
    if outcome == "erased" and any(left.values()):
        said = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
        raise VerificationError(
            f"nobody is certified as erased while data is still there: {said}",
            hint="a partial certificate tells what is left, and until when",
        )


def refuse_identifiers(document: Mapping[str, Any], terms: SearchTerms) -> None:
    """The last look before signing: a certificate is kept for good, so nothing in it may be what a scan looks for."""
    found = sorted({request for request, _ in terms.find(canonical_json(document))})
    if found:
        raise VerificationError(
            f"the certificate of request {document['request']['id']} would hold an identifier of {', '.join(found)}",
            hint="look at legal basis, approver, table names and the basis of holds: none of them may name a person",
        )


def evidence(step: str, at: dt.datetime, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of a step's facts, which stay in the register, the hash."""
    return {"step": step, "at": at, "sha256": sha256(canonical_json(plain(facts))).hexdigest()}


# ── signing and checking ─────────────────────────────────────────────────────────────────────────────────────────────


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """What the signature is over: the format's name first, so that no other signature of the key can stand for it."""
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    return f"{FORMAT}\n".encode() + canonical_json(unsigned)


def sign(document: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    key = signer.verifier
    signature = base64_text(signer.sign_bytes(signed_bytes(document)))
    return {**document, "signature": {"key": key.name, "id": key.id.hex(), "ed25519": signature}}


def as_file(certificate: Mapping[str, Any]) -> str:
    return json.dumps(certificate, indent=2, ensure_ascii=False) + "\n"


def read_certificate(data: bytes) -> dict[str, Any]:
    """Of a file; nothing is checked yet. Raises ProofError where it is not JSON with each name once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(named := dict(pairs)) < len(pairs):
            raise ValueError("a name twice")
        return named

    try:
        document = json.loads(data.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise ProofError("file", "the certificate is not JSON with each name once") from None
    if not isinstance(document, dict):
        raise ProofError("file", "the certificate is not a JSON object")
    return document


def check(document: Mapping[str, Any], key: VerifierKey) -> None:
    """Raises ProofError with what is wrong, unless it is a certificate and exactly as this key signed it."""
    if document.get("format") != FORMAT:
        raise ProofError("file", f"this is no {FORMAT}")
    for name, kind in _FIELDS.items():
        if name not in document:
            raise ProofError("file", f"the certificate has no {name}")
        if type(document[name]) is not kind:
            raise ProofError("file", f"{name} of the certificate is of another type than a certificate's")
    if more := sorted(document.keys() - _FIELDS.keys() - {"signature"}):
        raise ProofError("file", f"the certificate has fields that there are not: {', '.join(map(ascii, more))}")
    key.verify(_canonical(document), _signature(document, key))


def _canonical(document: Mapping[str, Any]) -> bytes:
    try:
        return signed_bytes(document)
    except (TypeError, ValueError, RecursionError):
        raise ProofError("file", "the certificate holds a value that no certificate has") from None


def _signature(document: Mapping[str, Any], key: VerifierKey) -> bytes:
    signature = document.get("signature")
    if signature is None:
        raise ProofError("signature", "the certificate is not signed")
    if (
        not isinstance(signature, Mapping)
        or set(signature) != set(_SIGNATURE)
        or not all(isinstance(signature[name], str) for name in _SIGNATURE)
    ):
        raise ProofError("signature", "the signature is not one of a certificate")
    if (signature["key"], signature["id"]) != (key.name, key.id.hex()):
        raise ProofError(
            "signature",
            f"the certificate is signed by another key: {signature['key']!a}, {signature['id']!a}",
        )
    try:
        data = base64.b64decode(signature["ed25519"], validate=True)
    except ValueError:
        data = b""
    if base64_text(data) != signature["ed25519"] or len(data) != 64:  # unused bits are zero: one text for one value
        raise ProofError("signature", "the signature is malformed base64")
    return data
