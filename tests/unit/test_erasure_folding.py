"""One person in several spellings of an address, also beside what an earlier version has stored of the person."""

from __future__ import annotations

import unicodedata

import pytest

from audit.erasure.register.secrets import Keys
from audit.identifiers import fold, normalise, stored_forms
from audit.signing.signer import Signer

ADDRESS = "Jörg.Weiß@Ärzte.example"
KEYS = Keys(Signer.generate("example.org/erasure"))

WRITTEN = [
    pytest.param(unicodedata.normalize("NFD", ADDRESS), id="decomposed"),
    pytest.param(f"\u00a0{ADDRESS.upper()}\n", id="upper case"),
    pytest.param("".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in ADDRESS), id="full width"),
    pytest.param("\u200b" + "\u00ad".join(ADDRESS) + "\ufeff", id="hidden characters"),
    pytest.param(ADDRESS.replace("@", " @\t"), id="blanks around @"),
]


@pytest.mark.parametrize("written", WRITTEN)
def test_an_address_is_one_however_it_is_written(written: str) -> None:
    assert normalise(written, "email") == normalise(ADDRESS, "email") == "jörg.weiss@ärzte.example"
    assert normalise(written, "exact") == written
    assert normalise("Jorg.Weiss@Arzte.example", "email") != normalise(ADDRESS, "email")


def test_what_is_folded_stays_as_it_is() -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert [one for one in map(fold, every) if fold(one) != one] == []


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("arriving", ["NFC", "NFD"])
def test_what_earlier_versions_have_stored_is_found(stored: str, arriving: str) -> None:
    """They compared without surrounding blanks and in lower case, and knew nothing of composition."""
    before = KEYS.mark("customer.email", unicodedata.normalize(stored, ADDRESS).strip().lower())
    forms = stored_forms(f" {unicodedata.normalize(arriving, ADDRESS).upper().replace('SS', 'ß')} ", "email")
    assert before in {KEYS.mark("customer.email", form) for form in forms}
    assert forms[0] == normalise(ADDRESS, "email")
