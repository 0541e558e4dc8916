"""Questions about one record or one event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from audit.queries.commit_records import read_last_sequence
from audit.queries.fields import build_fields, build_fields_at
from audit.queries.find_record import Wanted, find_rows
from audit.queries.questions.event_rows import (
    CONTEXT_COLUMNS,
    EVENT_COLUMNS,
    expand_rows,
    order_in_version,
    row_field,
    select_current_rows,
)
from audit.queries.questions.moments import When, check_beginning, resolve_version
from audit.queries.view import join_events, reason_columns, view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail


__all__ = ["events_of", "history", "record_as_of"]


def history(trail: Trail, record: Mapping[str, Any]) -> DataFrame:
    """All changes of one record, in order: what changed, when, by whom and why, and the row after or before the change.

    ``record``: columns with values, of the key or any others; text is parsed as the column's type. A renamed column is
    one column for each of its names (``build_fields``): earlier rows have the former name. Columns of the answer:
    ``version``, ``committed_at``, ``index``, ``change_type``, ``baseline``, ``changed_columns``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``row``; ``unreadable`` where columns are encrypted, as in the view.

    Reads only the files of the payload that can contain the key, and only the events and records of its versions. The
    answer may keep the record's rows in Spark's memory, except for encrypted columns: release it after an erasure.
    """
    tables, columns = trail.require_tables(), trail.columns()
    fields, recorded = build_fields(columns), read_last_sequence(trail)
    found, versions = find_rows(trail, Wanted.of(tables.spark, record, fields), fields, columns)
    rows = join_events(trail, found, versions, recorded=recorded)
    return rows.select(*EVENT_COLUMNS, *CONTEXT_COLUMNS, "row", *reason_columns(rows)).orderBy(
        "version", order_in_version(), "index"
    )


def record_as_of(trail: Trail, record: Mapping[str, Any], when: When) -> DataFrame:
    """The row of one record at a moment; no row where the record did not exist then.

    ``record``: the columns of the key, with values. Columns of the answer: those that the source had at that moment. Raises
    ConfigError for a moment outside of the trail, and for an unknown record, unless the trail begins with the table or a
    baseline.
    """
    version = resolve_version(trail, when)
    tables, fields = trail.require_tables(), build_fields_at(trail, version)
    recorded = read_last_sequence(trail)
    found, versions = find_rows(trail, Wanted.of(tables.spark, record, fields), fields, trail.columns())
    versions = [one for one in versions if one <= version]
    if not versions:
        check_beginning(trail)
    events = join_events(trail, found, versions, recorded=recorded)
    return expand_rows(select_current_rows(events, [row_field(name) for name in record]))


def events_of(trail: Trail, version: int, index: int | None = None) -> DataFrame:
    """All events of one version of the source, or the event at one index, as findings name it.

    ``version``, ``committed_at``, ``index``, ``change_type``, ``baseline``, ``changed_columns``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``values`` (``removed``: the row is NULL), ``row``.
    """
    from pyspark.sql import functions as F

    rows = view(trail).where(F.col("version") == version)
    rows = rows if index is None else rows.where(F.col("index") == index)
    return rows.select(*EVENT_COLUMNS, *CONTEXT_COLUMNS, "values", "row", *reason_columns(rows)).orderBy("index")
