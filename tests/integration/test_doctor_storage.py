"""``doctor`` on tables on S3: set-ups that are broken in one way each, and the name and the fix it has for them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import infra.diagnostics.doctor.storage
from infra.diagnostics.doctor import Finding, run_all_checks
from infra.s3.lock.table import create
from infra.s3.model import Storage
from infra.s3.packages import list_packages
from infra.s3.settings import delta_rs_options
from tests.fixtures.fix_aws import REGION, SECRET, Aws
from tests.fixtures.setups import CUSTOMERS, FEED, Setup

NOBODY = "http://127.0.0.1:1"


@dataclass
class OnS3(Setup):
    """The healthy set-up, with its source on S3, a lock table, and all jars in Ivy's cache."""

    aws: Any = None
    address: str = ""
    s3: dict[str, Any] | None = None
    commits: dict[str, Any] | None = None

    def write(self) -> Path:
        storage = {"s3": self.s3, **({"commits": self.commits} if self.commits else {})}
        self.extra = f"storage: {json.dumps(storage)}"
        file = super().write()
        file.write_text(file.read_text().replace(f"./{self.table.name},", f"'{self.address}',"))
        return file


@pytest.fixture
def setup(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnS3:
    monkeypatch.setattr(infra.diagnostics.doctor.storage, "CENTRAL", NOBODY)
    made = OnS3(tmp_path / "setup", "postgresql://user:canary@127.0.0.1:1/x", aws=aws)
    made.address = f"s3a://{aws.bucket}/customers"
    made.s3 = {"region": REGION, "endpoint": aws.endpoint, "path_style": True, "credentials": "env"}
    made.commits = {"kind": "dynamodb", "table": aws.lock_table}
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", aws.endpoint)  # commits.endpoint without TLS is a fault of its own
    create(aws.storage())
    alone = Storage.model_validate({"s3": made.s3, "commits": {"kind": "single_writer"}})
    options = delta_rs_options(alone, made.address, writing=True)
    write_deltalake(made.address, pa.table(CUSTOMERS), storage_options=options, configuration=FEED)
    for package in list_packages(aws.storage()):
        group, artifact, version = package.split(":")
        for file in (
            made.ivy / "jars" / f"{group}_{artifact}-{version}.jar",
            made.ivy / "cache" / group / artifact / f"ivy-{version}.xml",
        ):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
    return made


def findings(setup: OnS3) -> list[Finding]:
    _, found = run_all_checks(setup.look(), setup.write())
    assert SECRET not in str(found)
    assert not [one for one in found if one.state in ("failed", "warning") and not one.fix]
    return [one for one in found if one.check not in ("disk", "target", "retention", "clock")]


def test_a_healthy_set_up(setup: OnS3) -> None:
    found = findings(setup)
    assert [one for one in found if one.state != "ok"] == [
        one for one in found if one.check == "lock" and "this server does not report" in one.found
    ]
    assert [one.check for one in found][-7:] == [
        "bucket", "commits", "lock", "log_store", "s3_settings", "spelling", "source",
    ]  # fmt: skip


# ── broken on purpose ────────────────────────────────────────────────────────────────────────────────────────────────


def no_bucket(setup: OnS3) -> None:
    setup.address = "s3a://no-such-bucket-4410/customers"


def wrong_region(setup: OnS3) -> None:
    setup.s3 = {**(setup.s3 or {}), "region": "us-east-1"}
    setup.commits = {**(setup.commits or {}), "region": REGION}


def no_profile(setup: OnS3) -> None:
    setup.s3 = {**(setup.s3 or {}), "credentials": "profile:nobody"}


def unreachable(setup: OnS3) -> None:
    setup.s3 = {**(setup.s3 or {}), "endpoint": NOBODY}


def no_lock_table(setup: OnS3) -> None:
    setup.aws.dynamodb.delete_table(TableName=setup.aws.lock_table)


def other_keys(setup: OnS3) -> None:
    no_lock_table(setup)
    setup.aws.dynamodb.create_table(
        TableName=setup.aws.lock_table,
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def made_by_the_log_store(setup: OnS3) -> None:
    no_lock_table(setup)
    names = {"tablePath": "HASH", "fileName": "RANGE"}
    setup.aws.dynamodb.create_table(
        TableName=setup.aws.lock_table,
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, role in names.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 5},
    )


def no_commits(setup: OnS3) -> None:
    setup.commits = None


def single_writer(setup: OnS3) -> None:
    setup.commits = {"kind": "single_writer"}


def no_log_store(setup: OnS3) -> None:
    for file in setup.ivy.rglob("*s3-dynamodb*"):
        if file.is_file():
            file.unlink()


def jars_without_s3(setup: OnS3) -> None:
    setup.jars = [str(setup.ivy / "jars" / "io.delta_delta-storage-4.4.0.jar")]


def other_spelling(setup: OnS3) -> None:
    setup.address = setup.address.replace("s3a://", "s3://")


def no_tls(setup: OnS3) -> None:
    setup.commits = {**(setup.commits or {}), "endpoint": setup.aws.endpoint}


@dataclass(frozen=True)
class Broken:
    by: Callable[[OnS3], None]
    check: str
    state: str
    found: str
    fix: str


@pytest.mark.parametrize(
    "broken",
    [
        Broken(
            no_bucket, "bucket", "failed", "there is no bucket no-such-bucket-4410", "correct the address of the table"
        ),
        Broken(wrong_region, "bucket", "failed", f"is in the region {REGION}", f"set storage.s3.region: {REGION}"),
        Broken(no_profile, "bucket", "failed", "the AWS profile nobody does not exist", "aws configure list-profiles"),
        Broken(unreachable, "bucket", "failed", "cannot connect to the endpoint", "endpoint"),
        Broken(no_lock_table, "lock", "failed", "", "storage lock create"),
        Broken(other_keys, "lock", "failed", "Delta needs tablePath", "storage.commits.table"),
        Broken(made_by_the_log_store, "lock", "warning", "5/5 provisioned units", "PAY_PER_REQUEST"),
        Broken(made_by_the_log_store, "lock", "warning", "TTL is off", "storage lock create"),
        Broken(no_commits, "commits", "warning", "there is no `commits:` block", "kind: dynamodb"),
        Broken(single_writer, "commits", "warning", "commits are lost", "exactly one process"),
        Broken(no_log_store, "log_store", "failed", "delta-storage-s3-dynamodb", "spark.jars"),
        Broken(jars_without_s3, "jars", "failed", "cannot be read as a jar", "deltarelay jars fetch"),
        Broken(other_spelling, "spelling", "warning", "has s3:// instead of s3a://", "write s3a:// there"),
        Broken(no_tls, "s3_settings", "failed", "requires TLS", "certificate"),
    ],
    ids=lambda broken: f"{broken.by.__name__}-{broken.check}",
)
def test_broken_in_one_way(setup: OnS3, broken: Broken) -> None:
    broken.by(setup)
    found = findings(setup)
    (one, *_) = [one for one in found if one.check == broken.check and broken.found in one.found]
    assert one.state == broken.state
    assert broken.fix in str(one.fix)


def test_rights_that_are_missing(setup: OnS3, aws_proxy: Any) -> None:
    aws_proxy.refuse(setup.aws.bucket, code="AccessDenied", status=403)
    setup.s3 = {**(setup.s3 or {}), "endpoint": aws_proxy.endpoint}
    (one,) = [one for one in findings(setup) if one.check == "bucket"]
    assert (one.state, "permission denied for these credentials" in one.found) == ("failed", True)
    assert "deltarelay storage template" in str(one.fix)


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_store_that_is_silent(setup: OnS3, silent: str) -> None:
    setup.s3 = {**(setup.s3 or {}), "endpoint": silent}
    (one,) = [one for one in findings(setup) if one.check == "bucket"]
    assert (one.state, "no answer within" in one.found) == ("failed", True)


def test_without_s3_nothing_of_it_is_looked_at(setup: OnS3) -> None:
    plain = Setup(setup.folder / "plain", setup.dsn)
    _, found = run_all_checks(plain.look(), plain.write())
    assert not {"bucket", "commits", "lock", "log_store", "s3_settings", "spelling"} & {one.check for one in found}
