"""The CloudFormation template says what ``storage lock create`` makes; its policies allow what the code does, no more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.s3.lock.check import check
from infra.s3.lock.entries import read_entries
from infra.s3.lock.repair import forget, repair
from infra.s3.lock.table import create
from infra.s3.model import Storage
from tests.acceptance.commands import REPOSITORY
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import Aws
from tests.integration.lock_case import Commits

TEMPLATE = REPOSITORY / "infra" / "s3" / "template.yaml"
TEXT = TEMPLATE.read_text()
RESOURCES: dict[str, Any] = YAML(typ="safe").load(TEXT)["Resources"]
READS_S3 = {"s3:GetObject", "s3:ListBucket"}


def allowed(name: str) -> set[str]:
    """The actions of a policy, as the template has them."""
    statements = RESOURCES[name]["Properties"]["PolicyDocument"]["Statement"]
    assert {one["Effect"] for one in statements} == {"Allow"}
    return {action for one in statements for action in one["Action"]}


def deployed(aws: Aws, **parameters: str) -> Any:
    """The stack's policies by their logical names, on moto."""
    client = aws.client("cloudformation")
    stack = f"stack-{aws.bucket}"
    given = {"Bucket": aws.bucket, "LockTable": aws.lock_table, **parameters}
    client.create_stack(
        StackName=stack,
        TemplateBody=TEXT,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    resources = client.describe_stack_resources(StackName=stack)["StackResources"]
    iam = aws.client("iam")
    found = {}
    for one in resources:
        if one["ResourceType"] == "AWS::IAM::ManagedPolicy":
            arn = one["PhysicalResourceId"]
            document = iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]["Document"]
            found[one["LogicalResourceId"]] = document if isinstance(document, dict) else json.loads(document)
            iam.delete_policy(PolicyArn=arn)
    return found


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def described(aws: Aws, name: str) -> dict[str, Any]:
    """What a table is like, without what differs between any two."""
    table = aws.dynamodb.describe_table(TableName=name)["Table"]
    own = {"TableName", "TableArn", "TableId", "CreationDateTime", "BillingModeSummary"}
    tags = aws.dynamodb.list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"]
    shape = {key: value for key, value in table.items() if key not in own}
    return {**shape, "billing": table["BillingModeSummary"]["BillingMode"], "tags": tags}


def test_the_template_and_the_command_make_the_same_table(aws: Aws) -> None:
    deployed(aws)
    by_command = f"{aws.lock_table}_by_command"
    assert create(aws.storage(table=by_command)).made
    assert described(aws, aws.lock_table) == described(aws, by_command)
    # moto's CloudFormation passes over these two: what the template asks for is held against what the command made
    wanted = RESOURCES["Locks"]["Properties"]
    ttl = aws.dynamodb.describe_time_to_live(TableName=by_command)["TimeToLiveDescription"]
    assert ttl == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": wanted["TimeToLiveSpecification"]["AttributeName"],
    }
    assert wanted["TimeToLiveSpecification"]["Enabled"] is True
    backups = aws.dynamodb.describe_continuous_backups(TableName=by_command)["ContinuousBackupsDescription"]
    recovery = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    assert wanted["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": recovery}
    known = {"TableName", "AttributeDefinitions", "KeySchema", "BillingMode", "Tags"}
    assert set(wanted) == known | {"TimeToLiveSpecification", "PointInTimeRecoverySpecification"}


def test_the_table_outlives_its_stack() -> None:
    assert {RESOURCES["Locks"][name] for name in ("DeletionPolicy", "UpdateReplacePolicy")} == {"Retain"}


# ── the policies ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def through(aws: Aws, aws_proxy: AwsProxy) -> Storage:
    return aws.storage(endpoint=aws_proxy.endpoint)


@pytest.fixture
def table(aws: Aws) -> Commits:
    """With a commit to finish, and one that is lost in another table."""
    create(aws.storage())
    found = Commits(aws).commit(0)
    found.temp(1)
    found.claim(1)
    Commits(aws, "lost").commit(0).claim(1)
    Commits(aws, "dropped").complete(0)
    return found


def used(proxy: AwsProxy) -> set[str]:
    """The actions that AWS asks a right for, of all requests so far."""
    found = set()
    for name in proxy.seen:
        method, _, path = name.partition(" ")
        if not path:
            found.add(f"dynamodb:{name}")
        elif re.match(r"/[^/?]+/?\?list-type=2", path):
            found.add("s3:ListBucket")
        else:
            found.add({"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject"}[method])
    return found


