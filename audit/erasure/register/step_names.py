"""The steps of an erasure run, by the names under which the register stores them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["WHOLE_RUN", "StepName", "pipeline_place", "request_place"]

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
