"""What an error of boto3 means, decided from its code, its class and its status, without a server."""

from __future__ import annotations

import builtins
import itertools

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError

from audit.aws_errors import NAMES, Kind, call_unless, classify, error_code, replace_aws_errors

OF_EXCEPTIONS: tuple[Kind, ...] = (
    "no_credentials",
    "login_expired",
    "untrusted",
    "unreachable",
    "no_answer",
    "client",
)


def response(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "text of AWS"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (response("ExpiredTokenException"), "expired"),
        (response("AccessDenied", 403), "forbidden"),
        (response("403", 403), "forbidden"),
        (response("404", 404), "missing"),
        (response("NoSuchBucket", 404), "no_bucket"),
        (response("412", 412), "precondition_failed"),
        (response("501", 501), "unsupported"),
        (response("500", 500), "busy"),
        (response("UnheardOf", 503), "busy"),
        (response("UnheardOf"), "refused"),
        (response(""), "refused"),
        (ClientError({}, "GetObject"), "refused"),
        (exceptions.NoCredentialsError(), "no_credentials"),
        (exceptions.SSLError(endpoint_url="", error=""), "untrusted"),
        (exceptions.EndpointConnectionError(endpoint_url=""), "unreachable"),
        (exceptions.ConnectTimeoutError(endpoint_url=""), "no_answer"),
        (exceptions.ReadTimeoutError(endpoint_url=""), "no_answer"),
        (exceptions.ConnectionClosedError(endpoint_url=""), "no_answer"),
        (exceptions.ProxyConnectionError(proxy_url=""), "no_answer"),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), "no_answer"),
        (TimeoutError(), "no_answer"),
        (exceptions.NoRegionError(), "client"),
    ],
    ids=repr,
)
def test_the_code_counts_then_the_class_then_the_status(error: Exception, kind: Kind) -> None:
    assert classify(error) == kind


def test_no_name_has_two_meanings() -> None:
    assert [(a, b) for (a, one), (b, other) in itertools.combinations(NAMES.items(), 2) if one & other] == []


@pytest.mark.parametrize("kind", OF_EXCEPTIONS)
def test_every_class_in_the_table_exists(kind: Kind) -> None:
    assert [one for one in NAMES[kind] if not hasattr(exceptions, one) and not hasattr(builtins, one)] == []


def test_one_kind_of_refusal_is_an_answer() -> None:
    def refuse(code: str) -> None:
        raise response(code)

    assert call_unless("missing", dict, found=1) == {"found": 1}
    assert call_unless("missing", refuse, code="NoSuchKey") is None
    with pytest.raises(ClientError, match="NoSuchBucket"):
        call_unless("missing", refuse, code="NoSuchBucket")
    with pytest.raises(TypeError):
        call_unless("missing", refuse)


@pytest.mark.parametrize("error", [response("SlowDown"), exceptions.NoRegionError(), TimeoutError()], ids=repr)
def test_what_is_raised_instead_shows_nothing_of_aws(error: Exception) -> None:
    with pytest.raises(OSError, match=r"^ours$") as raised, replace_aws_errors(lambda _: OSError("ours")):
        raise error
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), replace_aws_errors(lambda _: OSError("ours")):
        raise KeyError
    assert error_code(KeyError()) == ""
