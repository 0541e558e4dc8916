"""The net effect equals the sequence: random histories against a plain-Python table, and each rule by example.

Both ways to it, the Spark plan and the one in memory, are held to the same tests.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdf.changes import net_arrow, net_spark
from cdf.changes.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, CONFLICTS
from cdf.changes.keys import key_violation, violation_of
from cdf.changes.net_arrow import KeyRefused, net_of_sorted, net_on_driver
from cdf.changes.net_spark import net_effect
from cdf.changes.window import Window
from cdf.errors import KeyViolation
from cdf.spark_versions import collect_arrow
from cdf.testing import SampleTable, delete, insert, update
from cdf.testing.model import COLUMNS, KEY, History, Key, histories, key_of, random_history
from tests.fixtures.fix_seed import examples

Row = dict[str, Any]
Way = Literal["cluster", "driver", "tasks"]
BOTH_WAYS = pytest.mark.parametrize("way", ["cluster", "driver", "tasks"])
CASES = 300


def reduced(changes: DataFrame, key: Sequence[str], way: Way, *, transients: bool = False) -> list[Row]:
    if way == "cluster":
        return [row.asDict() for row in net_effect(changes, key, transients=transients).collect()]
    if way == "tasks":
        in_order = collect_arrow(changes).sort_by([(name, "ascending") for name in key])
        # Three rows at a time: nearly every key is torn apart
        nets = net_of_sorted(in_order.to_batches(max_chunksize=3), key, transients=transients)
        return [row for net in nets for row in net.to_pylist()]
    return list(net_on_driver(collect_arrow(changes), key, transients=transients).to_pylist())


def net_of(spark: SparkSession, cases: list[tuple[History, int, int]], way: Way) -> list[dict[Key, list[Row]]]:
    """The net effect of all cases at once: the case is one more column of the key."""
    schema = StructType().add("case_id", "integer")
    for name, kind in COLUMNS.items():
        schema.add(name, kind)
    schema.add(CHANGE_TYPE, "string").add(COMMIT_VERSION, "long").add(COMMIT_TIMESTAMP, "timestamp")
    rows = [
        (case, *(change.row[name] for name in COLUMNS), change.type, version, None)
        for case, (history, first, last) in enumerate(cases)
        for version, change in history.changes(first, last)
    ]
    found: list[dict[Key, list[Row]]] = [{} for _ in cases]
    for row in reduced(spark.createDataFrame(rows, schema), ("case_id", *KEY), way):
        found[row["case_id"]].setdefault(key_of(row), []).append(row)
    return found


def check(history: History, first: int, last: int, net: dict[Key, list[Row]]) -> None:
    before, expected = history.state(first - 1), history.state(last)
    result = {key: dict(row) for key, row in before.items()}
    for key, rows in net.items():
        assert len(rows) == 1
        row = rows[0]
        assert row[CONFLICTS] == 0
        kind = {(False, True): "insert", (True, True): "update", (True, False): "delete"}[
            key in before, key in expected
        ]
        assert row[CHANGE_TYPE] == kind
        versions = [version for version, change in history.changes(first, last) if key_of(change.row) == key]
        assert row[COMMIT_VERSION] == max(versions)
        if kind == "delete":
            del result[key]
        else:
            result[key] = {name: row[name] for name in COLUMNS}
    assert result == expected


@BOTH_WAYS
@given(seed=st.integers(0, 2**63))
@settings(
    max_examples=examples(3),
    phases=[Phase.generate],  # the failing case is named by its number: nothing is gained by shrinking 300 histories
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_net_effect_leads_to_the_same_state(spark: SparkSession, way: Way, seed: int) -> None:
    source = random.Random(seed)
    cases = []
    for _ in range(CASES):
        history = random_history(source)
        first = source.randint(1, history.last)
        cases.append((history, first, source.randint(first, history.last)))
    print(f"seed {seed}")
    for case, ((history, first, last), net) in enumerate(zip(cases, net_of(spark, cases, way), strict=True)):
        note(f"seed {seed}, case {case}, versions {first}..{last} of {history}")
        check(history, first, last, net)


@given(histories())
@settings(max_examples=examples(200))
def test_the_model_agrees_with_its_own_feed(history: History) -> None:
    """Removes, then puts, on plain dictionaries: a second, independent reading of the model's changes."""
    held = dict(history.start)
    for version in history.versions:
        for change in version.changes:
            if change.type in ("delete", "update_preimage"):
                assert held.pop(key_of(change.row)) == change.row
        for change in version.changes:
            if change.type in ("insert", "update_postimage"):
                assert held.setdefault(key_of(change.row), change.row) is change.row
        assert held == version.after


