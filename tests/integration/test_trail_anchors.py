"""What every anchor promises, on a folder, a real PostgreSQL and moto's S3; then what only one of them can."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from botocore.exceptions import ClientError
from psycopg.conninfo import make_conninfo

import audit.anchors.postgres
from audit.anchors.base import Anchor, file_name, folder_name
from audit.anchors.file import FileAnchor
from audit.anchors.postgres import PostgresAnchor, statements
from audit.anchors.s3 import S3Anchor
from audit.errors import AnchorUnavailable, ForkedTrail
from audit.proof import Checkpoint, ProofError, leaf_hash
from audit.signing.signer import Signer
from cdf.errors import CdfError, ConfigError
from infra.embedded.postgres import programs
from infra.s3.clients import connect_s3 as s3_client
from tests.acceptance.commands import REPOSITORY, Database
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import KEY_ID, SECRET, Aws
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.postgres_proxy import PostgresProxy
from tests.integration.postgres_case import tells

ORIGIN = "trail.example.org/customers/5b1d"
MINE, OTHER = Signer.generate("trail.example.org/a"), Signer.generate("witness.example.org/b")
PASSWORD = "anchor-password-not-for-any-output"
DAYS = 30


def note(size: int, content: str = "", *, by: Signer = MINE, origin: str = ORIGIN) -> str:
    return by.sign(Checkpoint(origin, size, leaf_hash(f"{size} {content}".encode())))


def kept(anchor: Anchor) -> list[str]:
    return list(anchor.notes(ORIGIN))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[list[CdfError]]:
    """Done in a thread while the block runs. → what it failed with, once the block has ended"""
    failures: list[CdfError] = []

    def catch() -> None:
        try:
            act()
        except CdfError as error:
            failures.append(error)

    thread = threading.Thread(target=catch)
    thread.start()
    yield failures
    thread.join()


# ── three places ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Place:
    anchor: Callable[[], Anchor]
    """As whoever publishes has it; anew each time."""
    gone: Anchor
    """One of the same kind, where nothing answers."""
    replace: Callable[[int, bytes], None]
    """What stands there for a size, replaced by whoever runs the place and has switched off what guards it."""


@pytest.fixture
def file_place(tmp_path: Path) -> Place:
    folder = tmp_path / "worm"
    folder.mkdir()

    def replace(size: int, content: bytes) -> None:
        (file,) = folder.rglob(file_name(size))
        file.chmod(0o600)
        file.write_bytes(content)

    return Place(lambda: FileAnchor(folder), FileAnchor(tmp_path / "not mounted"), replace)


@dataclass(frozen=True)
class Roles:
    schema: str
    writer: str
    reader: str
    dsn: str
    """The writer's."""
    reader_dsn: str


@pytest.fixture
def roles(pg: Pg) -> Iterator[Roles]:
    """Two roles without any right, and the name of a schema that is not there."""
    found = Roles(
        f"{pg.schema}_anchor",
        *(names := (f"relay_{pg.schema}", f"auditor_{pg.schema}")),
        *(make_conninfo(pg.dsn, user=name, password=PASSWORD) for name in names),
    )
    for name in names:
        pg.query(f"create role {name} login password '{PASSWORD}'")
    yield found
    pg.query(f"drop schema if exists {found.schema} cascade")
    pg.query(f"drop role {', '.join(names)}")


@pytest.fixture
def anchored(pg: Pg, roles: Roles) -> Roles:
    """Set up as an administrator does."""
    pg.query(statements(roles.schema, writer=roles.writer, reader=roles.reader))
    return roles


@pytest.fixture
def postgres_place(pg: Pg, anchored: Roles) -> Place:
    table = f"{anchored.schema}.checkpoint"

    def replace(size: int, content: bytes) -> None:
        pg.query(f"alter table {table} disable trigger never_changes, drop constraint checkpoint_check")
        pg.query(f"update {table} set note = %s where size = %s", content.decode(errors="replace"), size)

    gone = make_conninfo(anchored.dsn, host="127.0.0.1", port=str(_free_port()))
    return Place(
        lambda: PostgresAnchor(anchored.dsn, schema=anchored.schema),
        PostgresAnchor(gone, schema=anchored.schema),
        replace,
    )


@pytest.fixture
def locked(aws: Aws) -> str:
    """A bucket with Object Lock."""
    name = f"locked-{aws.bucket}"
    aws.s3.create_bucket(
        Bucket=name,
        CreateBucketConfiguration={"LocationConstraint": aws.region},
        ObjectLockEnabledForBucket=True,
    )
    return name


def on_s3(aws: Aws, bucket: str, *, days: int | None = None, endpoint: str | None = None) -> S3Anchor:
    settings = aws.storage(endpoint=endpoint).s3.bucket(bucket)
    return S3Anchor(f"s3://{bucket}/anchors/of us", lambda: s3_client(settings), object_lock_days=days)


