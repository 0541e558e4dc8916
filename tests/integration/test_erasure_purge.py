"""The places in a Delta table's folder where a deleted person survives: each is found, with its reason and its date, and
gone after the purge. Nothing is found in a table that never had the person."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.erasure.erase.delete import erase_table
from audit.erasure.erase.purge import purge_table
from audit.erasure.errors import SinkBehind
from audit.erasure.find.resolve import Resolution
from audit.erasure.model import PersonalTable, Request, Subject
from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import LocalFiles
from audit.erasure.scan.results import Finding, ScanResult
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import PurgeResult
from cdf.source.table import ChangeFeed
from tests.integration.delta_table import Table, setting
from tests.integration.erasures import MARKER

pytestmark = pytest.mark.usefixtures("interpreted")

CANARY = "canary.person@example.org"
TERMS = SearchTerms([SearchTerm("R-1", CANARY, "email"), SearchTerm("R-1", "4711", "customer_id")])
NOW = dt.datetime.now(dt.UTC)
CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def people(spark: SparkSession, path: str, columns: str = "customer_id long, email string", **properties: str) -> Table:
    """Ten others and the canary, in one file each."""
    table = Table(spark, path, columns, **properties)
    table.sql(
        "insert into {t} (customer_id, email)"
        " select /*+ repartition(1) */ id, concat('p', id, '@example.org') from range(10)"
    )
    rows = spark.createDataFrame([(4711, CANARY)], "customer_id long, email string").coalesce(1)
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    return table


def erase(spark: SparkSession, table: Table) -> int:
    subject = Subject("customer", {"email": "email", "customer_id": "exact"})
    one = PersonalTable(table.path, "customer", "customer_id")
    day = dt.date(2026, 11, 1)
    asked = Request("R-1", "customer", {"email": CANARY}, day, day, "GDPR Art. 17", "desk")
    found = Resolution.of(spark, [one], {"customer": subject}, [asked])
    done = erase_table(
        spark,
        one,
        found.caught(table.path),
        run="er-1",
        requests=["R-1"],
        since=found.versions[table.path],
        marker=MARKER,
    )
    assert done.rows == 1
    return done.versions[-1]


def purge(
    spark: SparkSession,
    table: Table,
    version: int,
    *,
    now: dt.datetime | None = None,
    at_once: bool = False,
    stands: int | None = None,
) -> PurgeResult:
    """``stands``: of the only sink; left out, its pipeline runs whenever the purge wants it to."""

    def purged() -> PurgeResult:
        return purge_table(
            spark,
            table.path,
            versions=[version],
            positions={"p": ChangeFeed(spark, table.path).log.latest() if stands is None else stands},
            now=now or dt.datetime.now(dt.UTC),
            immediately=at_once,
        )

    try:
        return purged()
    except SinkBehind:
        if stands is not None:
            raise
        return purged()


def scan(table: Table) -> ScanResult:
    found = scan_table(LocalFiles(table.path), TERMS, now=NOW)
    assert found.unseen == ()
    return found


def reasons(found: ScanResult) -> dict[str, list[Finding]]:
    told: dict[str, list[Finding]] = {}
    for one in found.finds:
        told.setdefault(one.reason, []).append(one)
    return told


def aged(table: Table, days: int) -> None:
    """All that is in the folder is so much older. In its order: of commits with one time Delta cleans all or none."""
    for one in Path(table.path).rglob("*"):
        then = one.stat().st_mtime - days * 86400
        os.utime(one, (then, then))
    table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def others(spark: SparkSession, table: Table) -> set[tuple[object, ...]]:
    return {tuple(row) for row in spark.read.format("delta").load(table.path).collect()}


@dataclass(frozen=True, slots=True)
class Built:
    before: Table
    erased: Table
    version: int
    """Of the erasing commit."""


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Tests change copies."""
    folder = tmp_path_factory.mktemp("people")
    table = people(spark, str(folder / "people"))
    before = table.copy(folder / "before")
    return Built(before, table, erase(spark, table))


