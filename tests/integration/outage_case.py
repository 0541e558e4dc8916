"""One story for every outage: a window that is to arrive whatever happens, and the next one as if nothing had been."""

from __future__ import annotations

from typing import Any

from cdf.sink import Conflicts
from cdf.testing import delete, insert, update
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import names, person, position

A, B, C = person(1, "xanadu-a"), person(2, "xanadu-b"), person(3, "xanadu-c")
A2, B2 = person(1, "xanadu-new"), person(2, "xanadu-newer")

SECOND = {1: "xanadu-new", 2: "xanadu-b"}


def second(people: Any) -> Any:
    return people.window(2, [insert(B), update(A, A2)])


def goes_on(pg: Pg, sink: PostgresSink, table: Any) -> None:
    """The next window as if nothing had been."""
    assert (names(pg), position(pg)) == (SECOND, 2)
    applied = sink.apply(table.window(3, [insert(C), delete(A2)]))
    assert applied.conflicts == Conflicts()
    assert (names(pg), position(pg)) == ({2: "xanadu-b", 3: "xanadu-c"}, 3)
