"""A key that was another person's before: a trail forgets what belongs to the erased life of it, and nothing of others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.erasure.commit_marker import erasing_metadata
from audit.erasure.erase.delete import erase_table, erased_keys
from audit.erasure.find.resolve import Resolution
from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import ErasureTask
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table, setting
from tests.integration.erasures import MARKER, Knows

pytestmark = pytest.mark.usefixtures("interpreted")

HERS = "canary.person@example.org"
SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
Row = tuple[int, str, list[object]]


class Trail:
    """Of one table, from which what is asked for is erased."""

    def __init__(self, table: Table, folder: Path, key: str, *, start: str = "earliest") -> None:
        self.table, self.key = table, key
        self.sink = DeltaAuditSink(f"{folder}/trail", spark=table.spark)
        feed = ChangeFeed(table.spark, table.path)
        self.pipeline = Pipeline(feed, self.sink, key=[key], start=start, guard=Knows())
        self.pipeline.run()

    def erase(self, tables: Sequence[PersonalTable], identifiers: dict[str, str]) -> ErasureTask:
        spark, path = self.table.spark, self.table.path
        one = next(one for one in tables if one.table == path)
        day = dt.date(2026, 11, 1)
        asked = Request("R-1", "customer", identifiers, day, day, "GDPR Art. 17", "desk")
        found = Resolution.of(spark, tables, SUBJECTS, [asked])
        done = erase_table(
            spark, one, found.caught(path), run="er-1", requests=["R-1"], since=found.versions[path], marker=MARKER
        )
        self.pipeline.run()
        return ErasureTask(
            run="er-1",
            requests=("R-1",),
            table=path,
            versions=done.versions,
            key=(self.key,),
            on_erase=one.on_erase,
            personal=one.personal,
            keys=lambda: erased_keys(spark, path, done.versions, [self.key]),
            catch=lambda frame: found.catch(path, frame),
            search_terms=SearchTerms([SearchTerm("R-1", HERS, "email")]),
            link=one.path.column if isinstance(one.path, Link) else None,
        )

    def rows(self) -> list[Row]:
        rows = self.table.spark.read.format("delta").load(f"{self.sink.path}/payload").collect()
        return sorted(((row["version"], row["change_type"], list(row["row"])) for row in rows), key=str)

    def forgets(self, erasing: ErasureTask, kept: Callable[[Row], bool]) -> None:
        expected = [row for row in self.rows() if kept(row)]
        removed = len(self.rows()) - len(expected)
        assert self.sink.erasure.erase(erasing) == {"values removed": removed}
        assert self.rows() == expected
        assert self.sink.erasure.erase(erasing) == {"values removed": 0}
        assert self.rows() == expected
        assert self.sink.trail.verify()[0].intact


def customers(spark: SparkSession, path: str) -> Table:
    return Table(spark, path, "id long, email string, city string")


def by_email(table: Table) -> list[PersonalTable]:
    return [PersonalTable(table.path, "customer", "email", ("email",))]


def test_a_key_that_was_deleted_and_given_to_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    table = customers(spark, f"{tmp_path}/customers")
    table.sql(
        "insert into {t} values (7, 'bob@example.org', 'a'), (8, 'eve@example.org', 'a')",  # 1
        "update {t} set city = 'b' where id = 7",
        "delete from {t} where id = 7",
        f"insert into {{t}} values (7, 'old@example.org', 'c'), (9, '{HERS}', 'c')",  # 4: an address of hers from before
        f"update {{t}} set email = '{HERS}' where id = 7",
        f"insert overwrite {{t}} values (7, '{HERS}', 'd'), (8, 'eve@example.org', 'd'), (9, '{HERS}', 'd')",
        "update {t} set id = 70 where id = 8",  # 7: leaves its key
        f"insert into {{t}} values (8, '{HERS}', 'e')",
    )
    trail = Trail(table, tmp_path, "id")
    erasing = trail.erase(by_email(table), {"email": HERS})

    def others(row: Row) -> bool:
        version, _, (key, email, _) = row
        return email == "eve@example.org" or (key == 7 and version <= 3)

    trail.forgets(erasing, others)
    assert [row[2][1] for row in trail.rows()].count("bob@example.org") == 4


def test_a_trail_that_began_with_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = customers(spark, f"{tmp_path}/customers")
    table.sql("insert into {t} values (7, 'old@example.org', 'a'), (8, 'eve@example.org', 'a')")
    trail = Trail(table, tmp_path, "id", start="snapshot")
    table.sql(f"update {{t}} set email = '{HERS}' where id = 7")
    erasing = trail.erase(by_email(table), {"email": HERS})
    trail.forgets(erasing, lambda row: row[2][0] == 8)


def test_several_erasing_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Between them one of the keys came back as somebody else, and is gone again."""
    table = customers(spark, f"{tmp_path}/customers")
    table.sql(f"insert into {{t}} values (7, 'old@example.org', 'a'), (9, '{HERS}', 'a')")
    table.sql(f"update {{t}} set email = '{HERS}' where id = 7")
    trail = Trail(table, tmp_path, "id")
    with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", erasing_metadata("er-1", ["R-1"])):
        table.sql("delete from {t} where id = 7")  # 3
    table.sql("insert into {t} values (7, 'bob@example.org', 'b')", "delete from {t} where id = 7")
    erasing = trail.erase(by_email(table), {"email": HERS})
    both = ErasureTask(
        **{
            **{name: getattr(erasing, name) for name in ErasureTask.__slots__},
            "versions": (3, *erasing.versions),
            "keys": lambda: erased_keys(spark, table.path, (3, *erasing.versions), ["id"]),
        }
    )
    trail.forgets(both, lambda row: row[2][1] == "bob@example.org")


@pytest.mark.parametrize("on_erase", ["delete", "nullify"])
def test_an_order_that_was_another_persons(spark: SparkSession, tmp_path: Path, on_erase: str) -> None:
    people = Table(spark, f"{tmp_path}/customers", "customer_id long, email string")
    people.sql(f"insert into {{t}} values (5, 'eve@example.org'), (7, '{HERS}')")
    table = Table(spark, f"{tmp_path}/orders", "id long, buyer long, note string")
    table.sql(
        "insert into {t} values (1, 5, 'a'), (2, 7, 'a'), (3, null, 'a'), (4, null, 'eves')",  # 1
        "update {t} set buyer = 7, note = 'b' where id in (1, 3)",
        "delete from {t} where id = 4",
        "insert into {t} values (4, 7, 'b')",
    )
    trail = Trail(table, tmp_path, "id")
    tables = [
        PersonalTable(people.path, "customer", "customer_id", ("email",)),
        PersonalTable(table.path, "customer", Link("buyer", people.path, "customer_id"), ("note",), on_erase),  # type: ignore[arg-type]
    ]
    erasing = trail.erase(tables, {"customer_id": "7"})
    [erased] = erasing.versions

    def kept(row: Row) -> bool:
        version, kind, (_, buyer, note) = row
        emptied = version == erased and kind == "update_postimage"
        return emptied or buyer == 5 or note == "eves"

    trail.forgets(erasing, kept)
    assert len([row for row in trail.rows() if row[2][1] == 5]) == 2
    assert len([row for row in trail.rows() if row[2][2] == "eves"]) == 2
