"""What is decoded in memory is, bit for bit, what Spark reads; everything else is left to Spark."""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.changes.row_count import count_rows
from cdf.changes.window import Snapshot, Window
from cdf.source import direct_reader, plain_files
from cdf.source.batch_reader import check_feed_on
from cdf.source.direct_reader import ManyRows, read_directly, read_snapshot_directly
from connectors.postgres.column_mapping import Columns
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table, setting
from tests.integration.foreign_writer import append_commit
from tests.integration.postgres_case import sink_of

KINDS = {
    "boolean": lambda chance: chance.random() < 0.5,
    "tinyint": lambda chance: chance.randint(-128, 127),
    "smallint": lambda chance: chance.randint(-(2**15), 2**15 - 1),
    "int": lambda chance: chance.choice([-(2**31), 2**31 - 1, chance.randint(-9, 9)]),
    "bigint": lambda chance: chance.choice([-(2**63), 2**63 - 1, chance.randint(-9, 9)]),
    "float": lambda chance: chance.choice([float("nan"), -0.0, 0.0, float("-inf"), 1e-45, chance.random()]),
    "double": lambda chance: chance.choice([float("nan"), -0.0, 0.0, float("inf"), 5e-324, chance.random()]),
    "decimal(9,2)": lambda chance: f"{chance.randint(-(10**9) + 1, 10**9 - 1)}e-2",
    "decimal(18,0)": lambda chance: str(chance.randint(-(10**18) + 1, 10**18 - 1)),
    "decimal(38,18)": lambda chance: f"{chance.randint(-(10**38) + 1, 10**38 - 1)}e-18",
    "string": lambda chance: chance.choice(["", "é\u2028\U0001f600\0", "x" * 300, str(chance.random())]),
    "binary": lambda chance: chance.choice([b"", b"\0\xff", chance.randbytes(20)]),
    "date": lambda chance: dt.date(1, 1, 2) + dt.timedelta(days=chance.randint(0, 3_652_000)),
    "timestamp": lambda chance: FIRST + dt.timedelta(seconds=chance.randint(0, 250_000_000_000), microseconds=1),
    "timestamp_ntz": lambda chance: (FIRST + dt.timedelta(microseconds=chance.randint(0, 2**57))).replace(tzinfo=None),
}
"""Random values, from which Spark casts to the type."""
FIRST = dt.datetime(1800, 1, 2, tzinfo=dt.UTC)
STORED = {"tinyint": "int", "smallint": "int", "decimal(9,2)": "string", "decimal(18,0)": "string"}
STORED |= {"decimal(38,18)": "string"}


def window_of(table: Table, first: int, last: int | None = None) -> Window:
    feed = ChangeFeed(table.spark, table.path)
    last = feed.log.latest() if last is None else last
    check_feed_on(feed, first, last)
    metadata = feed.log.metadata(last)
    commits = tuple(feed.log.commits(first, last))
    return count_rows(feed.window(commits, metadata.schema, table_id=metadata.table_id, key=("id",)))


def bits(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    def as_bits(value: Any) -> Any:
        return struct.pack(">d", value) if isinstance(value, float) else value

    # Instants before 1900 are numbers: Python cannot show all of them in each zone
    numbers = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column.combine_chunks()
        for column in rows.columns
    ]
    return Counter(tuple(map(as_bits, row)) for row in zip(*(one.to_pylist() for one in numbers), strict=True))


def assert_same_as_spark(window: Window, rows: int) -> None:
    read = read_directly(window, times=True)
    assert read is not None
    found = read.rows()
    assert window.rows_in() == found.num_rows == rows
    expected = window.collect()
    assert [(field.name, field.type) for field in found.schema] == [
        (field.name, field.type) for field in expected.schema
    ]
    assert bits(found) == bits(expected) == bits(read.read().toArrow())


