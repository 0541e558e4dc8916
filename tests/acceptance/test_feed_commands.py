"""``deltarelay feed``: on a table alone, without any configuration file or database."""

from __future__ import annotations

import csv
import io
import json

from pyspark.sql import SparkSession

from tests.acceptance.commands import Project, change

ENVELOPE = {"version", "command", "ok", "exit_code", "result"}
ENABLED = {"table", "since_version", "changed", "warnings"}
STATUS = {
    "table", "location", "table_id", "enabled", "since_version", "earliest_version", "latest_version", "latest_timestamp",
    "gaps", "deleted_file_retention", "log_retention", "notes",
}  # fmt: skip
METADATA = ["_change_type", "_commit_version", "_commit_timestamp"]


def test_enable_status_show(project: Project, spark: SparkSession, delta_path: str) -> None:
    change(
        spark,
        delta_path,
        "create table {t} (id bigint, name string, tags array<string>, amount decimal(20,2)) using delta",
        "insert into {t} values (1, 'one', array('a', 'b'), 12345678901234567.25), (2, 'né, \"two\"', null, null)",
    )
    done = project.run("feed", "enable", delta_path, "--json")
    assert done.code == 0, done.err
    assert set(done.document) == ENVELOPE
    assert done.document["command"] == "feed enable"
    assert set(done.document["result"]) == ENABLED
    assert (done.document["result"]["since_version"], done.document["result"]["changed"]) == (2, True)

    change(spark, delta_path, "update {t} set name = 'ONE' where id = 1", "delete from {t} where id = 2")
    done = project.run("feed", "status", delta_path, "--json")
    assert done.code == 0, done.err
    status = done.document["result"]
    assert set(status) == STATUS
    assert (status["enabled"], status["since_version"], status["earliest_version"]) == (True, 2, 2)
    assert (status["latest_version"], status["gaps"]) == (4, [])
    assert status["latest_timestamp"].endswith("Z")

    done = project.run("feed", "show", delta_path, "--from", "2", "--format", "json")
    assert done.code == 0, done.err
    assert done.err == "starting Spark …\n"
    assert set(done.document) == ENVELOPE
    shown = done.document["result"]
    assert set(shown) == {"columns", "changes", "more"}
    assert shown["columns"] == ["id", "name", "tags", "amount", *METADATA]
    assert [(one["_commit_version"], one["_change_type"], one["id"], one["name"]) for one in shown["changes"]] == [
        (3, "update_preimage", 1, "one"),
        (3, "update_postimage", 1, "ONE"),
        (4, "delete", 2, 'né, "two"'),
    ]
    assert (shown["changes"][0]["tags"], shown["changes"][0]["amount"]) == (["a", "b"], "12345678901234567.25")
    assert shown["more"] is False

    done = project.run("feed", "show", delta_path, "--from", "2", "--to", "4", "--format", "csv", "--limit", "1")
    assert done.code == 0, done.err
    header, row = csv.reader(io.StringIO(done.out))
    assert header == ["id", "name", "tags", "amount", *METADATA]
    assert (row[:2], json.loads(row[2]), row[4:6]) == (["1", "one"], ["a", "b"], ["update_preimage", "3"])
    assert done.err.splitlines()[-1].startswith("only the first 1 changes are shown")

    done = project.run("feed", "show", delta_path, "--from", "4")
    assert done.code == 0, done.err
    header, row = done.out.splitlines()
    assert header.split() == ["id", "name", "tags", "amount", *METADATA]
    assert row.split()[:6] == ["2", "né,", '"two"', "NULL", "NULL", "delete"]


def test_show_of_versions_without_a_feed(project: Project, spark: SparkSession, delta_path: str) -> None:
    """An error is one JSON document too, whichever way JSON was asked for."""
    change(spark, delta_path, "create table {t} (id bigint) using delta", "insert into {t} values (1)")
    done = project.run("feed", "show", delta_path, "--from", "0", "--format", "json")
    assert done.code == 1
    assert set(done.document) == ENVELOPE - {"result"} | {"error"}
    assert done.document["error"]["code"] == "feed_not_enabled"
    assert "error: " in done.err
