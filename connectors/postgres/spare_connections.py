"""Connections that one pipeline no longer needs, kept for the next pipeline into the same database.

A new connection costs both sides more than what a run without changes does with it: PostgreSQL starts a process, which
reads the catalog again. Nothing here depends on the session (``audit.postgres_session``), so any pipeline may use any.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import IsolationLevel, pq

from audit.postgres_session import PinnedConnection

__all__ = ["SPARE", "SpareConnections", "is_broken"]

MOST = 16
"""Connections that are kept at once, of all databases: a server has few places, and others need them too."""
IDLE_SECONDS = 30.0
"""A firewall may have dropped a connection that was idle for longer."""


class SpareConnections:
    """Keeps connections only inside the block of ``keep``, and closes them at its end. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[str, PinnedConnection, float]] | None = None
        """dsn, connection and the time of its last use; the oldest first."""

    @contextmanager
    def keep(self) -> Iterator[None]:
        with self._lock:
            assert self._kept is None, "the blocks of keep are not nested"
            self._kept = []
        try:
            yield
        finally:
            with self._lock:
                kept, self._kept = self._kept or [], None
            for _, connection, _ in kept:
                connection.close()

    def take(self, dsn: str) -> PinnedConnection | None:
        while True:
            with self._lock:
                found = next((one for one in reversed(self._kept or []) if one[0] == dsn), None)
                if found is None or self._kept is None:
                    return None
                self._kept.remove(found)
            _, connection, used_at = found
            if not is_broken(connection, used_at):
                return connection
            connection.close()

    def give(self, dsn: str, connection: PinnedConnection) -> None:
        """Keep the connection, or close it where it may not be used again. The caller must not use it any more."""
        surplus = connection
        is_idle = not connection.closed and connection.info.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and connection.isolation_level == IsolationLevel.READ_COMMITTED:
            with self._lock:
                if self._kept is not None:
                    self._kept.append((dsn, connection, time.monotonic()))
                    if len(self._kept) <= MOST:
                        return
                    _, surplus, _ = self._kept.pop(0)
        surplus.close()


def is_broken(connection: psycopg.Connection[object], used_at: float) -> bool:
    """Whether an idle connection broke since it was used: nothing is lost with it, and a new one can replace it.

    A close by the server is visible on the socket. A firewall that dropped the connection is not, so after
    ``IDLE_SECONDS`` a statement is sent.
    """
    if connection.closed or connection.info.transaction_status != pq.TransactionStatus.IDLE:
        return False
    sent = select.poll()
    sent.register(connection.fileno(), select.POLLIN)
    if not sent.poll(0) and time.monotonic() - used_at < IDLE_SECONDS:
        return False
    try:
        connection.execute("select")
    except psycopg.OperationalError:
        return True
    return False


SPARE = SpareConnections()
"""Of this process."""
