"""Retries dead letters with the rows that the source has under their keys at the sink's position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import CdfError, TargetNotReady
from cdf.sink import Applied, DeadLetterStore, Tracked

if TYPE_CHECKING:
    from cdf.pipeline.runner import Runner

__all__ = ["replay"]


def replay(runner: Runner) -> Applied:
    """Retry all dead letters. ``Applied.rejected`` counts those that the target still refuses. The position stays."""
    context = runner.context
    sink = context.sink
    if not isinstance(sink, DeadLetterStore) or not isinstance(sink, Tracked):
        raise TargetNotReady(f"the sink of {context.name} has no dead letters", hint="there is nothing to replay")
    version = sink.position().version
    if version is None:
        return Applied(position=-1)
    # A table that was created again may have fewer versions: ``open`` refuses it with the right error
    with runner.open(min(version, context.feed.log.latest())) as position:
        assert position.version is not None
        snapshot = context.snapshot(position.version)
        try:
            # The row of a dead letter may be that of a person who was erased since
            snapshot = context.apply_guard(snapshot)
            return sink.replay(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
