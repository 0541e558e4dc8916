"""One table: what PostgreSQL and its drivers report, in our words.

Only the SQLSTATE and the names of columns and constraints are taken over. A server's message, DETAIL and CONTEXT hold
row values, so neither they nor the driver's exception are kept in the chain.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import psycopg

from cdf.errors import Fenced, RowRejected, SinkError, SinkUnavailable, TargetNotReady

__all__ = [
    "translate",
    "of_state",
    "from_task",
    "StagingFailed",
    "sqlstate_of",
    "raise_alone",
    "UNFAITHFUL",
    "TASK_MARK",
]

UNFAITHFUL = {"22021", "22P05", "22P02", "2202E"}
"""Invalid byte sequence, untranslatable character, invalid JSON text: a value without a faithful image."""

_CHANGED = {"42P01", "42703", "42P10", "42804", "3F000"}
"""Table, column, unique index or schema gone, or a column of another type."""
_REFUSED = {
    r"authentication failed|no password supplied|no pg_hba\.conf entry": "28000",
    r"role .* does not exist|not permitted to log in": "28000",
    r"database .* does not exist": "3D000",
    r"permission denied for database": "42501",
}
_TRANSIENT_CLASSES = {"08", "53", "57", "40", "55"}
_TRANSIENT = {"25006", "25P03", "25P04"}
"""A standby that was promoted or not yet; a transaction that was ended because its runner had been paused in it."""
TASK_MARK = "DELTARELAY_STAGING"


class StagingFailed(Exception):
    """Stands for the driver's exception, which may quote row values, inside a task. Carries the SQLSTATE alone."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"{TASK_MARK} {sqlstate}")
        self.sqlstate = sqlstate

    def __reduce__(self) -> tuple[Any, ...]:
        return (StagingFailed, (self.sqlstate,))


def raise_alone(failure: Exception) -> NoReturn:
    """Raise without what is being handled in the chain: ``from None`` only hides a driver's exception from printing."""
    try:
        raise failure from None
    finally:
        failure.__context__ = None


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of a psycopg or ADBC exception.

    A refused connection has none, for libpq does not hand it out: there the server's (English) words tell a wrong login
    or database, and everything else is ``08000``.
    """
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state)
    connection = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))
    if not connection and getattr(getattr(error, "status_code", None), "name", "") != "IO":  # ADBC's status
        return None
    text = str(error)
    return next((state for pattern, state in _REFUSED.items() if re.search(pattern, text)), "08000")


def from_task(error: BaseException) -> str | None:
    """The SQLSTATE that a staging task reported, found in the failure of its Spark job."""
    found = re.search(TASK_MARK + r" (\w+)", str(error))
    return found.group(1) if found else None


def translate(error: BaseException, doing: str, *, where: str = "the database") -> SinkError | Fenced:
    """``error`` as a SinkError about ``doing`` ("copying into staging")."""
    return of_state(sqlstate_of(error), doing, where=where, diagnostics=getattr(error, "diag", None))


def of_state(
    state: str | None, doing: str, *, where: str = "the database", diagnostics: Any = None
) -> SinkError | Fenced:
    named = _named(diagnostics)
    if state is None:
        return SinkError(f"{doing} failed{named}", hint="run with --debug for the trace")
    if state.startswith("28"):
        return TargetNotReady(
            f"{where} refused the login", hint="check user and password in the connection's dsn", condition=state
        )
    if state == "3D000":
        return TargetNotReady(
            "the database named in the dsn does not exist", hint="create it, or correct the dsn", condition=state
        )
    if state == "42501":
        return TargetNotReady(
            f"the role lacks a right needed for {doing}{named}",
            hint="grant CREATE on the target's schema and on the database (for schema deltarelay), "
            "or let the owner create them once",
            condition=state,
        )
    if state in UNFAITHFUL:
        return RowRejected(
            f"{doing}: a value has no faithful image in PostgreSQL{named}",
            hint="text must be valid UTF-8 without NUL: correct the value at the source",
            condition=state,
        )
    if state == "54000":
        return RowRejected(
            f"{doing}: a value is larger than PostgreSQL allows there{named} (an index entry holds 2,704 bytes)",
            hint="choose a shorter key",
            condition=state,
        )
    if state in _CHANGED:
        return TargetNotReady(
            f"{doing}: the target is no longer what it was when the run began ({_name(state)})",
            hint="`deltarelay plan` names what is missing: restore it, or make the target anew with `run --reload`",
            condition=state,
        )
    if state[:2] in {"22", "23"}:
        return RowRejected(
            f"{doing}: the target refuses a row{named}",
            hint="compare the target's constraints with the source's rows",
            condition=state,
        )
    if state == "57014":
        return SinkUnavailable(
            f"{doing} was cancelled by the server{named}",
            hint="raise statement_timeout for this role, or make windows smaller (window.max_bytes)",
            condition=state,
        )
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT:
        return SinkUnavailable(
            f"{where} is not available for {doing} ({_name(state)})",
            hint="nothing is half written: run again when the database can be reached",
            condition=state,
        )
    return SinkError(f"{doing} failed with SQLSTATE {state} ({_name(state)}){named}", condition=state)


def _name(state: str) -> str:
    try:
        return psycopg.errors.lookup(state).__name__
    except KeyError:
        return state


def _named(diagnostics: Any) -> str:
    parts = [
        f"{label} {value!r}"
        for label in ("table", "column", "constraint")
        if (value := getattr(diagnostics, f"{label}_name", None))
    ]
    return f" ({', '.join(parts)})" if parts else ""
