"""A proof holds for what it was made for and for nothing else: every bit of it, every line, every way to mix two of them;
and the module that checks it runs on a machine that has nothing of ours."""

from __future__ import annotations

import ast
import base64
import json
import random
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit import proof
from audit.hashing.merkle import format_proof, inclusion_path, merkle_root
from audit.proof import Checkpoint, Proof, ProofError, check, decode, leaf_hash, read_proof
from audit.signing.signer import Signer
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENT
from tests.fixtures.fix_seed import examples

ORIGIN = "trail.example.org/customers/5b1d"
SIGNER, WITNESS = Signer.generate("trail.example.org/key"), Signer.generate("witness.example.org/w")
KEY = str(SIGNER.verifier)
TABLE = "5b1d7c2e-customers"
START = datetime(2026, 5, 1, 10, 11, 12, 123456, tzinfo=UTC)
SECRET_VALUE = "rose@example.org"


def cre1(value: Any) -> bytes:
    """The encoding as far as these tests need it."""
    match value:
        case bool():
            return b"\x01" + bytes([value])
        case int():
            return b"\x02" + value.to_bytes(8, "big", signed=True)
        case str():
            return b"\x05" + sized(value.encode())
        case bytes():
            return b"\x06" + sized(value)
        case datetime():
            since = value - datetime(1970, 1, 1, tzinfo=UTC)
            return b"\x08" + (since // timedelta(microseconds=1)).to_bytes(8, "big", signed=True)
        case list():
            return b"\x0a" + len(value).to_bytes(4, "big") + b"".join(map(cre1, value))
        case dict():
            held = sorted((name.encode(), cre1(item)) for name, item in value.items() if item is not None)
            return b"\x0c" + len(held).to_bytes(4, "big") + b"".join(sized(name) + item for name, item in held)
    raise TypeError


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@dataclass(frozen=True)
class Trail:
    """Commits of 1, 0, 7, 12 and 8 events; the last is a baseline."""

    rows: dict[int, list[tuple[bytes, bytes]]]
    events: dict[int, list[bytes]]
    records: list[bytes]

    def parts(self, version: int, index: int, *, size: int | None = None, signer: Signer = SIGNER) -> Proof:
        leaves = [leaf_hash(event) for event in self.events[version]]
        ledger = [leaf_hash(record) for record in self.records][:size]
        salt, row = self.rows[version][index]
        return Proof(
            event=self.events[version][index],
            salt=salt,
            row=row,
            index=index,
            size=len(leaves),
            path=inclusion_path(leaves, index),
            record=self.records[version],
            sequence=version,
            ledger_path=inclusion_path(ledger, version),
            note=signer.sign(Checkpoint(ORIGIN, len(ledger), merkle_root(ledger))),
        )


def event(version: int, index: int, row_hash: bytes, **other: Any) -> dict[str, Any]:
    kinds = ["insert", "update_preimage", "update_postimage", "delete"]
    return {
        "table_id": TABLE,
        "version": version,
        "index": index,
        "id": sha256(f"{version} {index}".encode()).digest()[:16],
        "committed_at": START + timedelta(hours=version),
        "change_type": kinds[index % 4],
        "baseline": version == 4,
        "changed_columns": ["email", "name"] if index % 4 in (1, 2) else None,
        "row_hash": row_hash,
        **other,
    }


def record(version: int, events: list[bytes], previous: bytes, **other: Any) -> bytes:
    at = (START + timedelta(hours=version)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return canonical_json(
        {
            "sequence": version,
            "kind": "baseline" if version == 4 else "commit",
            "table_id": TABLE,
            "version": version,
            "committed_at": at,
            "log_sha256": "00" * 32,
            "operation": "MERGE",
            "user": "etl",
            "ticket": "T-4711",
            "rows": len(events),
            "rows_root": merkle_root([leaf_hash(one) for one in events]).hex(),
            "previous": previous.hex(),
            **other,
        }
    )


def build() -> Trail:
    rows: dict[int, list[tuple[bytes, bytes]]] = {}
    events: dict[int, list[bytes]] = {}
    records: list[bytes] = []
    for version, size in enumerate((1, 0, 7, 12, 8)):
        salts = [sha256(f"salt {version} {index}".encode()).digest()[:16] for index in range(size)]
        values = [cre1({"id": index, "email": SECRET_VALUE, "gone": None}) for index in range(size)]
        rows[version] = list(zip(salts, values, strict=True))
        hashes = [sha256(b"CRE1" + salt + row).digest() for salt, row in rows[version]]
        events[version] = [cre1(event(version, index, one)) for index, one in enumerate(hashes)]
        records.append(record(version, events[version], leaf_hash(records[-1]) if records else bytes(32)))
    return Trail(rows, events, records)


TRAIL = build()
GOOD = TRAIL.parts(3, 5)
TEXT = format_proof(GOOD)


def failing(text: str | bytes, *keys: str, origin: str | None = None) -> tuple[str, str]:
    with pytest.raises(ProofError) as failed:
        check(text, keys or (KEY,), origin=origin)
    return failed.value.step, str(failed.value)


# ── what is proven ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_event_can_be_proven() -> None:
    for version, events in TRAIL.events.items():
        for index in range(len(events)):
            checked = check(format_proof(TRAIL.parts(version, index)), [KEY])
            assert (checked.event["version"], checked.event["index"]) == (version, index)
            assert checked.event["committed_at"] == START + timedelta(hours=version)
            assert checked.row == {"id": index, "email": SECRET_VALUE}
            assert checked.record["ticket"] == "T-4711"
            assert (checked.checkpoint.origin, checked.checkpoint.size) == (ORIGIN, 5)
            assert checked.signed_by == (SIGNER.name,)
            assert len(checked.steps) == 4


def test_also_from_a_ledger_that_was_still_shorter() -> None:
    for size in (4, 5):
        assert check(format_proof(TRAIL.parts(3, 5, size=size)), [KEY]).checkpoint.size == size


def test_what_happened_without_what_was_in_the_row() -> None:
    checked = check(format_proof(replace(GOOD, salt=None, row=None)), [KEY])
    assert checked.row is None
    assert len(checked.steps) == 3
    assert checked.event == check(TEXT, [KEY]).event


def test_a_proof_is_read_as_it_was_made() -> None:
    assert read_proof(TEXT) == GOOD
    assert check(TEXT.encode(), [KEY]) == check(TEXT, [KEY])


def test_one_of_several_keys_is_enough() -> None:
    both = format_proof(replace(GOOD, note=GOOD.note + TRAIL.parts(3, 5, signer=WITNESS).note.rpartition("\n\n")[2]))
    witness = str(WITNESS.verifier)
    assert check(both, [witness]).signed_by == (WITNESS.name,)
    assert check(both, [KEY, witness]).signed_by == (SIGNER.name, WITNESS.name)
    assert check(TEXT, [witness, KEY]).signed_by == (SIGNER.name,)
    assert check(TEXT, [KEY], origin=ORIGIN).checkpoint.origin == ORIGIN


def test_an_event_has_the_fields_that_are_written() -> None:
    assert set(EVENT.names) == proof._EVENT.keys()


# ── what is not ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_flipped_bit_is_found(seed: int) -> None:
    """One bit of each byte of the file, another one in each round of the soak."""
    chosen, data = random.Random(seed), TEXT.encode()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chosen.randrange(8)
        try:
            check(bytes(flipped), [KEY])
        except ProofError:
            continue
        pytest.fail(f"seed {seed}: byte {at} became {flipped[at]:#x} and the proof still holds")


@pytest.mark.parametrize(
    ("part", "steps"),
    [
        ("event", {"file", "row", "commit"}),
        ("salt", {"row"}),
        ("row", {"file", "row"}),
        ("path", {"commit"}),
        ("record", {"file", "commit", "ledger"}),
        ("ledger_path", {"ledger"}),
        ("note", {"file", "signature"}),
    ],
)
def test_every_flipped_bit_of_what_is_encoded_is_found(part: str, steps: set[str]) -> None:
    """Of the bytes behind the text, all bits where there are few and some of each byte where there are many."""
    whole = getattr(GOOD, part)
    text = isinstance(whole, str)
    pieces = whole if isinstance(whole, list) else [whole.encode() if text else whole]
    for place, piece in enumerate(pieces):
        for at in range(len(piece)):
            for bit in range(8) if len(piece) <= 32 else (at % 8, (at + 3) % 8):
                flipped = bytearray(piece)
                flipped[at] ^= 1 << bit
                changed: Any = [*pieces[:place], bytes(flipped), *pieces[place + 1 :]]
                if text:
                    changed = changed[0].decode(errors="replace")
                elif not isinstance(whole, list):
                    (changed,) = changed
                step, _ = failing(format_proof(replace(GOOD, **{part: changed})))
                assert step in steps


def test_every_line_has_its_place() -> None:
    lines = TEXT.split("\n")
    for at in range(len(lines)):
        failing("\n".join(lines[:at] + lines[at + 1 :]))
        if lines[at] != lines[-2]:  # a signature that is there twice is one signature
            failing("\n".join([*lines[:at], lines[at], *lines[at:]]))
        failing("\n".join([*lines[:at], "more", *lines[at:]]))
        failing("\n".join([*lines[:at], lines[at] + " ", *lines[at + 1 :]]))
        if at and lines[at] != lines[at - 1]:
            failing("\n".join([*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]))


def test_a_file_that_is_cut_off() -> None:
    for length in range(len(TEXT)):
        assert failing(TEXT[:length])[0] == "file"
    assert failing(TEXT + "\n")[0] == "file"
    assert failing(TEXT.replace("\n", "\r\n"))[0] == "file"
    assert failing(b"\xef\xbb\xbf" + TEXT.encode())[0] == "file"
    assert failing(TEXT.encode("utf-16"))[0] == "file"


def test_base64_has_one_text_for_one_value() -> None:
    line = "salt " + base64.b64encode(GOOD.salt or b"").decode()
    same = line[:-3] + chr(ord(line[-3]) + 1) + "=="  # only unused bits differ
    assert base64.b64decode(same[5:]) == GOOD.salt
    assert failing(TEXT.replace(line, same)) == ("file", "malformed base64")


OTHER_ROW = TRAIL.rows[3][6]
SAME_PLACE = TRAIL.parts(2, 5)
EVENTS = TRAIL.events[3]


def forged(version: int, events: list[bytes], index: int, **fields: Any) -> Proof:
    """Everything made anew by somebody who has not the key: only the note is still the one that was signed."""
    told = record(version, events, leaf_hash(TRAIL.records[version - 1]), **fields)
    records = [*TRAIL.records[:version], told, *TRAIL.records[version + 1 :]]
    parts = Trail(TRAIL.rows, {**TRAIL.events, version: events}, records).parts(version, index)
    return replace(parts, note=GOOD.note)


def test_a_row_of_another_event() -> None:
    another = replace(GOOD, salt=OTHER_ROW[0], row=OTHER_ROW[1])
    assert failing(format_proof(another)) == ("row", "the row does not belong to the event: it has a different hash")
    assert failing(format_proof(replace(GOOD, salt=OTHER_ROW[0])))[0] == "row"


def test_a_salt_that_could_be_the_beginning_of_another_row() -> None:
    """Of the same hash, and chosen by whoever wrote the trail: only its length tells where the row begins."""
    row = cre1({"id": 1})
    salt = b"\0" + cre1({"a": ""})[:-4] + len(row).to_bytes(4, "big")
    assert len(salt) == 16
    one = cre1(event(0, 0, sha256(b"CRE1" + salt + row).digest()))
    parts = Trail({0: [(salt, row)]}, {0: [one]}, [record(0, [one], bytes(32))]).parts(0, 0)
    assert check(format_proof(parts), [KEY]).row == {"id": 1}
    longer = salt[1:] + row
    assert decode(longer).keys() == {"a"}
    assert failing(format_proof(replace(parts, salt=salt[:1], row=longer)))[0] == "file"


def test_two_leaves_that_were_swapped() -> None:
    moved = replace(TRAIL.parts(3, 6), event=GOOD.event, salt=None, row=None)
    assert failing(format_proof(moved)) == ("commit", "the index of the event differs from that of the inclusion proof")
    swapped = [*EVENTS[:5], EVENTS[6], EVENTS[5], *EVENTS[7:]]
    relabelled = cre1({**check(TEXT, [KEY]).event, "index": 6})
    assert failing(format_proof(replace(moved, event=relabelled)))[0] == "commit"
    step, reason = failing(format_proof(replace(forged(3, swapped, 5), salt=None, row=None)))
    assert (step, "index of the event" in reason) == ("commit", True)


def test_an_event_of_another_commit() -> None:
    moved = replace(SAME_PLACE, event=GOOD.event, salt=None, row=None)
    assert failing(format_proof(moved)) == (
        "commit",
        "kind, table, version or time of the event differ from those of the record",
    )
    relabelled = cre1({**check(TEXT, [KEY]).event, "version": 2, "committed_at": START + timedelta(hours=2)})
    step, reason = failing(format_proof(replace(moved, event=relabelled)))
    assert (step, reason) == ("commit", "the event is not in the commit: its path leads to a different root")


@pytest.mark.parametrize(
    "field", [{"table_id": "another"}, {"version": 4}, {"committed_at": START}, {"baseline": True}], ids=str
)
def test_an_event_that_its_record_does_not_know(field: dict[str, Any]) -> None:
    events = [*EVENTS[:5], cre1({**check(TEXT, [KEY]).event, **field}), *EVENTS[6:]]
    step, reason = failing(format_proof(forged(3, events, 5)))
    assert (step, reason) == ("commit", "kind, table, version or time of the event differ from those of the record")


def test_a_record_of_another_commit() -> None:
    other = replace(GOOD, record=TRAIL.records[2], sequence=2, ledger_path=SAME_PLACE.ledger_path)
    assert failing(format_proof(other))[0] == "commit"


def test_a_size_that_the_record_does_not_count() -> None:
    wrong = "the size of the commit's tree differs from the record's number of rows"
    for size in (6, 11, 13, 1000):
        assert failing(format_proof(replace(GOOD, size=size))) == ("commit", wrong)
    # 12 events, of which the record does not count the last, or counts one more: the path alone would fit
    assert failing(format_proof(forged(3, EVENTS, 5, rows=11))) == ("commit", wrong)


def test_a_commit_that_was_rewritten() -> None:
    for events in (EVENTS[:-1], [*EVENTS, EVENTS[0]], [*EVENTS[:-1], EVENTS[0]]):
        step, reason = failing(format_proof(forged(3, events, 5)))
        assert (step, reason) == ("ledger", "the record is not in the ledger: its path leads to a different root")
    step, _ = failing(format_proof(forged(3, EVENTS, 5, user="somebody else")))
    assert step == "ledger"


def test_a_record_at_another_place() -> None:
    assert failing(format_proof(replace(GOOD, sequence=2)))[0] == "ledger"
    step, reason = failing(format_proof(forged(3, EVENTS, 5, sequence=2)))
    assert (step, reason) == ("ledger", "the sequence of the record differs from its index in the inclusion proof")
    short = TRAIL.parts(2, 5, size=3)
    assert failing(format_proof(replace(GOOD, note=short.note)))[0] == "ledger"


@pytest.mark.parametrize("kind", ["removal", "baseline", "something"])
def test_a_record_of_another_kind(kind: str) -> None:
    assert failing(format_proof(forged(3, EVENTS, 5, kind=kind)))[0] == "commit"


def test_paths_that_are_too_long_or_too_short() -> None:
    assert "longer" in failing(format_proof(replace(GOOD, path=[*GOOD.path, bytes(32)])))[1]
    assert "does not reach" in failing(format_proof(replace(GOOD, path=GOOD.path[:-1])))[1]
    assert "longer" in failing(format_proof(replace(GOOD, ledger_path=[*GOOD.ledger_path, bytes(32)])))[1]
    assert "does not reach" in failing(format_proof(replace(GOOD, ledger_path=GOOD.ledger_path[:-1])))[1]


def test_a_checkpoint_that_this_key_did_not_sign() -> None:
    assert failing(TEXT, str(WITNESS.verifier)) == ("signature", "the checkpoint is not signed by this key")
    anew = format_proof(TRAIL.parts(3, 5, signer=Signer.generate(SIGNER.name)))
    assert failing(anew)[0] == "signature"
    seal = Checkpoint(ORIGIN, 5, merkle_root([leaf_hash(one) for one in TRAIL.records]))
    other, unsigned = SIGNER.sign(replace(seal, size=4)).rpartition("\n\n")[2], GOOD.note.rpartition("\u2014")[0]
    assert failing(format_proof(replace(GOOD, note=unsigned + other)))[0] == "signature"
    assert failing(format_proof(replace(GOOD, note=unsigned)))[0] == "file"
    assert failing(TEXT, KEY, origin="trail.example.org/another")[0] == "signature"


def test_a_key_with_a_fault_says_so() -> None:
    assert failing(TEXT, KEY[:-1])[0] == "key"
    assert failing(TEXT, KEY, KEY.replace("+", "-"))[0] == "key"


@pytest.mark.parametrize(
    "told",
    [
        b"[]",
        b"{}",
        b"\xff",
        b"{" * 10,
        b"[" * 100_000,
        TRAIL.records[3][:-1],
        TRAIL.records[3][:-1] + b',"rows":12}',
        TRAIL.records[3].replace(b'"rows":12', b'"rows":12.0'),
        TRAIL.records[3].replace(b'"rows":12', b'"rows":true'),
        TRAIL.records[3].replace(b'"kind":"commit"', b'"kind":null'),
    ],
)
def test_what_is_no_record(told: bytes) -> None:
    assert failing(format_proof(replace(GOOD, record=told)))[0] == "file"


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "3"},
        {"version": True},
        {"row_hash": None},
        {"id": None},
        {"committed_at": 5},
        {"more": 1},
        {"changed_columns": [1]},
        {"changed_columns": "email"},
    ],
    ids=str,
)
def test_what_is_no_event(fields: dict[str, Any]) -> None:
    told = cre1({**check(TEXT, [KEY]).event, **fields})
    assert failing(format_proof(replace(GOOD, event=told)))[0] == "file"
    assert failing(format_proof(replace(GOOD, event=cre1(["event"]))))[0] == "file"


