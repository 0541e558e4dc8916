"""``doctor`` names what is wrong, and nothing else: real set-ups, each broken on purpose in one way."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from cdf.sink import Monitored
from connectors.postgres.sink import PostgresSink
from connectors.postgres.state.migrations import create_missing
from infra.cli.main import app
from infra.diagnostics.doctor import Finding, run_all_checks
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.setups import Setup, delta_table, java_that_says

PASSWORD = "canary-hunter2-4410"


@pytest.fixture
def setup(tmp_path: Path, pg: Pg) -> Setup:
    dsn = pg.dsn if conninfo_to_dict(pg.dsn).get("password") else make_conninfo(pg.dsn, password=PASSWORD)
    return Setup(tmp_path / "setup", dsn, target=f"{pg.schema}.customers")


def findings(setup: Setup) -> list[Finding]:
    _, found = run_all_checks(setup.look(), setup.write())
    password = conninfo_to_dict(setup.dsn)["password"]
    assert str(password) not in str(found)
    return found


def later(**by: float) -> Callable[[], dt.datetime]:
    return lambda: dt.datetime.now(dt.UTC) + dt.timedelta(**by)


def test_a_healthy_set_up(setup: Setup, pg: Pg) -> None:
    setup.write()
    before = sorted(setup.folder.rglob("*"))
    found = findings(setup)
    assert [(one.check, one.state) for one in found if one.state != "ok"] == []
    assert [one.check for one in found] == [
        "java", "python", "packages", "jars", "maven", "temporary_folder", "disk", "config",
        "source", "retention", "target", "clock",
    ]  # fmt: skip
    assert sorted(setup.folder.rglob("*")) == before
    assert pg.query("select count(*) from pg_tables where schemaname = '{schema}'") == [(0,)]


# ── broken on purpose ────────────────────────────────────────────────────────────────────────────────────────────────


def no_java(setup: Setup, pg: Pg) -> None:
    setup.environment["PATH"] = str(setup.folder)


def java_home_is_wrong(setup: Setup, pg: Pg) -> None:
    setup.environment["JAVA_HOME"] = str(setup.folder / "not-there")


def java_8(setup: Setup, pg: Pg) -> None:
    setup.environment["PATH"] = str(java_that_says(setup.folder / "old", "1.8.0_381"))


def another_pair(setup: Setup, pg: Pg) -> None:
    setup.machine["installed"] = {"pyspark": "3.5.9", "delta-spark": metadata.version("delta-spark")}.__getitem__


def pair_without_tests(setup: Setup, pg: Pg) -> None:
    setup.machine["installed"] = {"pyspark": "4.1.1", "delta-spark": metadata.version("delta-spark")}.__getitem__


def jar_is_missing(setup: Setup, pg: Pg) -> None:
    setup.jars = [str(setup.folder / "delta.jar")]


def poisoned_maven(setup: Setup, pg: Pg) -> None:
    shutil.rmtree(setup.ivy)
    setup.conf = {"spark.jars.repositories": "https://registry.example"}  # so that nobody asks the real one
    folder = setup.home / ".m2/repository/io/delta/delta-storage" / metadata.version("delta-spark")
    folder.mkdir(parents=True)
    (folder / f"{folder.parent.name}-{folder.name}.pom").write_text("<project/>")


def temporary_folder_is_gone(setup: Setup, pg: Pg) -> None:
    shutil.rmtree(setup.environment["TMPDIR"])


def disk_is_full(setup: Setup, pg: Pg) -> None:
    setup.machine["free_bytes"] = lambda _folder: 200_000_000


def mistake_in_the_file(setup: Setup, pg: Pg) -> None:
    setup.extra = "piplines: {}"


def source_is_no_delta_table(setup: Setup, pg: Pg) -> None:
    shutil.rmtree(setup.table / "_delta_log")


def feed_is_off(setup: Setup, pg: Pg) -> None:
    shutil.rmtree(setup.table)
    delta_table(setup.table, feed=False)


def key_is_no_column(setup: Setup, pg: Pg) -> None:
    setup.key = "customer"


def feed_files_are_old(setup: Setup, pg: Pg) -> None:
    with pg.connection.transaction():
        create_missing(pg.connection, dead_letters=False)
    pg.query("create table customers (customer_id bigint primary key, name text)")
    pg.query(
        "insert into deltarelay.position (target, pipeline, source, version, holds_rows) "
        "values (%s, 'customers', 'x', 0, false)",
        f"{pg.schema}.customers",
    )
    delta_table(setup.table, mode="append")
    setup.machine["now"] = later(days=10)


def target_is_unreachable(setup: Setup, pg: Pg) -> None:
    setup.environment["WAREHOUSE_DSN"] = make_conninfo(setup.dsn, host="127.0.0.1", port="1")


def target_without_rights(setup: Setup, pg: Pg) -> None:
    role = f"r_{pg.schema}"
    pg.query(f"create role {role} login password '{conninfo_to_dict(setup.dsn)['password']}'")
    setup.environment["WAREHOUSE_DSN"] = make_conninfo(setup.dsn, user=role)


def target_holds_rows_of_others(setup: Setup, pg: Pg) -> None:
    pg.query("create table customers (customer_id bigint primary key, name text)")
    pg.query("insert into customers values (7, 'somebody')")


def clock_is_wrong(setup: Setup, pg: Pg) -> None:
    setup.machine["now"] = later(hours=1)


@dataclass(frozen=True)
class Broken:
    by: Callable[[Setup, Pg], None]
    check: str
    found: str
    fix: str
    state: str = "failed"
    besides: tuple[str, ...] = ()
    """What cannot be well either, and says so."""


BROKEN = [
    Broken(no_java, "java", "Java is not installed", "install Java 17"),
    Broken(java_home_is_wrong, "java", "JAVA_HOME is .*not-there", "set JAVA_HOME"),
    Broken(java_8, "java", r"1\.8\.0_381.* is not supported", "install Java 17"),
    Broken(
        another_pair, "packages", r"pyspark 3\.5\.9.* no jars for Spark 3\.5", r"pyspark==3\.5\.9 delta-spark==3\.3\.3"
    ),
    Broken(
        pair_without_tests,
        "packages",
        r"pyspark 4\.1\.1.* not tested with this pair",
        r"pyspark==4\.1\.1 delta-spark==4\.3\.1",
        state="warning",
    ),
    Broken(jar_is_missing, "jars", "delta.jar does not exist", "name jar files", besides=("maven",)),
    Broken(poisoned_maven, "maven", "a .pom without its jar", "rm -r .*/io/delta/delta-storage", besides=("jars",)),
    Broken(
        temporary_folder_is_gone,
        "temporary_folder",
        "tmp is missing or not writable",
        "set TMPDIR",
        besides=("disk",),
    ),
    Broken(disk_is_full, "disk", r"0\.2 GB free", "more space"),
    Broken(mistake_in_the_file, "config", r"deltarelay.yaml:9:1: piplines: unknown key", "correct the file"),
    Broken(source_is_no_delta_table, "source", "cannot be read as a Delta table", "_delta_log", besides=("retention",)),
    Broken(feed_is_off, "source", "change feed of .* is off", "deltarelay feed enable /", besides=("retention",)),
    Broken(key_is_no_column, "source", "does not have: customer$", "customer_id, name"),
    Broken(
        feed_files_are_old,
        "retention",
        "for 3 days VACUUM has been able to remove",
        "deltarelay run",
        besides=("clock",),
    ),
    Broken(
        target_is_unreachable, "target", "connection refused$", "connections.warehouse", besides=("retention", "clock")
    ),
    Broken(target_without_rights, "target", "may not use schema", "correct this", besides=("retention",)),
    Broken(target_holds_rows_of_others, "target", "did not come from this source", "another target"),
    Broken(clock_is_wrong, "clock", r"3,(?:600|59\d) s ahead of", "NTP", state="warning"),
]


@pytest.fixture
def roles(pg: Pg) -> Iterator[None]:
    yield
    role = f"r_{pg.schema}"
    if pg.query("select from pg_roles where rolname = %s", role):
        pg.query(f"drop role {role}")


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.by.__name__)
def test_a_broken_set_up_is_named_with_its_fix(broken: Broken, setup: Setup, pg: Pg, roles: None) -> None:
    broken.by(setup, pg)
    found = findings(setup)
    named = next(one for one in found if one.check == broken.check)
    assert named.state == broken.state, found
    assert re.search(broken.found, named.found), named
    assert named.fix is not None
    assert re.search(broken.fix, named.fix), named
    others = {one.check for one in found if one.state != "ok"} - {broken.check}
    assert others <= set(broken.besides), [one for one in found if one.check in others]


def test_a_wrong_file_keeps_no_other_check_from_its_turn(setup: Setup, pg: Pg) -> None:
    mistake_in_the_file(setup, pg)
    java_8(setup, pg)
    assert [one.check for one in findings(setup) if one.state == "failed"] == ["java", "config"]


def test_the_targets_clock(pg: Pg) -> None:
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.customers")
    assert isinstance(sink, Monitored)
    before, moment, after = dt.datetime.now(dt.UTC), sink.now(), dt.datetime.now(dt.UTC)
    five = dt.timedelta(seconds=5)
    assert before - five < moment < after + five


# ── validate --connect ───────────────────────────────────────────────────────────────────────────────────────────────


def connected(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    for name, value in setup.environment.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["validate", "--connect", "--json", "--config", str(setup.write())])
    (one,) = json.loads(done.output)["result"]["connected"]
    assert PASSWORD not in done.output
    return done.exit_code, one


def test_validate_connect_tells_what_would_be_done(setup: Setup, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    code, one = connected(setup, monkeypatch)
    assert (code, one["ok"], one["position"], one["latest_version"], one["problems"]) == (0, True, None, 0, [])
    assert any(statement.startswith("create table") and "customer_id" in statement for statement in one["ddl"])
    assert pg.query("select count(*) from pg_tables where schemaname = '{schema}'") == [(0,)]


def test_validate_connect_lists_every_problem(setup: Setup, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    feed_is_off(setup, pg)
    target_holds_rows_of_others(setup, pg)
    code, one = connected(setup, monkeypatch)
    assert (code, one["ok"], one["transient"], len(one["problems"])) == (1, False, False, 2)
    assert "deltarelay feed enable" in one["problems"][0]
