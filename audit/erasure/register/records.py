"""The records that the register returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.erasure.model import State
from cdf.result import Result

__all__ = ["Access", "Added", "Carrier", "Event", "Mark", "RequestStatus", "Run", "Step"]


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
