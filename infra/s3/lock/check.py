"""Compares the lock table, and the permissions of these credentials, with what Delta requires."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from audit.aws_errors import call_unless
from cdf.errors import ConfigError, SourceUnavailable
from cdf.result import Result
from infra.s3.clients import connect_dynamodb
from infra.s3.errors import translate_aws_errors
from infra.s3.lock.table import (
    FORBIDDEN,
    RIGHTS,
    Deviation,
    Severity,
    check_keys,
    check_shape,
    connect,
    describe,
    format_status,
)
from infra.s3.model import DynamoDBCommits, Storage

__all__ = ["LockTable", "Use", "check"]

_STORE_DEFAULT_REGION = "us-east-1"
"""Where Delta's log store looks for its table, and creates it, when no region is configured."""
_PROBE = {"tablePath": {"S": "deltarelay-probe"}, "fileName": {"S": "deltarelay-probe"}}

Use = Literal["write", "read"]
"""The purpose of the credentials: the log store gets and puts entries only where it writes."""


@dataclass(frozen=True, slots=True)
class LockTable(Result):
    """The state of the lock table. ``status`` is None where it is missing, or cannot be described."""

    table: str
    region: str
    status: str | None
    deviations: tuple[Deviation, ...]

    @property
    def usable(self) -> bool:
        return not any(one.severity == "breaks" for one in self.deviations)


def check(storage: Storage, *, use: Use = "write") -> LockTable:
    """Report everything in the lock table, or in the permissions of these credentials, that Delta requires otherwise.

    Writes nothing: the permission to write is tested with a condition that is never true. Raises where the service does not
    answer, or does not accept these credentials.
    """
    lock, client = connect(storage)
    name, region = lock.table, str(lock.region)
    found: list[Deviation] = []
    try:
        table = describe(client, name)
    except ConfigError as error:
        if error.condition not in FORBIDDEN:
            raise
        return LockTable(
            name, region, None, (_permission_missing("DescribeTable", name), *_check_permissions(client, name, use))
        )
    if table is None:
        return LockTable(name, region, None, (_missing(storage, lock),))
    status = str(table["TableStatus"])
    if status != "ACTIVE":
        severity: Severity = "unwise" if status == "UPDATING" else "breaks"
        fix = "wait until it is active, then check again"
        found.append(Deviation("status", severity, f"the lock table {name} is {format_status(status)}", fix))
    if wrong := check_keys(table, name):
        found.append(wrong)
    found += check_shape(client, table, name)
    if wrong is None and status in {"ACTIVE", "UPDATING"}:
        found += _check_permissions(client, name, use)
    return LockTable(name, region, status, tuple(found))


def _missing(storage: Storage, lock: DynamoDBCommits) -> Deviation:
    """It may be in another region: the bucket's, the environment's, or the log store's default."""
    environment = (os.environ.get("AWS_REGION"), os.environ.get("AWS_DEFAULT_REGION"))
    for other in dict.fromkeys((storage.s3.region, *environment, _STORE_DEFAULT_REGION)):
        if not other or other == lock.region:
            continue
        try:
            elsewhere = describe(connect_dynamodb(storage, lock.model_copy(update={"region": other})), lock.table)
        except (ConfigError, SourceUnavailable):
            continue  # the search is only for a hint: errors in other regions do not matter
        if elsewhere is not None:
            found = f"there is no table {lock.table} in {lock.region}; there is one in {other}"
            fix = f"set storage.commits.region: {other}; two clusters with two lock tables lose commits"
            return Deviation("region", "breaks", found, fix)
    return _not_found(lock.table, str(lock.region))


def _not_found(name: str, region: str) -> Deviation:
    fix = "correct the name or the region, or create it with `deltarelay storage lock create`"
    return Deviation("missing", "breaks", f"there is no table {name} in {region}", fix)


def _check_permissions(client: Any, name: str, use: Use) -> Iterator[Deviation]:
    """Try the requests of Delta's log store: query the latest entry and, for writing, get and put one."""
    reading = {"TableName": name, "ConsistentRead": True}
    latest = {
        "Limit": 1,
        "KeyConditionExpression": "tablePath = :path",
        "ExpressionAttributeValues": {":path": _PROBE["tablePath"]},
    }
    never = "attribute_exists(tablePath) and attribute_not_exists(tablePath)"
    requests = {"Query": lambda: client.query(**reading, **latest)}
    if use == "write":
        requests["GetItem"] = lambda: client.get_item(**reading, Key=_PROBE)
        requests["PutItem"] = lambda: client.put_item(TableName=name, Item=_PROBE, ConditionExpression=never)
    for action, request in requests.items():
        try:
            with translate_aws_errors(f"testing dynamodb:{action} on {name}"):
                call_unless("precondition_failed", request)  # fails only where the permission is granted
        except ConfigError as error:
            if error.condition == "ResourceNotFoundException":
                yield _not_found(name, str(client.meta.region_name))
                return
            if error.condition not in FORBIDDEN:
                raise
            yield _permission_missing(action, name)


def _permission_missing(action: str, name: str) -> Deviation:
    consequence = {
        "DescribeTable": "the log store calls it first, for reads and writes",
        "Query": "no commit can be read",
        "GetItem": "no commit can be written",
        "PutItem": "no commit can be written, nor completed for another writer",
    }
    found = f"these credentials lack the permission dynamodb:{action} on {name}: {consequence[action]}"
    return Deviation("permission", "breaks", found, RIGHTS)
