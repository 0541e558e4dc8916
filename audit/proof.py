"""Checks that one change is contained in a signed audit trail, from a proof file and a public key alone.

    python proof.py PROOF --key VERIFIER_KEY [--origin ORIGIN] [--show-row] [--json]

It needs only this file, Python 3.11 and the package `cryptography`: no tables, no network, no other module of deltarelay.
It is one long file on purpose: an auditor can copy it, and read it from top to bottom before trusting it:

    1. trees    SHA-256 Merkle trees of RFC 9162 section 2.1: one root for a list, an inclusion proof for an item
    2. notes    signed notes and checkpoints (c2sp.org/signed-note, c2sp.org/tlog-checkpoint) with Ed25519
    3. values   CRE1, the binary encoding of a row or an event
    4. files    the lines of a proof file, the event and the ledger record in it
    5. check    row → event → commit → ledger → signature: what each step proves, or why it does not
    6. command  exit codes: 0 proven, 1 not proven, 2 wrong arguments
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class ProofError(Exception):
    """Not proven. ``step``: the first step that fails: key, file, row, commit, ledger or signature."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


# 1. trees ------------------------------------------------------------------------------------------------------------


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root_from_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Compute the root of the tree of ``size`` leaves that has the hash ``leaf`` at ``index`` (RFC 9162, 2.1.3.2).

    Raises ValueError if a path of that length does not fit the index.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no index {index}")
    for is_left, sibling in _siblings(index, size - 1, path):
        leaf = node_hash(sibling, leaf) if is_left else node_hash(leaf, sibling)
    return leaf


def _siblings(node: int, last: int, path: Sequence[bytes]) -> Iterator[tuple[bool, bytes]]:
    """The hashes on the path from ``node`` to the root, and whether each is a left sibling. ``last``: last node of the
    level."""
    for sibling in path:
        if last == 0:
            raise ValueError("the path is longer than the height of the tree")
        is_left = bool(node & 1) or node == last
        while is_left and node and not node & 1:  # a last node without a sibling moves up unchanged
            node, last = node >> 1, last >> 1
        yield is_left, sibling
        node, last = node >> 1, last >> 1
    if last:
        raise ValueError("the path does not reach the root")


