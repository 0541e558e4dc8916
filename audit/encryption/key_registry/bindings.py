"""What each wrapped key and each link is bound to, so that none is accepted in the place of another."""

from __future__ import annotations

import hmac

__all__ = [
    "SHARD_COUNTS",
    "SHARDS_OF_RELEASE_0_1",
    "key_binding",
    "link_mac",
    "lookup_hash",
    "lookup_key_binding",
    "mac_key_binding",
    "shard_binding",
    "shard_of",
]

SHARDS_OF_RELEASE_0_1 = 256
"""An epoch has one key that wraps the keys of people: row 0 of the table ``shard``. An epoch that release 0.1 began has this
many until the next rotation. There the first byte of a person's token selects the row."""
SHARD_COUNTS = (1, SHARDS_OF_RELEASE_0_1)
"""With any other number of rows, keys of the epoch are lost."""
_LINK = b"deltarelay registry link v1"


def shard_of(token: bytes, shards: int) -> int:
    return token[0] % shards


def key_binding(key_id: bytes, token: bytes, class_name: str) -> bytes:
    """A key that was swapped with another key of the same person cannot be unwrapped."""
    return key_id + token + class_name.encode()


def shard_binding(epoch: int, shard: int) -> str:
    return f"deltarelay shard key {epoch}/{shard}"


def mac_key_binding(epoch: int) -> str:
    return f"deltarelay mac key {epoch}"


def lookup_key_binding(epoch: int) -> str:
    """Differs from the binding in registries without MACs. So the root key is needed to present a registry with MACs as one
    without."""
    return f"deltarelay lookup key v2 {epoch}"


def link_mac(mac_key: bytes, lookup: bytes, token: bytes, epoch: int) -> bytes:
    """The MAC of a row of ``identifier``."""
    message = _LINK + len(lookup).to_bytes(8, "big") + lookup + len(token).to_bytes(8, "big") + token
    return hmac.digest(mac_key, message + epoch.to_bytes(8, "big"), "sha256")


def lookup_hash(lookup_key: bytes, *parts: str) -> bytes:
    # With the lengths, because ("ab", "c") and ("a", "bc") must differ
    message = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hmac.digest(lookup_key, message, "sha256")
