"""Find the rows that the target refuses: apply all rows, and halve each part that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import psycopg

from connectors.postgres.sqlstates import CLASHES, is_row_at_fault

__all__ = ["Pages", "Rejected", "bisect"]

_CLASHING = {error.sqlstate for error in CLASHES}


@dataclass(frozen=True, slots=True)
class Rejected:
    """A staged row by its address (ctid), and why the target refused it."""

    address: str
    sqlstate: str
    column: str | None
    constraint: str | None

    @classmethod
    def of(cls, address: str, error: psycopg.Error) -> Rejected:
        return cls(address, error.sqlstate or "XX000", error.diag.column_name, error.diag.constraint_name)

    @property
    def clashes(self) -> bool:
        return self.sqlstate in _CLASHING


@dataclass(frozen=True, slots=True)
class Pages:
    """The rows of a table by its pages. Row addresses are listed for one page at a time, to limit the memory used."""

    pages: range
    rows_of: Callable[[str, str], Sequence[str]]
    """The addresses of the rows between two addresses."""


def bisect(
    rows: Pages | Sequence[str],
    put: Callable[[str, str], None],
    *,
    limit: int,
    unless: tuple[type[psycopg.Error], ...] = (),
) -> list[Rejected]:
    """Call ``put`` for all rows between two addresses; halve a part that fails, until each failing row is alone. Stops as
    soon as more than ``limit`` rows have failed. Errors of the types ``unless`` are raised."""
    failed: list[Rejected] = []
    stack = [rows]
    while stack and len(failed) <= limit:
        part = stack.pop()
        if not (part.pages if isinstance(part, Pages) else part):
            continue
        low, high = _bounds(part)
        try:
            put(low, high)
        except psycopg.Error as error:
            if not is_row_at_fault(error) or isinstance(error, unless):
                raise
            if isinstance(part, Pages) and len(part.pages) == 1:
                part = part.rows_of(low, high)
                if not part:
                    raise  # none of these rows causes the error
            if not isinstance(part, Pages) and len(part) == 1:
                failed.append(Rejected.of(part[0], error))
            else:
                stack += reversed(_halves(part))
    return failed


def _bounds(part: Pages | Sequence[str]) -> tuple[str, str]:
    if isinstance(part, Pages):
        return f"({part.pages[0]},0)", f"({part.pages[-1]},65535)"
    return part[0], part[-1]


def _halves(part: Pages | Sequence[str]) -> tuple[Pages | Sequence[str], Pages | Sequence[str]]:
    if isinstance(part, Pages):
        middle = len(part.pages) // 2
        return replace(part, pages=part.pages[:middle]), replace(part, pages=part.pages[middle:])
    return part[: len(part) // 2], part[len(part) // 2 :]
