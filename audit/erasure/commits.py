"""How a commit of the source tells that it erased somebody: by its ``userMetadata``, which names run and requests only.

Anybody who writes to the table can say so. Whether it is true the register knows (``audit.erasure.watch.Watch.erased``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from audit.record import object_in

if TYPE_CHECKING:
    from cdf.window import Commit

__all__ = ["erasing_metadata", "erasing_run", "erasing_versions"]

_RUN = "deltarelay_erasure"
_MOST_IDS = 20


def erasing_metadata(run: str, requests: Sequence[str]) -> str:
    """For the erasing commit. ``ticket`` is among what a trail keeps (``audit.record.told_in``)."""
    shown = ", ".join(requests[:_MOST_IDS]) + (
        f" and {len(requests) - _MOST_IDS} more" if len(requests) > _MOST_IDS else ""
    )
    return json.dumps({_RUN: run, "run": run, "ticket": shown, "purpose": "erasure"})


def erasing_run(user_metadata: str | None) -> str | None:
    """The run that a commit says to be of, in order to erase; None for any other commit."""
    run = object_in(user_metadata).get(_RUN)
    return run if isinstance(run, str) and run else None


def erasing_versions(commits: Iterable[Commit]) -> frozenset[int]:
    """Of these the ones that erased. What sinks of history write of them has no image from before the change."""
    return frozenset(commit.version for commit in commits if commit.erasing)
