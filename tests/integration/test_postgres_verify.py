"""``verify`` on a real Delta table and a real target: it sees the smallest difference, and only differences."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.changes.canonical import BUCKET, checksum, digests
from cdf.errors import VerificationError
from cdf.sink import BucketDigest, Position, Source
from cdf.testing import SampleTable, insert
from connectors.postgres.verify.image import PostgresImage
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import loaded, people, person, sink_of

# (column, type, value of row i); row 0 of each holds what row i's formula cannot make
VALUES = {
    "b": ("boolean", "i % 2 = 0"),
    "si": ("smallint", "cast(i - 10 as smallint)"),
    "f": ("float", "case when i = 1 then float('NaN') else cast(i * 0.1 as float) end"),
    "d": ("double", "case when i = 1 then double('-Infinity') when i = 2 then -0.0D else i * 0.1D end"),
    "n": ("decimal(38,18)", "cast(i * 1000000000.000000001BD as decimal(38,18))"),
    "s": ("string", "case when i = 1 then '' when i = 2 then null else concat('é🦆', i, ':~') end"),
    "raw": ("binary", "cast(concat('x', i) as binary)"),
    "day": ("date", "date_add(date'1969-12-20', i)"),
    "at": ("timestamp", "timestamp_micros(i * 1000003L - 5000000L)"),
    "wall": ("timestamp_ntz", "timestamp_ntz'2024-03-10 02:30:00.1' + make_dt_interval(0, 0, 0, i * 0.01)"),
    "l": ("array<double>", "array(i * 1.5D, null, 1e20D)"),
    "p": ("struct<z: int, a: string, at: timestamp>", "named_struct('z', i, 'a', 'q\"', 'at', timestamp_micros(i))"),
    "m": ("map<string, decimal(10,2)>", "map('k', cast(i as decimal(10,2)), 'longer', null)"),
    "v": ("variant", "parse_json(concat('{\"b\": ', i, ', \"aa\": [true, 1.50]}'))"),
}


def create(spark: SparkSession, path: Path, rows: int) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    spark.sql(
        f"create table delta.`{path}` (id bigint, part string, {columns}) using delta"
        " tblproperties (delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true,"
        " delta.checkpointInterval = 2)"
    )
    spark.sql(
        f"insert into delta.`{path}` select {row_of()} from (select cast(id as int) as i from range(1, {rows + 1}))"
    )


def row_of() -> str:
    values = ", ".join(f"{value} as {name}" for name, (_, value) in VALUES.items())
    return f"cast(i as bigint) as id, concat('p', i) as part, {values}"


def pipeline_of(spark: SparkSession, pg: Pg, path: Path, **options: Any) -> Pipeline:
    return Pipeline(ChangeFeed(spark, str(path)), sink_of(pg, **options), key=("id", "part"), name="test")


def damaged(pg: Pg, *statements: str) -> None:
    for statement in statements:
        assert pg.connection.execute(statement).rowcount == 1, statement  # type: ignore[arg-type]


def test_equal_stays_equal_and_every_difference_is_counted(
    spark: SparkSession, pg: Pg, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "table"
    create(spark, path, 30)
    pipeline = pipeline_of(spark, pg, path)
    with pytest.raises(VerificationError, match="no position"):
        pipeline.verify()
    pipeline.run()
    assert (found := pipeline.verify()).equal, found
    chance = random.Random(seed)
    some = ", ".join(map(str, chance.sample(range(1, 31), 9)))
    spark.sql(f"delete from delta.`{path}` where id in ({some})")
    drawn = f"select {row_of()} from (select cast({chance.randrange(50)} + id as int) as i from range(12))"
    values = ", ".join(f"{name} = t.{name}" for name in VALUES)
    spark.sql(
        # no drawn row may be inserted beside a row that has its key
        f"merge into delta.`{path}` s using ({drawn}) t on s.id = t.id or s.id = t.id - 30"
        f" when matched then update set {values} when not matched then insert *"
    )
    pipeline.run()
    found = pipeline.verify()
    assert (found.equal, found.missing, found.extra, found.different, found.examples) == (True, 0, 0, 0, ())
    assert found.source_rows == found.target_rows == pg.query("select count(*) from target")[0][0]


@pytest.fixture
def replica(spark: SparkSession, pg: Pg, tmp_path: Path) -> Pipeline:
    create(spark, tmp_path / "table", 20)
    pipeline = pipeline_of(spark, pg, tmp_path / "table")
    pipeline.run()
    return pipeline


def test_differences_of_every_kind_are_found_in_one_run_with_exact_counts(replica: Pipeline, pg: Pg) -> None:
    damaged(
        pg,
        "update target set si = si + 1 where id = 3",
        "update target set s = '' where id = 2",  # was NULL
        "update target set s = null where id = 1",  # was ''
        "delete from target where id = 4",
        "insert into target (id, part) values (99, 'p99')",
        "update target set s = (select s from target where id = 6) where id = 5",
        "update target set s = 'é🦆5:~' where id = 6",  # the values of two rows swapped
        "update target set id = 77 where id = 7",
    )
    hashed, shown = replica.verify(), replica.verify(show_keys=True)
    for found in (hashed, shown):
        assert not found.equal
        assert (found.missing, found.extra, found.different, found.complete) == (2, 2, 5, True)
        assert (found.source_rows, found.target_rows) == (20, 20)
    assert all(len(one.key) == 32 and set(one.key) <= set("0123456789abcdef") for one in hashed.examples)
    by_kind = {kind: sorted(one.key for one in shown.examples if one.kind == kind) for kind in ("missing", "extra")}
    assert by_kind["missing"] == ['{"id":4,"part":"p4"}', '{"id":7,"part":"p7"}']
    assert [key.replace(" ", "") for key in by_kind["extra"]] == ['{"id":77,"part":"p7"}', '{"id":99,"part":"p99"}']
    different = sorted(one.key for one in shown.examples if one.kind == "different")
    assert different == [f'{{"id":{index},"part":"p{index}"}}' for index in (1, 2, 3, 5, 6)]


def test_the_smallest_difference_of_each_type_is_seen(replica: Pipeline, pg: Pg) -> None:
    damaged(
        pg,
        "update target set d = 0.0 where id = 2",  # was -0.0
        "update target set n = n + 0.000000000000000001 where id = 3",
        "update target set at = at + interval '1 microsecond' where id = 4",
        "update target set wall = wall - interval '1 microsecond' where id = 5",
        "update target set v = jsonb_set(v, '{aa,1}', '1.51') where id = 6",
        "update target set p = jsonb_set(p, '{at}', '\"1970-01-01T00:00:00.000008Z\"') where id = 7",
        "update target set f = '0.80000007' where id = 8",  # was the float next to it
        "update target set raw = raw || '\\x00' where id = 9",
        "update target set day = day + 1 where id = 10",
        "update target set b = null where id = 11",
        "update target set l = l || 'null' where id = 12",
        "update target set m = m - 'longer' where id = 13",
        "update target set s = s || ' ' where id = 14",
        "update target set f = 'Infinity' where id = 1",  # was NaN
    )
    found = replica.verify(show_keys=True)
    assert (found.missing, found.extra, found.different) == (0, 0, 14)
    keys = sorted(int(one.key.split(":")[1].split(",")[0]) for one in found.examples)
    assert keys == list(range(1, 15))


@pytest.mark.parametrize("gone", ["the log", "the files"])
def test_a_version_that_is_gone_cannot_be_verified(
    spark: SparkSession, replica: Pipeline, tmp_path: Path, gone: str
) -> None:
    path = tmp_path / "table"
    spark.sql(f"insert overwrite delta.`{path}` select * from delta.`{path}` where id < 5")
    if gone == "the log":
        for name in ("00000000000000000000", "00000000000000000001"):
            (path / "_delta_log" / f"{name}.json").unlink()
            shutil.rmtree(path / "_delta_log" / f".{name}.json.crc", ignore_errors=True)
    else:
        data = sorted(path.glob("part-*.parquet"), key=lambda file: file.stat().st_mtime)
        for file in data[:-1]:
            file.unlink()
    spark.sql("clear cache")
    with pytest.raises(VerificationError, match="version 1"):
        Pipeline(ChangeFeed(spark, str(path)), replica.sink, key=("id", "part"), name="test").verify()


def test_the_target_is_seen_at_one_moment_together_with_its_position(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    with loaded(pg, table, [person(1, "a")]) as sink:
        with sink_of(pg).image(table.source()) as image:
            assert (image.position, image.row_count()) == (Position(1, table.table_id), 1)
            before = image.digest(4)
            sink.apply(table.window(2, [insert(person(2, "b"))]))
            assert (image.position.version, image.row_count(), image.digest(4)) == (1, 1, before)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                image._connection.execute(f"delete from {pg.schema}.target")  # type: ignore[attr-defined]
        with sink_of(pg).image(table.source()) as image:
            assert (image.position.version, image.row_count()) == (2, 2)


def test_thousands_of_rows_are_compared_by_bucket(spark: SparkSession, pg: Pg, tmp_path: Path) -> None:
    path = tmp_path / "many"
    spark.sql(
        f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed = true)"
        " as select id, cast(id as string) as part, repeat('x', 20) as text from range(5000)"
    )
    pipeline = pipeline_of(spark, pg, path)
    pipeline.run()
    found = pipeline.verify()
    assert (found.equal, found.buckets, found.source_rows, found.target_rows) == (True, 5, 5000, 5000)
    damaged(pg, "update target set text = 'y' where id = 4711", "delete from target where id = 7")
    found = pipeline.verify(show_keys=True)
    assert (found.missing, found.extra, found.different, found.complete) == (1, 0, 1, True)
    assert 1 <= found.differing_buckets <= 2
    assert {one.key for one in found.examples} == {'{"id":4711,"part":"4711"}', '{"id":7,"part":"7"}'}


def test_keys_that_the_source_holds_twice_are_named_as_what_they_are(
    spark: SparkSession, pg: Pg, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    create(spark, path, 5)
    pipeline = pipeline_of(spark, pg, path, conflicts="report")
    pipeline.run()
    spark.sql(f"insert into delta.`{path}` select * from delta.`{path}` where id = 2")
    pipeline.run()
    found = pipeline.verify()
    assert (found.equal, found.duplicate) == (False, 1)
    assert (found.missing, found.extra, found.different) == (0, 0, 0)
    assert [one.kind for one in found.examples] == ["duplicate"]


def test_buckets_on_both_sides_hold_the_same_rows(spark: SparkSession, pg: Pg) -> None:
    schema = StructType().add("id", "long").add("name", "string")
    table = SampleTable(spark, schema, ("name", "id"))
    source = Source("people", table.table_id, schema, ("name", "id"), "test")
    people = [{"id": index, "name": f"~{index}:漢"} for index in range(100)]
    with loaded(pg, table, people) as sink, sink.image(source) as image:
        digest = image.digest(7)
        here = digests(table.snapshot(1, people).read(), schema, source.key, 7)
        counted = here.groupBy(BUCKET).agg(sf.count("*"), checksum()).collect()
        assert digest == {row[0]: BucketDigest(row[1], int(row[2])) for row in counted}
        rows = [row for bucket in digest for row in image.rows(7, [bucket], show_keys=False)]
    assert len({row.key for row in rows}) == len({row.row for row in rows}) == 100
    assert {row.shown for row in rows} == {None}


def test_the_cost_of_a_row_does_not_depend_on_the_number_of_chosen_buckets(spark: SparkSession, pg: Pg) -> None:
    """By PostgreSQL's estimate. It compared each row with all of the buckets once."""
    schema = StructType().add("name", "string").add("id", "long")
    table = SampleTable(spark, schema, ("id",))
    source = Source("people", table.table_id, schema, ("id",), "test")
    people = [{"id": index, "name": f"name {index}"} for index in range(100)]

    def estimate_cost(image: PostgresImage, chosen: int) -> float:
        query = image._select_rows(8_000, range(chosen), show_keys=False)
        [(plan,)] = pg.connection.execute(sql.SQL("explain (format json) {}").format(query)).fetchall()
        return float(plan[0]["Plan"]["Total Cost"])

    with loaded(pg, table, people) as sink, sink.image(source) as image:
        assert isinstance(image, PostgresImage)
        # 3 times: the hash table is built once. Compared with all buckets: 85 times
        assert estimate_cost(image, 8_000) < 10 * estimate_cost(image, 10)
