"""Sealing a value under a person's key: AES-256-GCM, with a nonce that no two values under one key share.

The construction is XAES-256-GCM (c2sp.org/XAES-256-GCM): the first 12 of 24 bytes lead to a key of their own, the last 12
are AES-GCM's nonce. Whoever seals draws 16 bytes from the system once, and counts in the other 8: within one ``Sealer`` no
nonce comes twice by construction, and two of them share their 16 bytes as often as two random UUIDs are equal.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEY_BYTES", "OVERHEAD_BYTES", "NotOpened", "Opener", "Sealer", "commitment", "open_sealed"]

KEY_BYTES = 32
_NONCE, _TAG, _DRAWN = 24, 16, 16
_VERSION = b"\x01"
OVERHEAD_BYTES = len(_VERSION) + _NONCE + _TAG
"""What a sealed value is longer than what was sealed."""
_COMMITMENT = b"deltarelay key commitment v1"


class NotOpened(Exception):
    """The key is another one, or the value or what it is bound to is not what was sealed. It says nothing else."""


def commitment(key: bytes) -> bytes:
    """SHA-256 by which a key is known again. A ciphertext of GCM can be made to open under two keys; a ledger that holds the
    commitment of the first shows that the second is none of its own."""
    return hashlib.sha256(_COMMITMENT + key).digest()


@dataclass(slots=True)
class Sealer:
    """Seals any number of values, under any keys. One thread uses it, in one process: a copy would count the same again."""

    _drawn: bytes = field(default_factory=lambda: os.urandom(_DRAWN), repr=False)
    _count: int = 0
    _ciphers: dict[bytes, AESGCM] = field(default_factory=dict, repr=False)
    """By key; they go with the sealer, which nothing keeps for longer than a task."""

    def seal(self, key: bytes, text: bytes, *, about: bytes) -> bytes:
        """``about``: what the value belongs to, such as its row; it opens nowhere else."""
        nonce = self.nonce()
        cipher = self._ciphers.get(key)
        if cipher is None:
            cipher = self._ciphers[key] = _cipher(key, nonce[:12])
        return _VERSION + nonce + cipher.encrypt(nonce[12:], text, _VERSION + about)

    def nonce(self) -> bytes:
        """The next one; none comes twice."""
        nonce = self._drawn + self._count.to_bytes(_NONCE - _DRAWN, "big")
        self._count += 1
        return nonce

    def __reduce__(self) -> tuple[type[Sealer], tuple[()]]:
        return Sealer, ()  # wherever it is sent it draws anew


@dataclass(slots=True)
class Opener:
    """Opens many. It keeps what keys lead to, and goes with the task that has it."""

    _ciphers: dict[tuple[bytes, bytes], AESGCM] = field(default_factory=dict, repr=False)
    _commitments: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def open(self, key: bytes, sealed: bytes, *, about: bytes) -> bytes:
        """Raises NotOpened."""
        nonce, text = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
        if sealed[:1] != _VERSION or len(text) < _TAG:
            raise NotOpened
        cipher = self._ciphers.get((key, nonce[:12]))
        if cipher is None:
            cipher = _kept(self._ciphers, (key, nonce[:12]), _cipher(key, nonce[:12]))
        try:
            return cipher.decrypt(nonce[12:], text, _VERSION + about)
        except InvalidTag:
            raise NotOpened from None

    def commitment(self, key: bytes) -> bytes:
        return self._commitments.get(key) or _kept(self._commitments, key, commitment(key))


_MOST_KEPT = 10_000
K = TypeVar("K")
V = TypeVar("V")


def _kept(kept: dict[K, V], key: K, value: V) -> V:
    if len(kept) >= _MOST_KEPT:
        kept.clear()
    kept[key] = value
    return value


def open_sealed(key: bytes, sealed: bytes, *, about: bytes) -> bytes:
    """Raises NotOpened."""
    return Opener().open(key, sealed, about=about)


def _cipher(key: bytes, nonce: bytes) -> AESGCM:
    """Under the key that the first half of the nonce leads to: CMAC's subkey, and two blocks of it in counter mode."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    first = int.from_bytes(block.update(bytes(16)), "big")
    subkey = ((first << 1) & ((1 << 128) - 1)) ^ (0x87 if first >> 127 else 0)
    blocks = subkey ^ int.from_bytes(b"\x00\x00X\x00" + nonce, "big")
    counted = ((blocks ^ number << 112).to_bytes(16, "big") for number in (1, 2))  # in the second byte
    return AESGCM(block.update(b"".join(counted)))
