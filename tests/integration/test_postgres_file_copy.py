"""Rows that the tasks decode from Parquet files arrive as those that Spark reads; every other file is left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.changes.plain_files import PlainFiles
from cdf.errors import KeyViolation
from cdf.source import plain_files
from connectors.postgres.column_mapping import Columns
from connectors.postgres.staging import file_copy, tasks, window_stager
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import sink_of

COLUMNS = "id long, v string, tiny byte, price decimal(9,2), at timestamp"
VALUES = (
    "select id, concat('v', id) as v, cast(id as byte) as tiny, cast(id as decimal(9,2)) as price, "
    "timestamp'2024-01-01' as at"
)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How rows were copied, in order: from ``files``, from ``rows`` of Spark, or ``refused``."""
    found: list[str] = []
    by_files, by_rows = file_copy._copy, tasks.copy_from_tasks

    def copy(*arguments: Any) -> Any:
        try:
            staged = by_files(*arguments)
        except file_copy.FilesRefused:
            found.append("refused")
            raise
        found.append("files")
        return staged

    monkeypatch.setattr(file_copy, "_copy", copy)
    monkeypatch.setattr(tasks, "copy_from_tasks", lambda *arguments: (found.append("rows"), by_rows(*arguments))[1])
    return found


def history(spark: SparkSession, path: str, **properties: str) -> Table:
    """A table of 40 rows, then every kind of change: new rows, keys that change, rows that come back and rows that go."""
    table = Table(spark, path, COLUMNS, **properties)
    table.sql(
        f"insert into {{t}} {VALUES} from range(40)",
        f"insert into {{t}} {VALUES} from range(40, 50)",
        "update {t} set v = 'new', price = null where id < 20",
        "update {t} set id = id + 100 where id between 10 and 14",
        "delete from {t} where id between 5 and 7",
        f"merge into {{t}} t using ({VALUES} from range(3, 9)) s on t.id = s.id when matched then update set v = 'merged' "
        "when not matched then insert *",
        "delete from {t} where id = 8",
        f"insert into {{t}} {VALUES} from range(60, 62)",
        "delete from {t} where id = 60",
    )
    return table


def pipeline(spark: SparkSession, pg: Pg, table: Table, target: str = "target", **options: Any) -> Pipeline:
    most = options.pop("max_commits", 500)
    sink = sink_of(pg, target, **{"small_window_bytes": 0, **options})
    feed = ChangeFeed(spark, table.path)
    return Pipeline(feed, sink, key="id", start=1, name=target, limits=Limits(max_commits=most))


def figures(made: Pipeline) -> list[tuple[Any, ...]]:
    """What the history says of each step."""
    return [
        (one.first, one.last, one.rows_in, one.inserts, one.updates, one.deletes, one.conflicts)
        for one in made.sink.runs(100)  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("most", [1, 500])
def test_files_and_rows_have_the_same_outcome(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    table = history(spark, delta_path)
    steps = 1 + (8 if most == 1 else 1)
    by_files = pipeline(spark, pg, table, "by_files", max_commits=most)
    by_files.run()
    assert ways == ["files"] * steps
    ways.clear()
    monkeypatch.setattr(file_copy, "can_decode", lambda _: False)
    by_rows = pipeline(spark, pg, table, "by_rows", max_commits=most)
    by_rows.run()
    assert ways == ["rows"] * steps
    assert figures(by_files) == figures(by_rows)
    assert all(one[2] is not None for one in figures(by_files)[:-1])
    listed = "select id, v, tiny, price, at from {} order by id"
    assert pg.query(listed.format("by_files")) == pg.query(listed.format("by_rows"))
    assert len(pg.query(listed.format("by_files"))) == 50
    assert by_files.verify().equal


def test_files_of_another_storage_pass_through_spark(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "_LOCAL", ())
    read: list[int] = []
    usual = plain_files._read_contents
    monkeypatch.setattr(
        plain_files, "_read_contents", lambda spark, paths: (read.append(len(paths)), usual(spark, paths))[1]
    )
    made = pipeline(spark, pg, history(spark, delta_path))
    made.run()
    assert ways == ["files", "files"]
    assert len(read) == 2
    assert made.verify().equal
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") != "1"


def test_columns_are_selected_and_renamed(spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]) -> None:
    made = pipeline(
        spark, pg, history(spark, delta_path), columns=Columns(include=("id", "price", "v"), rename={"v": "id2"})
    )
    made.run()
    assert ways == ["files", "files"]
    assert made.verify().equal
    assert pg.query("select * from target where id = 20") == [(20, "v20", 20)]


@pytest.mark.parametrize(
    "properties",
    [{"columnMapping.mode": "name"}, {"enableDeletionVectors": "true"}],
)
def test_a_table_that_is_more_than_its_files_is_read_by_spark(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str], properties: dict[str, str]
) -> None:
    table = history(spark, delta_path, **properties)
    made = Pipeline(
        ChangeFeed(spark, table.path), sink_of(pg, small_window_bytes=0), key="id", start=9, name="p", limits=None
    )
    made.run()  # loads version 9
    assert ways == ["rows"]
    assert made.verify().equal