def snapshot_of(table: Table, version: int | None = None) -> Snapshot:
    feed = ChangeFeed(table.spark, table.path)
    return feed.keyed_snapshot(feed.log.latest() if version is None else version, ("id",))


def read_small(snapshot: Snapshot) -> pa.Table | None:
    files = snapshot.plain_files()
    return None if files is None else read_snapshot_directly(snapshot, files)


def assert_snapshot_is_the_same(table: Table, version: int, rows: int) -> None:
    snapshot = snapshot_of(table, version)
    found, expected = read_small(snapshot), snapshot.collect()
    assert found is not None
    assert found.num_rows == rows
    assert [(of.name, of.type) for of in found.schema] == [(of.name, of.type) for of in expected.schema]
    assert bits(found) == bits(expected)


def is_left_to_spark(table: Table, first: int, last: int | None = None, *, times: bool = False) -> bool:
    window = window_of(table, first, last)
    assert window.collect().num_rows > 0
    return read_directly(window, times=times) is None


def columns_of(chance: random.Random) -> dict[str, str]:
    return {f"c{number}é": kind for number, kind in enumerate(chance.sample(list(KINDS), len(KINDS)))}


def insert(table: Table, columns: dict[str, str], ids: range, chance: random.Random) -> None:
    rows = [
        (number, *(None if chance.random() < 0.3 else KINDS[kind](chance) for kind in columns.values()))
        for number in ids
    ]
    stored = ["id long", *(f"x{n} {STORED.get(kind, kind)}" for n, kind in enumerate(columns.values()))]
    casts = [f"cast(x{n} as {kind}) as `{name}`" for n, (name, kind) in enumerate(columns.items())]
    frame = table.spark.createDataFrame(rows, ", ".join(stored)).selectExpr("id", *casts)
    frame.coalesce(2).write.format("delta").mode("append").save(table.path)


@pytest.mark.parametrize("stored_as", ["INT96", "TIMESTAMP_MICROS"])
def test_values_are_those_of_spark_bit_for_bit(
    spark: SparkSession, tmp_path: Path, seed: int, stored_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{seed} {stored_as}")
    columns = columns_of(chance)
    ddl = ", ".join(f"`{name}` {kind} comment 'é'" for name, kind in columns.items())
    times = {"enableInCommitTimestamps": "true"} if stored_as == "INT96" else {}
    table = Table(spark, str(tmp_path / "t"), f"id long not null, {ddl}", **times)
    with setting(spark, "spark.sql.parquet.outputTimestampType", stored_as):
        insert(table, columns, range(40), chance)
        table.sql("update {t} set id = id + 1000 where id % 3 = 0", "delete from {t} where id < 10")
        insert(table, columns, range(40, 50), chance)
    if not times:  # a commit before the window has a later time: Delta counts on from there
        table.date({0: dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)})
    for first, last, rows in ((1, 1, 40), (2, 2, 28), (3, 3, 6), (4, 4, 10), (1, 4, 84)):
        assert_same_as_spark(window_of(table, first, last), rows)
    for version, rows in enumerate([0, 40, 40, 34, 44]):
        assert_snapshot_is_the_same(table, version, rows)
    monkeypatch.setattr(plain_files, "_LOCAL", ())  # through Spark's access to the storage
    assert_same_as_spark(window_of(table, 2, 4), 44)
    assert_snapshot_is_the_same(table, 4, 44)


