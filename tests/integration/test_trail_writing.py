"""What a trail takes: any table, any name, and of what it finds in its tables only what a runner can have left there."""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.errors import ForkedTrail
from audit.proof import Checkpoint, read_checkpoint, read_note
from audit.signing.signer import Signer
from audit.trail.column_history import extend_columns, row_type
from audit.trail.events import build_events
from audit.trail.ledger_state import read_state
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, STORED_EVENT, TrailTables, payload_schema
from audit.verification import verify_trail
from audit.writing.payload import PayloadRows
from audit.writing.recovery import matches_source
from cdf import ChangeFeed, Pipeline
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION
from cdf.errors import Fenced, TargetNotReady, VersionNotFound
from cdf.testing.changes import delete, insert, update
from cdf.testing.conformance.harness import next_window, orders
from connectors.delta_audit.sink import DeltaAuditSink
from infra.config.load import load
from tests.integration.delta_table import Table, setting

KEY = Signer.generate("trail.example.org/test")


def run(spark: SparkSession, source: str, path: Path, *, key: tuple[str, ...] = ("id",), **options: Any) -> None:
    sink = DeltaAuditSink(str(path), spark=spark, **options)
    Pipeline(ChangeFeed(spark, source), sink, key=key, start="earliest").run()


def assert_whole(spark: SparkSession, path: Path, *, last_version: int, events: int) -> None:
    found, _ = verify_trail(TrailTables(spark, str(path)), [])
    assert found.findings == ()
    assert (found.last_version, found.events, found.values) == (last_version, events, events)


# ── tables and names ─────────────────────────────────────────────────────────────────────────────────────────────────

ANY = (
    "`the id` long not null, `a.b` string not null, `c.d` string, at timestamp, "
    "s struct<a: int not null, at: timestamp>, l array<timestamp>, m map<string, struct<at: timestamp>>"
)


BOTH_WAYS = pytest.mark.parametrize("options", [{}, {"small_window_bytes": -1}], ids=["driver", "tasks"])


