"""The columns of one class in a row, sealed as one under a person's key: a group; and what a reader is shown of it.

What is sealed is the canonical encoding (``audit.hashing.row_encoding``) of the group's columns. It is bound to the
row's random id and to the class, and opens nowhere else. The row says of each group which columns it has, whose key it
is under, and the SHA-256 of what is sealed (``audit.trail.column_history.GROUPS``): that is what the row's hash covers,
so that it stays what it was when the key is gone, and the sealed bytes too."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pyspark.sql.types import StructType

from audit.encryption.aead import NotOpened, Opener, Sealer, commitment
from audit.trail.column_history import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.encryption.key_registry import KeyState
    from audit.identifiers import Spelling

__all__ = ["ERASED", "Held", "SealedPerson", "Unreadable", "held_in", "is_whole", "keys_of", "read_group", "seal_rows"]

Why: TypeAlias = Literal["sealed", "erased", "removed", "key missing", "wrong key", "tampered"]

ERASED = "[erased "
"""So begins what stands in the place of an erased value."""
_ABOUT = b"deltarelay sealed group v1"


@dataclass(frozen=True, slots=True)
class SealedPerson:
    """A person whom the rows of a table name, and the columns that are sealed under that person's keys."""

    subject: str
    identifier: str
    """By which the registry knows the person; ``column`` has its values."""
    column: str
    spelling: Spelling
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and columns of each. A column is in one class of one person."""


@dataclass(frozen=True, slots=True)
class Held:
    """A person's keys in the order of their classes, while a row is sealed. They are shown nowhere."""

    token: bytes
    keys: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    """Key id and key."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a group shows no values; ``str`` is what stands in their place, never NULL."""

    why: Why
    erased_on: dt.date | None = None
    erased_by: str | None = None

    def __str__(self) -> str:
        if self.why == "erased":
            return f"{ERASED}{', '.join(filter(None, (str(self.erased_on), self.erased_by)))}]"
        return f"[{self.why}]"


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def keys_of(person: int) -> str:
    """The column beside those of the source that has the keys for the person at this place."""
    return f"deltarelay_keys_{person}"


def held_in(column: pa.Array) -> list[Held | None]:
    """As rows have them."""
    return [
        None if one is None else Held(one["token"], tuple((key["key_id"], key["key"]) for key in one["keys"]))
        for one in column.to_pylist()
    ]


def seal_rows(
    rows: pa.RecordBatch,
    schema: StructType,
    people: Sequence[SealedPerson],
    held: Sequence[Sequence[Held | None]],
    ids: Sequence[bytes],
    withheld: Collection[int] = (),
) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """→ the rows without what was sealed, their groups (``GROUPS``), and the sealed bytes of these, list by list.

    ``held``: for each person and row the keys; None where the row names nobody there, and stays readable. ``ids``: 16 random
    bytes for each row. ``withheld``: places of rows that keep their values nowhere; they lose what would be sealed.
    """
    import pyarrow as pa

    groups: list[list[dict[str, Any]]] = [[] for _ in ids]
    texts: list[list[bytes]] = [[] for _ in ids]
    columns, sealer = dict(zip(schema.names, rows.columns, strict=True)), Sealer()
    for person, of_rows in zip(people, held, strict=True):
        sealed = [at for at, keys in enumerate(of_rows) if keys is not None and at not in withheld]
        gone = {*sealed, *withheld}
        kept = pa.array([None if at in gone else at for at in range(len(ids))], pa.int64())
        for place, (class_name, named) in enumerate(person.classes):
            own = StructType(
                [one for one in schema.fields if one.name.casefold() in {name.casefold() for name in named}]
            )
            if not own.fields or not gone:
                continue
            for at, text in zip(sealed, _encoded(rows, own, sealed), strict=True):
                keys = of_rows[at]
                assert keys is not None
                key_id, key = keys.keys[place]
                text = sealer.seal(key, text, about=_about(ids[at], class_name))
                digest = hashlib.sha256(text).digest()
                told = (class_name, own.names, keys.token, key_id, commitment(key), digest)
                groups[at].append(dict(zip(_NAMES, told, strict=True)))
                texts[at].append(text)
            for name in own.names:  # taken from nowhere a value is null, whatever its type
                columns[name] = columns[name].take(kept)
    return (
        pa.RecordBatch.from_arrays(list(columns.values()), names=schema.names),
        pa.array([one or None for one in groups], _arrow()),
        pa.array([one or None for one in texts], pa.list_(pa.binary())),
    )


_NAMES = GROUPS.elementType.names  # type: ignore[attr-defined]


def _encoded(rows: pa.RecordBatch, schema: StructType, places: Sequence[int]) -> list[bytes]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_rows

    return encode_rows(rows.select(schema.names).take(pa.array(places, pa.int64())), schema)


def _arrow() -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(GROUPS, timezone="UTC")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_whole(
    groups: Sequence[dict[str, Any]] | None, texts: Sequence[bytes | None] | None, gone: Collection[bytes] = ()
) -> bool:
    """Whether the sealed bytes beside a row are those that its groups tell of, one for each. ``gone``: ids of keys whose
    sealed bytes were removed, and may be there still."""
    groups, texts = groups or (), texts or ()
    try:
        return len(groups) == len(texts) and all(
            group["key_id"] in gone if text is None else hashlib.sha256(text).digest() == group["digest"]
            for group, text in zip(groups, texts, strict=True)
        )
    except (KeyError, TypeError):  # no groups of ours: anybody may have written them
        return False


def read_group(
    group: dict[str, Any], text: bytes | None, id: bytes, state: KeyState | None, opener: Opener, *, intact: bool
) -> bytes | Unreadable:
    """The canonical encoding of the group's columns, for ``audit.hashing.row_decoding``.

    ``group``: as a row has it. ``text``: what is sealed. ``state``: what the registry knows of the key, None where it has
    never had it. ``intact``: the row has the hash that stands beside it; readers hold that against its event's. A changed
    byte is tampering, also where the key is gone; a key that is not the one that the row was sealed under is another key,
    also where it opens what is sealed.
    """
    if not intact or (text is not None and hashlib.sha256(text).digest() != group["digest"]):
        return Unreadable("tampered")
    if state is None:
        return Unreadable("key missing")
    if state.key is None:
        assert state.shredded_at is not None
        return Unreadable("erased", state.shredded_at.date(), state.shredded_by)
    if text is None:
        return Unreadable("removed")
    if opener.commitment(state.key) != group["commitment"]:
        return Unreadable("wrong key")
    try:
        return opener.open(state.key, text, about=_about(id, group["class"]))
    except NotOpened:
        return Unreadable("tampered")


def _about(id: bytes, class_name: str) -> bytes:
    return _ABOUT + len(id).to_bytes(1, "big") + id + class_name.encode()
