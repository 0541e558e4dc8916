"""A trail is held against its source: what is not the same is named by its version, and so is what cannot be compared."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from audit.audit_trail import Trail
from audit.reconciliation.comparison import Reconciled, reconcile
from audit.trail.redaction import canonical_json
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf import ChangeFeed, Pipeline
from cdf.errors import KeyViolation, VerificationError
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.intruder import rewrite

pytestmark = pytest.mark.usefixtures("interpreted")

COLUMNS = "id long, name string, amount double, at timestamp, tags map<string, int>"
LONG_AGO = dt.datetime.now(dt.UTC) - dt.timedelta(days=300)


@dataclasses.dataclass
class Case:
    """A source and its trail, in a folder of their own."""

    spark: SparkSession
    folder: Path
    start: str = "earliest"

    @property
    def source(self) -> Table:
        table = object.__new__(Table)
        table.spark, table.path = self.spark, str(self.folder / "source")
        table.log = self.folder / "source" / "_delta_log"
        return table

    @property
    def pipeline(self) -> Pipeline:
        sink = DeltaAuditSink(str(self.folder / "trail"), spark=self.spark)
        return Pipeline(ChangeFeed(self.spark, self.source.path), sink, key=("id",), start=self.start)

    def table(self, name: str) -> Path:
        return self.folder / "trail" / name

    def reconciled(self, **options: Any) -> Reconciled:
        return reconcile(Trail(self.spark, str(self.folder / "trail")), self.pipeline, **options)

    def faults(self) -> list[tuple[int | None, str]]:
        found = self.reconciled()
        assert found.equal is (not found.mismatches)
        return [(one.version, one.fault) for one in found.mismatches]


def left_out(found: Reconciled) -> list[tuple[int, int, str]]:
    return [(one.first, one.last, one.reason) for one in found.not_compared]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case(spark, tmp_path_factory.mktemp("reconcile"))
    source = Table(spark, case.source.path, COLUMNS, checkpointInterval="3", logRetentionDuration="interval 9999 days")
    source.sql(
        "insert into {t} select id, concat('n', id), id / 4, timestamp'2026-01-01 00:00:00.000001', map('b', 2, 'a', 1) "
        "from range(6)",
        "update {t} set name = 'x' where id in (1, 2)",
        "delete from {t} where id = 3",
        "optimize {t}",
        "alter table {t} add column note string",
        "insert into {t} values (10, 'ten', 1.5, timestamp'2026-02-01 00:00:00', map(), 'new')",
    )
    case.pipeline.run()
    return case


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    shutil.copytree(original.folder, tmp_path / "copy")
    return dataclasses.replace(original, folder=tmp_path / "copy")


def version_is(version: int) -> Callable[[pa.Table], Any]:
    return lambda rows: pc.fill_null(pc.equal(rows["version"], version), False)


def doubled(of: int, /, **columns: Any) -> Callable[[pa.Table], pa.Table]:
    """The rows of that version once more, with other values in these columns."""

    def edit(rows: pa.Table) -> pa.Table:
        more = rows.filter(version_is(of)(rows))
        for name, value in columns.items():
            place = more.schema.get_field_index(name)
            field = more.schema.field(place)
            more = more.set_column(place, field, pa.array([value] * more.num_rows, field.type))
        return pa.concat_tables([rows, more])

    return edit


class TestEqual:
    def test_every_kind_of_change_and_those_that_come_later(self, case: Case) -> None:
        told: list[tuple[int, int]] = []
        found = case.reconciled(progress=lambda done, of: told.append((done, of)))
        assert (found.equal, found.mismatches, found.not_compared) == (True, (), ())
        assert (found.first_version, found.last_version, found.source_version) == (0, 6, 6)
        assert (found.versions, found.rows, found.pins) == (7, 6 + 4 + 1 + 1, 7)
        assert told[-1] == (7, 7)

        case.source.sql("insert into {t} (id) values (11)")
        case.source.set(enableChangeDataFeed="false")
        case.source.sql("insert into {t} (id) values (12)")
        found = case.reconciled()
        assert (found.equal, found.versions, found.source_version) == (True, 7, 9)
        assert left_out(found) == [(7, 7, "behind"), (8, 9, "feed_off")]

    def test_an_empty_trail_is_not_equal(self, spark: SparkSession, tmp_path: Path) -> None:
        case = Case(spark, tmp_path)
        Table(spark, case.source.path)
        pipeline = case.pipeline
        with pipeline.opened(0):
            pass
        found = case.reconciled()
        assert (found.equal, found.versions, found.last_version) == (None, 0, None)


class TestTheTrail:
    def test_a_microsecond_is_changed(self, case: Case) -> None:
        def edit(rows: pa.Table) -> pa.Table:
            later = [{**row, "at": row["at"] + dt.timedelta(microseconds=1)} for row in rows["row"].to_pylist()]
            place = rows.schema.get_field_index("row")
            chosen = version_is(6)(rows).to_pylist()
            values = [
                new if here else row for new, row, here in zip(later, rows["row"].to_pylist(), chosen, strict=True)
            ]
            return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

        assert rewrite(case.table(PAYLOAD), edit)
        assert case.faults() == [(6, "rows")]

    def test_changes_are_gone_added_and_doubled(self, case: Case) -> None:
        def without(rows: pa.Table) -> pa.Table:
            one_less = pc.and_(version_is(1)(rows), pc.equal(rows["index"], 2))
            return rows.filter(pc.invert(pc.or_(one_less, version_is(3)(rows))))

        rewrite(case.table(EVENTS), without)
        rewrite(case.table(EVENTS), doubled(6, version=4))
        rewrite(case.table(LEDGER), doubled(5))
        rewrite(case.table(LEDGER), lambda rows: rows.filter(pc.invert(version_is(2)(rows))))
        found = case.reconciled()
        assert {(one.version, one.fault) for one in found.mismatches} == {
            (1, "counts"),
            (2, "missing"),
            (3, "missing"),
            (4, "added"),
            (5, "doubled"),
        }
        assert "5 insert in the trail, 6 insert in the source" in [one.text for one in found.mismatches]
        assert found.equal is False

    def test_removed_values_are_only_counted_where_the_ledger_records_it(self, case: Case) -> None:
        events = case.spark.read.format("delta").load(str(case.table(EVENTS)))
        gone = events.where("version = 2 and change_type like 'update_pre%'").select("index")
        places = sorted(place for (place,) in gone.collect())
        case.spark.sql(
            f"delete from delta.`{case.table(PAYLOAD)}` where version = 2 and change_type like 'update_pre%'"
        )
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(2, "rows")]
        assert "2 changes are missing, and the ledger records the removal of 0" in found.mismatches[0].text

        record = canonical_json(
            {
                "sequence": 7,
                "kind": "removal",
                "previous": "0" * 64,
                "table_id": "t",
                "removed_at": "2026-01-01T00:00:00+00:00",
                "removed": {"2": [[place, place] for place in places]},
                "values": 2,
            }
        ).decode()
        rewrite(case.table(LEDGER), doubled(6, kind="removal", version=None, sequence=7, events=0, record=record))
        found = case.reconciled()
        assert (found.equal, found.removed, found.versions) == (True, 2, 6)
        assert left_out(found) == [(2, 2, "removed")]

    def test_a_damaged_file_is_no_finding_but_an_error(self, case: Case) -> None:
        for file in case.table(PAYLOAD).glob("*.parquet"):
            file.write_bytes(file.read_bytes()[:-20] + b"\0" * 20)
            case.table(PAYLOAD).joinpath(f".{file.name}.crc").unlink(missing_ok=True)
        with pytest.raises(VerificationError, match="cannot be read"):
            case.reconciled()


class TestTheSource:
    def test_a_commit_file_is_rewritten_afterwards(self, case: Case) -> None:
        file = case.source.commit_file(3)
        text = file.read_text()
        assert '"operation":"DELETE"' in text
        file.write_text(text.replace('"operation":"DELETE"', '"operation":"UPDATE"'))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        case.source.forget()
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(3, "log")]
        assert (found.equal, found.pins, found.versions) == (False, 6, 7)

    def test_a_commit_file_between_others_is_gone(self, case: Case) -> None:
        case.source.lose_commit(4)
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(4, "log")]
        assert left_out(found)[0] == (4, 4, "expired")
        assert found.versions >= 4  # those from before it; of those after it as many as a checkpoint leads to
        assert (found.equal, found.pins) == (False, 6)

    def test_dropped_and_created_again(self, case: Case) -> None:
        shutil.rmtree(case.source.path)
        case.source.forget()
        again = Table(case.spark, case.source.path, COLUMNS)
        again.sql(*("insert into {t} (id) values (1)" for _ in range(7)))
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(None, "replaced")]
        assert (found.equal, found.versions, found.pins) == (False, 0, 0)

    def test_an_older_copy_has_taken_its_place(self, case: Case) -> None:
        for name in ("*06.checkpoint*", "*06.crc", "_last_checkpoint", "._last_checkpoint.crc"):
            for file in case.source.log.glob(name):
                file.unlink()
        case.source.lose_commit(6)
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(6, "cut_off")]
        assert (found.versions, found.pins) == (6, 6)

    def test_rows_are_put_into_another_commit(self, case: Case) -> None:
        """The files of the last insert are made those of another row; the commit file stays what it was."""
        file = json.loads(case.source.commit_file(6).read_text().strip().splitlines()[-1])["add"]["path"]
        path = Path(case.source.path, file)
        import pyarrow.parquet as pq

        rows = pq.read_table(path, coerce_int96_timestamp_unit="us")
        rows = rows.set_column(0, rows.schema.field(0), pa.array([7700770077], rows.schema.field(0).type))
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        found = case.reconciled()
        assert [(one.version, one.fault) for one in found.mismatches] == [(6, "rows")]
        assert "7700770077" not in repr(found)


class TestRetention:
    def test_what_is_past_it_is_left_out_and_told(self, case: Case) -> None:
        case.source.date(dict.fromkeys(range(4), LONG_AGO))
        found = case.reconciled()
        assert left_out(found) == [(0, 3, "expired")]
        assert (found.equal, found.versions, found.rows, found.pins) == (True, 3, 1, 7)

        case.source.lose_commit(0)
        found = case.reconciled()
        assert [(one.first, one.last) for one in found.not_compared] == [(0, 0), (1, 3)]
        assert (found.equal, found.pins) == (True, 6)

    def test_change_files_that_were_vacuumed(self, case: Case) -> None:
        shutil.rmtree(Path(case.source.path, "_change_data"))
        found = case.reconciled()
        assert (found.equal, found.versions) == (True, 3)
        assert left_out(found) == [(0, 3, "expired")]

        for file in Path(case.source.path).glob("*.parquet"):
            file.unlink()
        found = case.reconciled()
        assert (found.equal, found.mismatches, found.rows, found.pins) == (None, (), 0, 7)
        assert left_out(found) == [(0, 3, "expired"), (5, 6, "expired")]  # OPTIMIZE alone, which changed no row


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case(spark, tmp_path_factory.mktemp("baseline"), start="snapshot")
    source = Table(spark, case.source.path)
    source.sql("insert into {t} select id, 'a' from range(5)")
    case.pipeline.run()
    source.sql("update {t} set v = 'b' where id = 1")
    case.pipeline.run()
    return case


class TestTheBaseline:
    def test_it_is_compared_with_the_table_at_its_version(self, loaded: Case, tmp_path: Path) -> None:
        found = loaded.reconciled()
        assert (found.equal, found.baseline_rows, found.versions, found.rows) == (True, 5, 1, 2)
        assert left_out(found) == [(0, 0, "before")]

        shutil.copytree(loaded.folder, tmp_path / "copy")
        case = dataclasses.replace(loaded, folder=tmp_path / "copy")
        rewrite(case.table(PAYLOAD), lambda rows: rows.filter(pc.invert(version_is(1)(rows))))
        assert case.faults() == [(1, "rows")]

    def test_it_is_left_out_where_the_table_cannot_be_read_as_of_then(self, loaded: Case, tmp_path: Path) -> None:
        shutil.copytree(loaded.folder, tmp_path / "copy")
        case = dataclasses.replace(loaded, folder=tmp_path / "copy")
        added = [json.loads(line) for line in case.source.commit_file(1).read_text().splitlines()]
        for action in added:
            if "add" in action:
                Path(case.source.path, action["add"]["path"]).unlink()
        found = case.reconciled()
        assert (found.equal, found.baseline_rows, found.versions) == (True, None, 1)
        assert left_out(found) == [(0, 0, "before"), (1, 1, "expired")]


@pytest.mark.parametrize("small_window_bytes", [2**20, 0], ids=["driver", "tasks"])
def test_bytes_that_are_not_utf8_are_kept_in_values_and_refused_in_keys(
    spark: SparkSession, tmp_path: Path, small_window_bytes: int
) -> None:
    case = Case(spark, tmp_path)
    source = Table(spark, case.source.path, "id string, name string, tags map<string, string>")
    source.sql(
        "insert into {t} values ('a', 'n', map('k', 'v')), ('b', 'n', null)",
        "update {t} set name = cast(X'61FF' as string), tags = map(cast(X'FE' as string), '�') where id = 'a'",
    )
    sink = DeltaAuditSink(str(tmp_path / "trail"), spark=spark, small_window_bytes=small_window_bytes)
    pipeline = Pipeline(ChangeFeed(spark, source.path), sink, key=("id",), start="earliest")
    pipeline.run()
    trail = Trail(spark, str(tmp_path / "trail"))
    rows = trail.tables.read(PAYLOAD).selectExpr("version", "row.id", "hex(row.name)", "hex(map_keys(row.tags)[0])")
    assert sorted(map(tuple, rows.where("row.id = 'a'").collect())) == [
        (1, "a", "6E", "6B"),
        (2, "a", "61FF", "FE"),
        (2, "a", "6E", "6B"),
    ]
    assert trail.verify()[0].findings == ()
    assert case.reconciled().equal
    source.sql("insert into {t} select cast(X'FD' as string), 'n', null")
    with pytest.raises(KeyViolation, match=r"version 3 of .* bytes that are not UTF-8 in the key \(id\)"):
        pipeline.run()
    assert trail.verify()[0].findings == ()
