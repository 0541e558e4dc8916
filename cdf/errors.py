"""The errors that this package raises.

    CdfError
    ├── ConfigError                 the request is wrong: an option, a bound, a file
    ├── SourceError                 the Delta table cannot be read as requested
    │   ├── SourceUnavailable       its storage is unreachable or throttled    (temporary)
    │   ├── TableNotFound           there is no Delta table
    │   ├── FeatureNotSupported     the table uses a Delta feature that this reader does not know
    │   ├── TableReplaced           another table id than the one the position belongs to
    │   ├── FeedNotEnabled          the change feed is off, or was off for some versions
    │   ├── VersionsExpired         commits or feed files that are needed are gone
    │   ├── VersionNotFound         a bound that the table does not have (yet)
    │   ├── SchemaDrift             a schema change that cannot be followed
    │   └── KeyViolation            null keys, or one key inserted twice in one version
    ├── SinkError                   the target refuses the data
    │   ├── SinkUnavailable         unreachable, restarting or too busy        (temporary)
    │   ├── TargetNotReady          missing rights, another writer's rows, wrong columns
    │   ├── TypeNotSupported        a column type that the target cannot store exactly
    │   ├── RowRejected             a value that the target cannot store exactly
    │   └── ConflictFound           rows contradict the target and `conflicts: refuse` is set
    ├── PositionError               the position and the window do not fit
    │   ├── WindowOutOfOrder        the window does not start at position + 1
    │   ├── Fenced                  another runner has taken over                         (temporary)
    │   └── LeaseHeld               another runner holds the lease                       (temporary)
    ├── BrakeStopped                a brake of the pipeline stopped the window
    ├── Paused                      a user paused the pipeline
    ├── Interrupted                 a signal or a caller ended the run; the position is intact  (temporary)
    └── VerificationError           a comparison that is not possible

Every class has a stable ``code``. An error may have a ``hint`` (the setting or command that helps), the Delta or SQL
``condition`` that caused it, and ``fields`` for programs. Errors can be pickled, because they pass from executors to the
driver. They never contain row values or key values.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

__all__ = [
    "CdfError",
    "ConfigError",
    "SourceError",
    "SourceUnavailable",
    "TableNotFound",
    "FeatureNotSupported",
    "TableReplaced",
    "FeedNotEnabled",
    "VersionsExpired",
    "VersionNotFound",
    "SchemaDrift",
    "KeyViolation",
    "SinkError",
    "SinkUnavailable",
    "TargetNotReady",
    "TypeNotSupported",
    "RowRejected",
    "ConflictFound",
    "PositionError",
    "WindowOutOfOrder",
    "Fenced",
    "LeaseHeld",
    "BrakeStopped",
    "Paused",
    "Interrupted",
    "VerificationError",
    "condition_of",
]


class CdfError(Exception):
    """The base class. ``str(error)`` is only the message; hint and condition are separate attributes."""

    code: ClassVar[str] = "failed"
    transient: ClassVar[bool] = False
    """True if a later retry can succeed without any change to configuration, source or target."""

    def __init__(self, message: str, *, hint: str | None = None, condition: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.condition = condition
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.condition, self.fields))

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "condition": self.condition,
            "transient": self.transient,
            **({"fields": self.fields} if self.fields else {}),
        }


def _rebuild(
    kind: type[CdfError], message: str, hint: str | None, condition: str | None, fields: dict[str, Any]
) -> CdfError:
    return kind(message, hint=hint, condition=condition, **fields)


class ConfigError(CdfError):
    code = "config"


class SourceError(CdfError):
    code = "source"


class SourceUnavailable(SourceError):
    code = "source_unavailable"
    transient = True


class TableNotFound(SourceError):
    code = "table_not_found"


class FeatureNotSupported(SourceError):
    code = "feature_not_supported"


class TableReplaced(SourceError):
    code = "table_replaced"


class FeedNotEnabled(SourceError):
    code = "feed_not_enabled"


class VersionsExpired(SourceError):
    code = "versions_expired"


class VersionNotFound(SourceError):
    code = "version_not_found"


class SchemaDrift(SourceError):
    code = "schema_drift"


class KeyViolation(SourceError):
    code = "key_violation"


class SinkError(CdfError):
    code = "sink"


class SinkUnavailable(SinkError):
    code = "sink_unavailable"
    transient = True


class TargetNotReady(SinkError):
    code = "target_not_ready"


class TypeNotSupported(SinkError):
    code = "type_not_supported"


class RowRejected(SinkError):
    code = "row_rejected"


class ConflictFound(SinkError):
    code = "conflict_found"


class PositionError(CdfError):
    code = "position"


class WindowOutOfOrder(PositionError):
    code = "window_out_of_order"


class Fenced(PositionError):
    code = "fenced"
    transient = True


class LeaseHeld(PositionError):
    code = "lease_held"
    transient = True


class BrakeStopped(CdfError):
    code = "brake_stopped"


class Paused(CdfError):
    code = "paused"


class Interrupted(CdfError):
    code = "interrupted"
    transient = True


class VerificationError(CdfError):
    code = "cannot_verify"


_IN_BRACKETS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
# These wrap the relevant condition, which is in the text.
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"}


def condition_of(error: BaseException) -> str | None:
    """The Delta or Spark error condition behind an exception, or None.

    PySpark maps only some of Delta's exceptions: for the others it raises a ``Py4JJavaError``, whose Java exception has the
    condition. A failed stream has it in its text only.
    """
    get_condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    found: str | None = None
    if callable(get_condition):
        found = get_condition()
    elif (java := getattr(error, "java_exception", None)) is not None:
        cause = java
        while cause is not None and found is None:
            if hasattr(cause, "getErrorClass"):
                try:
                    found = cause.getErrorClass()
                except Exception:  # py4j has every attribute: only the call shows whether the method exists
                    found = None
            cause = cause.getCause()
    if found is None or found in _WRAPPERS:
        inner = [name for name in _IN_BRACKETS.findall(str(error)) if name not in _WRAPPERS]
        found = inner[0] if inner else found
    return found
