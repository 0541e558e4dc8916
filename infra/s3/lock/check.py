"""The lock table as it is, and what these credentials may do with it, held against what Delta needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from cdf.errors import ConfigError, SourceUnavailable
from cdf.result import Result
from infra.s3.clients import dynamodb, error_code, in_words
from infra.s3.lock.table import (
    FORBIDDEN,
    RIGHTS,
    Deviation,
    Severity,
    described,
    in_plain_words,
    opened,
    shape,
    wrong_keys,
)
from infra.s3.model import DynamoDBCommits, Storage

__all__ = ["LockTable", "Use", "check"]

_STORE_DEFAULT_REGION = "us-east-1"
"""Where Delta's log store looks, and makes its table, when nobody tells it a region."""
_PROBE = {"tablePath": {"S": "deltarelay-probe"}, "fileName": {"S": "deltarelay-probe"}}

Use = Literal["write", "read"]
"""What the credentials are for: the log store gets and puts entries only where it writes."""


@dataclass(frozen=True, slots=True)
class LockTable(Result):
    """The lock table as it is. ``status`` is None where it is missing, or may not be looked at."""

    table: str
    region: str
    status: str | None
    deviations: tuple[Deviation, ...]

    @property
    def usable(self) -> bool:
        return not any(one.severity == "breaks" for one in self.deviations)


def check(storage: Storage, *, use: Use = "write") -> LockTable:
    """Name everything in which the lock table, or what these credentials may do with it, is not as Delta needs it.

    Writes nothing: the right to write is tried with a condition that can never hold. Raises where the service does not
    answer, or does not know these credentials.
    """
    lock, client = opened(storage)
    name, region = lock.table, str(lock.region)
    found: list[Deviation] = []
    try:
        table = described(client, name)
    except ConfigError as error:
        if error.condition not in FORBIDDEN:
            raise
        return LockTable(name, region, None, (_denied("DescribeTable", name), *_rights(client, name, use)))
    if table is None:
        return LockTable(name, region, None, (_missing(storage, lock),))
    status = str(table["TableStatus"])
    if status != "ACTIVE":
        severity: Severity = "unwise" if status == "UPDATING" else "breaks"
        fix = "wait until it is active, and check again"
        found.append(Deviation("status", severity, f"the lock table {name} is {in_plain_words(status)}", fix))
    if wrong := wrong_keys(table, name):
        found.append(wrong)
    found += shape(client, table, name)
    if wrong is None and status in {"ACTIVE", "UPDATING"}:
        found += _rights(client, name, use)
    return LockTable(name, region, status, tuple(found))


def _missing(storage: Storage, lock: DynamoDBCommits) -> Deviation:
    """It may have been made in another region: the bucket's, the environment's, or the log store's default."""
    environment = (os.environ.get("AWS_REGION"), os.environ.get("AWS_DEFAULT_REGION"))
    for other in dict.fromkeys((storage.s3.region, *environment, _STORE_DEFAULT_REGION)):
        if not other or other == lock.region:
            continue
        try:
            there = described(dynamodb(storage, lock.model_copy(update={"region": other})), lock.table)
        except (ConfigError, SourceUnavailable):
            continue  # only a hint: what is wrong over there is nobody's question
        if there is not None:
            found = f"there is no table {lock.table} in {lock.region}; there is one in {other}"
            fix = f"set storage.commits.region: {other}; two clusters with two lock tables lose commits"
            return Deviation("region", "breaks", found, fix)
    return _nowhere(lock.table, str(lock.region))


def _nowhere(name: str, region: str) -> Deviation:
    fix = "see whether name and region are right, or make it: `deltarelay storage lock create`"
    return Deviation("missing", "breaks", f"there is no table {name} in {region}", fix)


def _rights(client: Any, name: str, use: Use) -> Iterator[Deviation]:
    """Try what Delta's log store does: read the latest entry; where it writes also read one, and put one."""
    reading = {"TableName": name, "ConsistentRead": True}
    latest = {
        "Limit": 1,
        "KeyConditionExpression": "tablePath = :path",
        "ExpressionAttributeValues": {":path": _PROBE["tablePath"]},
    }
    never = "attribute_exists(tablePath) and attribute_not_exists(tablePath)"
    tries = {"Query": lambda: client.query(**reading, **latest)}
    if use == "write":
        tries["GetItem"] = lambda: client.get_item(**reading, Key=_PROBE)
        tries["PutItem"] = lambda: client.put_item(TableName=name, Item=_PROBE, ConditionExpression=never)
    for action, attempt in tries.items():
        try:
            with in_words(f"trying dynamodb:{action} on {name}"):
                _tried(attempt)
        except ConfigError as error:
            if error.condition == "ResourceNotFoundException":
                yield _nowhere(name, str(client.meta.region_name))
                return
            if error.condition not in FORBIDDEN:
                raise
            yield _denied(action, name)


def _tried(attempt: Any) -> None:
    from botocore.exceptions import ClientError

    try:
        attempt()
    except ClientError as error:
        if error_code(error) != "ConditionalCheckFailedException":  # which means that the right is there
            raise


def _denied(action: str, name: str) -> Deviation:
    why = {
        "DescribeTable": "the log store asks it first, whatever it is to do",
        "Query": "no commit can be read",
        "GetItem": "no commit can be written",
        "PutItem": "no commit can be written, nor finished for another writer",
    }
    found = f"these credentials lack the right dynamodb:{action} on {name}: {why[action]}"
    return Deviation("permission", "breaks", found, RIGHTS)
