"""The secret keys of erasures: the seal key encrypts identifiers in the register, the watch key recognises erased people.

Both are derived from the signing key of the erasure, or configured separately. No object here holds the signing key, and
``Marker``, which is sent to Spark's tasks, holds only watch keys.
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
from typing import ClassVar, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.files import write_key
from audit.signing.signer import Signer
from cdf.errors import ConfigError

__all__ = ["Keys", "MarkKeys", "Marker", "RegisterKeys", "SealKey", "WatchKey"]

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
    """A key, as text ``KIND+KEY+id+base64(key)``; the id detects typing errors."""

    kind: ClassVar[str]
    size: ClassVar[int]
    key: bytes = field(repr=False)

    @classmethod
    def generate(cls: type[Key]) -> Key:
        return cls(b"".join(os.urandom(32) for _ in range(cls.size // 32)))

    @classmethod
    def parse(cls: type[Key], text: str) -> Key:
        """Raises ConfigError, whose message does not contain ``text``."""
        found = re.fullmatch(rf"{cls.kind}\+KEY\+[0-9a-f]{{8}}\+([A-Za-z0-9+/]+={{0,2}})", text.strip())
        try:
            made = cls(base64.b64decode(found[1], validate=True)) if found else None
        except ValueError:
            made = None
        if made is None or len(made.key) != cls.size or made.secret() != text.strip():
            raise ConfigError(
                f"this is not a {cls.kind.lower()} key, or it contains a typing error",
                hint="`deltarelay erase split-keys FOLDER` writes them",
            )
        return made

    @property
    def id(self) -> str:
        return hashlib.sha256(f"deltarelay {self.kind.lower()} key id v1".encode() + self.key).hexdigest()[:8]

    def secret(self) -> str:
        return f"{self.kind}+KEY+{self.id}+{base64.b64encode(self.key).decode()}"

    def write(self, path: Path) -> None:
        """Write a new file that only its owner can read. An existing key is never overwritten."""
        write_key(path, self.secret(), what=f"{self.kind.lower()} key")


@dataclass(frozen=True, slots=True)
class WatchKey(_Key):
    """Makes marks. Its holder can test whether a person was erased, and can neither decrypt nor sign anything."""

    kind = "WATCH"
    size = 32

    @classmethod
    def of(cls, signer: Signer) -> WatchKey:
        """Derive the key of a configuration that has only a signing key."""
        return cls(signer.derive(_MARK))


@dataclass(frozen=True, slots=True)
class SealKey(_Key):
    """Encrypts identifiers with its first half, and makes references with the second."""

    kind = "SEAL"
    size = 64

    @classmethod
    def of(cls, signer: Signer) -> SealKey:
        return cls(signer.derive(_SEAL) + signer.derive(_REFERENCE))


# ── what the register needs ──────────────────────────────────────────────────────────────────────────────────────────


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


# ── at work ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Marker:
    """Makes marks under the first watch key, and knows marks that were made under the others, the former keys."""

    _keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, keys: Sequence[WatchKey]) -> Marker:
        return cls(tuple(dict.fromkeys(one.key for one in keys)))

    @property
    def in_use(self) -> WatchKey:
        return WatchKey(self._keys[0])

    def mark(self, identifier: str, value: str) -> bytes:
        """Return a keyed hash by which a person is recognised. Without the key it reveals nothing.

        ``identifier`` with its subject: ``customer.email``. ``value`` as ``audit.identifiers.normalise`` returns it.
        """
        return _keyed(self._keys[0], identifier, value)

    def marks(self, identifier: str, value: str) -> tuple[bytes, ...]:
        """Return the mark under each of the keys."""
        return tuple(_keyed(key, identifier, value) for key in self._keys)


class Keys:
    """The keys that the register needs. Its ``repr`` shows nothing, and it does not keep the signing key.

    ``watch``, ``seal``: the configured keys. The first of each is used; the others are former keys, which recognise and
    decrypt what was made under them, as do the keys derived from the signing key.
    """

    __slots__ = ("_seals", "marker")

    def __init__(self, signer: Signer | None, *, watch: Sequence[WatchKey] = (), seal: Sequence[SealKey] = ()) -> None:
        self.marker = Marker.of(watch if signer is None else [*watch, WatchKey.of(signer)])
        self._seals = [*seal] if signer is None else [*seal, SealKey.of(signer)]
        if signer is None and not (watch and seal):
            raise ConfigError(
                "there is no key to encrypt identifiers", hint="set erasure.signing_key, or erasure.seal_key"
            )

    def __repr__(self) -> str:
        return "Keys()"

    @property
    def in_use(self) -> tuple[WatchKey, SealKey]:
        return self.marker.in_use, self._seals[0]

    def encrypt(self, text: str, *, about: str) -> bytes:
        """Return a ciphertext that is bound to ``about``, such as the id of a request: with another one it cannot be
        decrypted."""
        nonce = os.urandom(_NONCE)
        return _VERSION + nonce + _cipher(self._seals[0]).encrypt(nonce, text.encode(), _VERSION + about.encode())

    def decrypt(self, data: bytes, *, about: str) -> str:
        """Raises ConfigError where it was encrypted with another key or another ``about``, or is altered."""
        if data[:1] == _VERSION and len(data) >= 1 + _NONCE + _TAG:
            nonce, sealed = data[1 : 1 + _NONCE], data[1 + _NONCE :]
            for key in self._seals:
                try:
                    return _cipher(key).decrypt(nonce, sealed, _VERSION + about.encode()).decode()
                except InvalidTag:
                    continue
        raise ConfigError(
            "an encrypted identifier cannot be decrypted: it was encrypted with another key, or it was altered or moved",
            hint="set erasure.signing_key or erasure.seal_key to the key with which the requests were received",
        )

    def mark(self, identifier: str, value: str) -> bytes:
        return self.marker.mark(identifier, value)

    def marks(self, identifier: str, value: str) -> tuple[bytes, ...]:
        return self.marker.marks(identifier, value)

    def reference(self, request: str, identifier: str, value: str) -> str:
        """Return a mark for a certificate. It differs between requests, so that two certificates do not reveal that they are
        about the same person."""
        return _keyed(self._seals[0].key[32:], request, identifier, value).hex()

    def mac(self, *parts: str) -> str:
        """Return the MAC that proves that a step in the register was recorded with these keys."""
        return _keyed(self._seals[0].key[32:], _STEP, *parts).hex()

    def is_mac(self, mac: object, *parts: str) -> bool:
        """Return whether it is the MAC of these parts, under any of the seal keys."""
        made = [_keyed(key.key[32:], _STEP, *parts).hex() for key in self._seals]
        return isinstance(mac, str) and mac.isascii() and any(hmac.compare_digest(mac, one) for one in made)


def _cipher(key: SealKey) -> AESGCM:
    return AESGCM(key.key[:32])


def _keyed(key: bytes, *parts: str) -> bytes:
    # with their lengths, because ("ab", "c") must differ from ("a", "bc")
    encoded = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
    return hmac.new(key, message, hashlib.sha256).digest()
