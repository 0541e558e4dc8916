"""A Parquet file that is decoded without Spark has the values that Spark reads from it, or it is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from cdf.source.parquet_rows import FileRefused, can_decode, decode_file
from cdf.spark_versions import arrow_type, collect_arrow
from tests.fixtures.fix_seed import examples
from tests.integration.random_types import Kind, plain_kinds

ROWS = 8
Column = tuple[Kind, list[Any]]


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    return [(kind, draw(st.lists(kind.values, min_size=ROWS, max_size=ROWS))) for kind in draw(plain_kinds())]


def bits(column: pa.ChunkedArray) -> list[Any]:
    """Values that are equal only if all their bits are."""
    array = column.combine_chunks()
    if pa.types.is_floating(array.type):
        array = array.view(pa.int64() if array.type == pa.float64() else pa.int32())
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    if pa.types.is_string(array.type):
        array = array.view(pa.binary())
    return list(array.to_pylist())


def decoded(feed: ChangeFeed) -> pa.Table:
    snapshot = feed.keyed_snapshot(feed.log.latest(), ("id",))
    files = snapshot.plain_files()
    assert files is not None
    assert can_decode(snapshot.schema)
    types = [arrow_type(field.dataType) for field in snapshot.schema.fields]
    paths = [row["path"] for row in files.read().collect()]
    assert sorted(path.rpartition("/")[2] for path in paths) == sorted(files.names)
    batches = [batch for path in paths for batch in decode_file(path, None, list(files.columns.values()), types, 3)]
    contents = [batch for path in paths for batch in decode_file("", pa.py_buffer(Path(path).read_bytes()),
                                                                   list(files.columns.values()), types, 3)]  # fmt: skip
    assert contents == batches or [str(one) for one in contents] == [str(one) for one in batches]  # NaN is not NaN
    return pa.Table.from_batches(batches).sort_by("id")


@settings(max_examples=examples(4), phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(columns=tables())
def test_values_are_those_of_spark(spark: SparkSession, tmp_path: Path, columns: list[Column]) -> None:
    folder = tmp_path / secrets.token_hex(4)
    folder.mkdir()
    arrays = {f"c{number}": pa.array(values, kind.arrow) for number, (kind, values) in enumerate(columns)}
    pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64()), **arrays}), folder / "rows.parquet")
    made = ", ".join(f"{kind.made_by.format(f'c{number}')} as c{number}" for number, (kind, _) in enumerate(columns))
    path = str(folder / "table")
    spark.sql(f"create table delta.`{path}` using delta as select id, {made} from parquet.`{folder}/rows.parquet`")
    feed = ChangeFeed(spark, path)
    expected = collect_arrow(feed.snapshot()).sort_by("id")
    try:
        found = decoded(feed)
    except FileRefused as error:
        if "far date or time" in str(error):
            return
        raise
    assert found.schema.types == expected.schema.types
    for name in expected.column_names:
        assert bits(found[name]) == bits(expected[name]), (name, expected.schema.field(name).type)


TYPES = {
    "boolean": "true",
    "byte": "cast(-128 as byte)",
    "short": "cast(-32768 as short)",
    "int": "2147483647",
    "long": "9223372036854775807L",
    "float": "float('-0.0')",
    "double": "double('NaN')",
    "decimal9": "cast('-1234567.89' as decimal(9,2))",
    "decimal18": "cast('-1234567890123456.78' as decimal(18,2))",
    "decimal38": "cast('-12345678901234567890123456789012.345678' as decimal(38,6))",
    "string": "'ünï'",
    "bytes": "X'00FF'",
    "date": "date'0001-01-01'",
    "timestamp": "timestamp'1600-02-29 12:34:56.123456Z'",
    "ntz": "timestamp_ntz'9999-12-31 23:59:59.999999'",
}


@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS"])
def test_usual_values_of_each_type_are_not_refused(spark: SparkSession, delta_path: str, stored: str) -> None:
    setting = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(setting)
    spark.conf.set(setting, stored)
    try:
        listed = ", ".join(f"{value} as `{name}`" for name, value in TYPES.items())
        spark.sql(f"create table delta.`{delta_path}` using delta as select id, {listed} from range(3)")
    finally:
        spark.conf.set(setting, before or stored)
    feed = ChangeFeed(spark, delta_path)
    expected = collect_arrow(feed.snapshot()).sort_by("id")
    found = decoded(feed)
    assert {name: bits(found[name]) for name in found.column_names} == {
        name: bits(expected[name]) for name in expected.column_names
    }


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    pq.write_table(change(pq.read_table(path)), path, **options)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda table: table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), "old calendar"),
        (lambda table: table.replace_schema_metadata({"org.apache.spark.timeZone": "UTC"}), "old calendar"),
        (lambda table: table.drop_columns(["day"]), "column missing"),
        (lambda table: table.set_column(0, "id", table["id"].cast(pa.int32())), "other type"),
        (lambda table: table.set_column(1, "day", pa.array([dt_day(-25_568)] * 2)), "far date or time"),
        (lambda table: table.set_column(1, "day", pa.array([dt_day(2_932_897)] * 2)), "far date or time"),
    ],
)
def test_a_file_that_spark_reads_otherwise_is_refused(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], why: str
) -> None:
    path, types = tmp_path / "rows.parquet", [pa.int64(), pa.date32()]
    pq.write_table(pa.table({"id": pa.array([1, 2]), "day": pa.array([dt_day(-25_567)] * 2)}), path)
    assert sum(batch.num_rows for batch in decode_file(str(path), None, ["id", "day"], types, 10)) == 2
    rewritten(path, change)
    with pytest.raises(FileRefused, match=why):
        list(decode_file(str(path), None, ["id", "day"], types, 10))
    path.write_bytes(b"damaged")
    with pytest.raises(FileRefused, match="ArrowInvalid"):
        list(decode_file(str(path), None, ["id", "day"], types, 10))


@pytest.mark.parametrize(("release", "is_read"), [("3.0.3", False), ("3.1.0", True), ("", False)])
def test_moments_of_an_old_type_are_read_from_files_of_a_spark_with_the_present_calendar(
    tmp_path: Path, release: str, is_read: bool
) -> None:
    path, types = tmp_path / "rows.parquet", [pa.timestamp("us", "UTC")]
    rows = pa.table({"at": pa.array([-3_000_000_000_000_000], pa.timestamp("us"))})  # in 1874
    rows = rows.replace_schema_metadata({"org.apache.spark.version": release} if release else None)
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    if is_read:
        (batch,) = decode_file(str(path), None, ["at"], types, 10)
        assert bits(pa.chunked_array([batch["at"]])) == [-3_000_000_000_000_000]
        return
    with pytest.raises(FileRefused, match="INT96"):
        list(decode_file(str(path), None, ["at"], types, 10))


def test_a_file_with_names_that_differ_by_case_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1], "A": [2]}), path)
    with pytest.raises(FileRefused, match="case"):
        list(decode_file(str(path), None, ["a"], [pa.int64()], 10))


def dt_day(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int32()).cast(pa.date32())
