"""The plan of an erasure: what it would do, which rows and files per table and request, what delays it, and until when.

A plan is written to a file that a person reviews and approves, so it names requests by their ids and contains no identifier.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit.erasure.find.resolve import Resolution
from audit.erasure.find.retained_rows import rows_from_copies
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.model import Link
from audit.erasure.retention import table_purge_schedule
from audit.trail.redaction import canonical_json
from cdf.errors import ConfigError, SourceError
from cdf.listing import list_some
from cdf.result import Result
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.erasure.find.copies import Copy
    from audit.erasure.model import PersonalTable, Request
    from audit.erasure.retention import Schedule
    from audit.erasure.table_graph import Graph

__all__ = ["Plan", "PlannedSink", "PlannedTable", "digest_of", "make_plan", "unencrypted_problems"]


@dataclass(frozen=True, slots=True)
class PlannedTable(Result):
    table: str
    version: int
    """The version at which the table was read."""
    rows: Mapping[str, int]
    """By request."""
    files: int
    on_erase: str
    held_until: dt.date | None = None
    held_for: str | None = None
    files_gone_on: dt.date | None = None
    """When the present files can be purged if the rows are erased today."""
    log_gone_on: dt.date | None = None


@dataclass(frozen=True, slots=True)
class PlannedSink(Result):
    pipeline: str
    table: str
    forgets: bool
    """False: this kind of sink replicates the deletes, and does not support erasure of what it had before."""
    position: int | None


@dataclass(frozen=True, slots=True)
class Plan(Result):
    run: str
    created_at: dt.datetime
    requests: tuple[str, ...]
    tables: tuple[PlannedTable, ...] = ()
    sinks: tuple[PlannedSink, ...] = ()
    needs_approval: Mapping[str, str] = field(default_factory=dict)
    """Requests without an approver that need one, and why."""
    not_found: tuple[str, ...] = ()
    """Requests that match no row; their copies, history and files are scanned nevertheless."""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Why `erase run` would refuse the plan."""

    @property
    def digest(self) -> str:
        return digest_of(self.to_dict())


def digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(document)).hexdigest()


def make_plan(
    spark: SparkSession,
    graph: Graph,
    copies: Sequence[Copy],
    requests: Sequence[Request],
    learned: Sequence[tuple[str, str, str]],
    *,
    run: str,
    approve_above: int,
    now: dt.datetime,
) -> Plan:
    """Reads only. ``learned``: (request, identifier, value) that were learned about the people before."""
    tables = graph.tables_of(*(request.subject for request in requests))
    _check_exist(spark, tables)
    found = Resolution.of(spark, tables, graph.subjects, requests, learned, retained=rows_from_copies(copies))
    with closing(found) as resolution:
        warnings, problems, planned = [], [], []
        for one in tables:
            schedule = table_purge_schedule(spark, one.table, now=now)
            planned.append(_plan_table(graph, resolution, one, schedule, now))
            if not graph.held(one.table, now.date()):
                problems += inspect_table(spark, one)
                warnings += _table_warnings(graph, resolution, one)
                warnings += _late_warnings(one, requests, schedule)
        copy_warnings, copy_problems = _inspect_copies(spark, graph, tables, copies)
        warnings += copy_warnings
        problems += copy_problems
        reached = {one.table for one in tables}
        sinks = tuple(
            PlannedSink(copy.pipeline, copy.table, copy.erasure is not None, copy.version())
            for copy in copies
            if copy.table in reached
        )
        warnings += _class_warnings(graph, tables, now)
        problems += unencrypted_problems(copy for copy in copies if copy.table in reached)
        warnings += [
            f"{one.pipeline}: its sink applies the deletes, but cannot erase the data that it stored before"
            for one in sinks
            if not one.forgets
        ]
        approved = {request.id for request in requests if request.approver is not None}
        return Plan(
            run=run,
            created_at=now,
            requests=tuple(request.id for request in requests),
            tables=tuple(planned),
            sinks=sinks,
            needs_approval={
                id: reason for id, reason in resolution.fan_out(approve_above).items() if id not in approved
            },
            not_found=tuple(request.id for request in requests if not any(request.id in one.rows for one in planned)),
            warnings=tuple(warnings),
            problems=tuple(problems),
        )


