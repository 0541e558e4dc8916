"""Finishes a window whose events are durable and whose ledger records are missing, because its runner died in between.

The records make the events valid for good. Therefore values, events and times are accepted only if the source's change feed
has the same for these versions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from audit.trail.column_history import GROUPS, SEALED, extend_columns
from audit.trail.events import CommitRoots, compute_commit_roots
from audit.trail.ledger_state import State, read_record_of_version
from audit.trail.tables import EVENTS, PAYLOAD, TrailTables
from audit.writing.recovery import has_encrypted_rows, matches_source
from cdf.changes.commits import Commit
from cdf.errors import CdfError, TargetNotReady
from cdf.sink import Bounds
from cdf.timing import timed
from connectors.delta_audit.context import TrailContext
from connectors.delta_audit.errors import build_foreign_rows_error, translate_errors
from connectors.delta_audit.write.trail_window import UNKNOWN_TIME, TrailWindow, build_payload, confirm_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.encryption.key_registry import KeyState
    from audit.trail.column_history import Column

__all__ = ["restore_commit_times", "resume_window"]

_TIME_TOLERANCE = dt.timedelta(seconds=1)
"""Storage may report the time of a file with fewer digits after the log was copied."""


def resume_window(
    context: TrailContext,
    tables: TrailTables,
    payload_row: StructType | None,
    window: TrailWindow,
    state: State,
    seconds: dict[str, float],
) -> tuple[tuple[Column, ...], Mapping[int, CommitRoots]]:
    """Return the columns with which the pending window was written, and the roots of its events.

    Raises TargetNotReady if the written rows are not those of the source.
    """
    events, payload = (tables.read_current(name).where(window.build_condition()) for name in (EVENTS, PAYLOAD))

    def read_key_states(ids: Iterable[bytes]) -> Mapping[bytes, KeyState]:
        return {} if context.registry is None else context.registry().read_states(ids)

    def is_as_written(columns: tuple[Column, ...]) -> bool:
        computed = build_payload(context, window, columns, encrypt=False).build_on_cluster(window.partitions)
        return matches_source(events, payload, computed, columns, window.table_id, read_key_states)

    with timed(seconds, "events"):
        try:
            candidates = _list_candidate_columns(context, payload_row, window, state, payload)
            columns = next(filter(is_as_written, candidates), None)
            confirm_read(context, window)
        except CdfError:
            raise
        except Exception as error:
            raise window.rows.failure(error) from error
    if columns is None:
        raise build_foreign_rows_error(context.path, window.bounds)
    with translate_errors(context.path, "reading the events"), timed(seconds, "roots"):
        return columns, compute_commit_roots(events)


def _list_candidate_columns(
    context: TrailContext, payload_row: StructType | None, window: TrailWindow, state: State, payload: DataFrame
) -> list[tuple[Column, ...]]:
    """Return the columns with which the window may have been written: with our column that describes what is encrypted, or
    without it. The configuration may have changed since then."""
    plain = window.rows.schema
    with_groups = plain if SEALED in plain.names else StructType([*plain.fields, StructField(SEALED, GROUPS)])
    is_encrypted = has_encrypted_rows(payload)
    if is_encrypted and context.registry is None:
        raise TargetNotReady(
            f"the trail at {context.path} has rows of version {window.bounds.first} to {window.bounds.last} that were "
            "written encrypted and have no ledger records: without their keys they cannot be compared with the source",
            hint="restore `erasure.keys` in the configuration, and run again",
        )
    likely, other = (plain, with_groups) if context.encryption is None else (with_groups, plain)
    schemas = [with_groups] if is_encrypted else [likely, other]
    return [extend_columns(state.columns, schema, payload_row) for schema in schemas]


def restore_commit_times(path: str, tables: TrailTables, commits: Sequence[Commit], state: State) -> list[Commit]:
    """Return the commits with the times that the pending events have, which differ from the source's by rounding at most.

    Raises TargetNotReady for any other time.
    """
    if not state.pending_times:
        return list(commits)
    before = None
    if state.version is not None:
        with translate_errors(path, "reading the ledger"):
            recorded = read_record_of_version(tables, state.version).time
        before = None if recorded is None else dt.datetime.fromisoformat(recorded)
    restored = []
    for commit in commits:
        time = commit.timestamp
        # Delta makes times increase: one that is not later than the previous one of the same request is reported as a
        # millisecond after it
        later = time if before is None or time is UNKNOWN_TIME else max(time, before + dt.timedelta(milliseconds=1))
        if commit.version in state.pending_times:
            written = state.pending_times[commit.version] or UNKNOWN_TIME
            if time is not UNKNOWN_TIME and (
                written is UNKNOWN_TIME or min(abs(written - time), abs(written - later)) > _TIME_TOLERANCE
            ):
                raise build_foreign_rows_error(path, Bounds(commit.version, commit.version))
            time = later = written
        restored.append(replace(commit, timestamp=time))
        before = None if later is UNKNOWN_TIME else later
    return restored
