"""Following a real Delta table into a real PostgreSQL, also by a query of the user's own: always in whole commits."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdf import ChangeFeed, Followed, Following, Limits, Pipeline
from cdf.errors import (
    CdfError,
    ConfigError,
    FeedNotEnabled,
    Fenced,
    LeaseHeld,
    SchemaDrift,
    TableReplaced,
    VersionNotFound,
    VersionsExpired,
)
from cdf.pipeline import micro_batches
from infra.config.load import load
from infra.diagnostics.status import read_pipeline_status
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table, inserted, setting
from tests.integration.postgres_case import position, sink_of

pytestmark = pytest.mark.usefixtures("interpreted")

PATIENCE_SECONDS = 240.0


class Watched:
    """A pipeline that is being followed, and everything it told."""

    def __init__(self, pipeline: Pipeline, **options: Any) -> None:
        self.pipeline = pipeline
        self.told: list[Followed] = []
        options.setdefault("trigger", {"processingTime": "0 seconds"})
        self.handle: Following = pipeline.follow(progress=self.told.append, **options)

    def until(self, reached: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if found := reached():
                return found
            assert self.handle.status().state not in ("failed", "stopped"), self.handle.status()
            time.sleep(0.02)
        raise AssertionError(f"never seen: {what}; {self.handle.status()}")

    def following(self) -> None:
        self.until(lambda: self.handle.status().state == "following", "the state `following`")

    def at(self, version: int) -> None:
        self.until(lambda: any(one.position >= version for one in self.told), f"version {version}")

    def stopped_by(self) -> CdfError:
        with pytest.raises(CdfError) as caught:
            assert self.handle.await_termination(PATIENCE_SECONDS), self.handle.status()
        return caught.value


@pytest.fixture
def follow(spark: SparkSession, pg: Pg, delta_path: str) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def one(path: str = delta_path, *, name: str = "p", table: str = "target", **options: Any) -> Watched:
        limits = options.pop("limits", None)
        start = options.pop("start", "snapshot")
        feed = ChangeFeed(spark, path)
        pipeline = Pipeline(feed, sink_of(pg, table), key=("id",), name=name, limits=limits, start=start)
        made.append(Watched(pipeline, **options))
        return made[-1]

    yield one
    for watched in made:
        watched.handle.stop()
    assert not spark.streams.active


def same(spark: SparkSession, pg: Pg, path: str, table: str = "target") -> None:
    """The target holds exactly the table's rows."""
    expected = sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())
    names = ", ".join(f'"{name}"' for name in spark.read.format("delta").load(path).columns)
    assert sorted(pg.query(f"select {names} from {{schema}}.{table}")) == expected


def epoch(pg: Pg) -> int:
    ((found,),) = pg.query("select epoch from deltarelay.position where target = %s", f"{pg.schema}.target")
    return int(found)


def waits_for_lock(pg: Pg) -> bool:
    """Whether the applying transaction waits for the target."""
    waiting = "select count(*) from pg_locks where not granted and relation = '{schema}.target'::regclass"
    return pg.query(waiting) != [(0,)]


@contextmanager
def held(pg: Pg) -> Iterator[None]:
    """Nobody can read or write the target."""
    with pg.connection.transaction():
        pg.connection.execute(f"lock table {pg.schema}.target in access exclusive mode")  # type: ignore[arg-type]
        yield


def test_the_figures_of_the_last_step_can_be_asked_for_from_anywhere(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any, tmp_path: Path
) -> None:
    table = inserted(spark, delta_path, 2)
    watched = follow()
    watched.following()
    table.sql("insert into {t} select id, 'new' from range(100, 140)")
    latest = watched.pipeline.feed.log.latest()
    watched.at(latest)
    watched.handle.stop()
    other = sink_of(pg)  # as another process has it
    told = other.reported()
    assert told == watched.told[-1].to_dict()
    assert (told["position"], told["rows_in"], told["rows_applied"]) == (latest, 40, 40)
    assert {"stage", "apply", "total"} <= set(told["seconds"])
    file = tmp_path / "deltarelay.yaml"
    file.write_text(
        f"version: 1\nconnections: {{w: {{kind: postgres, dsn: '{pg.dsn}'}}}}\n"
        f"pipelines: {{p: {{source: {{table: {delta_path}, key: [id]}}, "
        f"sink: {{connection: w, table: {pg.schema}.target}}}}}}\n"
    )
    project = load(file)
    assert read_pipeline_status(project, "p").last == told
    # An ordinary run goes on: the figures are of another state now
    table.sql("insert into {t} values (999, 'later')")
    watched.pipeline.run()
    assert read_pipeline_status(project, "p").last is None


