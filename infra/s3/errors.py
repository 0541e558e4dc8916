"""Errors of AWS as deltarelay errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from audit.aws_errors import Kind, classify, error_code
from cdf.errors import ConfigError, SourceUnavailable

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "translate_aws_errors"]

CONNECT_SECONDS = 3
READ_SECONDS = 5
"""The timeouts of every client (``infra.s3.clients``)."""

_TEMPORARY = ("busy", "unreachable", "no_answer")
_CHECK_ENDPOINT = "check the endpoint and the region, and that this machine can connect to it"
_REASONS: Mapping[Kind, tuple[str, str | None]] = {
    "no_credentials": (
        "no AWS credentials were found",
        "set storage.s3.credentials (default, env, profile:NAME, assume_role:ARN) and provide them there",
    ),
    "login_expired": ("the AWS login has expired", "log in again: `aws sso login`"),
    "expired": ("the AWS credentials have expired", "renew them"),
    "not_accepted": (
        "the AWS credentials are not accepted",
        "check storage.s3.credentials, and that these keys belong to this endpoint",
    ),
    "skewed": (
        "the clock of this machine is wrong",
        "synchronise the clock by NTP: AWS rejects a request if its time differs by more than 15 minutes",
    ),
    "forbidden": (
        "permission denied for these credentials",
        "`deltarelay storage template` prints a policy with the required permissions",
    ),
    "busy": ("the service is busy ({name})", "try again later"),
    "untrusted": (
        "the certificate of the server is not trusted",
        "check the endpoint; AWS_CA_BUNDLE names the certificates to trust",
    ),
    "unreachable": ("cannot connect to the endpoint", _CHECK_ENDPOINT),
    "no_answer": (f"no answer within {CONNECT_SECONDS} to {READ_SECONDS} s ({{name}})", _CHECK_ENDPOINT),
    "client": (
        "the AWS client cannot be set up ({name})",
        "check storage.s3 in the configuration, and the files in ~/.aws",
    ),
}


@contextmanager
def translate_aws_errors(action: str) -> Iterator[None]:
    """Raise errors of boto3 as SourceUnavailable where a retry can help, else as ConfigError.

    ``action``: the beginning of the message, such as ``reading the lock table delta_log``.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        kind, code = classify(error), error_code(error)
        reason, hint = _REASONS.get(kind, ("refused ({name})", None))
        name = code or ("no reason given" if kind == "refused" else type(error).__name__)
        raised = SourceUnavailable if kind in _TEMPORARY else ConfigError
        raise raised(f"{action}: {reason.format(name=name)}", hint=hint, condition=code or None) from error
