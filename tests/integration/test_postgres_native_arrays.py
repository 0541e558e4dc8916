"""`arrays: native`: a real table with arrays, replicated both ways and compared, also by PostgreSQL's own words."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from connectors.postgres.column_mapping import Columns
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import ON_BOTH_PATHS

COLUMNS = (
    "id long, whole array<int>, texts array<string>, times array<timestamp>, floats array<double>,"
    " deep array<array<int>>"
)


@ON_BOTH_PATHS
def test_arrays_are_arrays_and_equal(spark: SparkSession, delta_path: str, pg: Pg, path: dict[str, int]) -> None:
    table = Table(spark, delta_path, COLUMNS)
    table.sql(
        "insert into {t} values (1, array(1, null, -3), array('a', '', null), array(timestamp'2024-03-31T01:30:00.000001Z'),"
        " array(double('NaN'), -0.0D, double('Infinity')), array(array(1), null))",
        "insert into {t} values (2, null, array(), array(), null, null), (3, array(), null, null, array(), array())",
    )
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.target", columns=Columns(native_arrays=True), **path)
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    table.sql(
        "update {t} set texts = array('b', 'ä{}\",'), whole = array(7) where id = 1",
        "delete from {t} where id = 3",
        "insert into {t} values (4, array(4), array('x'), null, array(1.5D), null)",
    )
    pipeline.run()
    types = pg.query(
        "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'target'::regclass and attnum > 0"
        " order by attnum"
    )
    assert [kind for (kind,) in types] == [
        "bigint", "integer[]", "text[]", "timestamp with time zone[]", "double precision[]", "jsonb"
    ]  # fmt: skip
    assert pg.query("select id, whole, texts, floats::text from target order by id") == [
        (1, [7], ["b", 'ä{}",'], "{NaN,-0,Infinity}"),
        (2, None, [], None),
        (4, [4], ["x"], "{1.5}"),
    ]
    assert pipeline.verify().equal
    pg.query("update target set texts = array['b'] where id = 1")
    found = pipeline.verify()
    assert (found.equal, found.different) == (False, 1)
