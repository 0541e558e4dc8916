"""A class of columns sealed in its row: what opens, what does not, and what a reader is shown then."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from audit.encryption.aead import Decryptor, commitment
from audit.encryption.column_groups import PersonColumns, RowKeys, Unreadable, decrypt_group, encrypt_rows, is_complete
from audit.encryption.key_registry import KeyState
from audit.hashing.row_decoding import decode_rows
from audit.hashing.row_encoding import encode_rows, row_hash
from audit.trail.column_history import GROUPS, SEALED

SCHEMA = T.StructType().add("Email", "string").add("phone", "long").add("other", "string")
CONTACT = T.StructType(SCHEMA.fields[:2])
OWNER = PersonColumns("customer", "id", "id", "exact", (("contact", ("email", "PHONE")), ("gone", ("fax",))))
FRIEND = PersonColumns("customer", "id", "friend", "exact", (("contact", ("other",)),))
ROWS = pa.record_batch({"Email": ["ada@example.org", None, "b"], "phone": [1, 2, None], "other": ["x", "y", "z"]})
IDS = [os.urandom(16) for _ in range(3)]
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def keys(*classes: str) -> RowKeys:
    return RowKeys(os.urandom(16), tuple((os.urandom(16), os.urandom(32)) for _ in classes))


OWNERS = [keys("contact", "gone"), keys("contact", "gone"), None]
FRIENDS = [keys("contact"), None, None]


class Made:
    def __init__(self, withheld: tuple[int, ...] = ()) -> None:
        rows, groups, texts = encrypt_rows(ROWS, SCHEMA, [OWNER, FRIEND], [OWNERS, FRIENDS], IDS, withheld)
        self.rows, self.array = rows.to_pylist(), groups
        self.groups: list[list[dict[str, Any]]] = [one or [] for one in groups.to_pylist()]
        self.texts: list[list[bytes]] = [one or [] for one in texts.to_pylist()]

    def read(self, state: KeyState | None, *, intact: bool = True, **changed: Any) -> bytes | Unreadable:
        """The first group of the first row."""
        told = {"group": self.groups[0][0], "ciphertext": self.texts[0][0], "id": IDS[0]} | changed
        return decrypt_group(**told, state=state, decryptor=Decryptor(), intact=intact)


def living(held: RowKeys | None, at: int = 0) -> KeyState:
    assert held is not None
    return KeyState(held.keys[at][0], "contact", held.keys[at][1])


def gone(held: RowKeys | None) -> KeyState:
    return replace(living(held), key=None, shredded_at=NOW, shredded_by="er-17")


def test_what_was_sealed_is_read() -> None:
    made = Made()
    read = [
        decrypt_group(groups[0], texts[0], id, living(held), Decryptor(), intact=True)
        for groups, texts, id, held in zip(made.groups[:2], made.texts, IDS, OWNERS, strict=False)
    ]
    assert read == encode_rows(ROWS.slice(0, 2), CONTACT)
    back, right = decode_rows([one for one in read if isinstance(one, bytes)], CONTACT)
    assert right == [True, True]
    assert [values.to_pylist() for values in back] == [
        ROWS.slice(0, 2).column(name).to_pylist() for name in CONTACT.names
    ]
    assert all(b"ada" not in text for texts in made.texts for text in texts)
    assert "key" not in repr(OWNERS[0]).replace("keys", "")


def test_each_person_s_columns_leave_the_row_and_a_row_of_nobody_stays_as_it_is() -> None:
    made = Made()
    assert made.rows == [
        {"Email": None, "phone": None, "other": None},
        {"Email": None, "phone": None, "other": "y"},
        {"Email": "b", "phone": None, "other": "z"},
    ]
    told = [[(one["class"], one["columns"]) for one in groups] for groups in made.groups]
    assert told == [[("contact", ["Email", "phone"]), ("contact", ["other"])], [("contact", ["Email", "phone"])], []]
    assert [one["token"] for one in made.groups[0]] == [OWNERS[0].token, FRIENDS[0].token]  # type: ignore[union-attr]


def test_what_is_withheld_is_kept_nowhere() -> None:
    made = Made(withheld=(0,))
    assert (made.rows[0], made.groups[0], made.texts[0]) == (dict.fromkeys(SCHEMA.names), [], [])
    assert made.rows[1]["other"] == "y"


@pytest.mark.parametrize("at", [0, 5, 20, 30, -1])
def test_one_changed_byte_is_tampering_and_no_erasure(at: int) -> None:
    made = Made()
    changed = bytearray(made.texts[0][0])
    changed[at] ^= 1
    for state in (living(OWNERS[0]), gone(OWNERS[0]), None):
        assert str(made.read(state, ciphertext=bytes(changed))) == "[tampered]"
    assert made.read(gone(OWNERS[0]), intact=False) == Unreadable("tampered")
    assert str(made.read(gone(OWNERS[0]))) == "[erased 2026-11-20, er-17]"
    assert str(made.read(gone(OWNERS[0]), ciphertext=None)) == "[erased 2026-11-20, er-17]"
    assert str(made.read(living(OWNERS[0]), ciphertext=None)) == "[removed]"


def test_it_opens_in_its_row_and_class_only() -> None:
    made = Made()
    assert made.read(living(OWNERS[0]), id=IDS[1]) == Unreadable("tampered")
    assert made.read(living(OWNERS[0]), group={**made.groups[0][0], "class": "billing"}) == Unreadable("tampered")


def test_keys_that_are_not_the_one() -> None:
    made = Made()
    assert str(made.read(None)) == "[key missing]"
    assert str(made.read(replace(living(OWNERS[0]), key=os.urandom(32)))) == "[wrong key]"
    # Even one that would open it
    other = {**made.groups[0][0], "commitment": commitment(os.urandom(32))}
    assert str(made.read(living(OWNERS[0]), group=other)) == "[wrong key]"


def test_the_hash_covers_what_is_sealed_and_not_what_is_in_it() -> None:
    schema, salt = T.StructType([*SCHEMA.fields, T.StructField(SEALED, GROUPS)]), os.urandom(16)

    def hashed(groups: list[dict[str, Any]] | None) -> bytes:
        row = pa.record_batch(
            [*(pa.nulls(1, one) for one in ROWS.schema.types), pa.array([groups], made.array.type)], names=schema.names
        )
        return row_hash(salt, encode_rows(row, schema)[0])

    made = Made()
    first, second = made.groups[0]
    assert is_complete(made.groups[0], made.texts[0])
    assert not is_complete(made.groups[0], made.texts[0][::-1])
    assert not is_complete(made.groups[0], made.texts[0][:1])
    assert not is_complete(made.groups[0], [made.texts[0][0], None])
    assert not is_complete(None, made.texts[0])
    assert is_complete(None, None)
    for of_others in ([None], ["a"], [{"key_id": IDS[0]}]):
        assert not is_complete(of_others, [b"x"])  # type: ignore[arg-type]
    others = [hashed([{**first, name: second[name] if name != "class" else "b"}, second]) for name in first]
    found = {hashed([first, second]), hashed([second, first]), hashed([first]), *others}
    assert len(found) == 3 + len(others)
    # A row without groups has the hash that it always had
    plain = pa.record_batch([pa.nulls(1, one) for one in ROWS.schema.types], names=SCHEMA.names)
    assert hashed(None) == row_hash(salt, encode_rows(plain, SCHEMA)[0])
    # Sealed again it is another row, though nothing in it changed
    assert Made().groups[0][0]["digest"] != first["digest"]
