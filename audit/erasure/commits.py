"""How a commit of the source tells that it erased somebody: by its ``userMetadata``, which names run and requests only.

Anybody who writes to the table can say so. Whether it is true the register knows (``audit.erasure.watch.Watch.erased``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from audit.record import object_in
from cdf.guard import ERASURE

if TYPE_CHECKING:
    from cdf.window import Commit

__all__ = ["erased_person", "erasing_metadata", "erasing_run", "erasing_versions"]

_PERSON = "deltarelay_person"
_MOST_IDS = 20


def erasing_metadata(run: str, requests: Sequence[str], person: int = 0) -> str:
    """For the erasing commit. ``ticket`` is among what a trail keeps (``audit.record.told_in``). ``person``: for whom, of
    the ``people`` of a table."""
    shown = ", ".join(requests[:_MOST_IDS]) + (
        f" and {len(requests) - _MOST_IDS} more" if len(requests) > _MOST_IDS else ""
    )
    told = {ERASURE: run, "run": run, "ticket": shown, "purpose": "erasure"}
    return json.dumps({**told, _PERSON: person} if person else told)


def erasing_run(user_metadata: str | None) -> str | None:
    """The run that a commit says to be of, in order to erase; None for any other commit."""
    run = object_in(user_metadata).get(ERASURE)
    return run if isinstance(run, str) and run else None


def erased_person(user_metadata: str | None) -> int:
    """For whom of the ``people`` of its table a commit of a run erased."""
    person = object_in(user_metadata).get(_PERSON, 0)
    return person if isinstance(person, int) else 0


def erasing_versions(commits: Iterable[Commit]) -> frozenset[int]:
    """Of these the ones that erased. What sinks of history write of them has no image from before the change."""
    return frozenset(commit.version for commit in commits if commit.erasing)
