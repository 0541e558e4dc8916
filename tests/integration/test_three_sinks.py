"""One table into all three sinks, and compared with each: the short proof that a pair of Spark and Delta works."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from audit.audit_trail import Trail
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.kafka import Cluster, KafkaSink
from connectors.postgres import PostgresSink
from connectors.postgres.column_mapping import Columns
from tests.fixtures.fix_kafka import Kafka
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table

COLUMNS = (
    "id long, name string, price decimal(12,2), ratio double, at timestamp, clock timestamp_ntz, day date,"
    " small array<float>, tags map<string,string>, place struct<x: double, y: array<int>>, raw binary"
)
ROW = (
    "id, concat('näm', id), id / 8, if(id = 3, double('NaN'), id / 3), timestamp_micros(id * 1234567891),"
    " timestamp_ntz'2024-03-10 02:30:00.123456', date'1582-10-14', array(float(0.1), null, float('NaN'), float(id)),"
    " map('k', concat('v', id)), struct(id / 7, array(int(id))), cast(concat('r', id) as binary)"
)
ARRAYS = Columns(native_arrays=True)
CHANGES = (
    "update {t} set name = 'x', small = array(float(3.4E38)) where id in (1, 2)",
    "delete from {t} where id = 4",
    "merge into {t} using (select 5 as k union all select 50) s on id = k"
    " when matched then update set ratio = -0.0 when not matched then insert (id, name) values (k, 'new')",
    "optimize {t}",
)


def test_copy_insert_update_delete_and_merge_reach_all_three_sinks(
    spark: SparkSession, delta_path: str, pg: Pg, kafka: Kafka, tmp_path: Path
) -> None:
    table = Table(spark, delta_path, COLUMNS)
    table.sql(f"insert into {{t}} select {ROW} from range(40)")
    trail = str(tmp_path / "trail")
    topic = kafka.topic()
    sinks = {
        "driver": PostgresSink(pg.dsn, table=f"{pg.schema}.driver", columns=ARRAYS),
        "tasks": PostgresSink(pg.dsn, table=f"{pg.schema}.tasks", columns=ARRAYS, small_window_bytes=0),
        "topic": KafkaSink(Cluster(kafka.bootstrap), topic=topic, lanes=3, position_topic=f"{kafka.prefix}-positions"),
        "trail": DeltaAuditSink(trail, spark=spark),
    }
    pipelines = {
        name: Pipeline(ChangeFeed(spark, delta_path), sink, key=("id",), name=name) for name, sink in sinks.items()
    }
    for pipeline in pipelines.values():
        pipeline.run()
    table.sql(*CHANGES, f"insert into {{t}} select {ROW} from range(60, 70)")
    for name, pipeline in pipelines.items():
        done = pipeline.run()
        assert (done.position, done.inserts, done.deletes) == (6, 11, 1), name
        if name != "trail":
            compared = pipeline.verify()
            assert (compared.equal, compared.source_rows) == (True, 50), (name, compared)
    pg.query("update driver set small = '{0.1,NULL,NaN,8}' where id = 6")
    assert not pipelines["driver"].verify().equal, "a comparison that finds no difference shows nothing"
    found, _ = Trail(spark, trail).verify()
    assert (found.intact, found.events) == (True, 40 + 2 * 2 + 1 + 3 + 10)