def key(size: int) -> str:
    return f"anchors/of us/{folder_name(ORIGIN)}/{file_name(size)}"


@pytest.fixture
def s3_place(aws: Aws, locked: str) -> Place:
    def replace(size: int, content: bytes) -> None:
        # Nobody can, where objects are locked: here in a bucket of which that is not true
        aws.s3.put_object(Bucket=aws.bucket, Key=key(size), Body=content)

    gone = on_s3(aws, locked, days=DAYS, endpoint=f"http://127.0.0.1:{_free_port()}")
    return Place(lambda: on_s3(aws, locked, days=DAYS), gone, replace)


@pytest.fixture(params=["file", "postgres", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    found = request.getfixturevalue(f"{request.param}_place")
    assert isinstance(found, Place)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ── what all of them promise ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_anchor_keeps_every_checkpoint(place: Place) -> None:
    anchor = place.anchor()
    assert anchor.latest(ORIGIN) is None
    assert kept(anchor) == []
    notes = [note(size) for size in (0, 2, 9, 10, 100, 10**18 - 1)]
    for one in notes:
        anchor.publish(ORIGIN, one)
        assert place.anchor().latest(ORIGIN) == one
    assert kept(anchor) == kept(place.anchor()) == notes
    assert [list(anchor.notes(ORIGIN, least=size)) for size in (1, 9, 11, 10**18)] == [
        notes[1:],
        notes[2:],
        notes[4:],
        [],
    ]


def test_trails_do_not_get_into_each_other_s_way(place: Place) -> None:
    anchor = place.anchor()
    for origin, size in (("one", 10), ("other", 5), ("öther 漢", 5)):
        anchor.publish(origin, note(size, origin, origin=origin))
    assert [list(anchor.notes(origin)) for origin in ("one", "other", "öther 漢", "none")] == [
        [note(10, "one", origin="one")],
        [note(5, "other", origin="other")],
        [note(5, "öther 漢", origin="öther 漢")],
        [],
    ]


def test_publishing_again_changes_nothing(place: Place) -> None:
    anchor = place.anchor()
    for one in (note(7), note(8), note(7), note(7, by=OTHER), note(8)):
        anchor.publish(ORIGIN, one)
    assert kept(anchor) == [note(7), note(8)]


def test_another_root_for_the_same_size_is_a_fork(place: Place) -> None:
    anchor = place.anchor()
    anchor.publish(ORIGIN, note(7))
    anchor.publish(ORIGIN, note(8))
    for size in (7, 8):
        with pytest.raises(ForkedTrail, match="same size") as forked:
            place.anchor().publish(ORIGIN, note(size, "rewritten"))
        assert forked.value.fields["size"] == size
        assert forked.value.hint
        assert PASSWORD not in tells(forked.value)
    assert kept(anchor) == [note(7), note(8)]


def test_a_trail_that_was_rolled_back_is_a_fork(place: Place) -> None:
    anchor = place.anchor()
    anchor.publish(ORIGIN, note(10))
    for size in (9, 0):
        with pytest.raises(ForkedTrail, match="larger checkpoint") as forked:
            place.anchor().publish(ORIGIN, note(size))
        assert PASSWORD not in tells(forked.value)
    assert kept(anchor) == [note(10)]


def test_only_a_checkpoint_of_the_origin_is_published(place: Place) -> None:
    anchor = place.anchor()
    with pytest.raises(ValueError, match="another origin"):
        anchor.publish("another", note(7))
    with pytest.raises(ProofError):
        anchor.publish(ORIGIN, note(7).replace(f"{ORIGIN}\n7\n", f"{ORIGIN}\nseven\n"))
    assert kept(anchor) == list(anchor.notes("another")) == []


def test_of_two_at_the_same_moment_one_wins(place: Place) -> None:
    for size in range(1, 9):
        start = threading.Barrier(2)

        def publish(content: str, size: int = size, start: threading.Barrier = start) -> None:
            start.wait()
            place.anchor().publish(ORIGIN, note(size, content))

        with meanwhile(lambda: publish("one")) as one, meanwhile(lambda: publish("other")) as other:
            pass
        assert [type(failure) for failure in (*one, *other)] == [ForkedTrail]
        assert place.anchor().latest(ORIGIN) == note(size, "other" if one else "one")


def test_of_many_with_the_same_all_succeed(place: Place) -> None:
    start = threading.Barrier(4)

    def publish() -> None:
        start.wait()
        place.anchor().publish(ORIGIN, note(7))

    with meanwhile(publish) as a, meanwhile(publish) as b, meanwhile(publish) as c, meanwhile(publish) as d:
        pass
    assert a + b + c + d == []
    assert kept(place.anchor()) == [note(7)]


@pytest.mark.parametrize("content", [b"", b"nonsense\n", note(8, "another").encode(), b"\xff\xfe\n" * 9])
def test_what_is_damaged_or_foreign_is_shown_as_it_is_and_not_taken_for_the_same(
    place: Place, content: bytes, request: pytest.FixtureRequest
) -> None:
    anchor: Anchor = place.anchor()
    if isinstance(anchor, S3Anchor):
        aws: Aws = request.getfixturevalue("aws")
        anchor = on_s3(aws, aws.bucket)
    for size in (6, 7):
        anchor.publish(ORIGIN, note(size))
    place.replace(7, content)
    assert kept(anchor) == [note(6), content.decode(errors="replace")]
    assert anchor.latest(ORIGIN) == content.decode(errors="replace")
    with pytest.raises(ForkedTrail, match="same size"):
        anchor.publish(ORIGIN, note(7))


def test_where_nothing_answers_it_is_said_that_this_may_pass(place: Place) -> None:
    for call in (
        lambda: place.gone.publish(ORIGIN, note(7)),
        lambda: place.gone.latest(ORIGIN),
        lambda: kept(place.gone),
    ):
        with pytest.raises(AnchorUnavailable) as failed:
            call()
        assert failed.value.transient
        assert failed.value.hint
        told = tells(failed.value)
        for secret in (PASSWORD, SECRET, KEY_ID, "relay_"):
            assert secret not in told


def test_no_driver_is_imported_before_it_is_used() -> None:
    modules = (
        "audit.anchors.file, audit.anchors.postgres, audit.anchors.s3, audit.encryption.root_keys, "
        "audit.erasure.scan.s3_files"
    )
    program = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"psycopg", "boto3", "botocore"} & set(done.stdout.split())
    assert "audit.anchors.s3" in done.stdout.split()


# ── PostgreSQL: what the server does, whoever asks ───────────────────────────────────────────────────────────────────


@pytest.fixture
def writer(anchored: Roles) -> Iterator[psycopg.Connection[Any]]:
    """The publisher's role with SQL of its own, instead of the code."""
    with psycopg.connect(anchored.dsn, autocommit=True) as connection:
        connection.execute(f"set search_path = {anchored.schema}")
        yield connection


INSERT = "insert into checkpoint (origin, size, note) values (%s, %s, %s)"


ALTERING = (
    "update checkpoint set note = note",
    "delete from checkpoint",
    "truncate checkpoint",
    "drop table checkpoint",
    "drop schema {schema} cascade",
    "alter table checkpoint disable trigger all",
    "drop trigger never_changes on checkpoint",
    "drop trigger only_grows on checkpoint",
    "create or replace function only_grows() returns trigger language plpgsql as 'begin return new; end'",
    "create rule hidden as on insert to checkpoint do instead nothing",
    "set session_replication_role = replica",
    "insert into checkpoint (origin, size, note) select origin, size, note from checkpoint"
    " on conflict (origin, size) do update set note = 'another'",
)
"""What a role of the writer might try. ``insert … on conflict`` is a way to update."""


def test_the_writer_s_role_can_alter_nothing(anchored: Roles, writer: psycopg.Connection[Any]) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    anchor.publish(ORIGIN, note(7))
    for statement in ALTERING:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute(statement.format(schema=anchored.schema).encode())
        assert kept(anchor) == [note(7)], statement


def test_the_owner_does_not_alter_anything_by_mistake(pg: Pg, anchored: Roles) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    anchor.publish(ORIGIN, note(7))
    for statement in ("update {} set note = note", "delete from {}", "truncate {}"):
        with pytest.raises(psycopg.errors.RaiseException, match="neither altered nor removed"):
            pg.query(statement.format(f"{anchored.schema}.checkpoint"))
        assert kept(anchor) == [note(7)], statement


def test_the_server_itself_lets_no_trail_shrink(anchored: Roles, writer: psycopg.Connection[Any]) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    anchor.publish(ORIGIN, note(10))
    with pytest.raises(psycopg.Error, match="larger checkpoint"):
        writer.execute(INSERT, [ORIGIN, 9, note(9)])
    with pytest.raises(psycopg.errors.UniqueViolation):
        writer.execute(INSERT, [ORIGIN, 10, note(10, "another")])
    for origin, size in (("another", 11), (ORIGIN, 12)):  # not what the note itself says
        with pytest.raises(psycopg.errors.CheckViolation):
            writer.execute(INSERT, [origin, size, note(11)])
    assert kept(anchor) == [note(10)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_view_of_before_is_no_way_round(anchored: Roles, writer: psycopg.Connection[Any], level: str) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    writer.execute(f"begin isolation level {level}".encode())
    writer.execute("select from checkpoint")
    anchor.publish(ORIGIN, note(10))
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        writer.execute(INSERT, [ORIGIN, 9, note(9)])
    assert kept(anchor) == [note(10)]


def test_time_and_role_are_the_server_s_word(pg: Pg, anchored: Roles, writer: psycopg.Connection[Any]) -> None:
    ((before,),) = pg.query("select clock_timestamp()")
    PostgresAnchor(anchored.dsn, schema=anchored.schema).publish(ORIGIN, note(7))
    writer.execute("insert into checkpoint values (%s, 8, %s, '1999-01-01', 'somebody else')", [ORIGIN, note(8)])
    ((after,),) = pg.query("select clock_timestamp()")
    times = pg.query(f"select published_at, published_by from {anchored.schema}.checkpoint order by size")
    assert [role for _, role in times] == [anchored.writer] * 2
    assert before < times[0][0] < times[1][0] < after


def test_who_only_reads_sees_the_same_and_adds_nothing(anchored: Roles) -> None:
    PostgresAnchor(anchored.dsn, schema=anchored.schema).publish(ORIGIN, note(7))
    reader = PostgresAnchor(anchored.reader_dsn, schema=anchored.schema)
    assert kept(reader) == [reader.latest(ORIGIN)] == [note(7)]
    with pytest.raises(ConfigError, match="refused") as refused:
        reader.publish(ORIGIN, note(8))
    assert "anchor-checkpoints" in str(refused.value.hint)
    assert refused.value.__cause__ is refused.value.__context__ is None
    assert kept(reader) == [note(7)]


# ── PostgreSQL: two at the same time, and lost answers ───────────────────────────────────────────────────────────────


def waiting(pg: Pg, roles: Roles) -> bool:
    query = "select from pg_stat_activity where usename = %s and wait_event_type = 'Lock' and query like 'insert%%'"
    return bool(pg.query(query, roles.writer))


@pytest.mark.parametrize(("end", "failed", "left"), [("commit", [ForkedTrail], 10), ("rollback", [], 9)])
def test_a_larger_one_that_is_being_published_is_waited_for_and_counts_if_it_is_not_given_up(
    pg: Pg, anchored: Roles, writer: psycopg.Connection[Any], end: str, failed: list[type[CdfError]], left: int
) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    writer.execute("begin")
    writer.execute(INSERT, [ORIGIN, 10, note(10)])
    with meanwhile(lambda: anchor.publish(ORIGIN, note(9))) as failures:
        until(lambda: waiting(pg, anchored))
        writer.execute(end.encode())
    assert [type(failure) for failure in failures] == failed
    assert kept(anchor) == [note(left)]


def test_nobody_is_waited_for_for_ever(
    anchored: Roles, writer: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.anchors.postgres, "LOCK_SECONDS", 1)
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    with writer.transaction():
        writer.execute(INSERT, [ORIGIN, 10, note(10)])
        with pytest.raises(AnchorUnavailable) as failed:
            anchor.publish(ORIGIN, note(11))
        assert failed.value.condition == "55P03"
    anchor.publish(ORIGIN, note(11))
    assert kept(anchor) == [note(10), note(11)]


@pytest.mark.parametrize("kind", ["cut", "drop_answer"])
@pytest.mark.parametrize("statement", ["^insert", "^COMMIT"])
def test_after_a_lost_connection_it_is_published_again(anchored: Roles, kind: str, statement: str) -> None:
    with PostgresProxy(anchored.dsn) as proxy:
        anchor = PostgresAnchor(proxy.dsn, schema=anchored.schema)
        anchor.publish(ORIGIN, note(7))
        getattr(proxy, kind)(statement)
        with pytest.raises(AnchorUnavailable) as failed:
            anchor.publish(ORIGIN, note(8))
        assert failed.value.__cause__ is failed.value.__context__ is None  # what the driver says quotes addresses
        anchor.publish(ORIGIN, note(8))
        assert kept(anchor) == [note(7), note(8)]


def test_a_server_that_accepts_and_stays_silent(anchored: Roles) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        dsn = make_conninfo(anchored.dsn, host=host, port=port, connect_timeout="2")
        with pytest.raises(AnchorUnavailable):
            PostgresAnchor(dsn, schema=anchored.schema).latest(ORIGIN)


def test_a_server_that_stops_in_the_middle(anchored: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of its own ends a statement then."""
    monkeypatch.setattr("audit.anchors.postgres.ANSWER_SECONDS", 1)
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    stopped: list[int] = []

    def stop_and_ask() -> None:
        with anchor._connected() as (connection, _):
            stopped.extend(connection.execute("select pg_backend_pid()").fetchone() or ())
            os.kill(stopped[0], signal.SIGSTOP)
            connection.execute("select 1")

    began = time.monotonic()
    try:
        with pytest.raises(AnchorUnavailable):
            stop_and_ask()
        assert time.monotonic() - began < 10
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    assert anchor.latest(ORIGIN) is None


# ── PostgreSQL: setting up ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_role_that_may_makes_the_table_itself_and_once(pg: Pg, roles: Roles) -> None:
    start = threading.Barrier(3)

    def publish(size: int) -> None:
        start.wait()
        PostgresAnchor(pg.dsn, schema=roles.schema).publish(f"{ORIGIN}/{size}", note(size, origin=f"{ORIGIN}/{size}"))

    with meanwhile(lambda: publish(1)) as a, meanwhile(lambda: publish(2)) as b, meanwhile(lambda: publish(3)) as c:
        pass
    assert a + b + c == []
    assert pg.query(f"select size from {roles.schema}.checkpoint order by size") == [(1,), (2,), (3,)]
    with pytest.raises(psycopg.errors.RaiseException):
        pg.query(f"delete from {roles.schema}.checkpoint")


def test_an_anchor_that_is_not_set_up_takes_nothing_and_is_not_made_by_a_look(pg: Pg, roles: Roles) -> None:
    anchor = PostgresAnchor(roles.dsn, schema=roles.schema)
    with pytest.raises(ConfigError, match="InsufficientPrivilege") as refused:
        anchor.publish(ORIGIN, note(7))
    assert "anchor-checkpoints" in str(refused.value.hint)
    # Also by who may make it: the role that publishes has to be its owner, if anybody of ours is
    for dsn in (roles.dsn, pg.dsn):
        looks = PostgresAnchor(dsn, schema=roles.schema)
        assert (looks.latest(ORIGIN), kept(looks)) == (None, [])
    assert pg.query("select from pg_namespace where nspname = %s", roles.schema) == []


def test_setting_up_twice_changes_nothing(pg: Pg, anchored: Roles) -> None:
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    anchor.publish(ORIGIN, note(7))
    with pytest.raises(psycopg.errors.DuplicateTable):
        pg.query(statements(anchored.schema))
    pg.query("rollback")
    assert kept(anchor) == [note(7)]


def test_rights_that_new_tables_get_by_default_are_taken_away(pg: Pg, roles: Roles) -> None:
    pg.query(f"alter default privileges grant all on tables to {roles.writer}")
    try:
        pg.query(statements(roles.schema, writer=roles.writer))
    finally:
        pg.query(f"alter default privileges revoke all on tables from {roles.writer}")
    rights = "select privilege_type from information_schema.role_table_grants where table_schema = %s and grantee = %s"
    assert sorted(pg.query(rights, roles.schema, roles.writer)) == [("INSERT",), ("SELECT",)]


def test_names_are_quoted(pg: Pg, roles: Roles) -> None:
    strange = f'{roles.schema} "A"'
    try:
        pg.query(statements(strange, writer=roles.writer))
        anchor = PostgresAnchor(roles.dsn, schema=strange)
        anchor.publish(ORIGIN, note(7))
        assert kept(anchor) == [note(7)]
        with pytest.raises(ForkedTrail):
            anchor.publish(ORIGIN, note(6))
    finally:
        pg.query(f'drop schema "{roles.schema} ""A""" cascade')


@pytest.mark.parametrize(
    ("setting", "value", "kind"),
    [
        ("default_transaction_isolation", "serializable", None),
        ("default_transaction_deferrable", "on", None),
        ("client_encoding", "latin1", None),
        ("default_transaction_read_only", "on", AnchorUnavailable),
    ],
)
def test_what_a_role_is_set_to(pg: Pg, anchored: Roles, setting: str, value: str, kind: type[CdfError] | None) -> None:
    pg.query(f"alter role {anchored.writer} set {setting} = {value}")
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    if kind is None:
        anchor.publish(ORIGIN, note(7))
        assert kept(anchor) == [note(7)]
    else:
        with pytest.raises(kind):
            anchor.publish(ORIGIN, note(7))


@pytest.mark.parametrize(
    "wrong",
    [
        "{dsn} dbname=no_such_database",
        "{dsn} user=no_such_role",
        "{dsn} connect_timeout=no_such_number",
        "{dsn} sslmode=no_such_mode",
        f"host=localhost {PASSWORD}",
    ],
)
def test_a_dsn_that_is_wrong_is_not_shown(anchored: Roles, wrong: str) -> None:
    anchor = PostgresAnchor(wrong.format(dsn=anchored.dsn), schema=anchored.schema)
    with pytest.raises(ConfigError) as refused:
        anchor.latest(ORIGIN)
    assert "dsn" in f"{refused.value} {refused.value.hint}"
    for secret in (PASSWORD, "no_such"):
        assert secret not in tells(refused.value)


def test_what_is_published_is_durable_whatever_the_role_is_set_to(pg: Pg, anchored: Roles) -> None:
    pg.query(f"alter role {anchored.writer} set synchronous_commit = off")
    pg.query(f"alter table {anchored.schema}.checkpoint add waited text default current_setting('synchronous_commit')")
    PostgresAnchor(anchored.dsn, schema=anchored.schema).publish(ORIGIN, note(7))
    assert pg.query(f"select waited from {anchored.schema}.checkpoint") == [("on",)]


def test_more_notes_than_are_fetched_at_a_time(anchored: Roles, writer: psycopg.Connection[Any]) -> None:
    notes = [note(size) for size in range(1, 302)]
    with writer.cursor() as cursor:
        cursor.executemany(INSERT, [(ORIGIN, size, one) for size, one in enumerate(notes, start=1)])
    anchor = PostgresAnchor(anchored.dsn, schema=anchored.schema)
    assert kept(anchor) == notes
    some = anchor.notes(ORIGIN)
    assert [next(some), next(some)] == notes[:2]  # and whoever stops there leaves nothing open
    some.close()  # type: ignore[attr-defined]
    sessions = "select count(*) from pg_stat_activity where usename = current_user"
    until(lambda: writer.execute(sessions).fetchone() == (1,))


# ── S3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def versions(aws: Aws, bucket: str, size: int) -> list[str]:
    """Of an object, the newest first."""
    found = aws.s3.list_object_versions(Bucket=bucket, Prefix=key(size)).get("Versions", [])
    return [one["VersionId"] for one in found]


def test_a_checkpoint_is_locked_for_so_many_days_and_cannot_be_removed(aws: Aws, locked: str) -> None:
    anchor = on_s3(aws, locked, days=DAYS)
    anchor.publish(ORIGIN, note(7))
    told = aws.s3.head_object(Bucket=locked, Key=key(7), ChecksumMode="ENABLED")
    assert base64.b64decode(told["ChecksumSHA256"]) == hashlib.sha256(note(7).encode()).digest()
    assert told["ObjectLockMode"] == "COMPLIANCE"
    left = told["ObjectLockRetainUntilDate"] - dt.datetime.now(dt.UTC)
    assert dt.timedelta(days=DAYS - 1) < left <= dt.timedelta(days=DAYS)
    (version,) = versions(aws, locked, 7)
    for bypass in ({}, {"BypassGovernanceRetention": True}):
        with pytest.raises(ClientError, match="AccessDenied"):
            aws.s3.delete_object(Bucket=locked, Key=key(7), VersionId=version, **bypass)
    assert kept(anchor) == [note(7)]


def test_what_hides_or_overwrites_a_checkpoint_is_seen_through(aws: Aws, locked: str) -> None:
    anchor = on_s3(aws, locked, days=DAYS)
    for size in (7, 8, 9):
        anchor.publish(ORIGIN, note(size))
    aws.s3.delete_object(Bucket=locked, Key=key(8))
    aws.s3.put_object(Bucket=locked, Key=key(8), Body=note(8, "rewritten"))
    aws.s3.delete_object(Bucket=locked, Key=key(9))
    with pytest.raises(ClientError, match="NoSuchKey"):
        aws.s3.get_object(Bucket=locked, Key=key(9))
    for seen in (anchor, on_s3(aws, locked)):
        assert kept(seen) == [note(7), note(8), note(9)]
        assert seen.latest(ORIGIN) == note(9)
    anchor.publish(ORIGIN, note(8))
    anchor.publish(ORIGIN, note(9, by=OTHER))
    for size in (8, 9):
        with pytest.raises(ForkedTrail, match="same size"):
            anchor.publish(ORIGIN, note(size, "rewritten"))
    assert [len(versions(aws, locked, size)) for size in (7, 8, 9)] == [1, 2, 1]


def test_a_larger_checkpoint_that_is_hidden_still_counts(aws: Aws, locked: str) -> None:
    anchor = on_s3(aws, locked, days=DAYS)
    anchor.publish(ORIGIN, note(10))
    aws.s3.delete_object(Bucket=locked, Key=key(10))
    with pytest.raises(ForkedTrail, match="larger checkpoint"):
        anchor.publish(ORIGIN, note(9))
    assert kept(anchor) == [note(10)]


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_lists_of_several_pages(aws: Aws, locked: str, pages: int) -> None:
    settings = aws.storage().s3.bucket(locked)

    def client() -> Any:
        made = s3_client(settings)
        for call in ("ListObjectVersions", "ListObjectsV2"):
            made.meta.events.register(
                f"provide-client-params.s3.{call}", lambda params, **_: {**params, "MaxKeys": pages}
            )
        return made

    anchor = S3Anchor(f"s3://{locked}/anchors/of us", client)
    for size in range(1, 8):
        anchor.publish(ORIGIN, note(size))
    for size in (2, 3, 6):
        for _ in range(2):
            aws.s3.put_object(Bucket=locked, Key=key(size), Body=b"another")
            aws.s3.delete_object(Bucket=locked, Key=key(size))
    assert kept(anchor) == [note(size) for size in range(1, 8)]
    assert anchor.latest(ORIGIN) == note(7)


def test_what_is_not_ours_in_the_folder_is_passed_over(aws: Aws) -> None:
    anchor = on_s3(aws, aws.bucket)
    anchor.publish(ORIGIN, note(7))
    for name in ("zzz.txt", "README", f"more/{file_name(9)}", f"{file_name(7)}.bak", f"{10**20}.txt"):
        aws.s3.put_object(Bucket=aws.bucket, Key=key(0).replace(file_name(0), name), Body=b"foreign")
    assert kept(anchor) == [note(7)]
    anchor.publish(ORIGIN, note(8))
    assert anchor.latest(ORIGIN) == note(8)


def test_of_something_huge_only_the_beginning_is_read(aws: Aws) -> None:
    anchor = on_s3(aws, aws.bucket)
    aws.s3.put_object(Bucket=aws.bucket, Key=key(7), Body=b"x" * 1_000_000)
    assert anchor.latest(ORIGIN) == "x" * 65_536


def test_a_bucket_without_object_lock_is_refused_where_one_is_asked_for(aws: Aws) -> None:
    with pytest.raises(ConfigError, match="no Object Lock") as refused:
        on_s3(aws, aws.bucket, days=DAYS).publish(ORIGIN, note(7))
    assert "object_lock_days" in str(refused.value.hint)
    anchor = on_s3(aws, aws.bucket)
    assert kept(anchor) == []
    anchor.publish(ORIGIN, note(7))
    with pytest.raises(ConfigError, match="does not show that it is locked"):  # kept, but from before it was asked for
        on_s3(aws, aws.bucket, days=DAYS).publish(ORIGIN, note(7))


def test_the_bucket_s_own_default_locks_what_asks_for_nothing(aws: Aws, locked: str) -> None:
    rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": DAYS}}}
    aws.s3.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration=rule)
    on_s3(aws, locked).publish(ORIGIN, note(7))
    with pytest.raises(ClientError, match="AccessDenied"):
        aws.s3.delete_object(Bucket=locked, Key=key(7), VersionId=versions(aws, locked, 7)[0])


@pytest.mark.parametrize("conditional", [True, False], ids=["heeds", "ignores"])
def test_one_that_was_quicker_is_found_out_also_by_a_server_that_ignores_the_condition(
    aws: Aws, locked: str, conditional: bool
) -> None:
    with AwsProxy(aws.endpoint, conditional=conditional) as proxy:
        put = proxy.delay(r"^PUT ", 60)
        slow = on_s3(aws, locked, days=DAYS, endpoint=proxy.endpoint)
        with meanwhile(lambda: slow.publish(ORIGIN, note(7, "slow"))) as failures:
            until(lambda: put.hits)
            on_s3(aws, locked, days=DAYS).publish(ORIGIN, note(7, "quick"))
            put.go.set()
    assert [type(failure) for failure in failures] == [ForkedTrail]
    assert kept(on_s3(aws, locked)) == [note(7, "quick")]
    assert len(versions(aws, locked, 7)) == (1 if conditional else 2)


def test_a_lost_answer_is_no_fork(aws: Aws, aws_proxy: AwsProxy, locked: str) -> None:
    anchor = on_s3(aws, locked, days=DAYS, endpoint=aws_proxy.endpoint)
    aws_proxy.drop_answer(r"^PUT ", times=1)
    anchor.publish(ORIGIN, note(7))
    assert kept(anchor) == [note(7)]
    assert len(versions(aws, locked, 7)) == 1


def test_a_put_that_came_between_others_may_be_repeated(aws: Aws, aws_proxy: AwsProxy, locked: str) -> None:
    anchor = on_s3(aws, locked, days=DAYS, endpoint=aws_proxy.endpoint)
    aws_proxy.refuse(r"^PUT ", code="ConditionalRequestConflict", status=409, times=1)
    with pytest.raises(AnchorUnavailable):
        anchor.publish(ORIGIN, note(7))
    anchor.publish(ORIGIN, note(7))
    assert kept(anchor) == [note(7)]


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("NotImplemented", 501)])
def test_where_versions_may_not_be_listed_what_is_shown_counts(
    aws: Aws, aws_proxy: AwsProxy, locked: str, code: str, status: int
) -> None:
    anchor = on_s3(aws, locked, days=DAYS, endpoint=aws_proxy.endpoint)
    aws_proxy.refuse(r"^GET .*[?&]versions", code=code, status=status)
    for size in (7, 9):
        anchor.publish(ORIGIN, note(size))
        anchor.publish(ORIGIN, note(size, by=OTHER))
    with pytest.raises(ForkedTrail, match="same size"):
        anchor.publish(ORIGIN, note(7, "rewritten"))
    with pytest.raises(ForkedTrail, match="larger"):
        anchor.publish(ORIGIN, note(8))
    assert kept(anchor) == [note(7), note(9)]
    assert anchor.latest(ORIGIN) == note(9)