# 2. notes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key, as text ``name+hex(key id)+base64(01 || public key)``."""

    name: str
    public: bytes

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        if (found := re.fullmatch(r"([^\s+]+)\+([0-9a-f]{8})\+(\S+)", text.strip())) is None:
            raise ProofError("key", "not a verifier key: name+id+base64")
        key = cls(found[1], _unbase64(found[3], step="key")[1:])
        if str(key) != found[0] or len(key.public) != 32:
            raise ProofError("key", "not an Ed25519 verifier key, or a damaged one")
        return key

    @property
    def id(self) -> bytes:
        return sha256(self.name.encode() + b"\n\x01" + self.public).digest()[:4]

    def verify(self, data: bytes, signature: bytes) -> None:
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, data)
        except InvalidSignature:
            raise ProofError("signature", f"the signature of {_printable(self.name)} is invalid") from None

    def __str__(self) -> str:
        return "+".join((self.name, self.id.hex(), base64_text(b"\x01" + self.public)))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a signature covers: the ledger ``origin`` had ``size`` records with the Merkle root ``root``."""

    origin: str
    size: int
    root: bytes


def read_note(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """→ the signed text, and key name, key id and bytes of each signature. Nothing is verified yet."""
    if (found := _NOTE.fullmatch(note)) is None or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise ProofError(
            "file", "a signed note must be a text, an empty line and signatures, each line ended by a newline"
        )
    signed = [(name, _unbase64(encoded)) for _, name, encoded in map(str.split, found[2].splitlines())]
    if any(len(signature) < 5 for _, signature in signed):
        raise ProofError("file", "a signature is too short")
    return found[1], [(name, signature[:4], signature[4:]) for name, signature in signed]


def verify_note(note: str, keys: Iterable[VerifierKey]) -> tuple[str, tuple[str, ...]]:
    """→ the signed text, and the names of those of ``keys`` that signed it, at least one. Other signatures are ignored."""
    text, signatures = read_note(note)
    known = {(key.name, key.id): key for key in keys}
    signers = []
    for name, number, signature in signatures:
        if (name, number) in known:
            known[name, number].verify(text.encode(), signature)
            signers.append(name)
    if not signers:
        raise ProofError("signature", "the checkpoint is not signed by this key")
    return text, tuple(dict.fromkeys(signers))


def read_checkpoint(text: str) -> Checkpoint:
    """Parse the text of a note. Extension lines, which the format discourages, are refused."""
    origin, size, root, *rest = [*text.split("\n"), "", ""]
    if rest != ["", "", ""] or not origin or not re.fullmatch(_NUMBER, size):
        raise ProofError("file", "a checkpoint must be an origin, a size and a root, one line each")
    return Checkpoint(origin, int(size), _unbase64(root, size=32))


# 3. values -----------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Any:
    """Decode CRE1 bytes: a struct as dict, a map as list of pairs, other values as the Python type."""
    reader = _Reader(data)
    try:
        value = reader.value()
    except (UnicodeDecodeError, RecursionError):
        raise ProofError("file", "an encoded value has a name that is not UTF-8, or is nested too deeply") from None
    if reader.at != len(data):
        raise ProofError("file", "unexpected bytes after an encoded value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise ProofError("file", "an encoded value is incomplete")
        return self.data[self.at - count : self.at]

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "big", signed=signed)

    def sized(self) -> bytes:
        return self.take(self.number(4))

    def value(self, *, nullable: bool = False) -> Any:
        match self.number(1):
            case 0x00 if nullable:
                return None
            case 0x01 if (byte := self.number(1)) < 2:
                return byte == 1
            case 0x02:
                return self.number(8, signed=True)
            case 0x03:
                return struct.unpack(">d", self.take(8))[0]
            case 0x04:
                scale, unscaled = self.number(4, signed=True), int.from_bytes(self.sized(), "big", signed=True)
                if abs(scale) <= 38 and abs(unscaled) < 10**38:
                    return Decimal(f"{unscaled}e{-scale}")
            case 0x05:
                return self.sized().decode(errors="surrogateescape")  # Parquet can contain text that is not UTF-8
            case 0x06:
                return self.sized()
            case 0x07:
                return _since(date(1970, 1, 1), self.number(8, signed=True), "days")
            case 0x08:
                return _since(datetime(1970, 1, 1, tzinfo=UTC), self.number(8, signed=True), "microseconds")
            case 0x09:
                return _since(datetime(1970, 1, 1), self.number(8, signed=True), "microseconds")
            case 0x0A:
                return [self.value(nullable=True) for _ in range(self.number(4))]
            case 0x0B:
                return self.pairs(named=False)
            case 0x0C:
                return {name.decode(): value for name, value in self.pairs(named=True)}
        raise ProofError("file", "an encoded value has an unknown type, or is out of range")

    def pairs(self, *, named: bool) -> list[tuple[Any, Any]]:
        """Fields of a struct or entries of a map, which must be in the order of their encoded keys, without duplicates."""
        pairs, before = [], None
        for _ in range(self.number(4)):
            start = self.at
            key = self.sized() if named else self.value()
            encoded = key if named else self.data[start : self.at]
            if before is not None and encoded <= before:
                raise ProofError("file", "fields or entries of an encoded value are not in ascending order")
            before = encoded
            pairs.append((key, self.value(nullable=not named)))
        return pairs


def _since(epoch: date, count: int, unit: str) -> date | str:
    try:
        return epoch + timedelta(**{unit: count})
    except OverflowError:  # the calendar of Python has fewer days than 64 bits
        return f"{count} {unit} since {epoch.isoformat()}"


# 4. files ------------------------------------------------------------------------------------------------------------

_NUMBER = r"0|[1-9][0-9]{0,17}"
_HEAD = re.compile(
    r"deltarelay-audit-proof v1\n"
    r"event (\S+)\n"
    r"(?:salt (\S+)\nrow (\S+)\n)?"
    rf"leaf ({_NUMBER}) of ({_NUMBER})\n((?:\S+\n)*)"
    r"record (\S+)\n\n"
)
_NOTE = re.compile(r"([\s\S]*\n)\n((?:\u2014 [^\s+]+ \S+\n)+)")
_TLOG_PROOF = re.compile(rf"c2sp\.org/tlog-proof@v1\nindex ({_NUMBER})\n((?:\S+\n)*)\n(.*)", re.DOTALL)
_EVENT = {"table_id": str, "version": int, "index": int, "id": bytes, "committed_at": datetime, "change_type": str}
_EVENT |= {"baseline": bool, "changed_columns": list, "row_hash": bytes}
_RECORD = {"sequence": int, "kind": str, "table_id": str, "version": int, "rows": int, "rows_root": str}
_NULLABLE = {"committed_at": str, "operation": str}  # null if the source's log does not have it


@dataclass(frozen=True, slots=True)
class Proof:
    """Content of a proof file, not yet checked. ``salt`` and ``row`` are None if the row is not disclosed."""

    event: bytes
    salt: bytes | None
    row: bytes | None
    index: int
    size: int
    path: list[bytes]
    record: bytes
    sequence: int
    ledger_path: list[bytes]
    note: str


def read_proof(text: str) -> Proof:
    if (head := _HEAD.match(text)) is None:
        raise ProofError("file", "not a proof file, or an incomplete one")
    event, salt, row, index, size, path, record = head.groups()
    return Proof(
        _unbase64(event),
        _unbase64(salt, size=16) if salt else None,
        _unbase64(row) if row else None,
        int(index),
        int(size),
        [_unbase64(line, size=32) for line in path.splitlines()],
        _unbase64(record),
        *read_tlog_proof(text[head.end() :]),
    )


def read_tlog_proof(text: str) -> tuple[int, list[bytes], str]:
    """→ index, path and checkpoint of a c2sp.org/tlog-proof. An ``extra`` line, which proofs of deltarelay never have, is
    refused."""
    if (found := _TLOG_PROOF.fullmatch(text)) is None:
        raise ProofError("file", "not a c2sp.org/tlog-proof@v1, or an incomplete one")
    return int(found[1]), [_unbase64(line, size=32) for line in found[2].splitlines()], found[3]


def read_event(data: bytes) -> dict[str, Any]:
    event = decode(data)
    absent = {"changed_columns": None, "committed_at": None}
    if not isinstance(event, dict) or not {**absent, **event}.keys() == _EVENT.keys():
        raise ProofError("file", "the event has missing or unknown fields")
    names = event.get("changed_columns", [])
    if any(type(value) is not _EVENT[field] for field, value in event.items()) or any(
        type(n) is not str for n in names
    ):
        raise ProofError("file", "the event has fields of wrong types")
    return event


def read_record(data: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(named := dict(pairs)) < len(pairs):
            raise ValueError("duplicate name")
        return named

    try:
        record = json.loads(data.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise ProofError("file", "the ledger record is not JSON with unique names") from None
    if (
        not isinstance(record, dict)
        or any(type(record.get(name)) is not kind for name, kind in _RECORD.items())
        or any(name not in record or type(record[name]) not in (kind, type(None)) for name, kind in _NULLABLE.items())
    ):
        raise ProofError("file", "the ledger record has missing fields, or fields of wrong types")
    return record


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str, *, size: int | None = None, step: str = "file") -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    if not data or base64_text(data) != text:  # unused bits must be zero, so that each value has one text
        raise ProofError(step, "malformed base64")
    if size not in (None, len(data)):
        raise ProofError(step, f"{len(data)} bytes, expected {size}")
    return data


# 5. check ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """What is proven. ``row`` is None if the proof does not disclose it. ``steps``: what each step proves, in order."""

    event: dict[str, Any]
    row: dict[str, Any] | None
    record: dict[str, Any]
    checkpoint: Checkpoint
    signed_by: tuple[str, ...]
    steps: tuple[str, ...]


def check(proof: str | bytes, verifier_keys: Iterable[str], *, origin: str | None = None) -> Checked:
    """Check a proof file with these keys. Raises ProofError with the first step that fails.

    At least one of the keys must have signed. ``origin``: the expected trail, if a key signs several.
    """
    keys = [VerifierKey.parse(key) for key in verifier_keys]
    try:
        parts = read_proof((proof if isinstance(proof, bytes) else proof.encode()).decode())
    except UnicodeError:
        raise ProofError("file", "the proof file is not UTF-8") from None
    event, record, row, steps = read_event(parts.event), read_record(parts.record), None, []

    if parts.row is not None and parts.salt is not None:
        row = decode(parts.row)
        hashed = sha256(b"CRE1" + parts.salt + parts.row).digest()
        if not isinstance(row, dict) or hashed != event["row_hash"]:
            raise ProofError("row", "the row does not belong to the event: it has a different hash")
        steps.append("the hash of the row is the one in the event")

    at = event.get("committed_at")
    time = None if at is None else at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    kind = "baseline" if event["baseline"] else "commit"
    if (kind, event["table_id"], event["version"], time) != tuple(
        record[name] for name in ("kind", "table_id", "version", "committed_at")
    ):
        raise ProofError("commit", "kind, table, version or time of the event differ from those of the record")
    if parts.index != event["index"]:
        raise ProofError("commit", "the index of the event differs from that of the inclusion proof")
    if parts.size != record["rows"]:
        raise ProofError("commit", "the size of the commit's tree differs from the record's number of rows")
    _check_path("commit", "the event is not in the commit", parts.event, parts.index, parts.size, parts.path,
                record["rows_root"])  # fmt: skip
    steps.append(f"the event is change {parts.index + 1} of {parts.size} in the commit of the ledger record")

    text, signers = verify_note(parts.note, keys)
    checkpoint = read_checkpoint(text)
    if origin not in (None, checkpoint.origin):
        raise ProofError("signature", "the checkpoint belongs to another trail (origin)")
    if parts.sequence != record["sequence"]:
        raise ProofError("ledger", "the sequence of the record differs from its index in the inclusion proof")
    _check_path("ledger", "the record is not in the ledger", parts.record, parts.sequence, checkpoint.size,
                parts.ledger_path, checkpoint.root.hex())  # fmt: skip
    steps.append(f"the record is number {parts.sequence + 1} of {checkpoint.size} in the ledger")
    steps.append(f"the ledger at this size is signed by {', '.join(signers)}")
    return Checked(event, row, record, checkpoint, signers, tuple(steps))


def _check_path(step: str, fault: str, data: bytes, index: int, size: int, path: list[bytes], root: str) -> None:
    try:
        found = root_from_path(leaf_hash(data), index, size, path)
    except ValueError as error:
        raise ProofError(step, f"{fault}: {error}") from None
    if found.hex() != root:
        raise ProofError(step, f"{fault}: its path leads to a different root")


# 6. command ----------------------------------------------------------------------------------------------------------

NOT_PROVEN = (
    "that the data of the source was true: rows, times, users and tickets are recorded as the source had them",
    "that other people were shown the same trail: compare origin, size and root with a checkpoint from an anchor",
    "when the trail was signed: a checkpoint has no time; the anchor that stores it may have one",
    "anything about other changes, before, after or in the same commit",
)


def report(checked: Checked, *, show_row: bool) -> dict[str, Any]:
    """What is proven and what is not, as JSON values; with the row's values only if ``show_row``."""
    checkpoint = checked.checkpoint
    return {
        "proven": True,
        "event": _plain({"changed_columns": None, "committed_at": None, **checked.event}),
        "row": _plain(checked.row) if show_row else None,
        "row_disclosed": checked.row is not None,
        "record": checked.record,
        "checkpoint": {
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": base64_text(checkpoint.root),
        },
        "signed_by": checked.signed_by,
        "because": checked.steps,
        "not_proven": NOT_PROVEN,
    }


