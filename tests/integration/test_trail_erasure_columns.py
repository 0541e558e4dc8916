"""A trail forgets what it keeps under former names and types of columns, and finishes an erasing window."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from audit.erasure.erase.delete import erase_table, erased_keys
from audit.erasure.find.resolve import Resolution
from audit.erasure.model import OnErase, PersonalTable, Request, Subject
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import ErasureTask
from audit.queries.questions import as_of, diff
from audit.queries.view import view
from audit.trail.tables import LEDGER, PAYLOAD, TrailTables
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table
from tests.integration.erasures import MARKER, Knows

pytestmark = pytest.mark.usefixtures("interpreted")

CANARY = "canary.person@example.org"
SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}


class Changed:
    """A trail of a table whose key was widened and whose column with the identifier was renamed."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        mapped = {"columnMapping.mode": "name", "enableTypeWidening": "true"}
        self.table = Table(spark, f"{folder}/customers", "customer_id int, mail string, city string", **mapped)
        self.table.sql("insert into {t} select cast(id as int), concat('p', id, '@example.org'), 'x' from range(3)")
        rows = spark.createDataFrame(
            [(700, CANARY, "y"), (701, CANARY, "z")], "customer_id int, mail string, city string"
        )
        rows.coalesce(1).write.format("delta").mode("append").save(self.table.path)
        self.table.sql(
            "delete from {t} where customer_id = 701"
        )  # lost before anybody asked: its identifier alone tells
        self.sink = DeltaAuditSink(f"{folder}/trail", spark=spark)
        self.pipeline = Pipeline(
            ChangeFeed(spark, self.table.path), self.sink, key=["customer_id"], start="earliest", guard=Knows()
        )
        self.pipeline.run()
        self.table.sql(
            "alter table {t} alter column customer_id type bigint",
            "alter table {t} rename column mail to email",
            "update {t} set city = 'w' where customer_id in (1, 700)",
        )
        self.pipeline.run()

    def erase(self, on_erase: OnErase = "delete") -> ErasureTask:
        personal = ("email",)
        one = PersonalTable(self.table.path, "customer", "email", personal, on_erase)
        day = dt.date(2026, 11, 1)
        asked = Request("R-1", "customer", {"email": CANARY}, day, day, "GDPR Art. 17", "desk")
        found = Resolution.of(self.spark, [one], SUBJECTS, [asked])
        since = found.versions[one.table]
        done = erase_table(
            self.spark, one, found.caught(one.table), run="er-1", requests=["R-1"], since=since, marker=MARKER
        )
        assert done.rows == 1
        return ErasureTask(
            run="er-1",
            requests=("R-1",),
            table=one.table,
            versions=done.versions,
            key=("customer_id",),
            on_erase=on_erase,
            personal=personal,
            keys=lambda: erased_keys(self.spark, one.table, done.versions, ["customer_id"]),
            catch=lambda frame: found.catch(one.table, frame),
            search_terms=SearchTerms([SearchTerm("R-1", CANARY, "email")]),
        )

    def values(self) -> list[tuple[int, str, list[Any]]]:
        rows = self.spark.read.format("delta").load(f"{self.sink.path}/payload").collect()
        told = ((row["version"], row["change_type"], [one for one in row["row"] if one is not None]) for row in rows)
        return sorted(told, key=str)

    def intact(self) -> bool:
        return self.sink.trail.verify()[0].intact


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path) -> Changed:
    return Changed(spark, tmp_path)


def test_former_names_and_types_of_columns(changed: Changed) -> None:
    before = changed.values()
    erasing = changed.erase()
    changed.pipeline.run()
    others = [one for one in before if not {700, 701} & set(one[2])]
    # 700 was inserted, updated and erased; 701 was inserted and deleted, which only the column's former name tells
    assert changed.sink.erasure.erase(erasing) == {"values removed": 6}
    assert changed.values() == others
    assert changed.intact()
    assert changed.sink.erasure.erase(erasing) == {"values removed": 0}
    assert changed.sink.erasure.scan(erasing.search_terms).unseen == ()

    # What is gone is told as removed, and never as a row of NULLs
    told = view(changed.sink.trail).where("row is null or row.customer_id is null")
    assert {row["values"] for row in told.select("values").collect()} == {"removed"}
    assert told.count() == 6
    latest = erasing.versions[-1]
    now = as_of(changed.sink.trail, ("customer_id",), latest).collect()
    assert sorted(row["customer_id"] for row in now) == [0, 1, 2]
    between = diff(changed.sink.trail, ("customer_id",), latest - 1, latest)
    assert CANARY not in str(between.collect())


def test_an_emptied_row_is_kept_as_it_is_now(changed: Changed) -> None:
    erasing = changed.erase("nullify")
    changed.pipeline.run()
    changed.sink.erasure.erase(erasing)
    left = [one for one in changed.values() if {700, 701} & set(one[2])]
    assert [(version, kind, set(row)) for version, kind, row in left] == [
        (erasing.versions[-1], "update_postimage", {700, "w"})
    ]
    assert CANARY not in str(changed.values())
    assert changed.intact()
    assert changed.sink.erasure.erase(erasing) == {"values removed": 0}


class Died(BaseException):
    """The process is gone: nothing more is written or given back."""


def test_an_erasing_window_without_records_is_finished(changed: Changed, monkeypatch: pytest.MonkeyPatch) -> None:
    erasing = changed.erase()
    real = TrailTables.append

    def append(tables: TrailTables, name: str, rows: DataFrame, *, about: Mapping[str, Any], **more: Any) -> int:
        if name == LEDGER and "opened" not in about:
            raise Died
        return real(tables, name, rows, about=about, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TrailTables, "append", append)
        with pytest.raises(Died):
            changed.pipeline.run()
    lease = Path(changed.sink.path, "_lease")
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "seconds": 0}))

    changed.pipeline.run()
    [version] = erasing.versions
    assert [one for one in changed.values() if one[0] == version] == [(version, "delete", [700])]
    assert changed.intact()
    # The guard: the same values gone without a record are a fault
    DeltaTable.forPath(changed.spark, f"{changed.sink.path}/{PAYLOAD}").delete(f"version = {version}")
    assert not changed.intact()
