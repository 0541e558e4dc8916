"""The page *Proof format* is complete: this verifier is written from it alone and imports nothing of ours."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from hashlib import sha256
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.acceptance.commands import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reference"
PAGE = (FOLDER / "proof-format.md").read_text()
EXAMPLE = (FOLDER / "proof-example.txt").read_text()
KEY = re.findall(r"^vector\.example\.org/trail\+\S+$", PAGE, re.MULTILINE)[0]

LAYOUT = re.compile(
    r"deltarelay-audit-proof v1\nevent (\S+)\n(?:salt (\S+)\nrow (\S+)\n)?leaf (\d+) of (\d+)\n((?:\S+\n)*)record (\S+)\n\n"
    r"c2sp\.org/tlog-proof@v1\nindex (\d+)\n((?:\S+\n)*)\n((\S+)\n(\d+)\n(\S+)\n)\n((?:\u2014 \S+ \S+\n)+)"
)


def verify(text: str, key: str) -> dict[str, Any]:
    """→ the row. Raises ValueError where the proof does not hold."""
    found = LAYOUT.fullmatch(text)
    if found is None:
        raise ValueError("layout")
    event_text, salt, row, index, size, path, record_text, sequence, ledger_path, signed, _, records, root, notes = (
        found.groups()
    )
    event, record = struct_of(plain(event_text)), json.loads(plain(record_text))
    if sha256(b"CRE1" + plain(salt) + plain(row)).digest() != event["row_hash"]:
        raise ValueError("row")
    same = ("table_id", "version")
    if [event[name] for name in same] != [record[name] for name in same] or event["baseline"] != (
        record["kind"] == "baseline"
    ):
        raise ValueError("commit")
    since = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=event["committed_at"])
    if since.isoformat(timespec="microseconds") + "Z" != record["committed_at"]:
        raise ValueError("time")
    if (int(index), int(size)) != (event["index"], record["rows"]) or int(sequence) != record["sequence"]:
        raise ValueError("place")
    if climb(plain(event_text), int(index), int(size), path) != bytes.fromhex(record["rows_root"]):
        raise ValueError("commit tree")
    if climb(plain(record_text), int(sequence), int(records), ledger_path) != plain(root):
        raise ValueError("ledger tree")
    name, number, public = re.fullmatch(r"([^+]+)\+([0-9a-f]{8})\+(\S+)", key).groups()  # type: ignore[union-attr]
    if sha256(name.encode() + b"\n" + plain(public)).digest()[:4].hex() != number:
        raise ValueError("key")
    signatures = [plain(line.split()[2]) for line in notes.splitlines() if line.split()[1] == name]
    for signature in [one for one in signatures if one[:4].hex() == number] or [b"    "]:
        try:
            Ed25519PublicKey.from_public_bytes(plain(public)[1:]).verify(signature[4:], signed.encode())
        except InvalidSignature:
            raise ValueError("signature") from None
    return struct_of(plain(row))


def plain(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("base64")
    return data


def climb(data: bytes, index: int, size: int, path: str) -> bytes:
    """The root that a leaf and its inclusion path lead to (RFC 9162, 2.1.3.2)."""
    node, last, digest = index, size - 1, sha256(b"\x00" + data).digest()
    for line in path.splitlines():
        if node & 1 or node == last:
            digest = sha256(b"\x01" + plain(line) + digest).digest()
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            digest = sha256(b"\x01" + digest + plain(line)).digest()
        node, last = node >> 1, last >> 1
    return digest if last == 0 else b""


def struct_of(data: bytes) -> dict[str, Any]:
    """The fields of a CRE1 struct of booleans, integers, strings, binaries and timestamps."""
    at, fields = 5, {}

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    for _ in range(int.from_bytes(data[1:5], "big")):
        name, tag = take(int.from_bytes(take(4), "big")).decode(), take(1)[0]
        if tag == 0x01:
            fields[name] = take(1) == b"\x01"
        elif tag in (0x02, 0x08):
            fields[name] = int.from_bytes(take(8), "big", signed=True)
        else:
            value = take(int.from_bytes(take(4), "big"))
            fields[name] = value.decode() if tag == 0x05 else value
    return fields


def test_a_verifier_written_from_the_page_accepts_the_example() -> None:
    assert verify(EXAMPLE, KEY) == {"id": 1, "name": "Ada"}


def test_it_refuses_each_changed_line() -> None:
    for number, line in enumerate(lines := EXAMPLE.splitlines(keepends=True)):
        for at in (0, len(line) // 2, max(0, len(line) - 3)):
            if line[at] in "\n\u2014":
                continue
            changed = line[:at] + ("A" if line[at] != "A" else "B") + line[at + 1 :]
            with pytest.raises((ValueError, KeyError, IndexError)):
                verify("".join([*lines[:number], changed, *lines[number + 1 :]]), KEY)


def test_ours_agrees() -> None:
    from audit.proof import check

    assert check(EXAMPLE, [KEY]).row == {"id": 1, "name": "Ada"}
