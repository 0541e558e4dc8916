"""Servers that are full, read-only, picky about logins or TLS: each is named as what it is, and the run goes on after it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cdf.errors import CdfError, SinkUnavailable, TargetNotReady
from cdf.sink import Conflicts
from cdf.testing import SampleTable, delete, insert, update
from connectors.postgres import PostgresSink
from infra.embedded.postgres import EmbeddedPostgres
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_spark import cannot_run
from tests.fixtures.postgres_proxy import PostgresProxy, TlsDoor
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, person, position, tells

A, B, C = person(1, "xanadu-a"), person(2, "xanadu-b"), person(3, "xanadu-c")
RIGHT, WRONG, NEW = "hunter2right", "hunter2wrong", "hunter2new"
LANGUAGES = pytest.mark.parametrize("says", [None, "так не пойдёт"], ids=["english", "russian"])
"""As the server says it, or as one with another lc_messages would."""


@dataclass(frozen=True, slots=True)
class Own:
    """A server of this file's own. ``clerk`` needs a password on TCP and owns the database ``office``."""

    server: EmbeddedPostgres
    port: int

    def dsn(self, **parts: str) -> str:
        given = {"host": "127.0.0.1", "user": "clerk", "password": RIGHT, "dbname": "office", **parts}
        return make_conninfo("", **{"port": self.port, **given})

    @property
    def admin(self) -> str:
        return make_conninfo("", host=str(self.server.socket_folder), port=self.port, user="postgres", dbname="office")

    def say(self, *statements: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[arg-type]

    def end_sessions(self) -> None:
        self.say(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = 'deltarelay' and pid <> pg_backend_pid()"
        )


def start(stack: ExitStack, folder: Path, **config: str | int) -> Own:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = EmbeddedPostgres(folder, config={"listen_addresses": "127.0.0.1", "port": port, **config})
    stack.enter_context(server)
    (server.data / "pg_hba.conf").write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    socket_dsn = make_conninfo("", host=str(server.socket_folder), port=port, user="postgres", dbname="postgres")
    with psycopg.connect(socket_dsn, autocommit=True) as connection:
        connection.execute(f"create role clerk login password '{RIGHT}'")
        connection.execute("create database office owner clerk")
        connection.execute("select pg_reload_conf()")
    return Own(server, port)


@pytest.fixture(scope="module")
def own(server_folder: Path) -> Iterator[Own]:
    with ExitStack() as stack:
        yield start(stack, server_folder / "outages", max_connections=12, superuser_reserved_connections=3)


@pytest.fixture
def office(own: Own, request: pytest.FixtureRequest) -> Iterator[Pg]:
    """The clerk's corner: a schema in which a test's target is made. Seen by an administrator."""
    schema = f"t_{abs(hash(request.node.nodeid)) % 10**9}"
    with psycopg.connect(own.admin, autocommit=True) as connection:
        connection.execute(f"create schema {schema} authorization clerk")  # type: ignore[arg-type]
        connection.execute(f"set search_path = {schema}")  # type: ignore[arg-type]
        yield Pg(own.dsn(), schema, connection)
        connection.execute(f"drop schema {schema} cascade")  # type: ignore[arg-type]
        own.say(f"alter role clerk login password '{RIGHT}' connection limit -1", "alter role clerk reset all")


def goes_on(pg: Pg, sink: PostgresSink, table: SampleTable) -> None:
    """From version 1, which holds A alone, or from 2."""
    if position(pg) == 1:
        sink.apply(table.window(2, [insert(B)]))
    applied = sink.apply(table.window(3, [insert(C), delete(A)], [update(B, person(2, "xanadu-d"))]))
    assert applied.conflicts == Conflicts()
    assert (names(pg), position(pg)) == ({2: "xanadu-d", 3: "xanadu-c"}, 4)


# ── the login ────────────────────────────────────────────────────────────────────────────────────────────────────────


@LANGUAGES
@pytest.mark.parametrize(
    ("parts", "kind", "condition", "words"),
    [
        ({"password": WRONG}, TargetNotReady, "28", "refused the login"),
        ({"user": "nobody"}, TargetNotReady, "28", "refused the login"),
        ({"dbname": "nowhere"}, TargetNotReady, "3D000", "does not exist"),
        ({"options": "-c role=postgres"}, TargetNotReady, "42501", "lacks a right"),
        ({"options": "-c no_such_setting=1"}, TargetNotReady, "DSN", "refuses a parameter of the dsn"),
        ({"options": "-c connection_limit_of_clerk=0"}, SinkUnavailable, "53300", "no free connection"),
    ],
    ids=["password", "user", "database", "role", "setting", "limit"],
)
def test_a_refused_login_is_named_in_any_language(
    own: Own, says: str | None, parts: dict[str, str], kind: type[CdfError], condition: str, words: str
) -> None:
    if "connection_limit_of_clerk" in str(parts):
        own.say("alter role clerk connection limit 0")
        parts = {}
    try:
        with PostgresProxy(own.dsn(**parts)) as proxy:
            proxy.says = says
            with pytest.raises(kind, match=words) as found:
                PostgresSink(proxy.dsn, table="target").position()
    finally:
        own.say("alter role clerk connection limit -1")
    assert str(found.value.condition).startswith(condition)
    assert "hunter2" not in tells(found.value)


@LANGUAGES
@ON_BOTH_PATHS
def test_a_password_that_is_changed_in_the_run_is_named(
    spark: SparkSession, own: Own, office: Pg, path: dict[str, int], says: str | None
) -> None:
    table = people(spark)
    with PostgresProxy(own.dsn()) as proxy:
        with loaded(office, table, [A], dsn=proxy.dsn, **path) as sink:
            sink.apply(table.window(2, [insert(B)]))
            own.say(f"alter role clerk password '{NEW}'")
            proxy.says = says
            if not path:  # its connection for COPY is open; a task makes its own
                own.end_sessions()
            with pytest.raises(TargetNotReady, match="refused the login") as found:
                sink.apply(table.window(3, [insert(C)]))
            assert "hunter2" not in tells(found.value)
            assert "xanadu" not in tells(found.value)
        assert (names(office), position(office)) == ({1: "xanadu-a", 2: "xanadu-b"}, 2)
        office.query("update deltarelay.position set lease_until = null where target = %s", f"{office.schema}.target")
        with opened(office, table.source(), dsn=own.dsn(password=NEW), **path) as sink:
            goes_on(office, sink, table)


def take_all(own: Own, held: ExitStack) -> None:
    for _ in range(20):
        try:
            held.enter_context(psycopg.connect(own.dsn(application_name="stranger")))
        except psycopg.OperationalError:
            return
    pytest.fail("there are always more")


@ON_BOTH_PATHS
def test_when_every_connection_is_taken_it_is_unavailable(
    spark: SparkSession, own: Own, office: Pg, path: dict[str, int]
) -> None:
    table = people(spark)
    with loaded(office, table, [A], dsn=own.dsn(), **path) as sink:
        own.end_sessions()
        with ExitStack() as strangers:
            take_all(own, strangers)
            with pytest.raises(SinkUnavailable, match="no free connection") as found:
                sink.apply(table.window(2, [insert(B)]))
            assert "max_connections" in str(found.value.hint)
        assert (names(office), position(office)) == ({1: "xanadu-a"}, 1)
        goes_on(office, sink, table)


@ON_BOTH_PATHS
def test_role_and_search_path_of_the_dsn_are_kept(
    spark: SparkSession, own: Own, office: Pg, path: dict[str, int]
) -> None:
    """``clerk`` logs in and works as ``owner``, with a search_path in which a table shadows ours."""
    own.say(
        "do $$ begin create role owner; exception when duplicate_object then end $$",
        "grant owner to clerk",
        "grant create on database office to owner",
        f"grant all on schema {office.schema} to owner",
        "drop schema if exists deltarelay cascade",
        "create schema if not exists shadow",
        "create table if not exists shadow.position (target text)",
        "create table if not exists shadow.target (id int)",
        "grant usage on schema shadow to owner",
    )
    table, dsn = people(spark), own.dsn(options="-c role=owner -c search_path=shadow")
    try:
        with loaded(office, table, [A], dsn=dsn, **path) as sink:
            goes_on(office, sink, table)
        owners = office.query(
            "select distinct tableowner from pg_tables where schemaname in ('deltarelay', %s)", office.schema
        )
        assert owners == [("owner",)]
        assert office.query("select count(*) from shadow.target") == [(0,)]
    finally:
        own.say("drop schema if exists deltarelay cascade")


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_a_database_that_turns_read_only_is_unavailable(
    spark: SparkSession, own: Own, office: Pg, path: dict[str, int]
) -> None:
    table = people(spark)
    with loaded(office, table, [A], dsn=own.dsn(), **path) as sink:
        own.say("alter role clerk set default_transaction_read_only = on")
        own.end_sessions()
        with pytest.raises(SinkUnavailable, match="read-only") as found:
            sink.apply(table.window(2, [insert(B)]))
        assert "target_session_attrs" in str(found.value.hint)
        assert (names(office), position(office)) == ({1: "xanadu-a"}, 1)
        own.say("alter role clerk reset default_transaction_read_only")
        own.end_sessions()
        goes_on(office, sink, table)


def test_a_standby_is_unavailable_until_it_is_promoted(spark: SparkSession, server_folder: Path) -> None:
    table = people(spark)
    with ExitStack() as stack:
        own = start(stack, server_folder / "standby")
        with psycopg.connect(own.admin, autocommit=True) as connection:
            connection.execute("create schema s authorization clerk")
            with loaded(Pg(own.dsn(), "s", connection), table, [A], dsn=own.dsn()):
                pass
        own.server.stop()
        (own.server.data / "standby.signal").touch()
        own.server.start()  # and replays its own log, waiting for more
        with psycopg.connect(own.admin, autocommit=True) as connection:
            assert connection.execute("select pg_is_in_recovery()").fetchone() == (True,)
            sink = PostgresSink(own.dsn(), table="s.target")
            assert sink.position().version == 1  # it can be read
            with pytest.raises(SinkUnavailable, match="read-only"):
                sink.open(table.source())
            connection.execute("select pg_promote()")
            corner = Pg(own.dsn(), "s", connection)
            connection.execute("set search_path = s")
            with opened(corner, table.source(), dsn=own.dsn()) as sink:
                goes_on(corner, sink, table)


@pytest.fixture
def small_disk(own: Own, server_folder: Path) -> Iterator[str]:
    """A tablespace on a disk of 6 MB of its own."""
    place = server_folder / "small-disk"
    place.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0777", "deltarelay-test", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        cannot_run("a full disk needs the right to mount one (root)")
    try:
        inside = place / "space"
        inside.mkdir(mode=0o700)
        owner = own.server.data.stat()
        os.chown(inside, owner.st_uid, owner.st_gid)
        own.say(f"create tablespace small location '{inside}'", "grant create on tablespace small to clerk")
        yield "small"
        own.say("drop tablespace small")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@ON_BOTH_PATHS
def test_a_disk_that_is_full_is_named_and_leaves_nothing_half_written(
    spark: SparkSession, own: Own, office: Pg, small_disk: str, path: dict[str, int]
) -> None:
    """Staging is on the full disk, then the target is."""
    table, big = people(spark), [person(index, f"{index:08}" * 100) for index in range(10, 4000)]
    dsn = own.dsn(options=f"-c default_tablespace={small_disk}")
    with loaded(office, table, [A], dsn=dsn, **path) as sink:
        sink.apply(table.window(2, [insert(B)]))
        for fills in ("stage", "target"):
            if fills == "target":  # staging fits, and the rows do not fit once more
                big = big[: len(big) // 2]
                office.query("alter table target set tablespace small")
            with pytest.raises(SinkUnavailable, match="no disk space left") as found:
                sink.apply(table.window(3, [insert(row) for row in big]))
            assert found.value.condition == "53100"
            assert "00000010" not in tells(found.value)
            assert (names(office), position(office)) == ({1: "xanadu-a", 2: "xanadu-b"}, 2)
        sink.close()  # drops staging; and somebody makes room
        office.query("vacuum target")
        sink.open(table.source())
        goes_on(office, sink, table)
    own.say(f"drop table {office.schema}.target", "drop schema deltarelay cascade")


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Certified:
    dsn: str
    root: Path
    """The certificate that is shown, for 127.0.0.1 alone."""
    other: Path


@pytest.fixture(scope="module")
def certified(own: Own, server_folder: Path) -> Iterator[Certified]:
    """TLS before the server, as a cloud's proxy has it: the embedded programs are built without."""
    folder = server_folder / "certificates"
    folder.mkdir()
    for name in ("shown", "other"):
        key, certificate = certificate_of("127.0.0.1")
        (folder / f"{name}.crt").write_bytes(certificate)
        (folder / f"{name}.key").write_bytes(key)
    with TlsDoor("127.0.0.1", own.port, folder / "shown.crt", folder / "shown.key") as door:
        yield Certified(own.dsn(port=str(door.port)), folder / "shown.crt", folder / "other.crt")


def certificate_of(host: str) -> tuple[bytes, bytes]:
    """A key, and a certificate that it has signed itself, for an hour."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]), dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret, certificate.public_bytes(serialization.Encoding.PEM)


@ON_BOTH_PATHS
def test_tls_parameters_of_the_dsn_reach_every_connection(
    spark: SparkSession, office: Pg, certified: Certified, path: dict[str, int]
) -> None:
    """The door has no way in without TLS."""
    table = people(spark)
    with pytest.raises(SinkUnavailable):
        PostgresSink(make_conninfo(certified.dsn, sslmode="disable"), table="target").position()
    dsn = make_conninfo(certified.dsn, sslmode="verify-full", sslrootcert=str(certified.root))
    with loaded(office, table, [A], dsn=dsn, **path) as sink:
        goes_on(office, sink, table)


Wrong = Callable[[Certified], dict[str, str]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda files: {"sslmode": "verify-full", "sslrootcert": str(files.other)},
        lambda files: {"sslmode": "verify-full", "sslrootcert": str(files.root), "host": "localhost"},
        lambda _: {"sslmode": "verify-full", "sslrootcert": "/nowhere/root.crt"},
    ],
    ids=["authority", "name", "file"],
)
def test_a_server_that_is_not_trusted_is_named_as_that(certified: Certified, wrong: Wrong) -> None:
    parts = wrong(certified)
    if parts.get("host"):
        parts["hostaddr"] = "127.0.0.1"
    with pytest.raises(TargetNotReady, match="TLS") as found:
        PostgresSink(make_conninfo(certified.dsn, **parts), table="target").position()
    assert "sslrootcert" in str(found.value.hint)
    assert "hunter2" not in tells(found.value)


def test_a_server_without_tls_is_named_as_that(own: Own) -> None:
    with pytest.raises(TargetNotReady, match="TLS"):
        PostgresSink(own.dsn(sslmode="require"), table="target").position()
