"""Random schemas of all types, random rows with edge values, through a real Delta table and the whole pipeline: the copy,
a window by the driver, a window by the tasks. PostgreSQL is the judge: what it prints, in a random time zone, is held
against texts that Python works out by itself (``random_types``). ``verify`` has to agree.

A failure prints what repeats it (``@reproduce_failure``).
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.changes.canonical import KEY_DIGEST, ROW_DIGEST, digests
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_seed import examples
from tests.integration.postgres_case import sink_of
from tests.integration.random_types import ZONES, Kind, nested_kinds, plain_kinds

ROWS = 10
"""Of each of the three parts; every column has as many values, or fewer and nulls."""


class Column(NamedTuple):
    kind: Kind
    values: list[Any]

    def __repr__(self) -> str:
        return repr(self.kind)  # a failure names the values' places; all of them would fill pages


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    # Without nested columns the rows are decoded from the table's files
    kinds = [*draw(plain_kinds()), *(draw(nested_kinds()) if draw(st.booleans()) else [])]
    return [Column(kind, draw(st.lists(kind.values, min_size=ROWS - 3, max_size=ROWS))) for kind in kinds]


def stored(path: Path, columns: list[Column]) -> str:
    """The rows in a Parquet file; → the query that makes them of Delta's types, without its id."""
    arrays = {f"c{number}": _padded(kind, values) for number, (kind, values) in enumerate(columns)}
    pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64()), **arrays}), path)
    made = ", ".join(f"{kind.made_by.format(f'c{number}')} as c{number}" for number, (kind, _) in enumerate(columns))
    return f"{made} from parquet.`{path}`"


def _padded(kind: Kind, values: list[Any]) -> pa.Array:
    return pa.array(values + [None] * (ROWS - len(values)), kind.arrow)


def wrong(pg: Pg, columns: list[Column], zone: str) -> list[str]:
    """Columns of which PostgreSQL prints another value than it was given, in any of the parts."""
    pg.query(f"set timezone = '{zone}'")
    listed = ", ".join(f"c{number}::text" for number in range(len(columns)))
    found = pg.query(f"select id, {listed} from target order by id")
    assert [row[0] for row in found] == [part * ROWS + row for part in range(3) for row in range(ROWS)]
    bad = []
    for number, (kind, values) in enumerate(columns):
        expected = (values + [None] * (ROWS - len(values))) * 3
        for (row, *texts), value in zip(found, expected, strict=True):
            if not kind.agrees(value, texts[number], zone):
                bad.append(f"c{number} {kind.ddl} in row {row}: {repr(value)[:300]} is {repr(texts[number])[:300]}")
    return bad


# How Hypothesis prints a strategy that it draws from once more, which takes a deep one
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=examples(3),
    phases=[Phase.explicit, Phase.generate],  # shrinking would take a Spark job each time
    suppress_health_check=list(HealthCheck),
)
@given(columns=tables(), session_zone=st.sampled_from(ZONES), server_zone=st.sampled_from(ZONES))
def test_every_value_arrives_as_it_was(
    spark: SparkSession, pg: Pg, tmp_path: Path, columns: list[Column], session_zone: str, server_zone: str
) -> None:
    note(f"Spark in {session_zone}, PostgreSQL in {server_zone}")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", session_zone)
    try:
        pipeline = carried(spark, pg, tmp_path / secrets.token_hex(4), columns)
        assert wrong(pg, columns, server_zone) == []
        verification = pipeline.verify()
        assert verification.equal, unequal(pipeline, columns)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    for number, (kind, values) in enumerate(columns):
        # The judge is awake: it sees any row that holds another row's value
        if other := next((row for row, value in enumerate(values) if not _alike(kind, value, values[0])), None):
            swap = f"update target set c{number} = (select c{number} from target where id = {other}) where id = 0"
            with pg.connection.transaction(force_rollback=True):
                pg.query(swap)
                assert [text.split(" ")[0] for text in wrong(pg, columns, server_zone)] == [f"c{number}"]


def _alike(kind: Kind, one: Any, other: Any) -> bool:
    """As the column can tell: jsonb has no sign of zero, and knows numbers by their value."""
    return repr(one) == repr(other) or kind.prints is None


def carried(spark: SparkSession, pg: Pg, folder: Path, columns: list[Column]) -> Pipeline:
    folder.mkdir()
    source = stored(folder / "rows.parquet", columns)
    path = folder / "table"
    listed = ", ".join(f"c{number} {kind.ddl}" for number, (kind, _) in enumerate(columns))
    spark.sql(
        f"create table delta.`{path}` (id bigint, {listed}) using delta"
        " tblproperties (delta.enableChangeDataFeed = true)"
    )
    pg.query("drop table if exists target")
    pg.query("delete from deltarelay.position where target = %s", f"{pg.schema}.target") if _has_position(pg) else None
    for part, options in enumerate([{}, {}, {"small_window_bytes": 0}]):
        spark.sql(f"insert into delta.`{path}` select id + {part * ROWS}, {source}")
        pipeline = Pipeline(ChangeFeed(spark, str(path)), sink_of(pg, **options), key=["id"], name="random")
        pipeline.run()
    return pipeline


def unequal(pipeline: Pipeline, columns: list[Column]) -> list[str]:
    """The columns that ``verify`` takes for different, each with what was stored there."""
    found = []
    rows = pipeline.feed.snapshot()
    for number, (kind, values) in enumerate(columns):
        schema = StructType([rows.schema["id"], rows.schema[f"c{number}"]])
        here = {row[KEY_DIGEST]: row[ROW_DIGEST] for row in digests(rows, schema, ["id"], 1, show_keys=True).collect()}
        with pipeline.sink.image(pipeline.context.describe_source(schema)) as image:  # type: ignore[attr-defined]
            there = {row.key: row.row for row in image.rows(1, [0], show_keys=True)}
        if here != there:
            found.append(f"c{number} {kind.ddl}: {values!r:.2000}")
    return found


def _has_position(pg: Pg) -> bool:
    return pg.query("select to_regclass('deltarelay.position') is not null") == [(True,)]