# ── by example ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def table(spark: SparkSession) -> SampleTable:
    return SampleTable(
        spark, StructType().add("id", "string").add("part", "long").add("name", "string"), ("id", "part")
    )


def row(key: str, name: str | None = None) -> Row:
    return {"id": key, "part": 1, "name": name}


@BOTH_WAYS
def test_what_contradicts_itself_is_counted_and_the_last_one_wins(table: SampleTable, way: Way) -> None:
    window = table.window(
        5,
        [insert(row("put-put", "1")), delete(row("remove-remove")), insert(row("gone"))],
        [insert(row("put-put", "2")), delete(row("remove-remove")), insert(row("fine"))],
        [insert(row("put-put", "3")), delete(row("gone")), update(row("fine"), row("fine", "x"))],
    )
    net = {found["id"]: found for found in reduced(window.read(), window.key, way)}
    assert {key: (found[CHANGE_TYPE], found["name"], found[CONFLICTS]) for key, found in net.items()} == {
        "put-put": ("insert", "3", 2),
        "remove-remove": ("delete", None, 1),
        "fine": ("insert", "x", 0),
    }
    assert net["put-put"][COMMIT_VERSION] == 7
    assert net["put-put"][COMMIT_TIMESTAMP] is not None


@BOTH_WAYS
def test_keys_that_came_and_went_are_told_where_they_are_asked_for(table: SampleTable, way: Way) -> None:
    window = table.window(
        5,
        [
            insert(row("short")),
            insert(row("long", "1")),
            delete(row("old")),
            insert(row("twice")),
            insert(row("stays")),
        ],
        [delete(row("short")), update(row("long", "1"), row("long", "2")), insert(row("old")), insert(row("twice"))],
        [delete(row("long", "2")), delete(row("old")), delete(row("twice"))],
    )
    plain = {"old": "delete", "twice": "delete", "stays": "insert"}
    for transients, expected in ((False, plain), (True, {**plain, "short": "transient", "long": "transient"})):
        net = reduced(window.read(), window.key, way, transients=transients)
        assert {found["id"]: found[CHANGE_TYPE] for found in net} == expected
        assert len(net) == len(expected)


NO_KEYS = pytest.mark.parametrize(
    ("edits", "reason", "said"),
    [
        ([insert(row("secret", "a")), insert(row("secret", "b"))], "put_twice", "more than once"),
        ([update(row("x"), row("secret")), insert(row("secret"))], "put_twice", "more than once"),
        ([insert({"id": "secret", "name": "secret"})], "null_key", "a null in the key"),
        ([delete({"part": 1, "name": "secret"})], "null_key", "a null in the key"),
    ],
)


@NO_KEYS
# Columns that the consumer does not ask for, and rows that it would never see, are no way around the refusal.
@pytest.mark.parametrize("columns", [("*",), (CHANGE_TYPE,)])
def test_a_key_that_is_none_refuses_the_window(
    table: SampleTable, edits: list[Any], reason: str, said: str, columns: tuple[str, ...]
) -> None:
    window = table.window(7, [insert(row("other"))], edits, [delete(change.row) for change in edits[-1][-1:]])
    with pytest.raises(Exception, match="DELTARELAY_KEY_VIOLATION") as caught:
        window.net().select(*columns).collect()
    violation = violation_of(caught.value, table="orders", key=table.key)
    assert violation is not None
    assert violation.fields == {"table": "orders", "version": 8, "key": ["id", "part"], "reason": reason}
    text = f"{violation} {violation!r} {violation.to_dict()}"
    assert said in text
    assert "version 8 of orders" in text
    assert "(id, part)" in text
    assert "secret" not in text


@NO_KEYS
def test_the_driver_refuses_it_in_the_same_words(table: SampleTable, edits: list[Any], reason: str, said: str) -> None:
    window = table.window(7, [insert(row("other"))], edits, [delete(change.row) for change in edits[-1][-1:]])
    with pytest.raises(KeyRefused) as caught:
        net_on_driver(collect_arrow(window.read()), window.key)
    assert (caught.value.reason, caught.value.version) == (reason, 8)
    assert "secret" not in f"{caught.value!r}"
    assert said in str(key_violation(reason, 8, table="orders", key=table.key))


def without_preimages(window: Window) -> Window:
    """The same window as a writer leaves it that does not record the old rows of updates."""
    commits = tuple(replace(commit, atomic=True, engine="OtherEngine/7.1") for commit in window.commits)
    return replace(window, commits=commits).without(
        lambda rows: (
            rows.filter(pc.not_equal(rows[CHANGE_TYPE], "update_preimage"))
            if isinstance(rows, pa.Table)
            else rows.where(F.col(CHANGE_TYPE) != "update_preimage")
        )
    )


