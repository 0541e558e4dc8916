"""A certificate of erasure: what it is refused over, that nothing in it can be altered, and its page."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from audit.erasure.evidence.certificate import (
    as_file,
    check,
    evidence,
    make_certificate,
    read_certificate,
    refuse_identifiers,
    sign,
    signed_bytes,
)
from audit.erasure.evidence.certificate_html import certificate_page
from audit.erasure.model import Request
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.proof import Checkpoint, ProofError, VerifierKey
from audit.signing.signer import Signer
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError

MINE, OTHER = Signer.generate("erasure.example.org/a"), Signer.generate("erasure.example.org/a")
AT = dt.datetime(2026, 11, 23, 12, 30, tzinfo=dt.UTC)
REQUEST = Request(
    "r-17", "customer", {"email": "anna@example.org"}, dt.date(2026, 11, 2), dt.date(2026, 12, 2),
    "Art. 17(1)(a)", "anna@example.org", "data protection officer",
)  # fmt: skip
PENDING = {"place": "/data/customers/part-1.parquet", "reason": "retention", "clears_on": dt.date(2026, 11, 30)}
HOLD = {"table": "/data/orders", "until": dt.date(2031, 12, 31), "basis": "tax law"}


def certificate(**other: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "request": REQUEST,
        "run": "run-4",
        "outcome": "erased",
        "tables": [{"table": "/data/customers", "rows": 12345, "versions": [7]}],
        "sinks": [{"target": "crm.customers", "kind": "postgres", "counts": {"rows": 3, "dead letters": 1}}],
        "purges": [{"place": "/data/customers", "files": 4, "at": AT}],
        "scan": {"finds": 0, "at": AT, "checked": [{"what": "Parquet files", "count": 21, "bytes": 98765}]},
        "pending": [],
        "unverified": [{"place": "pages of crm.customers", "why": "no pageinspect"}],
        "out_of_reach": ["backups of the warehouse: gone after 35 days"],
        "holds": [],
        "evidence": [evidence("deleted", AT, {"rows": 12345})],
        "unfinished": [],
        "issued_at": AT,
    }
    return make_certificate(**{**given, **other})


def partial(**other: Any) -> dict[str, Any]:
    return certificate(**{"outcome": "partial", "pending": [PENDING], "holds": [HOLD], **other})


def test_is_checked_offline_with_the_file_and_the_text_of_the_key() -> None:
    data = as_file(sign(certificate(), MINE)).encode()
    check(read_certificate(data), VerifierKey.parse(str(MINE.verifier)))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"unfinished": ["purge of /data/orders"]}, "steps are unfinished: purge of /data/orders"),
        ({"unfinished": ["scan"], "outcome": "partial"}, "steps are unfinished: scan"),
        ({"evidence": []}, "no step has left evidence"),
        ({"scan": {"finds": 2}}, "while data remains: 2 found by the scan"),
        ({"pending": [PENDING]}, "while data remains: 1 pending"),
        ({"holds": [HOLD]}, "while data remains: 1 under a hold"),
    ],
)
def test_is_not_issued_over_what_is_not_done(other: dict[str, Any], said: str) -> None:
    with pytest.raises(VerificationError, match=re.escape(said)):
        certificate(**other)


def test_a_partial_one_tells_what_is_left() -> None:
    document = partial(scan={"finds": 3})
    assert document["pending"] == [{**PENDING, "clears_on": "2026-11-30"}]
    assert document["holds"][0]["until"] == "2031-12-31"


def test_evidence_is_the_hash_of_canonical_facts() -> None:
    one = evidence("deleted", AT, {"b": 1, "a": AT})
    assert one == evidence("deleted", AT, {"a": "2026-11-23T12:30:00Z", "b": 1})
    assert one != evidence("deleted", AT, {"b": 2, "a": AT})


class _Plainly(SearchTerms):
    def find(self, data: bytes) -> Iterator[tuple[str, str]]:
        return ((one.request, "value") for one in self.terms if one.value.encode() in data)


def test_holds_no_identifier_and_is_refused_where_one_has_slipped_in() -> None:
    terms = _Plainly([SearchTerm("r-17", "anna@example.org")])
    refuse_identifiers(certificate(), terms)
    leaking = certificate(holds=[{**HOLD, "basis": "dispute with anna@example.org"}], outcome="partial")
    with pytest.raises(VerificationError, match="contain an identifier of r-17") as found:
        refuse_identifiers(leaking, terms)
    assert "anna@" not in str(found.value.to_dict())


def test_one_bit_anywhere_is_noticed() -> None:
    data, key = as_file(sign(certificate(), MINE)).encode(), MINE.verifier
    for at in range(len(data) - 1):  # but the end of the last line
        altered = bytes([*data[:at], data[at] ^ 1 << at % 7, *data[at + 1 :]])
        with pytest.raises(ProofError):
            check(read_certificate(altered), key)


def test_another_key_is_named_even_under_the_same_name() -> None:
    with pytest.raises(ProofError, match=f"signed by another key: .*'{MINE.verifier.id.hex()}'"):
        check(sign(certificate(), MINE), OTHER.verifier)
    forged = sign(certificate(), OTHER)
    forged["signature"] |= {"id": MINE.verifier.id.hex()}
    with pytest.raises(ProofError, match=r"the signature of .* is invalid"):
        check(forged, MINE.verifier)


@pytest.mark.parametrize("name", [*certificate()])
def test_no_field_may_be_missing_or_of_another_type(name: str) -> None:
    without = {one: value for one, value in certificate().items() if one != name}
    with pytest.raises(ProofError, match=name if name != "format" else "this is not a deltarelay erasure certificate"):
        check(sign(without, MINE), MINE.verifier)
    with pytest.raises(ProofError, match=r"the wrong type|this is not a deltarelay"):
        check(sign({**without, name: 1}, MINE), MINE.verifier)


def test_a_file_that_says_something_twice_or_more_than_a_certificate_is_refused() -> None:
    with pytest.raises(ProofError, match="unknown fields: 'note'"):
        check(sign({**certificate(), "note": ""}, MINE), MINE.verifier)
    text = as_file(sign(certificate(), MINE))
    for data in (text.replace('"run": ', '"run": "other", "run": ').encode(), b"\xff{}", b"[1]", b"{", b"[" * 100_000):
        with pytest.raises(ProofError) as found:
            read_certificate(data)
        assert found.value.step == "file"
    with pytest.raises(ProofError, match="not signed"):
        check(certificate(), MINE.verifier)
    with pytest.raises(ProofError, match="a value that is not allowed in a certificate"):
        check({**sign(certificate(), MINE), "scan": {"finds": 0.5}}, MINE.verifier)


def test_no_checkpoint_can_be_taken_for_a_certificate_and_no_bare_json_either() -> None:
    document = certificate()
    note = MINE.sign(Checkpoint("deltarelay erasure certificate v1", 1, b"\0" * 32))
    assert not note.encode().startswith(signed_bytes(document)[:40])
    signed = sign(document, MINE)
    with pytest.raises(ProofError, match="is invalid"):
        MINE.verifier.verify(canonical_json(document), MINE.sign_bytes(signed_bytes(document)))
    check(json.loads(json.dumps(signed)), MINE.verifier)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_shows_counts_dates_and_the_hash_of_what_is_signed() -> None:
    page = certificate_page(sign(certificate(), MINE))
    for said in ("✓ Erased", "12,345", "rows: 3, dead letters: 1", "98,765", "no pageinspect", "gone after 35 days"):
        assert said in page
    assert MINE.verifier.id.hex() in page
    assert "anna" not in page
    assert "Nothing is pending." in page


def test_the_page_of_a_partial_one_says_until_when() -> None:
    page = certificate_page(sign(partial(scan={"finds": 3}), MINE))
    assert "Erased in part" in page
    assert "1 place pending, the last of it until 2026-11-30; 3 findings of the scan; 1 hold." in page
    assert "2031-12-31" in page
    forever = certificate_page(
        partial(pending=[PENDING, {"place": "topic people", "reason": "key", "clears_on": None}])
    )
    assert "2 places pending, in 1 place until an operator removes the data" in forever
    assert "not automatically: an operator must act" in forever
    assert "This certificate is not signed." in forever


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\x1b[31m\u202e"])
def test_the_page_escapes_whatever_is_said_and_loads_nothing(hostile: str) -> None:
    row = {hostile: hostile}
    request = Request(hostile, hostile, {}, dt.date(2026, 1, 1), dt.date(2026, 2, 1), hostile, "-", hostile)
    rows = {name: [row] for name in ("tables", "sinks", "purges", "unverified", "holds")}
    page = certificate_page(
        partial(
            request=request, run=hostile, **rows, out_of_reach=[hostile], scan={"finds": 0, hostile: hostile, "x": [row]},
            pending=[{"place": hostile, "reason": hostile, "clears_on": hostile}], evidence=[{"step": hostile}],
        )
    )  # fmt: skip
    assert hostile not in page
    assert not re.search(r"<(script|img|link|iframe)|https?:|href=\"(?!#)|[\x1b\u202e]", page, re.IGNORECASE)
