"""What people write today to bring a change feed into PostgreSQL, in its plain form.

A streaming query with ``foreachBatch``: the latest change per key, then either Spark's JDBC writer into a staging table and
one MERGE, or ``executemany``. One commit per micro-batch. Neither knows where it stands in the target, neither is exactly
once, neither follows a schema change: they are held against ours for speed alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from benchmarks.lab import Lab
from benchmarks.postgres_state import COLUMNS, TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["copy_by_jdbc", "jdbc_and_merge", "executemany"]

JDBC_ROWS = 10_000
"""The ``batchsize``; with ``reWriteBatchedInserts`` 1,000 and 10,000 are within the noise of each other."""
_SET = ", ".join(f"{name} = {{0}}.{name}" for name in COLUMNS[1:])


def jdbc_options(lab: Lab, database: str) -> dict[str, str]:
    address = lab.address(database).split("@", 1)[1]
    return {
        "url": f"jdbc:postgresql://{address}?user=postgres&reWriteBatchedInserts=true",
        "driver": "org.postgresql.Driver",
        "batchsize": str(JDBC_ROWS),
    }


def copy_by_jdbc(lab: Lab, path: str, database: str) -> None:
    """A whole table by Spark's JDBC writer, which makes the target; then its key."""
    rows = lab.spark.read.format("delta").option("versionAsOf", 0).load(path)
    rows.write.format("jdbc").options(**jdbc_options(lab, database), dbtable=TABLE).mode("error").save()
    with psycopg.connect(lab.address(database)) as connection:
        connection.execute(f"alter table {TABLE} add primary key (id)")


def jdbc_and_merge(lab: Lab, path: str, database: str) -> None:
    options = jdbc_options(lab, database)
    merge = (
        f"merge into {TABLE} t using staging s on t.id = s.id when matched and s._change_type = 'delete' then delete"
        f" when matched then update set {_SET.format('s')} when not matched and s._change_type <> 'delete' then"
        f" insert ({', '.join(COLUMNS)}) values ({', '.join(f's.{name}' for name in COLUMNS)})"
    )

    def apply(batch: DataFrame, _number: int) -> None:
        rows = _latest(batch).write.format("jdbc").options(**options, dbtable="staging", truncate="true")
        rows.mode("overwrite").save()
        with psycopg.connect(lab.address(database)) as connection:
            connection.execute(merge)

    _follow(lab, path, apply)


def executemany(lab: Lab, path: str, database: str) -> None:
    upsert = (
        f"insert into {TABLE} ({', '.join(COLUMNS)}) values ({', '.join(['%s'] * len(COLUMNS))})"
        f" on conflict (id) do update set {_SET.format('excluded')}"
    )

    def apply(batch: DataFrame, _number: int) -> None:
        rows = _latest(batch).collect()
        with psycopg.connect(lab.address(database)) as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"delete from {TABLE} where id = %s", [[row["id"]] for row in rows if row["_change_type"] == "delete"]
            )
            cursor.executemany(upsert, [row[:-1] for row in rows if row["_change_type"] != "delete"])

    _follow(lab, path, apply)


def _latest(batch: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    newest = Window.partitionBy("id").orderBy(F.col("_commit_version").desc())
    changes = batch.where("_change_type <> 'update_preimage'").withColumn("place", F.row_number().over(newest))
    return changes.where("place = 1").select(*COLUMNS, "_change_type")


def _follow(lab: Lab, path: str, apply: Callable[[DataFrame, int], None]) -> None:
    # One file: a commit that has change files of its own is never divided, so this is one commit
    feed = lab.spark.readStream.format("delta").option("readChangeFeed", "true").option("maxFilesPerTrigger", 1)
    with tempfile.TemporaryDirectory(dir=lab.folder) as checkpoint:
        query = (
            feed.option("startingVersion", 1)
            .load(path)
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
