"""Ctrl-C and TERM end a command at any moment, even where an error that they cause hides the interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from cdf.interrupt import ECHO_SECONDS, is_echo, may_be_echo

__all__ = [
    "raise_interrupt_on_signal",
    "defer_first_signal",
    "is_interrupt",
    "install_handlers",
    "handle_signals",
    "defer_signals",
]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Lists instead of an Event: the handler may interrupt the very thread that holds the lock of the Event
_received: list[int] = []
_defer: list[bool] = []
_lost: list[bool] = []
_process: list[int] = []
AGAIN_SECONDS = 0.05


def _handler(number: int, _frame: FrameType | None) -> None:
    if _lost:
        _lost.clear()  # the same signal once more
    else:
        _received.append(number)
    if not (_defer and len(_received) == 1):
        raise KeyboardInterrupt


def _raise_dropped_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Python drops exceptions of finalizers and of ``fork`` hooks: a KeyboardInterrupt is raised again shortly after."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
    elif _received and os.getpid() == _process[-1]:  # a child process that was just forked has the same handlers
        _lost.append(True)
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), _received[-1]))
        again.daemon = True
        again.start()


def install_handlers() -> None:
    """Treat TERM like Ctrl-C. Called again once Spark has started, because Spark installs a handler of its own."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _handler)


@contextmanager
def handle_signals(*, last: bool = False) -> Iterator[None]:
    """Handle signals for the duration of one command. ``last``: the process ends with it; later signals are ignored."""
    before, hook = {number: signal.getsignal(number) for number in _SIGNALS}, sys.unraisablehook
    _received.clear()
    _lost.clear()
    _process[:] = [os.getpid()]
    sys.unraisablehook = _raise_dropped_interrupt
    install_handlers()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if last else handler)


@contextmanager
def defer_first_signal() -> Iterator[Callable[[], bool]]:
    """While other threads do the work: the first signal is only recorded, the second raises KeyboardInterrupt.

    → a function that returns whether a signal was received, also one whose KeyboardInterrupt other code has swallowed
    """
    _defer.append(True)
    try:
        yield lambda: bool(_received)
    finally:
        _defer.pop()


def is_interrupt(error: Exception) -> bool:
    """Whether an error is only a consequence of a signal; waits shortly for a signal that has not arrived yet."""
    try:
        if may_be_echo(error) and not _received:
            time.sleep(ECHO_SECONDS)
    except KeyboardInterrupt:
        return True
    return is_echo(error, asked=bool(_received), cancelled=bool(_received))


@contextmanager
def raise_interrupt_on_signal() -> Iterator[None]:
    """Raise KeyboardInterrupt where Spark's failure of a cancelled job would hide it."""
    before: dict[int, Callable[..., object]] = {
        number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))
    }
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def record_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        before[number](number, frame)

    for number in before:
        signal.signal(number, record_signal)
    try:
        yield
    except Exception as error:
        if received or is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer Ctrl-C and TERM to the end: an interrupted ``pg_ctl`` would leave a server that nothing stops."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
