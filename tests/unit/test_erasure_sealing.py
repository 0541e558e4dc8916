"""The erasure's secrets: what is sealed opens in its place only, and a mark tells nothing without the key."""

from __future__ import annotations

import traceback

import pytest

from audit.erasure.register.secrets import Keys, SealKey, WatchKey
from audit.signing.signer import Signer
from cdf.errors import ConfigError

SIGNER = Signer.parse("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")
KEYS = Keys(SIGNER)
CANARY = "anna.canary@example.org"


def test_what_is_sealed_opens_in_its_place_only() -> None:
    sealed = KEYS.encrypt(CANARY + "\u00e9", about="R-1")
    assert CANARY.encode() not in sealed
    assert KEYS.encrypt(CANARY + "\u00e9", about="R-1") != sealed
    assert Keys(Signer.parse(SIGNER.secret())).decrypt(sealed, about="R-1") == CANARY + "\u00e9"
    flipped = [bytes([*sealed[:at], sealed[at] ^ 1, *sealed[at + 1 :]]) for at in (0, 1, 13, len(sealed) - 1)]
    wrong = [(KEYS, sealed, "R-2"), (Keys(Signer.generate("other")), sealed, "R-1")]
    for keys, data, about in [*wrong, *((KEYS, one, "R-1") for one in (*flipped, sealed[:20], b""))]:
        with pytest.raises(ConfigError, match="encrypted with another key, or it was altered") as caught:
            keys.decrypt(data, about=about)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_marks_and_references_stay_the_same_and_differ_by_all_that_is_said() -> None:
    # what is written down by one release has to be known by the next
    assert KEYS.mark("customer/email", CANARY).hex() == (
        "ce8142d62e59808de0b86ddae9f38718af9a624cc01d0bd89dcf29008e7fe46f"
    )
    assert KEYS.reference("R-1", "customer/email", CANARY) == (
        "58d2ab315166514c333fff322ad5a4447d2b20deacb04adaa42fc8c6d119bd45"
    )
    others = [
        KEYS.mark("customer/email", "b"),
        KEYS.mark("customer/emai", "lb"),
        KEYS.mark("customer/id", "b"),
        Keys(Signer.generate("other")).mark("customer/email", "b"),
        bytes.fromhex(KEYS.reference("customer/email", "", "b")),
        bytes.fromhex(KEYS.reference("R-1", "customer/email", "b")),
        bytes.fromhex(KEYS.reference("R-2", "customer/email", "b")),
    ]
    assert len(set(others)) == len(others)


def test_derived_secrets_are_apart() -> None:
    assert len({SIGNER.derive(b"a"), SIGNER.derive(b"b"), Signer.generate("x").derive(b"a")}) == 3
    assert SIGNER.derive(b"a") == SIGNER.derive(b"a")
    assert len(SIGNER.derive(b"a")) == 32


def test_nothing_is_shown() -> None:
    assert repr(KEYS) == "Keys()"
    assert str(KEYS) == "Keys()"
    for key in (WatchKey.of(SIGNER), SealKey.of(SIGNER)):
        assert repr(key.key) not in repr(key)
        assert repr(KEYS.marker.in_use.key) not in repr(KEYS.marker)


def test_who_was_marked_under_a_former_key_is_known() -> None:
    old, new = WatchKey.generate(), WatchKey.generate()
    keys = Keys(None, watch=[new, old], seal=[SealKey.of(SIGNER)])
    assert keys.mark("customer/email", CANARY) == Keys(SIGNER, watch=[new]).mark("customer/email", CANARY)
    assert Keys(SIGNER, watch=[old]).mark("customer/email", CANARY) in keys.marks("customer/email", CANARY)
    assert len(keys.marks("customer/email", CANARY)) == 2
