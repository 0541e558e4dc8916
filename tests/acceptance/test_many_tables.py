"""One entry of the file for many tables, several at a time: one that fails stops no other, Ctrl-C stops all, pauses heal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import SIGNALLED, Database, Project, change, create_source, pipeline, source_rows
from tests.fixtures.setups import delta_table

NAMES = ("items", "orders", "returns", "visits")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tables in version 2, and one without the key."""
    folder = tmp_path_factory.mktemp("lake")
    for name in NAMES:
        path = str(folder / name)
        create_source(spark, path)
        change(spark, path, f"insert into {{t}} values (1, '{name}', 1), (2, 'b', 2)", "delete from {t} where id = 2")
    create_source(spark, str(folder / "keyless"), "name string")
    return folder


def sales(lake: Path, pattern: str, **settings: Any) -> dict[str, Any]:
    made = pipeline("", table="public.{name}", **settings)
    del made["source"]["table"]
    made["source"]["tables"] = f"{lake}/{pattern}"
    return made


def test_all_or_one_and_what_fails_stops_no_other(
    project: Project, database: Database, spark: SparkSession, lake: Path
) -> None:
    project.write({"sales": sales(lake, "*")})
    done = project.run("run", "--jobs", "3", "-p", "sales")
    assert done.code == 1, done.err
    for name in NAMES:
        assert database.rows(name) == source_rows(spark, str(lake / name), 2)
        assert f"sales.{name}: copied version 2, 1 rows" in done.err
        assert f"sales.{name}: at version 2 (copied 1 rows;" in done.out
    assert "sales.keyless: error: " in done.err
    assert not database.exists("public.keyless")
    outcomes = [
        line.split()[:2] for line in done.out.splitlines() if line.startswith("sales.") and "at version" not in line
    ]
    assert [name for name, _ in outcomes] == [f"sales.{name}" for name in sorted((*NAMES, "keyless"))]
    assert dict(outcomes) == {**{f"sales.{name}": "copied" for name in NAMES}, "sales.keyless": "failed:"}
    assert "5 pipelines: 4 copied, 1 failed: type_not_supported" in done.out

    done = project.run("run", "-p", "sales.orders", "-p", "sales.visits", "--json")
    assert done.code == 0
    assert [one["pipeline"] for one in done.document["result"]["pipelines"]] == ["sales.orders", "sales.visits"]
    assert [one["windows"] for one in done.document["result"]["pipelines"]] == [0, 0]
    database.no_backends()


@pytest.mark.timeout(600)
def test_one_file_for_many_tables_with_different_keys_needs_one_edit(project: Project, database: Database) -> None:
    """Nine tables with ``id``, two with other keys, one whose key only its owner knows: `init` writes all but the last."""
    lake = project.folder / "lake" / "sales"
    rows: dict[str, dict[str, list[Any]]] = {f"t{number}": {"id": [1, 2], "n": [number, 3]} for number in range(9)}
    rows |= {"customers": {"customer_id": [7, 8]}, "labels": {"uuid": ["a", "b"], "label_id": [1, 1]}}
    rows["lines"] = {"order_id": [1, 1], "line": [1, 2]}
    for name, columns in rows.items():
        delta_table(lake / name, columns)

    done = project.run("init", "lake/sales/*")
    assert done.code == 0, done.err
    assert "12 tables: 9 with the key id, 2 with another key, 1 WITHOUT A KEY" in done.out
    refused = project.run("run")
    assert (refused.code, len(re.findall(r"deltarelay\.yaml:\d+:\d+: ", refused.err))) == (2, 1)
    assert "pipelines.sales.source.overrides.lines.key: has no columns" in refused.err

    project.config.write_text(project.config.read_text().replace("lines: {key: []}", "lines: {key: [order_id, line]}"))
    done = project.run("run")
    assert done.code == 0, done.err
    assert "12 pipelines: 12 copied" in done.out
    for name, columns in rows.items():
        assert sorted(database.query(f"select * from {name}")) == sorted(zip(*columns.values(), strict=True))
    keys = dict(
        database.query(
            "select c.relname, string_agg(a.attname, ',' order by a.attname) from pg_index i join pg_class c on c.oid = "
            "i.indrelid join pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey) where i.indisprimary and "
            "c.relnamespace = 'public'::regnamespace group by 1"
        )
    )
    assert keys == {
        **{f"t{number}": "id" for number in range(9)},
        "customers": "customer_id",
        "labels": "uuid",
        "lines": "line,order_id",
    }


@pytest.mark.timeout(600)
def test_ctrl_c_takes_back_whatever_was_at_work(project: Project, database: Database, lake: Path) -> None:
    project.write({"sales": sales(lake, "[iorv]*", start=0, window={"max_commits": 1})})
    for name in NAMES:
        database.query(f"create table {name} (id bigint primary key, name text, amount numeric(10,2))")
    run = project.start("run", "--jobs", "3", own_jvm=SIGNALLED)
    with database.locked("public.items"), database.locked("public.orders"), database.locked("public.visits"):
        for name in ("items", "orders"):
            run.until(lambda name=name: database.waiting(f"public.{name}"), f"{name} waits")  # type: ignore[misc]
        run.interrupt()
        done = run.done()
    assert done.code == 130
    assert "error: interrupted" in done.err.splitlines()
    assert "Traceback" not in done.err
    database.no_backends()
    assert database.leftovers() == [], "staging is left"
    assert database.query("select target from deltarelay.position where lease_until is not null") == []
    for target, version in database.query("select target, version from deltarelay.position"):
        assert len(database.rows(target)) == {None: 0, 0: 0, 1: 2, 2: 1}[version]


@pytest.mark.timeout(300)
def test_a_restarting_database_is_waited_for(
    project: Project, spark: SparkSession, server_folder: Path, lake: Path
) -> None:
    server = EmbeddedPostgres(server_folder / "restarted")
    server.start()
    dsn, environment = server.dsn, {"WAREHOUSE_DSN": server.dsn}
    project.write({"sales": sales(lake, "[io]*")})
    try:
        server.stop()
        done = project.run("run", "--retry-seconds", "0", "--json", environment=environment)
        assert done.code == 75
        assert "attempt 2" not in done.err
        done = project.run("run", "-p", "sales.items", "--retry-seconds", "1", environment=environment)
        assert done.code == 75
        assert [line.split("; ")[-1].split(" in ")[0] for line in done.err.splitlines() if "; attempt " in line] == [
            f"attempt {number} of 5" for number in (2, 3, 4, 5)
        ]
        run = project.start("run", "--json", environment=environment)
        run.until(lambda: (project.folder / "2.err").read_text().count("; attempt 2 of 5") == 2, "both try again")
        server.start()
        assert server.dsn == dsn
        done = run.done()
        assert done.code == 0, done.err
        again = Database(dsn, "no-password-at-all")
        for name in ("items", "orders"):
            assert again.rows(name) == source_rows(spark, str(lake / name), 2)
            (retries,) = again.query("select retries from deltarelay.runs where target = %s", f"public.{name}")
            assert retries > (0,)
        again.connection.close()
    finally:
        server.close()
