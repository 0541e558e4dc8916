"""What an erasure would do, before anything is done: rows and files per table and request, what holds it up, when it ends.

A plan goes into a file that somebody reads and approves, so it names requests by their ids and nobody by an identifier.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.erasure.find.resolve import Resolution
from audit.erasure.find.retained_rows import kept_by
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.model import Link
from audit.erasure.retention import table_purge_schedule
from audit.files import reason, write_new
from audit.trail.redaction import canonical_json
from cdf.errors import ConfigError, SourceError
from cdf.result import Result
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.erasure.find.copies import Copy
    from audit.erasure.model import Request
    from audit.erasure.register.store import Run
    from audit.erasure.table_graph import Graph

__all__ = [
    "Plan",
    "PlannedSink",
    "PlannedTable",
    "check_plan",
    "check_tables",
    "digest_of",
    "make_plan",
    "not_sealed",
    "read_plan",
    "write_plan",
]


@dataclass(frozen=True, slots=True)
class PlannedTable(Result):
    table: str
    version: int
    """Of the table, when it was looked at."""
    rows: Mapping[str, int]
    """By request."""
    files: int
    on_erase: str
    held_until: dt.date | None = None
    held_for: str | None = None
    files_gone_on: dt.date | None = None
    """When the files of today can be purged, were the rows erased today."""
    log_gone_on: dt.date | None = None


@dataclass(frozen=True, slots=True)
class PlannedSink(Result):
    pipeline: str
    table: str
    forgets: bool
    """False: this kind of sink gets the deletes, and cannot be told to forget what it had before."""
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
    """Requests that no row belongs to; copies, history and files are looked through all the same."""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What `erase run` would refuse."""

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
    known: Sequence[tuple[str, str, str]],
    *,
    run: str,
    approve_above: int,
    now: dt.datetime,
) -> Plan:
    """Reads only. ``known``: (request, identifier, value) that were learned about the persons before."""
    from delta.tables import DeltaTable

    tables = graph.tables_of(*(request.subject for request in requests))
    gone = [one.table for one in tables if not DeltaTable.isDeltaTable(spark, one.table)]
    if gone:
        raise ConfigError(
            f"{', '.join(gone)}: no Delta table is there", hint="name the tables of `erasure.tables` as they are"
        )
    resolution = Resolution.of(spark, tables, graph.subjects, requests, known, kept=kept_by(copies))
    counts = resolution.counts()
    warnings, problems, planned = [], [], []
    for one in tables:
        rows = {request: found.rows for (table, request), found in counts.items() if table == one.table and found.rows}
        holds = graph.held(one.table, now.date())
        told = table_purge_schedule(spark, one.table, now=now)
        planned.append(
            PlannedTable(
                table=one.table,
                version=resolution.versions[one.table],
                rows=rows,
                files=max((found.files for (table, _), found in counts.items() if table == one.table), default=0),
                on_erase=one.what_happens,
                held_until=max((hold.until for hold in holds), default=None),
                held_for="; ".join(hold.basis for hold in holds) or None,
                files_gone_on=told.files_on.date(),
                log_gone_on=told.log_on.date(),
            )
        )
        if not holds:
            problems += inspect_table(spark, one)
            if one.others and "delete" in one.what_happens and (several := resolution.naming_several(one.table)):
                warnings.append(
                    f"{one.table}: {several} rows go as a whole (on_erase: delete), with what they say of others"
                )
            warnings += [
                f"{one.table} has no identifier in `{person.column}`: rows that are put back into it alone are not noticed"
                for person in one.people
                if isinstance(person.path, Link) and not graph.subjects[person.subject].has(person.path.other)
            ]
        late = sorted(request.id for request in requests if request.due < max(told.files_on, told.log_on).date())
        if late and not holds:
            warnings.append(
                f"{one.table}: files and log go on {max(told.files_on, told.log_on).date()}, after {_some(late)} is due; "
                "delta.deletedFileRetentionDuration and delta.logRetentionDuration decide that"
            )
    approved = {request.id for request in requests if request.approver is not None}
    declared = {one.table for one in graph.order}
    reached = {one.table for one in tables}
    ids: dict[str | None, str] = {ChangeFeed(spark, one.table).log.metadata().table_id: one.table for one in tables}
    for copy in copies:
        if copy.table in declared:
            continue
        if (same := ids.get(_id_of(spark, copy.table))) is not None:
            problems.append(
                f"pipeline {copy.pipeline} carries {same} under another address, {copy.table}: give it the same one, or "
                "what the pipeline has written is not found"
            )
        else:
            warnings.append(
                f"pipeline {copy.pipeline} carries {copy.table}, which `erasure.tables` does not have: "
                "nothing is looked for in it"
            )
    sinks = tuple(
        PlannedSink(copy.pipeline, copy.table, copy.erasure is not None, copy.version())
        for copy in copies
        if copy.table in reached
    )
    sealed = {name for one in tables for person in one.people for name, _ in person.classes}
    warnings += [
        f"class {name} is held until {hold.until} ({hold.basis}): what trails have sealed of it stays readable, and the "
        "certificates say `partial`"
        for name, hold in sorted(graph.held_classes(now.date()).items())
        if name in sealed
    ]
    problems += not_sealed(copy for copy in copies if copy.table in reached)
    warnings += [f"{one.pipeline}: its sink cannot forget what it had before" for one in sinks if not one.forgets]
    return Plan(
        run=run,
        created_at=now,
        requests=tuple(request.id for request in requests),
        tables=tuple(planned),
        sinks=sinks,
        needs_approval={id: why for id, why in resolution.fan_out(approve_above).items() if id not in approved},
        not_found=tuple(request.id for request in requests if not any(request.id in one.rows for one in planned)),
        warnings=tuple(warnings),
        problems=tuple(problems),
    )


