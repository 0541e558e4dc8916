"""For the acceptance tests: a database of its own for each, and a folder to run commands in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from tests.acceptance.commands import CANARY, Database, Project


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[Database]:
    name = f"acceptance_{secrets.token_hex(5)}"
    password = str(conninfo_to_dict(postgres_dsn).get("password") or CANARY)
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(f"create database {name}")
    own = Database(make_conninfo(postgres_dsn, dbname=name, password=password), password)
    yield own
    own.connection.close()
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def jars(spark: SparkSession) -> str:
    """The jars of the session, so that not every command has Ivy look for them again."""
    return str(spark.sparkContext.getConf().get("spark.jars") or "").replace("file://", "")


@pytest.fixture
def project(tmp_path: Path, database: Database, jars: str) -> Iterator[Project]:
    folder = tmp_path / "project"
    folder.mkdir()
    place = Project(folder, database, jars)
    yield place
    place.close()
    place.check_secret()
