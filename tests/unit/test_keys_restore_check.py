"""A backup of the key registry is approved only if it is what ``keys backup`` writes: ``psql`` runs whatever is in it."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.encryption.aead import Encryptor, commitment
from audit.encryption.backup import END, backup_mac, head, script
from audit.encryption.key_registry.bindings import (
    SHARDS_OF_RELEASE_0_1,
    key_binding,
    link_mac,
    lookup_key_binding,
    mac_key_binding,
    shard_binding,
    shard_of,
)
from audit.encryption.restore_check import check_backup
from audit.encryption.root_keys import FileRoot
from cdf.errors import CdfError, ConfigError, VerificationError

ROOT, MAC_KEY, SCHEMA = FileRoot.generate(), os.urandom(32), 'ke"ys'


def _cell(value: object) -> str:
    return "\\N" if value is None else f"\\\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def _rows(count: int = 1) -> dict[str, list[tuple[object, ...]]]:
    shards = {shard: os.urandom(32) for shard in range(count)}
    people = [(os.urandom(32), os.urandom(16)) for _ in range(2)]
    keys: list[tuple[object, ...]] = []
    for _, token in people:
        key_id, key = os.urandom(16), os.urandom(32)
        wrapped = Encryptor().encrypt(
            shards[shard_of(token, count)], key, associated_data=key_binding(key_id, token, "contact")
        )
        keys.append((key_id, token, "contact", 1, wrapped, commitment(key), "2026-01-01 00:00:00+00", None, None))
    return {
        "epoch": [(1, ROOT.name, "2026-01-01 00:00:00+00", None, None, ROOT.wrap(MAC_KEY, context=mac_key_binding(1)))],
        "shard": [(1, shard, ROOT.wrap(key, context=shard_binding(1, shard))) for shard, key in shards.items()],
        "lookup_key": [("t", 1, ROOT.wrap(os.urandom(32), context=lookup_key_binding(1)))],
        "identifier": [(lookup, token, 1, link_mac(MAC_KEY, lookup, token, 1)) for lookup, token in people],
        "key": keys,
        "shreds": [("t", 0)],
        "reading": [(1, "2026-01-01 00:00:00+00", "r", "r", "a\\tb\\nselect 1;", "history", "trail", 0, None)],
    }


def _body(rows: dict[str, list[tuple[object, ...]]], schema: str = SCHEMA) -> bytes:
    text = head(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 1, ROOT.name)
    for table, before in script(schema):
        text += before
        text += "".join("\t".join(map(_cell, row)) + "\n" for row in rows.get(table or "", []))
    return text.encode()


def _signed(body: bytes) -> bytes:
    mac = backup_mac(MAC_KEY)
    mac.update(body)
    return body + END + mac.hexdigest().encode() + b"\n"


ROWS, OLD_ROWS = _rows(), _rows(SHARDS_OF_RELEASE_0_1)
BODY = _body(ROWS)


def _swap(rows: dict[str, list[tuple[object, ...]]]) -> bytes:
    (one, one_token, *one_rest), (two, two_token, *two_rest) = rows["identifier"]
    return _body({**rows, "identifier": [(one, two_token, *one_rest), (two, one_token, *two_rest)]})


def _before(text: bytes, more: bytes) -> bytes:
    assert text in BODY
    return BODY.replace(text, more + text)


FIRST_KEY = _cell(ROWS["key"][0][0]).encode()
HOSTILE = {
    "a command of psql": _before(b"commit;\n", b"\\! touch here\n"),
    "before all": _before(b"begin;\n", b"\\! touch here\n"),
    "in the head": BODY.replace(b"-- before:", b"\\! touch here\n-- before:"),
    "keys deleted": _before(b"commit;\n", b"delete from key;\n"),
    "after the end": BODY + b"delete from keys.key;\n",
    "no commit": BODY.replace(b"commit;\n", b""),
    "another schema": _body(ROWS, "other"),
    "another function": BODY.replace(b"clock_timestamp()", b"pg_sleep(9)", 1),
    "another table": _before(b"commit;\n", b'copy "shreds" ("one", "count") from stdin;\n\\.\n'),
    "a table that comes earlier": BODY.replace(b'copy "key"', b'copy "shreds"', 1),
    "an end that psql takes for one": _before(FIRST_KEY, b"\\.\r\n\\! touch here\n"),
    "a row too many cells": _before(FIRST_KEY, b"\\N\t"),
    "swapped tokens": _swap(ROWS),
    "a key of another": _body({**ROWS, "key": [(ROWS["key"][1][0], *ROWS["key"][0][1:]), ROWS["key"][1]]}),
    "the epoch key gone": _body({**ROWS, "shard": []}),
    "one of the epoch keys of release 0.1 gone": _body({**OLD_ROWS, "shard": OLD_ROWS["shard"][:-1]}),
}


def check(file: Path, data: bytes) -> int:
    file.write_bytes(data)
    return check_backup(file, ROOT, None, SCHEMA).living


@pytest.mark.parametrize("rows", [ROWS, OLD_ROWS], ids=["one epoch key", "those of release 0.1"])
def test_what_was_written_is_approved(tmp_path: Path, rows: dict[str, list[tuple[object, ...]]]) -> None:
    assert check(tmp_path / "b.sql", _signed(_body(rows))) == 2


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_nothing_else_is(tmp_path: Path, body: bytes) -> None:
    assert body != BODY
    by_anyone: list[Callable[[bytes], bytes]] = [
        lambda text: text + b"-- complete, sha256 " + hashlib.sha256(text).hexdigest().encode() + b"\n",
        lambda text: text + END + hashlib.sha256(text).hexdigest().encode() + b"\n",
        lambda text: text + _signed(BODY)[len(BODY) :],
    ]
    for sign in by_anyone:
        with pytest.raises(VerificationError, match=r"was altered after it was written|is truncated|lacks rows"):
            check(tmp_path / "b.sql", sign(body))
    # Not even if its MAC is right
    with pytest.raises(CdfError, match=r"contains more than|are not those that were created|lacks rows"):
        check(tmp_path / "b.sql", _signed(body))


def test_others_are_named(tmp_path: Path) -> None:
    for data, said in (
        (_signed(BODY)[: len(BODY) // 2], "is truncated"),
        (_signed(BODY)[:-1], "is truncated"),
        (b"", "is not a backup"),
        (b"select 1;\n", "is not a backup"),
        (BODY.replace(b"backup v2", b"backup v1") + END + b"0" * 64 + b"\n", "another release"),
        (_signed(BODY.replace(ROOT.name.encode(), b"file:00000000", 1)), "under the root key file:00000000"),
        (_signed(BODY).replace(b"\\\\x", b"\\\\x0", 1), "was altered after it was written"),
    ):
        with pytest.raises((VerificationError, ConfigError), match=said):
            check(tmp_path / "b.sql", data)
