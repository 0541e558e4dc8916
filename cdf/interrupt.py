"""Tells real errors from consequences of an interrupt: a signal may also end a process that the running work needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from cdf.errors import CdfError, Interrupted

__all__ = ["ECHO_SECONDS", "JVM_GONE", "SERVER_GONE", "SESSION_GONE", "Stop", "is_echo", "may_be_echo"]

ECHO_SECONDS = 1.0
"""A signal to several processes may reach Spark's JVM first: after an error of a lost JVM, the signal is awaited so long."""
JVM_GONE = "JVM_GONE"
SERVER_GONE = "SPARK_CONNECT_SERVER_GONE"
SESSION_GONE = frozenset({JVM_GONE, SERVER_GONE})
"""The conditions of errors after which the session cannot be used any more."""


def may_be_echo(error: BaseException) -> bool:
    """Whether the error says that another process is gone: the JVM, or the peer of a connection."""
    return any(
        isinstance(link, (ConnectionError, EOFError))
        or type(link).__name__ in ("Py4JError", "Py4JNetworkError")  # a Py4JJavaError is the answer of a running JVM
        or (isinstance(link, CdfError) and link.condition in SESSION_GONE)
        for link in _chain(error)
    )


def is_echo(error: BaseException, *, asked: bool, cancelled: bool) -> bool:
    """Whether the error is only a consequence of an interrupt.

    ``asked``: a signal arrived, or a caller asked for the end. ``cancelled``: the running step was cancelled as well, so any
    error may result from it. An error while a KeyboardInterrupt was being handled is a consequence as well.
    """
    if cancelled or any(isinstance(link, (KeyboardInterrupt, Interrupted)) for link in _chain(error)):
        return True
    return asked and may_be_echo(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and its contexts."""
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            pending += [behind for behind in (current.__cause__, current.__context__) if behind is not None]


class Stop:
    """A caller's request that work in another thread should end."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.cancelled = threading.Event()
        """Set if the running step is cancelled, too, instead of being finished first."""

    def cancel(self) -> None:
        self.cancelled.set()
        self.asked.set()

    def broke_off(self, error: BaseException) -> bool:
        if may_be_echo(error):
            self.asked.wait(ECHO_SECONDS)
        return is_echo(error, asked=self.asked.is_set(), cancelled=self.cancelled.is_set())