def not_sealed(copies: Iterable[Copy]) -> list[str]:
    """Of trails that seal: what they have from before a class was named. Where it is readable no certificate holds."""
    found = [
        (copy.pipeline, trail.unencrypted_rows().rows)
        for copy in copies
        if (trail := copy.trail_erasure) is not None and copy.version() is not None
    ]
    return [
        f"the trail of pipeline {pipeline} has {rows:,} rows from before a class was named, which are not sealed: "
        f"`deltarelay audit seal --pipeline {pipeline}`"
        for pipeline, rows in found
        if rows
    ]


def _id_of(spark: SparkSession, table: str) -> str | None:
    try:
        return ChangeFeed(spark, table).log.metadata().table_id
    except (SourceError, ConfigError):
        return None  # not there yet, or its pipeline cannot read it either


def check_tables(plan: Mapping[str, Any], tables: Collection[str]) -> None:
    """``tables``: those of the subjects, by the configuration. One that was planned and is configured no more would be
    left as it is under a certificate that does not name it."""
    if other := sorted({one["table"] for one in plan["tables"]} ^ set(tables)):
        raise ConfigError(
            f"`erasure.tables` is not what it was when the plan was made: {_some(other)}",
            hint="put it back until the run is over, or plan again",
        )


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")


# ── as a file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_plan(plan: Plan, path: Path) -> None:
    """Into a new file: a plan that was approved is not written over."""
    try:
        write_new(path, json.dumps({**plan.to_dict(), "digest": plan.digest}, indent=2) + "\n", mode=0o600)
    except FileExistsError as error:
        raise ConfigError(f"there is a file at {path} already", hint="name another one with --out") from error
    except OSError as error:
        raise ConfigError(f"the plan cannot be written to {path}: {reason(error)}") from error


def read_plan(path: Path) -> dict[str, Any]:
    """As it was written. Raises ConfigError where it is none, or was changed since."""
    try:
        if not path.is_file():  # a process that opens a pipe waits without end
            raise FileNotFoundError
        read = json.loads(path.read_text())
        document: dict[str, Any] = read if isinstance(read, dict) else {}
        digest = document.pop("digest", None)
        found = None if digest is None else digest_of(document)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the plan {path} cannot be read", hint="`deltarelay erase plan` writes one") from error
    except (ValueError, TypeError, RecursionError):  # no JSON, or with values that no plan has
        found = None
    if found is None:
        raise ConfigError(f"{path} is no plan", hint="`deltarelay erase plan` writes one")
    if found != digest:
        raise ConfigError(f"the plan {path} was changed after it was made", hint="plan again")
    return document


def check_plan(run: Run, plan: Mapping[str, Any], given: Mapping[str, Any] | None) -> None:
    """The plan of a run as the register has it is what is done; ``given``, of a file, must be the same.

    Anybody can compute the digest of an edited file, so the file only names its run. Raises ConfigError where they differ,
    or where requests of the plan are no longer in the run.
    """
    if digest_of(plan) != run.plan_digest:
        raise ConfigError(f"the plan of run {run.id} in the register is not the one that was made", hint="plan again")
    if given is not None and digest_of(given) != run.plan_digest:
        raise ConfigError(
            f"the file is not the plan of run {run.id}: it differs from the one in the register",
            hint=f"`deltarelay erase run {run.id}` runs the plan as it was made; or plan again",
        )
    if moved := sorted(set(plan["requests"]) ^ set(run.requests)):
        raise ConfigError(
            f"run {run.id} no longer has the requests of its plan: {_some(moved)}",
            hint="plan again: another plan has taken them over",
            requests=moved,
        )