def test_a_row_is_a_struct() -> None:
    salt, row = bytes(16), cre1([1])
    events = [*EVENTS[:5], cre1(event(3, 5, sha256(b"CRE1" + salt + row).digest())), *EVENTS[6:]]
    assert failing(format_proof(replace(forged(3, events, 5), salt=salt, row=row)))[0] == "row"


@given(st.data())
@settings(max_examples=examples(200))
def test_no_file_is_a_surprise(data: st.DataObject) -> None:
    """Whatever stands there, the answer is that it is not proven."""
    lines = TEXT.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = data.draw(st.one_of(st.text(max_size=20), st.sampled_from(lines), st.just("leaf 0 of 0")))
    text = "\n".join(lines)
    if text != TEXT:
        failing(text)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────

VECTORS = {
    vector["name"]: bytes.fromhex(vector["hex"])
    for vector in json.loads(Path(__file__).with_name("row_encoding_vectors.json").read_text(encoding="utf-8"))[
        "values"
    ]
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("true", True),
        ("false", False),
        ("least byte", -128),
        ("least long", -(2**63)),
        ("double 1.5", 1.5),
        ("-infinity", float("-inf")),
        ("decimal 0", Decimal("0")),
        ("decimal 1.5 is 1.50", Decimal("1.5")),
        ("decimal 100", Decimal("100")),
        ("largest decimal", Decimal("9" * 38)),
        ("least decimal", Decimal("-" + "9" * 38)),
        ("smallest decimal", Decimal("1e-38")),
        ("decimal 10^37", Decimal("1e37")),
        ("empty string", ""),
        ("emoji", "\U0001f986"),
        ("not UTF-8", "\udcff"),
        ("binary", b"\x00\xff"),
        ("day before", date(1969, 12, 31)),
        ("last date of year 9999", date(9999, 12, 31)),
        ("largest date", "2147483647 days since 1970-01-01"),
        ("timestamp with an offset", datetime(2024, 2, 29, 12, 46, 1, 1, tzinfo=UTC)),
        ("largest timestamp", "9223372036854775807 microseconds since 1970-01-01T00:00:00+00:00"),
        ("timestamp_ntz", datetime(2024, 2, 29, 12, 46, 1, 1)),
        ("array", [1, None, -1]),
        ("array of arrays", [[], None, [""], [None]]),
        ("map in any order", [("a", None), ("b", 2)]),
        ("struct of NULLs", {}),
    ],
)
def test_values_are_read(name: str, value: Any) -> None:
    found = decode(VECTORS[name])
    assert found == value
    assert type(found) is type(value)


