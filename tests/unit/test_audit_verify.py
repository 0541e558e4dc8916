"""What a verification computes by itself: without tables, so without Spark."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from audit.anchors.base import AnchorFailure
from audit.errors import AnchorUnavailable
from audit.hashing.merkle import CompactRange, merkle_root
from audit.hashing.row_encoding import encode_rows, row_hash
from audit.proof import Checkpoint, leaf_hash
from audit.reencryption.reencrypt import find_repeated_place
from audit.report.ledger_summary import LedgerSummary
from audit.signing.signer import Signer
from audit.trail.column_history import Column, columns_from_json, columns_to_json, extend_columns, row_type
from audit.trail.events import CHUNK_EVENTS
from audit.trail.record_kinds import (
    EncryptionRecord,
    NoteRecord,
    RemovalRecord,
    parse_columns,
    parse_micros,
    parse_record,
)
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENTS, LEDGER, STORED_EVENT, TrailTables, payload_schema
from audit.verification import CHECKPOINTS, MOST_FINDINGS, FoundCheckpoint, VerifiedState
from audit.verification.events import _verify_chunks, _verify_commit
from audit.verification.ledger import Commit as EventsOf
from audit.verification.ledger import LedgerScan, select_trusted, verify_ledger
from audit.verification.payload import _check_types, _make_hasher
from audit.verification.payload_records import _expand_encryptions, _expand_removals
from audit.verification.results import Findings
from audit.verification.schema import find_schema_faults
from audit.verification.verify import _Request, _require_signature
from audit.writing.encrypted_folder import merge_folder
from cdf.errors import VerificationError
from tests.fixtures.fix_seed import examples

ORIGIN = "deltarelay.audit/one"
HERE = Checkpoint(ORIGIN, 7, bytes(32))
ELSEWHERE = Checkpoint("deltarelay.audit/another", 7, bytes(32))
LEAF = pa.struct([("index", pa.int64()), ("leaf", pa.binary()), ("agrees", pa.bool_())])


def leaves(*places: int, wrong: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    return [{"index": one, "leaf": bytes([one % 256]) * 32, "agrees": one not in wrong} for one in places]


def test_many_faults_of_a_kind_hide_none_of_another() -> None:
    findings = Findings()
    for _ in range(MOST_FINDINGS + 1):
        findings.add("missing", EVENTS, "one")
    assert findings.more
    findings.add("altered", EVENTS, "another")
    findings.add("missing", LEDGER, "elsewhere")
    assert [one.text for one in findings.kept[-2:]] == ["another", "elsewhere"]
    assert len(findings.of(EVENTS)) == MOST_FINDINGS + 1


def test_only_signed_checkpoints_of_the_trail_are_believed() -> None:
    findings = Findings()
    seen = [
        FoundCheckpoint(None, "a", False),
        FoundCheckpoint(HERE, "b", False),
        FoundCheckpoint(ELSEWHERE, "c", False),
        FoundCheckpoint(ELSEWHERE, "d", True),
    ]
    assert select_trusted([*seen, FoundCheckpoint(HERE, "e", True)], ORIGIN, findings) == {
        7: [FoundCheckpoint(HERE, "e", True)]
    }
    unsigned = ("not_signed", CHECKPOINTS)
    assert [(one.kind, one.table) for one in findings.kept] == [unsigned, unsigned, unsigned, ("replaced", LEDGER)]


def test_what_was_verified_is_a_checkpoint_that_nobody_signed() -> None:
    tree = CompactRange()
    hashes = [bytes([at]) * 32 for at in range(5)]
    for one in hashes:
        tree.append(one)
    columns = (Column("id", "id", LongType()),)
    kept = VerifiedState(ORIGIN, 5, tree.hashes, hashes[-1], 4, None, 0, columns, 12, 0, None, None)
    assert kept.checkpoint == Checkpoint(ORIGIN, 5, merkle_root(hashes))
    assert VerifiedState.from_json(kept.to_json()) == kept


REMOVAL = {
    "kind": "removal",
    "previous": "00" * 32,
    "removed": {"3": [[0, 0], [2, 5]], "10": [[1, 1]]},
    "removed_at": "2026-01-01T00:00:00.000000Z",
    "sequence": 4,
    "table_id": "t",
    "values": 6,
}


def test_a_record_of_a_removal() -> None:
    assert parse_record(canonical_json(REMOVAL)) == RemovalRecord(
        sequence=4,
        previous="00" * 32,
        table_id="t",
        time="2026-01-01T00:00:00.000000Z",
        runs=((3, 0, 0), (3, 2, 5), (10, 1, 1)),
        values=6,
    )
    assert parse_record(canonical_json({**REMOVAL, "ticket": "T-1"})) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "return"},
        {"removed": []},
        {"removed": {"03": [[0, 5]]}},
        {"removed": {"x": [[0, 5]]}},
        {"removed": {"3": [[1, 0], [1, 6]]}},
        {"removed": {"3": [[-1, 4]]}},
        {"removed": {"3": [[0, 3], [2, 3]]}},
        {"removed": {"3": [[3, 5], [0, 2]]}},
        {"removed": {"3": [[0]]}},
        {"removed": {"3": [["0", "1"]]}},
        {"removed": {"3": 1}},
        {"removed_at": "yesterday"},
        {"values": "6"},
        {"values": 5},
        {"values": 7},
    ],
)
def test_what_is_no_record_of_a_removal(wrong: dict[str, Any]) -> None:
    assert parse_record(canonical_json({**REMOVAL, **wrong})) is None
    assert parse_record(json.dumps(REMOVAL).encode()) is None  # right, but not in the one form that it has


SEALED = [bytes([at]) * 32 for at in range(6)]
SEALING = {
    **{name: said for name, said in REMOVAL.items() if name != "removed"},
    "hashes_root": merkle_root(SEALED).hex(),
    "kind": "sealing",
    "made_in": "0123456789abcdef" * 2,
    "sealed": REMOVAL["removed"],
}


def test_a_record_of_rows_that_were_sealed_later() -> None:
    record = parse_record(canonical_json(SEALING))
    assert record == EncryptionRecord(
        sequence=4,
        previous="00" * 32,
        table_id="t",
        time="2026-01-01T00:00:00.000000Z",
        runs=((3, 0, 0), (3, 2, 5), (10, 1, 1)),
        values=6,
        hashes_root=merkle_root(SEALED).hex(),
        made_in="0123456789abcdef" * 2,
    )
    for wrong in ({"sealed": {"x": [[0, 1]]}}, {"sealed": {"1": [[2, 1]]}}, {"hashes_root": 1}, {"made_in": None}):
        assert parse_record(canonical_json({**SEALING, **wrong})) is None
    assert record.matches_hashes(b"".join(SEALED))
    for made_in in ("", "ab", "../../another/payload", "0123456789ABCDEF" * 2, "0123456789abcdef" * 2 + "/.."):
        assert parse_record(canonical_json({**SEALING, "made_in": made_in})) is None
    for hashes in (SEALED[:-1], [*SEALED, SEALED[0]], SEALED[::-1]):
        assert not record.matches_hashes(b"".join(hashes))
    assert not replace(record, values=5).matches_hashes(b"".join(SEALED))


def test_a_record_removes_no_other_folder_than_one_of_its_own() -> None:
    for made_in in ("../../another/payload", "", "ab", None):
        with pytest.raises(VerificationError, match="that no runner creates"):
            merge_folder(TrailTables(None, "/trail"), made_in)  # type: ignore[arg-type]


def test_a_place_that_comes_twice_gets_into_no_record() -> None:
    def twice(*rows: tuple[int, int, bytes]) -> tuple[int, int] | None:
        versions, index, ids = zip(*rows, strict=True)
        return find_repeated_place(pa.table({"version": versions, "index": index, "id": ids}))

    assert twice((1, 0, b"a"), (1, 1, b"b"), (2, 1, b"c")) is None
    assert twice((1, 0, b"a"), (1, 1, b"b"), (1, 1, b"c")) == (1, 1)
    assert twice((1, 0, b"a"), (1, 1, b"b"), (2, 0, b"a")) == (2, 0)  # one row for two events


ERASURE = {
    "kind": "erasure",
    "noted_at": "2026-01-01T00:00:00.000000Z",
    "previous": "00" * 32,
    "reached_at": "2026-01-01T00:00:00Z",
    "requests": ["R-1"],
    "run": "er-1",
    "sequence": 4,
    "state": "deleted",
    "table_id": "t",
}


def test_a_record_of_an_erasure() -> None:
    linked = {"sequence": 4, "previous": "00" * 32, "table_id": "t", "time": "2026-01-01T00:00:00.000000Z"}
    assert parse_record(canonical_json(ERASURE)) == NoteRecord(**linked, kind="erasure")
    for wrong in ({"noted_at": "yesterday"}, {"requests": "R-1"}, {"state": None}, {"removed": {"x": 1}}):
        assert parse_record(canonical_json({**ERASURE, **wrong})) is None


def test_the_leaves_of_each_chunk() -> None:
    whole, faulty, later = leaves(0, 1, 2), leaves(0, 1, 2, 2, 5, wrong=(1,)), leaves(CHUNK_EVENTS, CHUNK_EVENTS + 1)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([9, 1, 2, 2]),
            pa.array([0, 0, 0, 1]),
            pa.array([leaves(0), whole, faulty, later], pa.list_(LEAF)),
            pa.array([1, 1, 1, 1]),
            pa.array([1, 1, 1, 2]),
        ],
        names=["version", "chunk", "leaves", "least", "most"],
    )
    (out,) = _verify_chunks([batch.slice(1)])  # batches come as parts of larger ones
    one, other, third = out.to_pylist()
    assert one["root"] == merkle_root([leaf["leaf"] for leaf in whole])
    assert (one["size"], one["last"], one["altered"], one["gaps"], one["doubled"]) == (3, 2, [], [], [])
    assert (other["size"], other["last"], other["altered"], other["gaps"], other["doubled"]) == (5, 5, [1], [3, 4], [2])
    assert (third["chunk"], third["last"], third["gaps"], third["least"], third["most"]) == (
        1,
        CHUNK_EVENTS + 1,
        [],
        1,
        2,
    )


def test_each_row_is_hashed_with_the_columns_of_its_commit() -> None:
    narrow = (Column("id", "id", LongType()),)
    wide = (*narrow, Column("note", "note", StringType()))
    rows = [
        (1, {"id": 1, "note": None}),
        (4, {"id": 2, "note": "x"}),
        (9, {"id": 3, "note": None}),
        (None, {"id": 4, "note": None}),
        (3, {"id": 5, "note": "planted"}),
        (0, {"id": 6, "note": None}),
    ]
    salts = [os.urandom(16) for _ in rows]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([bytes([at]) for at in range(len(rows))]),
            pa.array([version for version, _ in rows], pa.int64()),
            pa.array(salts),
            pa.array([row for _, row in rows], pa.struct([("id", pa.int64()), ("note", pa.string())])),
            pa.array([{"a": 1}] * len(rows)),
            pa.array(salts),
        ],
        names=["id", "version", "salt", "row", "copies", "kept_hash"],
    )
    (out,) = _make_hasher([1, 4], [narrow, wide], frozenset())([batch])

    def hashed(at: int, columns: tuple[Column, ...]) -> bytes:
        schema = StructType([StructField(column.name, column.type) for column in columns])
        values = batch.column("row").slice(at, 1).flatten()[: len(columns)]
        return row_hash(salts[at], encode_rows(pa.RecordBatch.from_arrays(values, names=schema.names), schema)[0])

    assert out.column("hash").to_pylist() == [hashed(0, narrow), hashed(1, wide), hashed(2, wide), None, None, None]


# ── the columns of the tables ────────────────────────────────────────────────────────────────────────────────────────


def of(**types: DataType) -> StructType:
    return StructType([StructField(name, type) for name, type in types.items()])


LONG, TEXT = LongType(), StringType()
LINES = ArrayType(of(text=TEXT))
ADDRESS = of(city=TEXT, lines=LINES)


def columns_of(*schemas: StructType) -> tuple[Column, ...]:
    columns: tuple[Column, ...] = ()
    for schema in schemas:
        columns = extend_columns(columns, schema)
    return columns


def held(row: StructType, **more: DataType) -> StructType:
    return StructType([*payload_schema(row).fields, *of(**more).fields])


def test_columns_that_came_honestly_are_no_fault() -> None:
    columns = columns_of(of(id=LONG, address=ADDRESS), of(id=LONG, address=of(zip=LONG, city=TEXT)))
    wanted = payload_schema(row_type(columns, stored=True))
    assert wanted["row"].dataType.names == ["id", "address", "address__2"]  # type: ignore[attr-defined]
    assert list(find_schema_faults(wanted, wanted)) == []
    # Columns of which there has been no value yet
    assert list(find_schema_faults(held(of(id=LONG)), wanted)) == list(find_schema_faults(held(of()), wanted)) == []
    # In another order, not nullable, and with a place that no record tells yet
    there = of(address__2=of(city=TEXT, zip=LONG), address=ADDRESS, note=of(a=LONG))
    there.add("id", LONG, nullable=False)
    assert list(find_schema_faults(held(there), wanted)) == []


@pytest.mark.parametrize(
    ("there", "fault"),
    [
        (
            held(of(id=LONG, address=of(city=TEXT, lines=LINES, approved_by=TEXT))),
            "`row.address.approved_by` was added",
        ),
        (
            held(of(id=LONG, address=of(city=TEXT, lines=ArrayType(of(text=TEXT, who=LONG))))),
            "`row.address.lines.element.who` was added",
        ),
        (StructType([*payload_schema(of()).fields[:-1], StructField("row", TEXT)]), "`row` was added"),
        (held(of(id=TEXT, address=ADDRESS)), "`row.id` is string and was bigint"),
        (held(of(id=LONG, address=of(lines=LINES))), "`row.address.city` is missing"),
        (held(of(id=LONG, address=ADDRESS), approved_by=TEXT), "`approved_by` was added"),
        (held(of(id=LONG, address=ADDRESS), **{"row.x": LONG}), "`row.x` was added"),
    ],
)
def test_what_else_is_in_the_columns_is_told(there: StructType, fault: str) -> None:
    wanted = payload_schema(row_type(columns_of(of(id=LONG, address=ADDRESS)), stored=True))
    assert list(find_schema_faults(there, wanted)) == [fault]


def test_a_row_among_the_events_was_added() -> None:
    assert list(find_schema_faults(StructType([*STORED_EVENT.fields, *of(row=TEXT).fields]), STORED_EVENT)) == [
        "`row` was added"
    ]


# ── records that anybody may have written ────────────────────────────────────────────────────────────────────────────

COMMIT = {
    "columns_at": 0,
    "committed_at": "2026-01-01T00:00:00.000000Z",
    "counts": {"insert": 6},
    "kind": "commit",
    "log_sha256": "00" * 32,
    "operation": "WRITE",
    "parameters": {},
    "rows": 6,
    "rows_root": "",
    "user": None,
    "version": 0,
}
FUZZED: list[dict[str, Any]] = [
    {**COMMIT, "columns": columns_to_json([Column("id", "id", LongType()), Column("a", "a", ArrayType(StringType()))])},
    *({**COMMIT, "version": version} for version in (1, 2)),
    {**REMOVAL, "removed": {"0": [[0, 0], [2, 5]], "2": [[1, 1]]}},
    {**SEALING, "sealed": {"0": [[0, 0], [2, 5]], "2": [[1, 1]]}},
    {"keys": ["ab" * 16], "kind": "shredding", "removed_at": REMOVAL["removed_at"], "values": 3},
    ERASURE,
    {
        "keys": 1,
        "kind": "reading",
        "noted_at": REMOVAL["removed_at"],
        "purpose": "why",
        "read_at": REMOVAL["removed_at"],
        "reader": "me",
        "role": "auditor",
    },
    {**COMMIT, "version": 3},
]
"""One record of each kind at least, as a runner writes them; places and hashes are those of one ledger."""
TAMPERED = 8
"""The record that is altered besides, in each case."""
SIX = [bytes([at]) * 32 for at in range(6)]
ROOTS = merkle_root(SIX)
NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 7, 10**15, 2**53, 2**53 + 1, 2**63, 2**70, -(2**70), 1.5, 1e308, "", "0", "x", "-1",
    "00", "9" * 5000, "\ud800", "2026-13-45", "2026-01-01", "9999-12-31T23:59:59-14:00", "commit", "removal", "sealing",
    "shredding", "erasure", "reading", "id", "udt", "decimal(99,99)", "ab" * 16, "00" * 32, [], [[]], [[0]],
    [[0, 10**15]], [[0, 2**70]], [[5, 0]], [[0, 1, 2]], [["0", "1"]], [[0, 0], [0, 0]], {}, {"": []},
    {"2": [[0, 10**15]]}, {"2": [[0]]}, {"9": [[0, 1]]}, {"2": [[2**70, 2**71]]}, {"x": [[0, 0]]}, {"-1": [[0, 0]]},
    {"9" * 4400: [[0, 0]]}, {"0": [[0, 6]]}, {"type": "udt", "pyClass": "antigravity.Any"}, [{"type": "udt"}],
    [{"live": True, "name": "id", "stored": "id", "type": {"type": "udt", "pyClass": "antigravity.Any"}}],
    [{"live": True, "name": "id", "stored": "id", "type": "string"}],
    [{"live": True, "name": "id", "stored": "id", "type": {"type": "struct", "fields": [1]}}],
]  # fmt: skip
COPIES = ("sequence", "kind", "version", "events", "record", "leaf", "chunk_roots", "at")


OF_KIND = pa.schema([("sequence", pa.int64()), ("record", pa.binary()), ("chunk_roots", pa.binary())])


def ledger_row(record: Mapping[str, Any], text: bytes, roots: bytes) -> dict[str, Any]:
    """As the ledger has a record, with its copies; of a record of any form."""
    noted = next((record[name] for name in ("removed_at", "noted_at") if name in record), record.get("committed_at"))
    try:
        at = parse_micros(noted)
    except (ValueError, TypeError):
        at = 0
    told = [
        said if isinstance(said := record.get(name), kind) and (kind is str or abs(said) < 2**63) else None
        for name, kind in (("sequence", int), ("kind", str), ("version", int), ("rows", int))
    ]
    kept = (text, leaf_hash(text), roots, at)
    row = dict(zip(COPIES, (*told, *kept), strict=True))
    return {**row, "events": row["events"] or 0} if "rows" not in record else row


def chained_rows(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with the hash of the one before; also such as have no canonical form."""
    previous, rows = bytes(32), []
    for at, record in enumerate(records):
        whole = {"previous": previous.hex(), "sequence": at, "table_id": "t", **record}
        try:
            text = canonical_json(whole)
        except (ValueError, TypeError):
            text = json.dumps(whole).encode()
        roots = ROOTS if record.get("kind") == "commit" else b"".join(SIX) if record.get("kind") == "sealing" else b""
        rows.append(ledger_row(whole, text, roots))
        previous = leaf_hash(text)
    return rows


