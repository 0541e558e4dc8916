"""The one table of SQLSTATEs: what each means for the sink, its users and its dead letters."""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from cdf.errors import RowRejected, SinkError, SinkUnavailable, TargetNotReady

__all__ = [
    "CLASHES",
    "COMMIT_UNKNOWN",
    "CONNECTION_LOST",
    "DEAD_LETTER_REASONS",
    "FAULTS",
    "FOREIGN_KEY",
    "UNFAITHFUL",
    "UNREACHED",
    "UNSUPPORTED_DSN",
    "UNTRUSTED",
    "Fault",
    "find_fault",
    "is_row_at_fault",
]

UNREACHED = "08000"
"""No connection, and no reason from the server."""
UNTRUSTED, UNSUPPORTED_DSN = "TLS", "DSN"
"""Not SQLSTATEs: libpq itself refuses the server; the server or a pooler before it refuses a part of the dsn."""
UNFAITHFUL = {"22008", "22021", "22P05", "22P02", "2202E"}
"""Invalid byte sequence, untranslatable character, invalid JSON text: PostgreSQL has no faithful image of the value."""
CONNECTION_LOST = ("08", "57P")
"""Beginnings of the states of a connection that broke. 57014 is a cancelled statement, not a lost connection."""
COMMIT_UNKNOWN = ("08", "57", "25P")
"""Beginnings of the states after which a COMMIT may or may not have happened."""
CLASHES = (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation)
"""Two rows exclude each other: once one of them is removed the other fits."""
FOREIGN_KEY = (psycopg.errors.ForeignKeyViolation, psycopg.errors.RestrictViolation)

DEAD_LETTER_REASONS = {
    "22003": "a number is out of range",
    "22001": "a text is too long",
    "23502": "a required value is missing",
    "23505": "another row has the value of a unique index",
    "23514": "a check constraint is violated",
    "23P01": "an exclusion constraint is violated",
    "54000": "a value is larger than an index entry may be",
    "P0001": "a trigger refuses the row",
}
"""The reasons that dead letters are stored with."""


def is_row_at_fault(error: psycopg.Error) -> bool:
    """Whether the row itself caused the error, so that it may become a dead letter.

    A foreign key does not count, because the other row may come with the next window. Neither does a fault of the target.
    """
    state = error.sqlstate or ""
    return (state[:2] in {"22", "23"} and not isinstance(error, FOREIGN_KEY)) or state in {"54000", "P0001"}


class Fault(NamedTuple):
    states: str
    """SQLSTATEs, or beginnings of them; the longest match counts."""
    kind: type[SinkError]
    message: str
    hint: str


