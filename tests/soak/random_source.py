"""What the long random tests share: a table that changes at random, and faults."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import psycopg
from pyspark.sql import SparkSession

from tests.fixtures.fix_postgres import Pg


class Source:
    """A keyed table and the ways in which it changes. Keys stay unique; everything else is left to chance."""

    def __init__(self, spark: SparkSession, path: str, chance: random.Random) -> None:
        self.spark, self.chance, self.name = spark, chance, f"delta.`{path}`"
        vectors = chance.choice(["true", "false"])
        spark.sql(
            f"create table {self.name} (a int, b string, v string, n decimal(12,2), t timestamp) using delta"
            f" tblproperties (delta.enableChangeDataFeed=true, delta.enableDeletionVectors={vectors})"
        )
        self.columns = 0
        self.first_to_restore = 1
        self.insert()

    def change(self) -> str:
        kinds: list[Callable[[], None]] = [
            self.insert, self.insert, self.update, self.update, self.delete, self.delete,
            self.swap_keys, self.reinsert, self.overwrite, self.restore, self.optimize, self.no_op, self.add_column,
        ]  # fmt: skip
        kind = self.chance.choice(kinds)
        kind()
        return kind.__name__

    def _new(self, keys: str) -> str:
        extra = "".join(f", null as x{number}" for number in range(self.columns))
        salt = self.chance.randrange(10**6)
        return (
            f"select a, b, concat('v', a, '-', {salt}) as v, cast(a * 1.25 as decimal(12,2)) as n,"
            f" timestamp_micros({salt}L * 1000003 + a) as t{extra} from {keys}"
        )

    def insert(self) -> None:
        count = self.chance.choice([1, 3, 40, 400])
        low = self.chance.randrange(10**8)
        keys = f"(select cast({low} + id as int) as a, concat('b', id % 3) as b from range({count}))"
        self.spark.sql(
            f"insert into {self.name} select s.* from ({self._new(keys)}) s"
            f" left anti join {self.name} t on s.a = t.a and s.b = t.b"
        )

    def _some(self) -> str:
        return f"a % {self.chance.choice([2, 3, 7, 50])} = {self.chance.randrange(3)}"

    def update(self) -> None:
        self.spark.sql(f"update {self.name} set v = concat(v, '~'), n = n + 0.01 where {self._some()}")

    def delete(self) -> None:
        self.spark.sql(f"delete from {self.name} where {self._some()} and a % 11 = {self.chance.randrange(11)}")

    def no_op(self) -> None:
        self.spark.sql(f"update {self.name} set v = v where {self._some()}")

    def swap_keys(self) -> None:
        """Two keys change places in one commit: b0 and b1 of the same a, where both are there, or one moves."""
        self.spark.sql(
            f"update {self.name} set b = case b when 'b0' then 'b1' when 'b1' then 'b0' else b end where {self._some()}"
        )

    def reinsert(self) -> None:
        """Deleted in one commit and put again in the next."""
        some = self._some()
        rows = self.spark.sql(f"select * from {self.name} where {some} limit 5").localCheckpoint()
        rows.createOrReplaceTempView("kept")
        self.spark.sql(f"merge into {self.name} t using kept s on t.a = s.a and t.b = s.b when matched then delete")
        self.spark.sql(f"insert into {self.name} select * from kept")
        self.spark.catalog.dropTempView("kept")

    def overwrite(self) -> None:
        rows = self.spark.sql(f"select * from {self.name} where a % 5 <> {self.chance.randrange(5)}").localCheckpoint()
        rows.createOrReplaceTempView("r")
        self.spark.sql(f"insert overwrite {self.name} select * from r")
        self.spark.catalog.dropTempView("r")

    def latest(self) -> int:
        found = self.spark.sql(f"describe history {self.name} limit 1").first()
        assert found is not None
        return int(found["version"])

    def restore(self) -> None:
        latest = self.latest()
        back = self.chance.randint(max(self.first_to_restore, latest - 4), latest)
        self.spark.sql(f"restore table {self.name} to version as of {back}")

    def optimize(self) -> None:
        self.spark.sql(f"optimize {self.name}")

    def add_column(self) -> None:
        if self.columns < 2:
            self.spark.sql(f"alter table {self.name} add column x{self.columns} string")
            self.columns += 1
            self.first_to_restore = self.latest()  # back to before it would be a dropped column, which is refused


CUT = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where application_name like 'deltarelay%' and pid <> pg_backend_pid() and random() < 0.5"
)


def disturb(dsn: str, stop: threading.Event, chance: random.Random) -> None:
    """Cut connections of the runner at random moments."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not stop.wait(chance.uniform(0.05, 0.6)):
            connection.execute(CUT)


def assert_equal_rows(spark: SparkSession, pg: Pg, source: Source, told: str) -> None:
    """Every value, by plain queries on both sides."""
    others = ", ".join(name for name in spark.table(source.name).columns if name != "t")
    target = pg.query(f"select {others}, (extract(epoch from t) * 1000000)::bigint from {{schema}}.soak")
    expected = [tuple(row) for row in spark.sql(f"select {others}, unix_micros(t) from {source.name}").collect()]
    assert sorted(target, key=repr) == sorted(expected, key=repr), told
