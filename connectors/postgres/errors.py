"""One table: what PostgreSQL and its drivers report, in our words.

Only the SQLSTATE and the names of columns and constraints are taken over. A server's message, DETAIL and CONTEXT hold
row values, so neither they nor the driver's exception are kept in the chain.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from typing import Any, NamedTuple, NoReturn

import psycopg
from psycopg import pq

from cdf.errors import Fenced, RowRejected, SinkError, SinkUnavailable, TargetNotReady

__all__ = [
    "translate",
    "of_state",
    "of_refusal",
    "from_task",
    "StagingFailed",
    "sqlstate_of",
    "raise_alone",
    "refuse_swallowed",
    "UNREACHED",
    "UNFAITHFUL",
    "TASK_MARK",
]

UNREACHED = "08000"
"""No connection, and no word from the server why."""
UNTRUSTED, UNTAKEN = "TLS", "DSN"
"""No SQLSTATEs: libpq itself refuses the server; the server or a pooler before it refuses a part of the dsn."""
UNFAITHFUL = {"22008", "22021", "22P05", "22P02", "2202E"}
"""Invalid byte sequence, untranslatable character, invalid JSON text: a value without a faithful image."""
TASK_MARK = "DELTARELAY_STAGING"
PROBE_SECONDS = 10.0


class Fault(NamedTuple):
    states: str
    """SQLSTATEs, or beginnings of them; the longest one that fits counts."""
    kind: type[SinkError]
    says: str
    hint: str


# {doing}: "copying rows". {where}: "the database". {named}: the table, column and constraint. {name}: the SQLSTATE's.
FAULTS = (
    # ── for now: nothing has to be changed, and a later try may succeed (exit 75)
    Fault("08 53 57 40 55", SinkUnavailable, "{where} is not available for {doing} ({name})",
          "nothing is half written: run again when the database can be reached"),
    Fault("53100", SinkUnavailable, "{where} has no disk space left for {doing}",
          "nothing is half written: make room on the server, then run again"),
    Fault("53300", SinkUnavailable, "{where} has no free connection for {doing}",
          "raise max_connections or the role's CONNECTION LIMIT, or put a pooler before it; then run again"),
    Fault("53400", SinkUnavailable, "{doing} met a limit that is set for this role or server ({name})",
          "raise temp_file_limit for this role, or make windows smaller (window.max_bytes)"),
    Fault("55P03", SinkUnavailable, "{doing} waited too long for a lock that somebody else holds{named}",
          "nothing was changed: pg_stat_activity and pg_blocking_pids() tell who holds it; run again when it is free"),
    Fault("57014", SinkUnavailable, "{doing} was cancelled by the server{named}",
          "raise statement_timeout for this role, or make windows smaller (window.max_bytes)"),
    Fault("25006", SinkUnavailable, "{where} is read-only at present: a standby, or default_transaction_read_only",
          "name the primary in the dsn (several hosts with target_session_attrs=read-write find it), then run again"),
    Fault("25P03 25P04", SinkUnavailable, "{where} ended the transaction of {doing}: this runner had stood still",
          "nothing is half written: run again"),
    # ── the login: somebody has to correct the dsn, the role or the server
    Fault("28", TargetNotReady, "{where} refused the login",
          "check user, password and role in the connection's dsn, and pg_hba.conf on the server"),
    Fault("3D000", TargetNotReady, "the database named in the dsn does not exist", "create it, or correct the dsn"),
    Fault("57P04", TargetNotReady, "the database was dropped", "create it again, or correct the dsn"),
    Fault(UNTAKEN, TargetNotReady, "{where} does not take what the dsn asks for",
          "look at `options` in the dsn: a role or setting that is not there, or one that a pooler does not pass on"),
    Fault(UNTRUSTED, TargetNotReady, "{where} cannot be reached as the dsn's TLS parameters demand",
          "sslrootcert has to name the authority that signed the server's certificate, and host has to be its name; "
          "sslmode=require and above need a server with TLS"),
    Fault("42501", TargetNotReady, "the role lacks a right needed for {doing}{named}",
          "grant CREATE on the target's schema and on the database (for schema deltarelay), "
          "or let the owner create them once"),
    # ── the target: somebody has to mend it
    Fault("42P01 42703 42P10 42804 3F000", TargetNotReady,  # table, column, unique index, type, schema
          "{doing}: the target is no longer what it was when the run began ({name})",
          "`deltarelay plan` names what is missing: restore it, or make the target anew with `run --reload`"),
    Fault("2BP01 0A000", TargetNotReady,
          "{doing}: something depends on the target, such as a view on one of its columns, and forbids it{named}",
          "drop what depends on it, run again, and create it anew; pg_depend lists it"),
    Fault("42P07 42701 42710", TargetNotReady, "{doing}: somebody else has created what was to be created ({name})",
          "look at the target with `deltarelay plan`, then run again"),
    Fault("428C9", TargetNotReady, "{doing}: a column of the target is generated and takes no values{named}",
          "make it a plain column: its values come from the source"),
    Fault("55000", TargetNotReady, "{doing}: the target does not allow it as it stands{named}",
          "a published table needs a replica identity: `alter table ... replica identity full`, or a primary key"),
    Fault("54011", TargetNotReady, "{doing}: the target has as many columns as PostgreSQL allows (dropped ones count)",
          "make it anew with `run --reload`"),
    # ── a row: somebody has to correct it, or the rule that it breaks
    Fault("22 23 44 P0", RowRejected, "{doing}: the target refuses a row{named}",
          "compare the target's constraints with the source's rows; rejects: dead_letter sets such rows aside"),
    Fault("23503 23001", RowRejected, "{doing}: a foreign key of or to the target refuses a row{named}",
          "bring the table at its other end up to date first; make the constraint DEFERRABLE where it refers to its own "
          "table; or drop it: the source has seen to it already"),
    Fault(" ".join(sorted(UNFAITHFUL)), RowRejected, "{doing}: a value has no faithful image in PostgreSQL{named}",
          "text must be valid UTF-8 without NUL: correct the value at the source"),
    Fault("54000", RowRejected,
          "{doing}: a value is larger than PostgreSQL allows there{named} (an index entry holds 2,704 bytes)",
          "choose a shorter key"),
    # ── ours, or the server's own: whatever is not named above
    Fault("58 XX001 XX002", SinkError, "{doing} failed in the server itself ({name})",
          "nothing is half written: the server's log tells what is wrong with its files"),
    Fault("", SinkError, "{doing} failed with SQLSTATE {state} ({name}){named}", "run with --debug for the trace"),
)  # fmt: skip

_BY_BEGINNING = {beginning: fault for fault in FAULTS for beginning in fault.states.split() or [""]}

# A login that fails has no SQLSTATE in libpq, only words. These are its own (never translated) and an English server's.
_WORDS = {
    r"authentication failed|no password supplied|no pg_hba\.conf entry": "28000",
    r"role .* does not exist|not permitted to log in|no such user": "28000",
    r"database .* does not exist|no such database": "3D000",
    r"permission denied": "42501",
    r"too many (clients|connections)|remaining connection slots": "53300",
    r"unsupported startup parameter|unrecognized configuration parameter": UNTAKEN,
    r"failed: .*certificate|server does not support SSL|SSL error: .*(alert|version|protocol)": UNTRUSTED,
}
_SAID_BY_SERVER = re.compile(r"failed: \S+:  ")
"""libpq puts two spaces between a server's severity and its message, in any language, and nowhere else."""
_NO_CONNECTION = re.compile(
    r'(?s)connection to server (?:at|on socket) "(?P<host>[^"]+)"(?: \([^)]*\))?(?:, port (?P<port>\d+))? failed: '
    r"(?P<reason>(?!\S+:  )[^\n]+)"  # what a server says may quote names, in any language
)
_UNTAKEN_STATES = {"22023", "42704", "55000"}
"""Said to a login: no such role or setting in ``options``, a database that takes no connections."""
_TRACED = re.compile(rb'\tErrorResponse\t S "[^"]*" V "[^"]*" C "(\w{5})"')


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


