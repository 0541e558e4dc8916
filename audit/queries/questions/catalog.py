"""The questions by the names that ``deltarelay audit query`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.queries.questions.actors import actor_activity, actors, deletes, deletes_without_ticket, hiding_operations
from audit.queries.questions.completeness import erasures, gaps, readings, removals
from audit.queries.questions.records import events_of, history, record_as_of
from audit.queries.questions.table import as_of, column_changes, diff

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


__all__ = ["QUERIES", "Query"]


@dataclass(frozen=True, slots=True)
class Query:
    """A question and its parameters."""

    ask: Callable[..., DataFrame]
    parameters: tuple[str, ...]
    """Of ``key`` (columns), ``record`` (columns with values), ``when``, ``first``, ``second``, ``version``, ``index``,
    ``column``, ``actor``, ``since``, ``until``; ``index`` and the last two may be left out."""
    shows_values: bool
    """Whether the answer contains values of the source's rows."""

    @property
    def question(self) -> str:
        return (self.ask.__doc__ or "").partition("\n")[0]


QUERIES: Mapping[str, Query] = {
    "history": Query(history, ("record",), True),
    "events-of": Query(events_of, ("version", "index"), True),
    "record-as-of": Query(record_as_of, ("record", "when"), True),
    "as-of": Query(as_of, ("key", "when"), True),
    "diff": Query(diff, ("key", "first", "second"), True),
    "column-changes": Query(column_changes, ("key", "column"), True),
    "deletes": Query(deletes, ("since", "until"), True),
    "deletes-without-ticket": Query(deletes_without_ticket, ("since", "until"), False),
    "actor": Query(actor_activity, ("actor", "since", "until"), False),
    "actors": Query(actors, (), False),
    "hiding-operations": Query(hiding_operations, ("since", "until"), False),
    "gaps": Query(gaps, (), False),
    "removals": Query(removals, (), False),
    "erasures": Query(erasures, (), False),
    "readings": Query(readings, (), False),
}
"""Whether the trail is intact, matches its source and agrees with every sink is checked by the commands ``audit verify``,
``audit reconcile`` and ``audit sinks``."""
