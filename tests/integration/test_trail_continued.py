"""What a runner finds is obeyed, continued and signed only if somebody with the signing key left it so."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from audit.anchors.base import NamedAnchor, parse_note
from audit.anchors.file import FileAnchor
from audit.errors import ForkedTrail
from audit.hashing.merkle import EMPTY_ROOT
from audit.signing.signer import Signer
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables
from cdf import ChangeFeed, Pipeline
from cdf.errors import TableReplaced, TargetNotReady, VerificationError, WindowOutOfOrder
from cdf.testing import SampleTable, insert
from cdf.testing.conformance.harness import next_window, orders, row
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.intruder import rewrite
from tests.integration.trail_case import chained

pytestmark = pytest.mark.usefixtures("interpreted")

KEY = Signer.generate("trail.example.org/continued")


@dataclasses.dataclass
class Case:
    spark: SparkSession
    folder: Path
    orders: SampleTable

    def sink(self, **options: Any) -> DeltaAuditSink:
        anchors = [NamedAnchor("a safe", FileAnchor(self.folder / "anchor"))]
        options = {"signer": KEY, "anchors": anchors, **options}
        return DeltaAuditSink(str(self.folder / "trail"), spark=self.spark, **options)

    def opens(self, **options: Any) -> None:
        sink = self.sink(**options)
        sink.open(self.orders.source())
        sink.close()

    @property
    def tables(self) -> TrailTables:
        return TrailTables(self.spark, str(self.folder / "trail"))

    def sealed(self) -> int:
        """Records that the anchor's newest checkpoint is over."""
        origin = self.tables.origin()
        note = FileAnchor(self.folder / "anchor").latest(origin)
        return 0 if note is None else parse_note(origin, note).size


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Version 5, with four events, is in the trail and sealed."""
    case = Case(spark, tmp_path_factory.mktemp("continued"), orders(spark))
    (case.folder / "anchor").mkdir()
    sink = case.sink()
    sink.open(case.orders.source())
    sink.apply(next_window(case.orders))
    sink.close()
    assert case.sealed() == 1
    return case


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    shutil.copytree(original.folder, tmp_path / "copy")
    return dataclasses.replace(original, folder=tmp_path / "copy")


MADE_UP: dict[str, dict[str, Any]] = {
    "commit": {"kind": "commit", "version": 6, "rows": 0, "rows_root": EMPTY_ROOT.hex(), "counts": {}},
    "erasure": {
        "kind": "erasure",
        "run": "er-1",
        "state": "deleted",
        "requests": ["R-1"],
        "reached_at": "2026-01-01T00:00:00Z",
        "noted_at": "2026-01-01T00:00:00.000000Z",
    },
    "removal": {
        "kind": "removal",
        "removed": {"5": [[0, 1]]},
        "values": 2,
        "removed_at": "2026-01-01T00:00:00.000000Z",
    },
}


def test_records_that_somebody_has_made_up(case: Case) -> None:
    """They fit into the chain, and the note of the one before stands beside each."""

    def edit(rows: pa.Table) -> pa.Table:
        (last,) = rows.to_pylist()
        made = []
        for sequence, (kind, said) in enumerate(MADE_UP.items(), start=1):
            record = {**json.loads(last["record"]), **said}
            del record["columns"]
            copies: dict[str, Any] = {"kind": kind, "version": said.get("version"), "events": 0, "sequence": sequence}
            if kind != "commit":
                del record["version"]
                copies["committed_at"] = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
            made.append({**last, **copies, "record": json.dumps(record), "chunk_roots": b""})
        return chained(pa.Table.from_pylist([last, *made], schema=rows.schema))

    assert rewrite(case.folder / "trail" / LEDGER, edit) == 1
    with pytest.raises(ForkedTrail, match="may be forged") as found:
        case.opens()
    assert "--accept" in (found.value.hint or "")
    with pytest.raises(ForkedTrail):
        case.sink().trail.checkpoint()
    assert (case.sealed(), case.tables.read(PAYLOAD).count()) == (1, 4)
    found, _ = case.sink().trail.verify()
    assert [(one.kind, one.table, one.version, one.first) for one in found.findings] == [
        ("not_signed", LEDGER, None, None),
        ("returned", PAYLOAD, 5, 0),
        ("returned", PAYLOAD, 5, 1),
    ]

    # Nothing else about them is wrong: who accepts them has them obeyed
    assert case.sink().trail.checkpoint(accept=True).records == 4
    case.opens()
    assert (case.sealed(), case.tables.read(PAYLOAD).count()) == (4, 2)


def test_a_position_that_the_log_alone_tells(case: Case) -> None:
    """It would have the commits up to there passed over."""
    told = {"sequence": 1, "previous": "00" * 32, "version": 1005, "table_id": case.orders.table_id, "columns_at": 0}
    ledger = f"delta.`{case.folder / 'trail' / LEDGER}`"
    setting = "spark.databricks.delta.commitInfo.userMetadata"
    case.spark.conf.set(setting, json.dumps({"state": told}))
    try:
        case.spark.sql(f"alter table {ledger} set tblproperties ('somebody' = 'else')")
    finally:
        case.spark.conf.unset(setting)
    sink = case.sink()
    assert sink.open(case.orders.source()).version == 5
    sink.close()


def test_another_trail_in_the_place_of_this_one(case: Case) -> None:
    log = case.folder / "trail" / LEDGER / "_delta_log"
    before = case.tables.id()
    for commit in log.glob("*.json"):
        commit.write_text(commit.read_text().replace(before, "00000000-0000-4000-8000-000000000000"))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    for checksum in log.glob(".*.crc"):
        checksum.unlink()
    assert case.tables.id() != before
    with pytest.raises(ForkedTrail):
        case.opens()
    assert case.sealed() == 0


def test_a_key_in_the_place_of_another(case: Case) -> None:
    anew = Signer.generate("trail.example.org/anew")
    with pytest.raises(VerificationError, match="signed by a trusted key") as found:
        case.opens(signer=anew)
    assert "keys" in (found.value.hint or "")
    sink = case.sink(signer=anew, keys=[KEY.verifier])
    sink.open(case.orders.source())
    sink.apply(case.orders.window(6, [insert(row(7, "g"))]))
    sink.close()
    assert case.sealed() == 2


def test_a_trail_that_was_begun_without_a_key(case: Case) -> None:
    sink = case.sink(signer=None)
    sink.open(case.orders.source())
    sink.apply(case.orders.window(6, [insert(row(7, "g"))]))
    sink.close()
    with pytest.raises(ForkedTrail):
        case.opens()
    case.sink().trail.checkpoint(accept=True)
    case.opens()
    assert case.sealed() == 2


def test_a_ledger_that_is_restored_under_a_runner(case: Case) -> None:
    sink = case.sink(anchors=[])
    sink.open(case.orders.source())
    before = case.tables.log(LEDGER).latest()
    sink.apply(case.orders.window(6, [insert(row(7, "g"))]))
    case.spark.sql(f"restore table delta.`{case.folder / 'trail' / LEDGER}` to version as of {before}")
    with pytest.raises(WindowOutOfOrder):
        sink.apply(case.orders.window(7, [insert(row(8, "h"))]))
    sink.close()
    assert case.tables.read(LEDGER).count() == 1


def test_a_ledger_that_was_taken_back_costs_no_value(case: Case) -> None:
    """Its end is one that the key's holder has left, and what comes after it would be rest that a run takes away."""
    before = {name: case.tables.log(name).latest() for name in (LEDGER, EVENTS)}
    sink = case.sink()
    sink.open(case.orders.source())
    sink.apply(case.orders.window(6, [insert(row(7, "g"))]))
    sink.close()
    for name, version in before.items():
        case.spark.sql(f"restore table delta.`{case.folder / 'trail' / name}` to version as of {version}")
    with pytest.raises(ForkedTrail):
        case.opens()
    assert (case.sealed(), case.tables.read(PAYLOAD).count()) == (2, 5)


