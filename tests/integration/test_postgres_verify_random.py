"""Random damage to a target: ``verify`` reports what a naive comparison of all rows reports, however it groups the rows."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.verify.verify import verify
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import sink_of

ROWS = 300
ROUNDS = 4


@pytest.fixture
def source(spark: SparkSession, delta_path: str, seed: int) -> Table:
    """Rows of which some were deleted, and some keys inserted a second time, with equal and with other values."""
    chance = random.Random(seed)
    table = Table(spark, delta_path, "id long, name string, size double")
    twice, gone = chance.sample(range(100), 6), chance.sample(range(100, ROWS), 60)
    row = "id, case when id % 7 <> 0 then concat('n', id % 11) end as name, id / 4D as size"
    again = ", ".join(map(str, twice))
    table.sql(
        f"insert into {{t}} select {row} from range({ROWS})",
        f"insert into {{t}} select id, if(id % 2 = 0, name, 'again'), size from {{t}} where id in ({again})",
        f"delete from {{t}} where id in ({', '.join(map(str, gone))})",
    )
    return table


@pytest.mark.parametrize("deletes", ["hard", "ignore"])
def test_every_difference_is_reported_with_its_key(
    source: Table, pg: Pg, deletes: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{seed} {deletes}")
    sink = sink_of(pg, modes=Modes(deletes=deletes), conflicts="report")  # type: ignore[arg-type]
    pipeline = Pipeline(ChangeFeed(source.spark, source.path), sink, key=("id",), name="test", start=1)
    pipeline.run()
    pg.query("create table before as table target")
    rows = [tuple(row) for row in source.spark.read.format("delta").load(source.path).collect()]
    for number in range(ROUNDS):
        pg.query("delete from target")
        pg.query("insert into target table before")
        _damage(pg, chance, number)
        there = {row[0]: row for row in pg.query("select id, name, size from target")}
        for size in (1, 20, 1_000):
            monkeypatch.setattr("cdf.verify.verify.ROWS_PER_BUCKET", size)
            monkeypatch.setattr("cdf.verify.verify.ROWS_PER_PARTITION", chance.choice([50, 200_000]))
            found = verify(pipeline.context, show_keys=True, most_examples=10_000)
            expected, kept = _naive(rows, there, keeps_deleted=deletes == "ignore")
            assert {(one.kind, int(one.key.split(":")[1].strip(" }"))) for one in found.examples} == expected
            kinds = Counter(kind for kind, _ in expected)
            assert (found.missing, found.extra) == (kinds["missing"], kinds["extra"])
            assert (found.different, found.duplicate) == (kinds["different"], kinds["duplicate"])
            assert (found.kept, found.equal, found.complete) == (kept, False, True)
            assert (found.source_rows, found.target_rows) == (len(rows), len(there))


def _damage(pg: Pg, chance: random.Random, number: int) -> None:
    """The first round finds the target as the pipeline has left it: only the duplicate keys differ."""
    for _ in range(12 * number):
        id = chance.randrange(ROWS)
        statement = chance.choice(
            [
                "delete from target where id = %s",
                "update target set name = 'theirs' where id = %s",
                "update target set name = null where id = %s",
                "update target set size = -0.0 where id = %s",
                f"insert into target (id) values (%s + {ROWS}) on conflict do nothing",
            ]
        )
        pg.query(statement, id)


def _naive(
    source: list[tuple[object, ...]], target: dict[object, tuple[object, ...]], *, keeps_deleted: bool
) -> tuple[set[tuple[str, object]], int]:
    counts = Counter(row[0] for row in source)
    found = {("duplicate", key) for key, count in counts.items() if count > 1}
    found |= {("missing", key) for key in counts if key not in target}
    found |= {
        ("different", row[0])
        for row in source
        if counts[row[0]] == 1 and row[0] in target and repr(target[row[0]]) != repr(row)
    }
    only_there = target.keys() - counts.keys()
    extra = set() if keeps_deleted else {("extra", key) for key in only_there}
    return found | extra, len(only_there) if keeps_deleted else 0
