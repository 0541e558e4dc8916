"""The one table of PostgreSQL's errors: every SQLSTATE has one line, and each line is of use to whoever reads it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import psycopg
import pytest

from audit.errors import raise_without_context
from cdf.errors import CdfError, RowRejected, SinkError, SinkUnavailable, TargetNotReady
from connectors.postgres.errors import StagingFailed, error_of_state, sqlstate_of, translate
from connectors.postgres.sqlstates import FAULTS, UNREACHED

KINDS = {
    SinkUnavailable: "08000 08001 08006 08P01 40001 40P01 25006 25P03 25P04 53000 53100 53200 53300 53400 55006 55P03"
    " 57014 57P01 57P02 57P03 57P05",
    TargetNotReady: "28000 28P01 3D000 42501 42P01 42703 42P10 42804 3F000 2BP01 0A000 42P07 428C9 55000 54011 57P04"
    " TLS DSN",
    RowRejected: "22001 22003 22021 22P02 22P05 2202E 23001 23502 23503 23505 23514 23P01 44000 54000 P0001",
    SinkError: "XX000 XX001 58030 42601 25P02 0B000",
}


@pytest.mark.parametrize(
    ("kind", "state"), [(kind, state) for kind, states in KINDS.items() for state in states.split()]
)
def test_each_state_is_of_its_kind(kind: type[CdfError], state: str) -> None:
    error = error_of_state(state, "applying the window")
    assert type(error) is kind
    assert error.condition == state
    assert error.transient is (kind is SinkUnavailable)
    assert error.hint
    assert "{" not in f"{error.message} {error.hint}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused\n\tIs the server',
            "cannot connect to PostgreSQL at 127.0.0.1:1 for copying rows: connection refused",
        ),
        (
            'connection to server at "db.example" (10.0.0.1), port 5432 failed: timeout expired',
            "cannot connect to PostgreSQL at db.example:5432 for copying rows: timeout expired",
        ),
        (
            'connection to server at "::1", port 5432 failed: Connection refused',
            "cannot connect to PostgreSQL at [::1]:5432 for copying rows: connection refused",
        ),
        (
            'connection to server on socket "/tmp/.s.PGSQL.5432" failed: No such file or directory',
            "cannot connect to PostgreSQL at /tmp/.s.PGSQL.5432 for copying rows: no such file or directory",
        ),
        # the server's own words may quote anything
        (
            'connection to server at "h", port 1 failed: FATAL:  die Rolle hunter2 fehlt',
            "the database is not available for copying rows (ConnectionException)",
        ),
        ("the connection is lost", "the database is not available for copying rows (ConnectionException)"),
    ],
)
def test_what_cannot_be_reached_is_named_with_the_reason(said: str, told: str) -> None:
    error = translate(psycopg.OperationalError(said), "copying rows")
    assert (error.message, type(error), error.condition) == (told, SinkUnavailable, UNREACHED)


def test_no_state_stands_in_two_lines() -> None:
    states = [state for fault in FAULTS for state in fault.states.split()]
    assert sorted(states) == sorted(set(states))
    known = {state for state in states if len(state) == 5}
    assert [state for state in known if not hasattr(psycopg.errors.lookup(state), "sqlstate")] == []


def test_a_foreign_key_names_the_ways_out() -> None:
    hint = str(error_of_state("23503", "applying the window").hint)
    assert all(word in hint for word in ("first update the table", "DEFERRABLE", "drop"))


def test_names_are_told_and_values_are_not() -> None:
    diagnostics = SimpleNamespace(
        table_name="t", column_name=None, constraint_name="t_check", message_detail="Failing row contains (hunter2)."
    )
    assert str(error_of_state("23514", "copying rows", diagnostics=diagnostics)).endswith(
        "(table 't', constraint 't_check')"
    )
    nameless = SimpleNamespace(message_detail=diagnostics.message_detail)
    for state in ("23514", "P0001", None):
        assert "hunter2" not in str(error_of_state(state, "copying rows", diagnostics=nameless))


def test_a_drivers_exception_is_in_no_chain() -> None:
    def copy() -> None:
        try:
            raise psycopg.DataError("Failing row contains (hunter2).")
        except psycopg.Error:
            raise_without_context(SinkError("copying rows failed"))

    with pytest.raises(SinkError) as raised:
        copy()
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ('connection to server at "h", port 1 failed: FATAL:  password authentication failed for user "u"', "28000"),
        ("connection to server failed: fe_sendauth: no password supplied", "28000"),
        ('connection to server failed: FATAL:  database "d" does not exist', "3D000"),
        ('connection to server failed: FATAL:  role "r" does not exist', "28000"),
        ("connection to server failed: FATAL:  sorry, too many clients already", "53300"),
        ("connection to server failed: FATAL:  unsupported startup parameter: options", "DSN"),
        ("connection to server failed: SSL error: certificate verify failed", "TLS"),
        ("connection to server failed: server does not support SSL, but SSL was required", "TLS"),
        ("SSL error: unexpected eof while reading", UNREACHED),
        ("connection to server failed: Connection refused", UNREACHED),
        ("server closed the connection unexpectedly", UNREACHED),
    ],
)
def test_a_failed_connection_is_known_by_libpqs_words(words: str, state: str) -> None:
    assert sqlstate_of(psycopg.OperationalError(words)) == state


def test_what_is_no_databases_error_is_not_taken_for_one() -> None:
    assert sqlstate_of(ValueError("password authentication failed")) is None
    assert type(translate(ValueError("x"), "copying rows")) is SinkError


def test_a_tasks_failure_carries_the_state_alone() -> None:
    failure = pickle.loads(pickle.dumps(StagingFailed("53100")))
    assert (failure.sqlstate, str(failure)) == ("53100", "DELTARELAY_STAGING 53100")