@pytest.mark.parametrize("name", [PAYLOAD, EVENTS])
def test_rows_that_are_planted_before_the_tasks_write(case: Case, name: str) -> None:
    sink = case.sink(small_window_bytes=-1)
    sink.open(case.orders.source())
    planted = case.tables.read(name).limit(1).withColumn("version", F.lit(6).cast("long"))
    planted.write.format("delta").mode("append").save(case.tables.location(name))
    with pytest.raises(TargetNotReady, match="no runner has left there"):
        sink.apply(case.orders.window(6, [insert(row(7, "g"))]))
    sink.close()
    assert case.tables.read(LEDGER).count() == 1


class Died(BaseException):
    """The process is gone."""


def test_another_time_for_a_window_without_records(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TrailTables.append

    def append(tables: TrailTables, name: str, rows: DataFrame, *, about: Mapping[str, Any], **more: Any) -> int:
        if name == LEDGER and "opened" not in about:
            raise Died
        return real(tables, name, rows, about=about, **more)

    window = case.orders.window(6, [insert(row(7, "g"))])
    earlier = dataclasses.replace(window.commits[0], timestamp=window.commits[0].timestamp - dt.timedelta(days=9))
    sink = case.sink()
    sink.open(case.orders.source())
    with monkeypatch.context() as patched:
        patched.setattr(TrailTables, "append", append)
        with pytest.raises(Died):
            sink.apply(dataclasses.replace(window, commits=(earlier,)))
    sink.close()
    assert sink.open(case.orders.source()).pending is not None
    with pytest.raises(TargetNotReady, match="no runner has left there"):
        sink.apply(window)
    sink.close()
    assert case.tables.read(LEDGER).count() == 1


def test_a_source_that_was_put_back_and_has_grown_past_the_position(spark: SparkSession, tmp_path: Path) -> None:
    source, backup = Table(spark, str(tmp_path / "source")), tmp_path / "backup"

    def run() -> None:
        sink = DeltaAuditSink(str(tmp_path / "trail"), spark=spark)
        Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest").run()

    source.sql("insert into {t} values (1, 'a')")
    shutil.copytree(source.path, backup)
    source.sql("insert into {t} values (2, 'b')")
    run()
    shutil.rmtree(source.path)
    shutil.copytree(backup, source.path)
    spark.sql(f"refresh table delta.`{source.path}`")
    source.sql("insert into {t} values (3, 'c')", "insert into {t} values (4, 'd')")
    with pytest.raises(TableReplaced, match="put back"):
        run()
    assert TrailTables(spark, str(tmp_path / "trail")).read(LEDGER).count() == 3
