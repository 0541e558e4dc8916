"""Dead letters tried again: the rows that the source has under their keys at the sink's position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import CdfError, TargetNotReady
from cdf.sink import Applied, DeadLetterStore, Tracked

if TYPE_CHECKING:
    from cdf.pipeline.pipeline import Pipeline

__all__ = ["replay"]


def replay(pipeline: Pipeline) -> Applied:
    """→ what became of them; ``rejected`` of them still do not fit. The position stays where it is."""
    sink = pipeline.sink
    if not isinstance(sink, DeadLetterStore) or not isinstance(sink, Tracked):
        raise TargetNotReady(f"the sink of {pipeline.name} sets no rows aside", hint="nothing is to be replayed")
    stands = sink.position()
    if stands.version is None:
        return Applied(position=-1)
    # A table that was created again may have fewer versions: that is refused as such
    with pipeline.opened(min(stands.version, pipeline.feed.log.latest())) as position:
        assert position.version is not None
        snapshot = pipeline.snapshot(position.version)
        try:
            # The row of a dead letter may be that of a person who was erased since
            snapshot = pipeline.admitted(snapshot)
            return sink.replay(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
