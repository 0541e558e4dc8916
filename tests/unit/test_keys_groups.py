"""A class of columns sealed in its row: what opens, what does not, and what a reader is shown then."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from audit.decoding import decode, decoded_column
from audit.encoding import encode_rows
from audit.keys.cipher import Sealer, commitment
from audit.keys.groups import Group, Unreadable, read_group, seal_groups, sealed_row_hash
from audit.keys.registry import KeyState

CONTACT = T.StructType().add("email", "string").add("phone", "long")
ROWS = pa.record_batch({"email": ["ada@example.org", None, "b"], "phone": [1, 2, None], "other": ["x", "y", "z"]})
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def made(count: int = 3) -> tuple[list[Group], list[bytes], list[tuple[bytes, bytes]]]:
    keys = [(os.urandom(16), os.urandom(32)) for _ in range(count)]
    ids = [os.urandom(16) for _ in range(count)]
    groups = seal_groups(ROWS.slice(0, count), CONTACT, "contact", keys, ids, Sealer())
    return [group for group in groups if group is not None], ids, keys


def living(key: tuple[bytes, bytes]) -> KeyState:
    return KeyState(key[0], "contact", key[1])


def test_what_was_sealed_is_read() -> None:
    groups, ids, keys = made()
    read = [
        read_group(group, id, living(key), commitment(key[1]), intact=True)
        for group, id, key in zip(groups, ids, keys, strict=True)
    ]
    assert read == encode_rows(ROWS, CONTACT)
    back = decoded_column([one for one in read if isinstance(one, bytes)], CONTACT).to_pylist()
    assert back == [{name: row[name] for name in ("email", "phone")} for row in ROWS.to_pylist()]
    assert decode(encode_rows(ROWS, CONTACT)[0], CONTACT) == {"email": b"ada@example.org", "phone": 1}
    assert all(b"ada" not in group.sealed for group in groups)
    assert "ada" not in repr(groups)


def test_a_row_of_nobody_is_not_sealed() -> None:
    _, ids, keys = made()
    assert seal_groups(ROWS, CONTACT, "contact", [None, *keys[1:]], ids, Sealer())[0] is None


@pytest.mark.parametrize("at", [0, 5, 20, 30, -1])
def test_one_changed_byte_is_tampering_and_no_erasure(at: int) -> None:
    [group], [id], [key] = made(1)
    changed = bytearray(group.sealed)
    changed[at] ^= 1
    other = replace(group, sealed=bytes(changed))
    assert other.digest != group.digest  # so the row's hash is no more that of its event
    assert str(read_group(other, id, living(key), commitment(key[1]), intact=True)) == "[tampered]"
    gone = KeyState(key[0], "contact", None, NOW, "er-17")
    assert read_group(other, id, gone, commitment(key[1]), intact=False) == Unreadable("tampered")
    assert str(read_group(group, id, gone, commitment(key[1]), intact=True)) == "[erased 2026-11-20, er-17]"


def test_it_opens_in_its_row_and_class_only() -> None:
    groups, ids, keys = made(2)
    told = living(keys[0]), commitment(keys[0][1])
    assert read_group(groups[0], ids[1], *told, intact=True) == Unreadable("tampered")
    assert read_group(replace(groups[0], class_name="billing"), ids[0], *told, intact=True) == Unreadable("tampered")


def test_keys_that_are_not_the_one() -> None:
    [group], [id], [key] = made(1)
    other = (key[0], os.urandom(32))
    assert str(read_group(group, id, None, commitment(key[1]), intact=True)) == "[key missing]"
    assert str(read_group(group, id, living(other), commitment(key[1]), intact=True)) == "[wrong key]"
    # Even one that would open it
    assert str(read_group(group, id, living(key), commitment(other[1]), intact=True)) == "[wrong key]"
    assert str(read_group(group, id, living(key), None, intact=True)) == "[wrong key]"


def test_the_hash_covers_what_is_sealed_and_not_what_is_in_it() -> None:
    groups, ids, keys = made(2)
    salt, encoded = os.urandom(16), b"the other columns"
    billing = replace(groups[1], class_name="billing")
    found = sealed_row_hash(salt, encoded, [groups[0], billing])
    assert found == sealed_row_hash(salt, encoded, [billing, groups[0]])
    others = [
        sealed_row_hash(salt, encoded, [groups[0]]),
        sealed_row_hash(salt, encoded, []),
        sealed_row_hash(salt, encoded + b".", [groups[0], billing]),
        sealed_row_hash(salt, encoded, [replace(groups[0], key_id=keys[1][0]), billing]),
        sealed_row_hash(salt, encoded, [replace(groups[0], class_name="b"), billing]),
        sealed_row_hash(salt, encoded, [replace(groups[0], sealed=groups[0].sealed[:-1]), billing]),
        sealed_row_hash(ids[0], encoded, [groups[0], billing]),
    ]
    assert len({found, *others}) == 1 + len(others)
    # Sealed again it is another row, though nothing in it changed
    again = seal_groups(ROWS.slice(0, 1), CONTACT, "contact", keys[:1], ids[:1], Sealer())
    assert again[0] is not None
    assert again[0].digest != groups[0].digest
    with pytest.raises(ValueError, match="16 bytes"):
        sealed_row_hash(b"", encoded, [])
