"""The lock table: what Delta's S3DynamoDBLogStore requires of it, and how it is created.

The log store creates a missing table itself, but with provisioned capacity, which is paid around the clock, and without TTL
and point-in-time recovery, so that every entry is kept for ever. ``template.yaml`` describes the right table for
CloudFormation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from audit.aws_errors import NAMES
from cdf.errors import ConfigError, SourceUnavailable
from cdf.result import Result
from infra.s3.clients import connect_dynamodb
from infra.s3.errors import translate_aws_errors
from infra.s3.model import DynamoDBCommits, Storage

__all__ = [
    "FORBIDDEN",
    "KEYS",
    "RIGHTS",
    "TAGS",
    "TTL_ATTRIBUTE",
    "Deviation",
    "LockTableCreated",
    "Severity",
    "create",
    "describe",
    "format_status",
    "connect",
    "check_shape",
    "check_keys",
]

KEYS = (("tablePath", "S", "HASH"), ("fileName", "S", "RANGE"))
TTL_ATTRIBUTE = "expireTime"
TAGS = {"application": "deltarelay"}

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.5
RIGHTS = "`deltarelay storage template` prints policies with the required permissions"
FORBIDDEN, _NOT_OFFERED = NAMES["forbidden"], NAMES["unsupported"]
_CAPACITY = ("ReadCapacityUnits", "WriteCapacityUnits")
_ALLOW_READING = "to check it, allow dynamodb:{action} for these credentials; " + RIGHTS

Severity = Literal["breaks", "unwise", "unseen"]
"""``breaks``: commits fail or overwrite each other; ``unwise``: it works, at a cost; ``unseen``: it cannot be checked."""
Kind = Literal["missing", "region", "keys", "status", "billing", "ttl", "recovery", "permission"]


@dataclass(frozen=True, slots=True)
class Deviation(Result):
    kind: Kind
    severity: Severity
    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class LockTableCreated(Result):
    table: str
    region: str
    made: bool
    """False where it existed already."""
    completed: tuple[str, ...]
    """What was added to an existing table: ``ttl``, ``recovery``, ``tags``."""
    deviations: tuple[Deviation, ...]
    """What was left unchanged, as it may be intended."""


def connect(storage: Storage) -> tuple[DynamoDBCommits, Any]:
    """The lock table of the configuration, with its region, and a client for it."""
    lock = storage.lock
    if lock is None:
        raise ConfigError(
            "no lock table is configured",
            hint="set storage.commits to {kind: dynamodb, table: NAME, region: REGION}, or pass --table and --region",
        )
    client = connect_dynamodb(storage, lock)
    return lock.model_copy(update={"region": str(client.meta.region_name)}), client


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create(storage: Storage) -> LockTableCreated:
    """Create the lock table, or complete an existing one. May be called twice, and by two processes at once.

    Raises ConfigError where a table of that name has other keys: it serves another purpose.
    """
    lock, client = connect(storage)
    name, region = lock.table, str(lock.region)
    made = describe(client, name) is None and _create_table(client, name)
    table = _wait_until_active(client, name, region)
    if wrong := check_keys(table, name):
        raise ConfigError(f"{wrong.found}: it was not changed", hint=wrong.fix)
    completed = [
        name_of_part
        for name_of_part, complete in (("ttl", _enable_ttl), ("recovery", _enable_recovery), ("tags", _add_tags))
        if complete(client, table)
    ]
    return LockTableCreated(
        name, region, made, () if made else tuple(completed), tuple(check_shape(client, table, name))
    )


def _create_table(client: Any, name: str) -> bool:
    """False where another process has just created it."""
    with translate_aws_errors(f"creating the lock table {name}"):
        try:
            client.create_table(
                TableName=name,
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind, _ in KEYS],
                KeySchema=[{"AttributeName": key, "KeyType": role} for key, _, role in KEYS],
                BillingMode="PAY_PER_REQUEST",
                Tags=[{"Key": key, "Value": value} for key, value in TAGS.items()],
            )
        except client.exceptions.ResourceInUseException:
            return False
    return True


def _wait_until_active(client: Any, name: str, region: str) -> Mapping[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        table = describe(client, name)
        status = None if table is None else table["TableStatus"]
        if table is not None and status in {"ACTIVE", "UPDATING"}:
            return table
        if status not in {None, "CREATING"} or time.monotonic() > deadline:
            raise SourceUnavailable(
                f"the lock table {name} in {region} is {format_status(status)}", hint="try again once it is active"
            )
        time.sleep(PAUSE_SECONDS)


def _enable_ttl(client: Any, table: Mapping[str, Any]) -> bool:
    if _read_ttl(client, table["TableName"])[0] != "DISABLED":
        return False
    specification = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    with translate_aws_errors("enabling TTL"):
        client.update_time_to_live(TableName=table["TableName"], TimeToLiveSpecification=specification)
    return True


def _enable_recovery(client: Any, table: Mapping[str, Any]) -> bool:
    """AWS refuses it for the first seconds of a new table."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        if _read_recovery(client, table["TableName"]) != "DISABLED":
            return False
    except ConfigError as error:
        if error.condition in _NOT_OFFERED:
            return False  # reported by check_shape
        raise
    while True:
        with translate_aws_errors("enabling point-in-time recovery"):
            try:
                client.update_continuous_backups(
                    TableName=table["TableName"],
                    PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
                )
            except client.exceptions.ContinuousBackupsUnavailableException:
                if time.monotonic() > deadline:
                    raise
            else:
                return True
        time.sleep(PAUSE_SECONDS)


