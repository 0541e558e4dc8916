"""The lock table: what Delta's S3DynamoDBLogStore needs of it, and how it is made.

The log store makes a missing table by itself, but one that costs money around the clock, and that keeps every entry for
ever: TTL and point-in-time recovery stay off. ``template.yaml`` describes the same table for CloudFormation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from cdf.errors import ConfigError, SourceUnavailable
from cdf.result import Result
from infra.s3.clients import dynamodb, in_words
from infra.s3.model import DynamoDBCommits, Storage

__all__ = [
    "FORBIDDEN",
    "KEYS",
    "RIGHTS",
    "TAGS",
    "TTL_ATTRIBUTE",
    "Deviation",
    "LockTableMade",
    "Severity",
    "create",
    "described",
    "in_plain_words",
    "opened",
    "shape",
    "wrong_keys",
]

KEYS = (("tablePath", "S", "HASH"), ("fileName", "S", "RANGE"))
TTL_ATTRIBUTE = "expireTime"
TAGS = {"application": "deltarelay"}

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.5
RIGHTS = "`deltarelay storage template` prints policies with the rights that are needed"
FORBIDDEN = {"AccessDeniedException", "AccessDenied", "403"}
_NOT_OFFERED = {"UnknownOperationException"}
_CAPACITY = ("ReadCapacityUnits", "WriteCapacityUnits")
_TO_LOOK = "give these credentials dynamodb:{action} to be told: " + RIGHTS

Severity = Literal["breaks", "unwise", "unseen"]
"""``breaks``: commits fail or are not kept apart; ``unwise``: it works, at a price; ``unseen``: nobody may tell us."""
Kind = Literal["missing", "region", "keys", "status", "billing", "ttl", "recovery", "permission"]


@dataclass(frozen=True, slots=True)
class Deviation(Result):
    kind: Kind
    severity: Severity
    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class LockTableMade(Result):
    table: str
    region: str
    made: bool
    """False where it was there already."""
    completed: tuple[str, ...]
    """What was added to a table that was there: ``ttl``, ``recovery``, ``tags``."""
    deviations: tuple[Deviation, ...]
    """What is left as it was found: somebody may have chosen it."""


def opened(storage: Storage) -> tuple[DynamoDBCommits, Any]:
    """The lock table of the configuration, with its region filled in, and a client for it."""
    lock = storage.lock
    if lock is None:
        raise ConfigError(
            "no lock table is named",
            hint="set storage.commits to {kind: dynamodb, table: NAME, region: REGION}, or give --table and --region",
        )
    client = dynamodb(storage, lock)
    return lock.model_copy(update={"region": str(client.meta.region_name)}), client


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create(storage: Storage) -> LockTableMade:
    """Make the lock table, or complete the one that is there. May be called twice, and by two at once.

    Raises ConfigError where a table of that name has other keys: it serves somebody else.
    """
    lock, client = opened(storage)
    name, region = lock.table, str(lock.region)
    made = described(client, name) is None and _make(client, name)
    table = _active(client, name, region)
    if wrong := wrong_keys(table, name):
        raise ConfigError(f"{wrong.found}: it was left as it is", hint=wrong.fix)
    completed = [
        what
        for what, complete in (("ttl", _switch_ttl_on), ("recovery", _switch_recovery_on), ("tags", _tag))
        if complete(client, table)
    ]
    return LockTableMade(name, region, made, () if made else tuple(completed), tuple(shape(client, table, name)))


def _make(client: Any, name: str) -> bool:
    """False where somebody else has just made it."""
    with in_words(f"making the lock table {name}"):
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


def _active(client: Any, name: str, region: str) -> Mapping[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        table = described(client, name)
        status = None if table is None else table["TableStatus"]
        if table is not None and status in {"ACTIVE", "UPDATING"}:
            return table
        if status not in {None, "CREATING"} or time.monotonic() > deadline:
            raise SourceUnavailable(
                f"the lock table {name} in {region} is {in_plain_words(status)}", hint="try again when that is over"
            )
        time.sleep(PAUSE_SECONDS)


def _switch_ttl_on(client: Any, table: Mapping[str, Any]) -> bool:
    if _ttl(client, table["TableName"])[0] != "DISABLED":
        return False
    specification = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    with in_words("switching TTL on"):
        client.update_time_to_live(TableName=table["TableName"], TimeToLiveSpecification=specification)
    return True


def _switch_recovery_on(client: Any, table: Mapping[str, Any]) -> bool:
    """A table that is some seconds old cannot have it yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        if _recovery(client, table["TableName"]) != "DISABLED":
            return False
    except ConfigError as error:
        if error.condition in _NOT_OFFERED:
            return False  # told by `shape`
        raise
    while True:
        with in_words("switching point-in-time recovery on"):
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


