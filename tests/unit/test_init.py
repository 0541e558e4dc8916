"""``init``: the file that it writes is valid as it is, and the key that it proposes has been looked at."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infra.key_proposal
from cdf.errors import ConfigError, TableNotFound
from infra.cli.main import app
from infra.config.load import load
from infra.diagnostics.delta_table import open_source
from infra.key_proposal import propose_key
from infra.scaffold import VARIABLE, scaffold, write_new
from tests.fixtures.setups import delta_table

ENVIRONMENT = {VARIABLE: "postgresql://user:canary-hunter2@127.0.0.1:1/x"}


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["init", *words], catch_exceptions=True)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTARELAY_CONFIG", raising=False)
    return tmp_path


def test_the_file_for_a_table_is_valid_as_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta_table(here / "customers")
    assert run("customers").exit_code == 0
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    validated = CliRunner().invoke(app, ["validate"])
    assert (validated.exit_code, validated.exception) == (0, None)
    project = load("deltarelay.yaml")
    pipeline = project.pipeline("customers")
    assert (pipeline.source.table, pipeline.source.key) == (str(here / "customers"), ("customer_id",))


def test_the_example_without_a_table_is_valid_as_it_is() -> None:
    assert run().exit_code == 0
    assert list(load("deltarelay.yaml", environ=ENVIRONMENT).pipelines) == ["customers"]


def test_without_the_variable_validate_says_which_one() -> None:
    run()
    with pytest.raises(ConfigError, match=f"the environment variable {VARIABLE} is not set"):
        load("deltarelay.yaml", environ={})


def test_what_is_commented_out_is_valid_too() -> None:
    """Somebody will take the marks away."""
    run()
    lines = Path("deltarelay.yaml").read_text().splitlines()
    starts = ("    # window:", "    #   max", "# spark:", "#   master", "#   conf:", "#     spark", "# jars:")
    uncommented = [line.replace("# ", "", 1) if line.startswith(starts) else line for line in lines]
    Path("all.yaml").write_text("\n".join(uncommented))
    project = load("all.yaml", environ=ENVIRONMENT)
    assert project.pipeline("customers").window.max_commits == 500
    assert project.spark.settings() == {"spark.driver.memory": "4g"}
    assert project.jars


def test_the_comments_tell_columns_feed_and_key(here: Path) -> None:
    delta_table(here / "t", {"id": [1, 2], "paid": [dt.date(2026, 1, 1), None], "tags": [["a"], []]}, feed=False)
    done = run("./t")
    text = Path("deltarelay.yaml").read_text()
    for words in ("id    long", "paid  date", "tags  array", "change feed is OFF", "deltarelay feed enable ./t"):
        assert words in text
    assert "id was chosen because it is called id" in text
    assert "unique and never null in the 2 rows" in text
    assert "deltarelay feed enable ./t" in done.output


@pytest.mark.parametrize("words", [(), ("t",)])
def test_a_file_that_is_there_stays(here: Path, words: tuple[str, ...]) -> None:
    delta_table(here / "t")
    Path("deltarelay.yaml").write_text("mine")
    done = run(*words)
    assert isinstance(done.exception, ConfigError)
    assert "already exists" in done.exception.message
    assert "--force" in str(done.exception.hint)
    assert Path("deltarelay.yaml").read_text() == "mine"
    assert run(*words, "--force").exit_code == 0
    assert Path("deltarelay.yaml").read_text() != "mine"


def test_a_place_that_cannot_be_written(here: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_new(here / "not-there" / "x.yaml", "")


def test_a_table_is_named_from_the_files_folder(here: Path) -> None:
    delta_table(here / "data" / "orders", {"order_id": [1]})
    (here / "conf").mkdir()
    assert run("data/orders", "--to", "conf/my.yaml").exit_code == 0
    table = load("conf/my.yaml", environ=ENVIRONMENT).pipeline("orders").source.table
    assert table == str(here / "data" / "orders")


@pytest.mark.parametrize("name", ["no such folder", "main.sales.orders", "./folder"])
def test_what_is_no_table_is_refused_and_nothing_written(here: Path, name: str) -> None:
    (here / "folder").mkdir()
    done = run(name)
    assert isinstance(done.exception, TableNotFound)
    assert done.exception.hint
    assert not Path("deltarelay.yaml").exists()


@pytest.mark.parametrize(
    ("folder", "column"),
    [
        ("2026", "12"),
        ("2026 orders: ${x}", "an id"),
        ("null", "yes: no"),
        ("Ünïcode", "größe_id"),
        ("a'b\"c", 'q"uote_id'),
        ("-", "#"),
    ],
)
def test_names_that_yaml_or_sql_would_read_otherwise(here: Path, folder: str, column: str) -> None:
    delta_table(here / folder, {column: [1, 2]})
    assert run(f"./{folder}").exit_code == 0
    (pipeline,) = load("deltarelay.yaml", environ=ENVIRONMENT).pipelines.values()
    assert (pipeline.source.table, pipeline.source.key) == (str(here / folder), (column,))


def test_credentials_are_not_written_down() -> None:
    done = run("s3://key:canary-hunter2@bucket/table")
    assert isinstance(done.exception, ConfigError)
    assert "credentials" in done.exception.message
    assert "canary" not in str(done.exception.to_dict())
    assert not Path("deltarelay.yaml").exists()


def test_as_json(here: Path) -> None:
    delta_table(here / "customers")
    document = json.loads(run("customers", "--json").output)
    assert document["result"] == {
        "file": "deltarelay.yaml",
        "pipeline": "customers",
        "table": "./customers",
        "key": ["customer_id"],
        "key_unique": True,
        "feed_on": True,
        "columns": ["customer_id", "name"],
        "variable": VARIABLE,
    }


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("columns", "key", "unique"),
    [
        ({"name": ["a", "b"], "id": [1, 2]}, "id", True),
        ({"country_id": [1, 2], "customer_id": [1, 2]}, "customer_id", True),
        ({"country_id": [1, 1], "customer_id": [1, 1], "order_id": [3, 4]}, "order_id", True),
        ({"id": [1, None], "uuid": ["x", "y"]}, "uuid", True),
        ({"CustomerID": ["x", "y"], "n": [1, 2]}, "CustomerID", True),
        ({"id": [1, 1], "name": ["a", "b"]}, "id", False),
        ({"id": [1.5, 2.5], "x_id": [1, 2]}, "x_id", True),
        ({"amount": [1.5, 2.5]}, "amount", None),
    ],
)
def test_the_proposed_key(here: Path, columns: dict[str, list[Any]], key: str, unique: bool | None) -> None:
    proposal = propose_key(open_source(str(delta_table(here / "customers", columns))), "customers")
    assert (proposal.columns, proposal.unique) == ((key,), unique)
    assert proposal.reason


def test_two_columns_that_are_unique_together_only_by_more_than_chance(here: Path) -> None:
    orders, lines = [number // 2 for number in range(20)], [number % 2 for number in range(20)]
    columns: dict[str, list[Any]] = {
        "price": list(range(20)),
        "order_id": orders,
        "line_number": lines,
        "x_id": [1] * 20,
    }
    table = open_source(str(delta_table(here / "lines", columns)))
    proposal = propose_key(table, "lines")
    assert (proposal.columns, proposal.unique, proposal.rows) == (("order_id", "line_number"), True, 20)
    text = scaffold(table, to=here / "x.yaml")[1]
    assert "key: [order_id, line_number]" in text
    assert "# order_id with line_number was chosen because no likely column is unique alone" in text
    few = {name: values[:19] for name, values in columns.items()}
    assert propose_key(open_source(str(delta_table(here / "few", few))), "few").unique is False
    null = {**columns, "line_number": [None, *lines[1:]]}
    assert propose_key(open_source(str(delta_table(here / "null", null))), "null").unique is False


def test_rows_that_were_deleted_do_not_count(here: Path) -> None:
    from deltalake import DeltaTable

    delta_table(here / "t", {"id": [1, 1, 2]})
    DeltaTable(str(here / "t")).delete("id = 1")
    proposal = propose_key(open_source(str(here / "t")), "t")
    assert (proposal.unique, proposal.rows) == (True, 1)


def test_a_large_table_is_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.key_proposal, "CHECKED_ROWS", 1)
    table = open_source(str(delta_table(here / "customers")))
    assert propose_key(table, "customers").unique is None
    assert "was not checked against the rows" in scaffold(table, to=here / "x.yaml")[1]


def test_a_key_that_is_none_is_said_to_be_none(here: Path) -> None:
    table = open_source(str(delta_table(here / "lines", {"order_id": [1, 1], "line": [1, 2]})))
    text = scaffold(table, to=here / "x.yaml")[1]
    assert "does NOT identify the 2 rows" in text


def test_an_empty_table(here: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake("empty", pa.schema([("id", pa.int64())]).empty_table())
    text = scaffold(open_source("./empty"), to=here / "x.yaml")[1]
    assert "The table had no rows to check it." in text
