"""The walk of a user: validate, plan, run, status, verify. What each prints, writes and exits with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.errors import TableNotFound
from connectors.postgres.sink import PostgresSink
from infra.diagnostics.delta_table import open_source
from tests.acceptance.commands import Database, Done, Project, change, create_source, pipeline, source_rows

TARGET = "public.customers"
SOURCE_LAST = 5

ENVELOPE = {"version", "command", "ok", "exit_code", "result"}
PLAN = {
    "ok", "pipeline", "table", "position", "last_version", "load_version", "load_rows", "windows", "ddl", "problems",
    "warnings",
}  # fmt: skip
WINDOW = {"first", "last", "commits", "change_bytes", "changes", "net", "conflicts", "columns", "way", "stopped"}
RUN = {
    "ok", "pipeline", "table", "position", "latest_version", "loaded_rows", "windows", "inserts", "updates", "deletes",
    "conflicts", "rejected", "copies", "ddl", "seconds",
}  # fmt: skip
CONFLICTS = {"insert_met_row", "update_met_none", "delete_met_none", "within_window"}
VERIFY = {
    "ok", "pipeline", "table", "version", "source_rows", "target_rows", "equal", "missing", "extra", "different",
    "duplicate", "set_aside", "kept", "complete", "buckets", "differing_buckets", "examples", "seconds",
}  # fmt: skip
STATUS = {
    "pipeline", "source", "state", "position", "latest_version", "lag_versions", "lag_seconds", "feed_files_days", "code",
    "error", "hint", "transient", "last", "note", "controls", "succeeded_at", "moved_at", "has_runner", "dead_letters",
    "incidents", "unread",
}  # fmt: skip
FAILED = {"ok", "pipeline", "error"}
ERROR = {"code", "message", "hint", "condition", "transient"}


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that no test changes."""
    path = str(tmp_path_factory.mktemp("source") / "table")
    create_source(spark, path)
    change(
        spark,
        path,
        "insert into {t} select id, concat('n', id), id / 4 from range(20)",
        "update {t} set name = 'changed' where id < 4",
        "delete from {t} where id >= 18",
        "insert into {t} values (100, 'late', null)",
        "alter table {t} set tblproperties ('team' = 'sales')",
    )
    return path


def fill(spark: SparkSession, database: Database, path: str, *, table: str = TARGET, until: int = SOURCE_LAST) -> None:
    """Bring a target to a version without a process of its own."""
    sink = PostgresSink(database.dsn, table=table)
    Pipeline(ChangeFeed(spark, path), sink, key=["id"], start=1, limits=Limits(max_commits=1)).run(until)


def check_quiet(done: Done, *pipelines: str) -> None:
    """Nothing of Spark's own talk: stderr holds our lines alone."""
    ours = tuple(f"{name}: " for name in pipelines)
    assert [line for line in done.err.splitlines() if not line.startswith(("starting Spark", *ours))] == []


def check_failed(entry: dict[str, Any], code: str) -> None:
    assert set(entry) == FAILED
    assert set(entry["error"]) - {"fields"} == ERROR
    assert (entry["ok"], entry["error"]["code"]) == (False, code)
    assert entry["error"]["hint"]


# ── plan and run ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plan_tells_everything_and_writes_nothing(
    project: Project, database: Database, source: str, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "part-0.parquet").write_bytes(b"")
    project.write(
        {
            "customers": pipeline(source, start=1, window={"max_commits": 2}),
            "absent": pipeline(str(tmp_path / "absent"), table="public.absent"),
            "not_delta": pipeline(str(plain), table="public.plain"),
        }
    )
    done = project.run("plan", "--json")

    assert done.code == 1
    assert set(done.document) == ENVELOPE
    assert (done.document["version"], done.document["command"], done.document["ok"]) == (1, "plan", False)
    plan = done.pipeline("customers")
    assert set(plan) == PLAN
    assert (plan["ok"], plan["position"], plan["load_version"], plan["load_rows"]) == (True, None, 1, 20)
    assert [set(window) for window in plan["windows"]] == [WINDOW, WINDOW]
    first, second = plan["windows"]
    assert (first["first"], first["last"], first["commits"]) == (2, 3, 2)
    assert first["changes"] == {"delete": 2, "update_postimage": 4, "update_preimage": 4}
    assert first["net"] == {"delete": 2, "update": 4}
    assert (second["changes"], second["net"]) == ({"insert": 1}, {"insert": 1})
    assert any("create table" in statement for statement in plan["ddl"])
    check_failed(done.pipeline("absent"), "table_not_found")
    check_failed(done.pipeline("not_delta"), "table_not_found")
    check_quiet(done, "absent", "not_delta")

    made = database.query("select nspname from pg_namespace where nspname = 'deltarelay'") + database.query(
        "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where nspname = 'public'"
    )
    assert made == [], "plan has made something"


