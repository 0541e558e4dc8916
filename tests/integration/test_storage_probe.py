"""Bucket and lock table asked before Spark is: every fault has its own words, within seconds, and none shows a secret."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

import infra.key_proposal
from cdf.errors import CdfError, ConfigError, SourceUnavailable, TableNotFound
from infra.cli.main import app
from infra.config.load import load
from infra.diagnostics.delta_table import open_source
from infra.diagnostics.preflight import check_connections
from infra.diagnostics.status import read_pipeline_status
from infra.output import Output
from infra.runtime import build_pipeline, spark_session
from infra.s3.lock.table import create
from infra.s3.model import Storage
from infra.s3.probe import probe, probe_any, probe_buckets
from infra.s3.settings import delta_rs_options
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import KEY_ID, REGION, SECRET, Aws
from tests.fixtures.setups import FEED

NOBODY = "http://127.0.0.1:1"
SECONDS = 20.0


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SECONDS


def refused(storage: Storage, *addresses: str, ask: Callable[..., None] = probe_buckets) -> CdfError:
    with soon(), pytest.raises(CdfError) as caught:
        ask(storage, addresses)
    text = f"{caught.value!r} {caught.value.hint}"
    assert SECRET not in text
    assert KEY_ID not in text
    assert caught.value.hint
    return caught.value


@pytest.fixture
def silent() -> Iterator[str]:
    """Accepts, and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def table(aws: Aws) -> str:
    address = f"s3a://{aws.bucket}/lake/customers"
    options = delta_rs_options(alone(aws), address, writing=True)
    rows = pa.table({"customer_id": [1, 2, 3], "name": ["a", "b", None]})
    write_deltalake(address, rows, storage_options=options, configuration=FEED)
    return address


def alone(aws: Aws, **s3: Any) -> Storage:
    where = {"region": aws.region, "endpoint": aws.endpoint, "path_style": True, "credentials": "env", **s3}
    return Storage.model_validate({"s3": where, "commits": {"kind": "single_writer"}})


# ── the bucket ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_is_well(aws: Aws) -> None:
    create(aws.storage())
    with soon():
        probe(aws.storage(), [f"s3a://{aws.bucket}/t", f"s3a://{aws.bucket}/u", "/local/table"])


def test_the_bucket_is_missing(aws: Aws) -> None:
    error = refused(alone(aws), "s3a://no-such-bucket-4410/t")
    assert isinstance(error, ConfigError)
    assert "there is no bucket no-such-bucket-4410" in error.message


def test_the_bucket_is_in_another_region(aws: Aws) -> None:
    error = refused(alone(aws, region="us-east-1"), f"s3a://{aws.bucket}/t")
    assert error.message == f"the bucket {aws.bucket} is in the region {REGION}, not in us-east-1"
    assert f"storage.s3.region: {REGION}" in str(error.hint)


@pytest.mark.parametrize(
    ("code", "status", "words", "helps"),
    [
        ("ExpiredToken", 400, "the AWS credentials have expired", "renew"),
        ("InvalidAccessKeyId", 403, "the AWS credentials are not accepted", "storage.s3.credentials"),
        ("AccessDenied", 403, "permission denied for these credentials", "deltarelay storage template"),
        ("RequestTimeTooSkewed", 403, "the clock of this machine is wrong", "NTP"),
    ],
)
def test_s3_refuses(aws: Aws, aws_proxy: AwsProxy, code: str, status: int, words: str, helps: str) -> None:
    """The answer to HeadBucket cannot say why, so it is asked for by a GET."""
    aws_proxy.refuse(aws.bucket, code=code, status=status)
    error = refused(alone(aws, endpoint=aws_proxy.endpoint), f"s3a://{aws.bucket}/t")
    assert isinstance(error, ConfigError)
    assert words in error.message
    assert helps in str(error.hint)


def test_a_right_that_is_missing_for_the_question_alone_is_no_fault(aws: Aws, aws_proxy: AwsProxy) -> None:
    aws_proxy.refuse("HEAD ", code="AccessDenied", status=403)
    probe_buckets(alone(aws, endpoint=aws_proxy.endpoint), [f"s3a://{aws.bucket}/t"])


