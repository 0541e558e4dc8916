"""Encryption of a value under a person's key: AES-256-GCM, with a nonce that no two values under one key share.

The construction is XAES-256-GCM (c2sp.org/XAES-256-GCM): the first 12 of 24 nonce bytes derive a key, the last 12 are the
nonce of AES-GCM. An ``Encryptor`` draws 16 random bytes once and counts in the other 8. So no nonce occurs twice within an
``Encryptor``, and two of them share their 16 bytes as rarely as two random UUIDs are equal.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEY_BYTES", "OVERHEAD_BYTES", "DecryptionFailed", "Decryptor", "Encryptor", "commitment", "decrypt"]

KEY_BYTES = 32
_NONCE, _TAG, _RANDOM = 24, 16, 16
_VERSION = b"\x01"
OVERHEAD_BYTES = len(_VERSION) + _NONCE + _TAG
"""By how much a ciphertext is longer than its plaintext."""
_COMMITMENT = b"deltarelay key commitment v1"


class DecryptionFailed(Exception):
    """The key, the ciphertext or the associated data is another one. It says nothing more."""


def commitment(key: bytes) -> bytes:
    """A SHA-256 that identifies a key. A ciphertext of GCM can be made to decrypt under two keys; a ledger with the
    commitment of the first key shows that the second one is wrong."""
    return hashlib.sha256(_COMMITMENT + key).digest()


@dataclass(slots=True)
class Encryptor:
    """Encrypts values, under any keys. For one thread in one process: a copy would repeat the nonces."""

    _random: bytes = field(default_factory=lambda: os.urandom(_RANDOM), repr=False)
    _count: int = 0
    _ciphers: dict[bytes, AESGCM] = field(default_factory=dict, repr=False)
    """By key. An encryptor lives no longer than a task, so the ciphers do not either."""

    def encrypt(self, key: bytes, plaintext: bytes, *, associated_data: bytes) -> bytes:
        """``associated_data``: what the value belongs to, such as its row; decryption needs the same bytes."""
        nonce = self.next_nonce()
        cipher = self._ciphers.get(key)
        if cipher is None:
            cipher = self._ciphers[key] = _derive_cipher(key, nonce[:12])
        return _VERSION + nonce + cipher.encrypt(nonce[12:], plaintext, _VERSION + associated_data)

    def next_nonce(self) -> bytes:
        nonce = self._random + self._count.to_bytes(_NONCE - _RANDOM, "big")
        self._count += 1
        return nonce

    def __reduce__(self) -> tuple[type[Encryptor], tuple[()]]:
        return Encryptor, ()  # an unpickled copy draws new random bytes


@dataclass(slots=True)
class Decryptor:
    """Decrypts values. It caches ciphers and commitments, and lives no longer than its task."""

    _ciphers: dict[tuple[bytes, bytes], AESGCM] = field(default_factory=dict, repr=False)
    _commitments: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def decrypt(self, key: bytes, ciphertext: bytes, *, associated_data: bytes) -> bytes:
        """Raises DecryptionFailed."""
        nonce, body = ciphertext[1 : 1 + _NONCE], ciphertext[1 + _NONCE :]
        if ciphertext[:1] != _VERSION or len(body) < _TAG:
            raise DecryptionFailed
        cipher = self._ciphers.get((key, nonce[:12]))
        if cipher is None:
            cipher = _cache(self._ciphers, (key, nonce[:12]), _derive_cipher(key, nonce[:12]))
        try:
            return cipher.decrypt(nonce[12:], body, _VERSION + associated_data)
        except InvalidTag:
            raise DecryptionFailed from None

    def commitment(self, key: bytes) -> bytes:
        return self._commitments.get(key) or _cache(self._commitments, key, commitment(key))


_MAX_CACHED = 10_000
K = TypeVar("K")
V = TypeVar("V")


def _cache(cache: dict[K, V], key: K, value: V) -> V:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value
    return value


def decrypt(key: bytes, ciphertext: bytes, *, associated_data: bytes) -> bytes:
    """Raises DecryptionFailed."""
    return Decryptor().decrypt(key, ciphertext, associated_data=associated_data)


def _derive_cipher(key: bytes, nonce: bytes) -> AESGCM:
    """The cipher under the key that the first half of the nonce derives: CMAC's subkey, and two blocks in counter mode."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    first = int.from_bytes(block.update(bytes(16)), "big")
    subkey = ((first << 1) & ((1 << 128) - 1)) ^ (0x87 if first >> 127 else 0)
    blocks = subkey ^ int.from_bytes(b"\x00\x00X\x00" + nonce, "big")
    counted = ((blocks ^ number << 112).to_bytes(16, "big") for number in (1, 2))  # the counter is the second byte
    return AESGCM(block.update(b"".join(counted)))
