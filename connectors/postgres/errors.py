"""Errors of PostgreSQL and its drivers, translated into ours by the table in ``sqlstates``.

Only the SQLSTATE and the names of columns and constraints are taken over. A server's message, DETAIL and CONTEXT hold
row values, so neither they nor the driver's exception are kept in the chain.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from typing import Any

import psycopg
from psycopg import pq

from cdf.errors import Fenced, RowRejected, SinkError, SinkUnavailable, TargetNotReady
from connectors.postgres.sqlstates import UNREACHED, UNSUPPORTED_DSN, UNTRUSTED, find_fault

__all__ = [
    "TASK_MARK",
    "StagingFailed",
    "clash_error",
    "error_of_state",
    "find_login_refusal",
    "refuse_swallowed",
    "sqlstate_of",
    "sqlstate_of_task",
    "translate",
]

TASK_MARK = "DELTARELAY_STAGING"
PROBE_SECONDS = 10.0

# A login that fails has no SQLSTATE in libpq, only words. These are its own (never translated) and an English server's.
_LOGIN_WORDS = {
    r"authentication failed|no password supplied|no pg_hba\.conf entry": "28000",
    r"role .* does not exist|not permitted to log in|no such user": "28000",
    r"database .* does not exist|no such database": "3D000",
    r"permission denied": "42501",
    r"too many (clients|connections)|remaining connection slots": "53300",
    r"unsupported startup parameter|unrecognized configuration parameter": UNSUPPORTED_DSN,
    r"failed: .*certificate|server does not support SSL|SSL error: .*(alert|version|protocol)": UNTRUSTED,
}
_FROM_SERVER = re.compile(r"failed: \S+:  ")
"""libpq puts two spaces between a server's severity and its message, in any language, and nowhere else."""
_NO_CONNECTION = re.compile(
    r'(?s)connection to server (?:at|on socket) "(?P<host>[^"]+)"(?: \([^)]*\))?(?:, port (?P<port>\d+))? failed: '
    r"(?P<reason>(?!\S+:  )[^\n]+)"  # a server's own message may quote names, in any language
)
_UNSUPPORTED_STATES = {"22023", "42704", "55000"}
"""Answers to a login: no such role or setting in ``options``, a database that accepts no connections."""
_TRACED = re.compile(rb'\tErrorResponse\t S "[^"]*" V "[^"]*" C "(\w{5})"')


class StagingFailed(Exception):
    """Replaces the driver's exception, which may quote row values, inside a task. Carries the SQLSTATE alone."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"{TASK_MARK} {sqlstate}")
        self.sqlstate = sqlstate

    def __reduce__(self) -> tuple[Any, ...]:
        return (StagingFailed, (self.sqlstate,))


# ── from the exception to the SQLSTATE ───────────────────────────────────────────────────────────────────────────────


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of a psycopg or ADBC exception, None for any other exception.

    A refused connection has no SQLSTATE: it is found by the words of the message, or is ``UNREACHED``.
    """
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state)
    connection = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))
    if not connection and getattr(getattr(error, "status_code", None), "name", "") != "IO":  # ADBC's status
        return None
    text = str(error)
    return next((state for words, state in _LOGIN_WORDS.items() if re.search(words, text)), UNREACHED)


def find_login_refusal(dsn: str, error: psycopg.Error) -> str | None:
    """The SQLSTATE with which the server refuses a login whose message is in an unknown language (lc_messages).

    libpq does not expose it, but writes it into its trace. So the login is tried once more, with a trace in memory.
    → None where the server did not refuse, where it does not refuse again, or on a system without such a trace
    """
    if sqlstate_of(error) != UNREACHED or not _FROM_SERVER.search(str(error)) or sys.platform != "linux":
        return None
    with os.fdopen(os.memfd_create("login"), "rb") as trace:  # it contains the login, so it must never be on a disk
        connection = pq.PGconn.connect_start(dsn.encode())
        try:
            connection.trace(trace.fileno())
            _poll_until_decided(connection)
            connection.untrace()
        except psycopg.Error:
            return None
        finally:
            connection.finish()
        trace.seek(0)
        found = _TRACED.search(trace.read())
    state = found.group(1).decode() if found else None
    return UNSUPPORTED_DSN if state in _UNSUPPORTED_STATES else state


def _poll_until_decided(connection: pq.abc.PGconn) -> None:
    deadline = time.monotonic() + PROBE_SECONDS
    while (status := connection.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        ready = select.poll()
        ready.register(connection.socket, select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT)
        if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return


def sqlstate_of_task(error: BaseException) -> str | None:
    """The SQLSTATE that a staging task reported, found in the failure of its Spark job."""
    found = re.search(TASK_MARK + r" (\w+)", str(error))
    return found.group(1) if found else None


# ── from the SQLSTATE to our errors ──────────────────────────────────────────────────────────────────────────────────


def translate(error: BaseException, doing: str, *, where: str = "the database") -> SinkError | Fenced:
    """``error`` as a SinkError about ``doing`` ("copying into staging")."""
    state = sqlstate_of(error)
    if state == UNREACHED and (found := _NO_CONNECTION.search(str(error))) is not None:
        host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
        at = f"{host}:{found['port']}" if found["port"] else host
        reason = found["reason"].strip()
        return SinkUnavailable(
            f"cannot connect to PostgreSQL at {at} for {doing}: {reason[:1].lower()}{reason[1:]}",
            hint="no partial data was written: run again when the database can be reached",
            condition=state,
        )
    return error_of_state(state, doing, where=where, diagnostics=getattr(error, "diag", None))


def error_of_state(
    state: str | None, doing: str, *, where: str = "the database", diagnostics: Any = None
) -> SinkError | Fenced:
    named = _names_of(diagnostics)
    if state is None:
        return SinkError(f"{doing} failed{named}", hint="run with --debug to see the stack trace")
    fault = find_fault(state)
    message = fault.message.format(doing=doing, where=where, named=named, name=_condition_name(state), state=state)
    return fault.kind(message, hint=fault.hint, condition=state)


def _condition_name(state: str) -> str:
    try:
        return psycopg.errors.lookup(state).__name__
    except KeyError:
        return state


def _names_of(diagnostics: Any) -> str:
    parts = [
        f"{label} {value!r}"
        for label in ("table", "column", "constraint")
        if (value := getattr(diagnostics, f"{label}_name", None))
    ]
    return f" ({', '.join(parts)})" if parts else ""


# ── errors that several steps raise ──────────────────────────────────────────────────────────────────────────────────


def refuse_swallowed(target: object, kind: str, *, wanted: int, touched: int) -> None:
    """Raise if a statement touched other rows than it should. A BEFORE trigger may return null for a row, and a rule may
    replace the statement: PostgreSQL reports neither as an error."""
    if touched != wanted:
        raise TargetNotReady(
            f"{target} accepted {touched} of {wanted} {kind}s: a trigger or a rule of the table suppresses the others",
            hint="nothing was changed: drop or alter that trigger (pg_trigger) or rule (pg_rules), and run again",
            wanted=wanted,
            touched=touched,
        )


def clash_error(target: object, error: psycopg.Error, reached: str) -> RowRejected:
    """Two rows clash, and the old rows cannot be removed first because ``reached`` would lose rows with them."""
    return RowRejected(
        f"two rows of {target} conflict (constraint {error.diag.constraint_name!r}), "
        f"and removing the old rows first would change {reached}",
        hint="if rows only swap values: make the constraint DEFERRABLE, or drop that ON DELETE action",
        condition=error.sqlstate,
    )
