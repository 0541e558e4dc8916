"""What a scan must not miss, take for another thing, or promise: on tables of Spark's and of delta-rs'."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import File, LocalFiles
from audit.erasure.scan.results import Finding, ScanResult
from audit.erasure.scan.s3_files import files_at
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from tests.fixtures.fix_aws import KEY_ID, SECRET, Aws
from tests.integration.delta_table import Table

CANARY, NAME, NUMBER = "canary.person@example.org", "Pat O'Canary", "4711"
TERMS = SearchTerms(
    [SearchTerm("R-1", CANARY, "email"), SearchTerm("R-2", NAME, "name"), SearchTerm("R-3", NUMBER, "customer_id")]
)
NUMBERS = SearchTerms([SearchTerm("R-3", NUMBER, "customer_id")])
ODD = (
    "Anna: Smith",
    "50% of@e.example",
    "a b/c@e.example",
    "jörg@e.example",
    "p+q@e.example",
    'back\\slash"q',
    "a%20b@e",
)
NOW = dt.datetime.now(dt.UTC)
COLUMNS = "customer_id long, email string, name string"
interpreted = pytest.mark.usefixtures("interpreted")


def scan(path: str | Path, terms: SearchTerms = TERMS) -> ScanResult:
    found = scan_table(LocalFiles(str(path)), terms, now=NOW)
    assert not any(value in str(found).lower() for value in (CANARY, NAME.lower(), *ODD)), "a value is shown"
    return found


def reasons(found: ScanResult) -> dict[str, list[Finding]]:
    assert found.unseen == ()
    told: dict[str, list[Finding]] = {}
    for one in found.finds:
        told.setdefault(one.reason, []).append(one)
    return told


def days(one: Finding) -> int:
    assert one.clears_on is not None
    return (one.clears_on - NOW.date()).days


# ── tables of Spark's ────────────────────────────────────────────────────────────────────────────────────────────────


def filled(spark: SparkSession, path: str, **properties: str) -> Table:
    """One file: the canary between two others."""
    table = Table(spark, path, COLUMNS, **properties)
    rows = [(1, "a@b.example", "Ann"), (4711, CANARY, NAME), (47110, "z@b.example", "Zoe")]
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.format("delta").mode("append").save(path)
    return table


def checkpoint(table: Table) -> None:
    jvm: Any = table.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(table.spark._jsparkSession, table.path).checkpoint()


@interpreted
def test_a_number_under_the_names_that_column_mapping_gives(spark: SparkSession, delta_path: str) -> None:
    table = Table(
        spark,
        delta_path,
        "customer_id long, who struct<customer_id: long, email: string>",
        **{"columnMapping.mode": "name"},
    )
    rows = spark.createDataFrame(
        [(4711, (4711, CANARY))], "customer_id long, who struct<customer_id: long, email: string>"
    )
    rows.coalesce(1).write.format("delta").mode("append").save(table.path)
    checkpoint(table)
    told = reasons(scan(table.path, NUMBERS))
    assert set(told) == {"current file", "statistics", "checksum", "checkpoint"}
    assert sum(one.count for one in told["current file"]) == 2
    # Renamed it is the same column; dropped, within a column too, it is still in the file
    table.sql("alter table {t} rename column customer_id to buyer")
    assert sum(one.count for one in reasons(scan(table.path, NUMBERS))["current file"]) == 2
    table.sql("alter table {t} drop column who.email", "alter table {t} drop column buyer")
    told = reasons(scan(table.path))
    assert {one.request for one in told["dropped column"]} == {"R-1", "R-3"}
    assert {(one.request, one.count) for one in told["current file"]} == {("R-3", 1)}


@interpreted
def test_a_current_file_below_a_name_with_signs_is_told_as_one(spark: SparkSession, delta_path: str) -> None:
    rows = spark.createDataFrame([(4711, one) for one in ODD], "customer_id long, email string")
    rows.write.format("delta").partitionBy("email").save(delta_path)
    told = reasons(scan(delta_path, NUMBERS))
    assert sum(one.count for one in told["current file"]) == len(ODD)
    assert "aborted write" not in told
    found = scan(delta_path, SearchTerms(SearchTerm(f"R-{at}", value, "email") for at, value in enumerate(ODD)))
    named = {
        one.request for one in found.finds if one.place == f"{delta_path}/email=…" and one.reason == "partition name"
    }
    assert len(named) == len(ODD)
    assert {one.place.removeprefix(delta_path) for one in found.finds if "_delta_log" not in one.place} == {"/email=…"}


@interpreted
def test_predicates_with_a_number_or_a_quotation_mark(spark: SparkSession, delta_path: str) -> None:
    table = filled(spark, delta_path, logRetentionDuration="interval 60 days")
    table.sql(
        "update {t} set name = 'x' where customer_id in (2, 4711)",
        "update {t} set name = 'y' where customer_id = 47110",
        "update {t} set name = 'z' where name != \"Pat O'Canary\"",
    )
    entries = reasons(scan(table.path))["log entry"]
    assert {(one.request, Path(one.place).stem.lstrip("0")) for one in entries} == {("R-3", "2"), ("R-2", "4")}
    assert all(60 <= days(one) <= 61 for one in entries)
    # Then nothing takes log entries away
    table.set(enableExpiredLogCleanup="false")
    assert {one.clears_on for one in reasons(scan(table.path))["log entry"]} == {None}


@interpreted
def test_rows_that_a_deletion_vector_hides_and_rows_that_it_does_not(spark: SparkSession, delta_path: str) -> None:
    table = filled(spark, delta_path, enableDeletionVectors="true")
    two = SearchTerms([*TERMS.terms, SearchTerm("R-4", "z@b.example", "email")])
    assert {one.reason for one in scan(table.path, two).finds if one.request == "R-4"} >= {"current file"}
    table.sql("delete from {t} where customer_id = 4711")
    found = scan(table.path, two)
    of_files = {(one.request, one.reason, one.clears_on) for one in found.finds if "_delta_log" not in one.place}
    hidden = {(request, "deletion vector", None) for request in ("R-1", "R-2", "R-3")}
    assert of_files == hidden | {("R-4", "current file", None)}
    assert {one.what: one.count for one in found.checked}["deletion vector"] == 1


@interpreted
def test_a_shallow_clone_is_not_called_clean(spark: SparkSession, delta_path: str) -> None:
    table = filled(spark, f"{delta_path}-source")
    spark.sql(f"create table delta.`{delta_path}` shallow clone delta.`{table.path}`")
    [unseen] = scan(delta_path).unseen
    assert "shallow clone" in unseen.why


@interpreted
def test_a_removal_that_only_a_checkpoint_tells(spark: SparkSession, delta_path: str) -> None:
    for policy in ("classic", "v2"):
        table = filled(
            spark, f"{delta_path}-{policy}", checkpointPolicy=policy, deletedFileRetentionDuration="interval 20 days"
        )
        table.sql("delete from {t} where name = 'Zoe'", "delete from {t} where true")
        checkpoint(table)
        assert len(list(table.log.glob("0*.checkpoint*"))) == 1
        for version in range(3):
            table.commit_file(version).unlink()
        told = reasons(scan(table.path))
        assert len({one.place for one in told["former file"]}) == 2, policy
        assert all(20 <= days(one) <= 21 for one in told["former file"])
        assert "aborted write" not in told


# ── tables of delta-rs' ──────────────────────────────────────────────────────────────────────────────────────────────


OTHERS = pa.table({"customer_id": [1, 2], "email": ["a@b.example", "b@b.example"], "name": ["Ann", None]})
WITH = pa.table({"customer_id": [1, 4711], "email": ["a@b.example", CANARY], "name": ["Ann", NAME]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table that never had the canary."""
    write_deltalake(str(tmp_path / "table"), OTHERS)
    return tmp_path / "table"