def written_records() -> list[dict[str, Any]]:
    own = [{name: said for name, said in one.items() if name not in ("previous", "sequence")} for one in FUZZED]
    for one in own:
        if one["kind"] == "commit":
            one["rows_root"] = ROOTS.hex()
        elif one["kind"] == "sealing":
            one["hashes_root"] = merkle_root(SIX).hex()
    return own


WRITTEN = chained_rows(written_records())
FORGED = examples(2_500)


def anywhere(value: Any, chance: random.Random) -> Any:
    """With one part of it replaced, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.7:
        name = chance.choice(sorted(value))
        return {**value, name: anywhere(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return [*value[:at], anywhere(value[at], chance), *value[at + 1 :]]
    return chance.choice(NASTY)


def forged(records: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The rows of a ledger in which one record is another, or a copy of what is in it."""
    at = chance.randrange(len(records) - 1)
    record, way = records[at], chance.random()
    name = chance.choice([*sorted(record), "previous", "sequence", "table_id", "more"])
    new = {**record, name: anywhere(record.get(name), chance)}
    if way < 0.1:
        del new[name]
    rows = [*WRITTEN]
    if way < 0.5:  # by somebody who knows the format: all that follows fits
        return chained_rows([*records[:at], new, *records[at + 1 :]])
    if way < 0.8:  # the record alone, with its own hash
        rows[at] = chained_rows([{"previous": rows[at - 1]["leaf"].hex(), "sequence": at, **new}])[0]
        return rows
    copy = chance.choice(COPIES)
    nasty = [one for one in NASTY if type(one) is type(rows[at][copy])] or [None]
    wrong: dict[str, list[Any]] = {
        "leaf": [None, b"", b"1"],
        "record": [None, b"", b"\xff", b"[" * 9000, b"{}"],
        "chunk_roots": [b"", b"1", SIX[0] * 10_000],
    }
    rows[at] = {**rows[at], copy: chance.choice(wrong.get(copy, nasty))}
    return rows


