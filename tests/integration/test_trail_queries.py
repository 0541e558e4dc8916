"""The questions, asked of one trail: of a table with updates, deletes, maps, NULLs, columns that come and go, and upkeep.

In one file, because they all ask the same trail, which takes a minute to write.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from audit.audit_trail import Trail
from audit.queries.questions import (
    actor_activity,
    actors,
    as_of,
    column_changes,
    count_removed_values,
    deletes,
    deletes_without_ticket,
    diff,
    gaps,
    hiding_operations,
    history,
    record_as_of,
    removals,
)
from audit.queries.sql_export import view_sql
from audit.queries.view import view
from audit.trail.ledger_state import read_state
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES, TrailTables
from audit.writing.removal import remove_values
from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import AGES, Table, setting
from tests.integration.executions import Executions
from tests.integration.intruder import rewrite

ANN, BOB, CYD, DAN = 7310042, 2, 3, 4
KEY = ("id",)
BEGAN = dt.datetime(2026, 5, 1, 10, tzinfo=dt.UTC)
"""Of version 0; each later version comes a minute after the one before."""
ACTOR = "Canary Steward"


def at(version: int) -> dt.datetime:
    return BEGAN + dt.timedelta(minutes=version)


@dataclass
class Asked:
    trail: Trail
    source: Table
    path: Path
    versions: Mapping[str, int]
    """What was done → the version."""

    def source_at(self, version: int) -> list[Any]:
        reader = self.source.spark.read.format("delta").option("versionAsOf", version)
        return rows_of(reader.load(self.source.path))


STATEMENTS = {
    "created": "",
    "loaded": f"insert into {{t}} values ({ANN}, 'v1', 'ann', map('a', 1, 'b', 2), 10, named_struct('x', 1)),"
    f" ({BOB}, 'v1', null, null, 20, null), ({CYD}, '', 'cyd', map(), 30, named_struct('x', null))",
    "raised": f"update {{t}} set amount = 11 where id = {ANN}",
    "bob deleted": f"delete from {{t}} where id = {BOB}",
    "note added": "alter table {t} add column (note string, of.y string)",
    "bob is back": f"insert into {{t}} values ({BOB}, 'v2', 'bob', null, 25, named_struct('x', 2, 'y', 'z'), 'back')",
    "optimized": "optimize {t}",
    "note dropped": "alter table {t} drop column note",
    "widened": "alter table {t} alter column amount type bigint",
    "cyd is rich": f"update {{t}} set amount = 5000000000 where id = {CYD}",
    "note again": "alter table {t} add column (note string)",
    "map in another order": f"update {{t}} set tags = map('b', 2, 'a', 1) where id = {ANN}",
    "properties": "alter table {t} set tblproperties ('delta.logRetentionDuration' = 'interval 900 days')",
    "cyd deleted": f"delete from {{t}} where id = {CYD}",
    "restored": "restore table {t} to version as of 12",
    "renamed": "alter table {t} rename column name to full_name",
    "ann is renamed": f"update {{t}} set full_name = '=1+1' where id = {ANN}",
    "vacuum": "vacuum {t}",
    "dan": f"insert into {{t}} (id, version) values ({DAN}, null)",
}
WHY = {
    "loaded": {"ticket": 1000, "purpose": "first load", "job": "nightly", "run": "r1"},
    "raised": {"ticket": "T-1001"},
    "cyd deleted": {"ticket": "T-1002", "purpose": "cleaning"},
}
BY = ("raised", "bob deleted", "ann is renamed")
"""What the actor did."""


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("asked")
    columns = "id long, version string, name string, tags map<string, int>, amount int, of struct<x: int>"
    properties = {"columnMapping.mode": "name", "enableTypeWidening": "true", **AGES}
    source = Table(spark, str(folder / "source"), columns, **properties)
    versions = {"created": 0}
    for name, statement in list(STATEMENTS.items())[1:]:
        with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", json.dumps(WHY.get(name, {}))):
            source.sql(statement)
        versions[name] = max(int(file.stem) for file in source.log.glob("*.json"))
    for name in BY:
        sign(source, versions[name])
    source.date({version: at(version) for version in range(versions["dan"] + 1)})
    path = folder / "trail"
    run(spark, source, path, "earliest")
    return Asked(Trail(spark, str(path)), source, path, versions)


def run(spark: SparkSession, source: Table, path: Path, start: Any) -> None:
    Pipeline(ChangeFeed(spark, source.path), DeltaAuditSink(str(path), spark=spark), key=KEY, start=start).run()


def sign(source: Table, version: int) -> None:
    """Delta without Databricks does not write who did it; other writers do."""
    file = source.commit_file(version)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["userName"] = ACTOR
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    file.with_name(f".{file.name}.crc").unlink()


def plain(value: Any) -> Any:
    """Of a row; maps in one order."""
    if isinstance(value, dict):
        return sorted((plain(name), plain(item)) for name, item in value.items())
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted((plain(row) for row in frame.collect()), key=repr)


# ── one record ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_history_of_a_record(asked: Asked) -> None:
    found = history(asked.trail, {"ID": str(ANN)}).collect()
    did = asked.versions
    happened = [(row["version"], row["change_type"]) for row in found]
    assert happened == [
        (did["loaded"], "insert"),
        (did["raised"], "update_preimage"),
        (did["raised"], "update_postimage"),
        (did["map in another order"], "update_preimage"),
        (did["map in another order"], "update_postimage"),
        (did["restored"], "delete"),  # her row stood in one file with another's
        (did["restored"], "insert"),
        (did["ann is renamed"], "update_preimage"),
        (did["ann is renamed"], "update_postimage"),
    ]
    assert [row["row"]["amount"] for row in found] == [10, 10, 11, 11, 11, 11, 11, 11, 11]
    assert {row["row"]["version"] for row in found} == {"v1"}
    assert [row["changed_columns"] for row in found] == [
        None, ["amount"], ["amount"], [], [], None, None, ["full_name"], ["full_name"],
    ]  # fmt: skip
    assert [(row["row"]["name"], row["row"]["full_name"]) for row in found[-3:]] == [
        ("ann", None),
        (None, "ann"),
        (None, "=1+1"),
    ]
    loaded, raised = found[0], found[2]
    assert [loaded[name] for name in ("operation", "actor", "ticket", "purpose", "job", "run")] == [
        "WRITE", None, "1000", "first load", "nightly", "r1",
    ]  # fmt: skip
    assert [raised[name] for name in ("operation", "actor", "ticket", "purpose")] == ["UPDATE", ACTOR, "T-1001", None]
    assert raised["row"]["of"].asDict() == {"x": 1, "y": None}


def test_a_record_is_found_by_any_column_and_by_null(asked: Asked) -> None:
    assert [row["row"]["id"] for row in history(asked.trail, {"version": "v2"}).collect()] == [BOB] * 3
    assert [row["row"]["id"] for row in history(asked.trail, {"version": None, "id": DAN}).collect()] == [DAN]
    assert history(asked.trail, {"id": 99}).collect() == []


def test_a_record_at_some_moments(asked: Asked) -> None:
    did = asked.versions

    def bob(when: int | dt.datetime) -> list[Any]:
        return rows_of(record_as_of(asked.trail, {"id": BOB}, when))

    assert [row["amount"] for row in bob(at(did["bob deleted"]) - dt.timedelta(microseconds=1))] == [20]
    assert bob(did["bob deleted"]) == []
    assert bob(did["note dropped"]) == [
        {"id": BOB, "version": "v2", "name": "bob", "tags": None, "amount": 25, "of": {"x": 2, "y": "z"}}
    ]
    last = bob(did["dan"])[0]
    assert (last["note"], last["full_name"]) == (None, "bob"), "the note of before was dropped"


@pytest.mark.parametrize("record", [{}, {"nobody": 1}, {"id": "7310042.5"}, {"id": "ann"}, {"id": 7310042.5}])
def test_what_is_no_record_is_refused_without_its_value(asked: Asked, record: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        history(asked.trail, record)
    said = f"{raised.value} {raised.value.hint}"
    assert "7310042" not in said
    assert "ann" not in said
    assert raised.value.__cause__ is None


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "done", ["created", "loaded", "bob is back", "note dropped", "cyd is rich", "cyd deleted", "restored", "dan"]
)
def test_the_table_is_what_its_source_was(asked: Asked, done: str) -> None:
    version = asked.versions[done]
    assert rows_of(as_of(asked.trail, KEY, version)) == asked.source_at(version)


def test_a_time_is_the_last_version_by_then(asked: Asked) -> None:
    version = asked.versions["cyd deleted"]
    for when in (at(version), at(version + 1) - dt.timedelta(microseconds=1)):
        assert rows_of(as_of(asked.trail, KEY, when)) == asked.source_at(version)
    elsewhere = at(version).astimezone(dt.timezone(dt.timedelta(hours=-7)))
    assert rows_of(as_of(asked.trail, KEY, elsewhere)) == asked.source_at(version)


@pytest.mark.parametrize("when", [-1, 99, at(0) - dt.timedelta(seconds=1), at(99), BEGAN.replace(tzinfo=None)])
def test_a_moment_outside_of_the_trail_is_refused(asked: Asked, when: Any) -> None:
    for ask in (lambda: as_of(asked.trail, KEY, when), lambda: record_as_of(asked.trail, {"id": BOB}, when)):
        with pytest.raises(ConfigError) as raised:
            ask()
    if not isinstance(when, dt.datetime) or when.tzinfo:
        hint = str(raised.value.hint)
        assert f"version 0 ({at(0).isoformat()})" in hint
        assert f"version {asked.versions['dan']} ({at(asked.versions['dan']).isoformat()})" in hint


def test_what_is_different_between_two_moments(asked: Asked) -> None:
    did = asked.versions

    def different(first: Any, second: Any) -> list[tuple[Any, ...]]:
        rows = diff(asked.trail, KEY, first, second).collect()
        return sorted(
            (row["key"]["id"], row["difference"], *(side and side["amount"] for side in (row["before"], row["after"])))
            for row in rows
        )

    assert different(did["loaded"], did["bob deleted"]) == [(BOB, "removed", 20, None), (ANN, "changed", 10, 11)]
    assert different(at(did["bob deleted"]), at(did["bob is back"])) == [(BOB, "added", None, 25)]
    assert different(did["loaded"], did["cyd is rich"]) == [
        (BOB, "changed", 20, 25),
        (CYD, "changed", 30, 5_000_000_000),
        (ANN, "changed", 10, 11),
    ]
    assert different(did["note again"], did["map in another order"]) == [], "a map has no order"
    assert different(did["note again"], did["restored"]) == [], "deleted, and as it was"
    with pytest.raises(ConfigError):
        diff(asked.trail, KEY, did["restored"], did["loaded"])


def test_who_changed_a_column(asked: Asked) -> None:
    did = asked.versions
    amounts = column_changes(asked.trail, KEY, "amount").collect()
    assert [
        (row["version"], row["key"]["id"], row["old_value"], row["new_value"], row["change_type"]) for row in amounts
    ] == [
        (did["raised"], ANN, 10, 11, "update_postimage"),
        (did["bob is back"], BOB, 20, 25, "insert"),
        (did["cyd is rich"], CYD, 30, 5_000_000_000, "update_postimage"),
    ]
    assert [row["actor"] for row in amounts] == [ACTOR, None, None]
    assert all(row["certain"] for row in amounts)
    assert column_changes(asked.trail, KEY, "tags").collect() == []
    guessed = column_changes(asked.trail, ("version",), "amount").collect()
    assert [(row["key"]["version"], row["version"], row["certain"]) for row in guessed][:2] == [
        ("v1", did["loaded"], False),  # two rows at once
        ("v1", did["raised"], True),
    ]
    with pytest.raises(ConfigError) as raised:
        column_changes(asked.trail, KEY, "nothing")
    assert "full_name" in str(raised.value.hint)


# ── who, and why ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deletes(asked: Asked) -> None:
    did = asked.versions
    found = deletes(asked.trail).collect()
    assert [row["version"] for row in found] == sorted(row["version"] for row in found)
    assert sorted((row["version"], row["row"]["id"], row["actor"], row["ticket"]) for row in found) == [
        (did["bob deleted"], BOB, ACTOR, None),
        (did["cyd deleted"], CYD, None, "T-1002"),
        (did["restored"], BOB, None, None),
        (did["restored"], ANN, None, None),
    ]
    deleted = at(did["bob deleted"])
    assert deletes(asked.trail, since=deleted, until=deleted).count() == 0
    assert deletes(asked.trail, since=deleted, until=deleted + dt.timedelta(seconds=1)).count() == 1
    with pytest.raises(ConfigError):
        deletes(asked.trail, since=deleted.replace(tzinfo=None))
    without = deletes_without_ticket(asked.trail).collect()
    assert [(row["version"], row["deleted"], row["actor"]) for row in without] == [
        (did["bob deleted"], 1, ACTOR),
        (did["restored"], 2, None),
    ]


def test_actors_and_what_they_did(asked: Asked) -> None:
    did = asked.versions
    who = {row["actor"]: row.asDict() for row in actors(asked.trail).collect()}
    assert set(who) == {None, ACTOR}
    assert (who[ACTOR]["commits"], who[ACTOR]["updates"], who[ACTOR]["deletes"]) == (3, 2, 1)
    assert who[None]["commits"] == did["dan"] + 1 - 3
    acts = actor_activity(asked.trail, ACTOR).collect()
    assert [(row["version"], row["operation"], row["updates"], row["deletes"]) for row in acts] == [
        (did["raised"], "UPDATE", 1, 0),
        (did["bob deleted"], "DELETE", 0, 1),
        (did["ann is renamed"], "UPDATE", 1, 0),
    ]
    assert actor_activity(asked.trail, "' or true --").collect() == []


def test_operations_that_can_hide_something(asked: Asked) -> None:
    did = asked.versions
    found = {row["version"]: (row["operation"], row["why"]) for row in hiding_operations(asked.trail).collect()}
    named = [did["note dropped"], did["properties"], did["restored"], did["renamed"]]
    assert sorted(found) == [*named, did["vacuum"] - 1, did["vacuum"]]
    assert [found[version][0] for version in sorted(found)] == [
        "DROP COLUMNS", "SET TBLPROPERTIES", "RESTORE", "RENAME COLUMN", "VACUUM START", "VACUUM END",
    ]  # fmt: skip
    assert hiding_operations(asked.trail, since=at(did["vacuum"])).count() == 1


def test_the_feed_switched_off_and_a_table_made_anew_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """Such a table cannot be trailed to its end; the ledger of one that could says so."""
    told = [
        (0, "CREATE TABLE", {}),
        (1, "SET TBLPROPERTIES", {"properties": {"delta.enableChangeDataFeed": "false"}}),
        (2, "CREATE OR REPLACE TABLE AS SELECT", {}),
        (3, "MANUAL SURGERY", {}),
        (4, None, {}),
        (5, "MERGE", {}),
    ]
    records = [
        (at, "commit", at, None, 0, json.dumps({"operation": name, "parameters": parameters}), b"", b"")
        for at, name, parameters in told
    ]
    for name in TABLES:
        schema = spark.createDataFrame([], "version long") if name != LEDGER else None
        rows = schema or spark.createDataFrame(
            records,
            "sequence long, kind string, version long, committed_at timestamp, events long, record string, leaf binary,"
            " chunk_roots binary",
        )
        rows.write.format("delta").save(str(tmp_path / name))
    found = {row["version"]: row["why"] for row in hiding_operations(Trail(spark, str(tmp_path))).collect()}
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1] == "the change feed was enabled or disabled"
    assert "does not know" in found[3]


# ── is it all there ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def copy(asked: Asked, tmp_path: Path) -> Asked:
    """For who changes something."""
    path = tmp_path / "copy"
    shutil.copytree(asked.path, path)
    return Asked(Trail(asked.source.spark, str(path)), asked.source, path, asked.versions)


def test_gaps_and_doubles(asked: Asked, copy: Asked) -> None:
    assert gaps(asked.trail).collect() == []
    did = asked.versions

    def without(*versions: int) -> Callable[[pa.Table], pa.Table]:
        return lambda rows: rows.filter(pc.invert(pc.is_in(rows["version"], pa.array(versions, pa.int64()))))

    def doubled(rows: pa.Table) -> pa.Table:
        return pa.concat_tables([rows, rows.filter(pc.equal(rows["version"], did["dan"]))])

    rewrite(copy.path / LEDGER, without(did["bob deleted"], did["note added"]))
    rewrite(copy.path / EVENTS, lambda rows: doubled(without(did["loaded"])(rows)))
    found = [tuple(row) for row in gaps(copy.trail).collect()]
    assert found == [
        ("events missing", did["loaded"], did["loaded"], 3),
        ("events without a record", did["bob deleted"], did["bob deleted"], 1),
        ("version missing", did["bob deleted"], did["note added"], None),
        ("events doubled", did["dan"], did["dan"], 1),
    ]


def test_values_that_were_removed(spark: SparkSession, asked: Asked, copy: Asked) -> None:
    assert count_removed_values(asked.trail) == 0
    tables, did = TrailTables(spark, str(copy.path)), asked.versions
    tables.take_over(tables.read(PAYLOAD).schema["row"].dataType, KEY)  # type: ignore[arg-type]
    bob = history(copy.trail, {"id": BOB}).select("version", "index")
    remove_values(tables, read_state(tables), bob, {"ticket": "GDPR-7", "user": ACTOR})

    assert count_removed_values(copy.trail) == 5
    assert [
        (row["events"], row["versions"], row["ticket"], row["actor"]) for row in removals(copy.trail).collect()
    ] == [(5, 4, "GDPR-7", ACTOR)]
    assert history(copy.trail, {"id": BOB}).collect() == []
    left = [row for row in asked.source_at(did["dan"]) if row["id"] != BOB]
    assert rows_of(as_of(copy.trail, KEY, did["dan"])) == left
    assert diff(copy.trail, KEY, did["loaded"], did["bob deleted"]).count() == 1
    gone = [(row["values"], row["row"] is None) for row in deletes(copy.trail).collect()]
    assert sorted(gone) == [("present", False)] * 2 + [("removed", True)] * 2
    assert gaps(copy.trail).collect() == []
    assert actors(copy.trail).count() == 2


# ── beginnings ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_trail_that_begins_later_says_what_it_cannot_know(spark: SparkSession, asked: Asked, tmp_path: Path) -> None:
    did = asked.versions
    first = did["widened"]
    run(spark, asked.source, tmp_path / "late", first)
    late = Trail(spark, str(tmp_path / "late"))
    with pytest.raises(ConfigError):
        as_of(late, KEY, did["dan"])
    with pytest.raises(ConfigError):
        record_as_of(late, {"id": BOB}, did["cyd is rich"])
    assert [row["amount"] for row in record_as_of(late, {"id": CYD}, did["cyd is rich"]).collect()] == [5_000_000_000]
    changes = column_changes(late, KEY, "amount").collect()
    assert [(row["version"], row["old_value"]) for row in changes] == [(did["cyd is rich"], 30)]


def test_a_baseline_and_a_type_that_cannot_hold_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    source = Table(spark, str(tmp_path / "source"), "id long, version string, state string")
    source.sql("insert into {t} values (1, 'x', 'a')", "update {t} set version = 'y' where id = 1")
    run(spark, source, tmp_path / "trail", "snapshot")
    trail = Trail(spark, str(tmp_path / "trail"))
    source.sql("delete from {t}")
    rows = spark.createDataFrame([(1, 7, "a")], "id long, version long, state string")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(source.path)
    run(spark, source, tmp_path / "trail", "snapshot")

    events = history(trail, {"id": 1}).collect()
    assert [(row["version"], row["change_type"], row["baseline"]) for row in events] == [
        (2, "insert", True),
        (3, "delete", False),
        (4, "insert", False),
    ]
    states = [(row["row"]["version"], row["row"]["version__1"]) for row in events]
    assert states == [(None, "y"), (None, "y"), (7, None)]
    assert rows_of(as_of(trail, KEY, 2)) == [{"id": 1, "version": "y", "state": "a"}]
    assert [(row["version"], row["state"]) for row in as_of(trail, KEY, 4).collect()] == [(7, "a")]
    with pytest.raises(ConfigError):
        as_of(trail, KEY, 1)


# ── what is read, and what is seen ───────────────────────────────────────────────────────────────────────────────────


def test_a_record_is_found_without_reading_the_others_and_its_key_is_in_no_plan(asked: Asked) -> None:
    spark = asked.source.spark
    watched = Executions(spark)
    with setting(spark, "spark.sql.maxMetadataStringLength", "10000"):  # or the path of a table may be cut short
        events = history(asked.trail, {"id": CYD}).collect()
    versions = {row["version"] for row in events}
    payload, there = asked.trail.tables.read(PAYLOAD), {}
    for name in (PAYLOAD, EVENTS):
        read, present = watched.files_read(asked.path / name), len(asked.trail.tables.read(name).inputFiles())
        there[name] = (read, present)
    holding = payload.where(f"row.id = {CYD}").inputFiles()
    assert len(versions) == 4
    assert there[PAYLOAD][0] == len(holding), "read once"
    events_read = spark.sql(
        f"select count(distinct _metadata.file_path) from delta.`{asked.trail.tables.location(EVENTS)}` "
        f"where version in ({', '.join(map(str, versions))})"
    )
    assert there[EVENTS][0] == events_read.collect()[0][0] < there[EVENTS][1]

    watched = Executions(spark)
    history(asked.trail, {"id": ANN, "version": "v1"}).collect()
    record_as_of(asked.trail, {"id": ANN}, asked.versions["dan"]).collect()
    actor_activity(asked.trail, ACTOR).collect()
    plans = watched.plans()
    assert "TahoeBatchFileIndex" in plans
    assert [value for value in (str(ANN), "v1", ACTOR) if value in plans] == []
    payload.where(f"row.id = {ANN}").count()
    assert str(ANN) in watched.plans(), "this is how it would be seen"


# ── sql ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_view_in_the_sql_of_spark(asked: Asked) -> None:
    spark = asked.source.spark
    spark.sql(view_sql("spark", str(asked.path), asked.trail.columns(), name="the `view`"))
    found = spark.table("`the ``view```")
    expected = view(asked.trail)
    same = [name for name in expected.columns if name != "row"]
    assert set(same) <= set(found.columns)
    assert rows_of(found.select(*same)) == rows_of(expected.select(*same))
    amounts = {
        tuple(row) for row in found.select("version", "index", "`row.id`", "`row.amount`", "`row.version`").collect()
    }
    assert amounts == {
        tuple(row)
        for row in expected.select("version", "index", "row.id", "row.amount", expected["row"]["version"]).collect()
    }
    assert {"row.of", "row.of__2", "row.name", "row.full_name"} <= set(found.columns)


def test_the_view_in_the_sql_of_delta_rs(asked: Asked) -> None:
    engine = QueryBuilder()
    for name in TABLES:
        engine.register(name, DeltaTable(str(asked.path / name)))
    found = pa.table(engine.execute(view_sql("delta-rs", str(asked.path), asked.trail.columns())))
    rows = found.select(["version", "index", "values", "row.id", "row.amount", "record"]).to_pylist()
    expected = view(asked.trail).select("version", "index", "values", "row.id", "row.amount", "operation").collect()
    assert sorted((*list(row.values())[:-1], json.loads(row["record"])["operation"]) for row in rows) == sorted(
        tuple(row) for row in expected
    )
