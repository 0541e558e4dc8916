"""The columns of one class in a row, sealed as one under a person's key: a group; and what a reader is shown of it.

What is sealed is the group's canonical encoding (``audit.encoding``). It is bound to the row's random id and to the class,
and opens nowhere else. The hash of a row covers the SHA-256 of what is sealed, and not what is in it: it stays what it was
when the key is gone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from audit.keys.cipher import NotOpened, commitment, open_sealed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from audit.keys.cipher import Sealer
    from audit.keys.registry import KeyState

__all__ = ["Group", "Unreadable", "read_group", "seal_groups", "sealed_row_hash"]

Why: TypeAlias = Literal["erased", "key missing", "wrong key", "tampered"]

_ABOUT = b"deltarelay sealed group v1"


@dataclass(frozen=True, slots=True)
class Group:
    class_name: str
    key_id: bytes
    """16 bytes: the key in the registry."""
    sealed: bytes = field(repr=False)

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.sealed).digest()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a group shows no values; ``str`` is what stands in their place, never NULL."""

    why: Why
    erased_on: dt.date | None = None
    erased_by: str | None = None

    def __str__(self) -> str:
        if self.why == "erased":
            return f"[erased {self.erased_on}, {self.erased_by}]"
        return f"[{self.why}]"


def seal_groups(
    rows: pa.RecordBatch,
    schema: StructType,
    class_name: str,
    keys: Sequence[tuple[bytes, bytes] | None],
    ids: Sequence[bytes],
    sealer: Sealer,
) -> list[Group | None]:
    """One for each row. ``schema``: the columns of the class, as the row's commit has them. ``keys``: (key id, key) of the
    person whose row it is; None where it is nobody's, and nothing is sealed. ``ids``: those of the rows."""
    from audit.encoding import encode_rows

    encoded = encode_rows(rows, schema)
    return [
        None if key is None else Group(class_name, key[0], sealer.seal(key[1], text, about=_about(id, class_name)))
        for text, key, id in zip(encoded, keys, ids, strict=True)
    ]


def read_group(
    group: Group, id: bytes, state: KeyState | None, committed: bytes | None, *, intact: bool
) -> bytes | Unreadable:
    """The group's canonical encoding, for ``audit.decoding``.

    ``state``: what the registry knows of the key, None where it has never had it. ``committed``: the key's commitment in the
    ledger. ``intact``: the row's hash is that of its event. A changed byte is tampering, also where the key is gone; a key
    that the ledger does not know is another key, also where it opens what is sealed.
    """
    if not intact:
        return Unreadable("tampered")
    if state is None:
        return Unreadable("key missing")
    if state.key is None:
        assert state.shredded_at is not None
        return Unreadable("erased", state.shredded_at.date(), state.shredded_by)
    if committed is None or commitment(state.key) != committed:
        return Unreadable("wrong key")
    try:
        return open_sealed(state.key, group.sealed, about=_about(id, group.class_name))
    except NotOpened:
        return Unreadable("tampered")


def sealed_row_hash(salt: bytes, encoded: bytes, groups: Sequence[Group]) -> bytes:
    """SHA-256 of a row with groups, 32 bytes. ``encoded``: its other columns. The form is another one than that of a row
    without any (``audit.encoding.row_hash``), and no part of it can be taken for the next."""
    if len(salt) != 16:
        raise ValueError("the salt of a row has 16 bytes")
    found = hashlib.sha256(b"CRE1 sealed" + salt + len(encoded).to_bytes(8, "big") + encoded)
    for group in sorted(groups, key=lambda one: one.class_name.encode()):
        name = group.class_name.encode()
        found.update(len(name).to_bytes(4, "big") + name + group.key_id + group.digest)
    return found.digest()


def _about(id: bytes, class_name: str) -> bytes:
    return _ABOUT + len(id).to_bytes(1, "big") + id + class_name.encode()