def walked(rows: list[dict[str, Any]], told: Mapping[int, Sequence[FoundCheckpoint]]) -> tuple[LedgerScan, list[str]]:
    walk, findings = LedgerScan(), Findings()
    placed = [row for row in rows if type(row["sequence"]) is int and row["sequence"] >= 0]
    lost = [row for row in rows if row not in placed]
    verify_ledger(iter([*sorted(placed, key=lambda row: row["sequence"]), *lost]), walk, told, findings)
    return walk, [one.text for one in findings.kept]


def test_any_field_of_any_record_is_a_finding_or_intact(seed: int) -> None:
    """Thousands of forged ledgers: none of them fails, stalls, or hides that another record is altered as well."""
    chance, records = random.Random(seed), written_records()
    whole, texts = walked(WRITTEN, {})
    assert texts == []
    told = {len(records): [FoundCheckpoint(Checkpoint(ORIGIN, len(records), whole.tree.root()), "a safe", True)]}
    assert walked(WRITTEN, told)[1] == []
    held = {"id": LongType(), "a": ArrayType(StringType())}
    altered = f"record {TAMPERED} of the ledger was altered"
    changed = 0
    for case in range(FORGED):
        rows = forged(records, chance)
        if tampers := case % 2:
            rows[TAMPERED] = {**rows[TAMPERED], "record": rows[TAMPERED]["record"].replace(b"WRITE", b"MERGE")}
        walk, texts = walked(rows, told)
        assert texts or rows == WRITTEN, rows
        assert not tampers or altered in texts, rows
        changed += bool(texts)
        # What comes after the ledger: no more is made out of a record than what is there
        for kind, work in ((b'"removal"', _expand_removals), (b'"sealing"', _expand_encryptions)):
            own = [{**row, "sequence": 0} for row in rows if kind in (row["record"] or b"")]
            made = work(walk.distrusted, [pa.RecordBatch.from_pylist(own, schema=OF_KIND)])
            assert sum(one.num_rows for one in made) <= 6
        assert len(walk.removals) <= len(rows)
        report = LedgerSummary(set())
        for row in rows:
            report.add(row["record"])
        assert report.scope().records == len(rows)
        assert all(_check_types(one, held) in (one, None) for one in walk.columns.values())
    assert changed > 0.9 * FORGED


