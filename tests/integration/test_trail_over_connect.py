"""The audit trail over a real Spark Connect server: written, continued after a failure, compared, and verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.encryption.encrypt import ColumnEncryption
from audit.signing.signer import Signer
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables
from cdf import ChangeFeed, Limits, Pipeline
from cdf.changes.window import Window
from cdf.errors import CdfError, ConfigError, SourceError
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.delta_audit.write.window_writer import WindowWriter
from tests.acceptance.commands import wait_for
from tests.integration.delta_table import Table

KEY = Signer.generate("trail.example.org/connect")
BOTH_WAYS = pytest.mark.parametrize("options", [{}, {"small_window_bytes": -1}], ids=["driver", "tasks"])
CHANGES = (
    "update {t} set v = 'B' where id = 2",
    "merge into {t} using (select id from values (3), (4) as s(id)) s on {t}.id = s.id "
    "when matched then delete when not matched then insert (id, v) values (s.id, 'd')",
    "alter table {t} add columns (w timestamp)",
    "delete from {t} where id = 1",
)
EXPECTED = [
    (1, "insert", 1, "a"),
    (1, "insert", 2, "b"),
    (1, "insert", 3, "c"),
    (2, "update_postimage", 2, "B"),
    (2, "update_preimage", 2, "b"),
    (3, "delete", 3, "c"),
    (3, "insert", 4, "d"),
    (5, "delete", 1, "a"),
]


class Died(BaseException):
    """The process is gone: nothing more is written or given back."""


@contextmanager
def classic_functions() -> Iterator[None]:
    """In the block PySpark's functions belong to classic sessions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_CONNECT_MODE_ENABLED")
        yield


def pipeline(spark: SparkSession, source: Table, path: Path, **options: Any) -> Pipeline:
    sink = DeltaAuditSink(str(path), spark=spark, **options)
    return Pipeline(ChangeFeed(spark, source.path), sink, key="id", start="earliest")


