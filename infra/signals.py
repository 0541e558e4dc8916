"""Ctrl-C and TERM end a command at any moment, also where the interrupt is hidden behind an error that it causes."""

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

__all__ = ["ctrl_c_counts", "first_noted", "is_interrupt", "listen", "listening", "undisturbed"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Plain values and no Event: a handler that sets one may have interrupted the very thread that holds the Event's lock
_came: list[int] = []
_defer: list[bool] = []
_lost: list[bool] = []
_process: list[int] = []
AGAIN_SECONDS = 0.05


def _handler(number: int, _frame: FrameType | None) -> None:
    if _lost:
        _lost.clear()  # the same signal once more
    else:
        _came.append(number)
    if not (_defer and len(_came) == 1):
        raise KeyboardInterrupt


def _dropped(unraisable: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a finalizer and in a hook of ``fork``: a KeyboardInterrupt is raised again soon."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
    elif _came and os.getpid() == _process[-1]:  # a child that was just forked has the handlers as well
        _lost.append(True)
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), _came[-1]))
        again.daemon = True
        again.start()


def listen() -> None:
    """A scheduler's TERM is treated like Ctrl-C. Called again once Spark has started: it puts a handler of its own there."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _handler)


@contextmanager
def listening(*, last: bool = False) -> Iterator[None]:
    """For the time of one command. ``last``: the process ends with it, and no signal changes the outcome any more."""
    before, hook = {number: signal.getsignal(number) for number in _SIGNALS}, sys.unraisablehook
    _came.clear()
    _lost.clear()
    _process[:] = [os.getpid()]
    sys.unraisablehook = _dropped
    listen()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if last else handler)


@contextmanager
def first_noted() -> Iterator[Callable[[], bool]]:
    """While the work is done by other threads: the first signal is only noted, the second raises KeyboardInterrupt.

    → whether one came, also one whose KeyboardInterrupt other code has swallowed before
    """
    _defer.append(True)
    try:
        yield lambda: bool(_came)
    finally:
        _defer.pop()


def is_interrupt(error: Exception) -> bool:
    """Whether an error that ends the command is only the echo of a signal; one that is on its way is waited for."""
    try:
        if may_be_echo(error) and not _came:
            time.sleep(ECHO_SECONDS)
    except KeyboardInterrupt:
        return True
    return is_echo(error, asked=bool(_came), cancelled=bool(_came))


@contextmanager
def ctrl_c_counts() -> Iterator[None]:
    """Ctrl-C or TERM while Spark works: the failure of the job that is cancelled may hide the KeyboardInterrupt."""
    before: dict[int, Callable[..., object]] = {
        number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))
    }
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def noted(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        before[number](number, frame)

    for number in before:
        signal.signal(number, noted)
    try:
        yield
    except Exception as error:
        if pressed or is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the end: PostgreSQL's programs, interrupted half-way, would leave a server that nobody knows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