def test_plan_of_a_target_that_is_behind(
    project: Project, database: Database, spark: SparkSession, source: str
) -> None:
    """In the environment of a user, too: Spark fetches the jars, or finds them where it put them before."""
    fill(spark, database, source, until=2)
    project.write({"customers": pipeline(source)})
    done = project.run("plan", environment={"DELTARELAY_JARS": None, "JAVA_TOOL_OPTIONS": None})

    assert done.code == 0, done.err
    assert "target is at version 2, would advance to version 5" in done.out
    assert re.search(r"^3\.\.5 +3 +\d+ +2 delete, 1 insert +2 delete, 1 insert *$", done.out, re.MULTILINE), done.out
    assert database.position() == 2
    check_quiet(done)


def test_run_goes_on_where_another_pipeline_fails(
    project: Project, database: Database, spark: SparkSession, source: str, tmp_path: Path
) -> None:
    doubled = str(tmp_path / "doubled")
    create_source(spark, doubled)
    change(spark, doubled, "insert into {t} values (987654, 'once', 1), (987654, 'twice', 1)")
    project.write(
        {
            "absent": pipeline(str(tmp_path / "absent"), table="public.absent"),
            "doubled": pipeline(doubled, start=0, table="public.doubled"),
            "customers": pipeline(source, start=1, window={"max_commits": 1}),
        }
    )
    done = project.run("run", "--until", "3", "--json")

    assert done.code == 1, "two pipelines failed"
    assert set(done.document) == ENVELOPE
    check_failed(done.pipeline("absent"), "table_not_found")
    check_failed(done.pipeline("doubled"), "key_violation")
    assert "987654" not in done.out + done.err, "a key is shown"
    result = done.pipeline("customers")
    assert set(result) == RUN
    assert set(result["conflicts"]) == CONFLICTS
    told = {name: result[name] for name in ("ok", "position", "latest_version", "loaded_rows", "windows")}
    assert told == {"ok": True, "position": 3, "latest_version": 3, "loaded_rows": 20, "windows": 2}
    assert (result["inserts"], result["updates"], result["deletes"]) == (0, 4, 2)
    check_quiet(done, "absent", "customers", "doubled")
    assert database.position() == 3
    assert database.rows(TARGET) == source_rows(spark, source, 3)

    done = project.run("run", "-p", "customers", "--debug")
    assert done.code == 0, done.err
    assert re.fullmatch(
        r"customers: at version 5 \(2 windows: 1 inserts, 0 updates, 0 deletes; \d+\.\d s\)\n", done.out
    ), "stdout is the summary alone"
    lines = done.err.splitlines()
    assert [line.split(" (")[0] for line in lines if line.startswith("customers: version")] == [
        "customers: version 4: 1 inserts, 0 updates, 0 deletes",
        "customers: version 5: 0 inserts, 0 updates, 0 deletes",
    ]
    [log] = [line.removeprefix("Spark's log: ") for line in lines if line.startswith("Spark's log: ")]
    assert Path(log).exists(), "--debug keeps Spark's log and says where"
    assert database.rows(TARGET) == source_rows(spark, source, 5)
    assert database.leftovers() == []


# ── verify ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_verify_finds_every_difference(project: Project, database: Database, spark: SparkSession, source: str) -> None:
    for table in ("public.good", "public.bad"):
        fill(spark, database, source, table=table)
    database.query("update public.bad set name = 'other' where id = 7")
    database.query("delete from public.bad where id = 8")
    database.query("insert into public.bad (id) values (987654)")
    project.write(
        {
            "good": pipeline(source, table="public.good"),
            "bad": pipeline(source, table="public.bad"),
            "new": pipeline(source, table="public.new"),
        }
    )
    done = project.run("verify", "-p", "good", "-p", "bad", "--json")
    assert done.code == 3
    assert set(done.document) == ENVELOPE
    good, bad = done.pipeline("good"), done.pipeline("bad")
    assert set(good) == set(bad) == VERIFY
    assert (good["ok"], good["equal"], good["version"], good["target_rows"], good["examples"]) == (
        True,
        True,
        5,
        19,
        [],
    )
    assert (bad["ok"], bad["equal"]) == (False, False)
    assert (bad["missing"], bad["extra"], bad["different"], bad["complete"]) == (1, 1, 1, True)
    assert [one["kind"] for one in bad["examples"]] == ["different", "extra", "missing"]
    assert all(re.fullmatch("[0-9a-f]{32}", one["key"]) for one in bad["examples"]), "keys are hashed"
    check_quiet(done)

    done = project.run("verify", "-p", "bad", "--show-keys")
    assert done.code == 3
    assert (
        "DIFFERENT at version 5: 1 missing, 1 extra, 1 different (19 rows in the source, 19 in the target)" in done.out
    )
    shown = dict(line.split(maxsplit=1) for line in done.out.splitlines()[2:])
    assert {kind: json.loads(key) for kind, key in shown.items()} == {
        "different": {"id": 7},
        "extra": {"id": 987654},
        "missing": {"id": 8},
    }
    assert "987654" not in done.err

    done = project.run("verify", "-p", "good", "-p", "new")
    assert done.code == 1, "one comparison could not be made"
    assert re.match(r"good: equal at version 5, 19 rows \(\d+\.\d s\)\n", done.out)
    assert "new:   help: run `deltarelay run --pipeline new`" in done.err.splitlines()


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────────

NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


def test_status_needs_no_java(project: Project, database: Database, spark: SparkSession, source: str) -> None:
    project.write({"customers": pipeline(source)})

    def status() -> dict[str, Any]:
        done = project.run("status", "--json", environment=NO_JAVA)
        assert done.code == 0, done.err
        assert done.err == ""
        assert set(done.document) == ENVELOPE
        assert set(done.pipeline("customers")) == STATUS
        return done.pipeline("customers")

    empty = status()
    assert (empty["state"], empty["position"], empty["latest_version"]) == ("empty", None, 5)
    assert not database.exists("deltarelay.position")

    fill(spark, database, source, until=2)
    behind = status()
    assert (behind["state"], behind["position"], behind["latest_version"], behind["lag_versions"]) == (
        "behind",
        2,
        5,
        3,
    )
    assert behind["lag_seconds"] > 0
    assert 6 < behind["feed_files_days"] <= 7

    fill(spark, database, source)
    done = status()
    assert (done["state"], done["position"], done["lag_versions"], done["lag_seconds"]) == ("up_to_date", 5, 0, 0)
    assert done["feed_files_days"] is None

    shown = project.run("status", environment=NO_JAVA)
    header, row = shown.out.splitlines()
    assert header.split()[:4] == ["pipeline", "state", "position", "latest"]
    assert row.split() == ["customers", "up", "to", "date", "5", "5", "0", "0", "-"]


def test_status_of_what_cannot_be_looked_at(project: Project, source: str, spark: SparkSession, tmp_path: Path) -> None:
    closed = "  closed: {kind: postgres, dsn: '${CLOSED_DSN}'}"
    environment = {**NO_JAVA, "CLOSED_DSN": f"postgresql://me:{project.database.password}@127.0.0.1:1/x"}
    project.write(
        {
            "absent": pipeline(str(tmp_path / "absent"), table="public.absent"),
            "off": pipeline(str(tmp_path / "off"), table="public.off"),
            "unreachable": pipeline(source, connection="closed"),
        },
        connections=closed,
    )
    spark.sql(f"create table delta.`{tmp_path / 'off'}` (id bigint) using delta")
    done = project.run("status", "--json", environment=environment)
    assert done.code == 1
    assert (done.pipeline("off")["state"], done.pipeline("off")["code"]) == ("failed", "feed_not_enabled")
    assert (done.pipeline("absent")["state"], done.pipeline("absent")["code"]) == ("failed", "table_not_found")
    unreachable = done.pipeline("unreachable")
    assert (unreachable["state"], unreachable["code"], unreachable["transient"]) == (
        "unreachable",
        "sink_unavailable",
        True,
    )
    assert unreachable["error"].startswith("cannot connect to PostgreSQL at 127.0.0.1:1 for ")
    assert unreachable["error"].endswith(": connection refused")
    assert project.run("status", "-p", "unreachable", environment=environment).code == 75


def test_what_only_spark_can_look_up_is_not_called_well(project: Project, source: str, tmp_path: Path) -> None:
    """A catalog name, and a path that delta-rs decodes: refused by one command and all well in another, once."""
    encoded = tmp_path / "a%20b"
    shutil.copytree(source, encoded)
    project.write(
        {
            "named": pipeline("lake.orders", table="public.named"),
            "encoded": pipeline(str(encoded), table="public.encoded"),
        }
    )
    done = project.run("validate", "--connect", environment=NO_JAVA)
    assert done.code == 0, done.err
    assert "named: NOT CHECKED" in done.out
    assert "lake.orders is a catalog name (check it with `deltarelay plan`, which starts Spark)" in done.out
    assert "encoded: NOT CHECKED" in done.out
    assert re.search(
        r"a%20b has a percent sign .* which delta-rs always decodes \(check it with `deltarelay plan`", done.out
    )
    done = project.run("doctor")
    assert "no problems found\n" not in done.out
    assert re.search(r"\d+ checks: (no problems found, \d+ skipped|.* warning)", done.out)
    with pytest.raises(TableNotFound, match="delta-rs always decodes"):
        open_source(str(encoded))
    # Should delta-rs learn to leave such a path alone, this fails, and the exception for it can go
    with pytest.raises(DeltaError, match="File not found"):
        DeltaTable(str(encoded))


