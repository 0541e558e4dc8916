"""Errors cross process borders unharmed, carry a code that is theirs alone, and find Delta's condition behind a failure."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from cdf import errors
from cdf.errors import CdfError, condition_of


def all_kinds(root: type[CdfError] = CdfError) -> Iterator[type[CdfError]]:
    yield root
    for kind in root.__subclasses__():
        yield from all_kinds(kind)


KINDS = [kind for kind in all_kinds() if kind.__module__ == "cdf.errors"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_everything_it_carries(kind: type[CdfError]) -> None:
    error = kind("it failed", hint="do this", condition="DELTA_X.Y", table="t", versions=[3, 4], reason=None)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == copy.message == "it failed"
    assert (copy.hint, copy.condition) == ("do this", "DELTA_X.Y")
    assert copy.fields == {"table": "t", "versions": [3, 4], "reason": None}


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(KINDS) == 26
    assert len(set(codes)) == len(codes)
    inherited = [kind.__name__ for kind in KINDS if "code" not in vars(kind)]
    assert inherited == []


def test_every_class_is_public() -> None:
    assert {kind.__name__ for kind in KINDS} <= set(errors.__all__)


def test_the_codes_are_stable() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == {
        "CdfError": "failed",
        "ConfigError": "config",
        "SourceError": "source",
        "SourceUnavailable": "source_unavailable",
        "TableNotFound": "table_not_found",
        "FeatureNotSupported": "feature_not_supported",
        "TableReplaced": "table_replaced",
        "FeedNotEnabled": "feed_not_enabled",
        "VersionsExpired": "versions_expired",
        "VersionNotFound": "version_not_found",
        "SchemaDrift": "schema_drift",
        "KeyViolation": "key_violation",
        "SinkError": "sink",
        "SinkUnavailable": "sink_unavailable",
        "TargetNotReady": "target_not_ready",
        "TypeNotSupported": "type_not_supported",
        "RowRejected": "row_rejected",
        "ConflictFound": "conflict_found",
        "PositionError": "position",
        "WindowOutOfOrder": "window_out_of_order",
        "Fenced": "fenced",
        "LeaseHeld": "lease_held",
        "BrakeStopped": "brake_stopped",
        "Paused": "paused",
        "Interrupted": "interrupted",
        "VerificationError": "cannot_verify",
    }


def test_only_what_passes_by_itself_is_temporary() -> None:
    assert {kind.__name__ for kind in KINDS if kind.transient} == {
        "SourceUnavailable",
        "SinkUnavailable",
        "Fenced",
        "LeaseHeld",
        "Interrupted",
    }


def test_an_error_as_data() -> None:
    error = errors.VersionsExpired("gone", hint="start later", condition="DELTA_X", versions=[7])
    assert error.to_dict() == {
        "code": "versions_expired",
        "message": "gone",
        "hint": "start later",
        "condition": "DELTA_X",
        "transient": False,
        "fields": {"versions": [7]},
    }
    assert errors.LeaseHeld("busy").to_dict() == {
        "code": "lease_held",
        "message": "busy",
        "hint": None,
        "condition": None,
        "transient": True,
    }


# ── the condition behind a failure ───────────────────────────────────────────────────────────────────────────────────


class Mapped(Exception):
    """As PySpark hands over the exceptions that it knows."""

    def __init__(self, text: str, condition: str | None) -> None:
        super().__init__(text)
        self._condition = condition

    def getCondition(self) -> str | None:  # noqa: N802
        return self._condition


class Throwable:
    """The Java side of a Py4JJavaError: py4j claims that every method exists, and the call tells."""

    def __init__(self, condition: str | None, cause: Throwable | None = None, *, known: bool = True) -> None:
        self._condition, self._cause, self._known = condition, cause, known

    def getErrorClass(self) -> str | None:  # noqa: N802
        if not self._known:
            raise TypeError("method getErrorClass does not exist")
        return self._condition

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self._cause


class Unmapped(Exception):
    def __init__(self, text: str, java: Throwable) -> None:
        super().__init__(text)
        self.java_exception = java


def test_the_condition_that_pyspark_knows() -> None:
    assert condition_of(Mapped("[OTHER_NAME] text", "DELTA_TABLE_NOT_FOUND")) == "DELTA_TABLE_NOT_FOUND"


def test_the_condition_that_only_java_knows() -> None:
    assert condition_of(Unmapped("failed", Throwable("DELTA_LOG_FILE_NOT_FOUND"))) == "DELTA_LOG_FILE_NOT_FOUND"


def test_the_condition_of_a_cause() -> None:
    deep = Throwable(None, Throwable("ignored", Throwable("FAILED_READ_FILE.FILE_NOT_EXIST"), known=False))
    assert condition_of(Unmapped("failed", deep)) == "FAILED_READ_FILE.FILE_NOT_EXIST"


def test_a_wrapper_gives_way_to_what_it_wraps() -> None:
    text = (
        "[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] in batch: [DELTA_MISSING_CHANGE_DATA] x"
    )
    assert condition_of(Mapped(text, "STREAM_FAILED")) == "DELTA_MISSING_CHANGE_DATA"


def test_a_wrapper_around_nothing_known_stays() -> None:
    assert condition_of(Mapped("[STREAM_FAILED] terminated", "STREAM_FAILED")) == "STREAM_FAILED"


def test_the_condition_in_the_text_when_nothing_else_tells_it() -> None:
    error = Unmapped("java: [DELTA_TABLE_NOT_FOUND.SUB_CLASS] no table", Throwable(None))
    assert condition_of(error) == "DELTA_TABLE_NOT_FOUND.SUB_CLASS"
    assert condition_of(RuntimeError("[PATH_NOT_FOUND] no such path")) == "PATH_NOT_FOUND"


def test_no_condition_at_all() -> None:
    assert condition_of(RuntimeError("list index [0] out of range [A]")) is None
