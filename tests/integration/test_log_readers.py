"""The two readers of a Delta log give the same answers: Delta's own classes, and Spark's public API only."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf.errors import FeatureNotSupported, TableNotFound, VersionsExpired
from cdf.source import snapshots
from cdf.source.log import TableLog
from cdf.source.log_readers import LatestVersion
from tests.integration.delta_table import Table, inserted, setting
from tests.integration.foreign_writer import append_commit, metadata_with, protocol
from tests.integration.log_reader_case import describe_log, public_means

pytestmark = pytest.mark.usefixtures("interpreted")


def checkpoint(table: Table) -> None:
    TableLog(table.spark, table.path).checkpoint()


def compact(table: Table, first: int, last: int) -> None:
    """A compacted log as Delta's protocol defines it: the actions of a range of commits in one file."""
    lines = [
        line
        for version in range(first, last + 1)
        for line in table.commit_file(version).read_text().splitlines()
        if not line.startswith('{"commitInfo"')
    ]
    (table.log / f"{first:020d}.{last:020d}.compacted.json").write_text("\n".join(lines))


def write_marked(table: Table, application: str, version: int) -> None:
    rows = table.spark.sql(f"select cast({version} as long) as id, 'm' as v")
    writer = rows.write.format("delta").mode("append")
    writer.option("txnAppId", application).option("txnVersion", version).option("userMetadata", "marked").save(
        table.path
    )


def assert_same(spark: SparkSession, location: str, *versions: int) -> dict[str, Any]:
    """``versions``: those that are asked about one by one; without any, all of them."""
    expected = describe_log(spark, location, public=False, versions=versions or None)
    found = describe_log(spark, location, public=True, versions=versions or None)
    differs = {name: (found[name], answer) for name, answer in expected.items() if found[name] != answer}
    assert differs == {}
    return expected


def test_both_readers_agree_on_a_long_history(spark: SparkSession, tmp_path: Path) -> None:
    # Every character that Spark's readers or a URL would give a meaning
    table = Table(spark, str(tmp_path / "a#b [x]{y}%20*?"), checkpointInterval="100", enableDeletionVectors="true")
    table.sql("insert into {t} select id, 'a' from range(50)", "delete from {t} where id < 7")
    write_marked(table, "job", 3)
    table.sql("alter table {t} add columns (w int)", "update {t} set w = 1 where id = 20")
    compact(table, 1, 4)
    checkpoint(table)  # classic, at 5
    table.sql("delete from {t} where id = 21", "restore table {t} to version as of 2")
    write_marked(table, "other", 1)
    write_marked(table, "job", 9)
    table.set(enableChangeDataFeed="false")
    table.set(checkpointPolicy="v2")
    table.sql("delete from {t} where id = 30")
    with setting(spark, "spark.databricks.delta.checkpointV2.topLevelFileFormat", "json"):
        checkpoint(table)  # v2 in JSON with sidecars, at 12
    table.set(enableInCommitTimestamps="true")
    table.sql("delete from {t} where id = 31")
    with setting(spark, "spark.databricks.delta.checkpointV2.topLevelFileFormat", "parquet"):
        checkpoint(table)  # v2 in Parquet, at 14
    table.sql("delete from {t} where id = 32")
    assert list((table.log / "_sidecars").iterdir())
    table.forget()
    found = assert_same(spark, table.path)
    assert (found["latest"], found["transactions"], found["named"]) == (15, [9, 1, None], [3, 8, 9])
    assert not found["now"].feed_enabled
    assert found["metadata of 9"].feed_enabled
    assert found["size of 7"] == found["size of 2"] < found["size of 3"]
    assert found["sha256 of 16"][0] is VersionsExpired

    gone = table.copy(tmp_path / "gone")
    gone.lose_commit(0, 1, 3, 8)
    found = assert_same(spark, gone.path, 0, 2, 4, 5, 7, 8, 9, 12, 13, 15)
    assert (found["gaps"], found["readable"]) == ((3, 8), 12)
    assert found["metadata of 4"][0] is VersionsExpired

    TableLog(spark, table.path).clean_up(at_once=True)
    table.forget()
    found = assert_same(spark, table.path, 4, 5, 13, 14, 15)
    assert found["readable"] > 0

    before = found
    table.sql("create or replace table {t} using delta as select 7L as id")
    found = assert_same(spark, table.path, 15, 16)
    assert found["now"].table_id != before["now"].table_id


