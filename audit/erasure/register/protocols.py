"""What the register needs from keys. ``audit.erasure.register.secrets`` implements both protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["MarkKeys", "RegisterKeys"]


class MarkKeys(Protocol):
    """Watch keys, which make marks: keyed hashes of identifiers."""

    def mark(self, name: str, value: str) -> bytes:
        """Return the same mark for the same value of that name. Without the key it does not reveal the value."""
        ...

    def marks(self, name: str, value: str) -> Sequence[bytes]:
        """Return ``mark``, and the marks under each of the former keys."""
        ...


class RegisterKeys(MarkKeys, Protocol):
    """Keys that also encrypt identifiers. The database never sees them."""

    def encrypt(self, text: str, *, about: str) -> bytes:
        """Return a ciphertext that can be decrypted with the same ``about`` only."""
        ...

    def decrypt(self, data: bytes, *, about: str) -> str: ...
