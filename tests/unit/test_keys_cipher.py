"""What is sealed opens under its key and in its place only, and no nonce comes twice."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.encryption import aead as cipher
from audit.encryption.aead import KEY_BYTES, OVERHEAD_BYTES, DecryptionFailed, Encryptor, commitment, decrypt
from tests.fixtures.fix_seed import examples

KEY, OTHER = b"k" * KEY_BYTES, b"o" * KEY_BYTES


@pytest.mark.parametrize(
    ("key", "about", "sealed"),
    [
        (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_vectors_of_the_specification(key: int, about: bytes, sealed: str) -> None:
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    made = cipher._derive_cipher(bytes([key]) * KEY_BYTES, nonce[:12]).encrypt(nonce[12:], b"XAES-256-GCM", about)
    assert made.hex() == sealed


@settings(max_examples=examples(100))
@given(text=st.binary(max_size=200), about=st.binary(max_size=40))
def test_it_opens_where_it_was_sealed(text: bytes, about: bytes) -> None:
    encryptor = Encryptor()
    sealed = encryptor.encrypt(KEY, text, associated_data=about)
    assert decrypt(KEY, sealed, associated_data=about) == text
    assert len(sealed) == len(text) + OVERHEAD_BYTES
    assert encryptor.encrypt(KEY, text, associated_data=about) != sealed


@settings(max_examples=examples(100))
@given(text=st.binary(max_size=60), place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_one_bit_anywhere_is_noticed(text: bytes, place: int, bit: int) -> None:
    sealed = bytearray(Encryptor().encrypt(KEY, text, associated_data=b"row 1"))
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(DecryptionFailed):
        decrypt(KEY, bytes(sealed), associated_data=b"row 1")


def test_elsewhere_and_under_another_key_nothing_opens() -> None:
    sealed = Encryptor().encrypt(KEY, b"anna@example.org", associated_data=b"row 1")
    for key, one, about in ((OTHER, sealed, b"row 1"), (KEY, sealed, b"row 2"), (KEY, sealed[:-1], b"row 1")):
        with pytest.raises(DecryptionFailed) as refused:
            decrypt(key, one, associated_data=about)
        assert not str(refused.value)
    for short in (b"", b"\x01", sealed[:20]):
        with pytest.raises(DecryptionFailed):
            decrypt(KEY, short, associated_data=b"row 1")


def test_no_nonce_comes_twice() -> None:
    """Those of one encryptor are a counter, of which the 10,000,000th is still another one; those of two begin differently,
    also where one was sent elsewhere."""
    encryptor = Encryptor()
    first = [encryptor.next_nonce() for _ in range(1000)]
    assert [int.from_bytes(one[16:], "big") for one in first] == list(range(1000))
    assert {one[:16] for one in first} == {first[0][:16]}
    encryptor._count = 10_000_000
    assert int.from_bytes(encryptor.next_nonce()[16:], "big") == 10_000_000
    encryptor._count = 2**64
    with pytest.raises(OverflowError):
        encryptor.next_nonce()
    drawn = {Encryptor().next_nonce()[:16] for _ in range(10_000)}
    drawn |= {
        pickle.loads(pickle.dumps(Encryptor())).next_nonce()[:16],
        pickle.loads(pickle.dumps(encryptor)).next_nonce()[:16],
    }
    assert len(drawn) == 10_002
    with ThreadPoolExecutor() as pool:
        assert len({one[:16] for one in pool.map(lambda _: Encryptor().next_nonce(), range(1000))}) == 1000


def test_ten_million_draws() -> None:
    encryptor = Encryptor()
    last = encryptor.next_nonce()
    for _ in range(10_000_000):
        nonce = encryptor.next_nonce()
        assert nonce > last  # strictly rising: none of them is an earlier one
        last = nonce


def test_a_key_is_known_again() -> None:
    assert commitment(KEY) == commitment(bytes(KEY)) != commitment(OTHER)
    assert len(commitment(KEY)) == 32


def test_nothing_is_shown() -> None:
    encryptor = Encryptor()
    encryptor.encrypt(KEY, b"anna", associated_data=b"")
    assert "anna" not in repr(encryptor)
    assert repr(KEY) not in repr(encryptor)