def test_a_clean_table(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, "customer_id long, email string")
    table.sql(
        "insert into {t} select id, concat('p', id, '@example.org') from range(4700, 4711)",
        "delete from {t} where customer_id = 4705",
    )
    found = scan(table)
    assert found.finds == ()
    assert {one.what for one in found.checked} >= {"data", "log", "checksum"}


def test_from_the_delete_to_the_last_file(spark: SparkSession, delta_path: str, built: Built) -> None:
    assert reasons(scan(built.before))["current file"][0].clears_on is None
    table, version = built.erased.copy(delta_path), built.version
    stay = others(spark, table)
    assert len(stay) == 10

    # A sink that has not read it
    whole = sorted(Path(table.path).rglob("*"))
    with pytest.raises(SinkBehind, match="slow"):
        purge_table(
            spark,
            table.path,
            versions=[version],
            positions={"slow": version - 1, "quick": version},
            now=NOW,
            immediately=True,
        )
    assert sorted(Path(table.path).rglob("*")) == whole

    told = reasons(scan(table))
    assert set(told) == {"former file", "change file", "statistics", "checksum"}
    today = dt.datetime.now(dt.UTC)
    for reason, days in (("former file", 7), ("change file", 7), ("statistics", 30), ("checksum", 30)):
        for one in told[reason]:
            assert one.clears_on is not None
            assert abs((one.clears_on - today.date()).days - days) <= 1, one

    # Too early for anything
    waiting = purge(spark, table, version)
    assert waiting.waits_until is not None
    assert 6 < (waiting.waits_until - today).days + 1 < 9
    assert len(scan(table).finds) == len([one for found in told.values() for one in found])

    # A week later the files go, the log stays
    with_time = purge(spark, table, version, at_once=True, stands=version)
    assert with_time.waits_until is None
    assert with_time.done["files"] == 2
    assert scan(table).finds == ()
    assert others(spark, table) == stay
    # A sink that has read the erasing commit finds all that comes after it
    assert ChangeFeed(spark, table.path).log.listing().earliest == version + 1


def test_by_time_alone(spark: SparkSession, delta_path: str, built: Built) -> None:
    """Nothing is set and nothing hurried: files and log go once they are old enough."""
    table, version = built.erased.copy(delta_path), built.version
    now = NOW + dt.timedelta(days=8)
    with setting(spark, CHECK, "false"):
        # Delta looks at its own clock: the files are made old instead, and their removal with a retention of seconds
        table.set(deletedFileRetentionDuration="interval 0 seconds")
        came = purge(spark, table, version, now=now)
    assert came.done["files"] >= 1
    assert came.waits_for == "the retention of the log"
    assert set(reasons(scan(table))) == {"statistics", "checksum"}
    aged(table, 40)
    came = purge(spark, table, version, now=NOW + dt.timedelta(days=1))
    assert came.waits_until is None
    assert came.done["log entries"] > 0
    assert scan(table).finds == ()


def test_rows_that_a_deletion_vector_hides(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, "customer_id long, email string", enableDeletionVectors="true")
    rows = [(n, f"p{n}@example.org") for n in range(20)] + [(4711, CANARY)]
    frame = spark.createDataFrame(rows, "customer_id long, email string").coalesce(1)
    frame.write.format("delta").mode("append").save(table.path)
    version = erase(spark, table)
    assert "deletion vector" in reasons(scan(table))
    assert list(Path(table.path).glob("deletion_vector*.bin")), "no deletion vector was written: nothing is shown here"
    first = purge(spark, table, version)
    assert first.waits_until is not None
    latest = ChangeFeed(spark, table.path).log.latest()
    # What others delete later puts nothing off: each commit of ours that takes files out would begin the retention anew
    table.sql("delete from {t} where customer_id = 3")
    assert purge(spark, table, version).waits_until == first.waits_until
    assert ChangeFeed(spark, table.path).log.latest() == latest + 1  # the delete alone
    assert "deletion vector" not in reasons(scan(table))
    assert purge(spark, table, version, at_once=True).waits_until is None
    assert scan(table).finds == ()
    assert len(others(spark, table)) == 19