def test_the_replicator_may_look_as_a_reader_does(table: Commits, through: Storage, aws_proxy: AwsProxy) -> None:
    assert check(through, use="read").deviations == ()
    assert used(aws_proxy) | READS_S3 == allowed("Replicator")


def test_the_auditor_may_list_everything(aws: Aws, table: Commits, through: Storage, aws_proxy: AwsProxy) -> None:
    check(through, use="read")
    assert len(read_entries(through, young_seconds=0).open) == 3
    read_entries(through, table.path)
    assert used(aws_proxy) == allowed("Auditor")


def test_the_writer_may_check_and_finish_a_table(table: Commits, through: Storage, aws_proxy: AwsProxy) -> None:
    check(through)
    assert repair(through, table.path, young_seconds=0).whole
    writes_tables = {"s3:DeleteObject", "s3:AbortMultipartUpload"}
    assert used(aws_proxy) | READS_S3 == allowed("Writer") - writes_tables
    assert allowed("WriterByDeltaRs") == {"dynamodb:UpdateItem", "dynamodb:DeleteItem"}


def test_the_keeper_may_do_all_that_the_commands_do(
    aws: Aws, table: Commits, through: Storage, aws_proxy: AwsProxy
) -> None:
    new = aws.storage(endpoint=aws_proxy.endpoint, table=f"{aws.lock_table}_new")
    create(new)
    aws.dynamodb.untag_resource(
        ResourceArn=aws.dynamodb.describe_table(TableName=f"{aws.lock_table}_new")["Table"]["TableArn"],
        TagKeys=["application"],
    )
    assert create(new).completed == ("tags",)
    check(through)
    read_entries(through)
    assert {one.outcome for one in repair(through, young_seconds=0, lost="drop").entries} == {
        "copied",
        "removed",
        "left",
    }
    assert forget(through, f"s3a://{aws.bucket}/dropped").removed == 1
    assert used(aws_proxy) == allowed("Keeper")


def test_the_reader_has_no_business_with_the_lock_table() -> None:
    assert allowed("Reader") == READS_S3


def test_who_may_change_what() -> None:
    """Least privilege, as a table: nobody else writes to S3, puts an entry, or takes one away."""
    policies = {name for name, one in RESOURCES.items() if one["Type"] == "AWS::IAM::ManagedPolicy"}
    assert policies == {"Reader", "Replicator", "Writer", "WriterByDeltaRs", "Auditor", "Keeper"}

    def who(action: str) -> set[str]:
        return {name for name in policies if action in allowed(name)}

    assert who("s3:PutObject") == {"Writer", "Keeper"}
    assert who("s3:DeleteObject") == {"Writer"}
    assert who("dynamodb:PutItem") == {"Writer", "Keeper"}
    assert who("dynamodb:DeleteItem") == {"Keeper", "WriterByDeltaRs"}
    assert who("dynamodb:CreateTable") == who("dynamodb:UpdateTimeToLive") == {"Keeper"}
    assert not [action for name in policies for action in allowed(name) if "*" in action]


def test_the_policies_end_at_the_prefix_and_the_table(aws: Aws) -> None:
    policies = deployed(aws, Prefix="tables/")
    bucket = f"arn:aws:s3:::{aws.bucket}"
    resources: dict[str, set[str]] = {}
    for name, policy in policies.items():
        resources[name] = {one["Resource"] for one in policy["Statement"]}
        for listing in (one for one in policy["Statement"] if one["Action"] == ["s3:ListBucket"]):
            assert listing["Condition"] == {"StringLikeIfExists": {"s3:prefix": "tables/*"}}
    locks = f"arn:aws:dynamodb:{aws.region}:123456789012:table/{aws.lock_table}"
    reading = {bucket, f"{bucket}/tables/*"}
    assert (resources["Reader"], resources["WriterByDeltaRs"]) == (reading, {locks})
    assert resources["Replicator"] == resources["Writer"] == resources["Auditor"] == {*reading, locks}
    assert resources["Keeper"] == {*reading, locks, f"{bucket}/tables/*_delta_log/*.json"}


def test_the_template_is_one_that_cloudformation_takes() -> None:
    """It refuses YAML's aliases, for one, which every parser here resolves."""
    linter = Path(sys.executable).parent / "cfn-lint"
    done = subprocess.run([linter, "--template", TEMPLATE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")
