"""A machine without PySpark watches pipelines: positions, run history and dead letters are read at the targets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.fixtures.bare import SPARK, run_without
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import opened, people, person


def test_a_target_is_watched_without_pyspark(pg: Pg, tmp_path: Path) -> None:
    table = tmp_path / "people"
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["Ada"]})
    write_deltalake(table, rows, configuration={"delta.enableChangeDataFeed": "true"})
    source = dataclasses.replace(people(), table=str(table), table_id=str(DeltaTable(table).metadata().id))
    with opened(pg, source.source("people")) as sink:
        sink.load(source.snapshot(0, [person(1, "Ada")]))
    write_deltalake(table, rows, mode="append")
    (tmp_path / "deltarelay.yaml").write_text(
        "version: 1\n"
        "connections:\n"
        "  warehouse: {kind: postgres, dsn: '${DSN}'}\n"
        f"  trails: {{kind: delta_audit, path: {tmp_path / 'trails'}}}\n"
        "pipelines:\n"
        "  people:\n"
        f"    source: {{table: {table}, key: [id]}}\n"
        f"    sink: {{connection: warehouse, table: {pg.schema}.target}}\n"
        "  trail:\n"
        f"    source: {{table: {table}, key: [id]}}\n"
        "    sink: {connection: trails, table: trail}\n"
        "erasure:\n"
        f"  state: {{connection: warehouse, schema: {pg.schema}_erasure}}\n"
        f"  keys: {{connection: warehouse, schema: {pg.schema}_keys, root_key: '${{file:{tmp_path / 'root.key'}}}'}}\n"
        f"  signing_key: ${{file:{tmp_path / 'erasure.key'}}}\n"
        "  subjects: {person: {identifiers: {id: exact}}}\n"
        "  tables:\n"
        f"    {table}: {{subject: person, identified_by: id, personal: [name], classes: {{contact: [id, name]}}}}\n"
    )
    commands = [
        ["keys", "new-root", "root.key"],
        ["erase", "keygen", "example.org/erasures", "--out", "erasure.key"],
        ["erase", "init"],
        ["keys", "init"],
        ["keys", "status"],
        ["erase", "status"],
        ["status", "--json"],
        ["runs", "-p", "people", "--json"],
        ["position", "show", "-p", "people", "--json"],
        ["deadletter", "list", "-p", "people", "--json"],
    ]
    done = run_without(SPARK, commands, cwd=tmp_path, environment={"DSN": pg.dsn})
    assert [one.code for one in done] == [0] * len(commands), done
    status, runs, position, letters = (json.loads(one.out)["result"] for one in done[-4:])
    assert [(one["state"], one["position"], one["lag_versions"]) for one in status["pipelines"]] == [
        ("behind", 0, 1),
        ("empty", None, None),
    ]
    assert [(one["kind"], one["rows_in"]) for one in runs["pipelines"][0]["runs"]] == [("load", 1)]
    assert (position["pipelines"][0]["position"], position["pipelines"][0]["table_id"]) == (0, source.table_id)
    assert letters["pipelines"][0]["letters"] == []
