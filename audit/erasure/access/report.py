"""The data held about one person (Art. 15 GDPR): rows, recipients, retention periods, history.

It finds rows like the plan of an erasure, in the same tables, copies and trails. Where rows name several people, what they
say about the others is left out (Art. 15(4)), and a request that may be about two people needs an approver. Encrypted values
of a trail are decrypted with the person's own keys. The exception is identifiers of rows that the source has lost: they are
decrypted in Spark's tasks to find whose rows they are, as the plan does, and nothing about other people is shown or stored.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

from audit.erasure.find.known_values import without_links
from audit.erasure.find.resolve import Resolution
from audit.erasure.find.retained_rows import rows_from_copies
from audit.erasure.find.tables import column_in
from audit.erasure.retention import table_purge_schedule
from audit.identifiers import normalise, stored_forms
from audit.trail.redaction import canonical_json
from cdf.errors import ConfigError
from cdf.result import Result, plain
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.encryption.key_registry import Registry, States
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import PersonalTable, Request
    from audit.erasure.sink_contract import TrailErasure
    from audit.erasure.table_graph import Graph

__all__ = ["AccessReport", "HeldRows", "Identifier", "PastRows", "Recipient", "TableHeld", "access_report"]

NOT_TOLD = (
    "the purposes of the processing and its legal bases",
    "the source of the data, if it is not the person",
    "the rights of the person, and the supervisory authority for complaints",
    "automated decisions, and transfers to third countries",
    "records in topics, and dead-lettered rows of a target: an erasure removes them, but this report does not show them",
    "copies that deltarelay does not know: backups, exports, tables and sinks that are not in its configuration",
)
"""What Art. 15 requires in addition: the controller adds it to the answer."""
_FACTS = frozenset({"_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable"})
"""Columns of events besides the columns of the source."""


@dataclass(frozen=True, slots=True)
class Identifier(Result):
    name: str
    value: str = field(repr=False)
    given: bool
    """False: it was learned from rows of the person."""


@dataclass(frozen=True, slots=True)
class HeldRows(Result):
    """``rows``: JSON values by column. ``withheld``: columns about other people, which are left out."""

    column: str
    """The column that identifies the person of a row."""
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableHeld(Result):
    table: str
    version: int
    """The version that was read."""
    held: tuple[HeldRows, ...]
    """For each column that identifies a person."""
    on_erase: str
    held_until: dt.date | None
    held_for: str | None
    held_classes: Mapping[str, dt.date]
    """By class under a hold: until when trails retain the keys of its columns."""
    files_gone_on: dt.date
    """When its files no longer contain rows that are deleted today."""
    log_gone_on: dt.date


@dataclass(frozen=True, slots=True)
class Recipient(Result):
    """A target to which changes of one of the tables are replicated."""

    pipeline: str
    table: str
    target: str
    version: int | None
    """The version of the table that it has reached; None: none yet, or unknown."""
    forgets: bool
    """Whether its sink supports erasure of what it had before."""
    kept: tuple[HeldRows, ...]
    """Retained rows that the table may have lost."""


@dataclass(frozen=True, slots=True)
class PastRows(Result):
    """Events of a trail. ``_unreadable`` of an event says by column why a value is not shown."""

    pipeline: str
    trail: str
    table: str
    events: tuple[HeldRows, ...]


@dataclass(frozen=True, slots=True)
class AccessReport(Result):
    request: str
    subject: str
    received: dt.date
    due: dt.date
    made_at: dt.datetime
    made_by: str
    identifiers: tuple[Identifier, ...]
    tables: tuple[TableHeld, ...]
    recipients: tuple[Recipient, ...]
    history: tuple[PastRows, ...]
    not_told: tuple[str, ...] = NOT_TOLD

    @property
    def digest(self) -> str:
        """Return the hash of the report, which the register stores."""
        return hashlib.sha256(canonical_json(plain(self.to_dict()))).hexdigest()

    def counts(self) -> dict[str, int]:
        rows = sum(len(one.rows) for table in self.tables for one in table.held)
        kept = sum(len(one.rows) for recipient in self.recipients for one in recipient.kept)
        events = sum(len(one.rows) for past in self.history for one in past.events)
        return {"tables": len(self.tables), "rows": rows, "kept": kept, "events": events}


@dataclass(frozen=True, slots=True)
class _Query:
    """The data subject of the report, and how their rows are found."""

    graph: Graph
    resolution: Resolution
    copies: Sequence[Copy]
    tokens: frozenset[bytes]
    states: Callable[[str], States] | None
    """Looks up keys for a trail, given its path."""

    def held(self, one: PersonalTable, at: int, rows: DataFrame) -> HeldRows:
        """Return ``rows`` without what they say about others. ``at``: which of the people whom the table's rows name."""
        own, others = one.people[at], self.others(one, at)
        theirs, foreign = self.graph.about(own), self.graph.about(*others)
        # Any column of a row that is deleted with another person may be about that person
        whole = any(other.on_erase == "delete" and not (other.personal or other.classes) for other in others)
        withheld = [
            name
            for name in rows.columns
            if name.casefold() not in theirs and name not in _FACTS and (whole or name.casefold() in foreign)
        ]
        return HeldRows(own.column, _as_json(rows.drop(*withheld)), tuple(withheld))

    def others(self, one: PersonalTable, at: int) -> list[PersonalTable]:
        """Return the other people whom the table's rows name, also of other subjects."""
        every = (self.graph.table(one.table) or one).people
        return [other for other in every if other.column != one.people[at].column]


