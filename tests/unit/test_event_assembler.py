"""Events of sorted images: pairs across batches, repeated keys, ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from connectors.kafka.write.event_assembler import ADDED, AFTER, BEFORE, REMOVED, EventAssembler, Images

SCHEMA = pa.schema(
    {"lane": pa.int32(), "key": pa.binary(), "image": pa.binary(), "side": pa.int32(), "version": pa.int64(),
     "at": pa.int64(), "again": pa.int32()}
)  # fmt: skip
Image = tuple[str, str, int, int]
FEED: Sequence[Image] = [
    ("a", "1", REMOVED, 1), ("a", "2", BEFORE, 1), ("a", "3", AFTER, 1), ("a", "4", AFTER, 1), ("a", "5", ADDED, 1),
    ("b", "6", BEFORE, 1), ("b", "7", AFTER, 2), ("c", "8", BEFORE, 2), ("d", "9", AFTER, 2), ("e", "0", BEFORE, 2),
]  # fmt: skip


def make_assembler(
    images: Images = "changes", *, is_debezium: bool = True, withheld: Sequence[int] = ()
) -> EventAssembler:
    source = b',"source":{"x":1' if is_debezium else None
    return EventAssembler(images, "t", source, b"", b"", b"", frozenset(withheld))


def assemble(assembler: EventAssembler, rows: Sequence[Image], size: int, at: int | None = -1) -> list[Any]:
    table = [
        {
            "lane": 0,
            "key": key.encode(),
            "image": image.encode(),
            "side": side,
            "version": version,
            "at": at,
            "again": 5,
        }
        for key, image, side, version in rows
    ]
    batches = [pa.RecordBatch.from_pylist(table[start : start + size], SCHEMA) for start in range(0, len(table), size)]
    return list(assembler.assemble(batches))


def brief(events: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (key.decode(), change, again, value and value.decode().split(',"source"')[0])
        for key, value, _, change, _, _, _, again in events
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_neighbours_are_paired_across_batches(size: int) -> None:
    assert brief(assemble(make_assembler(), FEED, size)) == [
        ("a", "delete", 1, '{"before":1,"after":null'), ("a", "delete", 1, None),
        ("a", "update", 0, '{"before":2,"after":3'),
        ("a", "update_postimage", 1, '{"before":null,"after":4'),
        ("a", "insert", 1, '{"before":null,"after":5'),
        ("b", "update_preimage", 0, '{"before":6,"after":null'), ("b", "update_preimage", 0, None),
        ("b", "update_postimage", 0, '{"before":null,"after":7'),
        ("c", "update_preimage", 0, '{"before":8,"after":null'), ("c", "update_preimage", 0, None),
        ("d", "update_postimage", 0, '{"before":null,"after":9'),
        ("e", "update_preimage", 0, '{"before":0,"after":null'), ("e", "update_preimage", 0, None),
    ]  # fmt: skip


def test_the_versions_of_an_erasure_have_no_image_before() -> None:
    found = brief(assemble(make_assembler(withheld=[1]), FEED, 100))
    assert [value for *_, value in found if value and '"before":null' not in value] == [
        '{"before":8,"after":null', '{"before":0,"after":null',
    ]  # fmt: skip


def test_a_record_in_full() -> None:
    (key, value, follows, change, version, at, id, again), *_ = assemble(make_assembler(), [("k", "{}", ADDED, 7)], 1)
    expected = b'{"before":null,"after":{},"source":{"x":1,"ts_ms":-1,"commit_version":7},"op":"c","ts_ms":-1}'
    assert (key, value, follows, change, version, at, again) == (b"k", expected, False, "insert", 7, -1, 0)
    assert id == hashlib.md5(b"t\n7\nc\nk\n" + expected).hexdigest()


def test_a_task_with_rows_of_two_lanes_is_refused() -> None:
    row = {"key": b"1", "image": b"{}", "side": ADDED, "version": 1, "at": 0, "again": 0}
    batches = [pa.RecordBatch.from_pylist([{"lane": lane, **row}], SCHEMA) for lane in (1, 2)]
    with pytest.raises(AssertionError, match=re.escape("lanes [1, 2]")):
        list(make_assembler().assemble_batches(batches))
    (events,) = make_assembler().assemble_batches(batches[1:])
    assert events.column("lane").to_pylist() == [2]


def test_without_the_envelope_a_delete_is_a_tombstone() -> None:
    found = assemble(make_assembler(is_debezium=False), [("k", "{}", REMOVED, 7)], 1, at=None)
    assert found == [(b"k", None, False, "delete", 7, None, hashlib.md5(b"t\n7\nt\nk\n").hexdigest(), 0)]


def test_net_changes_and_snapshots() -> None:
    net = brief(assemble(make_assembler("net"), [("a", "1", REMOVED, 1), ("b", "2", AFTER, 1)], 1))
    assert net == [
        ("a", "delete", 5, '{"before":null,"after":null'), ("a", "delete", 5, None),
        ("b", "update", 5, '{"before":null,"after":2'),
    ]  # fmt: skip
    rows = brief(
        assemble(make_assembler("snapshot"), [("a", "1", ADDED, 1), ("a", "2", ADDED, 1), ("b", "3", ADDED, 1)], 1)
    )
    assert [(key, again) for key, _, again, _ in rows] == [("a", 0), ("a", 1), ("b", 0)]