def as_text(proven: dict[str, Any]) -> str:
    """The report as text."""
    event, record, columns = proven["event"], proven["record"], proven["event"]["changed_columns"]
    facts = {
        "table": event["table_id"],
        "version": f"{event['version']}, committed {record['committed_at'] or 'at an unknown time'}",
        "change": event["change_type"]
        + (" (baseline: the snapshot with which the trail begins)" if event["baseline"] else ""),
        "columns changed": None if columns is None else ", ".join(columns) or "none",
        **{name: record.get(name) for name in ("operation", "user", "job", "run", "ticket", "purpose", "approver")},
        "trail": "{origin}, {size} records, root {root}".format(**proven["checkpoint"]),
        **{f"row.{name}": json.dumps(value, ensure_ascii=False) for name, value in (proven["row"] or {}).items()},
    }
    if proven["row"] is None:
        facts["row"] = "in the proof; --show-row prints it" if proven["row_disclosed"] else "not disclosed by the proof"
    lines = ["PROVEN", *(f"  {name:<16} {fact}" for name, fact in facts.items() if fact is not None)]
    lines += ["because", *(f"  {step}" for step in proven["because"])]
    return "\n".join(map(_printable, [*lines, "it does not prove", *(f"  {gap}" for gap in proven["not_proven"])]))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def _printable(line: str) -> str:
    """The text without characters that control a terminal."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Checks the proof that one change is contained in a signed audit trail."
    )
    parser.add_argument("proof", type=Path, help="the proof file")
    parser.add_argument("--key", action="append", required=True, help="the trail's verifier key; may be repeated")
    parser.add_argument("--origin", help="the expected trail")
    parser.add_argument("--show-row", action="store_true", help="print the row's values, if the proof has them")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        proven = report(
            check(options.proof.read_bytes(), options.key, origin=options.origin), show_row=options.show_row
        )
    except OSError as error:
        parser.error(f"{options.proof}: {error.strerror}")
    except ProofError as error:
        if error.step == "key":
            parser.error(f"--key: {error}")
        failed = {"proven": False, "step": error.step, "reason": str(error)}
        print(json.dumps(failed) if options.json else _printable(f"NOT PROVEN ({error.step}): {error}"))
        return 1
    print(json.dumps(proven, indent=2) if options.json else as_text(proven))
    return 0


if __name__ == "__main__":
    sys.exit(main())
