"""``tables:`` makes a pipeline of each Delta table that a pattern meets; what is wrong with that is told where it stands."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from cdf.errors import ConfigError
from connectors.postgres.config import PostgresOptions
from infra.cli.project import select_pipelines
from infra.config.load import load
from infra.config.models import Project, describe

SALES = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: postgresql://h/db}
pipelines:
  first:
    source: {table: /data/first, key: [id]}
    sink: {connection: warehouse, table: public.first}
  sales:
    source: {tables: "lake/*", key: [id], start: 3}
    sink: {connection: warehouse, table: "sales.{name}", conflicts: refuse}
    window: {max_commits: 7}
"""


def make_tables(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name / "_delta_log").mkdir(parents=True)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    make_tables(folder, "orders", "items", ".hidden", "_staging")
    (folder / "plain").mkdir()
    (folder / "file").write_text("")
    return folder


def read(folder: Path, text: str, **options: Any) -> Project:
    file = folder / "deltarelay.yaml"
    file.write_text(text)
    return load(file, environ={"SCHEMA": "from_env"}, **options)


def refusal(folder: Path, text: str) -> list[tuple[int, int, str, str]]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return [(one["line"], one["column"], one["path"], one["message"]) for one in caught.value.fields["errors"]]


def test_each_table_becomes_a_pipeline_with_everything_else_alike(tmp_path: Path, lake: Path) -> None:
    project = read(tmp_path, SALES)
    assert list(project.pipelines) == ["first", "sales.items", "sales.orders"]
    orders = project.pipeline("sales.orders")
    assert (orders.source.table, orders.source.tables) == (str(lake / "orders"), "lake/*")
    assert (orders.source.key, orders.source.start, orders.window.max_commits) == (("id",), 3, 7)
    assert orders.sink.options == PostgresOptions(table="sales.orders", conflicts="refuse")
    assert describe(project)["pipelines"]["sales.items"]["sink"]["table"] == "sales.items"
    assert pickle.loads(pickle.dumps(project)) == project


def test_a_name_means_one_or_all(tmp_path: Path, lake: Path) -> None:
    project = read(tmp_path, SALES)
    assert select_pipelines(project, None) == ["first", "sales.items", "sales.orders"]
    assert select_pipelines(project, ["sales"]) == ["sales.items", "sales.orders"]
    assert select_pipelines(project, ["sales.orders", "first"]) == ["first", "sales.orders"]
    with pytest.raises(ConfigError, match=r"no pipeline `sales\.order`; did you mean `sales\.orders`"):
        select_pipelines(project, ["sales.order"])
    with pytest.raises(ConfigError, match="no pipeline `sale`"):
        select_pipelines(project, ["sale"])
    with pytest.raises(ConfigError, match="`sales` selects 2 tables") as caught:
        project.pipeline("sales")
    assert caught.value.hint == "name one of them: sales.items, sales.orders"


@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        ("lake/o*", ["orders"]),
        ("./lake/*", ["items", "orders"]),
        ("lake/[io]*s", ["items", "orders"]),
        ("lake/orde?s/", ["orders"]),
        ("lake/_*", ["_staging"]),
    ],
)
def test_patterns(tmp_path: Path, lake: Path, pattern: str, met: list[str]) -> None:
    project = read(tmp_path, SALES.replace("lake/*", pattern))
    assert list(project.pipelines) == ["first", *(f"sales.{name}" for name in met)]


def test_names_that_sql_reads_otherwise_are_put_in_quotes_by_the_file(tmp_path: Path) -> None:
    make_tables(tmp_path / "lake", "Order Items", "v1.orders")
    quoted = SALES.replace('"sales.{name}"', "'${SCHEMA}.\"{name}\"'")
    tables = [one.sink.options.table for one in read(tmp_path, quoted).pipelines.values()]  # type: ignore[attr-defined]
    assert tables == ["public.first", 'from_env."Order Items"', 'from_env."v1.orders"']
    found = refusal(tmp_path, SALES)
    assert [one[:3] for one in found] == [(10, 42, "pipelines.sales.sink.table")] * 2
    assert [one[3].split(": must")[0] for one in found] == ["for the table Order Items", "for the table v1.orders"]