@pytest.fixture(scope="module")
def named(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    mapped = {"columnMapping.mode": "name"}
    source = Table(spark, str(tmp_path_factory.mktemp("named") / "source"), ANY, **mapped)  # type: ignore[arg-type]
    moment = "timestamp'2026-03-29 02:30:00.000001Z'"
    source.sql(
        f"insert into {{t}} values (1, 'k', 'x', {moment}, named_struct('a', 1, 'at', {moment}), array({moment}, null),"
        f" map('e', named_struct('at', {moment}))), (2, 'k', null, null, named_struct('a', 2, 'at', null), null, null)",
        "update {t} set `c.d` = 'y' where `the id` = 1",
        "alter table {t} add column `e``f` string",  # from here on Delta itself cannot UPDATE it
        "insert into {t} select `the id` + 2, `a.b`, `c.d`, at, s, l, m, 'z' from {t}",
    )
    return source


@BOTH_WAYS
def test_any_name_in_the_key_and_any_nested_column(
    spark: SparkSession, named: Table, tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "trail"
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        run(spark, named.path, path, key=("the id", "a.b"), **options)
    assert_whole(spark, path, last_version=4, events=6)
    events = TrailTables(spark, str(path)).read(EVENTS).where("version = 2").collect()
    assert [row["changed_columns"] for row in events] == [["c.d"], ["c.d"]]
    properties = TrailTables(spark, str(path)).log(PAYLOAD).metadata().properties
    assert properties["delta.dataSkippingStatsColumns"] == "version,row.`the_id`,row.`a.b`"


@pytest.fixture(scope="module")
def grown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One table, as it was at version 7 and as it is at version 11."""
    folder = tmp_path_factory.mktemp("grown")
    mapped = {"columnMapping.mode": "name", "enableTypeWidening": "true"}
    source = Table(spark, str(folder / "now"), "id int, v string, Note string", **mapped)  # type: ignore[arg-type]
    source.sql(
        "insert into {t} values (1, 'a', 'n')",
        "alter table {t} alter column id type long",
        "alter table {t} drop column v",
        "alter table {t} add column v int",
        "alter table {t} rename column Note to other",
        "alter table {t} rename column other to note",
        "insert into {t} values (2, 'm', 7)",
    )
    shutil.copytree(source.path, folder / "before")
    source.set(**{"feature.timestampNtz": "supported"})
    source.sql(
        "alter table {t} add column seen timestamp_ntz",
        "insert into {t} values (3, 'o', 8, null)",
        "insert into {t} values (4, 'p', 9, timestamp_ntz'2026-03-29 02:30:00')",
    )
    return str(folder / "before"), source.path


@BOTH_WAYS
def test_a_table_whose_columns_were_others_before_the_trail_begins(
    spark: SparkSession, grown: tuple[str, str], tmp_path: Path, options: dict[str, Any]
) -> None:
    (before, now), path = grown, tmp_path / "trail"
    run(spark, before, path, **options)
    rows = TrailTables(spark, str(path)).read(PAYLOAD).orderBy("version").select("row.*").collect()
    assert [{value for value in row if value is not None} for row in rows] == [{1, "a", "n"}, {2, "m", 7}]
    run(spark, now, path, **options)
    assert_whole(spark, path, last_version=11, events=4)


def test_a_trail_on_s3_beside_a_local_source(tmp_path: Path) -> None:
    """Its jars are needed, and its folder has one spelling: a lock is found by it."""
    file = tmp_path / "deltarelay.yaml"
    for folder, on_s3 in (("s3://lake/trails/", True), ("S3N://lake//trails", True), ("/data/trails", False)):
        file.write_text(
            f"version: 1\nconnections: {{t: {{kind: delta_audit, path: '{folder}'}}}}\n"
            "pipelines: {p: {source: {table: /data/t, key: [id]}, sink: {connection: t, table: t}}}\n"
        )
        project = load(file, environ={}, look_for_tables=False)
        assert project.uses_s3() == on_s3
        path = project.connections["t"].settings.path  # type: ignore[attr-defined]
        assert path == ("s3a://lake/trails" if on_s3 else folder)


# ── what lies beyond the ledger ──────────────────────────────────────────────────────────────────────────────────────

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
COLUMNS = extend_columns(
    extend_columns((), StructType().add("id", LongType()).add("gone", StringType())),
    StructType().add("id", LongType()).add("name", StringType()),
)
IMAGES = [
    (1, "before", "update_preimage", 5), (1, "after", "update_postimage", 5), (2, None, "insert", 5), (2, None, "insert", 6)
]  # fmt: skip


def payload(spark: SparkSession, images: list[tuple[Any, ...]] = IMAGES) -> PayloadRows:
    feed = spark.createDataFrame(images, f"id long, name string, {CHANGE_TYPE} string, {COMMIT_VERSION} long")
    return PayloadRows(feed, COLUMNS, ("id",), {5: AT, 6: AT}, paired=True, baseline=False)


def changed(table: pa.Table, name: str, edit: Callable[[list[Any]], None]) -> pa.Table:
    values = table.column(name).to_pylist()
    edit(values)
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def test_only_what_follows_from_the_source_is_what_a_runner_has_left(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.trail.events._UNDIVIDED_ROWS", 1)
    written = payload(spark).build_on_driver()
    events = build_events(written, "t")
    anew = payload(spark).build_on_cluster(2).cache()
    stored = payload_schema(row_type(COLUMNS, stored=True))

    def right(events: pa.Table = events, written: pa.Table = written, table_id: str = "t") -> bool:
        frames = spark.createDataFrame(events, STORED_EVENT), spark.createDataFrame(written, stored)
        return matches_source(*frames, anew, COLUMNS, table_id)

    def forged(images: list[tuple[Any, ...]]) -> dict[str, pa.Table]:
        """Consistent in itself: every hash is right."""
        table = payload(spark, images).build_on_driver()
        return {"written": table, "events": build_events(table, "t")}

    def times(values: list[Any]) -> None:
        values[0] += dt.timedelta(microseconds=1)

    later = changed(written, "committed_at", times)
    tabooed = changed(written, "row", lambda values: values[0].update(gone="again"))
    assert right()
    wrong = {
        "another value": forged(
            [(1, "before", "update_preimage", 5), (1, "AFTER", "update_postimage", 5), *IMAGES[2:]]
        ),
        "another type of change": forged([*IMAGES[:3], (2, None, "delete", 6)]),
        "one row more": forged([*IMAGES, (3, "c", "insert", 6)]),
        "one row less": forged(IMAGES[:3]),
        "another version": forged([*IMAGES[:2], (2, None, "insert", 6), (2, None, "insert", 6)]),
        "another time": {"written": later, "events": build_events(later, "t")},
        "a value in a dropped column": {"written": tabooed},
        "an event twice": {"events": pa.concat_tables([events, events.slice(0, 1)])},
        "no event": {"events": events.slice(1)},
        "another leaf": {"events": changed(events, "leaf", lambda values: values.__setitem__(0, bytes(32)))},
        "another table": {"table_id": "another"},
        "nothing": {"written": written.slice(0, 0), "events": events.slice(0, 0)},
    }
    assert [what for what, forgery in wrong.items() if right(**forgery)] == []


def test_forged_events_get_no_record(spark: SparkSession, tmp_path: Path) -> None:
    source, path = Table(spark, str(tmp_path / "source")), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    run(spark, source.path, path)
    before = read_state(TrailTables(spark, str(path)))
    columns, table_id = before.columns, before.table_id
    assert table_id is not None

    def forge(version: int) -> None:
        feed = spark.createDataFrame(
            [(7, "x", "insert", version)], f"id long, v string, {CHANGE_TYPE} string, {COMMIT_VERSION} long"
        )
        rows = PayloadRows(feed, columns, ("id",), {version: AT}, paired=False, baseline=False).build_on_driver()
        stored = payload_schema(row_type(columns, stored=True))
        for name, table, schema in ((PAYLOAD, rows, stored), (EVENTS, build_events(rows, table_id), STORED_EVENT)):
            spark.createDataFrame(table, schema).write.format("delta").mode("append").save(str(path / name))

    forge(3)
    with pytest.raises(VersionNotFound, match="has begun version 3"):
        run(spark, source.path, path)
    source.sql("insert into {t} values (7, 'y')", "optimize {t}")
    with pytest.raises(TargetNotReady, match="no runner of this trail wrote"):
        run(spark, source.path, path)
    forge(10**15)
    with pytest.raises(VersionNotFound, match="has begun version 1000000000000000"):
        run(spark, source.path, path)
    assert TrailTables(spark, str(path)).read(LEDGER).count() == before.sequence


# ── one writer ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_an_overtaken_runner_lands(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = StructType().add("id", LongType())
    first, second = (TrailTables(spark, str(tmp_path / "trail")) for _ in range(2))
    first.take_over(row, ["id"])
    rows = payload(spark).build_on_driver()
    first.append(PAYLOAD, first.create_rows(rows, payload_schema(row_type(COLUMNS, stored=True))), about={})
    real = TrailTables._find_commit
    waiting = [second]

    def find_commit(*arguments: Any) -> int | None:
        while waiting:  # the successor comes between the write and the look at what became of it
            waiting.pop().take_over(row, ["id"])
        return real(*arguments)

    monkeypatch.setattr(TrailTables, "_find_commit", staticmethod(find_commit))
    first.append(LEDGER, first.read(LEDGER), about={})
    with pytest.raises(Fenced):
        first.check()
    with pytest.raises(Fenced):
        first.change(PAYLOAD, lambda table: table.delete("version >= 0"), about={})
    assert second.read(PAYLOAD).count() == rows.num_rows
    second.change(PAYLOAD, lambda table: table.delete("version = 5"), about={})
    assert second.read(PAYLOAD).count() == 1
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_runner_before_has_left_unsealed_is_sealed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, path, folder = orders(spark), tmp_path / "trail", tmp_path / "anchor"
    folder.mkdir()
    anchor = FileAnchor(folder)
    before = DeltaAuditSink(str(path), spark=spark, signer=KEY)  # its checkpoint gets nowhere
    before.open(table.source())
    before.apply(next_window(table))
    before.close()
    origin = TrailTables(spark, str(path)).origin()

    def newest() -> int:
        note = anchor.latest(origin)
        return 0 if note is None else read_checkpoint(read_note(note)[0]).size

    sink = DeltaAuditSink(str(path), spark=spark, signer=KEY, anchors=[NamedAnchor("a safe", anchor)])
    sink.open(table.source())
    assert newest() == 1
    sink.apply(table.window(6, [], []))
    assert newest() == 1  # not yet: a signature for every window would be many
    anchor.publish(origin, KEY.sign(Checkpoint(origin, 3, bytes(32))))
    with caplog.at_level(logging.ERROR):
        sink.close()
    assert [record.getMessage() for record in caplog.records] == [
        "checkpoint not signed: the trail differs from what was signed"
    ]
    anchor.publish(origin, KEY.sign(Checkpoint(origin, 4, bytes(32))))
    with pytest.raises(ForkedTrail):
        sink.open(table.source())


# ── removing values ──────────────────────────────────────────────────────────────────────────────────────────────────


class Died(BaseException):
    """The process is gone."""


def test_values_are_removed_and_their_events_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = orders(spark), tmp_path / "trail"
    tables = TrailTables(spark, str(path))
    sink = DeltaAuditSink(str(path), spark=spark)
    sink.open(table.source())
    one, other = {"id": 1, "name": "Rosalind"}, {"id": 1, "name": "Ros"}
    sink.apply(
        table.window(5, [insert(one)], [update(one, other), insert({"id": 2, "name": "Jocelyn"})], [delete(other)])
    )
    before = tables.read(EVENTS).collect()

    def values() -> set[tuple[int, int]]:
        ids = tables.read(PAYLOAD).select("id")
        return {(row["version"], row["index"]) for row in tables.read(EVENTS).join(ids, "id", "left_semi").collect()}

    def places(*chosen: tuple[int, int]) -> Any:
        return spark.createDataFrame(chosen, "version long, index long")

    everything = {(5, 0), (6, 0), (6, 1), (6, 2), (7, 0)}
    assert values() == everything
    sink.remove(places((6, 0), (6, 1), (6, 1), (7, 0), (7, 99), (99, 0)), {"ticket": "T-1", "user": "someone"})
    assert values() == {(5, 0), (6, 2)}
    sink.remove(places((6, 0), (99, 0)), {"ticket": "T-2"})  # nothing is there to be removed, nor to be recorded

    def dies(*_: Any, **__: Any) -> int:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(TrailTables, "change", dies)
        with pytest.raises(Died):
            sink.remove(places((5, 0)), {})
    sink.close()
    assert values() == {(5, 0), (6, 2)}
    assert read_state(tables).removal
    found = sink.open(table.source())
    assert (found.version, found.table_id, found.pending) == (7, table.table_id, None)
    assert values() == {(6, 2)}
    sink.apply(table.window(8, [insert(one)]))
    sink.close()
    assert values() == {(6, 2), (8, 0)}
    assert [row for row in tables.read(EVENTS).collect() if row["version"] < 8] == before

    rows = tables.read(LEDGER).orderBy("sequence").collect()
    assert [(row["kind"], row["version"], row["events"], bytes(row["chunk_roots"])) for row in rows[3:5]] == [
        ("removal", None, 0, b"")
    ] * 2
    records = [json.loads(row["record"]) for row in rows]
    assert [record["kind"] for record in records] == ["commit"] * 3 + ["removal"] * 2 + ["commit"]
    first = records[3]
    assert (first["removed"], first["values"]) == ({"6": [[0, 1]], "7": [[0, 0]]}, 3)
    assert (first["ticket"], first["user"], first["table_id"]) == ("T-1", "someone", table.table_id)
    assert dt.datetime.fromisoformat(first["removed_at"]) == rows[3]["committed_at"].astimezone(dt.UTC)
    assert [record["previous"] for record in records[1:]] == [bytes(row["leaf"]).hex() for row in rows[:-1]]
    log = "".join(file.read_text() for file in (path / PAYLOAD / "_delta_log").glob("*.json"))
    assert not [value for value in ("Ros", "Jocelyn") if value in log]
