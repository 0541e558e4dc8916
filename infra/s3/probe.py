"""Bucket and lock table, asked before Spark is: it hangs for minutes where this takes seconds. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cdf.errors import CdfError, ConfigError, SourceUnavailable
from infra.s3 import clients as aws
from infra.s3.address import S3Address, is_s3
from infra.s3.lock import table as lock_table
from infra.s3.model import Bucket, Storage
from infra.s3.settings import located

__all__ = ["bucket_problems", "lock_problem", "probe", "probe_any", "probe_buckets", "told_otherwise"]

_REGION_HEADER = "x-amz-bucket-region"
_NOT_FOUND = {"404", "NoSuchBucket", "NotFound"}
_MOST_THREADS = 8


def probe(storage: Storage, addresses: Iterable[str]) -> None:
    """Raise one error for everything that is wrong with the tables' buckets and with the lock table.

    SourceUnavailable where all of it may go away by itself, else ConfigError.
    """
    storage = located(storage)
    problems = list(bucket_problems(storage, addresses).values())
    if (lock := lock_problem(storage)) is not None:
        problems.append(lock)
    _raise_if_any(problems)


def probe_any(storage: Storage, addresses: Iterable[str]) -> None:
    """The same for tables of several pipelines: a bucket stops nobody but its own, as long as one can be worked on."""
    addresses, storage = list(addresses), located(storage)
    problems = bucket_problems(storage, addresses)
    lock = lock_problem(storage)
    nobody = all(is_s3(one) and S3Address.parse(one).bucket in problems for one in addresses)
    if lock is not None or nobody:
        _raise_if_any([*problems.values(), *filter(None, [lock])])


def probe_buckets(storage: Storage, addresses: Iterable[str]) -> None:
    """The same without the lock table, for whoever reads without Spark."""
    if addresses := list(filter(is_s3, addresses)):  # to find out the region takes longer than a look at a local table
        _raise_if_any(list(bucket_problems(located(storage), addresses).values()))


def bucket_problems(storage: Storage, addresses: Iterable[str]) -> Mapping[str, CdfError]:
    """By bucket, what is wrong with it; nothing for those that can be read. All of them are asked at the same time."""
    keys: dict[str, str] = {}
    for address in filter(is_s3, addresses):
        table = S3Address.parse(address)
        keys.setdefault(table.bucket, table.key)
    if not keys:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(keys), _MOST_THREADS)) as pool:
        ask = lambda name: _caught(lambda: _ask(name, keys[name], storage.s3.bucket(name)))  # noqa: E731
        answers = list(pool.map(ask, keys))
    return {name: problem for name, problem in zip(keys, answers, strict=True) if problem is not None}


def told_otherwise(conf: Mapping[str, str]) -> bool:
    """Whether Spark is given an endpoint or keys for S3 by settings of its own, of which boto3 knows nothing."""
    ours = ("endpoint", "access.key", "aws.credentials.provider")
    return any(name.startswith("spark.hadoop.fs.s3a.") and name.endswith(ours) for name in conf)


def lock_problem(storage: Storage) -> CdfError | None:
    """What would keep the log store in Spark from using the lock table; whether it is set up well is another matter."""
    return None if storage.lock is None else _caught(lambda: _ask_lock(storage))


def _caught(ask: Callable[[], None]) -> CdfError | None:
    try:
        ask()
    except CdfError as error:
        return error
    return None


def _ask(name: str, key: str, bucket: Bucket) -> None:
    """``key``: of a table in it. Rights may end at its folder."""
    from botocore.exceptions import ClientError

    what = f"the bucket {name}"
    with aws.in_words(what):
        client = aws.s3(bucket)
        try:
            headers = _headers(client.head_bucket(Bucket=name))
        except ClientError as refused:
            headers = _headers(refused.response)
            if aws.error_code(refused) in _NOT_FOUND:
                raise _missing(name, bucket) from refused
            _check_region(name, client, headers)
            # The answer to a HEAD has no body, so it cannot say why; the answer to a GET does
            try:
                prefix = f"{key}/_delta_log/".lstrip("/")
                headers = _headers(client.list_objects_v2(Bucket=name, MaxKeys=1, Prefix=prefix))
            except ClientError as told:
                if aws.error_code(told) in _NOT_FOUND:
                    raise _missing(name, bucket) from told
                raise
    _check_region(name, client, headers)


def _headers(response: Mapping[str, Any]) -> Mapping[str, str]:
    metadata = response.get("ResponseMetadata", {})
    return {str(name).lower(): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()}


def _missing(name: str, bucket: Bucket) -> ConfigError:
    where = f" at {bucket.endpoint}" if bucket.endpoint else ""
    hint = "correct the table's address, or storage.s3.endpoint where it is not a bucket of AWS; nothing here makes buckets"
    return ConfigError(f"there is no bucket {name}{where}", hint=hint)


def _check_region(name: str, client: Any, headers: Mapping[str, str]) -> None:
    """boto3 and S3A follow a bucket to its region at the price of a request each; delta-rs does not."""
    ours, theirs = client.meta.region_name, headers.get(_REGION_HEADER)
    if theirs and ours and ours != "aws-global" and theirs != ours:
        hint = f"set storage.s3.region: {theirs}, or storage.s3.buckets.{name}.region where others are elsewhere"
        raise ConfigError(f"the bucket {name} is in the region {theirs}, not in {ours}", hint=hint)


def _ask_lock(storage: Storage) -> None:
    lock, client = lock_table.opened(storage)
    table = lock_table.described(client, lock.table)
    if table is None:
        hint = "`deltarelay storage lock create` makes it; or correct storage.commits.table and .region"
        raise ConfigError(f"there is no lock table {lock.table} in {lock.region}", hint=hint)
    if wrong := lock_table.wrong_keys(table, lock.table):
        raise ConfigError(wrong.found, hint=wrong.fix)
    if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
        state = lock_table.in_plain_words(table["TableStatus"])
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