def test_a_clean_table_with_numbers_that_are_none_of_its_values(path: Path) -> None:
    """Statistics count the nulls of a column under its name."""
    nulls = pa.table({"customer_id": pa.array([None] * 4711, pa.int64()), "email": ["x"] * 4711, "name": ["y"] * 4711})
    write_deltalake(str(path), nulls, mode="append")
    DeltaTable(str(path)).create_checkpoint()
    found = scan(path)
    assert (found.finds, found.unseen) == ((), ())
    assert {one.what: one.count for one in found.checked} == {"data": 2, "log": 2, "checkpoint": 2}
    assert all(one.bytes for one in found.checked)


def test_former_files_change_files_and_predicates(path: Path) -> None:
    DeltaTable(str(path)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    write_deltalake(str(path), WITH, mode="append")
    DeltaTable(str(path)).delete("name = 'Pat O''Canary'")
    told = reasons(scan(path))
    assert {"former file", "change file", "statistics", "log entry"} <= set(told)
    assert all(7 <= days(one) <= 8 for reason in ("former file", "change file") for one in told[reason])
    assert {one.request for one in told["log entry"]} == {"R-2"}
    assert {one.request for one in told["former file"]} == {"R-1", "R-2", "R-3"}


def test_partitions_of_delta_rs(tmp_path: Path, aws: Aws) -> None:
    rows = pa.table({"customer_id": [4711] * len(ODD), "email": list(ODD)})
    write_deltalake(str(tmp_path / "table"), rows, partition_by=["email"])
    assert sum(one.count for one in reasons(scan(tmp_path / "table", NUMBERS))["current file"]) == len(ODD)
    options = {
        "AWS_ENDPOINT_URL": aws.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": aws.region,
        "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }  # fmt: skip
    address = f"s3a://{aws.bucket}/lake/odd"
    write_deltalake(address, rows, partition_by=["email"], storage_options=options)
    found = scan_table(files_at(address, lambda _: aws.s3, lambda _: options), NUMBERS, now=NOW)
    assert sum(one.count for one in reasons(found)["current file"]) == len(ODD)


def test_partitions_by_a_number_in_log_and_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), WITH, partition_by=["customer_id"])
    DeltaTable(str(path)).create_checkpoint()
    found = scan(path, NUMBERS)
    assert {Path(one.place).suffix for one in found.finds if "_delta_log" in one.place} == {".json", ".parquet"}
    assert {one.place for one in found.finds if "_delta_log" not in one.place} == {f"{path}/customer_id=…"}


