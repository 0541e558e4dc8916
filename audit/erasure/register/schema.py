"""The tables of the erasure register. Only ``request.sealed`` and ``known.sealed`` contain identifiers, as ciphertext."""

from __future__ import annotations

from audit.migrations import Migration

__all__ = ["LATER", "MIGRATIONS", "TABLES"]

# {schema} and {<table>} are identifiers that ``audit.migrations`` puts in
_FIRST = {
    "request": """\
create table {request} (
    id          text primary key,
    subject     text not null,
    state       text not null,
    reached     text not null,  -- the furthest of the states in their order: held, partial and failed leave it
    run         text,
    received    date not null,
    due         date not null,
    legal_basis text not null,
    requester   text not null,
    approver    text,
    sealed      bytea,          -- the identifiers; null once they are deleted
    digest      bytea not null, -- keyed, of the whole request: distinguishes it from another one with its id, also
                                -- when the identifiers are deleted
    waits_until timestamptz,
    waits_for   text,
    reason      text,
    changed_at  timestamptz not null default clock_timestamp()
)""",
    "event": """\
create table {event} (
    number  bigint generated always as identity primary key,
    request text not null references {request},
    state   text not null,
    at      timestamptz not null default clock_timestamp(),
    facts   jsonb not null
);
create index on {event} (request, number)""",
    "run": """\
create table {run} (
    id          text primary key,
    plan_digest text not null,
    plan        jsonb,          -- as its file has it: it contains no identifier
    created_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz
)""",
    "lease": """\
create table {lease} (
    one        boolean primary key default true check (one),  -- one row: one run at a time, whichever it is
    epoch      bigint not null default 0,
    run        text,
    holder     text,
    taken_at   timestamptz,
    expires_at timestamptz
);
insert into {lease} default values""",
    "step": """\
create table {step} (
    run        text not null references {run},
    table_name text not null,
    step       text not null,
    facts      jsonb not null,
    at         timestamptz not null default clock_timestamp(),
    primary key (run, table_name, step)
)""",
    "known": """\
create table {known} (
    request text not null references {request},
    name    text not null,
    digest  bytea not null,  -- keyed: one value is known once
    sealed  bytea not null,
    primary key (request, name, digest)
)""",
    "mark": """\
create table {mark} (
    mark            bytea not null,
    subject         text not null,
    name            text not null,
    request         text not null references {request},
    run             text not null,
    until           date not null,
    released_at     timestamptz,
    released_by     text,
    released_reason text,
    primary key (request, name, mark)
)""",
    "certificate": """\
create table {certificate} (
    request    text not null references {request},
    issued_at  timestamptz not null default clock_timestamp(),
    document   jsonb not null,
    supersedes timestamptz,  -- when the one before it was issued
    primary key (request, issued_at)
);
create function {schema}.never_changes() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'what has happened is neither altered nor removed';
end
$$;
create trigger never_changes before update or delete or truncate on {event}
    for each statement execute function {schema}.never_changes();
create trigger never_changes before update or delete or truncate on {certificate}
    for each statement execute function {schema}.never_changes()""",
    "access": """\
create table {access} (
    number  bigint generated always as identity primary key,
    request text not null,   -- that of an erasure too, or one that asked for nothing else
    subject text not null,
    at      timestamptz not null default clock_timestamp(),
    role    text not null default session_user,
    reader  text not null,
    digest  text not null,   -- SHA-256 of the report
    counts  jsonb not null
);
create trigger never_changes before update or delete or truncate on {access}
    for each statement execute function {schema}.never_changes()""",
}
_SECOND = {
    "register": """\
create table {register} (
    one      boolean primary key default true check (one),
    identity text not null default gen_random_uuid()::text,  -- `erasure.state.identity` of a configuration names it
    keys     bytea                       -- keyed hash of the identity: shows which keys make the marks
);
insert into {register} default values""",
    "carrier": """\
create table {carrier} (
    pipeline   text not null,
    table_name text not null,
    target     text not null,  -- in words: it names no person
    since      timestamptz not null default clock_timestamp(),
    primary key (pipeline, table_name, target)
);
create trigger never_changes before update or delete or truncate on {carrier}
    for each statement execute function {schema}.never_changes()""",
}
MIGRATIONS = (
    Migration("requests, runs, marks and certificates", _FIRST),
    Migration("the identity of the register, and where erased rows were carried", _SECOND),
)
TABLES = (*_FIRST, *_SECOND)
LATER = frozenset(_SECOND)
"""Tables that a register of an earlier release does not have."""