def test_every_kind_of_commit_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "t"))
    source = "using (select * from values (1L, 'm'), (99L, 'n') as s(id, v)) s on {t}.id = s.id".replace("{t}", "t")
    table.sql(
        "insert into {t} select id, concat('v', id) from range(0, 20, 1, 2)",
        "delete from {t}",  # whole files
        "insert into {t} select id, 'w' from range(5)",
        f"merge into {{t}} t {source} when not matched then insert *",  # no change files
        f"merge into {{t}} t {source} when matched then update set v = s.v",
        "alter table {t} add columns (w int, x date)",
        "insert into {t} values (50, 'a', 1, date'2020-01-01')",
        "update {t} set v = 'b' where id = 2",  # of a file that is older than the columns
        "optimize {t}",
    )
    assert [is_left_to_spark(table, version, version) for version in (2, 4)] == [True, True]
    for version, rows in ((1, 20), (3, 5), (5, 4), (7, 1), (8, 2)):
        assert_same_as_spark(window_of(table, version, version), rows)
    assert_same_as_spark(window_of(table, 7), 3)
    # The times of a window whose commits change the table's settings may be of two kinds
    table.sql("alter table {t} set tblproperties ('some' = 'note')")
    assert not is_left_to_spark(table, 8)
    assert is_left_to_spark(table, 8, times=True)


@pytest.fixture
def plain(spark: SparkSession, tmp_path: Path) -> Table:
    """A table of which each window is read directly, unless the test gives it a reason."""
    table = Table(spark, str(tmp_path / "plain"))
    table.sql("insert into {t} select id, 'a' from range(4)")
    assert not is_left_to_spark(table, 1)
    return table


def test_tables_with_features_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    def at(name: str, columns: str, values: str, then: str = "", **properties: str) -> Table:
        table = Table(spark, str(tmp_path / name), columns, **properties)
        table.sql(f"insert into {{t}} select id, {values} from range(4)", *filter(None, [then]))
        return table

    delete = "delete from {t} where id = 1"
    vectors = at("vectors", "id long, v string", "'a'", delete, enableDeletionVectors="true")
    assert not is_left_to_spark(vectors, 1, 1)
    assert is_left_to_spark(vectors, 2)
    for name, columns, values in (
        ("struct", "id long, v struct<a: int>", "named_struct('a', 1)"),
        ("array", "id long, v array<int>", "array(1)"),
        ("char", "id long, v char(5)", "'a'"),
        ("dots", "id long, `v.w` int", "1"),
    ):
        properties = {"columnMapping.mode": "name"} if name == "dots" else {}
        assert is_left_to_spark(at(name, columns, values, **properties), 1), name
    assert is_left_to_spark(at("mapped", "id long, v int", "1", **{"columnMapping.mode": "name"}), 1)
    widened = at(
        "widened", "id long, v int", "1", "alter table {t} alter column v type bigint", enableTypeWidening="true"
    )
    widened.sql("update {t} set v = v + 1")
    assert window_of(widened, 3).collect().num_rows == 8
    path = str(tmp_path / "parts")
    spark.sql(
        f"create table delta.`{path}` (id long, v string) using delta partitioned by (v)"
        " tblproperties (delta.enableChangeDataFeed = true)"
    )
    parts = Table.at(spark, path)
    parts.sql("insert into {t} values (1, 'a')")
    assert is_left_to_spark(parts, 1)


def test_far_years_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "t"), "id long, d date")
    table.sql("insert into {t} values (1, date'0001-01-01')")
    assert_same_as_spark(window_of(table, 1), 1)
    table.sql("insert into {t} values (4, date'+10000-01-01')")
    assert is_left_to_spark(table, 2)