def test_a_checkpoint_in_parts_counts_only_when_it_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "table"), checkpointInterval="100")
    table.sql(*(f"insert into {{t}} values ({n}, 'a')" for n in range(3)))
    with setting(spark, "spark.databricks.delta.checkpoint.partSize", "2"):
        checkpoint(table)
    parts = sorted(table.log.glob("*.checkpoint.*.parquet"))
    assert len(parts) > 1
    table.sql("insert into {t} values (4, 'a')")
    table.lose_commit(1)
    assert assert_same(spark, table.path)["metadata of 4"].feed_enabled

    broken = table.copy(tmp_path / "broken")
    Path(broken.log, parts[0].name).unlink()
    (broken.log / "_last_checkpoint").unlink()
    with public_means(), pytest.raises(VersionsExpired):
        TableLog(spark, broken.path).metadata(4)
    with pytest.raises(VersionsExpired):
        TableLog(spark, broken.path).metadata(4)


def test_a_commit_file_with_spaces_in_its_json_is_read(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    version = append_commit(delta_path, metadata_with(delta_path, enableChangeDataFeed="false"), operation="marked")
    file = table.commit_file(version)
    file.write_text(file.read_text().replace('{"metaData": ', ' { "metaData" : '))
    table.forget()
    found = assert_same(spark, delta_path)
    assert not found["now"].feed_enabled
    assert [at for at, _ in found["all metadata commits"]] == [0, version]


def test_a_table_that_was_deleted_and_created_again_is_read_again(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    with public_means():
        log = TableLog(spark, delta_path)
    first = log.metadata()
    shutil.rmtree(delta_path)
    table.forget()
    with pytest.raises(TableNotFound, match="there is no Delta table at"):
        log.latest()
    Table(spark, delta_path, "other int")
    assert log.metadata().table_id != first.table_id
    assert log.metadata().schema.fieldNames() == ["other"]


@pytest.mark.parametrize("public", [True, False], ids=["public", "classes"])
def test_a_table_that_is_created_again_between_two_reads_is_read_again(
    spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch, public: bool
) -> None:
    """The known commit is still the old table's, and the next ones are the new table's already."""
    table, other = Table(spark, delta_path), Table(spark, f"{delta_path}-again")
    table.sql("insert into {t} values (1, 'a')")
    other.sql(*(f"insert into {{t}} values ({number}, 'b')" for number in range(3)))
    with public_means() if public else nullcontext():
        log = TableLog(spark, delta_path)
    assert log.latest() == 1
    read = log._files.read_time

    def replace_after_first(version: int) -> dt.datetime | None:
        time = read(version)
        if Path(other.path).exists():
            Path(delta_path).rename(f"{delta_path}-before")
            Path(other.path).rename(delta_path)
            table.forget()
        return time

    monkeypatch.setattr(log._files, "read_time", replace_after_first)
    with log.cache_reads():
        assert log.latest(refresh=False) == 3
        found = log.metadata().table_id
    with public_means() if public else nullcontext():
        assert found == TableLog(spark, delta_path).metadata().table_id


def test_what_public_means_cannot_do_is_refused(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    with public_means():
        log = TableLog(spark, delta_path)
    before = sorted(path.name for path in table.log.iterdir())
    with pytest.raises(FeatureNotSupported, match=r"writing a checkpoint of .* needs Delta's own classes"):
        log.checkpoint()
    with pytest.raises(FeatureNotSupported, match=r"cleaning up the log of .* needs Delta's own classes"):
        log.clean_up()
    assert sorted(path.name for path in table.log.iterdir()) == before


def refuse_delta(monkeypatch: pytest.MonkeyPatch, log: TableLog) -> list[int]:
    """→ the versions that Delta was asked for."""
    asked, usual = list[int](), log._snapshots.read_latest

    def read() -> LatestVersion:
        found = usual()
        asked.append(found.version)
        return found

    monkeypatch.setattr(log._snapshots, "read_latest", read)
    return asked


def test_delta_is_asked_only_where_names_and_commits_do_not_show_the_latest_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(spark, str(tmp_path / "t a%b"), checkpointInterval="4")
    log = TableLog(spark, table.path)
    log.latest()
    asked = refuse_delta(monkeypatch, log)
    table.sql(*["insert into {t} values (1, 'a')"] * 3, "delete from {t} where id = 1")
    table.forget()
    with log.cache_reads():
        assert log.latest() == 4  # with a checkpoint
        assert log.metadata() is log.metadata(2)
    assert asked == []
    table.sql("alter table {t} add columns (w int)")
    assert log.latest() == 5
    assert asked.pop() == 5
    assert log.metadata().schema.fieldNames() == ["id", "v", "w"]
    version = append_commit(table.path, protocol("deletionVectors"))
    assert (log.latest(), asked.pop()) == (version, version)
    assert log.protocol().reader_features == ("deletionVectors",)
    asked.clear()
    table.sql(*["insert into {t} (id) values (1)"] * 11)  # many
    assert (log.latest(), asked.pop()) == (17, 17)
    table.sql(*["insert into {t} (id) values (1)"] * 2)
    assert (log.latest(), asked) == (19, [])
    table.sql("insert into {t} (id) values (1)")
    table.lose_commit(19)  # before it, Delta has a checkpoint
    assert (log.latest(), asked.pop()) == (20, 20)
    table.lose_commit(17, 18)
    (table.log / "_last_checkpoint").unlink()
    for file in table.log.glob("*20.checkpoint.*"):
        file.unlink()
    with pytest.raises(VersionsExpired):
        log.latest()


@pytest.mark.parametrize(
    "setting_name",
    [f"{prefix}delta.logStore.{name}" for prefix in ("spark.", "") for name in ("class", "file.impl")],
)
def test_names_do_not_suffice_where_commits_may_be_elsewhere(
    spark: SparkSession, delta_path: str, setting_name: str
) -> None:
    Table(spark, delta_path)
    with setting(spark, setting_name, "io.delta.storage.LocalLogStore"):
        log = TableLog(spark, delta_path)
        assert log._files.list_local_names() is None
    assert f"{0:020d}.json" in (TableLog(spark, delta_path)._files.list_local_names() or ())


def test_the_names_of_a_relative_path_are_those_that_java_sees(
    spark: SparkSession, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inserted(spark, delta_path, 2)
    log = TableLog(spark, os.path.relpath(delta_path))
    found = sorted(log._files.list_local_names() or ())
    monkeypatch.chdir(tmp_path)
    assert sorted(TableLog(spark, log.location)._files.list_local_names() or ()) == found != []


def test_a_table_that_is_created_again_with_as_many_commits_is_read_again(spark: SparkSession, delta_path: str) -> None:
    table = inserted(spark, delta_path, 2)
    log = TableLog(spark, delta_path)
    first = log.metadata().table_id
    shutil.rmtree(delta_path)
    table.forget()
    inserted(spark, delta_path, 3)
    assert log.latest() == 3
    assert log.metadata().table_id != first


def plain_files_of(log: TableLog, version: int) -> list[tuple[str, int]] | None:
    found = log.plain_files(version, most=1_000)
    return None if found is None else sorted(found)


def test_files_of_a_short_log_are_those_of_delta(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    properties = {"enableDeletionVectors": str(seed % 2 == 0).lower()}
    table = Table(spark, str(tmp_path / "t a%b"), checkpointInterval="100", **properties)
    statements = [
        "insert into {t} select id, 'a' from range(0, 9, 1, 3)",
        "delete from {t} where id % 3 = 1",
        "update {t} set v = 'b' where id > 4",
        "optimize {t}",
        "insert overwrite {t} select id, 'c' from range(6)",
        "restore table {t} to version as of 1",
        "delete from {t}",
        "alter table {t} set tblproperties ('some' = 'note')",
        "create or replace table {t} using delta tblproperties (delta.enableChangeDataFeed = true) as select 1L id, 'd' v",
    ]
    table.sql(statements[0], *rng.choices(statements, k=8))
    log = TableLog(spark, table.path)
    versions = range(log.latest() + 1)

    def read_all() -> list[list[tuple[str, int]] | None]:
        return [plain_files_of(log, version) for version in versions]

    found = read_all()
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "SHORT_LOG", 0)
        assert found == read_all()
    assert found[1] is not None
    assert len(found[1]) == 3
    assert log.plain_files(1, most=2) is None
    with monkeypatch.context() as patched:  # no job is started for what the commit files show
        patched.setattr(snapshots, "collect_arrow", None)
        assert plain_files_of(log, 1) == found[1]
    checkpoint(table)
    compact(table, 0, 1)
    table.forget()
    log = TableLog(spark, table.path)
    assert read_all() == found


def test_both_readers_agree_on_random_histories(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    in_commit = {"enableInCommitTimestamps": "true"} if rng.random() < 0.5 else {}
    policy = rng.choice(["classic", "v2"])
    table = Table(spark, str(tmp_path / "table"), checkpointInterval="100", checkpointPolicy=policy, **in_commit)
    ids = 0
    for step in range(rng.randint(6, 9)):
        kind = rng.choice(
            ["insert", "insert", "delete", "update", "column", "restore", "replace", "marked", "property"]
        )
        if kind == "insert":
            ids += rng.randint(1, 5)
            table.sql(f"insert into {{t}} (id) select id from range({ids})")
        elif kind == "delete":
            table.sql(f"delete from {{t}} where id % 3 = {rng.randint(0, 2)}")
        elif kind == "update":
            table.sql(f"update {{t}} set id = id + 1 where id > {rng.randint(0, ids)}")
        elif kind == "column":
            table.sql(f"alter table {{t}} add columns (c{step} string)")
        elif kind == "restore":
            table.sql(f"restore table {{t}} to version as of {TableLog(spark, table.path).latest()}")
        elif kind == "replace":
            table.sql("create or replace table {t} using delta as select 1L as id, 'x' as v")
        elif kind == "marked":
            write_marked(table, rng.choice(["job", "other"]), step)
        else:
            table.set(enableChangeDataFeed=rng.choice(["true", "false"]))
        if rng.random() < 0.3:
            checkpoint(table)
    latest = TableLog(spark, table.path).latest()
    if rng.random() < 0.5:
        first = rng.randrange(latest)
        compact(table, first, rng.randint(first + 1, latest))
    assert json.loads((table.commit_file(0)).read_text().splitlines()[0])
    table.forget()
    assert_same(spark, table.path)
    if list(table.log.glob("0*.checkpoint.*")):
        if rng.random() < 0.5:
            TableLog(spark, table.path).clean_up(at_once=True)
        versions = [int(path.stem) for path in table.log.glob("*.json") if path.stem.isdecimal()]
        newest = max(int(path.name[:20]) for path in table.log.glob("0*.checkpoint.*"))
        lost = [version for version in versions if version <= newest and version < latest and rng.random() < 0.3]
        gone = table.copy(tmp_path / "gone")
        gone.lose_commit(*lost)
        assert_same(spark, gone.path)
