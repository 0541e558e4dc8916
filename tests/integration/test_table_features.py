"""Tables with each feature of Delta, into PostgreSQL: copied, changed by every kind of statement, and compared.

The cases are those of docs/reference/table-features.md.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tools.reference.table_features import CASES, Case


def create(spark: SparkSession, path: str, case: Case) -> Table:
    table = Table.at(spark, path)
    columns = ", ".join(filter(None, ("id bigint, v string", case.more)))
    properties = {"enableChangeDataFeed": "true", **case.properties}
    listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    table.sql(f"create table {{t}} ({columns}) using delta {case.clause} tblproperties ({listed})")
    return table


def rows(case: Case, first: int, last: int) -> tuple[str, str]:
    """→ the columns that are written, and a query with their values"""
    values = {"id": "id", "v": "concat('v', id)", **case.values}
    selected = ", ".join(f"{value} as {name}" for name, value in values.items())
    return ", ".join(values), f"select {selected} from range({first}, {last})"


def insert(table: Table, case: Case, first: int, last: int) -> None:
    names, query = rows(case, first, last)
    table.sql(f"insert into {{t}} ({names}) {query}")


def change(table: Table, case: Case) -> None:
    insert(table, case, 20, 25)
    names, query = rows(case, 23, 28)
    table.sql(
        "update {t} set v = 'updated' where id in (3, 4)",
        "delete from {t} where id = 5",
        f"merge into {{t}} t using ({query}) s on t.id = s.id when matched and s.id = 23 then delete "
        "when matched then update set v = 'merged' "
        f"when not matched then insert ({names}) values ({', '.join('s.' + name for name in names.split(', '))})",
    )


def create_by_delta_rs(path: str) -> None:
    write_deltalake(path, _arrow(0, 20), configuration={"delta.enableChangeDataFeed": "true"})


def change_by_delta_rs(path: str) -> None:
    write_deltalake(path, _arrow(20, 25), mode="append")
    table = DeltaTable(path)
    table.update(updates={"v": "'updated'"}, predicate="id in (3, 4)")
    table.delete("id = 5")
    merge = table.merge(_arrow(23, 28), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_delete("s.id = 23").when_matched_update(
        {"v": "'merged'"}
    ).when_not_matched_insert_all().execute()


def _arrow(first: int, last: int) -> pa.Table:
    return pa.table({"id": list(range(first, last)), "v": [f"v{number}" for number in range(first, last)]})


def features_of(spark: SparkSession, path: str) -> set[str]:
    """The features that the table's protocol names or, in older protocols, implies."""
    jvm: Any = spark._jvm
    snapshot = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).update(
        False, jvm.scala.Option.empty(), jvm.scala.Option.empty()
    )
    named = snapshot.protocol().implicitlyAndExplicitlySupportedFeatures()
    found = named.iterator()
    names = set()
    while found.hasNext():
        names.add(found.next().name())
    return names


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_copied_changed_and_equal(spark: SparkSession, delta_path: str, pg: Pg, name: str) -> None:
    case = CASES[name]
    if case.writer == "delta-rs":
        create_by_delta_rs(delta_path)
        table = Table.at(spark, delta_path)
    else:
        table = create(spark, delta_path, case)
        insert(table, case, 0, 20)
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.target")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    first = pipeline.verify()
    assert (first.equal, first.source_rows) == (True, 20)

    if case.writer == "delta-rs":
        change_by_delta_rs(delta_path)
    else:
        change(table, case)
    pipeline.run()
    second = pipeline.verify()
    assert (second.equal, second.source_rows) == (True, 26), json.dumps(second.to_dict(), default=str)
    values = dict(pg.query("select id, v from {schema}.target"))
    assert (values[3], values[24], values[27]) == ("updated", "merged", "v27")
    assert not {5, 23} & set(values)

    if case.later:
        table.sql(*case.later)
        pipeline.run()
        assert pipeline.verify().equal
    assert set(case.features) <= features_of(spark, delta_path)
