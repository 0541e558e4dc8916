"""The target made anew from a snapshot of the source: the way out when its history cannot be followed any further."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.changes.keys import check_key
from cdf.errors import CdfError, TargetNotReady
from cdf.results import Step
from cdf.sink import Reloadable

if TYPE_CHECKING:
    from cdf.pipeline.pipeline import Pipeline

__all__ = ["make_anew"]


def make_anew(pipeline: Pipeline, *, retries: int = 0) -> Step:
    """Reload the target from the latest version. Where the target stands, and on which table, does not matter."""
    feed, sink = pipeline.feed, pipeline.sink
    if not isinstance(sink, Reloadable) or sink.capabilities.holds != "state":
        raise TargetNotReady(
            f"the sink of {pipeline.name} cannot be made anew from a snapshot",
            hint="name a new target, or empty it with its own means",
        )
    feed.check_session()
    feed.require_enabled()  # or else no run could bring the target any further
    snapshot = pipeline.snapshot(feed.log.latest())
    check_key(snapshot.schema, snapshot.key, snapshot.table)
    with pipeline.closed_afterwards(), pipeline.failures_recorded(retries):
        try:
            snapshot = pipeline.admitted(snapshot)
            source = replace(pipeline.source(snapshot.schema), former=_former_columns(pipeline), retries=retries)
            sink.open_to_reload(source)
            applied = sink.reload(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
    return Step("load", snapshot.version, snapshot.version, snapshot.version, applied)


def _former_columns(pipeline: Pipeline) -> frozenset[str]:
    """Every column that the source has had, as far back as its log goes."""
    log = pipeline.feed.log
    first, latest = log.listing().readable, log.latest()
    schemas = [log.metadata(first).schema]
    schemas += [found.schema for _, found in log.metadata_commits(first + 1, latest)]
    return frozenset(name for schema in schemas for name in schema.names)