@pytest.mark.parametrize(("code", "status"), [("SlowDown", 503), ("OperationAborted", 409), ("UnheardOf", 502)])
def test_s3_is_busy(aws: Aws, aws_proxy: AwsProxy, code: str, status: int) -> None:
    aws_proxy.refuse(aws.bucket, code=code, status=status)
    assert refused(alone(aws, endpoint=aws_proxy.endpoint), f"s3a://{aws.bucket}/t").transient


def test_there_are_no_keys(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "no AWS credentials" in refused(alone(aws, credentials="default"), f"s3a://{aws.bucket}/t").message
    assert "are not set" in refused(alone(aws), f"s3a://{aws.bucket}/t").message
    assert (
        "the AWS profile nobody does not exist"
        in refused(alone(aws, credentials="profile:nobody"), f"s3a://{aws.bucket}/t").message
    )


def test_nobody_is_there(aws: Aws) -> None:
    assert isinstance(refused(alone(aws, endpoint=NOBODY), f"s3a://{aws.bucket}/t"), SourceUnavailable)


def test_somebody_is_there_and_silent(aws: Aws, silent: str) -> None:
    """Several buckets are asked at the same time, not one after the other."""
    error = refused(alone(aws, endpoint=silent), "s3a://aaa/t", "s3a://bbb/t", "s3a://ccc/t", "s3a://ddd/t")
    assert isinstance(error, SourceUnavailable)
    assert error.message.count("no answer within") == 4


# ── the lock table ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lock_table_is_missing(aws: Aws) -> None:
    error = refused(aws.storage(), f"s3a://{aws.bucket}/t", ask=probe)
    assert error.message == f"there is no lock table {aws.lock_table} in {REGION}"
    assert "deltarelay storage lock create" in str(error.hint)


def test_the_lock_table_has_other_keys(aws: Aws) -> None:
    aws.dynamodb.create_table(
        TableName=aws.lock_table,
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    assert "Delta needs tablePath" in refused(aws.storage(), f"s3a://{aws.bucket}/t", ask=probe).message


def test_dynamodb_is_silent(aws: Aws, silent: str) -> None:
    storage = aws.storage()
    storage = Storage.model_validate(
        {**storage.model_dump(), "commits": {"kind": "dynamodb", "table": aws.lock_table, "endpoint": silent}}
    )
    assert refused(storage, f"s3a://{aws.bucket}/t", ask=probe).transient


def test_everything_at_once(aws: Aws) -> None:
    error = refused(aws.storage(), "s3a://no-such-bucket-4410/t", "s3a://nor-this-4410/t", ask=probe)
    for words in ("no-such-bucket-4410", "nor-this-4410", aws.lock_table):
        assert words in error.message
    assert isinstance(error, ConfigError)


def test_a_bucket_stops_only_its_own_pipelines(aws: Aws) -> None:
    probe_any(alone(aws), ["s3a://no-such-bucket-4410/t", f"s3a://{aws.bucket}/t"])
    probe_any(alone(aws), ["s3a://no-such-bucket-4410/t", "/local/table"])
    probe_any(alone(aws), ["/local/table"])
    assert "no bucket" in refused(alone(aws), "s3a://no-such-bucket-4410/t", ask=probe_any).message
    assert "lock table" in refused(aws.storage(), f"s3a://{aws.bucket}/t", ask=probe_any).message


def test_spark_is_not_started_for_nothing(aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = load(written(tmp_path, "s3a://no-such-bucket-4410/t", aws))
    with soon(), pytest.raises(ConfigError, match="there is no bucket"), spark_session(Output("run"), project):
        pytest.fail("a session")
    with soon(), pytest.raises(ConfigError, match="there is no bucket"):
        build_pipeline(project, "customers", spark=None)  # type: ignore[arg-type]
    assert "starting Spark" not in capsys.readouterr().err


# ── without a JVM ────────────────────────────────────────────────────────────────────────────────────────────────────


def written(folder: Path, table: str, aws: Aws, *, endpoint: str | None = None) -> Path:
    s3 = {"region": aws.region, "endpoint": endpoint or aws.endpoint, "path_style": True, "credentials": "env"}
    document = {
        "version": 1,
        "connections": {"warehouse": {"kind": "postgres", "dsn": "postgresql://u:p@127.0.0.1:1/x"}},
        "pipelines": {
            "customers": {
                "source": {"table": table, "key": ["customer_id"]},
                "sink": {"connection": "warehouse", "table": "public.customers"},
            }
        },
        "storage": {"s3": s3, "commits": {"kind": "single_writer"}},
    }
    file = folder / "deltarelay.yaml"
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("scheme", ["s3a", "s3", "s3n"])
def test_a_table_on_s3_is_opened(aws: Aws, table: str, scheme: str) -> None:
    found = open_source(table.replace("s3a", scheme, 1), alone(aws))
    assert (found.address, found.version, found.feed_on) == (table, 0, True)
    assert [column.name for column in found.columns] == ["customer_id", "name"]


def test_what_is_no_table(aws: Aws) -> None:
    with pytest.raises(TableNotFound, match="cannot be read as a Delta table"):
        open_source(f"s3a://{aws.bucket}/nothing", alone(aws))


def test_objects_that_may_not_be_read(aws: Aws, table: str, aws_proxy: AwsProxy) -> None:
    aws_proxy.refuse(r"GET /[^?]*_delta_log/", code="AccessDenied", status=403)
    with soon(), pytest.raises(ConfigError, match="permission denied for these credentials"):
        open_source(table, alone(aws, endpoint=aws_proxy.endpoint))


def test_s3_falls_silent_after_the_bucket_has_answered(aws: Aws, table: str, aws_proxy: AwsProxy) -> None:
    aws_proxy.refuse(r"_delta_log", code="InternalError", status=500)
    with pytest.raises(SourceUnavailable, match="S3 did not answer"):
        open_source(table, alone(aws, endpoint=aws_proxy.endpoint))


def test_looks_at_both_ends_go_through_the_storage_block(
    aws: Aws, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = load(written(tmp_path, table, aws))
    assert check_connections(project, "customers").latest_version == 0
    sink = type("At", (), {"position": lambda _: type("P", (), {"version": None, "table_id": None})()})
    monkeypatch.setattr(type(project), "build_sink", lambda *_: sink())
    found = read_pipeline_status(project, "customers")
    assert (found.state, found.latest_version) == ("empty", 0)
    assert "a second process" in str(found.note)


def test_status_says_that_s3_is_away_for_now(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = load(written(tmp_path, f"s3a://{aws.bucket}/t", aws, endpoint=NOBODY))
    sink = type("At", (), {"position": lambda _: type("P", (), {"version": None, "table_id": None})()})
    monkeypatch.setattr(type(project), "build_sink", lambda *_: sink())
    with soon():
        found = read_pipeline_status(project, "customers")
    assert (found.state, found.code, found.transient) == ("unreachable", "source_unavailable", True)


def test_init_writes_the_one_spelling(aws: Aws, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    # delta-rs holds Python's lock while it reads rows, and moto's server in this process could not answer
    monkeypatch.setattr(infra.key_proposal, "CHECKED_ROWS", 0)
    to = tmp_path / "made.yaml"
    done = CliRunner().invoke(app, ["init", table.replace("s3a://", "s3://"), "--to", str(to)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "# storage:" in to.read_text()
    assert f"      table: {table}\n" in to.read_text() or f'table: "{table}"' in to.read_text()


def test_init_writes_one_file_for_the_tables_of_a_folder_on_s3(
    aws: Aws, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    monkeypatch.setattr(infra.key_proposal, "CHECKED_ROWS", 0)
    folder = table.rpartition("/")[0]
    to = tmp_path / "made.yaml"
    written = f"{folder.replace('s3a://', 's3://')}/*"
    done = CliRunner().invoke(app, ["init", written, "--to", str(to)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "1 table: 1 with the key customer_id, 0 with another key, 0 WITHOUT A KEY" in done.output
    assert f'tables: "{folder}/*"' in to.read_text()
    assert "# storage:" in to.read_text()
    refused = CliRunner().invoke(app, ["init", folder, "--to", str(tmp_path / "x.yaml")])
    assert isinstance(refused.exception, TableNotFound)
    assert refused.exception.hint == f"write one file for all of them: deltarelay init '{folder}/*'"


def test_keys_of_the_environment_need_no_profile(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "that-does-not-exist")
    probe(aws.storage().model_copy(update={"commits": None}), [f"s3a://{aws.bucket}/t"])
