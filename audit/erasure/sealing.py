"""What an erasure keeps secret while it runs, and how it knows a person again whom it has forgotten.

All of it comes from one secret, the signing key of the erasure: who loses it can neither read what is sealed nor know
anybody again, and that is how the state is forgotten in the end.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.checkpoint import Signer
from cdf.errors import ConfigError

__all__ = ["Keys"]

_VERSION = b"\x01"
_NONCE = 12
_TAG = 16
_SEAL = b"deltarelay erasure seal v1"
_MARK = b"deltarelay erasure mark v1"
_REFERENCE = b"deltarelay erasure reference v1"


@dataclass(frozen=True, slots=True)
class Keys:
    """What is derived from the erasure's secret. Its ``repr`` shows nothing."""

    signer: Signer = field(repr=False)
    # derived once: a watch asks for a mark of each value of a window
    _seal: bytes = field(init=False, repr=False)
    _mark: bytes = field(init=False, repr=False)
    _reference: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, info in (("_seal", _SEAL), ("_mark", _MARK), ("_reference", _REFERENCE)):
            object.__setattr__(self, name, self.signer.derive(info))

    def seal(self, text: str, *, about: str) -> bytes:
        """Encrypted, and bound to ``about``, such as the id of a request: elsewhere it cannot be opened."""
        nonce = os.urandom(_NONCE)
        return _VERSION + nonce + self._cipher().encrypt(nonce, text.encode(), _VERSION + about.encode())

    def unseal(self, data: bytes, *, about: str) -> str:
        """Raises ConfigError where it was sealed by another key or about something else, or is altered."""
        opened: bytes | None = None
        if data[:1] == _VERSION and len(data) >= 1 + _NONCE + _TAG:
            nonce, sealed = data[1 : 1 + _NONCE], data[1 + _NONCE :]
            try:
                opened = self._cipher().decrypt(nonce, sealed, _VERSION + about.encode())
            except InvalidTag:
                opened = None
        if opened is None:
            raise ConfigError(
                "what is sealed here does not open: it was sealed with another key, or somebody has altered or moved it",
                hint="set erasure.signing_key to the key with which the requests were taken in",
            )
        return opened.decode()

    def mark(self, identifier: str, value: str) -> bytes:
        """By which a person is known again, and which tells nothing to whoever has not the key.

        ``identifier`` with its subject: ``customer/email``. ``value`` as ``audit.erasure.model.normalised`` gives it.
        """
        return _keyed(self._mark, identifier, value)

    def reference(self, request: str, identifier: str, value: str) -> str:
        """As ``mark``, for a certificate: another one in each request, so that two certificates tell no common person."""
        return _keyed(self._reference, request, identifier, value).hex()

    def _cipher(self) -> AESGCM:
        return AESGCM(self._seal)


def _keyed(key: bytes, *parts: str) -> bytes:
    # with their lengths, or ("ab", "c") would be ("a", "bc")
    encoded = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
    return hmac.new(key, message, hashlib.sha256).digest()
