"""``deltarelay upgrade`` shows what is pending in each schema of a configuration, and runs it once it is confirmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from audit.encryption.key_registry import Registry
from audit.encryption.root_keys import FileRoot
from audit.erasure.register.store import Register
from audit.migrations import Migration
from audit.signing.signer import Signer
from cdf.errors import CdfError
from connectors.postgres import PostgresSink
from connectors.postgres.state import migrations
from infra.cli.commands import upgrade as command
from infra.cli.main import main
from tests.acceptance.commands import Database
from tests.integration.postgres_case import people

CONFIG = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: "${WAREHOUSE_DSN}"}
  unused: {kind: postgres, dsn: "host=127.0.0.1 port=9"}
  trails: {kind: delta_audit, path: trails}
pipelines:
  customers:
    source: {table: customers, key: [customer_id]}
    sink: {connection: warehouse, table: public.customers}
  orders:
    source: {table: orders, key: [id]}
    sink: {connection: warehouse, table: public.orders}
  trail:
    source: {table: customers, key: [customer_id]}
    sink: {connection: trails, table: customers}
erasure:
  state: {connection: warehouse}
  keys: {connection: warehouse, root_key: "${file:root.key}"}
  signing_key: "${file:erasure.key}"
  subjects: {customer: {identifiers: {customer_id: exact}}}
  tables: {customers: {subject: customer, identified_by: customer_id}}
"""
NAMES = ["the state of the pipelines deltarelay", "the erasure register erasure", "the key registry keys"]
NOTE = "alter table deltarelay.position add column note text"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def schemas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["result"]["schemas"]
        return found


Command = Callable[..., Done]


@pytest.fixture
def upgrade(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    def run(*words: str) -> Done:
        with pytest.raises(SystemExit) as left:
            main(["upgrade", *words])
        return Done(int(left.value.code or 0), *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAREHOUSE_DSN", database.dsn)
    Path("deltarelay.yaml").write_text(CONFIG)
    Path("trails").mkdir()
    Signer.generate("example.org/erasure").write(tmp_path / "erasure.key")
    FileRoot.generate().write(tmp_path / "root.key")
    return run


@pytest.fixture
def state_0_1(upgrade: Command, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three schemas, without recorded versions; this release has another migration of the first one."""
    sink = PostgresSink(database.dsn, table="customers")
    sink.open(people().source())
    sink.close()
    Register(database.dsn).prepare()
    Registry(database.dsn, FileRoot.parse(Path("root.key").read_text()), schema="keys").prepare()
    for schema in ("deltarelay", "erasure", "keys"):
        database.query(f"drop table {schema}.schema_version")
    database.query("drop table erasure.register, erasure.carrier")
    newer = replace(
        migrations.STATE, migrations=[*migrations.STATE.migrations, Migration("note", {"position.note": NOTE})]
    )
    monkeypatch.setattr(migrations, "STATE", newer)


def schemas(database: Database) -> list[str]:
    names = database.query(
        "select nspname from pg_namespace where nspname in ('deltarelay', 'erasure', 'keys') order by 1"
    )
    return [name for (name,) in names]


def test_what_does_not_exist_is_not_created(upgrade: Command, database: Database) -> None:
    done = upgrade()
    assert (done.code, done.out.splitlines()) == (0, [f"{name} (warehouse): not created yet" for name in NAMES])
    assert schemas(database) == []
    assert [(one["name"], one["exists"], one["statements"]) for one in upgrade("--json").schemas] == [
        (name, False, []) for name in NAMES
    ]


@pytest.mark.usefixtures("state_0_1")
def test_pending_migrations_are_shown_and_run_once_they_are_confirmed(upgrade: Command, database: Database) -> None:
    shown = upgrade()
    assert (shown.code, "--yes" in shown.err) == (2, True)
    assert f"  {NOTE}" in shown.out.splitlines()
    assert "the key registry keys (warehouse): up to date" in shown.out
    assert not database.exists("erasure.carrier")
    done = upgrade("--yes", "--json")
    assert (done.code, [bool(one["statements"]) for one in done.schemas]) == (0, [True, True, False])
    for schema, last in (("deltarelay", 3), ("erasure", 2)):
        assert database.value(f"select max(version) from {schema}.schema_version") == last
    assert database.exists("erasure.carrier")
    assert database.value("select count(note) from deltarelay.position") == 0
    again = upgrade()
    assert (again.code, again.out.count("up to date")) == (0, 3)


@pytest.mark.usefixtures("state_0_1")
def test_nothing_is_changed_without_a_confirmation(
    upgrade: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declined() -> None:
        raise CdfError("not confirmed: nothing was changed")

    monkeypatch.setattr(command, "require_terminal", lambda _: None)
    monkeypatch.setattr(command, "confirm", declined)
    done = upgrade()
    assert (done.code, "2 schemas will be migrated" in done.err) == (1, True)
    assert not database.exists("deltarelay.schema_version")


@pytest.mark.usefixtures("state_0_1")
def test_a_newer_schema_stops_it_before_any_is_migrated(upgrade: Command, database: Database) -> None:
    database.query("create table keys.schema_version as select 2 as version")
    done = upgrade("--yes")
    assert (done.code, "state_too_new" in done.err) == (1, True)
    assert not database.exists("deltarelay.schema_version")


@pytest.mark.usefixtures("state_0_1")
def test_a_version_that_the_role_cannot_read_is_not_taken_for_a_known_one(
    upgrade: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.query("create table deltarelay.schema_version as select 7 as version")
    database.query("create role without_usage login")
    try:
        monkeypatch.setenv("WAREHOUSE_DSN", make_conninfo(database.dsn, user="without_usage"))
        done = upgrade()
        assert (done.code, "grant usage on schema deltarelay" in done.err) == (2, True)
        assert "up to date" not in done.out
    finally:
        database.query("drop role without_usage")


@pytest.mark.usefixtures("state_0_1")
def test_a_lost_table_stops_it_before_any_schema_is_migrated(upgrade: Command, database: Database) -> None:
    database.query("drop table erasure.mark")
    done = upgrade("--yes")
    assert (done.code, "restore it from its backup" in done.err) == (2, True)
    assert not database.exists("deltarelay.schema_version")
