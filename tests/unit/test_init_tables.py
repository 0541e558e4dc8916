"""``init 'FOLDER/*'``: one short file for all tables; each key is proposed and checked, and an unknown key must be named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import infra.key_proposal
import infra.scaffold_tables
from cdf.errors import ConfigError, SourceUnavailable, TableNotFound
from infra.cli.main import app
from infra.config.load import load
from infra.scaffold import VARIABLE
from tests.fixtures.setups import delta_table

ENVIRONMENT = {VARIABLE: "postgresql://user:canary-hunter2@127.0.0.1:1/x"}
FILE = Path("deltarelay.yaml")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["init", *words], catch_exceptions=True)


def keys() -> dict[str, tuple[str, ...]]:
    project = load(FILE, environ=ENVIRONMENT)
    return {name: one.source.key for name, one in project.pipelines.items()}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTARELAY_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
def lake(here: Path) -> Path:
    """Three tables with ``id``, one with another key, one whose rows no column identifies, one without a likely column."""
    for name in ("orders", "items", "visits"):
        delta_table(here / "lake" / name, {"id": [1, 2]}, feed=name != "visits")
    delta_table(here / "lake" / "customers")
    delta_table(here / "lake" / "lines", {"order_id": [1, 1], "line": [1, 2]})
    delta_table(here / "lake" / "rates", {"rate": [1.5]})
    return here / "lake"


def test_the_most_frequent_key_is_written_once_and_the_others_below(lake: Path) -> None:
    done = run("lake/*")
    assert done.exit_code == 0
    source = yaml.safe_load(FILE.read_text())["pipelines"]["lake"]["source"]
    assert source == {
        "tables": "./lake/*",
        "key": ["id"],
        "start": "snapshot",
        "overrides": {"lines": {"key": []}, "rates": {"key": []}, "customers": {"key": ["customer_id"]}},
    }
    assert "6 tables: 3 with the key id, 1 with another key, 2 WITHOUT A KEY" in done.output
    assert re.search(r"name their keys in deltarelay.yaml.*: lines, rates\n", done.output)
    assert "the change feed is off: visits)" in done.output
    assert "6 of 6 tables read" in done.stderr


def test_an_unknown_key_is_refused_until_it_is_named_or_its_table_excluded(lake: Path) -> None:
    run("lake/*")
    with pytest.raises(ConfigError) as caught:
        load(FILE, environ=ENVIRONMENT)
    refused = [one["path"] for one in caught.value.fields["errors"]]
    assert refused == [f"pipelines.lake.source.overrides.{table}.key" for table in ("lines", "rates")]
    text = FILE.read_text().replace("lines: {key: []}", "lines: {key: [order_id, line]}")
    text = re.sub(r".*rates: .*\n", "", text).replace("# exclude: [tmp_*]", "exclude: [rates]")
    FILE.write_text(text)
    assert keys() == {
        "lake.customers": ("customer_id",),
        "lake.items": ("id",),
        "lake.lines": ("order_id", "line"),
        "lake.orders": ("id",),
        "lake.visits": ("id",),
    }


def test_what_was_not_checked_is_said(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("lines", "rates"):
        (lake / folder).rename(lake.parent / folder)
    monkeypatch.setattr(infra.key_proposal, "CHECKED_ROWS", 1)
    done = run("lake/*")
    assert keys()["lake.customers"] == ("customer_id",)
    assert "these keys were not checked: customers, items, orders, visits" in done.output
    assert re.search(r"# NOT CHECKED, because more than .* rows; please check:\n", FILE.read_text())


def test_a_key_of_two_columns_is_marked_for_a_check(lake: Path) -> None:
    delta_table(lake / "pairs", {"order_id": [n // 2 for n in range(20)], "line": [n % 2 for n in range(20)]})
    run("lake/*")
    assert "        pairs: {key: [order_id, line]}  # PLEASE CHECK: unique together" in FILE.read_text()


def test_an_empty_table_is_not_checked(here: Path) -> None:
    delta_table(here / "lake" / "a", {"id": [1]})
    delta_table(here / "lake" / "b", {"id": [1]})
    from deltalake import DeltaTable

    DeltaTable(str(here / "lake" / "b")).delete()
    run("lake/*", "--json")
    assert "# NOT CHECKED, because it has no rows; please check:\n      #   b\n" in FILE.read_text()


def test_without_any_likely_key_none_is_written(here: Path) -> None:
    delta_table(here / "lake" / "a", {"rate": [1.5]})
    delta_table(here / "lake" / "b", {"rate": [1.5]})
    done = run("lake/*")
    assert "2 tables: 0 with the key -, 0 with another key, 2 WITHOUT A KEY" in done.output
    with pytest.raises(ConfigError, match=r"pipelines\.lake\.source\.key: needs at least 1 entry"):
        load(FILE, environ=ENVIRONMENT)
    FILE.write_text(FILE.read_text().replace("key: []", "key: [rate]"))
    assert set(keys().values()) == {("rate",)}


def test_a_table_that_cannot_be_read_here_needs_a_key_from_the_user(lake: Path) -> None:
    (lake / "broken" / "_delta_log").mkdir(parents=True)
    (lake / "broken" / "_delta_log" / f"{0:020}.json").write_text("not json")
    assert run("lake/*").exit_code == 0
    assert re.search(r"broken: \{key: \[\]\}  # NAME THE KEY.*: it cannot be read without Spark", FILE.read_text())


def test_storage_that_does_not_answer_writes_no_file(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: str) -> None:
        raise SourceUnavailable(f"{address}: S3 did not answer")

    monkeypatch.setattr(infra.scaffold_tables, "open_source", fail)
    assert isinstance(run("lake/*").exception, SourceUnavailable)
    assert not FILE.exists()


@pytest.mark.parametrize("names", [("Order Items", "2026", "null", "v1.x"), ("a", "A")])
def test_names_that_yaml_or_sql_would_read_otherwise(here: Path, names: tuple[str, ...]) -> None:
    for name in names:
        delta_table(here / "lake" / name, {"id": [1]})
        delta_table(here / "lake" / f"{name}_", {f"{name} id": [1], "nr_id": [1]})
    done = run("lake/*")
    assert done.exit_code == 0, done.exception
    project = load(FILE, environ=ENVIRONMENT)
    for name in names:
        pipeline = project.pipeline(f"lake.{name}")
        assert (pipeline.source.key, pipeline.sink.options.table) == (("id",), f'public."{name}"')  # type: ignore[attr-defined]


def test_folders_whose_names_cannot_be_pipelines_are_excluded_by_name(here: Path) -> None:
    delta_table(here / "lake" / "orders", {"id": [1]})
    for name in ('or"ders', "or$ders", "or[d]ers"):
        (here / "lake" / name / "_delta_log").mkdir(parents=True)
    done = run("lake/*")
    assert 'EXCLUDED because of their names: or"ders, or$ders, or[d]ers' in done.output
    assert keys() == {"lake.orders": ("id",)}


def test_a_folder_of_tables_leads_to_the_pattern(lake: Path) -> None:
    done = run("lake")
    assert isinstance(done.exception, TableNotFound)
    assert done.exception.message == "./lake is not a Delta table, but contains 6 tables"
    assert done.exception.hint == "write one file for all of them: deltarelay init './lake/*'"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("lake/x*", "no Delta table matches lake/x*"),
        ("*/orders", "the pattern may have wildcards in its last part only"),
        ("abfss://c@a.dfs.core.windows.net/x/*", "the pattern must be a local path or an address on S3"),
        ("s3://key:canary-hunter2@bucket/*", "the pattern contains credentials"),
        ("sales.*", "the keys of the tables in the catalog schema sales cannot be proposed without Spark"),
    ],
)
def test_a_pattern_that_cannot_be_listed(lake: Path, pattern: str, message: str) -> None:
    error = run(pattern).exception
    assert isinstance(error, (ConfigError, TableNotFound))
    assert error.message.startswith(message)
    assert error.hint
    assert "canary" not in str(error.to_dict())
    assert not FILE.exists()


def test_a_file_that_is_there_stays_and_no_table_is_read(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text("mine")
    done = run("lake/*")
    assert "already exists" in str(done.exception)
    assert "tables read" not in done.stderr
    assert FILE.read_text() == "mine"
    assert run("lake/*", "--force").exit_code == 0
    assert FILE.read_text() != "mine"


def test_as_json(lake: Path) -> None:
    result = json.loads(run("lake/*", "--json").stdout)["result"]
    assert (result["file"], result["pipeline"], result["pattern"], result["key"]) == (
        "deltarelay.yaml",
        "lake",
        "./lake/*",
        ["id"],
    )
    assert result["tables"][2] == {
        "table": "lines",
        "key": [],
        "key_unique": False,
        "feed_on": True,
        "note": "order_id does not identify its 2 rows, nor does any other likely column",
    }
    assert result["excluded"] == []