def test_no_date_is_promised_where_the_log_cannot_be_read(path: Path) -> None:
    write_deltalake(str(path), WITH, mode="append")
    (path / "_delta_log" / f"{2:020d}.json").write_text('{"commitInfo": {"userMetadata": "\\ud800 ' + CANARY + '"}}')
    found = scan(path)
    assert ["the log cannot be read" in one.why for one in found.unseen] == [True]
    assert {(one.reason, one.clears_on) for one in found.finds if "_delta_log" not in one.place} == {
        ("unknown file", None)
    }
    assert {one.clears_on for one in found.finds} == {None}


def test_a_file_of_the_table_that_is_not_there(path: Path) -> None:
    [file] = path.glob("*.parquet")
    file.unlink()
    assert [one.why for one in scan(path).unseen] == ["a file of the table is missing"]


def test_texts_of_files_that_delta_rs_has_rewritten(path: Path) -> None:
    """pyarrow reads them as views, of which it can do little."""
    write_deltalake(str(path), WITH, mode="append")
    DeltaTable(str(path)).delete("email = 'a@b.example'")
    assert any("view" in str(pq.read_schema(one)) for one in path.glob("*.parquet")), "nothing is shown here"
    found = {(one.request, one.count) for one in reasons(scan(path))["current file"]}
    assert found == {("R-1", 1), ("R-2", 1), ("R-3", 1)}
    nested = [[{"mail": CANARY}]]
    views = pa.array(nested).cast(pa.list_(pa.struct([("mail", pa.string_view())])))
    written(pa.table({"mails": views, "mail": pa.array([CANARY]).cast(pa.string_view())}), path / "part-9.parquet")
    assert sum(one.count for one in reasons(scan(path))["aborted write"]) == 2


# ── files of nobody's ────────────────────────────────────────────────────────────────────────────────────────────────


def written(rows: pa.Table, to: Path, **options: Any) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, to, **options)
    return to


def test_what_is_packed_is_unpacked_whatever_its_name(path: Path) -> None:
    bare = {"write_statistics": False, "compression": "zstd"}
    written(WITH, path / ".part-0.parquet.tmp", **bare)
    written(WITH, path / "old.bak", **bare)
    written(WITH, path / "_temporary" / "0" / "part-1.parquet", **bare)
    (path / "export.csv.gz").write_bytes(gzip.compress(CANARY.encode()))
    (path / "export.bz2").write_bytes(bz2.compress(CANARY.encode()))
    told = {(Path(one.place).name, one.reason) for one in reasons(scan(path)).get("other file", ())}
    assert {name for name, _ in told} == {".part-0.parquet.tmp", "old.bak", "export.csv.gz", "export.bz2"}
    [aborted] = {(one.place, one.clears_on) for one in scan(path).finds if one.reason == "aborted write"}
    assert aborted[0].endswith("part-1.parquet")


def test_what_cannot_be_decoded_is_told(path: Path) -> None:
    (path / "state.delta").write_bytes(b"LZ4Block" + bytes(20))
    (path / "manifest.avro").write_bytes(b"Obj\x01" + CANARY.encode())
    (path / "cut.gz").write_bytes(gzip.compress(CANARY.encode() * 999)[:-20])
    (path / "part-empty.parquet").write_bytes(b"")
    (path / "part-none.parquet").write_bytes(b"PAR1 " + CANARY.encode())
    rows = pa.table({"email": [*([CANARY] * 9), *(f"person{number}@else.example" for number in range(50_000))]})
    damaged = written(
        rows, path / "part-damaged.parquet", use_dictionary=False, write_statistics=False, data_page_size=4096
    )
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 5000] = b"\xff" * 5000
    damaged.write_bytes(data)
    found = scan(path)
    unseen = {Path(one.place).name for one in found.unseen}
    assert unseen == {"state.delta", "manifest.avro", "cut.gz", "part-none.parquet", "part-damaged.parquet"}
    assert {Path(one.place).name for one in found.finds} >= {
        "manifest.avro",
        "part-none.parquet",
        "part-damaged.parquet",
    }


