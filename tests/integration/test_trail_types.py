"""The columns of a trail's tables: those that came honestly, and those that somebody has planted, changed or taken away."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from audit.anchors.base import AnchorFailure, NamedAnchor
from audit.anchors.file import FileAnchor
from audit.audit_trail import Trail as AuditTrail
from audit.errors import AnchorUnavailable
from audit.queries.questions import deletes, events_of, history
from audit.report import as_html, make_report
from audit.report.sections import build_document
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from audit.verification import VerifiedState, verify_trail
from cdf.errors import VerificationError
from infra.cli.commands.audit.trails import translate_read_errors
from tests.integration.delta_table import Table
from tests.integration.trail_case import KEY, Trail, run, sealed

COLUMNS = "id long, code varchar(3), address struct<city: string, lines: array<struct<text: string>>>, amount smallint"
STATEMENTS = (
    "insert into {t} select id, 'abc', struct(concat('c', id), array(struct('t'))), id from range(4)",
    "alter table {t} add columns (note string, address.zip string)",
    "alter table {t} alter column amount type int",
    "insert into {t} values (9, 'xyz', struct('there', array(struct('t')), '1010'), 2000000000, 'new')",
    "delete from {t} where id = 1",
)


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Trail:
    folder = tmp_path_factory.mktemp("typed")
    source = Table(
        spark, str(folder / "source"), COLUMNS, **{"columnMapping.mode": "name", "enableTypeWidening": "true"}
    )
    source.sql(*STATEMENTS)
    path = folder / "trail"
    run(spark, source, path)
    return Trail(spark, path, sealed(spark, path))


@pytest.fixture
def trail(typed: Trail, tmp_path: Path) -> Trail:
    shutil.copytree(typed.path, tmp_path / "copy")
    return dataclasses.replace(typed, path=tmp_path / "copy")


@pytest.fixture(scope="module")
def verified(typed: Trail) -> VerifiedState:
    """Also that what has grown honestly is no fault: fields inside, wider types, texts of a length."""
    found, verified = verify_trail(typed.tables, [])
    assert (found.findings, found.last_version, found.values) == ((), 5, 6)
    assert verified is not None
    return verified


def in_place(trail: Trail, name: str, rows: DataFrame) -> None:
    """Another content, with columns of its own."""
    for one in ("appendOnly", "dataSkippingStatsColumns"):
        trail.sql(name, f"alter table {{t}} unset tblproperties ('delta.{one}')")
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(str(trail.table(name)))


def test_what_is_planted_beside_the_columns_and_inside_of_them(trail: Trail, verified: VerifiedState) -> None:
    trail.sql(PAYLOAD, "alter table {t} add columns (row.empty string, held_0 long, key_0 string)")
    trail.sql(EVENTS, "alter table {t} add columns (row string, operation string)")
    trail.sql(LEDGER, "alter table {t} add columns (approved_by string)")
    # Readers take what is theirs
    asked = AuditTrail(trail.spark, str(trail.path))
    assert [row["change_type"] for row in history(asked, {"id": 1}).collect()] == ["insert", "delete"]
    assert deletes(asked).select("row.id", "operation").collect() == [(1, "DELETE")]

    trail.sql(
        PAYLOAD, "alter table {t} add columns (row.address.approved_by string, row.address.lines.element.who string)"
    )
    trail.sql(PAYLOAD, "update {t} set row.address.approved_by = 'Vera' where change_type = 'delete'")
    there = [("altered", name, None, None) for name in (PAYLOAD, EVENTS, LEDGER)]
    assert trail.findings() == there
    found, _ = verify_trail(trail.tables, [], since=verified)
    assert [(one.kind, one.table, one.version, one.first) for one in found.findings] == there
    assert found.findings[0].text.endswith(
        "`held_0` was added, `key_0` was added, `row.address.approved_by` was added, "
        "`row.address.lines.element.who` was added"
    )
    with pytest.raises(VerificationError, match="cannot be read"), translate_read_errors(asked):
        history(asked, {"id": 1}).collect()


def test_columns_that_are_gone_or_of_another_type(trail: Trail) -> None:
    events, payload = (trail.tables.read(name) for name in (EVENTS, PAYLOAD))
    other = F.col("row").dropFields("address").withField("id", F.col("row.id").cast("string"))
    in_place(trail, EVENTS, events.withColumn("index", F.col("index").cast("string")).localCheckpoint())
    in_place(trail, PAYLOAD, payload.withColumn("row", other).localCheckpoint())
    found = trail.findings()
    assert found[:2] == [("altered", PAYLOAD, None, None), ("altered", EVENTS, None, None)]
    assert ("added", EVENTS, 1, None) in found
    asked = AuditTrail(trail.spark, str(trail.path))
    with pytest.raises(VerificationError, match="cannot be read"), translate_read_errors(asked):
        history(asked, {"id": 1}).collect()


def test_a_table_without_what_it_is_made_of(trail: Trail) -> None:
    payload, ledger = (trail.tables.read(name) for name in (PAYLOAD, LEDGER))
    in_place(trail, PAYLOAD, payload.withColumn("row", F.lit("x")).drop("salt").localCheckpoint())
    in_place(trail, LEDGER, ledger.drop("leaf").localCheckpoint())
    found = trail.findings()
    assert {("altered", PAYLOAD, None, None), ("altered", LEDGER, None, None), ("altered", PAYLOAD, 1, 0)} <= set(found)


def test_a_finding_leads_to_its_row(typed: Trail) -> None:
    asked = AuditTrail(typed.spark, str(typed.path))
    rows = events_of(asked, 1).collect()
    assert [(row["index"], row["change_type"], row["operation"], row["values"]) for row in rows] == [
        (index, "insert", "WRITE", "present") for index in range(4)
    ]
    assert sorted(row["row"]["id"] for row in rows) == [0, 1, 2, 3]
    assert events_of(asked, 1, 2).collect() == rows[2:3]
    assert events_of(asked, 2).collect() == events_of(asked, 1, 4).collect() == []


def test_a_report_passes_nothing_that_a_verification_refuses(
    typed: Trail, verified: VerifiedState, tmp_path: Path
) -> None:
    def report(*anchors: NamedAnchor, **asked: Any) -> tuple[str, list[str], list[AnchorFailure]]:
        trail = AuditTrail(typed.spark, str(typed.path), keys=[KEY.verifier], anchors=anchors)
        made = make_report(trail, pipeline="p", source="s", keys=[str(KEY.verifier)], **asked)
        assert "another one" not in as_html(made) or not made.verification.intact
        found = made.verification
        return build_document(made).verdict.tone, [one.kind for one in found.findings], list(found.unreachable)

    there, gone = (NamedAnchor(name, FileAnchor(tmp_path / name)) for name in ("there", "gone"))
    (tmp_path / "there").mkdir()
    there.anchor.publish(typed.checkpoint.origin, KEY.sign(typed.checkpoint))
    note = ("a safe", KEY.sign(dataclasses.replace(typed.checkpoint, root=bytes(32))))
    assert report(there, before=verified, origin=verified.origin) == ("good", [], [])
    tone, kinds, missed = report(there, gone)
    assert (tone, kinds, [type(one.error) for one in missed]) == ("open", [], [AnchorUnavailable])
    before = dataclasses.replace(verified, origin="deltarelay.audit/another")
    tone, kinds, _ = report(there, before=before, extra=[note], origin="deltarelay.audit/another")
    assert (tone, kinds) == ("bad", ["replaced", "replaced", "replaced"])
