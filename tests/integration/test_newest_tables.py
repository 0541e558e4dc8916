"""Tables that Spark 4.2 with Delta 4.4 has written, on every pair: read exactly, or refused by name.

``fixtures/newest_tables/variant``: one row, whose variant was updated. ``widened``: int to bigint between two inserts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.changes.schema_diff import ChangeKind
from cdf.errors import FeatureNotSupported
from cdf.testing import MemorySink
from infra.spark_pairs import installed_pair

WRITTEN = Path(__file__).parents[1] / "fixtures" / "newest_tables"
ROWS = {"variant": [(1, "[1,null]")], "widened": [(1, "2"), (2, "5000000000")]}
REFUSED = {
    ("3.5", "variant"): "the table feature variantType, which the installed Delta Lake does not support",
    ("3.5", "widened"): "the table feature typeWidening, with a change of type that the installed Delta Lake does not",
    ("4.0", "variant"): "a Parquet type that the installed Spark does not know: Spark 4.0 reads no variants of newer",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_table_of_the_newest_pair_is_read_or_refused_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(shutil.copytree(WRITTEN / name, tmp_path / name))
    if (named := REFUSED.get((installed_pair().line, name))) is not None:
        with pytest.raises(FeatureNotSupported, match=named):
            Pipeline(ChangeFeed(spark, path), MemorySink(), key="id").run()
        with pytest.raises(FeatureNotSupported, match=named):
            Pipeline(ChangeFeed(spark, path), MemorySink(), key="id", start=2).run()
        return
    rows = ChangeFeed(spark, path).snapshot().selectExpr("id", "cast(v as string)").sort("id").collect()
    assert [tuple(row) for row in rows] == ROWS[name]
    for start in ("snapshot", 0):  # version 0 is empty: every row comes from the feed
        sink = MemorySink(schema_changes=[kind.value for kind in ChangeKind])
        Pipeline(ChangeFeed(spark, path), sink, key="id", start=start).run()
        found = sorted((row["id"], str(row["v"])) for row in sink.store.read_rows())
        assert found == ROWS[name], start
