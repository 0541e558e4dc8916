"""``validate --no-env``: a file is checked where none of its variables is set; what could not be checked is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdf.errors import ConfigError
from infra.cli.main import app
from infra.config.load import check_without_secrets

FILE = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: "${WAREHOUSE_DSN}"}
  events: {kind: kafka, bootstrap_servers: "${BROKERS}:9092", security: {protocol: SASL_SSL,
    mechanism: SCRAM-SHA-512, username: me, password: "${file:secrets/kafka}"}}
spark: {conf: {some.setting: "${WAREHOUSE_DSN}"}}
pipelines:
  orders:
    source: {table: "s3a://${BUCKET}/orders", key: ["${KEY}"], start: snapshot}
    sink: {connection: warehouse, table: "${SCHEMA}.orders", conflicts: refuse}
  sales:
    source: {tables: "${LAKE}/sales/*", key: [id]}
    sink: {connection: events, topic: "sales.{name}"}
"""
REFERENCES = ["WAREHOUSE_DSN", "BROKERS", "file:secrets/kafka", "BUCKET", "KEY", "SCHEMA", "LAKE"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in REFERENCES:
        monkeypatch.delenv(name, raising=False)
    found = tmp_path / "deltarelay.yaml"
    found.write_text(FILE)
    return found


def validate(*words: str) -> Any:
    return CliRunner().invoke(app, ["validate", *words], catch_exceptions=True)


def test_what_is_not_set_is_listed_and_no_mistake(file: Path) -> None:
    done = validate("--no-env")
    assert (done.exit_code, done.exception) == (0, None)
    assert f"{file.name} has no mistakes: 2 pipelines, 2 connections; 7 references NOT CHECKED:" in done.output
    assert ", ".join(f"${{{name}}}" for name in REFERENCES) in done.output
    assert "sales: its tables were not listed" in done.output
    document = json.loads(validate("--no-env", "--json").stdout)
    assert (document["ok"], document["result"]) == (True, {"not_checked": [f"${{{name}}}" for name in REFERENCES]})
    assert "7 problems" not in str(validate().exception)
    assert "the environment variable BUCKET is not set" in str(validate().exception), "it is a mistake otherwise"


@pytest.mark.parametrize(
    ("before", "after", "where", "message"),
    [
        ("start: snapshot", "start: never", "pipelines.orders.source.start", "must be snapshot, earliest"),
        ("conflicts: refuse", "conflict: refuse", "pipelines.orders.sink.conflict", "unknown key"),
        ("{connection: warehouse", "{connection: house", "pipelines.orders.sink.connection", "is not an entry under"),
        ("sales.{name}", "sales", "pipelines.sales.sink", "does not contain {name}"),
        ("${BUCKET}", "${BUCKET:-b}", "pipelines.orders.source.table", "a reference must be ${NAME} or ${file:/path}"),
        ("${SCHEMA}", "${SCHEMA", "pipelines.orders.sink.table", "a reference must be ${NAME} or ${file:/path}"),
        ("${file:secrets/kafka}", "${file:}", "connections.events.security.password", "names no file"),
    ],
)
def test_every_other_mistake_is_still_one(file: Path, before: str, after: str, where: str, message: str) -> None:
    file.write_text(FILE.replace(before, after))
    with pytest.raises(ConfigError) as caught:
        check_without_secrets(file, environ={})
    errors = [(one["path"], message in one["message"]) for one in caught.value.fields["errors"]]
    assert errors == [(where, True)], caught.value.message


def test_a_variable_that_is_set_is_checked(file: Path) -> None:
    found = check_without_secrets(file, environ={"BUCKET": "lake", "LAKE": "/lake"})
    assert not {"${BUCKET}", "${LAKE}"} & set(found.unset)
    assert found.project is not None
    assert found.project.pipeline("orders").source.table == "s3a://lake/orders"
    with pytest.raises(ConfigError, match="is empty; give a connection string"):
        check_without_secrets(file, environ={"WAREHOUSE_DSN": ""})


def test_a_secret_file_that_exists_is_checked(file: Path) -> None:
    (file.parent / "secrets").mkdir()
    (file.parent / "secrets" / "kafka").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        check_without_secrets(file, environ={})


def test_a_number_that_is_not_set_is_no_mistake(file: Path) -> None:
    file.write_text(FILE + '    window: {max_commits: "${COMMITS}"}\n')
    found = check_without_secrets(file, environ={})
    assert (found.project, found.unset[-1]) == (None, "${COMMITS}")
    assert validate("--no-env").output.startswith(f"{file.name} has no mistakes; 8 references NOT CHECKED:")


def test_a_file_without_references_is_just_valid(file: Path) -> None:
    file.write_text("""\
version: 1
connections: {w: {kind: postgres, dsn: postgresql://h/d}}
pipelines: {a: {source: {table: /a, key: [id]}, sink: {connection: w, table: a}}}
""")
    assert validate("--no-env").output.startswith(f"{file.name} is valid: 1 pipeline, 1 connection\n")


def test_connecting_needs_every_value(file: Path) -> None:
    done = validate("--no-env", "--connect")
    assert done.exit_code == 2
    assert "cannot be combined with --connect" in " ".join(done.output.split())
