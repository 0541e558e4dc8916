"""The statements of docs/reference/postgres-rights.md: roles with exactly these rights can do what the page says."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdf.errors import CdfError, TargetNotReady
from cdf.sink.controls import pause, resume
from cdf.testing import delete, insert, update
from connectors.postgres import PostgresSink
from tests.acceptance.commands import Database
from tests.integration.postgres_case import people, person

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "postgres-rights.md"
SIMPLE, MINIMAL, MONITOR, OPERATOR, CHECKER = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
A, B, C = person(1, "a"), person(2, "b"), person(3, "c")
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Roles:
    """Runs the page's statements with names of its own: roles belong to the whole server."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.suffix = secrets.token_hex(4)
        self.made: list[str] = []

    def create(self, statements: str) -> None:
        named = re.findall(r"create role (\w+)", statements)
        self.made += [f"{name}_{self.suffix}" for name in named]
        self.database.query(self._rename(statements))

    def run(self, statement: str) -> None:
        self.database.query(self._rename(statement))

    def _rename(self, statements: str) -> str:
        renamed = re.sub(r"\b(relay|monitor|operator|checker)\b", rf"\1_{self.suffix}", statements)
        return renamed.replace("database warehouse", f"database {self.database.connection.info.dbname}")

    def sink(self, role: str, table: str = "public.customers") -> PostgresSink:
        dsn = make_conninfo(self.database.dsn, user=f"{role}_{self.suffix}", password="…")
        return PostgresSink(dsn, table=table)


@pytest.fixture
def roles(database: Database) -> Iterator[Roles]:
    # No right that the page does not name, and none that all roles have on a new database
    database.query("revoke all on schema public from public")
    database.query(f"revoke all on database {database.connection.info.dbname} from public")
    made = Roles(database)
    yield made
    for role in reversed(made.made):
        name = sql.Identifier(role)
        database.connection.execute(sql.SQL("drop owned by {} cascade").format(name))
        database.connection.execute(sql.SQL("drop role {}").format(name))


def replicate(sink: PostgresSink) -> None:
    table = people()
    assert sink.inspect(table.source()).problems == ()
    sink.open(table.source())
    try:
        sink.load(table.snapshot(1, [A, B]))
        sink.apply(table.window(2, [update(A, person(1, "z")), delete(B), insert(C)]))
    finally:
        sink.close()


def test_a_role_that_creates_its_targets(database: Database, roles: Roles) -> None:
    roles.create(SIMPLE)
    replicate(roles.sink("relay", "replica.customers"))
    assert database.rows("replica.customers") == [(1, "z"), (3, "c")]


def test_a_role_with_minimal_rights(database: Database, roles: Roles) -> None:
    database.query("create table public.customers (id bigint primary key, name text)")
    roles.create(MINIMAL)
    sink = roles.sink("relay")
    replicate(sink)
    assert database.rows("public.customers") == [(1, "z"), (3, "c")]

    table = people()
    sink.open_to_reload(table.source())
    sink.reload(table.snapshot(3, [A, B, C]))  # merges, because the role does not own the target
    sink.close()
    assert database.rows("public.customers") == [(1, "a"), (2, "b"), (3, "c")]
    assert sink.position().version == 3


@pytest.mark.parametrize(
    ("revoked", "named"),
    [
        ("alter schema deltarelay owner to postgres", "deltarelay"),
        ("revoke usage on schema public from relay", "usage"),
        *(
            (f"revoke {right} on public.customers from relay", right)
            for right in ("select", "insert", "update", "delete")
        ),
    ],
)
def test_each_of_the_minimal_rights_is_needed(database: Database, roles: Roles, revoked: str, named: str) -> None:
    database.query("create table public.customers (id bigint primary key, name text)")
    roles.create(MINIMAL)
    roles.run(revoked)
    with pytest.raises(CdfError) as refused:
        roles.sink("relay").open(people().source())
    assert refused.value.code == "target_not_ready"
    assert named in f"{refused.value.message} {refused.value.hint}"
    assert database.rows("public.customers") == []


def test_people_and_other_programs(database: Database, roles: Roles) -> None:
    database.query("create table public.customers (id bigint primary key, name text)")
    roles.create(MINIMAL)
    relay = roles.sink("relay")
    replicate(relay)
    relay.change_controls(lambda controls: pause(controls, now=NOW, by="maria", reason="noon"))
    for statements in (MONITOR, OPERATOR, CHECKER):
        roles.create(statements)

    monitor = roles.sink("monitor")
    assert monitor.position().version == 2
    assert monitor.standing().position.version == 2
    assert [record.kind for record in monitor.runs(10)] == ["window", "load"]
    assert monitor.activity().position.version == 2
    paused = monitor.controls().paused
    assert paused is not None
    assert paused.reason == "noon"
    with pytest.raises(CdfError):
        monitor.change_controls(lambda controls: resume(controls, now=NOW, by="x"))
    with pytest.raises(TargetNotReady), monitor.image(people().source()) as image:
        image.row_count()

    operator = roles.sink("operator")
    assert operator.change_controls(lambda controls: resume(controls, now=NOW, by="vera")).paused is None
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(operator._session.dsn) as connection:
        connection.execute("select from public.customers")

    with roles.sink("checker").image(people().source()) as image:
        assert image.row_count() == 2
