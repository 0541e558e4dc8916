"""Errors of AWS as deltarelay errors. AWS' own text is left out: it contains account ids, key ids and item values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdf.errors import ConfigError, SourceUnavailable

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "error_code", "translate_aws_errors"]

CONNECT_SECONDS = 3
READ_SECONDS = 5
"""The timeouts of every client (``infra.s3.clients``)."""

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
_CHECK_ENDPOINT = "check the endpoint and the region, and that this machine can connect to it"


def error_code(error: BaseException) -> str:
    """AWS' name of the error; empty where the error is not a response of AWS."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


@contextmanager
def translate_aws_errors(action: str, *, hint: str | None = None) -> Iterator[None]:
    """Raise errors of boto3 as SourceUnavailable where a retry can help, else as ConfigError.

    ``action``: the beginning of the message, such as ``reading the lock table delta_log``.
    """
    from botocore import exceptions as botocore

    try:
        yield
    except (botocore.NoCredentialsError, botocore.PartialCredentialsError, botocore.CredentialRetrievalError) as error:
        raise ConfigError(
            f"{action}: no AWS credentials were found",
            hint="set storage.s3.credentials (default, env, profile:NAME, assume_role:ARN) and provide them there",
        ) from error
    except (botocore.TokenRetrievalError, botocore.SSOTokenLoadError, botocore.UnauthorizedSSOTokenError) as error:
        raise ConfigError(f"{action}: the AWS login has expired", hint="log in again: `aws sso login`") from error
    except botocore.ClientError as error:
        raise _translate_response(action, error_code(error), hint) from error
    except botocore.SSLError as error:
        raise ConfigError(
            f"{action}: the certificate of the server is not trusted",
            hint="check the endpoint; AWS_CA_BUNDLE names the certificates to trust",
        ) from error
    except botocore.EndpointConnectionError as error:
        raise SourceUnavailable(f"{action}: cannot connect to the endpoint", hint=_CHECK_ENDPOINT) from error
    except (botocore.HTTPClientError, botocore.ConnectionError) as error:
        seconds = f"{CONNECT_SECONDS} to {READ_SECONDS} s"
        raise SourceUnavailable(
            f"{action}: no answer within {seconds} ({type(error).__name__})", hint=_CHECK_ENDPOINT
        ) from error
    except botocore.BotoCoreError as error:
        raise ConfigError(
            f"{action}: the AWS client cannot be set up ({type(error).__name__})",
            hint=hint or "check storage.s3 in the configuration, and the files in ~/.aws",
        ) from error


def _translate_response(action: str, code: str, hint: str | None) -> ConfigError | SourceUnavailable:
    if code in _EXPIRED:
        return ConfigError(f"{action}: the AWS credentials have expired", hint="renew them", condition=code)
    if code in _UNKNOWN:
        advice = "check storage.s3.credentials, and that these keys belong to this endpoint"
        return ConfigError(f"{action}: the AWS credentials are not accepted", hint=advice, condition=code)
    if code in _SKEWED:
        advice = "synchronise the clock by NTP: AWS rejects a request if its time differs by more than 15 minutes"
        return ConfigError(f"{action}: the clock of this machine is wrong", hint=advice, condition=code)
    if code in _FORBIDDEN:
        advice = "`deltarelay storage template` prints a policy with the required permissions"
        return ConfigError(f"{action}: permission denied for these credentials", hint=hint or advice, condition=code)
    if code in _BUSY:
        return SourceUnavailable(f"{action}: the service is busy ({code})", hint="try again later", condition=code)
    return ConfigError(f"{action}: refused ({code or 'no reason given'})", hint=hint, condition=code or None)
