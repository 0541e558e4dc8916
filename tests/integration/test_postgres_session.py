"""What a role, a database or a dsn has set for its sessions changes nothing of what ours write, read or compare."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from audit.anchors.postgres import PostgresAnchor
from audit.database import Database
from audit.migrations import Migration, Migrations
from audit.postgres_session import SETTINGS
from cdf import ChangeFeed, Pipeline
from cdf.errors import RowRejected, TargetNotReady
from cdf.sink import Conflicts
from cdf.testing import SampleTable, delete
from connectors.postgres.client import Session
from connectors.postgres.erasure.scan import _copy_rows
from connectors.postgres.options import Modes
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.staging.adbc_copy import bulk_connection
from tests.fixtures.fix_pgbouncer import PgBouncer, Program, pooled
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import loaded, names, opened, people, person, sink_of

ODD = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Australia/Lord_Howe",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "xmlbinary": "hex",
    "xmloption": "document",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
}
PROBE = r"""
select current_schemas(true)::text, date '2024-03-04'::text, '04/03/2024'::date - date '2024-01-01',
       timestamptz '2024-03-04 05:06:07.891+00'::text, timestamp '2024-03-04 05:06:07'::text,
       interval '1 day 2 hours'::text, (0.1::float8 + 0.2)::text, 0.1::real::text, '\x00ff'::bytea::text,
       '{NULL}'::text[]::text, 'a\nb', md5('x'), 'deltarelay_probe'::regtype::text, null = null, null = 1,
       to_char(date '2024-03-04', 'TMMonth')
"""
Opens = Callable[[str], AbstractContextManager[Callable[[str], Any]]]
ROLE = "odd_settings"


@contextmanager
def of_the_sink(dsn: str) -> Iterator[Callable[[str], Any]]:
    with Session(dsn, TargetName("public", "t")).connect() as connection:
        yield lambda statement: connection.execute(statement).fetchone()


@contextmanager
def of_a_transaction(dsn: str) -> Iterator[Callable[[str], Any]]:
    with Session(dsn, TargetName("public", "t")).connect() as connection, connection.transaction():
        yield lambda statement: connection.execute(statement).fetchone()


@contextmanager
def of_the_registers(dsn: str) -> Iterator[Callable[[str], Any]]:
    with Database(dsn, Migrations("test", "s", []), made_by="-").transaction() as work:
        yield lambda statement: work._connection.execute(statement).fetchone()  # type: ignore[arg-type]


@contextmanager
def of_an_anchor(dsn: str) -> Iterator[Callable[[str], Any]]:
    with PostgresAnchor(dsn)._connected() as (connection, _):
        yield lambda statement: connection.execute(statement).fetchone()  # type: ignore[arg-type]


SESSIONS = [of_the_sink, of_a_transaction, of_the_registers, of_an_anchor]


@pytest.fixture
def role(pg: Pg) -> Iterator[str]:
    """Its settings are all odd, and functions and types of its own take the place of the server's."""
    pg.query("create function md5(text) returns text language sql as $$ select 'shadow' $$")
    pg.query("create type deltarelay_probe as (a int)")
    pg.query(f"create role {ROLE} superuser login")
    for name, value in {**ODD, "client_encoding": "latin1", "default_transaction_isolation": "repeatable read"}.items():
        pg.query(f"alter role {ROLE} set {name} to '{value}'")
    pg.query(f"alter role {ROLE} set search_path = {pg.schema}, pg_catalog")
    yield ROLE
    pg.query(f"drop owned by {ROLE}")
    pg.query(f"drop role {ROLE}")


def test_the_odd_settings_are_all(pg: Pg) -> None:
    """Also of a server to come: what its sessions may be set to and looks like a form of text is pinned."""
    assert ODD.keys() == SETTINGS.keys()
    found = pg.query(
        "select name from pg_settings where context = 'user' and category ~ 'Locale|Output|Previous|Style'"
    )
    known = {
        *map(str.lower, SETTINGS),
        "client_encoding",  # of the connection
        "lc_messages", "timezone_abbreviations", "icu_validation_level", "default_text_search_config",  # of no value's text
        "backslash_quote", "escape_string_warning", "lo_compat_privileges", "synchronize_seqscans",
    }  # fmt: skip
    assert {name.lower() for (name,) in found} <= known


@pytest.mark.parametrize("session", SESSIONS)
def test_no_text_form_depends_on_the_settings_of_a_role(pg: Pg, role: str, session: Opens) -> None:
    odd, plain = (make_conninfo(pg.dsn, user=name) for name in (role, "postgres"))
    with session(make_conninfo(plain, options=f"-c search_path={pg.schema}")) as ask:
        expected = ask(PROBE)
    with session(odd) as ask:
        assert ask(PROBE) == expected
        assert ask("select timestamptz '2024-03-04 05:06:07+00'") == (dt.datetime(2024, 3, 4, 5, 6, 7, tzinfo=dt.UTC),)
        for name, value in {**SETTINGS, "client_encoding": "UTF8", "transaction_isolation": "read committed"}.items():
            assert ask(f"select current_setting('{name}')") == (value,)
    with bulk_connection(Session(odd, TargetName("public", "t")).dsn) as bulk, bulk.cursor() as cursor:
        cursor.execute("select current_setting('client_encoding')")
        assert cursor.fetchone() in {("UTF8",), (b"UTF8",)}  # it does not know the type's name with quotes


