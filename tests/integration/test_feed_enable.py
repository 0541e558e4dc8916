"""Turning the feed on, for old tables and new ones, and what ``status`` tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed
from cdf.errors import ConfigError, SourceError, TableNotFound
from cdf.source.table import SESSION_DEFAULT
from tests.integration.delta_table import Table, changes, versions

pytestmark = pytest.mark.usefixtures("interpreted")

COLUMNS = StructType().add("id", "long").add("v", "string")


def test_the_feed_of_an_existing_table_begins_where_it_is_turned_on(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, feed=False)
    table.sql("insert into {t} values (1, 'a')")
    feed = ChangeFeed(spark, delta_path)
    before = feed.status()
    assert (before.enabled, before.since_version, before.earliest_version, before.latest_version) == (
        False,
        None,
        None,
        1,
    )

    enabled = feed.enable()
    assert (enabled.table, enabled.since_version, enabled.changed) == (delta_path, 2, True)
    table.sql("insert into {t} values (2, 'b')")
    assert changes(feed.read(start_version=2), "id", "v") == [(3, "insert", 2, "b")]
    after = feed.status()
    assert (after.enabled, after.since_version, after.earliest_version, after.latest_version) == (True, 2, 2, 3)
    assert (after.gaps, after.notes) == ((), ())


def test_turning_it_on_twice_changes_nothing(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path, feed=False)
    first = ChangeFeed(spark, delta_path).enable()
    again = ChangeFeed(spark, delta_path).enable()
    assert (first.changed, first.since_version) == (True, 1)
    assert (again.changed, again.since_version) == (False, 1)
    assert ChangeFeed(spark, delta_path).status().latest_version == 1


def test_a_table_is_created_with_the_feed_on_from_the_first_version(spark: SparkSession, delta_path: str) -> None:
    feed = ChangeFeed.create(
        spark, delta_path, COLUMNS, partitioned_by=["v"], properties={"delta.checkpointInterval": "7"}, comment="people"
    )
    detail = spark.sql(f"describe detail delta.`{delta_path}`").first()
    assert detail is not None
    assert (detail["description"], detail["partitionColumns"]) == ("people", ["v"])
    assert detail["properties"]["delta.checkpointInterval"] == "7"
    status = feed.status()
    assert (status.enabled, status.since_version, status.earliest_version, status.latest_version) == (True, 0, 0, 0)


def test_a_path_with_spaces_and_signs(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a b [1] %20 ü")
    feed = ChangeFeed.create(spark, path, COLUMNS)
    spark.createDataFrame([(1, "a")], COLUMNS).write.format("delta").mode("append").save(path)
    assert versions(feed.read(start_version=0)) == [1]
    assert ChangeFeed(spark, path + "/").status().latest_version == 1


def test_creating_over_an_existing_table_is_refused_and_leaves_it(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path, feed=False).sql("insert into {t} values (1, 'a')")
    with pytest.raises(SourceError, match="cannot be created") as caught:
        ChangeFeed.create(spark, delta_path, COLUMNS)
    assert caught.value.hint is not None
    assert "enable()" in caught.value.hint
    status = ChangeFeed(spark, delta_path).status()
    assert (status.enabled, status.latest_version) == (False, 1)


@pytest.fixture
def session_default(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(SESSION_DEFAULT)


@pytest.mark.usefixtures("session_default")
def test_a_session_can_turn_it_on_for_every_new_table(spark: SparkSession, tmp_path: Path) -> None:
    Table(spark, str(tmp_path / "before"), feed=False)
    ChangeFeed.enable_by_default(spark)
    Table(spark, str(tmp_path / "after"), feed=False)
    assert not ChangeFeed(spark, str(tmp_path / "before")).status().enabled
    assert ChangeFeed(spark, str(tmp_path / "after")).status().since_version == 0


def test_a_table_of_the_catalog_goes_by_its_name(spark: SparkSession) -> None:
    spark.sql("create schema if not exists sales")
    try:
        spark.sql("create table sales.customers (id long, v string) using delta")
        feed = ChangeFeed(spark, "sales.customers")
        assert feed.enable().since_version == 1
        spark.sql("insert into sales.customers values (1, 'a')")
        assert changes(feed.read(start_version=1), "id", "v") == [(2, "insert", 1, "a")]
        status = feed.status()
        assert status.table == "sales.customers"
        assert status.location.endswith("/sales.db/customers")
    finally:
        spark.sql("drop schema sales cascade")


def test_status_tells_since_when_the_feed_is_on_and_when_it_was_off(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.set(enableChangeDataFeed="false")
    table.sql("insert into {t} values (1, 'a')")
    table.set(enableChangeDataFeed="true")
    table.set(deletedFileRetentionDuration="interval 2 days", logRetentionDuration="interval 9 days")
    status = ChangeFeed(spark, delta_path).status()
    assert (status.enabled, status.since_version, status.earliest_version, status.latest_version) == (True, 3, 3, 4)
    assert status.notes == ("the feed was on from version 0 to 0 and turned off at 1",)
    assert (status.deleted_file_retention, status.log_retention) == ("interval 2 days", "interval 9 days")
    table.set(enableChangeDataFeed="false")
    status = ChangeFeed(spark, delta_path).status()
    assert (status.enabled, status.since_version, status.earliest_version) == (False, None, None)
    assert status.notes[1:] == ("the feed was on from version 3 to 4 and turned off at 5",)


def test_status_names_missing_commits_and_starts_after_them(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path, checkpointInterval="4")
    table.sql(*(f"insert into {{t}} values ({version}, 'a')" for version in range(1, 6)))
    table.lose_commit(2)
    status = ChangeFeed(spark, delta_path).status()
    assert status.gaps == (2,)
    # 3 is there, but the first version that can be rebuilt is that of the checkpoint.
    assert (status.since_version, status.earliest_version, status.latest_version) == (4, 4, 5)
    assert not ChangeFeed(spark, delta_path).enable().changed


@pytest.mark.parametrize("column", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_a_table_with_a_column_of_the_feeds_own_names_is_refused(
    spark: SparkSession, delta_path: str, column: str
) -> None:
    Table(spark, delta_path, f"id long, {column} string", feed=False)
    with pytest.raises(SourceError) as caught:
        ChangeFeed(spark, delta_path).enable()
    assert caught.value.message == f"{delta_path} cannot have its change feed enabled"
    assert caught.value.condition == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
    assert caught.value.hint == "rename the table's own _change_type, _commit_version or _commit_timestamp column"
    assert not ChangeFeed(spark, delta_path).status().enabled


def test_creating_such_a_table_with_the_feed_makes_no_table(spark: SparkSession, delta_path: str) -> None:
    with pytest.raises(SourceError, match="cannot be created") as caught:
        ChangeFeed.create(spark, delta_path, StructType().add("id", "long").add("_change_type", "string"))
    assert caught.value.hint == "rename the table's own _change_type, _commit_version or _commit_timestamp column"
    with pytest.raises(TableNotFound):
        ChangeFeed(spark, delta_path)


def test_what_is_no_delta_table_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    spark.range(1).write.parquet(str(tmp_path / "parquet"))
    for path in ("nowhere", "empty", "parquet"):
        with pytest.raises(TableNotFound) as caught:
            ChangeFeed(spark, str(tmp_path / path))
        assert caught.value.message == f"there is no Delta table at {tmp_path / path}"
        assert caught.value.condition == "DELTA_TABLE_NOT_FOUND"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["nowhere", "nowhere.at_all"])
def test_a_name_that_the_catalog_does_not_know_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(TableNotFound) as caught:
        ChangeFeed(spark, name)
    assert caught.value.message == f"{name} cannot be found"


def test_a_table_of_the_catalog_that_is_not_deltas_is_refused(spark: SparkSession) -> None:
    spark.sql("create table plain (id long) using parquet")
    try:
        with pytest.raises(TableNotFound, match="plain cannot be found"):
            ChangeFeed(spark, "plain")
    finally:
        spark.sql("drop table plain")


@pytest.mark.parametrize("name", ["", "  "])
def test_no_name_at_all_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(ConfigError, match="the table has no name"):
        ChangeFeed(spark, name)
