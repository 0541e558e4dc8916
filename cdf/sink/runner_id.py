"""The id of a runner that holds a lease: unique, and it says when the runner began."""

from __future__ import annotations

import datetime as dt
import random
import uuid

__all__ = ["create_runner_id", "read_start"]

_EPOCH = dt.datetime(1582, 10, 15, tzinfo=dt.UTC)
"""The beginning of the time in a UUID of version 1."""
_RANDOM_NODE = 1 << 40
"""The bit that marks a node as random, so that no address of a network card is in the id."""


def create_runner_id() -> str:
    return uuid.uuid1(node=random.SystemRandom().getrandbits(48) | _RANDOM_NODE).hex


def read_start(runner_id: str) -> dt.datetime | None:
    """When the runner began, by its own clock; None for an id of an earlier release."""
    try:
        found = uuid.UUID(runner_id)
    except ValueError:
        return None
    return _EPOCH + dt.timedelta(microseconds=found.time // 10) if found.version == 1 else None
