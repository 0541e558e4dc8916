"""The tables of the schema ``deltarelay``, and the migrations that bring an installation to this release's version.

Everything that looks for these tables learns here whether a newer release has migrated them, and stops.
"""

from __future__ import annotations

from typing import Any

import psycopg

from audit.migrations import Migration, Migrations

__all__ = [
    "CREATE_DEAD_LETTER",
    "STATE",
    "create_missing",
    "find_state_tables",
    "has_holds_rows",
    "missing_ddl",
    "refuse_newer_state",
]

Connection = psycopg.Connection[Any]

_CREATE_POSITION = """\
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
)"""

_CREATE_POSITION_LOG = """\
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
)"""

_CREATE_PROGRESS = """\
create table if not exists deltarelay.progress (
    target   text primary key,
    at       timestamptz not null,
    figures  jsonb not null
)"""

_CREATE_RUNS = """\
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
)"""

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

_CREATE_CONTROLS = """\
create table if not exists deltarelay.controls (
    target     text primary key,
    document   jsonb not null default '{{}}',
    changed_at timestamptz not null default clock_timestamp()
);
grant select on deltarelay.controls to public"""
"""Created by the first pause, approval or stop by a brake."""

STATE = Migrations(
    "the state of the pipelines",
    "deltarelay",
    migrations=[
        Migration(
            "positions, run history and progress",
            {
                "position": _CREATE_POSITION,
                "position.holds_rows": "alter table deltarelay.position add column if not exists holds_rows boolean",
                "position_log": _CREATE_POSITION_LOG,
                "progress": _CREATE_PROGRESS,
                "runs": _CREATE_RUNS,
            },
        ),
        Migration(
            "schema changes in the run history",
            {"runs.schema_changes": "alter table deltarelay.runs add column if not exists schema_changes text[]"},
        ),
    ],
    optional={"dead_letter": CREATE_DEAD_LETTER, "controls": _CREATE_CONTROLS},
)


def find_state_tables(connection: Connection) -> frozenset[str]:
    """The names of our tables that exist. Raises StateTooNew."""
    return STATE.read_state(connection).objects


def refuse_newer_state(connection: Connection) -> None:
    """Raise StateTooNew if a newer release has migrated the state."""
    STATE.read_state(connection)


def missing_ddl(connection: Connection, *, dead_letters: bool = False) -> tuple[str, ...]:
    """What ``create_missing`` would run. Raises StateTooNew."""
    return STATE.pending(connection, optional=_optional(dead_letters))


def create_missing(connection: Connection, *, dead_letters: bool) -> None:
    """Run every pending migration, in the caller's transaction. Raises StateTooNew."""
    STATE.apply(connection, optional=_optional(dead_letters))


def _optional(dead_letters: bool) -> tuple[str, ...]:
    return ("dead_letter",) if dead_letters else ()


def has_holds_rows(connection: Connection) -> bool:
    """Whether deltarelay.position has the column ``holds_rows``: the first run of this release adds it."""
    return "position.holds_rows" in STATE.find_objects(connection)