def changed(at: int, /, **fields: Any) -> list[dict[str, Any]]:
    """One row of the ledger with other columns."""
    return [{**row, **fields} if number == at else row for number, row in enumerate(WRITTEN)]


def rewritten(at: int, /, **fields: Any) -> list[dict[str, Any]]:
    """One record with other fields, by somebody who knows the format: all that follows fits."""
    return chained_rows([{**one, **fields} if number == at else one for number, one in enumerate(written_records())])


def alone(at: int, /, **fields: Any) -> list[dict[str, Any]]:
    """One record with other fields and its own hash; the one behind it has the former hash."""
    place = {"previous": WRITTEN[at - 1]["leaf"].hex(), "sequence": at}
    (row,) = chained_rows([{**written_records()[at], **place, **fields}])
    return [*WRITTEN[:at], row, *WRITTEN[at + 1 :]]


NOT_WRITTEN = "record 1 of the ledger was altered"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (changed(1, chunk_roots=SIX[0]), "the roots stored for version 1 do not match its record"),
        (changed(1, chunk_roots=ROOTS + b"1"), "the roots stored for version 1 do not match its record"),
        (rewritten(1, rows=CHUNK_EVENTS + 1), "the roots stored for version 1 do not match its record"),
        (changed(4, chunk_roots=SIX[0] * 6), "the hashes stored beside record 4 of the ledger do not match it"),
        (changed(1, leaf=SIX[0]), NOT_WRITTEN),
        (changed(1, version=7), NOT_WRITTEN),
        (changed(1, events=7), NOT_WRITTEN),
        (changed(1, kind="baseline"), NOT_WRITTEN),
        (changed(1, at=0), NOT_WRITTEN),
        (rewritten(1, rows=-1), NOT_WRITTEN),
        (alone(1, user="somebody else"), "record 2 of the ledger does not contain the hash of the record before it"),
        ([*WRITTEN[:4], *WRITTEN[5:]], "record 5 of the ledger is in the place of record 4"),
        ([*WRITTEN, WRITTEN[4]], "record 4 of the ledger is in the place of record 5"),
        (changed(1, sequence=None), "a record without a valid sequence number"),
        (chained_rows([*written_records()[:2], *written_records()[3:]]), "version 3 follows version 1"),
        (rewritten(2, version=1), "version 1 follows version 1"),
        (
            rewritten(3, removed={"9": [[0, 5]]}),
            "record 3 of the ledger names events of version 9 that never existed",
        ),
        (
            rewritten(3, removed={"2": [[1, 6]]}),
            "record 3 of the ledger names events of version 2 that never existed",
        ),
    ],
)
def test_each_fault_of_a_ledger_is_told_also_where_nothing_was_signed(rows: list[dict[str, Any]], told: str) -> None:
    assert walked(WRITTEN, {})[1] == []
    assert told in walked(rows, {})[1]


