"""Events out of the change feed: what each change becomes, in which order, and how every value is written."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import random
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdf.changes.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from cdf.errors import ConfigError, KeyViolation, TypeNotSupported
from cdf.testing import SampleTable, delete, insert, update
from cdf.testing.model import COLUMNS, KEY, History, random_history
from connectors.kafka import EventFormat, check_schema, snapshot_to_envelope, to_envelope
from connectors.kafka.connect_schema import build_row_schema
from connectors.kafka.types import find_rejection
from tests.fixtures.fix_seed import examples
from tests.integration.test_spark_versions import hide_repartition_by_id

DEBEZIUM, ROW = EventFormat(), EventFormat(envelope="row")
ORIGIN: dict[str, Any] = {"table": "sample", "table_id": "id-1", "pipeline": "flow"}


@dataclass(frozen=True)
class Event:
    key: Any
    value: Any
    op: str
    version: int
    change_type: str
    lane: int
    event_id: str


def events(frame: DataFrame) -> list[Event]:
    """In the order of the partitions, which is that of the lanes."""
    return [
        Event(
            json.loads(bytes(row.key)),
            None if row.value is None else json.loads(bytes(row.value)),
            row.op,
            row.version,
            row.change_type,
            row.lane,
            row.event_id,
        )
        for row in frame.collect()
    ]


def brief(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Op, key, and the names before and after (of an event), or the name (of a row)."""
    found = []
    for event in events(frame):
        value = event.value
        if value is None:
            found.append((event.op, event.key["id"]))
        elif "op" in value:
            assert value["op"] == event.op
            found.append((event.op, event.key["id"], *(image and image["name"] for image in _images(value))))
        else:
            found.append((event.op, event.key["id"], value["name"]))
    return found


def _images(value: Mapping[str, Any]) -> tuple[Any, Any]:
    return value["before"], value["after"]


def row(id: int, name: str | None) -> dict[str, Any]:
    return {"id": id, "name": name}


@contextmanager
def session_settings(spark: SparkSession, **values: str) -> Iterator[None]:
    named = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in named}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.fixture
def table(spark: SparkSession) -> SampleTable:
    return SampleTable(spark, StructType().add("id", "long").add("name", "string"), ("id",))


def made(table: SampleTable, *commits: Any, format: EventFormat = DEBEZIUM, net: bool = False) -> DataFrame:
    window = table.window(5, *commits)
    return to_envelope(window.net() if net else window.read(), key=table.key, format=format, net=net, **ORIGIN)


# ── what a change becomes ────────────────────────────────────────────────────────────────────────────────────────────