# ── from the exception to the SQLSTATE ───────────────────────────────────────────────────────────────────────────────


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of a psycopg or ADBC exception.

    A connection that was refused has none: there words are looked for, and where none is known it is ``UNREACHED``.
    """
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state)
    connection = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))
    if not connection and getattr(getattr(error, "status_code", None), "name", "") != "IO":  # ADBC's status
        return None
    text = str(error)
    return next((state for words, state in _WORDS.items() if re.search(words, text)), UNREACHED)


def of_refusal(dsn: str, error: psycopg.Error) -> str | None:
    """The SQLSTATE with which the server refuses a login, where its words are not known: they follow its lc_messages.

    libpq does not hand it out, but writes it into its trace. So the login is tried once more, with a trace in memory.
    → None where it was not the server that refused, where it does not do so again, or on a system without such a trace
    """
    if sqlstate_of(error) != UNREACHED or not _SAID_BY_SERVER.search(str(error)) or sys.platform != "linux":
        return None
    with os.fdopen(os.memfd_create("login"), "rb") as trace:  # it holds what the login holds: never on a disk
        connection = pq.PGconn.connect_start(dsn.encode())
        try:
            connection.trace(trace.fileno())
            _until_decided(connection)
            connection.untrace()
        except psycopg.Error:
            return None
        finally:
            connection.finish()
        trace.seek(0)
        found = _TRACED.search(trace.read())
    state = found.group(1).decode() if found else None
    return UNTAKEN if state in _UNTAKEN_STATES else state


def _until_decided(connection: pq.abc.PGconn) -> None:
    deadline = time.monotonic() + PROBE_SECONDS
    while (status := connection.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        ready = select.poll()
        ready.register(connection.socket, select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT)
        if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return


def from_task(error: BaseException) -> str | None:
    """The SQLSTATE that a staging task reported, found in the failure of its Spark job."""
    found = re.search(TASK_MARK + r" (\w+)", str(error))
    return found.group(1) if found else None


# ── from the SQLSTATE to our words ───────────────────────────────────────────────────────────────────────────────────


def translate(error: BaseException, doing: str, *, where: str = "the database") -> SinkError | Fenced:
    """``error`` as a SinkError about ``doing`` ("copying into staging")."""
    state = sqlstate_of(error)
    if state == UNREACHED and (found := _NO_CONNECTION.search(str(error))) is not None:
        host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
        at = f"{host}:{found['port']}" if found["port"] else host
        reason = found["reason"].strip()
        return SinkUnavailable(
            f"cannot connect to PostgreSQL at {at} for {doing}: {reason[:1].lower()}{reason[1:]}",
            hint="nothing is half written: run again when the database can be reached",
            condition=state,
        )
    return of_state(state, doing, where=where, diagnostics=getattr(error, "diag", None))


def of_state(
    state: str | None, doing: str, *, where: str = "the database", diagnostics: Any = None
) -> SinkError | Fenced:
    named = _named(diagnostics)
    if state is None:
        return SinkError(f"{doing} failed{named}", hint="run with --debug for the trace")
    fault = next(_BY_BEGINNING[state[:n]] for n in range(len(state), -1, -1) if state[:n] in _BY_BEGINNING)
    says = fault.says.format(doing=doing, where=where, named=named, name=_name(state), state=state)
    return fault.kind(says, hint=fault.hint, condition=state)


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


def refuse_swallowed(target: object, kind: str, *, wanted: int, touched: int) -> None:
    """A BEFORE trigger may return null for a row, and a rule may do something else instead: neither is an error."""
    if touched != wanted:
        raise TargetNotReady(
            f"{target} took {touched} of {wanted} {kind}s: a trigger or a rule of the table suppresses the others",
            hint="nothing was changed: drop or alter that trigger (pg_trigger) or rule (pg_rules), and run again",
            wanted=wanted,
            touched=touched,
        )
