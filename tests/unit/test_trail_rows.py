"""Rows and events of a trail, as batches build them, against the same in plain Python."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from audit.hashing.row_encoding import row_hash
from audit.hashing.value_encoding import encode
from audit.trail import events as trail_events
from audit.trail.column_history import extend_columns
from audit.trail.events import _EventBuilder, _hash_chunks, _join_chunks, build_events, compute_roots
from audit.writing.payload import _PayloadBuilder
from cdf.spark_versions import arrow_type
from tests.fixtures.fix_seed import examples

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KINDS = ("update_preimage", "update_postimage", "insert", "delete")
SCHEMA = (
    T.StructType()
    .add("key", "double")
    .add("second", "string")
    .add("number", "long")
    .add("rate", "double")
    .add("tags", T.MapType(T.StringType(), T.DoubleType()))
    .add("place", T.StructType().add("x", "float").add("lines", T.ArrayType(T.StringType())))
)
doubles = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
rows_of = st.fixed_dictionaries(
    {
        "key": st.sampled_from([None, 0.0, -0.0, 1.0, math.nan]),
        "second": st.sampled_from([None, "", "a"]),
        "number": st.sampled_from([None, 0, 1]),
        "rate": doubles,
        "tags": st.none() | st.permutations([("a", 0.0), ("b", None)]) | st.just([("a", -0.0)]),
        "place": st.none() | st.fixed_dictionaries({"x": doubles, "lines": st.none() | st.just([]) | st.just([None])}),
    }
)
changes = st.lists(st.tuples(rows_of, st.sampled_from(KINDS), st.sampled_from([5, 6])), min_size=1, max_size=14)


def key_of(change: tuple[dict[str, Any], str, int]) -> tuple[int, bytes]:
    row, _, version = change
    return version, encode({name: row[name] for name in ("key", "second")}, T.StructType(SCHEMA.fields[:2]))


def expected_columns(rows: list[tuple[dict[str, Any], str, int]]) -> Iterator[list[str] | None]:
    for _, group in groupby(rows, key_of):
        images = list(group)
        before, after = ([row for row, kind, _ in images if kind == wanted] for wanted in KINDS[:2])
        names = None
        if len(before) == len(after) == 1:
            names = [
                field.name
                for field in SCHEMA.fields
                if encode(before[0][field.name], field.dataType) != encode(after[0][field.name], field.dataType)
            ]
        for _, kind, _ in images:
            yield names if kind in KINDS[:2] else None


def batches_of(rows: list[tuple[dict[str, Any], str, int]], cuts: set[int]) -> list[pa.RecordBatch]:
    columns = [pa.array([row[field.name] for row, _, _ in rows], arrow_type(field.dataType)) for field in SCHEMA.fields]
    whole = pa.RecordBatch.from_arrays(
        [*columns, pa.array([kind for _, kind, _ in rows]), pa.array([version for _, _, version in rows], pa.int64())],
        names=[f"c{at}" for at in range(len(SCHEMA) + 2)],
    )
    borders = [0, *sorted(cuts), len(rows)]
    return [whole.slice(start, end - start) for start, end in pairwise(borders)]


def builder(*, paired: bool) -> _PayloadBuilder:
    times = {5: AT, 6: None}
    return _PayloadBuilder(extend_columns((), SCHEMA), SCHEMA, ("key", "second"), times, paired, False, frozenset(), ())


@settings(max_examples=examples(100, full=3000), suppress_health_check=list(HealthCheck))
@given(drawn=changes, data=st.data())
def test_both_images_of_an_update_name_the_columns_that_differ(
    drawn: list[tuple[dict[str, Any], str, int]], data: st.DataObject
) -> None:
    rows = sorted(sorted(drawn, key=lambda change: change[1], reverse=True), key=key_of)
    cuts = data.draw(st.sets(st.integers(0, len(rows)), max_size=4))
    built = pa.Table.from_batches(list(builder(paired=True).build(batches_of(rows, cuts)))).to_pylist()
    assert [row["changed_columns"] for row in built] == list(expected_columns(rows))
    assert [(row["change_type"], row["version"]) for row in built] == [(kind, version) for _, kind, version in rows]
    assert [row["committed_at"] for row in built] == [AT if version == 5 else None for _, _, version in rows]
    hashes = [row_hash(row["salt"], encode(values, SCHEMA)) for row, (values, _, _) in zip(built, rows, strict=True)]
    assert [row["row_hash"] for row in built] == hashes


def test_several_updates_of_one_key_in_a_version_are_not_paired() -> None:
    row = {**dict.fromkeys(SCHEMA.names), "key": 1.0, "second": "a"}
    rows = [({**row, "number": at % 2}, KINDS[at // 2], 5) for at in range(4)] + [(row, kind, 6) for kind in KINDS[:2]]
    built = pa.Table.from_batches(list(builder(paired=True).build(batches_of(rows, set()))))
    assert built.column("changed_columns").to_pylist() == [None] * 4 + [[], []]


def stored_events(count: int) -> pa.Table:
    chance = random.Random(7)
    rows = [
        ({**dict.fromkeys(SCHEMA.names), "key": float(at)}, chance.choice(KINDS[2:]), chance.choice([5, 6]))
        for at in range(count)
    ]
    return build_events(pa.Table.from_batches(list(builder(paired=False).build(batches_of(rows, set())))), "t")


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("by_version", [True, False])
def test_tasks_number_events_as_the_driver_does(tasks: int, by_version: bool) -> None:
    """Each task has whole parts of commits: of all events with one first digit of the id."""
    expected = stored_events(200)
    payload = expected.drop_columns(["table_id", "index", "leaf"]).to_pylist()
    parts = [ord(row["id"].hex().upper()[0]) for row in payload]
    starts = {}
    for version in (5, 6):
        own = sorted(part for part, row in zip(parts, payload, strict=True) if row["version"] == version)
        starts |= {(version, part): own.index(part) for part in own}
    built = []
    for task in range(tasks):
        rows = [row | {"part": part} for row, part in zip(payload, parts, strict=True) if part % tasks == task]
        rows.sort(key=lambda row: (row["version"] if by_version else 0, row["id"]))
        schema = pa.schema([*(field for field in expected.schema if field.name in payload[0]), ("part", pa.int32())])
        whole = pa.RecordBatch.from_pylist(rows, schema=schema)
        batches = [whole.slice(at, 7) for at in range(0, len(rows), 7)]
        built += _EventBuilder("t", starts).build([whole.slice(0, 0), *batches])
    found = pa.Table.from_batches(built).sort_by([("version", "ascending"), ("index", "ascending")])
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema.names == expected.schema.names


def found_roots(events: pa.Table, cuts: set[int]) -> Any:
    borders = [0, *sorted(cuts), events.num_rows]
    rows = events.select(["version", "index", "leaf", "change_type"]).combine_chunks().to_batches()[0]
    parts = [rows.slice(start, end - start) for start, end in pairwise(borders)]
    chunks = [chunk for batch in _hash_chunks(parts) for chunk in batch.to_pylist()]
    versions = {chunk["version"] for chunk in chunks}
    return {one: _join_chunks(one, [chunk for chunk in chunks if chunk["version"] == one]) for one in versions}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail_events, "CHUNK_EVENTS", 8)
    monkeypatch.setattr(trail_events, "_CHUNK_BITS", 3)


@pytest.mark.usefixtures("small_chunks")
def test_tasks_and_driver_compute_the_same_roots() -> None:
    events = stored_events(60)
    expected = compute_roots(events)
    assert all(len(roots.chunk_roots) > 1 for roots in expected.values())
    for cuts in (set[int](), {0}, {1, 2, 3}, {8}, {7, 16, 40}, set(range(60))):
        assert found_roots(events, cuts) == expected


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("at", [0, 3, 8, 20])
def test_an_index_that_is_missing_or_doubled_is_an_error(at: int) -> None:
    events = stored_events(60)
    missing = pa.concat_tables([events.slice(0, at), events.slice(at + 1)])
    doubled = pa.concat_tables([events.slice(0, at + 1), events.slice(at)])
    for faulty in (missing, doubled):
        with pytest.raises(ValueError, match="an index of an event is missing or doubled"):
            found_roots(faulty, {10})