def access_report(
    spark: SparkSession,
    graph: Graph,
    copies: Sequence[Copy],
    request: Request,
    known: Sequence[tuple[str, str, str]],
    *,
    targets: Mapping[str, str],
    registry: Registry | None,
    reader: str,
    approve_above: int,
    now: dt.datetime,
    progress: Callable[[str], None] = lambda _: None,
) -> AccessReport:
    """Reads only, except that the registry records which keys it returns. ``known``: (request, identifier, value) that were
    learned about the person before. ``targets``: the targets of the pipelines, in words. ``reader``: who receives the keys.
    Raises ConfigError where the request has no approver and needs one, as for an erasure: it may be about another person as
    well."""
    tables = graph.tables_of(request.subject)
    progress("looking for the rows")
    found = Resolution.of(spark, tables, graph.subjects, [request], known, retained=rows_from_copies(copies))
    with closing(found) as resolution:
        if request.approver is None and (why := resolution.fan_out(approve_above).get(request.id)):
            raise ConfigError(
                f"request {request.id} may be about more than one person ({why}), and no approver has been named",
                hint="check whose data these are, then run `deltarelay erase approve REQUEST --by NAME`, or name the "
                "approver in the column `approver` of the file with the request",
                requests=[request.id],
            )
        identifiers = _identifiers(graph, request, resolution.learned())
        query = _Query(
            graph,
            resolution,
            [copy for copy in copies if copy.table in {one.table for one in tables}],
            _tokens(graph, request, identifiers, registry),
            None if registry is None else _states(registry, request, reader),
        )
        held = []
        for one in tables:
            progress(f"reading {one.table}")
            held.append(_table(spark, query, one, now))
        recipients, history = [], []
        for copy in query.copies:
            progress(f"reading what {copy.pipeline} has written")
            one = next(each for each in tables if each.table == copy.table)
            recipients.append(_recipient(query, one, copy, targets[copy.pipeline]))
            if (trail := copy.trail_erasure) is not None and copy.version() is not None:
                history.append(_history(query, one, copy, trail))
        return AccessReport(
            request=request.id,
            subject=request.subject,
            received=request.received,
            due=request.due,
            made_at=now,
            made_by=f"deltarelay {metadata.version('deltarelay')}",
            identifiers=identifiers,
            tables=tuple(held),
            recipients=tuple(recipients),
            history=tuple(history),
        )


