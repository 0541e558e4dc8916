"""boto3, set up by the ``storage`` block: who we are, which endpoint, and what went wrong in our own words.

Every call gives up within seconds. The AWS clients inside Spark do not: against an address that accepts and stays silent
DynamoDB's took more than nine minutes for one call. So whatever can be asked here is asked here, before Spark starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, SourceUnavailable

if TYPE_CHECKING:
    import boto3

    from infra.s3.model import Bucket, DynamoDBCommits, Storage

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "dynamodb", "error_code", "in_words", "kms", "s3", "session"]

CONNECT_SECONDS = 3
READ_SECONDS = 5
TRIES = 2

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN = {"InvalidAccessKeyId", "UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch"}
_FORBIDDEN = {"AccessDenied", "AccessDeniedException", "403", "Forbidden", "AllAccessDisabled"}
_SKEWED = {"RequestTimeTooSkewed", "InvalidSignatureException"}
_BUSY = {
    "SlowDown",
    "ServiceUnavailable",
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "InternalError",
    "InternalServerError",
    "500",
    "503",
}


def session(credentials: str | None, *, region: str | None = None) -> boto3.Session:
    """A boto3 session for a ``credentials`` setting. Raises ConfigError where no keys are to be had that way."""
    import boto3
    from botocore.exceptions import ProfileNotFound

    kind, _, name = (credentials or "default").partition(":")
    if kind == "profile":
        try:
            return boto3.Session(profile_name=name, region_name=region)
        except ProfileNotFound as error:
            raise ConfigError(
                f"there is no AWS profile {name}",
                hint="`aws configure list-profiles` lists them; storage.s3.credentials names one",
            ) from error
    if kind == "env":
        return _from_environment(region)
    plain = boto3.Session(region_name=region)
    return _assumed(plain, name, region) if kind == "assume_role" else plain


def _from_environment(region: str | None) -> boto3.Session:
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
    # Without a profile: one that AWS_PROFILE names, and that need not exist, has no say in it
    plain = Session(session_vars={"profile": (None, [], None, None)})
    return boto3.Session(
        botocore_session=plain,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name=region,
    )


def _assumed(base: boto3.Session, role: str, region: str | None) -> boto3.Session:
    import boto3

    with in_words(f"taking the role {role}"):
        given = base.client("sts", config=_config()).assume_role(RoleArn=role, RoleSessionName="deltarelay")
    keys = given["Credentials"]
    return boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        region_name=region,
    )


def s3(bucket: Bucket) -> Any:
    """A client for a bucket, from ``Storage.s3.bucket(NAME)``."""
    addressing = "path" if bucket.path_style else "auto"
    found = session(bucket.credentials, region=bucket.region)
    return found.client("s3", endpoint_url=bucket.endpoint, config=_config(s3={"addressing_style": addressing}))


def dynamodb(storage: Storage, lock: DynamoDBCommits) -> Any:
    """A client for the lock table. It uses the credentials of ``storage.s3``, as the log store in Spark does."""
    from botocore.exceptions import NoRegionError

    found = session(storage.s3.credentials, region=lock.region)
    try:
        return found.client("dynamodb", endpoint_url=lock.endpoint, config=_config())
    except NoRegionError as error:
        raise ConfigError("the lock table has no region", hint="set storage.commits.region") from error


def kms(storage: Storage, region: str) -> Any:
    """A client for AWS KMS, with the credentials of ``storage.s3``; its endpoint is that of another service."""
    return session(storage.s3.credentials, region=region).client("kms", config=_config())


def _config(**settings: Any) -> Any:
    from botocore.config import Config

    retries: Any = {"total_max_attempts": TRIES, "mode": "standard"}
    return Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries, **settings)


def error_code(error: BaseException) -> str:
    """AWS' own name of what went wrong; empty where the error is not an answer of AWS."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


@contextmanager
def in_words(what: str, *, hint: str | None = None) -> Iterator[None]:
    """Whatever boto3 raises inside, as a ConfigError (somebody has to change something) or SourceUnavailable (not so).

    AWS' own text is left out: it names account ids, key ids and, for a condition that failed, the item.
    """
    from botocore import exceptions as botocore

    try:
        yield
    except (botocore.NoCredentialsError, botocore.PartialCredentialsError, botocore.CredentialRetrievalError) as error:
        raise ConfigError(
            f"{what}: no AWS credentials were found",
            hint="set storage.s3.credentials (default, env, profile:NAME, assume_role:ARN) and see that they are there",
        ) from error
    except (botocore.TokenRetrievalError, botocore.SSOTokenLoadError, botocore.UnauthorizedSSOTokenError) as error:
        raise ConfigError(f"{what}: the AWS login has expired", hint="log in again: `aws sso login`") from error
    except botocore.ClientError as error:
        raise _of_answer(what, error_code(error), hint) from error
    except botocore.SSLError as error:
        raise ConfigError(
            f"{what}: the server's certificate is not accepted",
            hint="see whether the endpoint is the right one; AWS_CA_BUNDLE names the certificates to trust",
        ) from error
    except botocore.EndpointConnectionError as error:
        raise SourceUnavailable(
            f"{what}: nothing can be connected to there",
            hint="see whether the endpoint and the region are right and can be reached from here",
        ) from error
    except (botocore.HTTPClientError, botocore.ConnectionError) as error:
        raise SourceUnavailable(
            f"{what}: no answer within {CONNECT_SECONDS} to {READ_SECONDS} s ({type(error).__name__})",
            hint="see whether the endpoint and the region are right and can be reached from here",
        ) from error
    except botocore.BotoCoreError as error:
        raise ConfigError(
            f"{what}: the AWS client cannot be set up ({type(error).__name__})",
            hint=hint or "see storage.s3 in the configuration, and the files in ~/.aws",
        ) from error


def _of_answer(what: str, code: str, hint: str | None) -> ConfigError | SourceUnavailable:
    if code in _EXPIRED:
        return ConfigError(f"{what}: the AWS credentials have expired", hint="renew them", condition=code)
    if code in _UNKNOWN:
        help_ = "see storage.s3.credentials, and whether these keys belong to this endpoint"
        return ConfigError(f"{what}: the AWS credentials are not accepted", hint=help_, condition=code)
    if code in _SKEWED:
        help_ = "set the clock by NTP: AWS refuses what is signed more than 15 minutes off"
        return ConfigError(f"{what}: this machine's clock is wrong", hint=help_, condition=code)
    if code in _FORBIDDEN:
        help_ = "`deltarelay storage template` prints a policy with the rights that are needed"
        return ConfigError(f"{what}: these credentials do not have the right to", hint=hint or help_, condition=code)
    if code in _BUSY:
        return SourceUnavailable(f"{what}: the service is busy ({code})", hint="try again later", condition=code)
    return ConfigError(f"{what}: refused ({code or 'no reason given'})", hint=hint, condition=code or None)
