"""boto3 clients as the ``storage`` block configures them.

Every call ends within seconds. The AWS clients inside Spark do not: with a server that accepts connections and never
answers, one call of the DynamoDB client took more than nine minutes. Therefore everything that can be checked with boto3 is
checked before Spark starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError
from infra.s3.errors import CONNECT_SECONDS, READ_SECONDS, translate_aws_errors

if TYPE_CHECKING:
    import boto3

    from infra.s3.model import Bucket, DynamoDBCommits, Storage

__all__ = ["connect_dynamodb", "connect_kms", "connect_s3", "open_session"]

TRIES = 2


def open_session(credentials: str | None, *, region: str | None = None) -> boto3.Session:
    """A boto3 session for a ``credentials`` setting. Raises ConfigError where it yields no credentials."""
    import boto3
    from botocore.exceptions import ProfileNotFound

    kind, _, name = (credentials or "default").partition(":")
    if kind == "profile":
        try:
            return boto3.Session(profile_name=name, region_name=region)
        except ProfileNotFound as error:
            raise ConfigError(
                f"the AWS profile {name} does not exist",
                hint="`aws configure list-profiles` lists the profiles; set one in storage.s3.credentials",
            ) from error
    if kind == "env":
        return _open_from_environment(region)
    session = boto3.Session(region_name=region)
    return _assume_role(session, name, region) if kind == "assume_role" else session


def _open_from_environment(region: str | None) -> boto3.Session:
    import os

    import boto3
    from botocore.session import Session

    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise ConfigError(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set",
            hint="set them, or choose other credentials: storage.s3.credentials: default | profile:NAME",
        )
    token = os.environ.get("AWS_SESSION_TOKEN") or None
    # AWS_PROFILE is ignored: it may name a profile that does not exist
    without_profile = Session(session_vars={"profile": (None, [], None, None)})
    return boto3.Session(
        botocore_session=without_profile,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name=region,
    )


def _assume_role(base: boto3.Session, role: str, region: str | None) -> boto3.Session:
    import boto3

    with translate_aws_errors(f"assuming the role {role}"):
        response = base.client("sts", config=_config()).assume_role(RoleArn=role, RoleSessionName="deltarelay")
    keys = response["Credentials"]
    return boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        region_name=region,
    )


def connect_s3(bucket: Bucket) -> Any:
    """A client for a bucket, from ``Storage.s3.bucket(NAME)``."""
    addressing = "path" if bucket.path_style else "auto"
    session = open_session(bucket.credentials, region=bucket.region)
    return session.client("s3", endpoint_url=bucket.endpoint, config=_config(s3={"addressing_style": addressing}))


def connect_dynamodb(storage: Storage, lock: DynamoDBCommits) -> Any:
    """A client for the lock table, with the credentials of ``storage.s3``, like the log store in Spark."""
    from botocore.exceptions import NoRegionError

    session = open_session(storage.s3.credentials, region=lock.region)
    try:
        return session.client("dynamodb", endpoint_url=lock.endpoint, config=_config())
    except NoRegionError as error:
        raise ConfigError("the lock table has no region", hint="set storage.commits.region") from error


def connect_kms(storage: Storage, region: str) -> Any:
    """A client for AWS KMS with the credentials of ``storage.s3``. Its endpoint is not used: it belongs to S3."""
    return open_session(storage.s3.credentials, region=region).client("kms", config=_config())


def _config(**settings: Any) -> Any:
    from botocore.config import Config

    retries: Any = {"total_max_attempts": TRIES, "mode": "standard"}
    return Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries, **settings)
