"""What a pipeline's guard knows, where a test is about what a sink makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.erasure.commit_marker import erasing_run
from audit.erasure.register.secrets import Marker, WatchKey
from cdf.changes.commits import Commit

__all__ = ["MARKER", "Knows", "KnowsOfNone"]

MARKER = Marker.of([WatchKey.generate()])


class Knows:
    """Believes what commits say of themselves; objects to nothing."""

    executor_modules = ()

    def check(self, *_: Any, **__: Any) -> None:
        pass

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:  # noqa: ARG002
        return frozenset(one.version for one in commits if erasing_run(one.user_metadata) is not None)


class KnowsOfNone(Knows):
    """A register that has recorded no erasure: each commit is an ordinary one."""

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:  # noqa: ARG002
        return frozenset()
