"""The records that the register returns, and the names under which it stores the steps of a run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from audit.erasure.model import State
from cdf.result import Result

__all__ = [
    "WHOLE_RUN",
    "Access",
    "Added",
    "Carrier",
    "Event",
    "Mark",
    "RequestStatus",
    "Run",
    "Step",
    "StepName",
    "pipeline_place",
    "request_place",
]


@dataclass(frozen=True, slots=True)
class Added(Result):
    """Ids, in the order in which they were given."""

    new: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestStatus(Result):
    """The status of a request: everything but the person."""

    id: str
    subject: str
    state: State
    run: str | None
    received: dt.date
    due: dt.date
    legal_basis: str
    requester: str
    approver: str | None
    waits_until: dt.datetime | None
    waits_for: str | None
    reason: str | None
    changed_at: dt.datetime
    overdue: bool
    """Past its due date (UTC) and not certified."""
    forgotten: bool
    """Its identifiers are destroyed: once its run is finished and it is certified."""
    returned_at: dt.datetime | None
    """When a pipeline last met the person again after the erasure; None: never."""
    returned_to: str | None
    """The source table of that pipeline."""


@dataclass(frozen=True, slots=True)
class Event(Result):
    state: State
    at: dt.datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run(Result):
    id: str
    plan_digest: str
    created_at: dt.datetime
    finished_at: dt.datetime | None
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step(Result):
    """A completed step of a run."""

    table: str
    """The place: a table, or ``pipeline NAME``, ``request ID``, or empty for the whole run."""
    step: str
    facts: Mapping[str, Any]
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Access(Result):
    """A report of the data held about a person was given out."""

    request: str
    subject: str
    at: dt.datetime
    role: str
    """Of the register's database."""
    reader: str
    digest: str
    counts: Mapping[str, int]


@dataclass(frozen=True, order=True, slots=True)
class Carrier(Result):
    """A pipeline that copies a table to a target, or did so before."""

    pipeline: str
    table: str
    target: str
    """In words, such as ``public.customers of warehouse (postgres)``."""


@dataclass(frozen=True, slots=True)
class Mark(Result):
    """The person with this mark must not come back before ``until``."""

    mark: bytes = field(repr=False)
    subject: str
    name: str
    request: str
    until: dt.date


WHOLE_RUN = ""
"""The place of a step that is not about one table, pipeline or request."""


class StepName(StrEnum):
    RESOLVE = "resolve"
    DELETING = "deleting"
    """Stored before the first row is deleted: a run that dies during the deletes keeps its requests."""
    KEYS_FOUND = "shred of"
    """Which keys are to be destroyed."""
    KEYS_DESTROYED = "shred"
    KEYS_FOUND_AGAIN = "shred again of"
    KEYS_DESTROYED_AGAIN = "shred again"
    DELETE = "delete"
    ERASING_COPY = "forgetting"
    """The erasure of a copy has begun."""
    ERASE_COPY = "forget"
    PURGING = "purging"
    """How far a purge has come."""
    PURGE = "purge"
    FOUND = "found"
    """What the last scan has found of a request."""
    ACCEPT = "accept"
    """The decision that these findings may stay."""
    SCAN = "scan"


def request_place(id: str) -> str:
    """Return the place of a step that is about one request."""
    return f"request {id}"


def pipeline_place(pipeline: str) -> str:
    """Return the place of a step that is about one pipeline."""
    return f"pipeline {pipeline}"
