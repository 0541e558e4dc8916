"""Groups: the columns of one class in a row, encrypted together under a person's key.

The plaintext of a group is the canonical encoding (``audit.hashing.row_encoding``) of its columns. The row's random id and
the class are associated data, so a ciphertext cannot be decrypted in another place. The row records for each group its
columns, the id of its key, and the SHA-256 of its ciphertext (``audit.trail.column_history.GROUPS``). The row's hash covers
this record, so the hash stays valid when the key is destroyed and the ciphertext is removed."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from audit.encryption.aead import DecryptionFailed, Decryptor, Encryptor, commitment
from cdf.spark_versions import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from audit.encryption.key_registry import KeyState
    from audit.identifiers import Spelling

__all__ = [
    "ERASED",
    "PersonColumns",
    "RowKeys",
    "Unreadable",
    "decrypt_group",
    "encrypt_rows",
    "is_complete",
    "keys_column",
    "read_row_keys",
]

Reason: TypeAlias = Literal["sealed", "erased", "removed", "key missing", "wrong key", "tampered"]

ERASED = "[erased "
"""Prefix of the text that replaces an erased value."""
_CONTEXT = b"deltarelay sealed group v1"


@dataclass(frozen=True, slots=True)
class PersonColumns:
    """A person that each row of a table names, and the columns that are encrypted under the keys of that person."""

    subject: str
    identifier: str
    """The identifier by which the registry knows the person. The column ``column`` has its values."""
    column: str
    spelling: Spelling
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and columns of each class. A column belongs to one class of one person."""


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The keys of the person whom a row names, in the order of the classes. ``repr`` hides them."""

    token: bytes
    keys: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    """Key id and key."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why the values of a group cannot be shown. ``str`` returns the text that replaces them, never NULL."""

    why: Reason
    erased_on: dt.date | None = None
    erased_by: str | None = None

    def __str__(self) -> str:
        if self.why == "erased":
            return f"{ERASED}{', '.join(filter(None, (str(self.erased_on), self.erased_by)))}]"
        return f"[{self.why}]"


# ── encryption ───────────────────────────────────────────────────────────────────────────────────────────────────────


def keys_column(person: int) -> str:
    """Name of the additional column that has the keys of the person at this index."""
    return f"deltarelay_keys_{person}"


def read_row_keys(column: pa.Array) -> list[RowKeys | None]:
    """The keys in a ``keys_column``, row by row."""
    return [
        None if row is None else RowKeys(row["token"], tuple((key["key_id"], key["key"]) for key in row["keys"]))
        for row in column.to_pylist()
    ]


def encrypt_rows(
    rows: pa.RecordBatch,
    schema: StructType,
    people: Sequence[PersonColumns],
    row_keys: Sequence[Sequence[RowKeys | None]],
    ids: Sequence[bytes],
    withheld: Collection[int] = (),
) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """Returns the rows without the encrypted values, their groups (``GROUPS``), and the ciphertexts of the groups as lists.

    ``row_keys``: for each person, the keys of each row; None where the row does not name the person and stays readable.
    ``ids``: 16 random bytes for each row. ``withheld``: indexes of rows that lose the values of all classes without a
    ciphertext.
    """
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from audit.trail.column_history import GROUPS

    fields = GROUPS.elementType.names  # type: ignore[attr-defined]
    groups: list[list[dict[str, Any]]] = [[] for _ in ids]
    ciphertexts: list[list[bytes]] = [[] for _ in ids]
    columns, encryptor = dict(zip(schema.names, rows.columns, strict=True)), Encryptor()
    for person, of_rows in zip(people, row_keys, strict=True):
        encrypted = [at for at, keys in enumerate(of_rows) if keys is not None and at not in withheld]
        emptied = {*encrypted, *withheld}
        remaining = pa.array([None if at in emptied else at for at in range(len(ids))], pa.int64())
        for place, (class_name, class_columns) in enumerate(person.classes):
            own = StructType(
                [one for one in schema.fields if one.name.casefold() in {name.casefold() for name in class_columns}]
            )
            if not own.fields or not emptied:
                continue
            for at, plaintext in zip(encrypted, _encode(rows, own, encrypted), strict=True):
                keys = of_rows[at]
                assert keys is not None
                key_id, key = keys.keys[place]
                ciphertext = encryptor.encrypt(key, plaintext, associated_data=_associated_data(ids[at], class_name))
                digest = hashlib.sha256(ciphertext).digest()
                group = (class_name, own.names, keys.token, key_id, commitment(key), digest)
                groups[at].append(dict(zip(fields, group, strict=True)))
                ciphertexts[at].append(ciphertext)
            for name in own.names:  # a NULL index gives NULL, whatever the type
                columns[name] = columns[name].take(remaining)
    return (
        pa.RecordBatch.from_arrays(list(columns.values()), names=schema.names),
        pa.array([of_row or None for of_row in groups], _arrow_type()),
        pa.array([of_row or None for of_row in ciphertexts], pa.list_(pa.binary())),
    )


def _encode(rows: pa.RecordBatch, schema: StructType, places: Sequence[int]) -> list[bytes]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_rows

    return encode_rows(rows.select(schema.names).take(pa.array(places, pa.int64())), schema)


def _arrow_type() -> pa.DataType:
    from audit.trail.column_history import GROUPS

    return arrow_type(GROUPS)


# ── decryption ───────────────────────────────────────────────────────────────────────────────────────────────────────


def is_complete(
    groups: Sequence[dict[str, Any]] | None, ciphertexts: Sequence[bytes | None] | None, gone: Collection[bytes] = ()
) -> bool:
    """Whether a row has exactly the ciphertexts that its groups record. ``gone``: ids of keys whose ciphertexts may have
    been removed."""
    groups, ciphertexts = groups or (), ciphertexts or ()
    try:
        return len(groups) == len(ciphertexts) and all(
            group["key_id"] in gone if text is None else hashlib.sha256(text).digest() == group["digest"]
            for group, text in zip(groups, ciphertexts, strict=True)
        )
    except (KeyError, TypeError):  # groups that deltarelay has not written
        return False


def decrypt_group(
    group: dict[str, Any],
    ciphertext: bytes | None,
    id: bytes,
    state: KeyState | None,
    decryptor: Decryptor,
    *,
    intact: bool,
) -> bytes | Unreadable:
    """Returns the canonical encoding of the group's columns, for ``audit.hashing.row_decoding``.

    ``state``: of the key in the registry; None where the registry has never had it. ``intact``: the row has the hash that is
    stored beside it, which readers compare with the hash in its event. A changed byte is tampering, also where the key is
    destroyed. A key with another commitment is the wrong key, also where it decrypts the ciphertext.
    """
    if not intact or (ciphertext is not None and hashlib.sha256(ciphertext).digest() != group["digest"]):
        return Unreadable("tampered")
    if state is None:
        return Unreadable("key missing")
    if state.key is None:
        assert state.shredded_at is not None
        return Unreadable("erased", state.shredded_at.date(), state.shredded_by)
    if ciphertext is None:
        return Unreadable("removed")
    if decryptor.commitment(state.key) != group["commitment"]:
        return Unreadable("wrong key")
    try:
        return decryptor.decrypt(state.key, ciphertext, associated_data=_associated_data(id, group["class"]))
    except DecryptionFailed:
        return Unreadable("tampered")


def _associated_data(id: bytes, class_name: str) -> bytes:
    return _CONTEXT + len(id).to_bytes(1, "big") + id + class_name.encode()
