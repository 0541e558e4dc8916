"""A schema change that the sink cannot follow: refused before anything is applied; what came before it still applies."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import FeedNotEnabled, SchemaDrift
from cdf.testing import MemorySink
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")

MAPPED = {"columnMapping.mode": "name"}
OVERWRITE = "overwrite with another schema"

DRIFTS = pytest.mark.parametrize(
    ("properties", "change", "detail", "start"),
    [
        (MAPPED, "alter table {t} drop column v", "column 'v' was dropped", 2),
        (MAPPED, "alter table {t} rename column v to w", "column 'v' was renamed to 'w'", 1),
        (
            {"enableTypeWidening": "true"},
            "alter table {t} alter column n type bigint",
            "column 'n' changed its type from int",
            1,
        ),
        ({}, OVERWRITE, "column 'v' was dropped", 2),
    ],
    ids=["drop", "rename", "type", "overwrite"],
)


def drifting(spark: SparkSession, path: str, properties: dict[str, str], change: str) -> ChangeFeed:
    """Rows at version 1 and 2, the change at version 3, another row at version 4."""
    table = Table(spark, path, "id long, n int, v string", **properties)
    table.sql("insert into {t} values (1, 1, 'a')", "insert into {t} values (2, 2, 'b')")
    if change == OVERWRITE:
        rows = spark.sql("select 1L as id, 1 as n")
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    else:
        table.sql(change)
    return ChangeFeed(spark, path)


def held(sink: MemorySink) -> list[tuple[int, int, str]]:
    return sorted((row["id"], row["n"], row["v"]) for row in sink.store.read_rows())


@DRIFTS
def test_a_change_that_cannot_be_followed_stops_the_run_before_it_begins(
    spark: SparkSession, delta_path: str, properties: dict[str, str], change: str, detail: str, start: int
) -> None:
    feed = drifting(spark, delta_path, properties, change)
    sink = MemorySink()
    pipeline = Pipeline(feed, sink, key="id", start=start)
    with pytest.raises(SchemaDrift) as caught:
        pipeline.run()
    assert f"version 3 of {delta_path} changes the schema in a way the sink cannot follow: " in caught.value.message
    assert detail in caught.value.message
    assert caught.value.fields["version"] == 3
    assert caught.value.hint is not None
    assert "--until 2" in caught.value.hint
    # Not even the first copy was made.
    assert (sink.store.contents.position.version, sink.store.read_rows()) == (None, [])

    # What the hint says works, and the next run says the same again.
    assert pipeline.run(until=2).position == 2
    assert held(sink) == [(1, 1, "a"), (2, 2, "b")]
    with pytest.raises(SchemaDrift, match="version 3"):
        pipeline.run()
    assert sink.store.contents.position.version == 2


def test_a_sink_that_follows_no_change_at_all_refuses_an_added_column_as_well(
    spark: SparkSession, delta_path: str
) -> None:
    feed = drifting(spark, delta_path, {}, "alter table {t} add column w int")
    sink = MemorySink(schema_changes=())
    pipeline = Pipeline(feed, sink, key="id", start=2)
    with pytest.raises(SchemaDrift, match="column 'w' \\(int\\) was added"):
        pipeline.run()
    assert sink.store.contents.position.version is None
    pipeline.run(until=2)
    assert held(sink) == [(1, 1, "a"), (2, 2, "b")]


def test_a_target_begun_after_the_change_takes_the_new_columns(spark: SparkSession, delta_path: str) -> None:
    feed = drifting(spark, delta_path, MAPPED, "alter table {t} rename column v to w")
    spark.sql(f"insert into delta.`{delta_path}` values (4, 4, 'd')")
    sink = MemorySink()
    assert Pipeline(feed, sink, key="id", start=3).run().position == 4
    assert sorted((row["id"], row["w"]) for row in sink.store.read_rows()) == [(1, "a"), (2, "b"), (4, "d")]
    history = MemorySink(holds="history")
    Pipeline(feed, history, key="id", start=3).run()
    assert [(row["_commit_version"], row["id"], row["w"]) for row in history.store.read_rows()] == [(4, 4, "d")]


def test_a_feed_turned_off_ahead_stops_the_first_copy_too(spark: SparkSession, delta_path: str) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')")
    table.set(enableChangeDataFeed="false")
    table.set(enableChangeDataFeed="true")
    sink = MemorySink()
    with pytest.raises(FeedNotEnabled, match="version 3"):
        Pipeline(ChangeFeed(spark, delta_path), sink, key="id", start=1).run()
    assert (sink.store.contents.position.version, sink.store.read_rows()) == (None, [])
