"""Ctrl-C ends a command at any moment, also where PySpark makes something else of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ctrl_c_counts", "undisturbed"]


@contextmanager
def ctrl_c_counts() -> Iterator[None]:
    """Ctrl-C while Spark works: PySpark cancels the job, and the failure of that job may hide the KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        pressed.set()
        before(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    except Exception as error:
        if pressed.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the end: PostgreSQL's programs, interrupted half-way, would leave a server that nobody knows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