CASES: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "insert": ([insert(row(1, "a"))], [("c", 1, None, "a")], [("c", 1, "a")]),
    "update": ([update(row(1, "a"), row(1, "b"))], [("u", 1, "a", "b")], [("u", 1, "b")]),
    "update to the same": ([update(row(1, "a"), row(1, "a"))], [("u", 1, "a", "a")], [("u", 1, "a")]),
    "delete": ([delete(row(1, "a"))], [("d", 1, "a", None), ("t", 1)], [("t", 1)]),
    "key change": (
        [update(row(1, "a"), row(2, "a"))],
        [("d", 1, "a", None), ("t", 1), ("c", 2, None, "a")],
        [("t", 1), ("c", 2, "a")],
    ),
    "swapped keys": (
        [update(row(1, "a"), row(2, "a")), update(row(2, "b"), row(1, "b"))],
        [("u", 1, "a", "b"), ("u", 2, "b", "a")],
        [("u", 1, "b"), ("u", 2, "a")],
    ),
    "delete and insert": (
        [insert(row(1, "b")), delete(row(1, "a"))],
        [("d", 1, "a", None), ("t", 1), ("c", 1, None, "b")],
        [("t", 1), ("c", 1, "b")],
    ),
    "deleted, and another row takes the key": (
        [update(row(2, "b"), row(1, "b")), delete(row(1, "a"))],
        [("d", 1, "a", None), ("t", 1), ("c", 1, None, "b"), ("d", 2, "b", None), ("t", 2)],
        [("t", 1), ("c", 1, "b"), ("t", 2)],
    ),
    "moved away, and a new row takes the key": (
        [insert(row(1, "c")), update(row(1, "a"), row(2, "a"))],
        [("d", 1, "a", None), ("t", 1), ("c", 1, None, "c"), ("c", 2, None, "a")],
        [("t", 1), ("c", 1, "c"), ("c", 2, "a")],
    ),
    # the last image before an update with the first one after it, in the order of their JSON; the others stand alone
    "a key held twice": (
        [update(row(1, "b"), row(1, "y")), update(row(1, "a"), row(1, "x"))],
        [("d", 1, "a", None), ("t", 1), ("u", 1, "b", "x"), ("c", 1, None, "y")],
        [("t", 1), ("u", 1, "x"), ("c", 1, "y")],
    ),
    "a row held twice": (
        [delete(row(1, "a")), delete(row(1, "a"))],
        [("d", 1, "a", None), ("t", 1), ("d", 1, "a", None), ("t", 1)],
        [("t", 1), ("t", 1)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_change_becomes(table: SampleTable, case: str) -> None:
    edits, in_envelope, as_rows = CASES[case]
    assert brief(made(table, edits)) == in_envelope
    assert brief(made(table, edits, format=ROW)) == as_rows


def test_images_of_two_versions_are_not_paired(table: SampleTable) -> None:
    moved = [update(row(1, "a"), row(2, "a"))], [update(row(3, "b"), row(1, "b"))]
    assert brief(made(table, *moved)) == [
        ("d", 1, "a", None), ("t", 1), ("c", 2, None, "a"), ("c", 1, None, "b"), ("d", 3, "b", None), ("t", 3),
    ]  # fmt: skip


def test_an_event_in_full(table: SampleTable) -> None:
    (event,) = made(table, [update(row(1, "a"), row(1, 'ä"\\\n'))]).collect()
    time = dt.datetime(2026, 1, 1, 0, 5, tzinfo=dt.UTC)
    millis = int(time.timestamp() * 1000)
    assert bytes(event.key) == b'{"id":1}'
    assert bytes(event.value).decode() == (
        '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"ä\\"\\\\\\n"},'
        '"source":{"connector":"deltarelay","name":"flow","table":"sample","table_id":"id-1","snapshot":"false",'
        f'"ts_ms":{millis},"commit_version":5}},"op":"u","ts_ms":{millis}}}'
    )
    assert (event.version, event.change_type) == (5, "update")
    at = made(table, [insert(row(1, "a"))]).select(F.unix_micros("timestamp")).first()
    assert at is not None
    assert at[0] == millis * 1000


def test_the_change_type_is_that_of_the_change(table: SampleTable) -> None:
    edits = [insert(row(1, "a")), update(row(2, "a"), row(2, "b")), delete(row(3, "a"))]
    found = [(event.op, event.change_type) for event in events(made(table, edits))]
    assert found == [("c", "insert"), ("u", "update"), ("d", "delete"), ("t", "delete")]


def test_a_net_effect(table: SampleTable) -> None:
    first = [insert(row(1, "a")), update(row(2, "a"), row(2, "b")), delete(row(3, "a")), insert(row(4, "a"))]
    second = [update(row(2, "b"), row(2, "c")), delete(row(4, "a"))]
    assert brief(made(table, first, second, net=True)) == [
        ("c", 1, None, "a"), ("d", 3, None, None), ("t", 3), ("u", 2, None, "c"),
    ]  # fmt: skip
    assert brief(made(table, first, second, net=True, format=ROW)) == [("c", 1, "a"), ("t", 3), ("u", 2, "c")]


@pytest.mark.parametrize("format", [DEBEZIUM, ROW])
def test_a_snapshot(table: SampleTable, format: EventFormat) -> None:
    rows = table.snapshot(7, [row(2, "b"), row(1, "a")]).read()
    time = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)
    for known in (time, None):
        frame = snapshot_to_envelope(rows, key=["id"], version=7, timestamp=known, format=format, **ORIGIN)
        found = events(frame)
        assert [(event.op, event.key["id"], event.change_type, event.version) for event in found] == [
            ("r", 1, "snapshot", 7),
            ("r", 2, "snapshot", 7),
        ]
        assert {at[0] for at in frame.select(F.unix_millis("timestamp")).collect()} == {
            None if known is None else 1767323045678
        }
        if format is ROW:
            assert [event.value for event in found] == [row(1, "a"), row(2, "b")]
        else:
            assert [_images(event.value) for event in found] == [(None, row(1, "a")), (None, row(2, "b"))]
            assert {event.value["source"]["snapshot"] for event in found} == {"true"}
            assert {event.value["ts_ms"] for event in found} == {None if known is None else 1767323045678}


# ── random histories ─────────────────────────────────────────────────────────────────────────────────────────────────

HISTORIES = 100
Held = dict[str, Any]


def identity(case: int, key: tuple[str, int]) -> str:
    return json.dumps([case, *key])


@given(seed=st.integers(0, 2**63))
@settings(
    max_examples=examples(2),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_events_lead_to_the_table(spark: SparkSession, seed: int) -> None:
    """Every image before an event is the one after the event before it, and what is left at the end is the table."""
    print(f"seed {seed}")
    source = random.Random(seed)
    histories = [random_history(source) for _ in range(HISTORIES)]
    feed, start, end = _feed_of(spark, histories)
    kwargs: dict[str, Any] = {"key": ["case_id", *KEY], "lanes": source.randint(1, 5), **ORIGIN}

    held = dict(start)
    for event in events(to_envelope(feed, format=DEBEZIUM, **kwargs)):
        _fold(held, event)
    assert held == end

    rows = dict(start)
    for event in events(to_envelope(feed, format=ROW, **kwargs)):
        key = json.dumps(list(event.key.values()))
        assert (event.op == "c") is (key not in rows)
        if event.value is None:
            del rows[key]
        else:
            rows[key] = event.value
    assert rows == end


def _feed_of(spark: SparkSession, histories: list[History]) -> tuple[DataFrame, Held, Held]:
    schema = StructType().add("case_id", "integer")
    for name, kind in COLUMNS.items():
        schema.add(name, kind)
    schema.add(CHANGE_TYPE, "string").add(COMMIT_VERSION, "long").add(COMMIT_TIMESTAMP, "timestamp")
    rows = [
        (case, *(change.row[name] for name in COLUMNS), change.type, version, None)
        for case, history in enumerate(histories)
        for version, change in history.changes(1, history.last)
    ]

    def state(version: Literal["start", "end"]) -> Held:
        return {
            identity(case, key): {"case_id": case, **held}
            for case, history in enumerate(histories)
            for key, held in history.state(0 if version == "start" else history.last).items()
        }

    return spark.createDataFrame(rows, schema), state("start"), state("end")


def _fold(held: Held, event: Event) -> None:
    key = json.dumps(list(event.key.values()))
    if event.op == "t":
        assert event.value is None
        assert key not in held
        return
    before, after = _images(event.value)
    assert held.pop(key, None) == before
    assert (before is None, after is None) == {"c": (True, False), "u": (False, False), "d": (False, True)}[event.op]
    if after is not None:
        held[key] = after


def test_a_tombstone_follows_its_delete_at_once(spark: SparkSession) -> None:
    feed, _, _ = _feed_of(spark, [random_history(random.Random(seed)) for seed in range(HISTORIES)])
    found = events(to_envelope(feed, key=["case_id", *KEY], format=DEBEZIUM, **ORIGIN))
    deletes = [place for place, event in enumerate(found) if event.op == "d"]
    assert len(deletes) > 50
    for place in deletes:
        follower = found[place + 1]
        assert (follower.op, follower.key, follower.version) == ("t", found[place].key, found[place].version)
    assert sum(event.op == "t" for event in found) == len(deletes)


# ── order, lanes, ids ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["as in this Spark", "as in Spark 4.0"])
def spark_release(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "as in Spark 4.0":
        hide_repartition_by_id(spark, monkeypatch)


@pytest.mark.usefixtures("spark_release")
@pytest.mark.parametrize("format", [DEBEZIUM, ROW])
def test_the_order_does_not_depend_on_how_the_rows_come(spark: SparkSession, format: EventFormat) -> None:
    """A writer that died in the middle of a lane goes on by counting."""
    feed, _, _ = _feed_of(spark, [random_history(random.Random(seed)) for seed in range(HISTORIES)])
    # held twice as well: then the row's text decides
    feed = feed.unionAll(feed.withColumn("name", F.concat(F.lit("z"), "name")))
    first: list[Any] | None = None
    for partitions, seed, adaptive in ((1, 1, "true"), (2, 2, "true"), (13, 3, "false")):
        with session_settings(spark, spark__sql__adaptive__enabled=adaptive):
            mixed = feed.orderBy(F.rand(seed)).repartition(partitions)
            frame = to_envelope(mixed, key=["case_id", *KEY], format=format, lanes=3, **ORIGIN)
            found = frame.withColumn("partition", F.spark_partition_id()).collect()
        assert {(event.partition, event.lane) for event in found} == {(0, 0), (1, 1), (2, 2)}
        for lane in range(3):
            places = [(event.version, bytes(event.key)) for event in found if event.lane == lane]
            assert places == sorted(places)
        first = first or found
        assert found == first
    assert first is not None
    told = {(event.version, event.op, bytes(event.key), event.value and bytes(event.value)) for event in first}
    assert len({event.event_id for event in first}) == len(told)


@pytest.mark.usefixtures("spark_release")
@pytest.mark.parametrize("net", [False, True])
def test_a_lane_is_the_keys_for_ever(table: SampleTable, net: bool) -> None:
    edits = [insert(row(id, "a")) for id in range(200)]
    window = table.window(1, edits)
    changes = window.net() if net else window.read()
    for schemas in (False, True):  # a schema beside the key does not move it
        frame = to_envelope(
            changes, key=["id"], format=EventFormat(schemas=schemas), net=net, lanes=7, **ORIGIN
        ).withColumn("partition", F.spark_partition_id())
        found = frame.collect()
        assert len(found) == 200
        for event in found:
            key = json.loads(bytes(event.key))
            text = f'{{"id":{(key["payload"] if schemas else key)["id"]}}}'
            assert event.lane == event.partition == zlib.crc32(text.encode()) % 7


@pytest.mark.usefixtures("spark_release")
def test_there_is_one_shuffle(table: SampleTable) -> None:
    for format in (DEBEZIUM, ROW):
        plan = made(table, [insert(row(1, "a"))], format=format)._jdf.queryExecution().executedPlan().toString()
        assert (plan.count("Exchange"), plan.count("Sort ["), plan.count("StructsToJsonEvaluator")) == (1, 1, 2)


def test_a_session_that_spreads_rows_over_all_columns_keeps_the_lanes(table: SampleTable, spark: SparkSession) -> None:
    edits = [insert(row(id, "a")) for id in range(50)]
    with session_settings(spark, spark__sql__requireAllClusterKeysForDistribution="true"):
        frame = to_envelope(table.window(1, edits).read(), key=["id"], format=DEBEZIUM, lanes=3, **ORIGIN)
        found = frame.withColumn("partition", F.spark_partition_id()).collect()
    assert len(found) == 50
    assert all(event.partition == event.lane for event in found)


def test_an_id_stays_with_its_event(table: SampleTable) -> None:
    first = [insert(row(id, "a")) for id in range(5)]
    second = [update(row(1, "a"), row(1, "b")), delete(row(2, "a")), insert(row(7, "a"))]
    whole = made(table, first, second)
    alone = to_envelope(table.window(6, second).read(), key=["id"], lanes=3, format=DEBEZIUM, **ORIGIN)
    ids = {(event.version, event.op, event.key["id"]): event.event_id for event in events(whole)}
    assert len(set(ids.values())) == len(ids) == 9
    assert {(event.version, event.op, event.key["id"]): event.event_id for event in events(alone)} == {
        place: found for place, found in ids.items() if place[0] == 6
    }
    (event,) = made(table, [insert(row(1, "a"))]).collect()
    text = b"\n".join((b"id-1", b"5", b"c", bytes(event.key), bytes(event.value)))
    assert event.event_id == hashlib.md5(text).hexdigest()


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES = """
select 1 as id, true as b, -128Y as i8, 32767S as i16, 9223372036854775807L as i64, float(0.1) as f, -0.0D as zero,
  4.9E-324D as tiny, 1.50BD as dec, cast(1 as decimal(38, 18)) as padded, cast('1E-18' as decimal(38, 18)) as small,
  cast('-99999999999999999999999999999999999999' as decimal(38, 0)) as huge, '\u00e9\U0001f600 "q" \\\\ \\n' as s,
  X'00ff10' as bin, date'2024-02-29' as day, date'-0001-03-01' as old_day,
  timestamp'2024-03-10 07:00:00.000001Z' as ts, timestamp'2024-03-10 07:00:00Z' as whole,
  timestamp'-0044-03-15 12:00:00Z' as old, timestamp'+12024-03-10 07:00:00.1Z' as late,
  timestamp_ntz'2024-03-10 02:30:00.000001' as ntz, timestamp_ntz'1969-12-31 23:59:59.999999' as before_epoch,
  array(1.10BD, null) as arr, array(array(date'1970-01-02')) as deep, map('x', timestamp'1970-01-01 00:00:00Z') as m,
  map(5L, 'a', -1L, null) as numbered, map(true, 1.0BD) as flags,
  named_struct('a.b', 1.0BD, 'c', cast(null as string), 'd', named_struct('e', X'01')) as st,
  cast(null as struct<a:int>) as no_struct, cast(null as array<string>) as no_array, cast(array() as array<int>) as empty,
  array(named_struct('t', timestamp_ntz'1970-01-01 00:00:01'), null) as structs,
  parse_json('{"z":[1.25,null,"x"],"a":12345678901234567890}') as v, parse_json('null') as json_null,
  to_variant_object(named_struct('t', timestamp'2024-03-10 07:00:00.000001Z')) as timed,
  cast(null as string) as missing
"""
EXPECTED = (
    '{"id":1,"b":true,"i8":-128,"i16":32767,"i64":9223372036854775807,"f":0.1,"zero":-0.0,'
    '"tiny":4.9E-324,"dec":"1.50","padded":"1.000000000000000000","small":"0.000000000000000001",'
    '"huge":"-99999999999999999999999999999999999999","s":"\u00e9\U0001f600 \\"q\\" \\\\ \\n",'
    '"bin":"AP8Q","day":19782,"old_day":-719834,'
    '"ts":"2024-03-10T07:00:00.000001Z","whole":"2024-03-10T07:00:00.000000Z",'
    '"old":"-0044-03-15T12:00:00.000000Z","late":"+12024-03-10T07:00:00.100000Z",'
    '"ntz":1710037800000001,"before_epoch":-1,'
    '"arr":["1.10",null],"deep":[[1]],"m":{"x":"1970-01-01T00:00:00.000000Z"},'
    '"numbered":{"5":"a","-1":null},"flags":{"true":"1.0"},'
    '"st":{"a.b":"1.0","c":null,"d":{"e":"AQ=="}},'
    '"no_struct":null,"no_array":null,"empty":[],'
    '"structs":[{"t":1000000},null],'
    '"v":"{\\"a\\":12345678901234567890,\\"z\\":[1.25,null,\\"x\\"]}","json_null":"null",'
    '"timed":"{\\"t\\":\\"2024-03-10 07:00:00.000001+00:00\\"}","missing":null}'
)


def snapshot_values(rows: DataFrame, format: EventFormat, key: str = "id") -> str:
    frame = snapshot_to_envelope(rows, key=[key], version=1, timestamp=None, format=format, **ORIGIN)
    (event,) = frame.collect()
    return bytes(event.value).decode()


SESSIONS = {
    "plain": {},
    "ansi on": {"spark__sql__ansi__enabled": "true"},
    "ansi off": {"spark__sql__ansi__enabled": "false"},
    "zone with clock changes": {"spark__sql__session__timeZone": "America/Los_Angeles"},
    "zone without seconds": {"spark__sql__session__timeZone": "Europe/Amsterdam"},
    "zone far east": {"spark__sql__session__timeZone": "Asia/Tokyo"},
    "legacy times": {"spark__sql__legacy__timeParserPolicy": "LEGACY"},
    "no local timestamps": {"spark__sql__timestampType": "TIMESTAMP_NTZ"},
    "nulls ignored": {"spark__sql__jsonGenerator__ignoreNullFields": "true"},
    "binary as hex": {"spark__sql__binaryOutputStyle": "HEX"},
    "legacy casts": {"spark__sql__legacy__castComplexTypesToString__enabled": "true"},
    "interpreted": {"spark__sql__codegen__wholeStage": "false", "spark__sql__codegen__factoryMode": "NO_CODEGEN"},
    "case": {"spark__sql__caseSensitive": "true"},
}


@pytest.mark.parametrize("session", SESSIONS)
def test_every_value_in_every_session(spark: SparkSession, session: str) -> None:
    with session_settings(spark, **SESSIONS[session]):
        rows = spark.sql(VALUES)
        assert snapshot_values(rows, ROW) == EXPECTED


def test_an_image_is_written_as_a_row_is(spark: SparkSession) -> None:
    assert f'"after":{EXPECTED},' in snapshot_values(spark.sql(VALUES), DEBEZIUM)


def test_the_session_is_as_before(table: SampleTable, spark: SparkSession) -> None:
    with session_settings(spark, spark__sql__ansi__enabled="false"):
        made(table, [insert(row(1, "a"))])
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"


def test_the_first_and_the_last_times(spark: SparkSession) -> None:
    rows = spark.sql(
        "select 1 as id, timestamp_micros(-9223372036854775808) as first, timestamp_micros(9223372036854775807) as last, "
        "timestampadd(MICROSECOND, -9223372036854775808, timestamp_ntz'1970-01-01 00:00:00') as first_ntz, "
        "timestampadd(MICROSECOND, 9223372036854775807, timestamp_ntz'1970-01-01 00:00:00') as last_ntz"
    )
    assert json.loads(snapshot_values(rows, ROW)) == {
        "id": 1,
        "first": "-290308-12-21T19:59:05.224192Z",
        "last": "+294247-01-10T04:00:54.775807Z",
        "first_ntz": -(2**63),
        "last_ntz": 2**63 - 1,
    }


def test_every_double_reads_back(spark: SparkSession) -> None:
    source = random.Random(7)
    bits = [source.getrandbits(64) for _ in range(2000)]
    doubles = [value for value in (_double(some) for some in bits) if value == value and abs(value) != float("inf")]
    rows = spark.createDataFrame([(1, doubles)], "id int, doubles array<double>")
    assert json.loads(snapshot_values(rows, ROW))["doubles"] == doubles


def _double(bits: int) -> float:
    import struct

    return float(struct.unpack(">d", bits.to_bytes(8))[0])


NOT_FINITE = "select 1 as id, double('NaN') as x, float('-Infinity') as y, array(double('Infinity')) as z"


def test_what_json_has_no_number_for(spark: SparkSession) -> None:
    assert snapshot_values(spark.sql(NOT_FINITE), ROW) == '{"id":1,"x":"NaN","y":"-Infinity","z":["Infinity"]}'


@pytest.mark.parametrize("column", ["x", "y", "z"])
def test_connect_would_read_not_a_number_as_zero(spark: SparkSession, column: str) -> None:
    rows = spark.sql(NOT_FINITE).select("id", column)
    with pytest.raises(Exception) as failed:  # noqa: PT011 - whatever class Spark makes of it
        snapshot_values(rows, EventFormat(schemas=True))
    found = find_rejection(failed.value, table="sample")
    assert found is not None
    assert (found.fields["column"], found.fields["reason"]) == (column, "not_finite")


INVALID = "cast(X'61FF62' as string)"


@pytest.mark.parametrize(
    "expression",
    [
        INVALID,
        f"array('ok', {INVALID})",
        f"map('ok', {INVALID})",
        f"map({INVALID}, 1)",
        f"named_struct('ok', 'ok', 'not', array(map('k', {INVALID})))",
    ],
)
def test_text_that_is_not_utf8_is_refused(spark: SparkSession, expression: str) -> None:
    rows = spark.sql(f"select 1 as id, {expression} as `odd name`")
    with pytest.raises(Exception) as failed:  # noqa: PT011
        snapshot_values(rows, ROW)
    found = find_rejection(failed.value, table="sample")
    assert found is not None
    assert found.message == (
        "version 1 of sample has text that is not UTF-8, which JSON cannot represent, in column 'odd name'"
    )
    assert "61FF62" not in str(failed.value)


def test_an_error_of_something_else_is_no_rejection() -> None:
    assert find_rejection(ValueError("DELTARELAY_EVENT not_utf8 , cast(version as string)"), table="t") is None


def test_a_null_in_the_key_is_refused(table: SampleTable) -> None:
    window = table.window(5, [insert({"id": None, "name": "a"})])
    with pytest.raises(Exception) as failed:  # noqa: PT011
        to_envelope(window.read(), key=["id"], format=DEBEZIUM, **ORIGIN).collect()
    assert isinstance(failed.value, Exception)
    words = window.failure(failed.value)
    assert isinstance(words, KeyViolation)
    assert words.fields["version"] == 5


NAMES = (
    "a.b",
    "b`c",
    'q"q',
    "größe",
    "日本",
    "a b",
    "lane",
    "value",
    "op",
    "side",
    "image",
    "version",
    "before",
    "timestamp",
)


def test_names_of_columns(spark: SparkSession) -> None:
    names = ["key", *NAMES, *(f"column {number}" for number in range(120))]
    schema = StructType()
    for name in names:
        schema.add(name, "integer")
    table = SampleTable(spark, schema, ("b`c", "key", 'q"q', "a.b"))
    before = {name: place for place, name in enumerate(names)}
    after = {**before, "日本": None}
    window = table.window(1, [update(before, after)])
    for format in (DEBEZIUM, ROW):
        (event,) = events(to_envelope(window.read(), key=table.key, format=format, **ORIGIN))
        assert list(event.key.items()) == [(name, before[name]) for name in table.key]  # in the key's own order
        assert list(event.value["after"] if format is DEBEZIUM else event.value) == names
        assert (event.value["after"] if format is DEBEZIUM else event.value) == after
    schemas = EventFormat(schemas=True)
    (event,) = events(to_envelope(window.read(), key=table.key, format=schemas, **ORIGIN))
    image = event.value["schema"]["fields"][1]
    assert [field["field"] for field in image["fields"]] == names


# ── Connect's schemas ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schema_stands_beside_key_and_value(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as id, 1.50BD as amount, date'1970-01-02' as day")
    frame = snapshot_to_envelope(
        rows, key=["id"], version=3, timestamp=None, format=EventFormat(envelope="row", schemas=True), **ORIGIN
    )
    (event,) = frame.collect()
    assert json.loads(bytes(event.key)) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "id"}],
            "optional": False,
            "name": "flow.Key",
        },
        "payload": {"id": 1},
    }
    value = json.loads(bytes(event.value), parse_float=Decimal)
    assert str(value["payload"].pop("amount")) == "1.50"
    assert value["payload"] == {"id": 1, "day": 1}
    assert value["schema"]["fields"] == [
        {"type": "int32", "optional": False, "field": "id"},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "3"},
            "optional": True,
            "field": "amount",
        },
        {"type": "int32", "name": "io.debezium.time.Date", "version": 1, "optional": True, "field": "day"},
    ]
    assert (value["schema"]["name"], value["schema"]["optional"]) == ("flow.Value", False)


