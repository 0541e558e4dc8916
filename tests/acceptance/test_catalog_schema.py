"""``tables: sales.*``: the Delta tables of a schema in a metastore, which only the session's settings describe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from infra.spark.session_builder import session
from tests.acceptance.commands import Database, Project, pipeline

OWN_JVM = "the catalog is chosen when a JVM starts its first session"


def metastore(folder: Path) -> dict[str, str]:
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }


def create_tables(folder: str) -> None:
    """Runs in a process of its own: Derby lets one process at a time open the metastore."""
    spark = session(conf=metastore(Path(folder)), master="local[1]", log_file=Path(folder) / "create.log")
    feed = "tblproperties (delta.enableChangeDataFeed = true)"
    for statement in (
        "create schema sales",
        f"create table sales.orders (id bigint, name string) using delta {feed}",
        f"create table sales.lines (order_id bigint, line int) using delta {feed}",
        f"create table sales.tmp_orders (id bigint) using delta {feed}",
        "create table sales.plain (id bigint) using parquet",
        "create view sales.recent as select * from sales.orders",
        "insert into sales.orders values (1, 'a'), (2, 'b')",
        "insert into sales.lines values (1, 1), (1, 2)",
        "delete from sales.orders where id = 2",
    ):
        spark.sql(statement)
    spark.stop()


def test_each_delta_table_of_the_schema_is_replicated(project: Project, database: Database) -> None:
    program = "import sys, tests.acceptance.test_catalog_schema as t; t.create_tables(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(project.folder)], check=True, cwd=Path(__file__).parents[2])
    sales: dict[str, Any] = pipeline("", table="public.{name}")
    del sales["source"]["table"]
    sales["source"] |= {
        "tables": "sales.*",
        "exclude": ["tmp_*"],
        "overrides": {"lines": {"key": ["order_id", "line"]}},
    }
    settings = json.dumps({"master": "local[1]", "conf": metastore(project.folder)})
    project.write({"sales": sales}, rest=f"spark: {settings}")

    done = project.run("run", own_jvm=OWN_JVM)
    assert done.code == 0, done.err
    assert database.rows("orders") == [(1, "a")]
    assert database.rows("lines") == [(1, 1), (1, 2)]
    assert not database.exists("public.plain")
    assert not database.exists("public.tmp_orders")
    assert "2 pipelines: 2 copied" in done.out