def test_a_partitioned_table_is_read_by_spark(spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]) -> None:
    spark.sql(
        f"create table delta.`{delta_path}` (id long, day int) using delta partitioned by (day) "
        "tblproperties (delta.enableChangeDataFeed = true)"
    )
    table = Table.at(spark, delta_path)
    table.sql("insert into {t} select id, id % 2 from range(9)", "update {t} set day = 3 where id = 1")
    made = pipeline(spark, pg, table)
    made.run()
    assert ways == ["rows", "rows"]
    assert made.verify().equal


def test_a_column_that_spark_pads_is_read_by_spark(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]
) -> None:
    table = Table(spark, delta_path, "id long, c char(5)")
    table.sql("insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')")
    made = pipeline(spark, pg, table)
    made.run()
    assert ways == ["rows", "rows"]
    assert made.verify().equal


def test_a_refused_file_is_read_by_spark(spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]) -> None:
    table = Table(spark, delta_path, "id long, born date")
    # In one file: a task that still copies another one would make the count differ, and the copy be repeated
    far = "select /*+ coalesce(1) */ id, if(id = 7, date'+20000-01-01', date'2000-01-01') as born from range({})"
    table.sql(
        f"insert into {{t}} {far.format(9)}", f"insert into {{t}} {far.format(9)} where id > 6", "delete from {t}"
    )
    made = pipeline(spark, pg, table, max_commits=1)
    with pytest.raises(Exception, match="key"):  # version 2 has keys twice
        made.run(until=2)
    assert ways[:2] == ["refused", "rows"]
    assert pg.query("select count(*) from target where born = '20000-01-01'") == [(1,)]
    assert ways[2:4] == ["refused", "rows"]


@pytest.mark.parametrize(("seconds", "last"), [(600.0, "rows"), (0.0, "files")])
def test_a_refused_window_is_staged_once_and_those_after_it_are_read_by_spark_for_some_time(
    spark: SparkSession,
    pg: Pg,
    delta_path: str,
    ways: list[str],
    seconds: float,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_stager, "REFUSAL_SECONDS", seconds)
    table = Table(spark, delta_path, "id long, born date")
    table.sql(
        "insert into {t} select id, date'2000-01-01' as born from range(9)",
        "update {t} set born = date'+20000-01-01' where id < 3",
        "update {t} set born = date'2000-01-02' where id = 8",
    )
    made = pipeline(spark, pg, table, max_commits=1)
    made.run()
    assert ways == ["files", "refused", "rows", last]
    assert made.verify().equal


def without_one(files: PlainFiles) -> PlainFiles:
    def read() -> DataFrame:
        listed = files.read()
        return listed.where(listed["path"] != listed.first()["path"])  # type: ignore[index]

    return replace(files, read=read)


def test_a_file_that_was_not_read_is_noticed(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., PlainFiles | None] = plain_files._plain_files
    monkeypatch.setattr(
        plain_files, "_plain_files", lambda *given: None if (found := usual(*given)) is None else without_one(found)
    )
    made = pipeline(spark, pg, history(spark, delta_path))
    made.run()
    assert ways == ["refused", "rows", "refused", "rows"]
    assert made.verify().equal


def test_rows_that_a_filter_has_removed_are_not_copied_from_files(spark: SparkSession, delta_path: str) -> None:
    feed = ChangeFeed(spark, history(spark, delta_path).path)
    snapshot = feed.keyed_snapshot(9, ("id",))
    window = feed.window(tuple(feed.log.commits(2, 9)), snapshot.schema, table_id=snapshot.table_id, key=("id",))
    rows: Collection[Any] = (snapshot, window)
    assert all(one.plain_files() is not None for one in rows)
    assert all(one.without(lambda rows: rows.where("id > 3")).plain_files() is None for one in rows)
    assert snapshot.with_keys([]).plain_files() is None


def test_a_damaged_file_has_the_error_of_spark(spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]) -> None:
    table = history(spark, delta_path)
    files = [Path(path) for path in Path(delta_path).glob("_change_data/*.parquet")]
    pq.write_table(pa.table({"other": [1]}), files[0])
    made = pipeline(spark, pg, table)
    with pytest.raises(Exception) as error:  # noqa: PT011
        made.run()
    assert "DELTARELAY" not in str(error.value)
    assert ways[:3] == ["files", "refused", "rows"]


def fail_in_the_driver(*_: object) -> DataFrame:
    raise PermissionError