def _check_exist(spark: SparkSession, tables: Sequence[PersonalTable]) -> None:
    from delta.tables import DeltaTable

    missing = [one.table for one in tables if not DeltaTable.isDeltaTable(spark, one.table)]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: there is no Delta table at this address", hint="correct `erasure.tables`"
        )


def _plan_table(
    graph: Graph, resolution: Resolution, one: PersonalTable, schedule: Schedule, now: dt.datetime
) -> PlannedTable:
    counts = {request: found for (table, request), found in resolution.counts().items() if table == one.table}
    holds = graph.held(one.table, now.date())
    return PlannedTable(
        table=one.table,
        version=resolution.versions[one.table],
        rows={request: found.rows for request, found in counts.items() if found.rows},
        files=max((found.files for found in counts.values()), default=0),
        on_erase=one.what_happens,
        held_until=max((hold.until for hold in holds), default=None),
        held_for="; ".join(hold.basis for hold in holds) or None,
        files_gone_on=schedule.files_on.date(),
        log_gone_on=schedule.log_on.date(),
    )


def _table_warnings(graph: Graph, resolution: Resolution, one: PersonalTable) -> list[str]:
    warnings = []
    if one.others and "delete" in one.what_happens and (several := resolution.naming_several(one.table)):
        warnings.append(
            f"{one.table}: {several} rows are deleted as a whole (on_erase: delete), with what they say about other people"
        )
    warnings += [
        f"{one.table} has no identifier in `{person.column}`: rows that are inserted again into this table alone are not "
        "noticed"
        for person in one.people
        if isinstance(person.path, Link) and not graph.subjects[person.subject].has(person.path.other)
    ]
    return warnings


def _late_warnings(one: PersonalTable, requests: Sequence[Request], schedule: Schedule) -> list[str]:
    day = max(schedule.files_on, schedule.log_on).date()
    late = sorted(request.id for request in requests if request.due < day)
    if not late:
        return []
    return [
        f"{one.table}: files and log are purged on {day}, after {list_some(late)} is due; "
        "delta.deletedFileRetentionDuration and delta.logRetentionDuration decide that"
    ]


def _inspect_copies(
    spark: SparkSession, graph: Graph, tables: Sequence[PersonalTable], copies: Sequence[Copy]
) -> tuple[list[str], list[str]]:
    """Return warnings and problems of pipelines whose table is not among the configured tables."""
    warnings, problems = [], []
    declared = {one.table for one in graph.order}
    table_ids: dict[str | None, str] = {
        ChangeFeed(spark, one.table).log.metadata().table_id: one.table for one in tables
    }
    for copy in copies:
        if copy.table in declared:
            continue
        if (same := table_ids.get(_table_id(spark, copy.table))) is not None:
            problems.append(
                f"pipeline {copy.pipeline} replicates {same} under another address, {copy.table}: use the same address, "
                "otherwise deltarelay does not find what the pipeline has written"
            )
        else:
            warnings.append(
                f"pipeline {copy.pipeline} replicates {copy.table}, which is not in `erasure.tables`: it is not searched"
            )
    return warnings, problems


def _class_warnings(graph: Graph, tables: Sequence[PersonalTable], now: dt.datetime) -> list[str]:
    encrypted = {name for one in tables for person in one.people for name, _ in person.classes}
    return [
        f"class {name} is held until {hold.until} ({hold.basis}): its encrypted values in trails stay readable, and the "
        "certificates say `partial`"
        for name, hold in sorted(graph.held_classes(now.date()).items())
        if name in encrypted
    ]


def unencrypted_problems(copies: Iterable[Copy]) -> list[str]:
    """Return the trails with rows from before their classes were configured: where these are readable no certificate is
    true."""
    found = [
        (copy.pipeline, trail.unencrypted_rows().rows)
        for copy in copies
        if (trail := copy.trail_erasure) is not None and copy.version() is not None
    ]
    return [
        f"the trail of pipeline {pipeline} has {rows:,} rows from before a class was configured, which are not encrypted: "
        f"run `deltarelay audit encrypt --pipeline {pipeline}`"
        for pipeline, rows in found
        if rows
    ]


def _table_id(spark: SparkSession, table: str) -> str | None:
    try:
        return ChangeFeed(spark, table).log.metadata().table_id
    except (SourceError, ConfigError):
        return None  # it does not exist yet, or its pipeline cannot read it either