def test_the_schema_tells_of_every_value(spark: SparkSession, table: SampleTable) -> None:
    """Walks schema and payload together: what a reader by schema, such as Connect's converter, does."""
    for format in (EventFormat(schemas=True), EventFormat(envelope="row", schemas=True)):
        read = json.loads(snapshot_values(spark.sql(VALUES), format), parse_float=Decimal)
        _agree(read["schema"], read["payload"])
    for event in events(made(table, [delete(row(1, "a"))], format=EventFormat(schemas=True))):
        _agree(event.key["schema"], event.key["payload"])
        if event.op == "d":
            assert event.value["schema"]["name"] == "flow.Envelope"
            _agree(event.value["schema"], event.value["payload"])
        else:
            assert event.value is None


def _agree(schema: Mapping[str, Any], value: Any) -> None:
    kind, name = schema["type"], schema.get("name")
    if value is None:
        assert schema["optional"]
    elif kind == "struct":
        assert list(value) == [field["field"] for field in schema["fields"]]
        for field in schema["fields"]:
            _agree(field, value[field["field"]])
    elif kind == "array":
        for item in value:
            _agree(schema["items"], item)
    elif kind == "map":
        assert schema["keys"]["type"] == "string"
        for item in value.values():
            _agree(schema["values"], item)
    elif name == "org.apache.kafka.connect.data.Decimal":
        assert -Decimal(value).as_tuple().exponent == int(schema["parameters"]["scale"])
    else:
        python = {"boolean": bool, "string": str, "bytes": str, "float": Decimal, "double": Decimal}.get(kind, int)
        assert type(value) is python, (kind, name)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "kind",
    [
        "interval day to second",
        "interval year to month",
        "void",
        "time(6)",
        "map<date,int>",
        "map<decimal(5,2),int>",
        "map<binary,int>",
        "map<double,int>",
        "array<struct<a:map<timestamp,int>>>",
        "struct<>",
    ],
)
def test_types_without_a_form_are_named(spark: SparkSession, kind: str) -> None:
    with session_settings(spark, spark__sql__timeType__enabled="true"):
        schema = spark.sql(f"select 1 as id, 'a' as fine, cast(null as {kind}) as `odd.one`").schema
    for format in (DEBEZIUM, ROW, EventFormat(schemas=True)):
        assert check_schema(schema, ["id"], format) == [
            f"column 'odd.one' has type {schema['odd.one'].dataType.simpleString()}, which has no JSON form without loss"
        ]
    with pytest.raises(TypeNotSupported, match=re.escape("'odd.one'")):
        snapshot_to_envelope(
            spark.createDataFrame([], schema), key=["id"], version=1, timestamp=None, format=ROW, **ORIGIN
        )


