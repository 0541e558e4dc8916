"""Retries after temporary failures, with back-off: a database that restarts, a storage that is briefly unavailable."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cdf.errors import CdfError, Interrupted, PositionError
from cdf.interrupt import SESSION_GONE

if TYPE_CHECKING:
    from stamina.instrumentation import RetryDetails

__all__ = ["RETRY_SECONDS", "TRIES", "OnRetry", "is_retryable", "retry"]

T = TypeVar("T")
OnRetry = Callable[[CdfError, int, float], None]
"""Called before each pause: the error, the number of the next try, and the seconds until then."""

RETRY_SECONDS = 60.0
TRIES = 5
"""The first one and four retries. Each pause is twice as long as the previous one."""
_SHARES = 2 ** (TRIES - 1)

_hook: contextvars.ContextVar[Callable[[RetryDetails], None]] = contextvars.ContextVar("hook")


def is_retryable(error: BaseException) -> bool:
    """Whether a retry by the same runner can help. A lease of another runner was already waited for."""
    if isinstance(error, CdfError) and error.condition in SESSION_GONE:
        return False  # the session is lost for the whole command
    return isinstance(error, CdfError) and error.transient and not isinstance(error, (PositionError, Interrupted))


def retry(work: Callable[[], T], *, seconds: float, has_progressed: Callable[[], bool], on_retry: OnRetry) -> T:
    """Call ``work`` until it succeeds, with pauses of ``seconds`` in total; 0: call it once.

    ``has_progressed``: whether the last try made progress before it failed; then the number of tries starts again. Errors
    that a retry cannot help, and the last error, are raised.
    """
    if seconds <= 0:
        return work()
    import stamina
    from stamina.instrumentation import set_on_retry_hooks

    # The default hooks would write log lines with the text of the exception
    set_on_retry_hooks([lambda details: _hook.get()(details)])

    def report_retry(details: RetryDetails) -> None:
        if isinstance(details.caused_by, CdfError):
            on_retry(details.caused_by, details.retry_num + 1, details.wait_for)

    pause = seconds / _SHARES
    token = _hook.set(report_retry)
    try:
        while True:
            try:
                for attempt in stamina.retry_context(
                    on=lambda error: is_retryable(error) and not has_progressed(),
                    attempts=TRIES,
                    timeout=None,  # a try may take long before it fails: only the pauses are limited
                    wait_initial=pause,
                    wait_max=seconds,
                    wait_jitter=pause / (TRIES - 1),
                ):
                    with attempt:
                        return work()
            except CdfError as error:
                if not (is_retryable(error) and has_progressed()):
                    raise
                on_retry(error, 2, pause)
                time.sleep(pause)
    finally:
        _hook.reset(token)