@pytest.mark.parametrize(
    ("pattern", "code", "status", "kind"),
    [
        (r"^PUT ", "SlowDown", 503, AnchorUnavailable),
        (r"^GET ", "InternalError", 500, AnchorUnavailable),
        (r"^PUT ", "RequestLimitExceeded", 400, AnchorUnavailable),
        (r"^GET ", "ThrottlingException", 400, AnchorUnavailable),
        (r"^GET ", "UnheardOf", 502, AnchorUnavailable),
        (r"^PUT ", "AccessDenied", 403, ConfigError),
        (r"^GET ", "AccessDenied", 403, ConfigError),
        (r"^GET .*/\d{20}", "AccessDenied", 403, ConfigError),
        (r"^GET ", "InvalidAccessKeyId", 403, ConfigError),
        (r"^PUT ", "NotImplemented", 501, ConfigError),
    ],
)
def test_what_a_bucket_refuses(
    aws: Aws, aws_proxy: AwsProxy, locked: str, pattern: str, code: str, status: int, kind: type[CdfError]
) -> None:
    anchor = on_s3(aws, locked, days=DAYS, endpoint=aws_proxy.endpoint)
    with aws_proxy.only(aws_proxy.refuse(pattern, code=code, status=status)), pytest.raises(kind) as refused:
        anchor.publish(ORIGIN, note(7))
    assert refused.value.condition == code
    assert refused.value.hint
    for secret in (SECRET, KEY_ID, "by the proxy"):
        assert secret not in tells(refused.value)
    anchor.publish(ORIGIN, note(7))