def test_a_key_without_one_form_is_named(spark: SparkSession) -> None:
    schema = spark.sql("select 1 as id, 'a' collate UTF8_LCASE as name, 1.0D as number, array(1) as list").schema
    assert check_schema(schema, ["id"], DEBEZIUM) == []
    for name in ("name", "number", "list", "missing"):
        (problem,) = check_schema(schema, ["id", name], DEBEZIUM)
        assert repr(name) in problem


def test_a_collated_column_is_a_string(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as id, 'Ab' collate UTF8_LCASE as name")
    assert snapshot_values(rows, ROW) == '{"id":1,"name":"Ab"}'


def test_a_stream_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("value", "id")
    changes = stream.select(
        "id",
        F.lit("insert").alias(CHANGE_TYPE),
        F.lit(1).alias(COMMIT_VERSION),
        F.col("timestamp").alias(COMMIT_TIMESTAMP),
    )
    with pytest.raises(ConfigError) as refused:
        to_envelope(changes, key=["id"], format=DEBEZIUM, **ORIGIN)
    assert "foreachBatch" in str(refused.value.hint)


# ── from a real table ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_feed_of_a_delta_table(spark: SparkSession, delta_path: str) -> None:
    spark.sql(
        f"create table delta.`{delta_path}` (id bigint not null, name string, amount decimal(10, 2), at timestamp) "
        "using delta tblproperties (delta.enableChangeDataFeed = true)"
    )
    time = "timestamp'2024-03-10 07:00:00.000001Z'"
    spark.sql(f"insert into delta.`{delta_path}` values (1, 'a', 1.5, {time}), (2, 'b', null, null)")
    spark.sql(f"update delta.`{delta_path}` set amount = 2 where id = 1")
    spark.sql(f"update delta.`{delta_path}` set id = 3 where id = 2")
    spark.sql(f"delete from delta.`{delta_path}` where id = 1")
    options = {"readChangeFeed": "true", "startingVersion": "1"}
    feed = spark.read.format("delta").options(**options).load(delta_path)
    found = events(to_envelope(feed, key=["id"], format=DEBEZIUM, **ORIGIN))

    def image(id: int, name: str, amount: str | None, at: str | None) -> dict[str, Any]:
        return {"id": id, "name": name, "amount": amount, "at": at}

    one, two = image(1, "a", "1.50", "2024-03-10T07:00:00.000001Z"), image(2, "b", None, None)
    changed = {**one, "amount": "2.00"}
    assert [(e.version, e.op, e.value and _images(e.value)) for e in found] == [
        (1, "c", (None, one)),
        (1, "c", (None, two)),
        (2, "u", (one, changed)),
        (3, "d", (two, None)),
        (3, "t", None),
        (3, "c", (None, {**two, "id": 3})),
        (4, "d", (changed, None)),
        (4, "t", None),
    ]

    streamed: list[Event] = []

    def write(changes: DataFrame, _: int) -> None:
        streamed.extend(events(to_envelope(changes, key=["id"], format=DEBEZIUM, **ORIGIN)))

    stream = spark.readStream.format("delta").options(**options).load(delta_path)
    query = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", f"{delta_path}-checkpoint").start().awaitTermination()
    assert streamed == found


# ── the reference ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reference_tells_of_every_type(spark: SparkSession) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "kafka-events.md").read_text()
    table = page.split("## Types", 1)[1].split("\n\n")[1]
    lines = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(lines) > 20
    for kind, plain, _, connect, name in lines:
        schema = spark.sql(f"select 1 as id, cast(null as {kind}) as value").schema
        assert bool(check_schema(schema, ["id"], DEBEZIUM)) is (plain == "refused"), kind
        if plain != "refused":
            found = build_row_schema(schema, ["id"], "flow")["fields"][1]
            assert (found["type"], found.get("name", "")) == (connect, name), kind
