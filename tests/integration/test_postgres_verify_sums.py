"""The sums of row hashes and the comparison by bucket have the same outcome, whatever was changed in the target."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.verify import equality, verify
from connectors.postgres.options import Modes
from connectors.postgres.verify.image import PostgresImage
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_seed import examples
from tests.integration.delta_table import Table
from tests.integration.postgres_case import sink_of
from tests.integration.random_types import plain_kinds
from tests.integration.test_postgres_random_types import ROWS, Column, carried

EDITS = 6


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What each comparison of sums has found: the number of equal rows, or None."""
    found: list[int | None] = []
    usual = equality.count_if_equal

    def count(*arguments: Any) -> int | None:
        found.append(usual(*arguments))
        return found[-1]

    monkeypatch.setattr(verify, "count_if_equal", count)
    return found


def by_bucket(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        patch.setattr(verify, "count_if_equal", lambda *_: None)
        return pipeline.verify().equal


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    kinds = [kind for kind in draw(plain_kinds()) if "char(" not in kind.ddl]
    return [Column(kind, draw(st.lists(kind.values, min_size=ROWS - 3, max_size=ROWS))) for kind in kinds]


def edit(pg: Pg, columns: list[Column], chance: random.Random) -> None:
    """Change the target a little, or not at all."""
    name = f"c{chance.randrange(len(columns))}"
    one, other = chance.sample(range(ROWS * 3), 2)
    others = ", ".join(f"c{number}" for number in range(len(columns)))
    chance.choice(
        [
            lambda: pg.query(f"update target set {name} = null where id = {one}"),
            lambda: pg.query(
                f"update target set {name} = (select {name} from target where id = {other}) where id = {one}"
            ),
            lambda: pg.query(
                f"update target t set {name} = o.{name} from target o"
                f" where t.id in ({one}, {other}) and o.id = {one + other} - t.id"
            ),
            lambda: pg.query(f"delete from target where id = {one}"),
            lambda: pg.query(f"insert into target (id, {others}) select 999, {others} from target where id = {one}"),
            lambda: pg.query(f"delete from target where id = {one}; insert into target table before limit 0"),
            lambda: pg.query(f"update target set id = 1000 - id where id in ({one}, {other})"),
            lambda: _smallest_edit(pg, columns, chance, one),
        ]
    )()


def _smallest_edit(pg: Pg, columns: list[Column], chance: random.Random, row: int) -> None:
    number, (kind, _) = chance.choice(list(enumerate(columns)))
    value = {
        "boolean": "not {}",
        "string": "coalesce({}, '') || ' '",
        "binary": r"coalesce({}, '') || '\x00'",
        "float": "case when {} = 0 then '-0'::real else 0 end",
        "double": "case when {} = 0 then '-0'::float8 else 'NaN' end",
        "timestamp": "{} - interval '1 microsecond'",
        "timestamp_ntz": "{} + interval '1 microsecond'",
        "date": "date '2024-02-29'",
    }.get(kind.ddl, "-{} / 2")
    pg.query(f"update target set c{number} = {value.format(f'c{number}')} where id = {row}")


# How Hypothesis prints a strategy that it draws from once more, which takes a deep one
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(max_examples=examples(1), phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(columns=tables(), chance=st.randoms(use_true_random=False))
def test_both_ways_agree(
    spark: SparkSession,
    pg: Pg,
    tmp_path: Path,
    shown: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
    columns: list[Column],
    chance: random.Random,
) -> None:
    pipeline = carried(spark, pg, tmp_path / f"{chance.getrandbits(32):x}", columns)
    pg.query("drop table if exists before; create table before as table target")
    assert pipeline.verify().equal
    assert shown.pop() == 3 * ROWS
    for _ in range(EDITS):
        edit(pg, columns, chance)
        found = pipeline.verify()
        # Without equal sums, the comparison by bucket has just answered
        assert found.equal == (shown.pop() is not None)
        assert not found.equal or by_bucket(pipeline, monkeypatch)
        pg.query("delete from target; insert into target table before")
    assert pipeline.verify().equal
    assert shown.pop() == 3 * ROWS


# ── which tables ─────────────────────────────────────────────────────────────────────────────────────────────────────


def replica(table: Table, pg: Pg, **options: Any) -> Pipeline:
    pipeline = Pipeline(ChangeFeed(table.spark, table.path), sink_of(pg, **options), key="id", start=1, name="test")
    pipeline.run()
    return pipeline


def filled(spark: SparkSession, path: str, **properties: str) -> Table:
    table = Table(spark, path, "id long, name string, size double", **properties)
    table.sql("insert into {t} select id, concat('n', id), id / 4D from range(30)", "delete from {t} where id < 3")
    return table


@pytest.mark.parametrize(
    "properties",
    [{}, {"columnMapping.mode": "name"}, {"enableDeletionVectors": "true"}],
    ids=["plain", "mapped", "marked"],
)
def test_rows_of_each_kind_of_table(
    spark: SparkSession, pg: Pg, delta_path: str, shown: list[int | None], properties: dict[str, str]
) -> None:
    pipeline = replica(filled(spark, delta_path, **properties), pg)
    found = pipeline.verify()
    assert (found.equal, found.source_rows, found.target_rows, found.buckets, found.differing_buckets) == (
        (True, 27, 27, 1, 0)
    )
    pg.query("update target set size = -0.0 where id = 4")
    assert pipeline.verify().different == 1
    assert shown == [27, None]


def test_an_empty_table(spark: SparkSession, pg: Pg, delta_path: str, shown: list[int | None]) -> None:
    table = filled(spark, delta_path)
    pipeline = replica(table, pg)
    table.sql("delete from {t}")
    pipeline.run()
    found = pipeline.verify()
    assert (found.equal, found.source_rows, found.target_rows, found.buckets) == (True, 0, 0, 1)
    assert shown == [0]


@pytest.mark.parametrize("deletes", ["soft", "ignore"])
def test_rows_that_stay(spark: SparkSession, pg: Pg, delta_path: str, shown: list[int | None], deletes: Any) -> None:
    """Marked rows are left out; where the target keeps them, sums would show nothing."""
    table = filled(spark, delta_path)
    pipeline = replica(table, pg, modes=Modes(deletes=deletes))
    table.sql("delete from {t} where id > 20")
    pipeline.run()
    found = pipeline.verify()
    assert (found.equal, found.source_rows) == (True, 18)
    assert shown == [18 if deletes == "soft" else None]


def test_columns_of_another_type_are_compared_by_their_values(
    spark: SparkSession, pg: Pg, delta_path: str, shown: list[int | None]
) -> None:
    pipeline = replica(filled(spark, delta_path), pg)
    pg.query("alter table target alter name type varchar(20)")
    assert pipeline.verify().equal
    assert shown == [None]


def _raise(*_: Any) -> Any:
    raise ValueError("no hash")


def test_a_failure_in_the_tasks_leaves_the_comparison_to_the_buckets(
    spark: SparkSession, pg: Pg, delta_path: str, shown: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = replica(filled(spark, delta_path), pg)
    failing: Callable[..., Any] = _raise
    monkeypatch.setattr(equality, "_sum_source", failing)
    assert pipeline.verify().equal
    assert shown == [None]
    monkeypatch.undo()
    pg.query("delete from target where id = 7")
    assert pipeline.verify().missing == 1


@pytest.mark.parametrize("early", [True, False], ids=["before it begins", "while it runs"])
def test_an_interrupt_ends_the_query_of_the_target(
    spark: SparkSession, pg: Pg, delta_path: str, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    pipeline = replica(filled(spark, delta_path), pg)
    running = "select count(*) from pg_stat_activity where query like 'select pg_sleep(57)' and state = 'active'"

    def interrupt(*_: Any) -> Any:
        while not early and pg.query(running) == [(0,)]:
            time.sleep(0.05)
        raise KeyboardInterrupt

    def sleep(image: PostgresImage, _: object) -> Any:
        time.sleep(0.5 if early else 0)
        return image._execute(sql.SQL("select pg_sleep(57)").format())

    monkeypatch.setattr(equality, "_sum_source", interrupt)
    monkeypatch.setattr(PostgresImage, "_sum_hashes", sleep)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pipeline.verify()
    assert time.monotonic() - began < 50
    assert pg.query(running) == [(0,)]
