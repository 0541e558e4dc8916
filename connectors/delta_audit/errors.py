"""Errors of Spark and Delta while the trail is read or written → ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from audit.errors import find_named_file
from cdf.errors import CdfError, SinkError, TargetNotReady, WindowOutOfOrder, condition_of
from cdf.session import translate_lost_server
from cdf.sink import Bounds

if TYPE_CHECKING:
    from audit.trail.ledger_state import State

__all__ = ["build_foreign_rows_error", "build_unfinished_error", "translate_errors"]


@contextlib.contextmanager
def translate_errors(path: str, doing: str) -> Iterator[None]:
    """Raise a SinkError that names Delta's error condition, with the original exception as its cause."""
    try:
        yield
        return
    except CdfError:
        raise
    except Exception as error:
        if (lost := translate_lost_server(error, f"{doing} at {path} failed")) is not None:
            raise lost from error
        condition, file = condition_of(error), find_named_file(error)
        reason = "; ".join(filter(None, (condition or type(error).__name__, file)))
        failure = SinkError(
            f"{doing} at {path} failed ({reason})",
            hint="the position of the trail has not changed: correct the cause that the condition names, and run again",
            condition=condition,
        )
        cause = error
    raise failure from cause


def build_foreign_rows_error(path: str, bounds: Bounds) -> TargetNotReady:
    return TargetNotReady(
        f"the trail at {path} has rows of version {bounds.first} to {bounds.last} that no runner of this trail wrote: "
        "they have no ledger records, and differ from the changes in the source",
        hint="another program has written into the trail: run `deltarelay audit verify`, then restore a backup",
    )


def build_unfinished_error(path: str, pending: Bounds, state: State) -> WindowOutOfOrder:
    return WindowOutOfOrder(
        f"the trail at {path} has the events of version {pending.first} to {pending.last} without their ledger records; "
        "that window must be finished first",
        hint="run `deltarelay run` with the same `start` as before: "
        + ("snapshot" if state.pending_baseline else "one that reads changes, such as earliest"),
        position=state.version,
    )