def test_a_column_that_was_dropped(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, "customer_id long, email string", **{"columnMapping.mode": "name"})
    frame = spark.createDataFrame([(1, CANARY), (2, "b@example.org")], "customer_id long, email string").coalesce(1)
    frame.write.format("delta").mode("append").save(table.path)
    table.sql("alter table {t} drop column email")
    assert "dropped column" in reasons(scan(table))
    latest = ChangeFeed(spark, table.path).log.latest()
    assert purge(spark, table, latest, at_once=True).waits_until is None
    assert scan(table).finds == ()


def test_a_lite_vacuum_leaves_what_no_commit_has(spark: SparkSession, delta_path: str, built: Built) -> None:
    table, version = built.erased.copy(delta_path), built.version
    aborted = next(one for one in Path(table.path).glob("*.parquet"))
    left = aborted.with_name("part-00099-aborted.parquet")
    frame = spark.createDataFrame([(4711, CANARY)], "customer_id long, email string").coalesce(1)
    frame.write.parquet(f"{delta_path}-other")
    left.write_bytes(next(Path(f"{delta_path}-other").glob("*.parquet")).read_bytes())
    assert "aborted write" in reasons(scan(table))
    with setting(spark, CHECK, "false"):
        spark.sql(f"vacuum delta.`{table.path}` lite retain 0 hours")
    assert "aborted write" in reasons(scan(table))
    purge(spark, table, version, at_once=True)
    assert scan(table).finds == ()


def test_a_partition_named_by_the_value(spark: SparkSession, delta_path: str) -> None:
    frame = spark.createDataFrame([(1, CANARY), (2, "b@example.org")], "customer_id long, email string")
    frame.write.format("delta").partitionBy("email").option("delta.enableChangeDataFeed", "true").save(delta_path)
    table = Table.at(spark, delta_path)
    told = reasons(scan(table))
    assert told["partition name"]
    assert not any("canary" in one.place for found in told.values() for one in found)
    version = erase(spark, table)
    # Delta's own checkpoint names deleted files, folders and all, until their retention is over
    assert purge(spark, table, version, at_once=True).waits_for is not None
    assert {one.reason for one in scan(table).finds} == {"checkpoint"}
    assert not list(Path(delta_path).rglob("*canary*"))
    with setting(spark, CHECK, "false"):
        table.set(deletedFileRetentionDuration="interval 0 seconds")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    with pytest.raises(SinkBehind, match="newest checkpoint"):
        purge(spark, table, version, now=later, at_once=True, stands=version)
    assert purge(spark, table, version, now=later, at_once=True).waits_until is None
    assert scan(table).finds == ()


def test_at_once_needs_the_sinks_to_read_once(spark: SparkSession, delta_path: str) -> None:
    """However often the table writes a checkpoint: VACUUM's own commits are not waited for."""
    table = people(spark, delta_path, checkpointInterval="1")
    stands = version = erase(spark, table)
    tries = 0
    while True:
        try:
            came = purge(spark, table, version, at_once=True, stands=stands)
            break
        except SinkBehind:
            tries, stands = tries + 1, ChangeFeed(spark, table.path).log.latest()  # the pipelines run
            assert tries == 1, "every try asks for another run"
    assert came.waits_until is None
    assert scan(table).finds == ()


def test_many_search_terms_a_literal_in_a_predicate_and_a_file_that_is_no_parquet(
    delta_path: str, built: Built
) -> None:
    table = built.before.copy(delta_path)
    many = SearchTerms([*TERMS.terms, *(SearchTerm(f"X-{n}", f"nobody{n}@example.net", "email") for n in range(1000))])
    assert scan_table(LocalFiles(table.path), many, now=NOW).finds == scan(table).finds != ()

    assert "log entry" not in reasons(scan(table))
    table.sql(f"delete from {{t}} where email = '{CANARY}'")
    [entry] = reasons(scan(table))["log entry"]
    assert entry.place.endswith(".json")
    assert entry.clears_on is not None
    assert abs((entry.clears_on - NOW.date()).days - 30) <= 1

    broken = Path(table.path, "part-00007-broken.parquet")
    broken.write_bytes(b"PAR1 no parquet at all " + CANARY.encode())
    found = scan_table(LocalFiles(table.path), TERMS, now=NOW)
    assert [one.place for one in found.unseen] == [str(broken)]
    assert str(broken) in {one.place for one in found.finds}
