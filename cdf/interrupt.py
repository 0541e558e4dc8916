"""An error of its own, or only the echo of an interrupt: what fails because a signal ended a process that it needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from cdf.errors import CdfError, Interrupted

__all__ = ["ECHO_SECONDS", "JVM_GONE", "Stop", "is_echo", "may_be_echo"]

ECHO_SECONDS = 1.0
"""A signal to several processes may reach Spark's JVM first: an error of a lost JVM waits this long for the signal."""
JVM_GONE = "JVM_GONE"


def may_be_echo(error: BaseException) -> bool:
    """Whether the error says that another process is gone: the JVM, or what is at the other end of a connection."""
    return any(
        isinstance(one, (ConnectionError, EOFError))
        or type(one).__name__ in ("Py4JError", "Py4JNetworkError")  # a Py4JJavaError is the answer of a JVM that lives
        or (isinstance(one, CdfError) and one.condition == JVM_GONE)
        for one in _chain(error)
    )


def is_echo(error: BaseException, *, asked: bool, cancelled: bool) -> bool:
    """Whether the error is only the echo of an interrupt.

    ``asked``: a signal came, or a caller asked for the end. ``cancelled``: what runs was cancelled for that, so that every
    error may come of it. What failed while a KeyboardInterrupt was being handled is an echo as well.
    """
    if cancelled or any(isinstance(one, (KeyboardInterrupt, Interrupted)) for one in _chain(error)):
        return True
    return asked and may_be_echo(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything behind it."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [behind for behind in (one.__cause__, one.__context__) if behind is not None]


class Stop:
    """How far a caller has asked work in another thread to end."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.cancelled = threading.Event()
        """Set as well where what runs is cancelled and not finished first."""

    def cancel(self) -> None:
        self.cancelled.set()
        self.asked.set()

    def broke_off(self, error: BaseException) -> bool:
        if may_be_echo(error):
            self.asked.wait(ECHO_SECONDS)
        return is_echo(error, asked=self.asked.is_set(), cancelled=self.cancelled.is_set())