@pytest.mark.parametrize("in_memory", [False, True])
def test_an_update_without_its_old_row_refuses_the_window(spark: SparkSession, in_memory: bool) -> None:
    schema = StructType().add("id", "string").add("part", "long").add("name", "string")
    table = SampleTable(None if in_memory else spark, schema, ("id", "part"), table="orders")
    unchanged = table.window(7, [insert(row("x")), delete(row("y"))], [insert(row("z"))])
    assert len(without_preimages(unchanged).collect_net()) == 3
    window = table.window(7, [insert(row("x"))], [update(row("secret"), row("hidden"))], [update(row("x"), row("x"))])
    assert len(window.collect_net()) == 3
    with pytest.raises(KeyViolation) as caught:
        without_preimages(window).collect_net()
    error = caught.value
    assert error.fields == {"table": "orders", "version": 8, "key": ["id", "part"], "reason": "image_missing"}
    assert error.message.startswith(
        "version 8 of orders has updates without their old or new row: its writer (OtherEngine/7.1)"
    )
    assert not {"secret", "hidden"} & set(f"{error} {error!r} {error.to_dict()}".replace("'", " ").split())
    # Of a window whose rows a guard has removed, a part of a pair may be left
    assert len(replace(without_preimages(window), filtered=True).collect_net()) == 2
    by_delta = replace(window.commits[1], atomic=True, engine="Apache-Spark/4.2.0 Delta-Lake/4.4.0")
    assert not by_delta.may_lack_images


@pytest.mark.parametrize(
    ("kinds", "version"),
    [
        ([], None),
        ([(1, "insert"), (2, "delete")], None),
        ([(1, "update_preimage"), (1, "update_postimage")], None),
        ([(1, "update_preimage"), (2, "update_postimage")], 1),
        ([(3, "update_postimage"), (2, "update_postimage"), (2, "update_preimage")], 3),
        ([(4, "update_preimage"), (4, "update_preimage"), (4, "update_postimage"), (5, "update_postimage")], 4),
    ],
)
def test_the_images_of_a_version_are_counted(
    spark: SparkSession, kinds: list[tuple[int, str]], version: int | None
) -> None:
    rows = spark.createDataFrame(kinds, f"{COMMIT_VERSION} bigint, {CHANGE_TYPE} string")
    assert net_spark.first_unpaired_image(rows) == version
    assert net_arrow.first_unpaired_image(collect_arrow(rows)) == version


MOMENT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("tinyint", -5, 5),
        ("smallint", -5, 5),
        ("int", -5, 5),
        ("bigint", -(2**62), 2**62),
        ("decimal(38,6)", Decimal("-1.000001"), Decimal("10.5")),
        ("boolean", False, True),
        ("string", "", "\u00e9 \U0001f600"),
        ("binary", b"", b"\x00\xff"),
        ("date", dt.date(1582, 10, 4), dt.date(9999, 12, 31)),
        ("timestamp", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
        ("timestamp_ntz", MOMENT.replace(tzinfo=None), dt.datetime(9999, 12, 31)),
    ],
)
def test_a_key_of_any_type_that_may_be_one(spark: SparkSession, kind: str, low: Any, high: Any) -> None:
    rows = [
        (high, 1, "delete", 3),
        (low, 2, "insert", 3),
        (high, 3, "insert", 2),
        (low, 4, "update_preimage", 4),
        (high, 5, "update_preimage", 2),
        (low, 6, "update_postimage", 4),
        (high, 7, "insert", 5),
    ]
    schema = f"k {kind}, value int, {CHANGE_TYPE} string, {COMMIT_VERSION} bigint, {COMMIT_TIMESTAMP} timestamp"
    changes = spark.createDataFrame([(*values, None) for values in rows], schema)
    for way in ("cluster", "driver"):
        found = [(one["value"], one[CHANGE_TYPE], one[COMMIT_VERSION]) for one in reduced(changes, ["k"], way)]  # type: ignore[arg-type]
        assert sorted(found) == [(6, "insert", 4), (7, "update", 5)], way


@BOTH_WAYS
def test_of_no_changes_there_is_no_net_effect(table: SampleTable, way: Way) -> None:
    window = table.window(5, [insert(row("other"))])
    assert reduced(window.read().limit(0), window.key, way) == []


def test_another_failure_is_no_key_violation() -> None:
    assert violation_of(RuntimeError("out of memory"), table="orders", key=("id",)) is None