def test_a_record_that_comes_twice_takes_the_place_of_no_sound_one() -> None:
    """Else the events of a commit would be held against whatever somebody has put behind the ledger."""
    (other,) = chained_rows([{**written_records()[1], "rows": 99, "sequence": len(WRITTEN)}])
    walk, texts = walked([*WRITTEN, {**other, "leaf": SIX[0]}], {})
    assert walk.commits[1].rows == COMMIT["rows"]
    assert f"record {len(WRITTEN)} of the ledger was altered" in texts


def test_a_ledger_is_held_against_what_was_signed_and_what_was_verified() -> None:
    whole, count = walked(WRITTEN, {})[0], len(WRITTEN)

    def signed(size: int, root: bytes) -> dict[int, list[FoundCheckpoint]]:
        return {size: [FoundCheckpoint(Checkpoint(ORIGIN, size, root), "a safe", True)]}

    last_gone = signed(count, whole.tree.root())
    assert walked(WRITTEN, last_gone)[1] == []
    assert [text.rpartition(": ")[2] for text in walked(WRITTEN[:-1], last_gone)[1]] == ["the last ones are missing"]
    (text,) = walked(WRITTEN, signed(count - 1, SIX[0]))[1]
    assert text.endswith("does not match this ledger")


# ── one edit of a ledger, and exactly what is told of it ─────────────────────────────────────────────────────────────

