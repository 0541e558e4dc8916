"""Probes buckets and lock table before Spark starts: it takes seconds where Spark would hang for minutes. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from audit.aws_errors import classify
from cdf.errors import CdfError, ConfigError, SourceUnavailable
from infra.s3.address import S3Address, is_s3
from infra.s3.clients import connect_s3
from infra.s3.errors import translate_aws_errors
from infra.s3.lock import table as lock_table
from infra.s3.model import Bucket, Storage
from infra.s3.settings import fill_in_region

__all__ = ["find_bucket_problems", "find_lock_problem", "probe", "probe_any", "probe_buckets"]

_REGION_HEADER = "x-amz-bucket-region"
_NOT_FOUND = ("missing", "no_bucket")
_MAX_THREADS = 8


def probe(storage: Storage, addresses: Iterable[str]) -> None:
    """Raise one error for all problems of the tables' buckets and of the lock table.

    SourceUnavailable where all of them can pass without a change, else ConfigError.
    """
    storage = fill_in_region(storage)
    problems = list(find_bucket_problems(storage, addresses).values())
    if (lock := find_lock_problem(storage)) is not None:
        problems.append(lock)
    _raise_if_any(problems)


def probe_any(storage: Storage, addresses: Iterable[str]) -> None:
    """The same for the tables of several pipelines: raise for buckets only where no table at all is accessible."""
    addresses, storage = list(addresses), fill_in_region(storage)
    problems = find_bucket_problems(storage, addresses)
    lock = find_lock_problem(storage)
    is_none_left = all(is_s3(one) and S3Address.parse(one).bucket in problems for one in addresses)
    if lock is not None or is_none_left:
        _raise_if_any([*problems.values(), *filter(None, [lock])])


def probe_buckets(storage: Storage, addresses: Iterable[str]) -> None:
    """The same without the lock table, for readers without Spark."""
    if addresses := list(filter(is_s3, addresses)):  # looking up the region is slower than reading a local table
        _raise_if_any(list(find_bucket_problems(fill_in_region(storage), addresses).values()))


def find_bucket_problems(storage: Storage, addresses: Iterable[str]) -> Mapping[str, CdfError]:
    """The error of each bucket that cannot be read, by name. All buckets are asked in parallel."""
    keys: dict[str, str] = {}
    for address in filter(is_s3, addresses):
        table = S3Address.parse(address)
        keys.setdefault(table.bucket, table.key)
    if not keys:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(keys), _MAX_THREADS)) as pool:
        ask = lambda name: _catch(lambda: _ask_bucket(name, keys[name], storage.s3.bucket(name)))  # noqa: E731
        errors = list(pool.map(ask, keys))
    return {name: error for name, error in zip(keys, errors, strict=True) if error is not None}


def find_lock_problem(storage: Storage) -> CdfError | None:
    """Why the log store in Spark could not use the lock table. Whether it is set up well is checked by ``lock.check``."""
    return None if storage.lock is None else _catch(lambda: _ask_lock_table(storage))


def _catch(ask: Callable[[], None]) -> CdfError | None:
    try:
        ask()
    except CdfError as error:
        return error
    return None


def _ask_bucket(name: str, key: str, bucket: Bucket) -> None:
    """``key``: of a table in the bucket. Permissions may be limited to its folder."""
    from botocore.exceptions import ClientError

    with translate_aws_errors(f"the bucket {name}"):
        client = connect_s3(bucket)
        try:
            headers = _headers(client.head_bucket(Bucket=name))
        except ClientError as head_error:
            headers = _headers(head_error.response)
            if classify(head_error) in _NOT_FOUND:
                raise _no_such_bucket(name, bucket) from head_error
            _check_region(name, client, headers)
            # The response to a HEAD has no body with a reason; the response to a GET has one
            try:
                prefix = f"{key}/_delta_log/".lstrip("/")
                headers = _headers(client.list_objects_v2(Bucket=name, MaxKeys=1, Prefix=prefix))
            except ClientError as list_error:
                if classify(list_error) in _NOT_FOUND:
                    raise _no_such_bucket(name, bucket) from list_error
                raise
    _check_region(name, client, headers)


def _headers(response: Mapping[str, Any]) -> Mapping[str, str]:
    metadata = response.get("ResponseMetadata", {})
    return {str(name).lower(): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()}


def _no_such_bucket(name: str, bucket: Bucket) -> ConfigError:
    where = f" at {bucket.endpoint}" if bucket.endpoint else ""
    hint = (
        "correct the address of the table, or storage.s3.endpoint for a bucket outside of AWS; "
        "deltarelay creates no buckets"
    )
    return ConfigError(f"there is no bucket {name}{where}", hint=hint)


def _check_region(name: str, client: Any, headers: Mapping[str, str]) -> None:
    """boto3 and S3A find the right region with one more request each; delta-rs does not."""
    ours, theirs = client.meta.region_name, headers.get(_REGION_HEADER)
    if theirs and ours and ours != "aws-global" and theirs != ours:
        hint = f"set storage.s3.region: {theirs}, or storage.s3.buckets.{name}.region if other buckets are elsewhere"
        raise ConfigError(f"the bucket {name} is in the region {theirs}, not in {ours}", hint=hint)


def _ask_lock_table(storage: Storage) -> None:
    lock, client = lock_table.connect(storage)
    table = lock_table.describe(client, lock.table)
    if table is None:
        hint = "create it with `deltarelay storage lock create`, or correct storage.commits.table and .region"
        raise ConfigError(f"there is no lock table {lock.table} in {lock.region}", hint=hint)
    if wrong := lock_table.check_keys(table, lock.table):
        raise ConfigError(wrong.found, hint=wrong.fix)
    if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
        state = lock_table.format_status(table["TableStatus"])
        raise SourceUnavailable(
            f"the lock table {lock.table} in {lock.region} is {state}", hint="try again in a minute"
        )


def _raise_if_any(problems: list[CdfError]) -> None:
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0]
    kind = SourceUnavailable if all(one.transient for one in problems) else ConfigError
    hints = dict.fromkeys(one.hint for one in problems if one.hint)
    raise kind("; ".join(one.message for one in problems), hint="; ".join(hints) or None) from problems[0]