def fail_in_a_task(spark: SparkSession, paths: Collection[str]) -> DataFrame:
    return plain_files._list_paths(spark, [f"{path}.gone" for path in paths], [0] * len(paths))


@pytest.mark.parametrize(("read", "found"), [(fail_in_the_driver, ["rows"]), (fail_in_a_task, ["refused", "rows"])])
def test_files_that_cannot_be_read_in_this_way_are_read_by_spark(
    spark: SparkSession,
    pg: Pg,
    delta_path: str,
    ways: list[str],
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[..., DataFrame],
    found: list[str],
) -> None:
    monkeypatch.setattr(plain_files, "_LOCAL", ())
    monkeypatch.setattr(plain_files, "_read_contents", read)
    made = pipeline(spark, pg, history(spark, delta_path))
    made.run()
    assert ways == found * 2
    assert made.verify().equal


def test_windows_of_a_table_with_deletion_vectors_are_read_by_spark(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]
) -> None:
    made = pipeline(spark, pg, history(spark, delta_path, enableDeletionVectors="true"))
    made.run()
    assert ways[0] == "files"  # at version 1 no row was deleted
    assert made.verify().equal


def test_of_a_removed_row_only_the_key_is_staged(
    spark: SparkSession, pg: Pg, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[tuple[Any, ...]]] = []
    usual = file_copy._copy

    def copy(*arguments: Any) -> Any:
        staged = usual(*arguments)
        found.append(pg.query(f"select c0, _operation, c1 from deltarelay.{arguments[-1]} order by c0"))
        return staged

    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b')")
    made = pipeline(spark, pg, table)
    made.run()
    table.sql("delete from {t} where id = 1", "update {t} set v = 'c' where id = 2")
    monkeypatch.setattr(file_copy, "_copy", copy)
    made.run()
    assert found == [[(1, 3, None), (2, 2, "c")]]


def test_a_window_with_renamed_columns_is_read_by_spark(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str]
) -> None:
    table = Table(spark, delta_path, "id long, a string, b string")
    table.sql("insert into {t} values (1, 'a', 'b')")
    table.set(**{"columnMapping.mode": "name", "minReaderVersion": "2", "minWriterVersion": "5"})
    # In the files the columns keep their names, and each has the other one's now
    table.sql(*(f"alter table {{t}} rename column {old} to {new}" for old, new in ("ac", "ba", "cb")))
    made = Pipeline(ChangeFeed(spark, table.path), sink_of(pg, small_window_bytes=0), key="id", name="p")
    made.run()
    table.sql("insert into {t} values (2, 'x', 'y')", "update {t} set a = 'z' where id = 1")
    made.run()
    assert ways == ["rows", "rows"]
    assert pg.query("select id, a, b from target order by id") == [(1, "z", "a"), (2, "y", "x")]
    assert made.verify().equal


@pytest.mark.parametrize("small", [0, 2**20])
def test_files_with_columns_in_another_order_are_copied(
    spark: SparkSession, pg: Pg, delta_path: str, ways: list[str], small: int
) -> None:
    table = Table(spark, delta_path, "id long, name string, code long, note string")
    first = spark.sql("select '5' as note, '3' as name, 7L as code, id from range(5)")
    first.coalesce(1).write.format("delta").mode("append").save(delta_path)
    made = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg, small_window_bytes=small), key="id", name="p")
    made.run()
    assert made.verify().equal
    later = spark.sql("select 8L as code, id, '4' as name, '6' as note from range(5, 9)")
    later.coalesce(1).write.format("delta").mode("append").save(delta_path)
    table.sql("update {t} set note = '9' where id in (1, 6)")
    made.run()
    assert made.verify().equal
    table.sql("alter table {t} alter column note first", "insert into {t} values ('n', 20, '1', 2)")
    made.run()
    assert made.verify().equal
    assert pg.query("select id, name, code, note from target where id in (0, 1, 6, 20) order by id") == [
        (0, "3", 7, "5"),
        (1, "3", 7, "9"),
        (6, "4", 8, "9"),
        (20, "1", 2, "n"),
    ]
    assert set(ways) == ({"files"} if small == 0 else set())


@pytest.mark.parametrize("way", ["files", "driver", "rows"])
def test_a_null_key_is_refused_while_it_is_copied(
    spark: SparkSession, pg: Pg, delta_path: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'xanadu'), (null, 'xanadu')")
    if way == "rows":
        monkeypatch.setattr(file_copy, "find_snapshot_files", lambda _: None)
    small = 2**20 if way == "driver" else 0
    with pytest.raises(KeyViolation, match="null") as refused:
        pipeline(spark, pg, table, small_window_bytes=small).run()
    assert "xanadu" not in str(refused.value)
    assert pg.query("select count(*) from pg_class where relname like 'load%'") == [(0,)]
    table.sql("delete from {t} where id is null")
    assert Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key="id").run().loaded_rows == 1
