"""Rebuilds a target from a snapshot of the source: for a target that incremental replication can no longer update."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.changes.keys import check_key
from cdf.errors import CdfError, TargetNotReady
from cdf.results import Step
from cdf.sink import Reloadable

if TYPE_CHECKING:
    from cdf.pipeline.runner import Runner
    from cdf.source.log import TableLog

__all__ = ["reload_target"]


def reload_target(runner: Runner, *, retries: int = 0) -> Step:
    """Reload the target from the latest version. Its position does not matter, nor to which table that belongs."""
    context = runner.context
    feed, sink = context.feed, context.sink
    if not isinstance(sink, Reloadable) or sink.capabilities.holds != "state":
        raise TargetNotReady(
            f"the sink of {context.name} cannot be reloaded from a snapshot",
            hint="name a new target, or empty this one with the target's own tools",
        )
    context.check_session()
    feed.require_enabled()  # or else no run could update the target after the reload
    snapshot = context.snapshot(feed.log.latest())
    check_key(snapshot.schema, snapshot.key, snapshot.table)
    with runner.close_afterwards(), runner.record_failures(retries):
        runner.controls.forget()
        runner.controls.refresh()
        try:
            snapshot = context.apply_guard(snapshot)
            source = context.describe_source(snapshot.schema)
            sink.open_to_reload(replace(source, former=_list_former_columns(feed.log), retries=retries))
            applied = sink.reload(snapshot)
            runner.controls.clear(applied.position)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
    return Step("load", snapshot.version, snapshot.version, snapshot.version, applied)


def _list_former_columns(log: TableLog) -> frozenset[str]:
    """Every column that the source has or had, as far back as its log goes."""
    first, latest = log.listing().readable, log.latest()
    schemas = [log.metadata(first).schema]
    schemas += [found.schema for _, found in log.metadata_commits(first + 1, latest)]
    return frozenset(name for schema in schemas for name in schema.names)
