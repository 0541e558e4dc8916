"""A session of a real Spark Connect server: what works in a classic session works there, or is refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError, RowRejected, SourceError, TableNotFound
from cdf.sink import Capabilities
from cdf.testing import MemorySink
from tests.fixtures.fix_connect import connect_server, connect_session
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table, changes
from tests.integration.postgres_case import ON_BOTH_PATHS, position, sink_of, tells

TABLES = "select relname from pg_class where relnamespace = '{schema}'::regnamespace"


def rows_of(feed: ChangeFeed) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in feed.snapshot().collect())


def test_a_feed_is_read_over_connect(connect: SparkSession, delta_path: str) -> None:
    table = Table(connect, delta_path, feed=False)
    enabled = ChangeFeed(connect, delta_path).enable()
    assert (enabled.changed, enabled.since_version) == (True, 1)
    table.sql(
        "insert into {t} values (1, 'a'), (2, 'b')",
        "update {t} set v = 'c' where id = 2",
        "delete from {t} where id = 1",
    )
    feed = ChangeFeed(connect, delta_path)
    expected = [
        (2, "insert", 1, "a"),
        (2, "insert", 2, "b"),
        (3, "update_postimage", 2, "c"),
        (3, "update_preimage", 2, "b"),
        (4, "delete", 1, "a"),
    ]
    assert changes(feed.read(start_version=2), "id", "v") == expected
    assert changes(feed.read(start_timestamp=feed.log.times()[3]), "id", "v") == expected[2:]
    assert rows_of(feed) == [(2, "c")]
    assert [tuple(row) for row in feed.snapshot(2).orderBy("id").collect()] == [(1, "a"), (2, "b")]
    status = feed.status()
    assert (status.latest_version, status.since_version, status.enabled, status.gaps) == (4, 1, True, ())

    query = (
        feed.stream(start_version=2).writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    ).start()
    assert query.awaitTermination(60)
    assert changes(connect.table("streamed"), "id", "v") == expected

    connect.sql("create table named using delta location 'file:" + delta_path + "'")
    assert rows_of(ChangeFeed(connect, "named")) == [(2, "c")]
    connect.sql("drop table named")


@ON_BOTH_PATHS
def test_a_table_is_replicated_to_postgres_over_connect(
    connect: SparkSession, pg: Pg, delta_path: str, path: dict[str, Any]
) -> None:
    table = Table(connect, delta_path, "id long, v string, d decimal(20, 10), t timestamp, a array<string>")
    table.sql(
        "insert into {t} select id, concat('v', id), 1e-9, timestamp'1500-01-01 00:00:00', array('x') from range(100)"
    )
    pipeline = Pipeline(ChangeFeed(connect, delta_path), sink_of(pg, **path), key="id")

    plan = pipeline.plan()
    assert (plan.problems, pg.query(TABLES)) == ((), [])
    result = pipeline.run()
    assert (result.position, result.loaded_rows) == (1, 100)

    table.sql(
        "merge into {t} using (select id + 90 as id from range(20)) s on {t}.id = s.id "
        "when matched then update set v = 'new' when not matched then insert (id, v) values (s.id, 'inserted')",
        "delete from {t} where id < 10",
        "alter table {t} add columns (w int)",
        "update {t} set w = 7 where id = 50",
    )
    assert pipeline.plan().problems == ()
    result = pipeline.run()
    assert (result.position, result.inserts, result.updates, result.deletes) == (5, 10, 11, 10)
    assert pg.query("select count(*), min(id), max(id), sum(w), max(t)::text from {schema}.target") == [
        (100, 10, 109, 7, "1500-01-01 00:00:00+00")
    ]
    assert pipeline.verify().equal
    pg.query("update {schema}.target set v = 'altered' where id = 77")
    found = pipeline.verify()
    assert (found.equal, found.different, found.missing, found.extra) == (False, 1, 0, 0)
    assert pipeline.reload().loaded_rows == 100
    assert pipeline.verify().equal


def test_a_range_before_the_table_was_replaced_is_read_with_its_own_schema(
    connect: SparkSession, delta_path: str
) -> None:
    table = Table(connect, delta_path)
    table.sql("insert into {t} values (1, 'a')")
    replacement = connect.sql("select 7 as other").write.format("delta").mode("overwrite")
    replacement.option("overwriteSchema", "true").save(delta_path)
    feed = ChangeFeed(connect, delta_path)
    assert changes(feed.read(start_version=1, end_version=1), "id", "v") == [(1, "insert", 1, "a")]


def test_a_text_that_may_have_been_altered_is_refused(connect: SparkSession, pg: Pg, delta_path: str) -> None:
    table = Table(connect, delta_path)
    pipeline = Pipeline(ChangeFeed(connect, delta_path), sink_of(pg), key="id")
    pipeline.run()
    table.sql("insert into {t} values (1, cast(x'61ff62' as string))")
    with pytest.raises(SourceError, match=r"U\+FFFD.*over Spark Connect the true value cannot be read"):
        pipeline.run()
    assert (pg.query("select * from {schema}.target"), position(pg)) == ([], 0)
    assert pipeline.feed.read(start_version=1).count() == 1  # no text is read


@ON_BOTH_PATHS
def test_a_value_that_the_target_cannot_store_is_named_by_its_column(
    connect: SparkSession, pg: Pg, delta_path: str, path: dict[str, Any]
) -> None:
    table = Table(connect, delta_path)
    pipeline = Pipeline(ChangeFeed(connect, delta_path), sink_of(pg, **path), key="id")
    pipeline.run()
    table.sql("insert into {t} values (1, concat('xanadu', char(0)))")
    with pytest.raises(RowRejected, match="'v'") as caught:
        pipeline.run()
    assert "xanadu" not in tells(caught.value)
    assert (pg.query("select * from {schema}.target"), position(pg)) == ([], 0)


def test_what_cannot_work_over_connect_is_refused_before_anything_is_written(
    connect: SparkSession, pg: Pg, delta_path: str
) -> None:
    Table(connect, delta_path)
    feed = ChangeFeed(connect, delta_path)
    pipeline = Pipeline(feed, sink_of(pg), key="id")
    with pytest.raises(ConfigError, match="foreach_batch needs a classic Spark session"), pipeline.foreach_batch():
        pass
    with pytest.raises(ConfigError, match="cannot be created by this session"):
        ChangeFeed.create(connect, delta_path + "2", feed.snapshot().schema)
    assert pg.query(TABLES) == []

    connect.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(ConfigError, match=r"spark.sql.ansi.enabled = false: over Spark Connect"):
        pipeline.run()


class SinkOfAJvm(MemorySink):
    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, needs_classic_session=True)


def test_sinks_that_need_a_jvm_are_refused(connect: SparkSession, delta_path: str) -> None:
    Table(connect, delta_path)
    feed = ChangeFeed(connect, delta_path)
    with pytest.raises(ConfigError, match="a SinkOfAJvm needs a classic Spark session"):
        Pipeline(feed, SinkOfAJvm(), key="id")


def test_a_server_without_delta_is_named(tmp_path: Path) -> None:
    with connect_server(tmp_path, {}, delta=False) as address, connect_session(address) as session:
        for name in (str(tmp_path), "name"):
            with pytest.raises(ConfigError, match="the Spark Connect server has no Delta Lake") as caught:
                ChangeFeed(session, name)
            assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in str(caught.value.hint)


def test_a_table_that_is_not_there_is_named(connect: SparkSession, delta_path: str) -> None:
    for name in (delta_path, "nowhere", "no.such"):
        with pytest.raises(TableNotFound):
            ChangeFeed(connect, name)
    with pytest.raises(ConfigError, match="a SparkSession is needed, not NoneType"):
        ChangeFeed(None, delta_path)  # type: ignore[arg-type]