def test_credentials_that_have_expired_are_had_anew(aws: Aws, aws_proxy: AwsProxy) -> None:
    made: list[Any] = []

    def client() -> Any:
        made.append(s3_client(aws.storage(endpoint=aws_proxy.endpoint).s3.bucket(aws.bucket)))
        return made[-1]

    anchor = S3Anchor(f"s3://{aws.bucket}", client)
    anchor.publish(ORIGIN, note(7))
    aws_proxy.refuse(r"^PUT ", code="ExpiredToken", times=1)
    with pytest.raises(AnchorUnavailable, match="expired"):
        anchor.publish(ORIGIN, note(8))
    anchor.publish(ORIGIN, note(8))
    assert kept(anchor) == [note(7), note(8)]
    assert len(made) == 2


def test_a_server_that_never_answers(aws: Aws, aws_proxy: AwsProxy) -> None:
    from botocore.config import Config

    aws_proxy.silence(".")
    config = Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})
    anchor = S3Anchor("s3://bucket", lambda: aws.client("s3", endpoint_url=aws_proxy.endpoint, config=config))
    with pytest.raises(AnchorUnavailable):
        anchor.publish(ORIGIN, note(7))


def test_no_bucket_no_keys_no_address(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        on_s3(aws, "there-is-no-such-bucket").latest(ORIGIN)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match="NoCredentialsError"):
        S3Anchor(f"s3://{aws.bucket}", lambda: boto3.Session(region_name=aws.region).client("s3")).latest(ORIGIN)
    for url in ("s3://", "https://bucket/prefix", "bucket/prefix", "s3://bucket//prefix"):
        with pytest.raises(ConfigError, match="s3://BUCKET/PREFIX"):
            S3Anchor(url, lambda: None)