def _add_tags(client: Any, table: Mapping[str, Any]) -> bool:
    """Existing tags keep their values."""
    with translate_aws_errors("tagging the lock table"):
        pages = client.get_paginator("list_tags_of_resource").paginate(ResourceArn=table["TableArn"])
        existing = {tag["Key"] for page in pages for tag in page["Tags"]}
        missing = [{"Key": key, "Value": value} for key, value in TAGS.items() if key not in existing]
        if missing:
            client.tag_resource(ResourceArn=table["TableArn"], Tags=missing)
    return bool(missing)


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_keys(table: Mapping[str, Any], name: str) -> Deviation | None:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    found = tuple((one["AttributeName"], kinds[one["AttributeName"]], one["KeyType"]) for one in table["KeySchema"])
    if sorted(found) == sorted(KEYS):
        return None
    return Deviation(
        "keys",
        "breaks",
        f"the table {name} has the key {_format_key(found)}, but Delta needs {_format_key(KEYS)}",
        "the key of a table cannot be changed: set storage.commits.table to another name, and run `storage lock create`",
    )


def _format_key(keys: tuple[tuple[str, str, str], ...]) -> str:
    return " and ".join(f"{name} ({kind}, {role})" for name, kind, role in keys)


def check_shape(client: Any, table: Mapping[str, Any], name: str) -> Iterator[Deviation]:
    """Everything except the keys (``check_keys``) and the status, which is temporary."""
    if table.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
        read, write = (int(table.get("ProvisionedThroughput", {}).get(unit, 0)) for unit in _CAPACITY)
        origin = ", the default of Delta's log store" if (read, write) == (5, 5) else ""
        yield Deviation(
            "billing",
            "unwise",
            f"{name} has {read}/{write} provisioned units{origin}: you pay for them also when they are unused, and commits "
            "that exceed them fail",
            f"`aws dynamodb update-table --table-name {name} --billing-mode PAY_PER_REQUEST`",
        )
    with _report_unseen("ttl", "DescribeTimeToLive", "whether entries expire") as unseen:
        state, attribute = _read_ttl(client, name)
        if state in {"DISABLED", "DISABLING"}:
            fix = "enable it with `deltarelay storage lock create`"
            yield Deviation("ttl", "unwise", f"TTL is off on {name}: entries are never removed", fix)
        elif attribute != TTL_ATTRIBUTE:
            found = f"TTL is on {attribute} on {name}, not on {TTL_ATTRIBUTE}: entries are never removed"
            fix = (
                f"disable it there, wait an hour as AWS requires, then enable it on {TTL_ATTRIBUTE} with "
                "`storage lock create`"
            )
            yield Deviation("ttl", "unwise", found, fix)
    yield from unseen
    with _report_unseen("recovery", "DescribeContinuousBackups", "whether point-in-time recovery is on") as unseen:
        if _read_recovery(client, name) == "DISABLED":
            found = f"point-in-time recovery is off on {name}: entries that are deleted by mistake cannot be restored"
            yield Deviation("recovery", "unwise", found, "enable it with `deltarelay storage lock create`")
    yield from unseen


@contextmanager
def _report_unseen(kind: Kind, action: str, question: str) -> Iterator[list[Deviation]]:
    """→ a list that gets a deviation where the request is forbidden, or not supported by this server"""
    found: list[Deviation] = []
    try:
        yield found
    except ConfigError as error:
        if error.condition in FORBIDDEN:
            found.append(
                Deviation(
                    kind, "unseen", f"{question} is unknown: permission denied", _ALLOW_READING.format(action=action)
                )
            )
        elif error.condition in _NOT_OFFERED:
            found.append(
                Deviation(
                    kind, "unseen", f"this server does not report {question}", "none needed on a server for tests"
                )
            )
        else:
            raise


def _read_ttl(client: Any, name: str) -> tuple[str, str | None]:
    with translate_aws_errors("reading the TTL settings"):
        found = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName")


def _read_recovery(client: Any, name: str) -> str:
    with translate_aws_errors("reading the point-in-time recovery settings"):
        found = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    return str(found.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus", "DISABLED"))


def describe(client: Any, name: str) -> Mapping[str, Any] | None:
    with translate_aws_errors(f"reading the description of the lock table {name}"):
        try:
            found: Mapping[str, Any] = client.describe_table(TableName=name)["Table"]
        except client.exceptions.ResourceNotFoundException:
            return None
    return found


def format_status(status: str | None) -> str:
    return "missing" if status is None else status.lower().replace("_", " ")
