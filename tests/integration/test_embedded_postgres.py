"""The embedded server starts in any folder, survives a crash and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cdf.errors import ConfigError
from infra.embedded.postgres import EmbeddedPostgres, find_protected_folder
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_spark import missing_service


@pytest.fixture(scope="module")
def server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A server that the tests here may stop."""
    try:
        made = EmbeddedPostgres(server_folder / "own")
    except ConfigError as error:
        missing_service("PostgreSQL", error)
    with made:
        yield made


def value(dsn: str, statement: str) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return str(row[0])


def test_what_was_committed_outlives_a_crash(server: EmbeddedPostgres) -> None:
    before = server.dsn
    with psycopg.connect(server.dsn) as connection:
        connection.execute("create table kept (n int)")
        connection.execute("insert into kept values (7)")
    server.stop("immediate")
    assert not server.running()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn)
    server.start()
    assert server.dsn == before
    assert value(server.dsn, "select n from kept") == "7"
    assert "was not properly shut down" in server.log_file.read_text()


def test_fsync_is_on_and_nothing_listens_on_the_network(server: EmbeddedPostgres) -> None:
    assert value(server.dsn, "show fsync") == "on"
    assert value(server.dsn, "show listen_addresses") == ""


def test_settings_are_taken_at_the_next_start(server: EmbeddedPostgres) -> None:
    server.config = {"max_connections": 17, "log_line_prefix": "it's "}
    server.restart()
    assert value(server.dsn, "show max_connections") == "17"
    assert value(server.dsn, "show log_line_prefix") == "it's "
    server.config = {}


def test_starting_and_stopping_twice_is_starting_and_stopping_once(server: EmbeddedPostgres) -> None:
    server.stop()
    server.stop()
    server.start()
    server.start()
    assert server.running()


def test_a_directory_too_long_for_a_socket(server_folder: Path) -> None:
    deep = server_folder / ("a" * 60) / ("b b'%" * 12)
    with EmbeddedPostgres(deep) as server:
        assert value(server.dsn, "select 1") == "1"
        sockets = value(server.dsn, "show unix_socket_directories")
    assert not sockets.startswith(str(server_folder))
    assert not Path(sockets).exists()


def test_a_server_that_outlives_its_process_is_found_and_stopped(tmp_path: Path) -> None:
    for folder in (tmp_path / "near", tmp_path / ("a" * 60) / ("b" * 60)):
        first = EmbeddedPostgres(folder)
        first.start()
        first.detach()
        second = EmbeddedPostgres(folder)
        try:
            assert second.running()
            assert second.dsn == first.dsn
            assert value(second.dsn, "select 1") == "1"
        finally:
            second.close()
        assert not first.running()
        assert not list(first.socket_folder.glob(".s*"))


def test_a_setting_that_postgres_refuses(server_folder: Path) -> None:
    server = EmbeddedPostgres(server_folder / "refused", config={"no_such_setting": 1})
    with pytest.raises(ConfigError, match="pg_ctl failed"):
        server.start()
    assert "no_such_setting" in server.log_file.read_text()
    server.close()


def test_psql_of_the_wheel(server: EmbeddedPostgres) -> None:
    said = subprocess.run([server.psql, server.dsn, "-Atc", "select 6 * 7"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "42"


def test_the_version_is_the_servers(server: EmbeddedPostgres) -> None:
    assert value(server.dsn, "show server_version") == EmbeddedPostgres.version()


def test_the_data_is_not_for_others(server: EmbeddedPostgres) -> None:
    for folder in (server.data, Path(value(server.dsn, "show unix_socket_directories"))):
        assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("shut", "refused"),
    [
        (["/root"], "/root"),
        (["/tmp/pytest/a", "/root"], "/root"),
        (["/srv"], "/srv"),
        (["/"], "/"),
        (["/tmp/pytest", "/root/demo"], None),
        ([], None),
    ],
)
def test_no_home_or_system_folder_is_opened_for_others(shut: list[str], refused: str | None) -> None:
    found = find_protected_folder([Path(one) for one in shut], Path("/root"))
    assert found == (None if refused is None else Path(refused))
    assert find_protected_folder([Path("/home/anna/demo")], Path("/root"), {Path("/home/anna/demo")}) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root opens folders")
def test_a_folder_of_another_user_is_not_opened(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ConfigError, match=f"may not traverse {theirs}"):
        EmbeddedPostgres(theirs / "server").start()
    assert theirs.stat().st_mode & 0o777 == 0o700


def test_each_test_has_a_schema_of_its_own(pg: Pg) -> None:
    pg.query("create table {schema}.t (n int)")
    pg.query("insert into t values (%s)", 3)
    assert pg.query("select n from {schema}.t") == [(3,)]