def test_a_pattern_without_a_table_is_a_problem(tmp_path: Path, lake: Path) -> None:
    text = SALES.replace("lake/*", "lake/p*")
    assert refusal(tmp_path, text) == [(9, 22, "pipelines.sales.source.tables", f"no Delta table matches {lake}/p*")]
    text = SALES.replace("lake/*", "no/such/*")
    message = f"the folder {tmp_path}/no/such cannot be listed (no such file or directory)"
    assert refusal(tmp_path, text) == [(9, 22, "pipelines.sales.source.tables", message)]


def test_nothing_outside_of_the_file_is_looked_at_unless_wanted(tmp_path: Path) -> None:
    project = read(tmp_path, SALES, look_for_tables=False)
    assert project.pipeline("sales").source.table == f"{tmp_path}/lake/*"


def test_the_tables_of_a_catalog_schema_are_listed_by_the_callers_spark(tmp_path: Path) -> None:
    text = SALES.replace("lake/*", "spark_catalog.sales.*").replace(
        "start: 3}", "start: 3, exclude: [tmp], overrides: {lines: {key: [order_id, line]}}}"
    )
    asked: list[str] = []

    def list_schema(project: Project, pattern: str) -> list[str]:
        asked.append(pattern)
        return [f"spark_catalog.sales.{name}" for name in ("lines", "orders", "tmp")]

    project = read(tmp_path, text, list_schema=list_schema)
    assert asked == ["spark_catalog.sales.*"]
    found = {name: (one.source.table, one.source.key) for name, one in project.pipelines.items() if name != "first"}
    assert found == {
        "sales.lines": ("spark_catalog.sales.lines", ("order_id", "line")),
        "sales.orders": ("spark_catalog.sales.orders", ("id",)),
    }
    assert project.pipeline("sales.orders").sink.options.table == "sales.orders"  # type: ignore[attr-defined]
    assert read(tmp_path, text).pipeline("sales").source.table == "spark_catalog.sales.*"

    with pytest.raises(ConfigError, match=r"no Delta table matches spark_catalog\.sales\.\*"):
        read(tmp_path, text, list_schema=lambda *_: [])


def test_two_tables_for_one_target_are_told_with_both(tmp_path: Path, lake: Path) -> None:
    make_tables(lake, "Orders")
    (line, column, path, message), *more = refusal(tmp_path, SALES)
    assert (line, column, path, more) == (10, 5, "pipelines.sales.sink", [])
    assert message == "orders: writes the same target as the pipeline sales.Orders in line 10"
    text = SALES.replace("lake/*", "lake/o*").replace("public.first", "SALES.Orders")
    ((line, column, path, message),) = refusal(tmp_path, text)
    assert (line, path) == (10, "pipelines.sales.sink")
    assert message == "orders: writes the same target as the pipeline first in line 7"


def test_two_patterns_may_have_targets_of_one_form(tmp_path: Path, lake: Path) -> None:
    make_tables(tmp_path / "other", "returns")
    second = SALES.split("pipelines:\n")[1].split("  sales:\n")[1].replace("lake/*", "other/*")
    project = read(tmp_path, SALES + "  more:\n" + second)
    assert list(project.pipelines)[-1] == "more.returns"