def dies(run: Pipeline, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until the step ``at`` is about to be made durable, as a process that is gone."""
    real = TrailTables.append

    def append(tables: TrailTables, name: str, rows: DataFrame, *, about: Mapping[str, Any], **more: Any) -> int:
        if name == at and "opened" not in about:
            raise Died
        return real(tables, name, rows, about=about, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TrailTables, "append", append)
        with pytest.raises(Died):
            run.run()


def events(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    tables = TrailTables(spark, str(path))
    joined = (
        tables.read(EVENTS).select("id", "version", "change_type").join(tables.read(PAYLOAD).select("id", "row"), "id")
    )
    rows = joined.select("version", "change_type", "row.*").collect()
    return sorted((row["version"], row["change_type"], row["id"], row["v"]) for row in rows)


def assert_intact(spark: SparkSession, path: Path, *, last: int, events: int, signed: int | None = None) -> None:
    """The trail is verified by a classic session."""
    with classic_functions():
        signing: dict[str, Any] = {} if signed is None else {"keys": [KEY.verifier], "anchors": anchors(path)}
        verified, _ = DeltaAuditSink(str(path), spark=spark, **signing).trail.verify()
    assert (verified.findings, verified.last_version, verified.sealed_version) == ((), last, signed)
    assert (verified.events, verified.values, verified.unrecorded) == (events, events, 0)


def anchors(path: Path) -> list[NamedAnchor]:
    folder = path.with_name("anchor")
    folder.mkdir(exist_ok=True)
    return [NamedAnchor("a folder", FileAnchor(folder))]


@BOTH_WAYS
def test_a_trail_is_written_over_connect(
    connect: SparkSession,
    spark: SparkSession,
    delta_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
    replicated = pipeline(connect, source, path, **options)
    assert (replicated.plan().problems, path.exists()) == ((), False)
    result = replicated.run()
    assert (result.position, result.inserts) == (1, 3)

    source.sql(*CHANGES)
    # Payload without events is deleted; events without records get their records
    dies(replicated, EVENTS, monkeypatch)
    assert (TrailTables(connect, str(path)).read(PAYLOAD).count(), len(events(connect, path))) == (7, 3)
    dies(replicated, LEDGER, monkeypatch)
    assert TrailTables(connect, str(path)).read(PAYLOAD).count() == 7
    result = replicated.run()
    assert result.position == 5
    assert events(connect, path) == EXPECTED
    assert replicated.run().windows == 0
    assert replicated.verify().equal
    assert_intact(spark, path, last=5, events=8)
    with pytest.raises(ConfigError, match=r"verification of the trail at .* needs a classic Spark session"):
        DeltaAuditSink(str(path), spark=connect).trail.verify()

    # Refused before a record says that values were removed
    sink, records = DeltaAuditSink(str(path), spark=connect), TrailTables(connect, str(path)).read(LEDGER).count()
    places = connect.createDataFrame([(1, 0)], "version long, index long")
    refused = pytest.raises(ConfigError, match=r"removing values of the trail at .* needs a classic Spark session")
    with sink.open_for(source.path, ("id",), "people"), refused:
        sink.remove(places, {"ticket": "4711"})
    assert TrailTables(connect, str(path)).read(LEDGER).count() == records


def test_a_signed_trail_of_connect_is_continued_by_a_classic_session_and_back(
    connect: SparkSession, spark: SparkSession, delta_path: str, tmp_path: Path
) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    signing: dict[str, Any] = {"signer": KEY, "keys": [KEY.verifier], "anchors": anchors(path)}
    source.sql("insert into {t} values (1, 'a')")
    pipeline(connect, source, path, **signing).run()
    assert_intact(spark, path, last=1, events=1, signed=1)
    with classic_functions():
        Table.at(spark, delta_path).sql("update {t} set v = 'b'")
        pipeline(spark, Table.at(spark, delta_path), path, **signing).run()
    source.sql("delete from {t}")
    replicated = pipeline(connect, source, path, **signing)
    assert (replicated.run().position, replicated.verify().equal) == (3, True)
    assert_intact(spark, path, last=3, events=4, signed=3)


@BOTH_WAYS
def test_the_change_feed_is_complete_although_a_commit_file_goes_after_the_check(
    connect: SparkSession, delta_path: str, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta reads across a missing commit file without an error: nothing may be read after the check, nor kept before."""
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql(*(f"insert into {{t}} values ({number}, 'a')" for number in (1, 2, 3)))
    real, gone = Window.confirm, source.log / f"{2:020d}.json"
    text = gone.read_bytes()

    def confirm_late(window: Window) -> None:
        gone.unlink()
        real(window)

    with monkeypatch.context() as patch:
        patch.setattr(Window, "confirm", confirm_late)
        with pytest.raises(SourceError):
            pipeline(connect, source, path, **options).run()
    assert events(connect, path) == []
    gone.write_bytes(text)
    assert pipeline(connect, source, path, **options).run().position == 3
    assert events(connect, path) == [(number, "insert", number, "a") for number in (1, 2, 3)]


def test_encrypted_columns_are_refused_by_name(connect: SparkSession, delta_path: str, tmp_path: Path) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    sealing = ColumnEncryption((), lambda: pytest.fail("the registry is not needed"))
    plan = pipeline(connect, source, path, sealing=sealing).plan()
    assert plan.problems == ("columns that are encrypted for each person need a classic Spark session",)


@pytest.mark.parametrize("old", ["client", "server"])
def test_a_client_or_a_server_before_spark_4_1_is_refused_by_name(
    connect: SparkSession, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    if old == "client":
        monkeypatch.delattr(type(connect), "cloneSession")
    else:
        monkeypatch.setattr(type(connect), "version", "4.0.1")
    replicated, problem = pipeline(connect, source, path), "a trail over Spark Connect needs Spark 4.1 or newer"
    assert replicated.plan().problems == (f"{problem}, or a classic Spark session",)
    with pytest.raises(CdfError, match=problem):
        replicated.run()
    assert not path.exists()


def test_a_relative_path_is_refused(connect: SparkSession, delta_path: str) -> None:
    source = Table(connect, delta_path)
    source.sql("insert into {t} values (1, 'a')")
    replicated = pipeline(connect, source, Path("trails/people"))
    for refused in (replicated.plan, replicated.run):
        with pytest.raises(ConfigError, match="the path trails/people of a trail must be absolute over Spark Connect"):
            refused()
    assert not Path("trails").exists()


def test_both_kinds_of_session_write_the_same_hashes(
    connect: SparkSession, spark: SparkSession, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Table(connect, delta_path, "id long, v string, at timestamp")
    source.sql(
        "insert into {t} values (1, 'a', null)", "update {t} set at = timestamp'1969-07-20 20:17:40.5' where id = 1"
    )
    source.sql("delete from {t} where id = 1")
    found = []
    for kind in ("connect", "classic"):
        numbers, path = count(), tmp_path / kind
        # The only random part of what is hashed are ids and salts
        same = SimpleNamespace(urandom=lambda size: next(numbers).to_bytes(1) * size)  # noqa: B023
        with monkeypatch.context() as patch:
            patch.setattr("audit.writing.payload.os", same)
            if kind == "connect":
                one_by_one(connect, delta_path, path)
            else:
                with classic_functions():
                    one_by_one(spark, delta_path, path)
        with classic_functions():
            tables = TrailTables(spark, str(path))
            found.append(
                [
                    [tuple(row) for row in tables.read(name).select(*columns, "leaf").orderBy(*columns).collect()]
                    for name, columns in ((EVENTS, ("version", "index")), (LEDGER, ("sequence", "record")))
                ]
            )
    assert found[0] == found[1]
    assert [len(rows) for rows in found[0]] == [4, 4]


def one_by_one(spark: SparkSession, source: str, path: Path) -> None:
    sink, limits = DeltaAuditSink(str(path), spark=spark), Limits(max_commits=1)
    Pipeline(ChangeFeed(spark, source), sink, key="id", start="earliest", limits=limits).run()


KINDS = (
    "id long, `full name` string, at timestamp_ntz, l array<struct<a: int>>, m map<string, struct<b: date>>, "
    "d decimal(38, 9)"
)


@BOTH_WAYS
def test_names_and_types_on_both_ways(
    connect: SparkSession, spark: SparkSession, delta_path: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    source, path = Table(connect, delta_path, KINDS, **{"columnMapping.mode": "name"}), tmp_path / "trail"  # type: ignore[arg-type]
    source.sql(
        "insert into {t} values (1, 'a', timestamp_ntz'2026-03-29 02:30:00', array(null, named_struct('a', 1)),"
        " map('k', null, 'l', named_struct('b', date'0001-01-01')), 0.000000001), (2, null, null, null, null, null)",
        "update {t} set l = array() where id in (1, 2)",
    )
    replicated = pipeline(connect, source, path, **options)
    assert (replicated.run().position, replicated.verify().equal) == (2, True)
    assert_intact(spark, path, last=2, events=6)


def test_large_windows_are_written_by_tasks_and_small_ones_by_the_client(
    connect: SparkSession, spark: SparkSession, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql("insert into {t} select id, sha2(cast(id as string), 256) from range(60000)")
    ways: list[str] = []
    for way in ("_write_by_driver", "_write_by_tasks"):
        real = getattr(WindowWriter, way)
        monkeypatch.setattr(WindowWriter, way, lambda *of, way=way, real=real: (ways.append(way), real(*of))[1])
    assert pipeline(connect, source, path).run().inserts == 60_000
    source.sql("update {t} set v = 'changed' where id < 5000")
    assert pipeline(connect, source, path).run().updates == 5_000
    assert ways == ["_write_by_tasks", "_write_by_driver"]
    assert_intact(spark, path, last=2, events=70_000)


def test_a_trail_follows_by_polling(
    connect: SparkSession, spark: SparkSession, delta_path: str, tmp_path: Path
) -> None:
    source, path = Table(connect, delta_path), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    reached: list[int] = []
    follower = pipeline(connect, source, path).follow(
        progress=lambda step: reached.append(step.position), trigger={"processingTime": "100 milliseconds"}
    )
    try:
        for version, statement in enumerate(("update {t} set v = 'b'", "delete from {t}"), start=2):
            wait_for(lambda: version - 1 in reached, f"version {version - 1}", seconds=120)  # noqa: B023
            source.sql(statement)
        wait_for(lambda: 3 in reached, "version 3", seconds=120)
    finally:
        follower.stop()
    assert_intact(spark, path, last=3, events=4)
