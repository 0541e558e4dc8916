"""A good file becomes a project: values, defaults, paths, and scalars that are not what YAML 1.1 makes of them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cdf.changes.commits import Limits
from cdf.errors import ConfigError
from connectors.postgres.config import PostgresConnection, PostgresOptions
from infra.config.load import load
from infra.config.models import Project, TableSource

FULL = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: "${WAREHOUSE_DSN}"}
pipelines:
  customers:
    source: {table: /data/customers, key: [customer_id], start: earliest}
    sink: {connection: warehouse, table: public.customers, conflicts: refuse}
    window: {max_commits: 7, max_bytes: 64 MiB}
spark:
  master: "local[*]"
  conf: {spark.driver.memory: 2g, spark.sql.adaptive.enabled: true, spark.executor.cores: 4}
jars: [jars/a.jar, /opt/b.jar]
"""
SHORT = """\
version: 1
connections: {w: {kind: postgres, dsn: postgresql://h/db}}
pipelines: {p: {source: {table: TABLE, key: [id]}, sink: {connection: w, table: t}}}
"""
ENVIRON = {"WAREHOUSE_DSN": "postgresql://h/db"}


def read(folder: Path, text: str | bytes) -> Project:
    file = folder / "deltarelay.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(file, environ=ENVIRON)


def test_every_part_of_the_file_arrives(tmp_path: Path) -> None:
    project = read(tmp_path, FULL)
    connection, pipeline = project.connections["warehouse"], project.pipeline("customers")
    assert isinstance(connection.settings, PostgresConnection)
    assert connection.settings.dsn.get_secret_value() == "postgresql://h/db"
    assert pipeline.source == TableSource(table="/data/customers", key=("customer_id",), start="earliest")
    assert pipeline.sink.options == PostgresOptions(table="public.customers", conflicts="refuse")
    assert pipeline.window.limits() == Limits(max_commits=7, max_bytes=64 * 1024 * 1024)
    assert project.spark.master == "local[*]"
    assert project.spark.settings() == {
        "spark.driver.memory": "2g",
        "spark.sql.adaptive.enabled": "true",
        "spark.executor.cores": "4",
    }
    assert project.jars == (tmp_path / "jars/a.jar", Path("/opt/b.jar"))


def test_everything_optional_has_a_default(tmp_path: Path) -> None:
    project = read(tmp_path, SHORT + "spark:\njars:  # nothing yet\n")
    pipeline = project.pipelines["p"]
    assert pipeline.source.start == "snapshot"
    assert pipeline.window.limits() == Limits()
    assert (project.spark.master, project.spark.conf, project.jars) == (None, {}, ())


def test_json_is_read_too_also_with_a_byte_order_mark(tmp_path: Path) -> None:
    data = {
        "version": 1,
        "connections": {"w": {"kind": "postgres", "dsn": "postgresql://h/db"}},
        "pipelines": {
            "p": {
                "source": {"table": "cat.sch.t", "key": ["id"], "start": 5},
                "sink": {"connection": "w", "table": "t"},
            }
        },
    }
    compact, indented = json.dumps(data), json.dumps(data, indent="\t")  # tabs are fine in JSON
    first = read(tmp_path, compact)
    assert first.pipelines["p"].source.start == 5
    assert first == read(tmp_path, b"\xef\xbb\xbf" + compact.encode()) == read(tmp_path, indented)
    assert first == read(tmp_path, indented.replace("\n", "\r\n"))


@pytest.mark.parametrize("word", ["no", "off", "yes", "012", "0x1F", "1_000", "2026-01-01", "12:30:45", "1e", ".inf"])
def test_only_what_json_calls_a_number_or_boolean_is_one(tmp_path: Path, word: str) -> None:
    project = read(tmp_path, SHORT.replace("TABLE", word) + f"spark: {{conf: {{spark.x: {word}}}}}\n")
    assert project.pipelines["p"].source.table == word
    assert project.spark.settings() == {"spark.x": word}


def test_a_leading_zero_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_commits: must be a whole number"):
        read(tmp_path, FULL.replace("max_commits: 7", "max_commits: 012"))


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("data/customers", "{folder}/data/customers"),
        ("./customers", "{folder}/customers"),
        ("../other/c", "{parent}/other/c"),
        (".", "{folder}"),
        ("/data/../c", "/data/../c"),
        ("s3a://bucket/c", "s3a://bucket/c"),
        ("file:/data/c", "file:/data/c"),
        ("abfss://box@account.dfs.core.windows.net/c", "abfss://box@account.dfs.core.windows.net/c"),
        ("main.sales.customers", "main.sales.customers"),
        ("customers", "customers"),
    ],
)
def test_relative_tables_start_at_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, resolved: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    folder.mkdir()
    expected = resolved.format(folder=folder, parent=tmp_path)
    assert read(folder, SHORT.replace("TABLE", written)).pipelines["p"].source.table == expected
    by_relative_path = load(Path("conf") / "deltarelay.yaml", environ={})
    assert by_relative_path.pipelines["p"].source.table == expected


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("snapshot", "snapshot"),
        ("earliest", "earliest"),
        ("0", 0),
        ('"17"', 17),
        ("2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ('"2026-01-31 12:00:00 +02:00"', dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
    ],
)
def test_starts(tmp_path: Path, written: str, start: Any) -> None:
    assert read(tmp_path, FULL.replace("earliest", written)).pipelines["customers"].source.start == start


@pytest.mark.parametrize("written", ["-1", "1.5", "true", "latest", '""', "[1]", "25:00:00Z"])
def test_other_starts_are_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match="start: must be snapshot, earliest, a version"):
        read(tmp_path, FULL.replace("earliest", written))


@pytest.mark.parametrize("written", ["2026-01-31", "2026-01-31T12:00:00", '"2026-01-31 12:00"'])
def test_a_timestamp_without_a_zone_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match="start: has no time zone"):
        read(tmp_path, FULL.replace("earliest", written))


@pytest.mark.parametrize(
    ("written", "size"),
    [("1024", 1024), ("256MB", 256_000_000), ("64 MiB", 2**26), ('"1.5 GiB"', 3 * 2**29), ("10kb", 10_000), ("5 B", 5)],
)
def test_sizes(tmp_path: Path, written: str, size: int) -> None:
    assert read(tmp_path, FULL.replace("64 MiB", written)).pipelines["customers"].window.max_bytes == size


@pytest.mark.parametrize("written", ["0", "-5", "256XB", "MB", "true", "[1]", "1e5", "0.1 B"])
def test_other_sizes_are_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match=r"window\.max_bytes: must be"):
        read(tmp_path, FULL.replace("64 MiB", written))


def test_anchors_may_be_used(tmp_path: Path) -> None:
    text = FULL.replace("[customer_id]", "&key [customer_id]").replace("spark:\n", "x: *key\nspark:\n")
    with pytest.raises(ConfigError, match="x: unknown key"):
        read(tmp_path, text)
    shared = (
        SHORT.replace("[id]", "&name id")
        .replace("key: &name id", "key: [&name id]")
        .replace("table: t}", "table: *name}")
    )
    assert read(tmp_path, shared).pipelines["p"].sink.options == PostgresOptions(table="id")


def test_a_project_is_frozen_pickles_and_builds_its_sinks(tmp_path: Path) -> None:
    project = read(tmp_path, FULL)
    with pytest.raises(ValidationError):
        project.version = 2
    assert pickle.loads(pickle.dumps(project)) == project
    with pytest.raises(ConfigError, match="no pipeline `customer`; did you mean `customers`") as caught:
        project.pipeline("customer")
    assert caught.value.hint == "pipelines in the configuration: customers"
