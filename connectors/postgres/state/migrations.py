"""The tables of the schema ``deltarelay``, and the statements that create what an installation lacks."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

__all__ = [
    "ADD_HOLDS_ROWS",
    "CREATE",
    "CREATE_DEAD_LETTER",
    "StateTables",
    "find_state_tables",
    "has_holds_rows",
    "missing_dead_letter_ddl",
    "missing_ddl",
]

Connection = psycopg.Connection[Any]

CREATE = (
    "create schema if not exists deltarelay",
    """\
create table if not exists deltarelay.position (
    target          text primary key,
    pipeline        text not null,
    source          text not null,
    source_table_id text,
    version         bigint,
    epoch           bigint not null default 0,
    owner           text,
    lease_until     timestamptz,
    updated_at      timestamptz,
    holds_rows      boolean
)""",
    """\
create table if not exists deltarelay.position_log (
    id            bigint generated always as identity primary key,
    target        text not null,
    pipeline      text not null,
    at            timestamptz not null default clock_timestamp(),
    action        text not null,
    from_version  bigint,
    to_version    bigint not null,
    os_user       text not null,
    database_user text not null default session_user,
    reason        text
)""",
    """\
create table if not exists deltarelay.progress (
    target   text primary key,
    at       timestamptz not null,
    figures  jsonb not null
)""",
    """\
create table if not exists deltarelay.runs (
    id            bigint generated always as identity,
    target        text not null,
    pipeline      text not null,
    source        text not null,
    started_at    timestamptz not null,
    ended_at      timestamptz not null default clock_timestamp(),
    kind          text not null,
    first_version bigint,
    last_version  bigint,
    rows_in       bigint,
    inserts       bigint,
    updates       bigint,
    deletes       bigint,
    conflicts     bigint,
    change_bytes  bigint,
    seconds       jsonb not null,
    retries       integer not null,
    code          text,
    condition     text,
    primary key (target, id)
)""",
)
"""In the order of the fields of ``StateTables``."""

ADD_HOLDS_ROWS = "alter table deltarelay.position add column if not exists holds_rows boolean"
"""For an installation that is older than this column."""

CREATE_DEAD_LETTER = """\
create table if not exists deltarelay.dead_letter (
    id           bigint generated always as identity primary key,
    target       text not null,
    pipeline     text not null,
    source       text not null,
    version      bigint,
    committed_at timestamptz,
    change       text not null,
    reason       text not null,
    sqlstate     text,
    column_name  text,
    constraint_name text,
    key_digest   text not null,
    key          text not null,
    row          text,
    rejected_at  timestamptz not null default clock_timestamp(),
    unique (target, key_digest)
)"""
"""Created only for pipelines that store dead letters."""


class StateTables(NamedTuple):
    """Which of the objects of ``CREATE`` exist."""

    schema: bool
    position: bool
    position_log: bool
    progress: bool
    runs: bool


def find_state_tables(connection: Connection) -> StateTables:
    found = connection.execute(
        """
        select count(distinct n.oid) > 0, count(*) filter (where c.relname = 'position') > 0,
               count(*) filter (where c.relname = 'position_log') > 0,
               count(*) filter (where c.relname = 'progress') > 0,
               count(*) filter (where c.relname = 'runs') > 0
          from pg_namespace n left join pg_class c on c.relnamespace = n.oid
         where n.nspname = 'deltarelay'
        """
    ).fetchone()
    assert found is not None
    return StateTables(*found)


def missing_ddl(connection: Connection) -> tuple[str, ...]:
    """The statements of ``CREATE`` whose object does not exist: even ``if not exists`` needs the right to create it.

    An older installation lacks some of the tables.
    """
    present = find_state_tables(connection)
    added = (ADD_HOLDS_ROWS,) if present.position and not has_holds_rows(connection) else ()
    return (*(statement for statement, exists in zip(CREATE, present, strict=True) if not exists), *added)


def has_holds_rows(connection: Connection) -> bool:
    """Whether deltarelay.position has the column ``holds_rows``; the first run of this version adds it."""
    found = connection.execute(
        "select from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'position' and a.attname = 'holds_rows' and not a.attisdropped"
    ).fetchone()
    return found is not None


def missing_dead_letter_ddl(connection: Connection) -> tuple[str, ...]:
    found = connection.execute(
        "select from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'dead_letter'"
    ).fetchone()
    return (CREATE_DEAD_LETTER,) if found is None else ()