def test_every_published_encoding_is_read() -> None:
    for name, data in VECTORS.items():
        if name != "null":  # which only stands inside of others
            json.dumps(proof._plain(decode(data)), allow_nan=False)


@pytest.mark.parametrize(
    "data",
    [
        "", "00", "0d", "ff", "0102", "01", "02000000", "05000000026", "0500000002aa", "0a00000001", "0a0000000a00",
        "0b00000001000100", "0c0000000100000001610", "0101" + "00",
        "0c00000001 00000001 61 00",  # a field that is NULL is left out
        "0c00000002 00000001 62 0101 00000001 61 0101", "0c00000002 00000001 61 0101 00000001 61 0101",
        "0b00000002 020000000000000002 00 020000000000000001 00", "0b00000002 0101 00 0101 00",
        "0c00000001 00000001 ff 0101",
        "04 00000027 00000001 01", "04 ffffffd9 00000001 01", "04 00000000 00000011 00ffffffffffffffffffffffffffffffff",
        "0a00000001" * 3000 + "0101",
    ],
)  # fmt: skip
def test_bytes_that_are_no_value(data: str) -> None:
    with pytest.raises(ProofError) as failed:
        decode(bytes.fromhex(data.replace(" ", "").ljust(-(-len(data.replace(" ", "")) // 2) * 2, "0")))
    assert failed.value.step == "file"


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: b"\x0c\0\0\0\1\0\0\0\1a" + data))
@settings(max_examples=examples(500))
def test_no_bytes_are_a_surprise(data: bytes) -> None:
    with suppress(ProofError):
        decode(data)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.proof"
    path.write_text(TEXT, encoding="utf-8", newline="")
    return path


def test_people_read_what_is_proven_and_what_is_not(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proof.main([str(file), "--key", KEY]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PROVEN\n")
    for fact in (TABLE, "3, committed 2026-05-01T13:11:12.123456Z", "update_preimage", "email, name", "MERGE", "etl"):
        assert fact in out
    assert "T-4711" in out
    assert ORIGIN in out
    assert SIGNER.name in out
    assert "it does not prove" in out
    assert "another" not in out
    assert "--show-row" in out
    assert SECRET_VALUE not in out


def test_values_are_shown_when_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ([], ["--json"]):
        assert proof.main([str(file), "--key", KEY, "--show-row", *form]) == 0
        assert SECRET_VALUE in capsys.readouterr().out
    assert proof.main([str(file), "--key", KEY, "--json"]) == 0
    out = capsys.readouterr().out
    assert SECRET_VALUE not in out
    told = json.loads(out)
    assert told["proven"] is True
    assert told["row"] is None
    assert told["row_disclosed"] is True
    assert told["event"]["changed_columns"] == ["email", "name"]
    assert told["record"]["ticket"] == "T-4711"
    assert told["checkpoint"] == {
        "origin": ORIGIN,
        "size": 5,
        "root": base64.b64encode(merkle_root([leaf_hash(one) for one in TRAIL.records])).decode(),
    }
    assert len(told["not_proven"]) == 4


def test_a_row_that_is_not_disclosed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(format_proof(replace(GOOD, salt=None, row=None)), encoding="utf-8", newline="")
    assert proof.main([str(file), "--key", KEY, "--show-row"]) == 0
    assert "not disclosed" in capsys.readouterr().out


def test_not_proven_is_1_and_asked_wrongly_is_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(WITNESS.verifier)
    assert proof.main([str(file), "--key", other]) == 1
    assert capsys.readouterr().out.startswith("NOT PROVEN (signature): ")
    assert proof.main([str(file), "--key", other, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["proven"], told["step"]) == (False, "signature")
    for wrong in (
        [str(file)],
        [str(file), "--key", "no key"],
        [str(file.with_name("none")), "--key", KEY],
        [str(file.parent), "--key", KEY],
        ["--key", KEY],
    ):
        with pytest.raises(SystemExit) as stopped:
            proof.main(wrong)
        assert stopped.value.code == 2
        assert capsys.readouterr().err.startswith("usage:")


def test_nothing_steers_the_terminal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"\x1b[2J\u202e": "\x1b]0;x\x07\u009b"}
    salt, row = bytes(16), cre1(rows)
    one = event(0, 0, sha256(b"CRE1" + salt + row).digest(), changed_columns=["\x1b[31m"])
    told = record(
        0,
        [cre1(one)],
        bytes(32),
        user="\x1b[1mroot\r",
        ticket="\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    )
    parts = Trail({0: [(salt, row)]}, {0: [cre1(one)]}, [told]).parts(0, 0)
    file.write_text(format_proof(parts), encoding="utf-8", newline="")
    assert proof.main([str(file), "--key", KEY, "--show-row"]) == 0
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "\\u001b[1mroot\\u000d" in out
    assert "\U0001f600" in out


def test_every_kind_of_value_can_be_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {name.encode(): data for name, data in VECTORS.items() if name != "null"}
    fields[b"NaN in a map"] = b"\x0b\0\0\0\1" + cre1(1) + b"\x03" + struct.pack(">d", float("nan"))
    row = b"\x0c" + len(fields).to_bytes(4, "big") + b"".join(sized(name) + fields[name] for name in sorted(fields))
    one = cre1(event(0, 0, sha256(b"CRE1" + bytes(16) + row).digest()))
    parts = Trail({0: [(bytes(16), row)]}, {0: [one]}, [record(0, [one], bytes(32))]).parts(0, 0)
    file.write_text(format_proof(parts), encoding="utf-8", newline="")
    assert proof.main([str(file), "--key", KEY, "--show-row"]) == 0
    assert "0.1" in capsys.readouterr().out
    assert proof.main([str(file), "--key", KEY, "--show-row", "--json"]) == 0

    def refused(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    told = json.loads(capsys.readouterr().out, parse_constant=refused)["row"]
    assert told["NaN"] == "nan"
    assert told["NaN in a map"] == [[1, "nan"]]
    assert told["decimal -1.28"] == "-1.28"
    assert told["binary"] == "00ff"


# ── on a machine that has nothing of ours ────────────────────────────────────────────────────────────────────────────

SOURCE = Path(proof.__file__)


def test_it_imports_the_standard_library_and_cryptography_alone() -> None:
    found = set()
    for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    assert {name.partition(".")[0] for name in found} - sys.stdlib_module_names == {"cryptography"}


def test_a_copy_of_it_runs_elsewhere(file: Path) -> None:
    """Isolated, from another folder, and with everything of ours out of reach."""
    (file.parent / "proof.py").write_bytes(SOURCE.read_bytes())
    without = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(('audit', 'cdf', 'connectors', 'infra', 'pyspark', 'pyarrow', 'deltalake')))\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-I", *command)
        return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, encoding="utf-8", timeout=60)

    proven = run("-c", without, "proof.py", file.name, "--key", KEY)
    assert (proven.returncode, proven.stderr) == (0, "")
    assert proven.stdout.startswith("PROVEN\n")
    file.write_text(TEXT.replace("leaf 5", "leaf 4"), encoding="utf-8", newline="")
    failed = run("proof.py", file.name, "--key", KEY)
    assert (failed.returncode, failed.stderr) == (1, "")
    assert failed.stdout.startswith("NOT PROVEN (commit): ")
    assert run("proof.py", file.name).returncode == 2