@pytest.mark.parametrize(
    ("before", "after", "where", "message"),
    [
        ('"lake/*"', '"lake/*", table: b', (9, 14, "source.tables"), "is set beside `table`; set only one of the two"),
        ('"lake/*"', "lake", (9, 22, "source.tables"), "must be a path or a URL that ends in a pattern"),
        ('"lake/*"', "lake/orders", (9, 22, "source.tables"), "has no wildcard in its last part"),
        (
            '"lake/*"',
            '"s*.orders"',
            (9, 22, "source.tables"),
            "may have wildcards in its last part only",
        ),
        ('"lake/*"', '"*/orders"', (9, 22, "source.tables"), "may have wildcards in its last part only"),
        ('"lake/*"', '"**/*"', (9, 22, "source.tables"), "may have wildcards in its last part only"),
        ('"lake/*"', '"abfss://x@y/z/*"', (9, 22, "source.tables"), "must be a local path or an address on S3"),
        ('"lake/*"', '"s3a://k:s@b/*"', (9, 22, "source.tables"), "contains credentials"),
        ('"lake/*"', "12", (9, 22, "source.tables"), "must be text"),
        ("{name}", "name", (10, 5, "sink"), "does not contain {name}, so that all tables would have one target"),
        ("sales.{name}", "a.b.{name}", (10, 42, "sink.table"), "must have at most two parts"),
    ],
)
def test_mistakes_are_told_where_they_stand(
    tmp_path: Path, lake: Path, before: str, after: str, where: tuple[int, int, str], message: str
) -> None:
    found = refusal(tmp_path, SALES.replace(before, after))
    line, column, path = where
    assert [(one[:3], one[3].startswith(message)) for one in found] == [
        ((line, column, f"pipelines.sales.{path}"), True)
    ]


def test_a_folder_whose_name_cannot_be_a_name_is_told(tmp_path: Path, lake: Path) -> None:
    make_tables(lake, 'or"ders')
    ((line, column, path, message),) = refusal(tmp_path, SALES)
    assert (line, column, path) == (9, 22, "pipelines.sales.source.tables")
    assert message.startswith(f'matches {lake}/or"ders: the name of a table may consist of')


# ── tables that differ ───────────────────────────────────────────────────────────────────────────────────────────────

OVERRIDDEN = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: postgresql://h/db}
pipelines:
  sales:
    source:
      tables: "lake/*"
      key: [id]
      exclude: [scratch, tmp_*]
      overrides:
        orders: {key: [order_id, line], start: earliest, sink: {table: "{name}_old", conflicts: report}}
        items: {window: {max_commits: 3}}
    sink: {connection: warehouse, table: "sales.{name}", conflicts: refuse}
    window: {max_commits: 7, max_bytes: 10}
