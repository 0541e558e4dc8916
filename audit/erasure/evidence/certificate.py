"""The certificate of an erasure: a signed JSON document, checked offline with the file and a public key alone.

    certificate = sign(make_certificate(...), signer)      as_file(certificate) is the file
    check(read_certificate(file), VerifierKey.parse(key))

It states what was deleted, where and when, by counts and hashes of evidence; what is pending and until when; and what could
not be scanned. It identifies the person only by the id of the request.
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
    "CertifiedRequest",
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
    "that the request named every identifier of the person: the scan searched only for these and for linked ones",
    "that no data remains in a form that the scan does not read, for example compressed, or spread over several cells",
    "anything about copies that are out of reach: backups, exports, copies made by other people",
    "that the person's data has not returned since: pipelines check for that, but this document does not show it",
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


class CertifiedRequest(Protocol):
    """What the certificate states about a request; ``model.Request`` and ``register.records.RequestStatus`` have it.

    The requester is left out: often that is the person.
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
    request: CertifiedRequest,
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
    """Return an unsigned certificate.

    ``scan``: what was scanned, with ``finds``, the number of findings. ``pending``: ``place``, ``reason`` and ``clears_on``
    (a date, or None) of remaining data. ``evidence``: results of ``evidence()``, one for each step. ``unfinished``: names of
    steps that failed, were skipped or are not done. The other rows are included as they are: names and counts.

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
    """Raises VerificationError for a step that failed, was skipped or left no evidence; and, with the outcome ``erased``,
    for remaining data, whether it was found, is removed later or is under a hold."""
    if unfinished:
        raise VerificationError(
            f"no certificate is issued while steps are unfinished: {', '.join(unfinished)}",
            hint="`deltarelay erase run` continues them",
            unfinished=list(unfinished),
        )
    if not evidence:
        raise VerificationError("no certificate is issued, because no step has left evidence")
    remaining = {"found by the scan": finds, "pending": pending, "under a hold": holds}
    if outcome == "erased" and any(remaining.values()):
        shown = ", ".join(f"{count:,} {what}" for what, count in remaining.items() if count)
        raise VerificationError(
            f"a person is not certified as erased while data remains: {shown}",
            hint="a partial certificate states what remains, and until when",
        )


def refuse_identifiers(document: Mapping[str, Any], terms: SearchTerms) -> None:
    """Raises VerificationError where the certificate contains a search term: it is kept for good, so this is checked before
    it is signed."""
    found = sorted({request for request, _ in terms.find(canonical_json(document))})
    if found:
        raise VerificationError(
            f"the certificate of request {document['request']['id']} would contain an identifier of {', '.join(found)}",
            hint="check legal basis, approver, table names and the basis of holds: none of them may identify a person",
        )


def evidence(step: str, at: dt.datetime, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hash of a step's facts. The facts stay in the register."""
    return {"step": step, "at": at, "sha256": sha256(canonical_json(plain(facts))).hexdigest()}


# ── signing and checking ─────────────────────────────────────────────────────────────────────────────────────────────


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the signed bytes. They begin with the format's name, so that another signature of the key cannot be used for
    it."""
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    return f"{FORMAT}\n".encode() + canonical_json(unsigned)


def sign(document: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    key = signer.verifier
    signature = base64_text(signer.sign_bytes(signed_bytes(document)))
    return {**document, "signature": {"key": key.name, "id": key.id.hex(), "ed25519": signature}}


def as_file(certificate: Mapping[str, Any]) -> str:
    return json.dumps(certificate, indent=2, ensure_ascii=False) + "\n"


def read_certificate(data: bytes) -> dict[str, Any]:
    """Parse a file, without checking it. Raises ProofError where it is not JSON with each name once."""

    def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(named := dict(pairs)) < len(pairs):
            raise ValueError("a name twice")
        return named

    try:
        document = json.loads(data.decode(), object_pairs_hook=unique_names)
    except (ValueError, RecursionError):
        raise ProofError("file", "the certificate is not valid JSON, or a name occurs twice in one object") from None
    if not isinstance(document, dict):
        raise ProofError("file", "the certificate is not a JSON object")
    return document


def check(document: Mapping[str, Any], key: VerifierKey) -> None:
    """Raises ProofError unless it is a certificate exactly as this key signed it."""
    if document.get("format") != FORMAT:
        raise ProofError("file", f"this is not a {FORMAT}")
    for name, kind in _FIELDS.items():
        if name not in document:
            raise ProofError("file", f"the certificate has no {name}")
        if type(document[name]) is not kind:
            raise ProofError("file", f"{name} of the certificate has the wrong type")
    if more := sorted(document.keys() - _FIELDS.keys() - {"signature"}):
        raise ProofError("file", f"the certificate has unknown fields: {', '.join(map(ascii, more))}")
    key.verify(_canonical(document), _signature(document, key))


def _canonical(document: Mapping[str, Any]) -> bytes:
    try:
        return signed_bytes(document)
    except (TypeError, ValueError, RecursionError):
        raise ProofError("file", "the certificate contains a value that is not allowed in a certificate") from None


def _signature(document: Mapping[str, Any], key: VerifierKey) -> bytes:
    signature = document.get("signature")
    if signature is None:
        raise ProofError("signature", "the certificate is not signed")
    if (
        not isinstance(signature, Mapping)
        or set(signature) != set(_SIGNATURE)
        or not all(isinstance(signature[name], str) for name in _SIGNATURE)
    ):
        raise ProofError("signature", "the signature does not have the fields of a certificate's signature")
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