# {doing}: "copying rows". {where}: "the database". {named}: the table, column and constraint. {name}: the SQLSTATE's.
FAULTS = (
    # ── temporary: nothing has to be changed, and a later try may succeed (exit 75)
    Fault("08 53 57 40 55", SinkUnavailable, "{where} is not available for {doing} ({name})",
          "no partial data was written: run again when the database can be reached"),
    Fault("53100", SinkUnavailable, "{where} has no disk space left for {doing}",
          "no partial data was written: free disk space on the server, then run again"),
    Fault("53300", SinkUnavailable, "{where} has no free connection for {doing}",
          "raise max_connections or the role's CONNECTION LIMIT, or put a pooler before it; then run again"),
    Fault("53400", SinkUnavailable, "{doing} exceeded a limit that is set for this role or server ({name})",
          "raise temp_file_limit for this role, or make windows smaller (window.max_bytes)"),
    Fault("55P03", SinkUnavailable, "{doing} waited too long for a lock that another session holds{named}",
          "nothing was changed: pg_stat_activity and pg_blocking_pids() show the session; run again when the lock is free"),
    Fault("57014", SinkUnavailable, "{doing} was cancelled by the server{named}",
          "raise statement_timeout for this role, or make windows smaller (window.max_bytes)"),
    Fault("25006", SinkUnavailable, "{where} is read-only at present: it is a standby, or "
    "default_transaction_read_only is on",
          "name the primary in the dsn (several hosts with target_session_attrs=read-write find it), then run again"),
    Fault("25P03 25P04", SinkUnavailable, "{where} ended the transaction of {doing}: this runner was idle for too long",
          "no partial data was written: run again"),
    # ── the login: the dsn, the role or the server must be corrected
    Fault("28", TargetNotReady, "{where} refused the login",
          "check user, password and role in the connection's dsn, and pg_hba.conf on the server"),
    Fault("3D000", TargetNotReady, "the database named in the dsn does not exist", "create it, or correct the dsn"),
    Fault("57P04", TargetNotReady, "the database was dropped", "create it again, or correct the dsn"),
    Fault(UNSUPPORTED_DSN, TargetNotReady, "{where} refuses a parameter of the dsn",
          "check `options` in the dsn: the role or setting may not exist, or a pooler does not pass it on"),
    Fault(UNTRUSTED, TargetNotReady, "{where} cannot be reached with the dsn's TLS parameters",
          "sslrootcert must name the authority that signed the server's certificate, and host must be its name; "
          "sslmode=require and above need a server with TLS"),
    Fault("42501", TargetNotReady, "the role lacks a right needed for {doing}{named}",
          "grant CREATE on the target's schema and on the database (for schema deltarelay), "
          "or let the owner create them once"),
    # ── the target must be repaired
    Fault("42P01 42703 42P10 42804 3F000", TargetNotReady,  # table, column, unique index, type, schema
          "{doing}: the target has changed since the run began ({name})",
          "`deltarelay plan` names what is missing: restore it, or rebuild the target with `run --reload`"),
    Fault("2BP01 0A000", TargetNotReady,
          "{doing}: another object, such as a view on a column of the target, depends on the target{named}",
          "drop the dependent object, run again, and recreate it; pg_depend lists it"),
    Fault("42P07 42701 42710", TargetNotReady, "{doing}: another session created the same object first ({name})",
          "inspect the target with `deltarelay plan`, then run again"),
    Fault("428C9", TargetNotReady, "{doing}: a column of the target is generated and takes no values{named}",
          "make it a plain column: its values come from the source"),
    Fault("55000", TargetNotReady, "{doing}: the target does not allow it in its present state{named}",
          "a published table needs a replica identity: `alter table ... replica identity full`, or a primary key"),
    Fault("54011", TargetNotReady, "{doing}: the target has as many columns as PostgreSQL allows (dropped ones count)",
          "rebuild it with `run --reload`"),
    # ── a row, or the rule that it violates, must be corrected
    Fault("22 23 44 P0", RowRejected, "{doing}: the target refuses a row{named}",
          "compare the target's constraints with the source's rows; rejects: dead_letter stores such rows as dead letters"),
    Fault("23503 23001", RowRejected, "{doing}: a foreign key of or to the target refuses a row{named}",
          "first update the table at the other end of the constraint; make the constraint DEFERRABLE if it refers to its "
          "own table; or drop it, because the source enforces it already"),
    Fault(" ".join(sorted(UNFAITHFUL)), RowRejected, "{doing}: a value has no faithful image in PostgreSQL{named}",
          "text must be valid UTF-8 without NUL: correct the value at the source"),
    Fault("54000", RowRejected,
          "{doing}: a value is larger than PostgreSQL allows there{named} (an index entry holds 2,704 bytes)",
          "choose a shorter key"),
    # ── a fault of this program or of the server
    Fault("58 XX001 XX002", SinkError, "{doing} failed in the server itself ({name})",
          "no partial data was written: the server's log shows what is wrong with its files"),
    Fault("", SinkError, "{doing} failed with SQLSTATE {state} ({name}){named}", "run with --debug to see the stack trace"),
)  # fmt: skip

_BY_BEGINNING = {beginning: fault for fault in FAULTS for beginning in fault.states.split() or [""]}


def find_fault(state: str) -> Fault:
    return next(_BY_BEGINNING[state[:n]] for n in range(len(state), -1, -1) if state[:n] in _BY_BEGINNING)
