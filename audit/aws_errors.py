"""What an error of boto3 means: the one table of AWS' error codes and botocore's exceptions.

AWS' own text is left out of every message: it contains accounts, users, key ids and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from audit.errors import raise_without_context

__all__ = ["NAMES", "Kind", "call_unless", "classify", "error_code", "replace_aws_errors"]

Kind = Literal[
    "expired", "not_accepted", "skewed", "forbidden", "busy", "missing", "no_bucket", "precondition_failed", "unsupported",
    "no_credentials", "login_expired", "untrusted", "unreachable", "no_answer", "client", "refused",
]  # fmt: skip
_TABLE: Mapping[Kind, str] = {
    # Codes of responses. A response without a body has its status as its code
    "expired": "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired",
    "not_accepted": "InvalidAccessKeyId UnrecognizedClientException InvalidClientTokenId SignatureDoesNotMatch",
    "skewed": "RequestTimeTooSkewed InvalidSignatureException",
    "forbidden": "AccessDenied AccessDeniedException AllAccessDisabled Forbidden 403",
    "busy": "SlowDown ServiceUnavailable RequestTimeout RequestLimitExceeded OperationAborted InternalError "
    "InternalServerError ThrottlingException ProvisionedThroughputExceededException KMSInternalException "
    "DependencyTimeoutException KeyUnavailableException",
    "missing": "NoSuchKey NoSuchVersion NotFound 404",
    "no_bucket": "NoSuchBucket",
    "precondition_failed": "PreconditionFailed ConditionalRequestConflict ConditionalCheckFailedException 412 409",
    "unsupported": "NotImplemented MethodNotAllowed UnknownOperationException 501",
    # Classes of exceptions without a response, by name because botocore is imported late
    "no_credentials": "NoCredentialsError PartialCredentialsError CredentialRetrievalError",
    "login_expired": "TokenRetrievalError SSOTokenLoadError UnauthorizedSSOTokenError",
    "untrusted": "SSLError",
    "unreachable": "EndpointConnectionError",
    "no_answer": "ConnectionError HTTPClientError IncompleteReadError FlexibleChecksumError TimeoutError",
    "client": "BotoCoreError",
}
NAMES = {kind: frozenset(names.split()) for kind, names in _TABLE.items()}
_KINDS = {name: kind for kind, names in NAMES.items() for name in names}


def error_code(error: BaseException) -> str:
    """AWS' name of the error; empty where the error is not a response of AWS."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def classify(error: BaseException) -> Kind:
    """By the code of the response, else by the most specific class in the table, else by the status."""
    names = (error_code(error), *(one.__name__ for one in type(error).__mro__))
    if (kind := next((_KINDS[name] for name in names if name in _KINDS), None)) is not None:
        return kind
    return "busy" if _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500 else "refused"


def _response(error: BaseException) -> Mapping[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def call_unless(kind: Kind, call: Callable[..., Any], **arguments: Any) -> Any:
    """The response; None where AWS' error is of this kind. Raises all other errors."""
    try:
        return call(**arguments)
    except Exception as error:
        if classify(error) != kind:
            raise
        return None


@contextmanager
def replace_aws_errors(describe: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise errors of boto3 as what ``describe`` returns for them, without the original as context."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
        return
    except (BotoCoreError, ClientError, TimeoutError) as error:
        failure = describe(error)
    raise_without_context(failure)