Rows = list[dict[str, Any]]
Told = tuple[str, str, int | None]
AT = 1
"""The place of the record that is edited: that of version 1."""
DELETED = b'"operation":"DELETE"'


def told_of(rows: Rows, *seen: FoundCheckpoint, before: VerifiedState | None = None) -> list[Told]:
    told: dict[int, list[FoundCheckpoint]] = {}
    for one in seen:
        assert one.checkpoint is not None
        told.setdefault(one.checkpoint.size, []).append(one)
    findings = Findings()
    verify_ledger(iter(rows), LedgerScan(), told, findings, before=before)
    return [(one.kind, one.table, one.version) for one in findings.kept]


def whole(size: int | None = None, root: bytes | None = None) -> FoundCheckpoint:
    """The checkpoint over the first records of ``WRITTEN``."""
    leaves = [row["leaf"] for row in WRITTEN][:size]
    return FoundCheckpoint(Checkpoint(ORIGIN, len(leaves), root or merkle_root(leaves)), "a safe", True)


def with_row(at: int, /, **values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [*rows[:at], {**rows[at], **values}, *rows[at + 1 :]]


EDITS: dict[str, tuple[Callable[[Rows], Rows], list[Told]]] = {
    "nothing": (lambda rows: rows, []),
    "a record": (
        with_row(AT, record=WRITTEN[AT]["record"].replace(b'"operation":"WRITE"', DELETED)),
        [("altered", LEDGER, 1)],
    ),
    "a record and its hash": (
        # The record itself is right then; the one after it does not follow
        lambda rows: (
            with_row(AT, record=other, leaf=leaf_hash(other))(rows)
            if (other := rows[AT]["record"].replace(b'"operation":"WRITE"', DELETED))
            else rows
        ),
        [("altered", LEDGER, 2)],
    ),
    **{
        f"a copy: {name}": (with_row(AT, **{name: value}), [("altered", LEDGER, 1)])
        for name, value in {"kind": "baseline", "events": 2, "at": 1}.items()
    },
    "its hash": (with_row(AT, leaf=bytes(32)), [("altered", LEDGER, 1), ("altered", LEDGER, 2)]),
    "a copy: version": (with_row(AT, version=7), [("altered", LEDGER, 7)]),
    "the roots beside it": (with_row(AT, chunk_roots=bytes(32)), [("altered", LEDGER, 1)]),
    "no place": (lambda rows: [*rows, {**rows[AT], "sequence": None}], [("added", LEDGER, 1)]),
    "a place before all": (lambda rows: [*rows, {**rows[AT], "sequence": -1}], [("added", LEDGER, 1)]),
    "removed": (lambda rows: [*rows[:AT], *rows[AT + 1 :]], [("missing", LEDGER, 2)]),
    "twice": (lambda rows: [*rows[: AT + 1], *rows[AT:]], [("doubled", LEDGER, 1)]),
    "cut off": (lambda rows: rows[:-1], [("cut_off", LEDGER, None)]),
    "all of it gone": (lambda rows: rows[:0], [("cut_off", LEDGER, None)]),
}


@pytest.mark.parametrize("what", EDITS)
def test_each_edit_of_a_ledger_is_told_as_what_it_is(what: str) -> None:
    edit, expected = EDITS[what]
    assert told_of(edit([*WRITTEN]), whole()) == expected


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"sequence":3}', "[" * 5000])
def test_a_record_that_is_none(text: str) -> None:
    last = len(WRITTEN) - 1
    assert told_of(with_row(last, record=text.encode())([*WRITTEN]), whole()) == [("altered", LEDGER, 3)]


