"""The secrets of an erasure: the seal key encrypts identifiers in the register, the watch key knows erased people again.

Both are derived from the signing key of the erasure, or configured apart from it. No object here holds the signing key, and
``Marker``, which Spark's tasks get, holds nothing but watch keys.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.files import write_key
from audit.signing.signer import Signer
from cdf.errors import ConfigError

__all__ = ["Keys", "Marker", "SealKey", "WatchKey"]

_VERSION = b"\x01"
_NONCE = 12
_TAG = 16
_SEAL = b"deltarelay erasure seal v1"
_MARK = b"deltarelay erasure mark v1"
_REFERENCE = b"deltarelay erasure reference v1"
_STEP = "deltarelay erasure step v1"

Key = TypeVar("Key", bound="_Key")


# ── as text ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Key:
    """As text ``KIND+KEY+id+base64(key)``; the id guards against slips of the pen."""

    kind: ClassVar[str]
    size: ClassVar[int]
    key: bytes = field(repr=False)

    @classmethod
    def generate(cls: type[Key]) -> Key:
        return cls(b"".join(os.urandom(32) for _ in range(cls.size // 32)))

    @classmethod
    def parse(cls: type[Key], text: str) -> Key:
        """Raises ConfigError, which shows nothing of ``text``."""
        found = re.fullmatch(rf"{cls.kind}\+KEY\+[0-9a-f]{{8}}\+([A-Za-z0-9+/]+={{0,2}})", text.strip())
        try:
            made = cls(base64.b64decode(found[1], validate=True)) if found else None
        except ValueError:
            made = None
        if made is None or len(made.key) != cls.size or made.secret() != text.strip():
            raise ConfigError(
                f"this is no {cls.kind.lower()} key, or one with a fault in it",
                hint="`deltarelay erase split-keys FOLDER` writes them",
            )
        return made

    @property
    def id(self) -> str:
        return hashlib.sha256(f"deltarelay {self.kind.lower()} key id v1".encode() + self.key).hexdigest()[:8]

    def secret(self) -> str:
        return f"{self.kind}+KEY+{self.id}+{base64.b64encode(self.key).decode()}"

    def write(self, path: Path) -> None:
        """Into a new file that only its owner can read. A key that is there is never overwritten."""
        write_key(path, self.secret(), what=f"{self.kind.lower()} key")


@dataclass(frozen=True, slots=True)
class WatchKey(_Key):
    """Makes marks. Its holder can test whether a person was erased, and can neither decrypt nor sign anything."""

    kind = "WATCH"
    size = 32

    @classmethod
    def of(cls, signer: Signer) -> WatchKey:
        """That of a configuration which has a signing key alone."""
        return cls(signer.derive(_MARK))


@dataclass(frozen=True, slots=True)
class SealKey(_Key):
    """Encrypts identifiers with its first half, and makes references with the second."""

    kind = "SEAL"
    size = 64

    @classmethod
    def of(cls, signer: Signer) -> SealKey:
        return cls(signer.derive(_SEAL) + signer.derive(_REFERENCE))


# ── at work ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Marker:
    """Makes marks under the first of the watch keys, and knows those that were made under the others, the former ones."""

    _keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, keys: Sequence[WatchKey]) -> Marker:
        return cls(tuple(dict.fromkeys(one.key for one in keys)))

    @property
    def in_use(self) -> WatchKey:
        return WatchKey(self._keys[0])

    def mark(self, identifier: str, value: str) -> bytes:
        """A keyed hash by which a person is recognised. Without the key it reveals nothing.

        ``identifier`` with its subject: ``customer/email``. ``value`` as ``audit.identifiers.normalise`` gives it.
        """
        return _keyed(self._keys[0], identifier, value)

    def marks(self, identifier: str, value: str) -> tuple[bytes, ...]:
        """Under each of the keys."""
        return tuple(_keyed(key, identifier, value) for key in self._keys)


class Keys:
    """What the register needs. Its ``repr`` shows nothing, and it keeps nothing of the signing key.

    ``watch``, ``seal``: where they are configured; the first of each is used, the others are former ones, and know and open
    what was made under them. So do those that come from the signing key.
    """

    __slots__ = ("_seals", "marker")

    def __init__(self, signer: Signer | None, *, watch: Sequence[WatchKey] = (), seal: Sequence[SealKey] = ()) -> None:
        self.marker = Marker.of(watch if signer is None else [*watch, WatchKey.of(signer)])
        self._seals = [*seal] if signer is None else [*seal, SealKey.of(signer)]
        if signer is None and not (watch and seal):
            raise ConfigError(
                "there is no key that identifiers are sealed by", hint="set erasure.signing_key, or erasure.seal_key"
            )

    def __repr__(self) -> str:
        return "Keys()"

    @property
    def in_use(self) -> tuple[WatchKey, SealKey]:
        return self.marker.in_use, self._seals[0]

    def encrypt(self, text: str, *, about: str) -> bytes:
        """Encrypted, and bound to ``about``, such as the id of a request: elsewhere it cannot be opened."""
        nonce = os.urandom(_NONCE)
        return _VERSION + nonce + _cipher(self._seals[0]).encrypt(nonce, text.encode(), _VERSION + about.encode())

    def decrypt(self, data: bytes, *, about: str) -> str:
        """Raises ConfigError where it was sealed by another key or about something else, or is altered."""
        if data[:1] == _VERSION and len(data) >= 1 + _NONCE + _TAG:
            nonce, sealed = data[1 : 1 + _NONCE], data[1 + _NONCE :]
            for key in self._seals:
                try:
                    return _cipher(key).decrypt(nonce, sealed, _VERSION + about.encode()).decode()
                except InvalidTag:
                    continue
        raise ConfigError(
            "what is sealed here does not open: it was sealed with another key, or somebody has altered or moved it",
            hint="set erasure.signing_key or erasure.seal_key to the key with which the requests were taken in",
        )

    def mark(self, identifier: str, value: str) -> bytes:
        return self.marker.mark(identifier, value)

    def marks(self, identifier: str, value: str) -> tuple[bytes, ...]:
        return self.marker.marks(identifier, value)

    def reference(self, request: str, identifier: str, value: str) -> str:
        """As ``mark``, for a certificate: another one in each request, so that two certificates tell no common person."""
        return _keyed(self._seals[0].key[32:], request, identifier, value).hex()

    def mac(self, *parts: str) -> str:
        """By which a step in the register is known to be ours."""
        return _keyed(self._seals[0].key[32:], _STEP, *parts).hex()

    def is_mac(self, mac: object, *parts: str) -> bool:
        """Whether it is ``mac`` of these parts, under any of the seal keys."""
        made = [_keyed(key.key[32:], _STEP, *parts).hex() for key in self._seals]
        return isinstance(mac, str) and mac.isascii() and any(hmac.compare_digest(mac, one) for one in made)


def _cipher(key: SealKey) -> AESGCM:
    return AESGCM(key.key[:32])


def _keyed(key: bytes, *parts: str) -> bytes:
    # with their lengths, or ("ab", "c") would be ("a", "bc")
    encoded = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
    return hmac.new(key, message, hashlib.sha256).digest()
