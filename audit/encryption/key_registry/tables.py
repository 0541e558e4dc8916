"""The tables of the key registry. Only ``wrapped`` and ``mac`` hold keys, all of them wrapped; no table names a person."""

from __future__ import annotations

from audit.migrations import Migration

__all__ = ["DEFINITIONS", "MIGRATIONS", "UPGRADE", "UPGRADE_CONSTRAINTS"]

# The text is part of the backup format, comments included: ``restore_check`` compares each line. Changing it needs a new
# version of the format. ``audit.migrations`` replaces {schema} and {<table>} by quoted identifiers.
DEFINITIONS = {
    "epoch": """\
create table {epoch} (
    epoch        integer primary key,
    root         text not null,  -- the name of the root key that its shard keys are wrapped by
    began_at     timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,    -- its shard keys are destroyed
    root_gone_on date,           -- from this day on nobody has its root key, and no older backup opens
    mac          bytea           -- wrapped by the root key: authenticates rows of `identifier`, and backups; null once ended
)""",
    "shard": """\
create table {shard} (
    epoch   integer not null references {epoch},
    shard   smallint not null,
    wrapped bytea not null,
    primary key (epoch, shard)
)""",
    "lookup_key": """\
create table {lookup_key} (
    one     boolean primary key default true check (one),
    epoch   integer not null references {epoch},
    wrapped bytea not null
)""",
    "identifier": """\
create table {identifier} (
    lookup bytea primary key,  -- keyed hash of subject, name and value
    token  bytea not null,     -- random: whose it is
    epoch  integer not null references {epoch},
    mac    bytea not null      -- of the three before, under the epoch's key
);
create index on {identifier} (token);
create index on {identifier} (epoch)""",
    "key": """\
create table {key} (
    key_id      bytea primary key,
    token       bytea not null,
    class       text not null,
    epoch       integer not null references {epoch},
    wrapped     bytea,
    commitment  bytea not null,
    created_at  timestamptz not null default clock_timestamp(),
    shredded_at timestamptz,
    shredded_by text,            -- the run of the erasure
    check ((wrapped is null) = (shredded_at is not null))
);
create unique index on {key} (token, class) where shredded_at is null;
create index on {key} (epoch) where shredded_at is null""",
    "shreds": """\
create table {shreds} (
    one   boolean primary key default true check (one),
    count bigint not null default 0  -- of calls that shredded
);
insert into {shreds} default values""",
    "reading": """\
create table {reading} (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default clock_timestamp(),
    role     text not null default session_user,
    reader   text not null,     -- the user of the reader's machine, as that says
    purpose  text not null,
    question text not null,
    trail    text not null,
    keys     bigint not null,   -- so many were handed out
    noted_at timestamptz        -- the trail has it
)""",
}
"""By table, in the order in which they are created."""
MIGRATIONS = (Migration("keys of people", DEFINITIONS),)

UPGRADE = """\
alter table {epoch} add column if not exists mac bytea;
alter table {identifier} add column if not exists epoch integer references {epoch}, add column if not exists mac bytea;
create index if not exists identifier_epoch_idx on {identifier} (epoch)"""
"""For a registry of an earlier release, whose links had no MACs. Then all links get a MAC."""
UPGRADE_CONSTRAINTS = "alter table {identifier} alter column epoch set not null, alter column mac set not null"
"""Applied once every link has a MAC."""