def test_a_ledger_that_fits_in_itself_is_held_against_checkpoints_and_against_a_verification_before() -> None:
    records = written_records()
    records[AT] = {**records[AT], "operation": "DELETE"}
    forged = chained_rows(records)
    assert told_of(forged) == []
    assert told_of(forged, whole()) == [("replaced", LEDGER, 3)]
    # The edited record is the second: one over the first alone fits
    assert told_of(forged, whole(AT)) == []
    assert told_of(forged, whole(AT + 1)) == [("replaced", LEDGER, 1)]
    walk = LedgerScan()
    verify_ledger(iter(WRITTEN), walk, {}, Findings())
    before = walk.to_state(ORIGIN, 24)
    assert told_of(WRITTEN, before=before) == []
    assert told_of(forged, before=before) == [("replaced", LEDGER, 3)]
    assert told_of(WRITTEN[:-1], before=before) == [("cut_off", LEDGER, None)]


def test_what_nobody_has_signed_is_told_where_a_signature_is_to_be_expected() -> None:
    def told(size: int, covered: int, *, removal: int | None = None, left: bool = False, **asked: Any) -> list[str]:
        walk, findings = LedgerScan(), Findings()
        for row in WRITTEN[:size]:
            walk.tree.append(row["leaf"])
        walk.removals = {} if removal is None else {removal: (0,)}
        values = {"found": (), "since": None, "before": None, "anchored": False, "unreachable": (), "origin": None}
        _require_signature(walk, covered, _Request(**{**values, "keys": (), **asked}), left, findings)
        assert {(one.kind, one.table) for one in findings.kept} <= {("not_signed", LEDGER)}
        return [one.text for one in findings.kept]

    keys = (Signer.generate("example.org/test").verifier,)
    gone = (AnchorFailure("a safe", AnchorUnavailable("gone")),)
    assert told(3, 0) == []  # nobody said that there were anchors
    assert "no anchor has a signed checkpoint" in told(3, 0, anchored=True)[0]
    assert told(0, 0, anchored=True) == []  # of a trail without records there is none
    assert told(3, 0, anchored=True, unreachable=gone) == []
    assert told(3, 2, keys=keys) == ["the records after the first 2 are not signed by a trusted key"]
    assert told(3, 2, keys=keys, left=True) == told(3, 3, keys=keys) == told(3, 2) == []
    assert told(3, 2, keys=keys, unreachable=gone) == []
    assert told(3, 2, removal=2) == [
        "record 2 states that values were removed or encrypted, but no signed checkpoint covers it"
    ]
    assert told(4, 3, removal=2) == told(3, 2, removal=2, left=True) == []