def test_commits_of_every_kind_arrive_while_it_follows(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 2)
    watched = follow()
    watched.following()
    time.sleep(3)  # hundreds of polls with nothing new
    assert watched.handle.status().windows == 1
    table.sql(
        "insert into {t} values (10, 'a'), (11, 'a')",
        "update {t} set v = 'b' where id in (1, 10)",
        "update {t} set id = 12 where id = 11",
        "delete from {t} where id = 2",
        "optimize {t}",
        "insert overwrite {t} values (1, 'c'), (20, 'c')",
        "merge into {t} t using (select 20 as id, 'd' as v union all select 21, 'd') s on t.id = s.id"
        " when matched then update set * when not matched then insert *",
        "restore table {t} to version as of 4",
    )
    last = watched.pipeline.feed.log.latest()
    watched.at(last)
    same(spark, pg, delta_path)
    assert position(pg) == last
    loads, *windows = watched.told
    assert (loads.kind, loads.position, loads.rows_applied) == ("load", 2, 2)
    assert [(one.first, one.last) for one in windows] == sorted((one.first, one.last) for one in windows)
    assert windows[0].first == 3
    assert all(after.first == before.last + 1 for before, after in itertools.pairwise(windows))
    assert windows[-1].lag_versions == 0
    assert windows[-1].lag_seconds == 0.0
    assert all({"stage", "apply", "total"} <= one.seconds.keys() for one in windows)
    json.dumps(windows[-1].to_dict())
    watched.handle.stop()
    assert watched.handle.await_termination(1)
    assert watched.handle.status().state == "stopped"
    watched.handle.stop()  # again, to no effect


