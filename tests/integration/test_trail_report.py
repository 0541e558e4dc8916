"""A report on a real trail: it tells what is so, shows nothing of any row, and is also made of a trail that was altered."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.proof import read_checkpoint, verify_note
from audit.queries.questions import deletes_without_ticket, hiding_operations
from audit.report import Report, as_html, as_markdown, make_report
from audit.signing.signer import Signer
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table, setting
from tests.integration.intruder import rewrite

pytestmark = pytest.mark.usefixtures("interpreted")

KEY = Signer.generate("trail.example.org/report")
CANARY = "canary-4711"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclasses.dataclass
class Case:
    spark: SparkSession
    folder: Path

    @property
    def sink(self) -> DeltaAuditSink:
        anchor = NamedAnchor("a safe", FileAnchor(self.folder / "anchor"))
        return DeltaAuditSink(str(self.folder / "trail"), spark=self.spark, signer=KEY, anchors=[anchor])

    def table(self, name: str) -> Path:
        return self.folder / "trail" / name

    def report(self) -> Report:
        made = make_report(self.sink.trail, pipeline="customers", source="/lake/customers", keys=[str(KEY.verifier)])
        pages = as_html(made), as_markdown(made), json.dumps(made.to_dict())
        assert [page for page in pages if CANARY in page or "4711" in page] == []
        return made


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case(spark, tmp_path_factory.mktemp("report"))
    (case.folder / "anchor").mkdir()
    source = Table(spark, str(case.folder / "source"), "id long, name string, amount double")
    with setting(spark, USER_METADATA, json.dumps({"ticket": "OPS-1", "purpose": "first load"})):
        source.sql(f"insert into {{t}} select id, concat('{CANARY}', id), id from range(10)")
    with setting(spark, USER_METADATA, f"{CANARY}: free text"):
        source.sql(f"delete from {{t}} where name = '{CANARY}3'")
    with setting(spark, USER_METADATA, json.dumps({"ticket": "OPS-2"})):
        source.sql("delete from {t} where id = 4")
    source.sql(
        "update {t} set amount = 0 where id < 3",
        "alter table {t} add column note string",
        "restore table {t} to version as of 4",
    )
    Pipeline(ChangeFeed(spark, source.path), case.sink, key=("id",), start="earliest").run()
    return case


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    shutil.copytree(original.folder, tmp_path / "copy")
    return dataclasses.replace(original, folder=tmp_path / "copy")


def test_what_it_tells(original: Case) -> None:
    made = original.report()
    scope, found = made.scope, made.verification
    assert (scope.first_version, scope.last_version, scope.records, scope.unreadable) == (0, 6, 7, 0)
    assert scope.baseline_version is None
    assert scope.first_committed_at is not None
    assert scope.last_committed_at == found.last_committed_at
    assert (found.level, found.intact, found.sealed_version, found.findings) == ("full", True, 6, ())
    assert made.origin == original.sink.trail.tables.origin()

    changes = made.changes
    assert (changes.commits, changes.inserts, changes.updates, changes.deletes) == (7, 10, 3, 2)
    assert [one.changes for one in made.periods] == [changes]
    assert {one.operation: one.changes.deletes for one in made.operations if one.changes.deletes} == {"DELETE": 2}
    assert [(one.actor, one.changes, one.last_at) for one in made.actors] == [(None, changes, scope.last_committed_at)]

    # The restore took away a column, and no row
    hiding = [(one.version, one.operation, one.why) for one in made.hiding.commits]
    assert [one[:2] for one in hiding] == [(6, "RESTORE")]
    trail = original.sink.trail
    asked = hiding_operations(trail).select("version", "operation", "why").collect()
    assert [tuple(row) for row in asked] == hiding
    without = made.deletes_without_ticket
    assert (without.total, [(one.version, one.ticket, one.changes.deletes) for one in without.commits]) == (
        1,
        [(2, None, 1)],
    )
    assert [row["version"] for row in deletes_without_ticket(trail).collect()] == [2]
    assert [(one.version, one.change, one.column) for one in made.schema_changes] == [
        (5, "added", "note"),
        (6, "removed", "note"),
    ]
    assert made.schema == {"id": "bigint", "name": "string", "amount": "double"}
    assert (made.removals, made.gaps) == ((), ())

    anchor = made.anchors[0]
    notes = len(list((original.folder / "anchor").rglob("*.txt")))
    assert (anchor.anchor, anchor.reached, anchor.checkpoints, anchor.not_signed) == ("a safe", True, notes, 0)
    assert (anchor.records, anchor.version, anchor.committed_at) == (7, 6, scope.last_committed_at)
    assert made.note is not None
    checkpoint = read_checkpoint(verify_note(made.note, [KEY.verifier])[0])
    assert (checkpoint.origin, checkpoint.size) == (made.origin, 7)
    assert str(KEY.verifier) in as_markdown(made)
    assert KEY.secret() not in as_html(made)


def where(version: int) -> Callable[[pa.Table], Any]:
    return lambda rows: pc.equal(rows["version"], version)


def test_of_a_trail_that_was_altered(case: Case) -> None:
    rewrite(case.table(EVENTS), lambda rows: rows.filter(pc.invert(where(2)(rows))))

    def planted(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("row")
        chosen = where(3)(rows).to_pylist()
        rows_now = [
            {**row, "name": CANARY} if here else row for row, here in zip(rows["row"].to_pylist(), chosen, strict=True)
        ]
        return rows.set_column(place, rows.schema.field(place), pa.array(rows_now, rows.schema.field(place).type))

    rewrite(case.table(PAYLOAD), planted)
    made = case.report()
    assert made.verification.intact is False
    assert {("missing", EVENTS, 2), ("altered", PAYLOAD, 3)} <= {
        (one.kind, one.table, one.version) for one in made.verification.findings
    }
    assert "Not intact" in as_html(made)
    assert as_html(made).index("Not intact") < as_html(made).index("Contents")


@pytest.mark.parametrize(
    ("records", "unreadable"),
    [
        (("[1]", "[" * 5000), 2),
        (('{"version": 3}', '{"version": 4, "counts": 7, "columns": [{}], "committed_at": "x", "user": {}}'), 0),
    ],
)
def test_of_a_ledger_whose_records_are_none(case: Case, records: tuple[str, str], unreadable: int) -> None:
    def edit(rows: pa.Table) -> pa.Table:
        forged = dict(zip((3, 4), records, strict=True))
        pairs = zip(rows["version"].to_pylist(), rows["record"].to_pylist(), strict=True)
        texts = [forged.get(version, text) for version, text in pairs]
        place = rows.schema.get_field_index("record")
        return rows.set_column(place, rows.schema.field(place), pa.array(texts, rows.schema.field(place).type))

    rewrite(case.table(LEDGER), edit)
    made = case.report()
    assert made.verification.intact is False
    assert made.scope.records == 7
    assert made.scope.unreadable == unreadable
    assert (made.changes.deletes, made.changes.updates) == (1, 0)
