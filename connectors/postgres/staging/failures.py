"""The reason why rows could not be copied or stored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from cdf.errors import CdfError, RowRejected
from connectors.postgres.errors import StagingFailed, error_of_state, sqlstate_of, sqlstate_of_task
from connectors.postgres.sqlstates import UNFAITHFUL, UNREACHED
from connectors.postgres.staging.storability import describe_unstorable

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot, Window
    from connectors.postgres.client import Session

__all__ = ["explain_copy_failure", "explain_unfaithful", "sqlstate_of_copy"]


def sqlstate_of_copy(error: Exception) -> str | None:
    """The SQLSTATE of a COPY that failed here or in a task; None if something else failed."""
    return error.sqlstate if isinstance(error, StagingFailed) else sqlstate_of_task(error)


def explain_copy_failure(
    session: Session, error: Exception, rows: Window | Snapshot, *, by_driver: bool = False
) -> CdfError:
    """Why a COPY failed: fenced meanwhile, a value that cannot be stored, the database, or reading the rows."""
    state = sqlstate_of_copy(error)
    if state is None:
        return rows.failure(error)
    if (fencing := session.find_fencing()) is not None:
        return fencing
    if (rejected := explain_unfaithful(state, rows)) is not None:
        return rejected
    if state == UNREACHED and (refusal := _login_refusal(session)) is not None:
        return error_of_state(refusal, "copying rows")
    where = "the database" if by_driver else "the database, as seen from the executors,"
    return error_of_state(state, "copying rows", where=where)


def _login_refusal(session: Session) -> str | None:
    """The SQLSTATE with which a new connection of the driver is refused; a task's error does not contain it."""
    try:
        session.open_new().close()
    except psycopg.Error as error:
        return sqlstate_of(error)
    return None


def explain_unfaithful(state: str | None, rows: Window | Snapshot) -> CdfError | None:
    """Column and version of the value that PostgreSQL refused as unfaithful; None for any other SQLSTATE."""
    if state not in UNFAITHFUL:
        return None
    with suppress(Exception):
        if description := describe_unstorable(rows):
            return RowRejected(
                f"{rows.table}: {description}",
                hint="PostgreSQL cannot store it: correct the value at the source, or leave the column out",
                condition=state,
                table=rows.table,
            )
    return None