"""


def test_a_table_may_differ_in_any_setting_and_all_others_stay_alike(tmp_path: Path, lake: Path) -> None:
    make_tables(lake, "visits", "tmp_1", "tmp_2", "scratch")
    project = read(tmp_path, OVERRIDDEN)
    assert list(project.pipelines) == ["sales.items", "sales.orders", "sales.visits"]
    items, orders, visits = project.pipelines.values()
    assert (orders.source.key, orders.source.start) == (("order_id", "line"), "earliest")
    assert orders.sink.options == PostgresOptions(table="orders_old", conflicts="report")
    assert orders.window == visits.window
    assert (visits.source.key, visits.source.start) == (("id",), "snapshot")
    assert visits.sink.options == PostgresOptions(table="sales.visits", conflicts="refuse")
    assert (items.window.max_commits, items.window.max_bytes) == (3, 10)
    assert (items.source.key, items.sink.options) == (("id",), PostgresOptions(table="sales.items", conflicts="refuse"))
    described = describe(project)["pipelines"]["sales.orders"]["source"]
    assert described["key"] == ["order_id", "line"]
    assert not {"exclude", "overrides"} & set(described), "the settings of other tables are not repeated for each"


@pytest.mark.parametrize(
    ("before", "after", "where", "message"),
    [
        (
            "orders: {",
            "order: {",
            (11, 9, "source.overrides.order"),
            "is not a table that matches LAKE/*; did you mean `orders`?",
        ),
        (
            "[scratch,",
            "[orders,",
            (11, 9, "source.overrides.orders"),
            "is left out by `exclude`; remove it from one of the two",
        ),
        ("[scratch, tmp_*]", '["*"]', (9, 7, "source.exclude"), "leaves out every table that matches LAKE/*"),
        (
            "[order_id, line]",
            "[]",
            (11, 23, "source.overrides.orders.key"),
            "has no columns: name those that identify a row, or move the table to `exclude`",
        ),
        (
            "key: [order_id, line],",
            "key: ,",
            (11, 18, "source.overrides.orders.key"),
            "has no columns: name those that identify a row, or move the table to `exclude`",
        ),
        ("[order_id, line]", "[a, A]", (11, 23, "source.overrides.orders.key"), "lists a column twice"),
        ("start: e", "starts: e", (11, 41, "source.overrides.orders.starts"), "unknown key; did you mean `start`?"),
        (
            "conflicts: report",
            "conflict: report",
            (11, 86, "source.overrides.orders.sink.conflict"),
            "unknown key; did you mean `conflicts`?",
        ),
        (
            "{name}_old",
            "a.b.{name}",
            (11, 72, "source.overrides.orders.sink.table"),
            "for the table orders: must have at most two parts",
        ),
        (
            "conflicts: report",
            "connection: w2",
            (11, 86, "source.overrides.orders.sink.connection"),
            "cannot differ between the tables of one pipeline",
        ),
        (
            "{name}_old",
            "sales.items",
            (13, 5, "sink"),
            "orders: writes the same target as the pipeline sales.items in line 13",
        ),
    ],
)
def test_a_mistake_in_the_settings_of_one_table_is_reported_at_its_place(
    tmp_path: Path, lake: Path, before: str, after: str, where: tuple[int, int, str], message: str
) -> None:
    assert before in OVERRIDDEN
    found = refusal(tmp_path, OVERRIDDEN.replace(before, after, 1))
    line, column, path = where
    message = message.replace("LAKE", str(lake))
    assert [(one[:3], one[3].startswith(message)) for one in found] == [
        ((line, column, f"pipelines.sales.{path}"), True)
    ], found


def test_an_override_of_a_table_among_hundreds_does_not_list_them_all(tmp_path: Path, lake: Path) -> None:
    make_tables(lake, *(f"visits_{number}" for number in range(30)))
    ((_, _, _, message),) = refusal(tmp_path, OVERRIDDEN.replace("items: {", "xyz: {"))
    assert message == f"is not a table that matches {lake}/*"


def test_exclude_and_overrides_need_a_pattern(tmp_path: Path, lake: Path) -> None:
    found = refusal(tmp_path, OVERRIDDEN.replace('tables: "lake/*"', "table: lake/orders").replace("{name}", "x"))
    assert [(line, path.rsplit(".", 1)[1], message) for line, _, path, message in found] == [
        (9, "exclude", "has no effect without `tables`; remove it"),
        (10, "overrides", "has no effect without `tables`; remove it"),
    ]


def test_an_excluded_name_that_is_gone_stops_nothing_but_is_logged(
    tmp_path: Path, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A typing error there would replicate a table that was to be left out."""
    assert list(read(tmp_path, OVERRIDDEN).pipelines) == ["sales.items", "sales.orders"]
    (record,) = caplog.records
    fields = record.__dict__
    assert (fields["excluded"], fields["at"]) == ("scratch", f"{tmp_path}/deltarelay.yaml:9:17")


def test_secrets_in_the_options_of_one_table_are_known_as_such(tmp_path: Path) -> None:
    from infra.config.known_keys import list_keys

    data = {
        "connections": {"w": {"kind": "postgres"}},
        "pipelines": {"s": {"source": {"overrides": {"o": {"sink": {}}}}, "sink": {"connection": "w"}}},
    }
    path = ("pipelines", "s", "source", "overrides", "o", "sink")
    assert list_keys(data, path) == list_keys(data, ("pipelines", "s", "sink"))
    assert "conflicts" in list_keys(data, path)