def _tag(client: Any, table: Mapping[str, Any]) -> bool:
    """Tags that are there keep their values."""
    with in_words("tagging the lock table"):
        pages = client.get_paginator("list_tags_of_resource").paginate(ResourceArn=table["TableArn"])
        there = {tag["Key"] for page in pages for tag in page["Tags"]}
        missing = [{"Key": key, "Value": value} for key, value in TAGS.items() if key not in there]
        if missing:
            client.tag_resource(ResourceArn=table["TableArn"], Tags=missing)
    return bool(missing)


# ── what it is like ──────────────────────────────────────────────────────────────────────────────────────────────────


def wrong_keys(table: Mapping[str, Any], name: str) -> Deviation | None:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    found = tuple((one["AttributeName"], kinds[one["AttributeName"]], one["KeyType"]) for one in table["KeySchema"])
    if sorted(found) == sorted(KEYS):
        return None
    return Deviation(
        "keys",
        "breaks",
        f"the table {name} has the key {_key(found)}, but Delta needs {_key(KEYS)}",
        "a table's key cannot be changed: name another table in storage.commits.table, and run `storage lock create`",
    )


def _key(keys: tuple[tuple[str, str, str], ...]) -> str:
    return " and ".join(f"{name} ({kind}, {role})" for name, kind, role in keys)


def shape(client: Any, table: Mapping[str, Any], name: str) -> Iterator[Deviation]:
    """Everything but the keys, which decide whether the rest matters, and the status, which passes."""
    if table.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
        read, write = (int(table.get("ProvisionedThroughput", {}).get(unit, 0)) for unit in _CAPACITY)
        whose = ", which is what Delta's log store makes by itself" if (read, write) == (5, 5) else ""
        yield Deviation(
            "billing",
            "unwise",
            f"{name} has {read}/{write} provisioned units{whose}: paid around the clock, and commits beyond them fail",
            f"`aws dynamodb update-table --table-name {name} --billing-mode PAY_PER_REQUEST`",
        )
    with _unseen("ttl", "DescribeTimeToLive", "whether entries expire") as unseen:
        state, attribute = _ttl(client, name)
        if state in {"DISABLED", "DISABLING"}:
            fix = "`deltarelay storage lock create` switches it on"
            yield Deviation("ttl", "unwise", f"TTL is off on {name}: every entry is kept for ever", fix)
        elif attribute != TTL_ATTRIBUTE:
            found = f"TTL is on {attribute} on {name}, not on {TTL_ATTRIBUTE}: every entry is kept for ever"
            fix = f"switch it off there, wait an hour as AWS wants it, then `storage lock create` sets it on {TTL_ATTRIBUTE}"
            yield Deviation("ttl", "unwise", found, fix)
    yield from unseen
    with _unseen("recovery", "DescribeContinuousBackups", "whether it could be restored") as unseen:
        if _recovery(client, name) == "DISABLED":
            found = f"point-in-time recovery is off on {name}: entries that are deleted by mistake cannot be had back"
            yield Deviation("recovery", "unwise", found, "`deltarelay storage lock create` switches it on")
    yield from unseen


@contextmanager
def _unseen(kind: Kind, action: str, what: str) -> Iterator[list[Deviation]]:
    """→ filled with a deviation where the question is not allowed, or not known to this server."""
    found: list[Deviation] = []
    try:
        yield found
    except ConfigError as error:
        if error.condition in FORBIDDEN:
            found.append(Deviation(kind, "unseen", f"{what} may not be asked", _TO_LOOK.format(action=action)))
        elif error.condition in _NOT_OFFERED:
            found.append(Deviation(kind, "unseen", f"this server cannot tell {what}", "nothing, on a server for tests"))
        else:
            raise


def _ttl(client: Any, name: str) -> tuple[str, str | None]:
    with in_words("looking at TTL"):
        found = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName")


def _recovery(client: Any, name: str) -> str:
    with in_words("looking at point-in-time recovery"):
        found = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    return str(found.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus", "DISABLED"))


def described(client: Any, name: str) -> Mapping[str, Any] | None:
    with in_words(f"looking at the lock table {name}"):
        try:
            found: Mapping[str, Any] = client.describe_table(TableName=name)["Table"]
        except client.exceptions.ResourceNotFoundException:
            return None
    return found


def in_plain_words(status: str | None) -> str:
    return "not there" if status is None else status.lower().replace("_", " ")