@pytest.mark.parametrize(
    "line",
    [
        '{"commitInfo": {"userMetadata": "{\\"who\\": \\"%s\\", \\"who\\": \\"-\\"}"}}',
        '{"commitInfo": {"note": "%s", "note": "-"}}',
        '{"add": {"path": "x", "stats": "{}"}, "txn": {"appId": "%s"}}',
        '{"commitInfo": ' + "[" * 3_000 + '"%s"' + "]" * 3_000 + "}",
    ],
    ids=["text", "twice", "two actions", "deep"],
)
def test_nothing_that_an_entry_of_the_log_says_is_passed_over(path: Path, line: str) -> None:
    with (path / "_delta_log" / f"{0:020d}.json").open("a") as entries:
        entries.write("\n" + line % CANARY + "\n")
    assert {one.reason for one in scan(path).finds} == {"log entry"}


def test_copies_of_the_log(path: Path) -> None:
    log = path / "_delta_log"
    entry = {"add": {"path": "x", "partitionValues": {}, "stats": json.dumps({"maxValues": {"customer_id": 4711}})}}
    names = {
        f"{0:020d}.crc": "checksum",
        f"{0:020d}.{1:020d}.compacted.json": "compacted log",
        ".tmp/00000000000000000001.json": "temporary copy",
        "_staged_commits/00000000000000000001.uuid.json": "temporary copy",
        "_commit_1.json.tmp": "temporary copy",
    }
    for name in names:
        (log / name).parent.mkdir(exist_ok=True)
        content = {"allFiles": [entry["add"]]} if name.endswith(".crc") else entry
        (log / name).write_text(json.dumps(content))
    found = scan(path)
    assert {one.place.removeprefix(f"{log}/"): one.reason for one in found.finds} == names
    assert {one.reason for one in found.finds if one.clears_on} == {"checksum"}


def test_maps_fixed_bytes_and_dictionaries(path: Path) -> None:
    rows = pa.table({
        "tags": pa.array([[("customer_id", "4711"), ("size", "4711")]], pa.map_(pa.string(), pa.string())),
        "mails": pa.array([[{"to": CANARY}]]),
        "fixed": pa.array([CANARY.encode()], pa.binary(len(CANARY))),
        "email": pa.array([CANARY]).dictionary_encode(),
    })  # fmt: skip
    place = str(written(rows, path / "part-9.parquet"))
    assert {(one.request, one.count) for one in scan(path).finds if one.place == place} == {("R-1", 3), ("R-3", 1)}


def test_a_thousand_search_terms_find_the_same(path: Path) -> None:
    write_deltalake(str(path), WITH, mode="append")
    DeltaTable(str(path)).create_checkpoint()
    others = (
        term
        for number in range(1000)
        for term in (
            SearchTerm(f"X-{number}", f"nobody.{number}@example.net", "email"),
            SearchTerm(f"X-{number}", str(100_000 + number), "customer_id"),
        )
    )
    assert scan(path).finds == scan(path, SearchTerms([*TERMS.terms, *others])).finds != ()


def test_files_that_go_meanwhile_and_how_far_it_is(path: Path) -> None:
    write_deltalake(str(path), WITH, mode="append")
    left = written(WITH, path / "part-9.parquet")

    class Vacuumed(LocalFiles):
        def open(self, file: File) -> Any:
            left.unlink(missing_ok=True)
            return super().open(file)

    told: list[tuple[int, int]] = []
    found = scan_table(Vacuumed(str(path)), TERMS, now=NOW, progress=lambda done, total: told.append((done, total)))
    assert found.unseen == ()
    assert str(left) not in {one.place for one in found.finds}
    assert told[-1][0] == told[-1][1] == max(done for done, _ in told) > 0


def test_folders_that_are_not_looked_into() -> None:
    """Below a folder that everybody can reach, for a user without rights: root could look into all."""
    with tempfile.TemporaryDirectory() as name:
        path, root = Path(name), os.geteuid() == 0
        path.chmod(0o755)
        (path / "link").symlink_to(path.parent)
        closed = written(WITH, path / "closed" / "part-1.parquet").parent
        closed.chmod(0)
        files = LocalFiles(name)
        try:
            if root:
                os.seteuid(65534)
            assert list(files.list_files()) == []
        finally:
            if root:
                os.seteuid(0)
            closed.chmod(0o700)
    assert {one.place: one.why for one in files.unseen()} == {
        "link": "a link to a folder, which is not followed",
        "closed": "Permission denied",
    }