# ── validate ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_validate(project: Project, source: str) -> None:
    project.write({"customers": pipeline(source)})
    done = project.run("validate", environment=NO_JAVA)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "deltarelay.yaml is valid: 1 pipeline, 1 connection"

    done = project.run("validate", "--json")
    assert set(done.document) == ENVELOPE
    assert set(done.document["result"]) == {"version", "storage", "connections", "pipelines", "spark", "jars"}
    assert done.document["result"]["connections"] == {"warehouse": {"kind": "postgres", "dsn": "***"}}

    done = project.run("validate", "--schema")
    assert json.loads(done.out)["type"] == "object"


def test_validate_tells_every_mistake_with_its_place(project: Project) -> None:
    project.config.write_text(
        "version: 1\n"
        "connections:\n"
        "  warehouse: {kind: postgres, dsn: '${WAREHOUSE_DSN}'}\n"
        "pipelines:\n"
        "  customers:\n"
        "    source: {table: /data/customers, kee: [id]}\n"
        "    sink: {connection: warehouze, table: public.customers}\n"
    )
    done = project.run("validate", "--json")
    assert done.code == 2
    assert set(done.document) == ENVELOPE - {"result"} | {"error"}
    places = {(one["line"], one["column"]) for one in done.document["error"]["fields"]["errors"]}
    assert {(6, 38), (7, 24)} <= places, places
    assert "deltarelay.yaml:6:38: " in done.err
    assert "deltarelay.yaml:7:24: " in done.err
    assert "did you mean `warehouse`?" in done.err


# ── what is refused, and how ─────────────────────────────────────────────────────────────────────────────────────────


def test_refused_before_spark_is_started(project: Project, source: str, tmp_path: Path) -> None:
    missing = project.run("run", "--json")
    assert missing.code == 2
    assert missing.document["error"]["message"] == "deltarelay.yaml: the file does not exist"
    assert "deltarelay init" in missing.document["error"]["hint"]

    project.write({"customers": pipeline(source)})
    unknown = project.run("run", "--pipeline", "custmers")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.splitlines() == [
        "error: no pipeline `custmers`; did you mean `customers`?",
        "  help: pipelines in the configuration: customers",
        "  code: config",
    ]

    no_jar = project.run("run", "--debug", environment={"DELTARELAY_JARS": str(tmp_path / "delta.jar")})
    assert (no_jar.code, no_jar.out) == (2, "")
    assert f"error: DELTARELAY_JARS: {tmp_path}/delta.jar does not exist" in no_jar.err.splitlines()
    assert "  help: name jar files, or one folder with all of them" in no_jar.err

    wrong = project.run("run", "--untill", "3")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--until" in wrong.err


def test_an_unreachable_database_is_worth_another_try(project: Project, source: str) -> None:
    """The password is in the dsn, --debug prints every trace, and Project.run looks for it."""
    closed = f"postgresql://me:{project.database.password}@127.0.0.1:1/x"
    project.write({"customers": pipeline(source)})
    done = project.run("run", "--json", "--debug", "--retry-seconds", "1", environment={"WAREHOUSE_DSN": closed})
    assert done.code == 75
    assert "attempt 5 of 5 in 0.5 s" in done.err
    assert done.document["exit_code"] == 75
    check_failed(done.pipeline("customers"), "sink_unavailable")
    assert done.pipeline("customers")["error"]["transient"]
    assert "Traceback" in done.err


# ── help ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

HEAVY = {
    "pyspark", "delta", "pandas", "pyarrow", "boto3", "botocore", "psycopg", "adbc_driver_postgresql",
    "deltalake", "starlette", "ruamel",
}  # fmt: skip
LOADED = """\
import sys
from infra.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as leaving:
    print(leaving.code, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        "",
        "init",
        "validate",
        "doctor",
        "plan",
        "run",
        "status",
        "verify",
        "demo",
        "feed",
        "feed enable",
        "feed status",
        "feed show",
        "runs",
        "jars",
        "jars list",
        "jars check",
        "jars fetch",
    ],
)
def test_help_loads_nothing_heavy(project: Project, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words.split(), "--help"],
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    assert "Usage: " in done.stdout
    assert HEAVY & set(modules) == set()


def test_validate_loads_no_driver(project: Project, source: str) -> None:
    project.write({"customers": pipeline(source)})
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "validate", "--config", str(project.config)],
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert HEAVY & set(done.stderr.split()) == {"ruamel"}