@pytest.mark.parametrize("text", ["", "3", "{}", "[3]", "[" * 9000, '[{"name": 3}]', '[{"name": "a", "stored": "a"}]'])
def test_columns_that_no_runner_writes_are_named_by_their_version(text: str) -> None:
    with pytest.raises(VerificationError, match="record of version 7 has columns that no runner writes") as found:
        parse_columns(text, version=7)
    assert "audit verify" in str(found.value.hint)


@pytest.mark.parametrize("type", ["string", {"type": "array", "elementType": "long", "containsNull": True}])
def test_columns_of_other_types_than_the_payload_has(type: Any) -> None:
    (column,) = columns_from_json([{"live": True, "name": "id", "stored": "id", "type": type}])
    assert _check_types([column], {"id": LongType()}) is None
    assert _check_types([Column("id", "id", LongType())], {"id": LongType()}) is not None
    rows = pa.RecordBatch.from_pylist([{"id": b"a", "version": 1, "copies": 1, "kept_hash": b"", "row": {"id": 1}}])
    (found,) = _make_hasher([0], [None], frozenset())([rows])
    assert found.column("hash").to_pylist() == [None]


@pytest.mark.parametrize("rows", [0, 1, 2**53])
def test_roots_of_more_rows_than_the_record_tells(rows: int) -> None:
    """Found in seconds, however many chunks there are."""
    chunks = {
        at: {
            "root": b"",
            "altered": [],
            "gaps": [],
            "doubled": [],
            "last": (at + 1) * CHUNK_EVENTS - 1,
            "least": 0,
            "most": 0,
        }
        for at in range(2_000)
    }
    findings = Findings()
    _verify_commit(1, EventsOf(rows, tuple(SIX[:1] * 2_000), 0, 0), chunks, findings)
    assert findings.kept
