"""Values that the key registry returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cdf.result import Result

__all__ = ["DestroyedKeys", "Epoch", "KeyState", "Person", "PersonKey", "Reading", "RegistryStatus", "States"]

Person: TypeAlias = Sequence[tuple[str, str]]
"""(identifier, value as ``audit.identifiers.normalise`` returns it). The first one decides whose a row is."""


@dataclass(frozen=True, slots=True)
class PersonKey:
    """The key of a person for one class of columns."""

    key_id: bytes
    token: bytes
    class_name: str
    commitment: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of a key: active, with ``key``, or destroyed."""

    key_id: bytes
    class_name: str
    key: bytes | None = field(repr=False)
    shredded_at: dt.datetime | None = None
    shredded_by: str | None = None


States: TypeAlias = "Callable[[Iterable[bytes]], Mapping[bytes, KeyState]]"
"""A function that returns the states of keys by their ids."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A record of keys that were returned to a reader of encrypted values."""

    id: int
    at: dt.datetime
    role: str
    """Role of the session in the database."""
    reader: str
    purpose: str
    question: str
    keys: int


@dataclass(frozen=True, slots=True)
class DestroyedKeys(Result):
    keys: int
    """Number of keys that were destroyed."""
    subjects: int
    """Number of people who have no key any more; no identifier leads to their token."""


@dataclass(frozen=True, slots=True)
class Epoch(Result):
    epoch: int
    root: str
    began_at: dt.datetime
    ended_at: dt.datetime | None
    root_gone_on: dt.date | None
    keys: int
    """Number of active keys that are wrapped in this epoch."""


@dataclass(frozen=True, slots=True)
class RegistryStatus(Result):
    epochs: tuple[Epoch, ...]
    """The newest first."""
    subjects: int
    living: int
    """Number of active keys."""
    shredded: int
    """Number of destroyed keys."""
    unlinked: int
    """Number of active keys of tokens without an identifier: their links were removed, and no erasure would destroy them."""
