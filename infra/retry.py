"""Tries again what is only temporarily in the way: a database that restarts, a storage that hiccups."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cdf.errors import CdfError, Interrupted, PositionError

if TYPE_CHECKING:
    from stamina.instrumentation import RetryDetails

__all__ = ["RETRY_SECONDS", "TRIES", "Tell", "passes", "persistently"]

T = TypeVar("T")
Tell = Callable[[CdfError, int, float], None]
"""What was in the way, the number of the next try, and how many seconds until then."""

RETRY_SECONDS = 60.0
TRIES = 5
"""The first one and four more. Each pause is twice as long as the one before."""
_SHARES = 2 ** (TRIES - 1)

_telling: contextvars.ContextVar[Callable[[RetryDetails], None]] = contextvars.ContextVar("telling")


def passes(error: BaseException) -> bool:
    """Whether it is worth a try by the same runner. Where another one is at work a lease was waited for already."""
    return isinstance(error, CdfError) and error.transient and not isinstance(error, (PositionError, Interrupted))


def persistently(work: Callable[[], T], *, seconds: float, moved: Callable[[], bool], tell: Tell) -> T:
    """Call ``work`` until it goes through, with pauses that together last ``seconds``; 0: once.

    ``moved`` says whether the last try got anywhere before it failed: then all tries begin anew. What does not pass, and
    what lasts, is raised.
    """
    if seconds <= 0:
        return work()
    import stamina
    from stamina.instrumentation import set_on_retry_hooks

    # Its own hooks would write log lines of their own, with the exception as Python shows it
    set_on_retry_hooks([lambda details: _telling.get()(details)])

    def about_to_try(details: RetryDetails) -> None:
        if isinstance(details.caused_by, CdfError):
            tell(details.caused_by, details.retry_num + 1, details.wait_for)

    pause = seconds / _SHARES
    token = _telling.set(about_to_try)
    try:
        while True:
            try:
                for attempt in stamina.retry_context(
                    on=lambda error: passes(error) and not moved(),
                    attempts=TRIES,
                    timeout=None,  # a try may take long before it fails: the pauses alone are limited
                    wait_initial=pause,
                    wait_max=seconds,
                    wait_jitter=pause / (TRIES - 1),
                ):
                    with attempt:
                        return work()
            except CdfError as error:
                if not (passes(error) and moved()):
                    raise
                tell(error, 2, pause)
                time.sleep(pause)
    finally:
        _telling.reset(token)