def test_a_pooler_hands_no_setting_on(pgbouncer_program: Program, server_folder: Path, pg: Pg, role: str) -> None:
    """One server session for two clients: the settings are ours in our transactions, and the other's in its own."""
    bouncer: PgBouncer
    dsn = make_conninfo(pg.dsn, user=role)
    with pooled(pgbouncer_program, server_folder / f"settings-{pg.schema}", dsn, default_pool_size=1) as bouncer:
        with of_the_sink(bouncer.dsn) as ask:
            assert ask("select current_setting('DateStyle'), current_setting('bytea_output')") == ("ISO, MDY", "hex")
            assert ask("select current_setting('search_path')") == (f"{pg.schema}, pg_temp",)
        with psycopg.connect(bouncer.dsn, autocommit=True) as other:
            found = other.execute("select current_setting('bytea_output'), current_setting('search_path')").fetchone()
            assert found == ("escape", f"{pg.schema}, pg_catalog")


def test_a_copy_that_is_not_read_to_its_end_does_not_end_the_transaction(pg: Pg) -> None:
    pg.query("create table target as select n, repeat('x', 1000) as x from generate_series(1, 5000) n")
    with Session(pg.dsn, TargetName(pg.schema, "target")).connect() as connection, connection.transaction():
        assert any(line for line in _copy_rows(connection, TargetName(pg.schema, "target"), ["n", "x"]))
        assert connection.execute("select 1").fetchone() == (1,)
    copied = Migrations("test", pg.schema, [Migration("", {"target": ""})])
    with Database(pg.dsn, copied, made_by="-").transaction() as work:
        assert any(work.copy_out("copy {target} to stdout"))
        assert work.row("select 1") == (1,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_rows_that_came_while_a_lock_was_waited_for_are_seen(session: SparkSession | None, pg: Pg, level: str) -> None:
    """With the role's own isolation level the table would count as empty, and hold rows of two."""
    pg.query("create table target (id bigint primary key, name text)")
    options = f"-c search_path={pg.schema} -c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    table = people(session)
    with (
        opened(pg, table.source(), dsn=make_conninfo(pg.dsn, options=options)) as sink,
        psycopg.connect(pg.dsn) as other,
    ):
        other.execute(f"insert into {pg.schema}.target values (7, 'theirs')")  # type: ignore[arg-type]
        other.execute(f"lock table {pg.schema}.target in share row exclusive mode")  # type: ignore[arg-type]

        def commit_when_waited_for() -> None:
            waiting = "select from pg_locks where not granted and relation = 'target'::regclass"
            deadline = time.monotonic() + 60
            while not pg.query(waiting) and time.monotonic() < deadline:
                time.sleep(0.05)
            other.commit()

        Timer(0, commit_when_waited_for).start()
        with pytest.raises(TargetNotReady, match="another session"):
            sink.load(table.snapshot(1, [person(1, "a")]))
    assert names(pg) == {7: "theirs"}


def test_an_operator_of_others_finds_no_keys(session: SparkSession | None, pg: Pg) -> None:
    """The server compares two varchars as texts; an operator for varchars in the search_path would fit better."""
    table = SampleTable(session, StructType().add("id", "string").add("name", "string"), ("id",))
    one, two = {"id": "1", "name": "one"}, {"id": "2", "name": "two"}
    pg.query("create function {schema}.always(varchar, varchar) returns boolean language sql as 'select true'")
    pg.query("create operator {schema}.= (leftarg = varchar, rightarg = varchar, function = {schema}.always)")
    pg.query("create table target (id varchar(20) primary key, name text)")
    dsn = make_conninfo(pg.dsn, options=f"-c search_path={pg.schema}")
    with loaded(pg, table, [one, two], dsn=dsn) as sink:
        assert sink.apply(table.window(2, [delete(one)])).conflicts == Conflicts()
    assert pg.query("select id, name from {schema}.target") == [("2", "two")]


def test_sessions_are_opened_in_one_place() -> None:
    root = Path(__file__).parents[2]
    files = [file for part in ("audit", "cdf", "connectors", "infra") for file in (root / part).rglob("*.py")]
    opening = re.compile(r"psycopg\.(connect|Connection\.connect)\(|dbapi\.connect\(")
    found = {str(file.relative_to(root)) for file in files if opening.search(file.read_text())}
    assert found == {"connectors/postgres/staging/adbc_copy.py"}  # ADBC, with the dsn of the sink's session


def test_kept_rows_are_read_whatever_the_settings_are(spark: SparkSession, pg: Pg, role: str, delta_path: str) -> None:
    """An erasure finds a person by them: a date that becomes null would hide the person."""
    pg.query(
        "create table target (day date primary key, at timestamptz, amount numeric(20, 2), ratio float8, "
        "_deleted_at timestamptz)"
    )
    table = Table(spark, delta_path, "day date, at timestamp, amount int, ratio double")
    sink = sink_of(pg, dsn=make_conninfo(pg.dsn, user=role), modes=Modes(deletes="soft"))
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="day", name="kept")
    assert any("quote_all_identifiers" in problem for problem in pipeline.plan().problems)
    pg.query(f"alter role {role} set quote_all_identifiers to off")
    table.sql("insert into {t} values (date'2024-03-04', timestamp'2024-03-04 05:06:07Z', 700, 0.1)")
    expected = spark.read.format("delta").load(delta_path).collect()
    pipeline.run()
    table.sql("delete from {t}")
    pipeline.run()
    columns = ["day", "at", "amount", "ratio"]
    assert [row for rows in sink.erasure.retained_rows(pipeline.feed, columns) for row in rows.collect()] == expected
    pg.query("update target set at = 'infinity'")
    with pytest.raises(RowRejected, match="'at'") as refused:
        list(sink.erasure.retained_rows(pipeline.feed, columns))
    assert "2024" not in str(refused.value)