def _identifiers(graph: Graph, request: Request, learned: Iterable[tuple[str, str, str]]) -> tuple[Identifier, ...]:
    spelling = graph.subjects[request.subject].identifiers
    given = {(name, normalise(value, spelling[name])) for name, value in request.identifiers.items()}
    found = [(name, value) for _, name, value in without_links(list(learned))]
    new = sorted({(name, value) for name, value in found if (name, normalise(value, spelling[name])) not in given})
    return (
        *(Identifier(name, value, given=True) for name, value in sorted(request.identifiers.items())),
        *(Identifier(name, value, given=False) for name, value in new),
    )


def _tokens(
    graph: Graph, request: Request, identifiers: Sequence[Identifier], registry: Registry | None
) -> frozenset[bytes]:
    if registry is None:
        return frozenset()
    spelling = graph.subjects[request.subject].identifiers
    people = [[(one.name, form)] for one in identifiers for form in stored_forms(one.value, spelling[one.name])]
    return frozenset(token for token in registry.find_tokens(request.subject, people) if token is not None)


def _states(registry: Registry, request: Request, reader: str) -> Callable[[str], States]:
    def states(trail: str) -> States:
        purpose = f"access report, request {request.id}"[:200]
        return registry.open_reading(trail=trail, reader=reader, purpose=purpose, question="access report")

    return states


def _table(spark: SparkSession, query: _Query, one: PersonalTable, now: dt.datetime) -> TableHeld:
    holds, schedule = query.graph.held(one.table, now.date()), table_purge_schedule(spark, one.table, now=now)
    return TableHeld(
        table=one.table,
        version=query.resolution.versions[one.table],
        held=tuple(
            query.held(one, at, query.resolution.catch(one.table, query.resolution.rows(one.table), at))
            for at in range(len(one.people))
        ),
        on_erase=one.what_happens,
        held_until=max((hold.until for hold in holds), default=None),
        held_for="; ".join(hold.basis for hold in holds) or None,
        held_classes={
            name: hold.until
            for name, hold in sorted(query.graph.held_classes(now.date()).items())
            if name in {class_name for person in one.people for class_name, _ in person.classes}
        },
        files_gone_on=schedule.files_on.date(),
        log_gone_on=schedule.log_on.date(),
    )


def _recipient(query: _Query, one: PersonalTable, copy: Copy, target: str) -> Recipient:
    kept: list[HeldRows] = []
    version = copy.version()
    erasure = copy.erasure
    if erasure is not None and copy.trail_erasure is None and version is not None:
        feed = ChangeFeed(query.resolution.rows(one.table).sparkSession, one.table)
        columns = set(feed.log.metadata().schema.names)
        for part in erasure.retained_rows(feed, columns):
            if all(column_in(part.columns, person.column) for person in one.people):
                kept += [
                    query.held(one, at, query.resolution.catch(one.table, part, at)) for at in range(len(one.people))
                ]
    found = tuple(each for each in kept if each.rows)
    return Recipient(copy.pipeline, one.table, target, version, erasure is not None, found)


def _history(query: _Query, one: PersonalTable, copy: Copy, trail: TrailErasure) -> PastRows:
    events = []
    for at in range(len(one.people)):
        catch = partial(query.resolution.catch, one.table, person=at)
        encrypted = query.graph.encrypted_columns_of(one.people[at], query.others(one, at), query.tokens)
        rows = trail.read_history(catch, encrypted, query.states)
        events.append(query.held(one, at, rows))
    return PastRows(copy.pipeline, trail.path, one.table, tuple(each for each in events if each.rows))


def _as_json(rows: DataFrame) -> tuple[Mapping[str, Any], ...]:
    """NULL is null; a number with a fraction is a text, which keeps its digits, and so is what JSON has no form for."""
    from pyspark.sql import functions as F

    text = F.to_json(F.struct("*"), {"ignoreNullFields": "false", "timeZone": "UTC"})
    return tuple(json.loads(row[0], parse_float=str) for row in rows.select(text).collect())