def test_windows_that_are_large_or_old_are_left_to_spark(plain: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.sql("insert into {t} select id, repeat('x', 1000000) from range(40)")  # kilobytes in the file
    window = window_of(plain, 2)
    assert window.change_bytes < 2**20
    assert read_directly(window, times=False) is None
    for version, files in ((3, 1), (4, 3)):
        plain.sql(f"insert into {{t}} select id, 'b' from range(0, 20001, 1, {files})")
        with pytest.raises(ManyRows):
            read_directly(window_of(plain, version), times=False)
    plain.sql("insert into {t} values (7, 'c')")
    assert not is_left_to_spark(plain, 5)
    monkeypatch.setattr("cdf.source.direct_reader.MAX_BYTES", window_of(plain, 5).change_bytes - 1)
    assert is_left_to_spark(plain, 5)


def test_files_of_other_writers_are_read_only_where_their_types_are_the_tables(plain: Table) -> None:
    def append(name: str, rows: pa.Table) -> bool:
        file = Path(plain.path, name)
        pq.write_table(rows, file)
        add = {
            "path": name,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
        }
        version = append_commit(plain.path, {"add": add}, operation="WRITE")
        plain.forget()
        return is_left_to_spark(plain, version)

    ids, texts = pa.array([7], pa.int64()), pa.array(["é"])
    assert not append("same.parquet", pa.table({"id": ids, "v": texts}))
    assert append("other-type.parquet", pa.table({"id": ids.cast(pa.int32()), "v": texts}))
    assert append("case.parquet", pa.table({"id": ids, "V": texts}))
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    assert append("not-utf8.parquet", pa.table({"id": ids, "v": broken}))


def test_a_missing_file_is_left_to_spark(plain: Table) -> None:
    file = next(Path(plain.path).glob("part-*.parquet"))
    window = window_of(plain, 1)
    assert read_directly(window, times=False) is not None
    file.unlink()
    assert read_directly(window, times=False) is None


def test_snapshots_that_are_large_or_not_plain_are_left_to_spark(
    plain: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in Path(plain.path).glob("part-*.parquet"))
    snapshot = snapshot_of(plain)
    files = snapshot.plain_files()
    assert files is not None
    assert files.size == size
    assert read_small(snapshot) is not None
    for name, most in (("MAX_BYTES", size - 1), ("MAX_FILES", len(files.names) - 1), ("DRIVER_ROWS", 3)):
        with monkeypatch.context() as patched:
            patched.setattr(direct_reader, name, most)
            assert read_small(snapshot) is None
    vectors = Table(plain.spark, str(tmp_path / "vectors"), enableDeletionVectors="true")
    vectors.sql("insert into {t} select id, 'a' from range(4)", "delete from {t} where id = 1")
    assert read_small(snapshot_of(vectors, 1)) is not None
    assert read_small(snapshot_of(vectors, 2)) is None
    next(Path(plain.path).glob("part-*.parquet")).unlink()
    assert read_small(snapshot) is None


def test_a_damaged_page_is_left_to_spark(plain: Table) -> None:
    """Also where the damaged bytes decode to other values."""
    window = window_of(plain, 1)
    file = next(Path(plain.path).glob("part-*.parquet"))
    content, rows, undamaged = (
        file.read_bytes(),
        pq.read_table(file),
        bits(window.collect().drop_columns("_commit_timestamp")),
    )
    chunk = pq.read_metadata(file).row_group(0).column(0)
    silent = 0
    for place in range(4, chunk.data_page_offset + chunk.total_compressed_size):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        try:
            silent += pq.ParquetFile(file).read() != rows
        except Exception:
            pass  # only those that decode are counted
        else:
            found = read_directly(window, times=False)
            assert found is None or bits(found.rows()) == undamaged
    assert silent > 0


def test_many_files_are_left_to_spark(plain: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.sql("insert into {t} values (9, null)")
    window = window_of(plain, 1)
    monkeypatch.setattr(direct_reader, "MAX_FILES", 1)
    assert read_directly(window, times=False) is None
    assert read_directly(window_of(plain, 2), times=False) is not None


def test_a_null_in_a_required_column_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "t"), "id long not null, v string")
    table.sql("insert into {t} values (1, 'a')")
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "v": ["b"]}), tmp_path / "t" / "null.parquet")
    add = {"path": "null.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    version = append_commit(table.path, {"add": add}, operation="WRITE")
    table.forget()
    assert read_directly(window_of(table, 1, 1), times=False) is not None
    assert read_directly(window_of(table, version), times=False) is None


def test_a_copy_with_other_rows_gives_spark_these(plain: Table) -> None:
    found = read_directly(window_of(plain, 1), times=True)
    assert found is not None
    fewer = found.without(lambda rows: rows.slice(1))
    assert fewer.read().count() == fewer.collect().num_rows == found.read().count() - 1


def test_what_replaces_or_filters_the_rows_hides_the_files(plain: Table) -> None:
    window = window_of(plain, 1)
    assert read_directly(window.without(lambda rows: rows.where("id > 1")), times=False) is None
    assert read_directly(replace(window, read=lambda: window.read()), times=False) is None


def refuse_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("Spark was asked for the rows")

    monkeypatch.setattr("cdf.source.plain_files.load_range", refuse)
    monkeypatch.setattr("cdf.source.plain_files._list_paths", refuse)


@pytest.mark.parametrize("reloads", [False, True])
def test_a_small_table_is_copied_without_a_spark_job(
    plain: Table, pg: Pg, monkeypatch: pytest.MonkeyPatch, reloads: bool
) -> None:
    jobs: Any = plain.spark._jsc.sc().dagScheduler()
    options = {"columns": Columns(include=("v", "id"), rename={"v": "w"})}
    pipeline = Pipeline(ChangeFeed(plain.spark, plain.path), sink_of(pg, **options), key=["id"], name="direct")
    if reloads:
        pipeline.run()
    plain.sql("update {t} set v = 'b' where id = 1", "delete from {t} where id = 2")
    before = jobs.numTotalJobs()
    result = pipeline.reload() if reloads else pipeline.run()
    assert jobs.numTotalJobs() == before
    assert result.loaded_rows == 3
    assert pg.query(f"select id, w from {pg.schema}.target order by id") == [(0, "a"), (1, "b"), (3, "a")]
    assert pipeline.verify().equal


@pytest.mark.parametrize("renames", [False, True])
def test_a_small_window_reaches_postgresql_without_a_spark_job(
    plain: Table, pg: Pg, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    own = ("_commit_version", "_commit_timestamp")
    options = {"columns": Columns(include=("v", "id"), rename={"v": "w"}, own=own)} if renames else {}
    feed = ChangeFeed(plain.spark, plain.path)
    pipeline = Pipeline(feed, sink_of(pg, **options), key=["id"], name="direct")
    pipeline.run()
    plain.sql("update {t} set v = 'b' where id = 1", "delete from {t} where id = 2", "insert into {t} values (9, null)")
    with monkeypatch.context() as patched:
        refuse_spark(patched)
        result = pipeline.run()
    assert (result.inserts, result.updates, result.deletes) == (1, 1, 1)
    name, value = f"{pg.schema}.target", "w" if renames else "v"
    assert pg.query(f"select id, {value} from {name} order by id") == [(0, "a"), (1, "b"), (3, "a"), (9, None)]
    if renames:
        times = feed.log.times()
        assert pg.query(f"select _commit_version, _commit_timestamp from {name} where id in (1, 9) order by id") == [
            (version, times[version]) for version in (2, 4)
        ]
    read = "select rows_in from deltarelay.runs where target like %s and kind = 'window'"
    assert pg.query(read, f"%{pg.schema}%") == [(4,)]
    assert pipeline.verify().equal


def test_a_window_of_many_narrow_rows_is_read_once(plain: Table, pg: Pg) -> None:
    """Its files are small, so the driver begins with them. Spark does not read them once more before the tasks copy them."""
    pipeline = Pipeline(ChangeFeed(plain.spark, plain.path), sink_of(pg), key=["id"], name="direct")
    pipeline.run()
    plain.sql("insert into {t} select id + 100, 'a' from range(20001)")
    jobs: Any = plain.spark._jsc.sc().dagScheduler()
    before = jobs.numTotalJobs()
    assert pipeline.run().inserts == 20_001
    assert jobs.numTotalJobs() == before + 1
    assert pipeline.verify().equal
