"""Questions of auditors and privacy officers. Each is a function of the trail that returns a DataFrame.

    from audit.queries.questions import history
    history(trail, {"customer_id": 7}).select("version", "change_type", "operation", "row.name").show()

``QUERIES`` has them by the name that ``deltarelay audit query NAME`` takes. Versions are versions of the source. Times
must have a time zone. Rows of the source are structs, ``row``, ``before`` and ``after``, so that their columns do not
collide with columns of the answer; only ``as_of`` and ``record_as_of`` return the columns themselves.

An event whose values were removed does not show which record it was about: the view and ``deletes`` include it with a
row that is NULL; questions about records cannot. ``count_removed_values`` returns the number of such events;
``removals`` shows who removed the values, and why. Search values are passed to Spark as data: no key and no name of a
person occurs in a query plan."""

from audit.queries.questions.actors import actor_activity, actors, deletes, deletes_without_ticket, hiding_operations
from audit.queries.questions.catalog import QUERIES, Query
from audit.queries.questions.completeness import (
    count_hidden_keys,
    count_removed_values,
    erasures,
    gaps,
    readings,
    removals,
)
from audit.queries.questions.moments import When
from audit.queries.questions.records import events_of, history, record_as_of
from audit.queries.questions.table import as_of, column_changes, diff

__all__ = [
    "QUERIES",
    "Query",
    "When",
    "actor_activity",
    "actors",
    "as_of",
    "column_changes",
    "count_hidden_keys",
    "count_removed_values",
    "deletes",
    "deletes_without_ticket",
    "diff",
    "erasures",
    "events_of",
    "gaps",
    "hiding_operations",
    "history",
    "readings",
    "record_as_of",
    "removals",
]
