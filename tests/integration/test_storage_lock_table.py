"""The lock table as ``create`` makes it, and every way in which ``check`` finds another one wrong; on moto's server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cdf.errors import ConfigError, SourceUnavailable
from infra.s3.errors import READ_SECONDS
from infra.s3.lock import table as lock_table
from infra.s3.lock.check import LockTable, check
from infra.s3.lock.table import create
from infra.s3.model import Storage
from tests.acceptance.commands import wait_for
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import Aws

STRINGS = {"tablePath": "S", "fileName": "S"}
ROLES = {"tablePath": "HASH", "fileName": "RANGE"}


def make(aws: Aws, kinds: dict[str, str] = STRINGS, roles: dict[str, str] = ROLES, **settings: Any) -> None:
    """A table made by somebody else."""
    aws.dynamodb.create_table(
        TableName=aws.lock_table,
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()],
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, role in roles.items()],
        **(settings or {"BillingMode": "PAY_PER_REQUEST"}),
    )


def ttl(aws: Aws) -> tuple[str, str | None]:
    found = aws.dynamodb.describe_time_to_live(TableName=aws.lock_table)["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName")


def recovery(aws: Aws) -> str:
    found = aws.dynamodb.describe_continuous_backups(TableName=aws.lock_table)["ContinuousBackupsDescription"]
    return str(found["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"])


def tags(aws: Aws) -> dict[str, str]:
    arn = aws.dynamodb.describe_table(TableName=aws.lock_table)["Table"]["TableArn"]
    return {tag["Key"]: tag["Value"] for tag in aws.dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"]}


def items(aws: Aws) -> int:
    return int(aws.dynamodb.scan(TableName=aws.lock_table)["Count"])


def kinds(found: LockTable) -> list[tuple[str, str]]:
    return [(one.kind, one.severity) for one in found.deviations]


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_create_makes_what_delta_needs_and_check_finds_nothing_wrong(aws: Aws) -> None:
    made = create(aws.storage())
    assert (made.made, made.completed, made.deviations) == (True, (), ())
    table = aws.dynamodb.describe_table(TableName=aws.lock_table)["Table"]
    assert table["KeySchema"] == [
        {"AttributeName": "tablePath", "KeyType": "HASH"},
        {"AttributeName": "fileName", "KeyType": "RANGE"},
    ]
    assert {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]} == STRINGS
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert (table["TableStatus"], ttl(aws), recovery(aws)) == ("ACTIVE", ("ENABLED", "expireTime"), "ENABLED")
    assert tags(aws) == {"application": "deltarelay"}
    found = check(aws.storage())
    assert (found.status, found.deviations, found.usable) == ("ACTIVE", (), True)
    assert items(aws) == 0, "a check left its probe behind"


def test_a_second_create_changes_nothing(aws: Aws, aws_proxy: AwsProxy) -> None:
    create(aws.storage())
    again = create(aws.storage(endpoint=aws_proxy.endpoint))
    assert (again.made, again.completed, again.deviations) == (False, (), ())
    assert [name for name in aws_proxy.seen if not name.startswith(("Describe", "List"))] == []


def test_create_completes_a_table_that_the_log_store_made(aws: Aws) -> None:
    make(aws, ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 5})
    made = create(aws.storage())
    assert (made.made, made.completed) == (False, ("ttl", "recovery", "tags"))
    assert [one.kind for one in made.deviations] == ["billing"], "whose money it is decides"
    assert (ttl(aws), recovery(aws), tags(aws)) == (("ENABLED", "expireTime"), "ENABLED", {"application": "deltarelay"})


def test_tags_that_are_there_keep_their_values(aws: Aws) -> None:
    make(aws, BillingMode="PAY_PER_REQUEST", Tags=[{"Key": "application", "Value": "another"}])
    assert "tags" not in create(aws.storage()).completed
    assert tags(aws) == {"application": "another"}


def test_create_refuses_a_table_with_other_keys_and_leaves_it_alone(aws: Aws) -> None:
    make(aws, {"id": "S"}, {"id": "HASH"})
    with pytest.raises(ConfigError, match=r"has the key id \(S, HASH\), but Delta needs tablePath") as refused:
        create(aws.storage())
    assert "storage.commits.table" in str(refused.value.hint)
    assert (ttl(aws)[0], recovery(aws), tags(aws)) == ("DISABLED", "DISABLED", {})


def test_two_creates_at_once_make_one_table(aws: Aws, aws_proxy: AwsProxy) -> None:
    held = aws_proxy.delay("CreateTable", READ_SECONDS - 1)
    storage = aws.storage(endpoint=aws_proxy.endpoint)
    made: list[bool] = []
    threads = [threading.Thread(target=lambda: made.append(create(storage).made)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: held.hits == 2, "both to be at it at the same time")
    held.go.set()
    for thread in threads:
        thread.join()
    assert aws_proxy.seen.count("CreateTable") == 2
    assert sorted(made) == [False, True]
    assert check(aws.storage()).deviations == ()


def test_a_table_too_young_for_recovery_is_asked_again(
    aws: Aws, aws_proxy: AwsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_table, "PAUSE_SECONDS", 0.01)
    aws_proxy.refuse("UpdateContinuousBackups", code="ContinuousBackupsUnavailableException", times=2)
    create(aws.storage(endpoint=aws_proxy.endpoint))
    assert aws_proxy.seen.count("UpdateContinuousBackups") == 3
    assert recovery(aws) == "ENABLED"


def test_without_a_lock_table_in_the_configuration_the_setting_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        create(Storage())
    assert "storage.commits" in str(refused.value.hint)


# ── check: the shape ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_as_the_log_store_makes_it_works_and_is_unwise(aws: Aws) -> None:
    make(aws, ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 5})
    found = check(aws.storage())
    assert kinds(found) == [("billing", "unwise"), ("ttl", "unwise"), ("recovery", "unwise")]
    assert found.usable
    assert "5/5 provisioned units, the default of Delta's log store" in found.deviations[0].found
    assert all(one.fix for one in found.deviations)


def test_other_provisioned_units_are_nobodys_default(aws: Aws) -> None:
    make(aws, ProvisionedThroughput={"ReadCapacityUnits": 20, "WriteCapacityUnits": 10})
    assert "20/10 provisioned units: you pay" in check(aws.storage()).deviations[0].found


@pytest.mark.parametrize(
    ("attributes", "roles", "found"),
    [
        ({"id": "S"}, {"id": "HASH"}, "id (S, HASH)"),
        ({"tablePath": "S"}, {"tablePath": "HASH"}, "tablePath (S, HASH), but"),
        ({"tablePath": "S", "fileName": "N"}, ROLES, "fileName (N, RANGE)"),
        (STRINGS, {"fileName": "HASH", "tablePath": "RANGE"}, "fileName (S, HASH) and tablePath (S, RANGE)"),
    ],
)
def test_wrong_keys_break_it(aws: Aws, attributes: dict[str, str], roles: dict[str, str], found: str) -> None:
    make(aws, attributes, roles)
    first, *_ = (checked := check(aws.storage())).deviations
    assert (first.kind, first.severity, checked.usable) == ("keys", "breaks", False)
    assert found in first.found
    assert items(aws) == 0


def test_ttl_on_another_attribute(aws: Aws) -> None:
    create(aws.storage())
    for specification in ({"Enabled": False, "AttributeName": "expireTime"}, {"Enabled": True, "AttributeName": "old"}):
        aws.dynamodb.update_time_to_live(TableName=aws.lock_table, TimeToLiveSpecification=specification)
    (found,) = check(aws.storage()).deviations
    assert (found.kind, found.severity) == ("ttl", "unwise")
    assert "TTL is on old" in found.found
    assert create(aws.storage()).deviations == (found,)
    assert ttl(aws) == ("ENABLED", "old"), "AWS lets nobody move it at once: it is left to the user"


@pytest.mark.parametrize("state", ["CREATING", "DELETING", "UPDATING"])
def test_a_table_that_is_not_active(aws: Aws, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    create(aws.storage())
    real = lock_table.describe

    def described(client: Any, name: str) -> Any:
        return {**(real(client, name) or {}), "TableStatus": state}

    monkeypatch.setattr("infra.s3.lock.check.describe", described)
    (found,) = check(aws.storage()).deviations
    assert (found.kind, found.severity) == ("status", "unwise" if state == "UPDATING" else "breaks")
    assert state.lower() in found.found
    if state != "UPDATING":
        monkeypatch.setattr(lock_table, "describe", described)
        monkeypatch.setattr(lock_table, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(SourceUnavailable, match=state.lower()):
            create(aws.storage())


def test_a_missing_table(aws: Aws) -> None:
    found = check(aws.storage())
    assert (found.status, kinds(found)) == (None, [("missing", "breaks")])
    assert f"no table {aws.lock_table} in eu-west-1" in found.deviations[0].found
    assert "storage lock create" in found.deviations[0].fix


@pytest.mark.parametrize("told", ["bucket", "environment", "log store"])
def test_a_table_in_another_region_is_pointed_out(aws: Aws, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    other = {"bucket": "eu-central-1", "environment": "eu-north-1", "log store": "us-east-1"}[told]
    create(aws.storage(region=other))
    if told == "environment":
        monkeypatch.setenv("AWS_REGION", other)
    asked = aws.storage(region="eu-central-1" if told == "bucket" else None).model_dump(exclude_none=True)
    asked["commits"]["region"] = "ap-south-1"
    found = check(Storage.model_validate(asked))
    assert kinds(found) == [("region", "breaks")]
    assert f"no table {aws.lock_table} in ap-south-1; there is one in {other}" in found.deviations[0].found


# ── check: rights ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("action", ["DescribeTable", "GetItem", "PutItem", "Query"])
def test_each_right_that_delta_needs_is_tried(aws: Aws, aws_proxy: AwsProxy, action: str) -> None:
    create(aws.storage())
    aws_proxy.refuse(f"^{action}$", code="AccessDeniedException")
    found = check(aws.storage(endpoint=aws_proxy.endpoint))
    assert kinds(found) == [("permission", "breaks")]
    assert f"dynamodb:{action} on {aws.lock_table}" in found.deviations[0].found
    assert "storage template" in found.deviations[0].fix
    assert items(aws) == 0


def test_every_missing_right_is_named_at_once(aws: Aws, aws_proxy: AwsProxy) -> None:
    create(aws.storage())
    aws_proxy.refuse("DescribeTable|GetItem|PutItem|Query", code="AccessDeniedException")
    assert kinds(check(aws.storage(endpoint=aws_proxy.endpoint))) == [("permission", "breaks")] * 4


def test_whoever_reads_needs_no_right_to_write(aws: Aws, aws_proxy: AwsProxy) -> None:
    create(aws.storage())
    aws_proxy.refuse("GetItem|PutItem", code="AccessDeniedException")
    assert check(aws.storage(endpoint=aws_proxy.endpoint), use="read").deviations == ()
    assert not {"GetItem", "PutItem"} & set(aws_proxy.seen)


def test_a_missing_table_is_found_without_the_right_to_describe_it(aws: Aws, aws_proxy: AwsProxy) -> None:
    aws_proxy.refuse("DescribeTable", code="AccessDeniedException")
    found = check(aws.storage(endpoint=aws_proxy.endpoint))
    assert [one.kind for one in found.deviations] == ["permission", "missing"]


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnknownOperationException"])
def test_what_may_not_be_asked_is_said_and_not_held_against_the_table(aws: Aws, aws_proxy: AwsProxy, code: str) -> None:
    create(aws.storage())
    aws_proxy.refuse("DescribeTimeToLive|DescribeContinuousBackups", code=code)
    found = check(aws.storage(endpoint=aws_proxy.endpoint))
    assert (kinds(found), found.usable) == ([("ttl", "unseen"), ("recovery", "unseen")], True)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ExpiredTokenException", ConfigError),
        ("UnrecognizedClientException", ConfigError),
        ("ThrottlingException", SourceUnavailable),
        ("ProvisionedThroughputExceededException", SourceUnavailable),
    ],
)
def test_what_is_no_fault_of_the_table_is_an_error(
    aws: Aws, aws_proxy: AwsProxy, code: str, error: type[Exception]
) -> None:
    create(aws.storage())
    aws_proxy.refuse("Query", code=code)
    with pytest.raises(error) as raised:
        check(aws.storage(endpoint=aws_proxy.endpoint))
    assert raised.value.condition == code  # type: ignore[attr-defined]


def test_a_silent_service_is_given_up_within_seconds(
    aws: Aws, aws_proxy: AwsProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.s3.clients.READ_SECONDS", 0.3)
    aws_proxy.silence("DescribeTable")
    with pytest.raises(SourceUnavailable, match="no answer"):
        check(aws.storage(endpoint=aws_proxy.endpoint))
    assert aws_proxy.seen == ["DescribeTable"] * 2