def test_rows_in_are_the_feeds_rows_and_rows_applied_their_net_effect(
    spark: SparkSession, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    table.sql("insert into {t} select id + 100, 'x' from range(5)")
    watched.at(2)
    table.sql("update {t} set v = 'y' where id >= 100")
    watched.at(3)
    windows = [one for one in watched.told if one.kind == "window"]
    assert sum(one.rows_applied for one in windows) == 10
    assert sum(one.rows_in or 0 for one in windows) == 5 + 2 * 5


def test_available_now_ends_by_itself(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    table = inserted(spark, delta_path, 3)
    for _ in range(2):  # the second time there is nothing new, the third time an append
        watched = follow(trigger={"availableNow": True})
        assert watched.handle.await_termination(PATIENCE_SECONDS)
        assert position(pg) == 3
    table.sql("insert into {t} values (4, 'a')")
    watched = follow(trigger={"availableNow": True})
    assert watched.handle.await_termination(PATIENCE_SECONDS)
    assert position(pg) == 4
    same(spark, pg, delta_path)


def test_an_overwrite_of_many_files_is_applied_whole(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    """More files than Delta's default of 1,000 a micro-batch, which would deliver the inserts before the deletes."""
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    for value in ("b", "c"):
        rows = spark.range(1, 521).selectExpr("id", f"'{value}' as v").repartition(520)
        rows.write.format("delta").mode("overwrite").save(delta_path)
    watched.at(3)
    same(spark, pg, delta_path)
    table.sql("delete from {t} where id > 1")
    watched.at(4)
    same(spark, pg, delta_path)


# ── a query of the user's own ────────────────────────────────────────────────────────────────────────────────────────


def ran(apply: Callable[[DataFrame, int], None], stream: DataFrame, checkpoint: Path) -> StreamingQuery:
    query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(PATIENCE_SECONDS)
    return running


def own_pipeline(spark: SparkSession, pg: Pg, path: str) -> Pipeline:
    return Pipeline(ChangeFeed(spark, path), sink_of(pg), key=("id",), name="own")


def upserted(batch: DataFrame, _: int) -> None:
    """What one writes without the guard: each micro-batch by itself, deletes first, then the puts."""
    global _rows
    for row in batch.where("_change_type in ('delete', 'update_preimage')").collect():
        _rows.pop(row["id"], None)
    for row in batch.where("_change_type in ('insert', 'update_postimage')").collect():
        _rows[row["id"]] = row["v"]


_rows: dict[int, str] = {}


def test_a_small_file_limit_does_no_harm(spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path) -> None:
    """Delta divides an overwrite, inserts first: applied as delivered live rows are lost, through ``foreach_batch`` none."""
    inserted(spark, delta_path, 1)
    pipeline = own_pipeline(spark, pg, delta_path)
    told: list[Followed] = []
    with pipeline.foreach_batch(progress=told.append) as apply:
        for value in ("b", "c"):
            rows = spark.range(1, 7).selectExpr("id", f"'{value}' as v").repartition(6)
            rows.write.format("delta").mode("overwrite").save(delta_path)
        ran(apply, pipeline.feed.stream(start_version=1, max_files_per_trigger=1), tmp_path / "with")
    assert [one.batch_id is not None for one in told] == [False, True, True], "the load, and each overwrite by itself"
    _rows.clear()
    ran(upserted, pipeline.feed.stream(start_version=1, max_files_per_trigger=1), tmp_path / "without")
    assert len(_rows) < 6, "the trap is not there any more"
    same(spark, pg, delta_path)
    assert position(pg) == 3


def test_deletion_vectors_are_not_divided(spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path) -> None:
    table = Table(spark, delta_path, enableDeletionVectors="true")
    spark.range(1, 41).selectExpr("id", "'a' as v").repartition(4).write.format("delta").mode("append").save(delta_path)
    pipeline = own_pipeline(spark, pg, delta_path)
    pipeline.run()
    table.sql(
        "delete from {t} where id % 3 = 0", "update {t} set v = 'b' where id % 5 = 1", "delete from {t} where id < 9"
    )
    with pipeline.foreach_batch() as apply:
        ran(apply, pipeline.feed.stream(start_version=1, max_files_per_trigger=1), tmp_path / "checkpoint")
    same(spark, pg, delta_path)
    assert position(pg) == 4


def test_whatever_the_checkpoint_says_the_position_counts(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path
) -> None:
    """Checkpoint deleted, older than the position, newer than the position: nothing is doubled, nothing is missing."""
    table = inserted(spark, delta_path, 2)
    pipeline = own_pipeline(spark, pg, delta_path)
    checkpoint, old, new = tmp_path / "checkpoint", tmp_path / "old", tmp_path / "new"

    def follow_now(folder: Path, *statements: str) -> list[Followed]:
        """Statements come after the opening: they reach the target through micro-batches alone."""
        told: list[Followed] = []
        with pipeline.foreach_batch(progress=told.append) as apply:
            table.sql(*statements)
            ran(apply, pipeline.feed.stream(start_version=1), folder)
        same(spark, pg, delta_path)
        assert position(pg) == pipeline.feed.log.latest()
        return told

    def restore_target() -> None:
        """Its rows and its position of version 2, as a backup would bring them back."""
        pg.connection.execute(f"delete from {pg.schema}.target where id > 2")
        pg.connection.execute(f"update {pg.schema}.target set v = 'a'")
        pg.connection.execute("update deltarelay.position set version = 2 where target = %s", [f"{pg.schema}.target"])

    follow_now(checkpoint)
    shutil.copytree(checkpoint, old)
    follow_now(checkpoint, "update {t} set v = 'b' where id = 1", "insert into {t} values (3, 'a')")
    told = follow_now(old, "delete from {t} where id = 3")
    assert [one.first for one in told] == [5], "what an older checkpoint delivers again is left out"
    shutil.rmtree(checkpoint)
    assert follow_now(checkpoint) == [], "a deleted one begins at version 1 again"
    shutil.copytree(checkpoint, new)
    restore_target()
    assert [(one.first, one.last) for one in follow_now(new)] == [(3, 5)], "no micro-batch has to come for it"
    restore_target()  # while a query is at work: the next micro-batch meets a position that is behind it
    with pipeline.foreach_batch() as apply:
        table.sql("insert into {t} values (9, 'z')")
        restore_target()
        with pytest.raises(Exception, match="is at version"):
            ran(apply, pipeline.feed.stream(start_version=1), new)
    told = follow_now(new)
    assert (told[0].first, told[-1].last) == (3, 6)


def test_without_the_guard_an_older_checkpoint_doubles_and_a_newer_one_loses(
    spark: SparkSession, delta_path: str, tmp_path: Path
) -> None:
    """What a query does that trusts its checkpoint: the trap that the test above is about."""
    table = inserted(spark, delta_path, 2)
    feed = ChangeFeed(spark, delta_path)
    rows: list[int] = []

    def append(batch: DataFrame, _: int) -> None:
        rows.extend(row["id"] for row in batch.collect())

    checkpoint, old = tmp_path / "checkpoint", tmp_path / "old"
    ran(append, feed.stream(start_version=1), checkpoint)
    shutil.copytree(checkpoint, old)
    table.sql("insert into {t} values (3, 'a')")
    ran(append, feed.stream(start_version=1), checkpoint)
    assert sorted(rows) == [1, 2, 3]
    ran(append, feed.stream(start_version=1), old)
    assert sorted(rows) == [1, 2, 3, 3], "an older checkpoint delivers again"
    restored = [1, 2]  # the target, brought back to how it was at version 2
    rows[:] = restored
    table.sql("insert into {t} values (4, 'a')")
    ran(append, feed.stream(start_version=1), checkpoint)
    assert sorted(rows) == [1, 2, 4], "a newer one leaves 3 out"


def test_a_micro_batch_called_again_changes_nothing(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path
) -> None:
    table = inserted(spark, delta_path, 3)
    pipeline = own_pipeline(spark, pg, delta_path)
    calls: list[int] = []
    with pipeline.foreach_batch() as apply:
        table.sql("insert into {t} values (4, 'a')")

        def twice(batch: DataFrame, batch_id: int) -> None:
            apply(batch, batch_id)
            before = apply.position
            apply(batch.limit(0), batch_id)
            assert apply.position == before
            calls.append(batch_id)

        ran(twice, pipeline.feed.stream(start_version=1), tmp_path / "checkpoint")
    assert calls
    same(spark, pg, delta_path)


def test_a_query_over_another_table_and_a_call_outside_of_a_query_are_refused(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path
) -> None:
    inserted(spark, delta_path, 1)
    inserted(spark, str(tmp_path / "other"), 1)
    pipeline = own_pipeline(spark, pg, delta_path)
    with pipeline.foreach_batch() as apply:
        with pytest.raises(ConfigError, match="inside foreachBatch"):
            apply(spark.range(1), 0)
        stream = ChangeFeed(spark, str(tmp_path / "other")).stream(start_version=0)
        with pytest.raises(Exception, match="another table"):
            ran(apply, stream, tmp_path / "checkpoint")
        assert isinstance(apply.failure, ConfigError)


def test_what_comes_after_the_end_is_not_taken_for_applied(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path
) -> None:
    inserted(spark, delta_path, 1)
    pipeline = own_pipeline(spark, pg, delta_path)
    with pipeline.foreach_batch() as apply, pytest.raises(LeaseHeld, match="in this process"):
        pipeline.run()
    with pytest.raises(Exception, match="is closed"):
        ran(apply, pipeline.feed.stream(start_version=1), tmp_path / "checkpoint")


def test_a_window_that_is_being_applied_at_the_end_is_cancelled(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batches, "STOP_SECONDS", 1.0)
    table = inserted(spark, delta_path, 1)
    pipeline = own_pipeline(spark, pg, delta_path)
    waiting = "select count(*) from pg_stat_activity where application_name = 'deltarelay' and "
    with psycopg.connect(pg.dsn) as other:
        with pipeline.foreach_batch() as apply:
            other.execute(f"lock table {pg.schema}.target in access exclusive mode")
            table.sql("update {t} set v = 'b' where id = 1")
            stream = pipeline.feed.stream(start_version=1)
            query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "c")).start()
            while pg.query(waiting + "wait_event_type = 'Lock'") == [(0,)]:
                assert query.isActive
                time.sleep(0.05)
        assert apply.idle.is_set()
        assert pg.query(waiting + "state <> 'idle'") == [(0,)]
        assert pipeline.sink.standing().lease_holder is None  # type: ignore[attr-defined]
        with pytest.raises(Exception, match="cancelled"):
            query.awaitTermination(60)
        assert apply.failure is not None
        assert apply.failure.transient
    pipeline.run()
    same(spark, pg, delta_path)


# ── what happens to the table meanwhile ──────────────────────────────────────────────────────────────────────────────


def test_an_added_column_opens_the_sink_once_more_and_loses_nothing(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    before = epoch(pg)
    table.sql(
        "insert into {t} values (2, 'a')", "alter table {t} add columns (n int)", "insert into {t} values (3, 'a', 7)"
    )
    watched.at(4)
    watched.following()
    table.sql("update {t} set n = 8 where id = 2")
    watched.at(5)
    same(spark, pg, delta_path)
    assert epoch(pg) == before + 1


@pytest.mark.parametrize(
    ("statements", "kind", "says"),
    [
        (["alter table {t} rename column id to number"], SchemaDrift, "id"),
        (["create or replace table {t} using delta as select 5L as id, 'x' as v"], FeedNotEnabled, "off"),
        (
            [
                "create or replace table {t} using delta tblproperties (delta.enableChangeDataFeed = true)"
                " as select 5L as id, 'x' as v"
            ],
            TableReplaced,
            "another table",
        ),
        (["alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'false')"], FeedNotEnabled, "off"),
    ],
    ids=["rename of the key", "replace that turns the feed off", "replace", "feed off"],
)
def test_what_needs_a_decision_stops_it_with_the_way_out(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any, statements: list[str], kind: type[CdfError], says: str
) -> None:
    table = inserted(spark, delta_path, 1, **{"columnMapping.mode": "name"})
    watched = follow()
    watched.following()
    table.sql("insert into {t} values (2, 'a')")
    watched.at(2)
    table.sql(*statements)
    error = watched.stopped_by()
    assert isinstance(error, kind), error
    assert says in error.message
    assert error.hint
    assert position(pg) == 2
    assert watched.handle.status().code == error.code


def test_a_target_that_is_restored_under_it_is_brought_up_to_date(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    table.sql("insert into {t} values (2, 'a')", "update {t} set v = 'b' where id = 1")
    watched.at(3)
    with pg.connection.transaction():
        pg.connection.execute(f"delete from {pg.schema}.target where id = 2")
        pg.connection.execute(f"update {pg.schema}.target set v = 'a'")
        pg.connection.execute("update deltarelay.position set version = 1 where target = %s", [f"{pg.schema}.target"])
    table.sql("insert into {t} values (4, 'a')")
    watched.at(4)
    same(spark, pg, delta_path)


def test_a_table_that_was_made_again_with_fewer_versions_is_noticed(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    place, swapped = Path(delta_path), Path(f"{delta_path}-swapped")
    for versions in (5, 1):
        inserted(spark, f"{place}-{versions}", versions)
    place.symlink_to(f"{place}-5")
    watched = follow()
    watched.following()
    swapped.symlink_to(f"{place}-1")
    swapped.replace(place)  # at once: no poll may find the table missing
    error = watched.stopped_by()
    assert isinstance(error, (TableReplaced, VersionNotFound)), error
    assert position(pg) == 5


def test_files_that_vacuum_removed_before_they_were_applied_end_it(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    with held(pg):
        table.sql(
            "insert into {t} values (2, 'a')",
            "update {t} set v = 'b' where id = 2",
            "update {t} set v = 'c' where id = 2",
        )
        for file in Path(delta_path, "_change_data").glob("*.parquet"):
            file.unlink()
    error = watched.stopped_by()
    assert isinstance(error, VersionsExpired), error
    assert "reload" in (error.hint or "")


def test_optimize_and_vacuum_beside_it_do_no_harm(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    with (
        setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"),
        setting(spark, "spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"),
    ):
        for number in range(3):
            table.sql(f"insert into {{t}} values (1{number}, 'a')", "optimize {t}")
            watched.at(watched.pipeline.feed.log.latest())
            table.sql("vacuum {t} retain 0 hours")
    table.sql("insert into {t} values (99, 'a')")
    watched.at(watched.pipeline.feed.log.latest())
    same(spark, pg, delta_path)


def test_a_backlog_is_applied_in_bounded_windows(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    """Also one that grows while the sink is busy: a source that is faster than its target costs windows, not memory."""
    table = inserted(spark, delta_path, 5)
    watched = follow(start=0, limits=Limits(max_commits=2))
    watched.until(lambda: watched.told, "the first window")
    table.sql(*(f"insert into {{t}} values ({index}, 'a')" for index in range(10, 16)))
    watched.at(11)
    same(spark, pg, delta_path)
    windows = [one for one in watched.told if one.kind == "window"]
    assert all(one.last - one.first < 2 for one in windows)
    assert max(one.lag_versions for one in windows) >= 3
    assert any(one.lag_seconds > 0 for one in windows)


def test_more_than_a_thousand_tiny_commits_and_a_huge_one(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    for number in range(1_100):
        rows = pa.table({"id": pa.array([number + 10], pa.int64()), "v": ["a"]})
        write_deltalake(delta_path, rows, mode="append")
    spark.range(10_000, 130_000).selectExpr("id", "'huge' as v").write.format("delta").mode("append").save(delta_path)
    watched.at(1_102)
    assert pg.query("select count(*), count(distinct id) from {schema}.target") == [(121_101, 121_101)]
    windows = [one for one in watched.told if one.kind == "window"]
    assert (windows[0].first, windows[-1].last) == (2, 1_102)
    assert all(after.first == before.last + 1 for before, after in itertools.pairwise(windows))


def test_two_pipelines_follow_in_one_process_and_one_ends_alone(
    spark: SparkSession, pg: Pg, delta_path: str, tmp_path: Path, follow: Any
) -> None:
    table, other = inserted(spark, delta_path, 1), inserted(spark, str(tmp_path / "other"), 1)
    one, two = follow(), follow(str(tmp_path / "other"), table="second")
    one.following()
    two.following()
    table.sql("insert into {t} values (5, 'a')")
    other.sql("alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'false')")
    assert isinstance(two.stopped_by(), FeedNotEnabled)
    one.at(2)
    table.sql("insert into {t} values (6, 'a')")
    one.at(3)
    same(spark, pg, delta_path)


# ── the sink meanwhile ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_one_is_refused_and_a_take_over_ends_the_first(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    first = follow()
    first.following()
    assert isinstance(follow().stopped_by(), LeaseHeld)
    pg.connection.execute(
        "update deltarelay.position set epoch = epoch + 1, owner = 'another' where target = %s", [f"{pg.schema}.target"]
    )
    table.sql("insert into {t} values (2, 'a')")
    assert isinstance(first.stopped_by(), Fenced)
    assert position(pg) == 1


def test_lost_connections_are_waited_for(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    for index in range(2, 5):
        pg.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'deltarelay'"
        )
        table.sql(f"insert into {{t}} values ({index}, 'a')")
        watched.at(index)
    same(spark, pg, delta_path)
    watched.following()


def test_stop_lets_the_running_window_finish(spark: SparkSession, pg: Pg, delta_path: str, follow: Any) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    with held(pg):
        table.sql("insert into {t} values (2, 'a')")
        watched.until(lambda: waits_for_lock(pg), "a window at work")
        stopping = threading.Thread(target=watched.handle.stop)
        stopping.start()
        time.sleep(0.5)
    stopping.join(PATIENCE_SECONDS)
    assert watched.handle.await_termination(1)
    assert position(pg) == 2
    same(spark, pg, delta_path)


def test_a_window_that_does_not_end_is_rolled_back_by_stop(
    spark: SparkSession, pg: Pg, delta_path: str, follow: Any
) -> None:
    table = inserted(spark, delta_path, 1)
    watched = follow()
    watched.following()
    with held(pg):
        table.sql("insert into {t} values (2, 'a')")
        watched.until(lambda: waits_for_lock(pg), "a window at work")
        watched.handle.stop(timeout=1.0)
    assert watched.handle.await_termination(PATIENCE_SECONDS)
    again = follow()
    again.at(2) if position(pg) == 1 else None
    again.following()
    same(spark, pg, delta_path)


def test_a_trigger_that_is_not_ours_is_refused(spark: SparkSession, pg: Pg, delta_path: str) -> None:
    inserted(spark, delta_path, 1)
    with pytest.raises(ConfigError, match="trigger") as caught:
        own_pipeline(spark, pg, delta_path).follow(trigger={"continuous": "1 second"})
    assert "processingTime" in (caught.value.hint or "")
