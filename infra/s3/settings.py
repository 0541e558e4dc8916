"""How boto3 and delta-rs access S3: region, credentials, options; and the masking of secret options.

The functions read ``~/.aws`` and the environment, and for a role they call AWS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata

from cdf.errors import ConfigError
from infra.s3.address import S3Address
from infra.s3.clients import open_session
from infra.s3.errors import translate_aws_errors
from infra.s3.model import SingleWriterCommits, Storage

__all__ = [
    "MASK",
    "Options",
    "delta_rs_options",
    "fill_in_region",
    "is_secret",
    "mask_secrets",
]

MASK = "****"

_LAST_DELTA_RS_WITH_LOCK = (1, 6, 0)
_SECRET = re.compile(r"(?i)secret|token|passw|access[._-]?key")
_DELTA_RS_PATIENCE = {"connect_timeout": "3s", "timeout": "15s", "max_retries": "2", "retry_timeout": "30s"}
"""By default delta-rs waits 30 s for an answer, ten times, up to three minutes."""


class Options(dict[str, str]):
    """Options with credentials among them; ``repr`` and ``str`` mask these."""

    def __repr__(self) -> str:
        return repr(mask_secrets(self))

    __str__ = __repr__


def is_secret(name: str) -> bool:
    """Whether the value of a setting must not be shown."""
    return _SECRET.search(name) is not None and not name.endswith((".provider", ".impl"))


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if is_secret(name) else value for name, value in options.items()}


def fill_in_region(storage: Storage) -> Storage:
    """The same with the region of AWS_REGION or ~/.aws/config where the configuration names none."""
    if storage.s3.region is not None:
        return storage
    profile = storage.s3.credentials if (storage.s3.credentials or "").startswith("profile:") else None
    region = open_session(profile).region_name
    if region is None:
        return storage
    return storage.model_copy(update={"s3": storage.s3.model_copy(update={"region": region})})


def delta_rs_options(storage: Storage, address: str, *, writing: bool = False) -> Options:
    """``storage_options`` for delta-rs (deltalake), with the credentials that boto3 finds.

    Reading needs no lock and may miss the newest commit. ``writing`` raises ConfigError where nothing coordinates
    concurrent writers.
    """
    table = S3Address.parse(address)
    bucket = storage.s3.bucket(table.bucket)
    session = open_session(bucket.credentials, region=bucket.region)
    endpoint = bucket.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = session.region_name or ("us-east-1" if endpoint else None)
    if region is None:
        raise ConfigError(
            f"the bucket {table.bucket} has no region", hint="set storage.s3.region, or AWS_REGION in the environment"
        )
    options = Options(AWS_REGION=region, **_DELTA_RS_PATIENCE)
    with translate_aws_errors("looking for AWS credentials"):
        credentials = session.get_credentials()
        keys = None if credentials is None else credentials.get_frozen_credentials()
    if keys is None:
        raise ConfigError(
            "no AWS credentials were found",
            hint="set storage.s3.credentials (default, env, profile:NAME, assume_role:ARN) and provide them there",
        )
    options |= {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
    if keys.token:
        options["AWS_SESSION_TOKEN"] = keys.token
    is_hosted = not bucket.path_style if endpoint is None else bucket.path_style is False
    options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = _to_text(is_hosted)
    if endpoint is not None:
        scheme, _, host = endpoint.partition("://")  # delta-rs does not prepend the bucket itself
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{table.bucket}.{host}" if is_hosted else endpoint
        options["AWS_ALLOW_HTTP"] = _to_text(scheme == "http")
    if writing:
        options |= _lock_options(storage, address)
    return options


def _lock_options(storage: Storage, address: str) -> dict[str, str]:
    if storage.commits is None:
        raise ConfigError(
            f"nothing coordinates concurrent writers of {address}, so nothing is written",
            hint="set `storage: {commits: {kind: dynamodb, table: delta_log}}` or, where exactly one process ever writes, "
            "kind: single_writer",
        )
    if isinstance(storage.commits, SingleWriterCommits):
        return {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"} if _delta_rs_version() <= _LAST_DELTA_RS_WITH_LOCK else {}
    if _delta_rs_version() > _LAST_DELTA_RS_WITH_LOCK:
        raise ConfigError(
            f"deltalake {metadata.version('deltalake')} ignores the lock table: its commits and Spark's would overwrite "
            "each other",
            hint="write with Spark, or with deltalake 1.6.0, the last release that uses the lock; any release can read",
        )
    lock = fill_in_region(storage).lock
    assert lock is not None
    if lock.region is None:
        raise ConfigError("the lock table has no region", hint="set storage.commits.region")
    options = {
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": lock.table,
        "AWS_REGION_DYNAMODB": lock.region,
    }
    if lock.endpoint is not None:
        options["AWS_ENDPOINT_URL_DYNAMODB"] = lock.endpoint
        if lock.endpoint.startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    return options


def _to_text(value: bool) -> str:
    return "true" if value else "false"


def _delta_rs_version() -> tuple[int, ...]:
    """The installed version of deltalake, in a form that can be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", metadata.version("deltalake"))[:3])