@pytest.mark.parametrize("url", ["s3://{}", "s3://{}/", "s3a://{}/a/b/"])
def test_addresses(aws: Aws, url: str) -> None:
    anchor = S3Anchor(url.format(aws.bucket), lambda: aws.s3)
    anchor.publish(ORIGIN, note(7))
    (listed,) = aws.s3.list_objects_v2(Bucket=aws.bucket)["Contents"]
    prefix = "a/b/" if url.endswith("b/") else ""
    assert listed["Key"] == f"{prefix}{folder_name(ORIGIN)}/{file_name(7)}"


# ── the page that tells how to set them up ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def admin(database: Database) -> Iterator[Database]:
    """A database of its own, on a server that has not got the page's roles, and has not got them afterwards."""
    assert database.query("select from pg_roles where rolname in ('relay', 'auditor')") == []
    yield database
    database.query("drop owned by relay, auditor; drop role relay, auditor")


def test_the_how_to_page(admin: Database, aws: Aws, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "anchor-checkpoints.md").read_text()
    files = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    allowed = json.loads(files["publisher.json"])["Statement"]
    assert not [one for statement in allowed for one in statement["Action"] if "Delete" in one or "*" in one]
    assert {one["Effect"] for one in json.loads(files["bucket.json"])["Statement"]} == {"Deny"}
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(programs()), os.environ["PATH"]]),
            "PYTHONPATH": str(REPOSITORY),
            "ADMIN_DSN": admin.dsn,
            "RELAY_DSN": make_conninfo(admin.dsn, user="relay"),
            "S3_ENDPOINT": aws.endpoint,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("example.org/no-trail\n1\n") == 2
    assert "S3: AccessDenied\n" in done.stdout
    assert "permission denied for table checkpoint" in done.stderr
    assert "must be owner of table checkpoint" in done.stderr
    assert admin.query("select size, published_by from deltarelay_anchor.checkpoint") == [(1, "relay")]
