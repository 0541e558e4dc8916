"""Checks whether rows can be erased from a table as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.erasure.find.tables import column_in
from cdf.errors import ConfigError
from cdf.source.single_writer import require_writer
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.erasure.model import PersonalTable

__all__ = ["inspect_table"]


def inspect_table(spark: SparkSession, table: PersonalTable) -> list[str]:
    """Return why rows cannot be erased from the table as it is; empty where they can. Raises TableNotFound."""
    feed = ChangeFeed(spark, table.table)
    metadata = feed.log.metadata()
    schema, properties, problems = metadata.schema, metadata.properties, []
    if properties.get("delta.appendOnly", "false").lower() == "true":
        problems.append(f"{table.table} is append-only (delta.appendOnly = true): no row can be erased")
    if not metadata.feed_enabled:
        problems.append(
            f"the change feed of {table.table} is off: no sink would receive the deletes "
            f"(`deltarelay feed enable {table.table}`)"
        )
    if quoted_names := [name for name in schema.names if "`" in name]:
        # With the change feed enabled, Delta's MERGE uses such a name without quoting it
        problems.append(
            f"{table.table} has a backquote in a column's name ({', '.join(quoted_names)}): Delta's MERGE fails on it"
        )
    emptied: list[str] = []
    for person in table.people:
        if person.on_erase == "nullify":
            emptied += person.personal
            if not person.personal:
                problems.append(f"{table.table} has `on_erase: nullify`, and `personal` names no column")
    not_nullable = [
        one for name in dict.fromkeys(emptied) if (one := column_in(schema.names, name)) and not schema[one].nullable
    ]
    problems += [f"{table.table}.{one} is NOT NULL and cannot be emptied" for one in not_nullable]
    named = dict.fromkeys([*(person.column for person in table.people), *emptied])
    problems += [f"{table.table} has no column {name}" for name in named if column_in(schema.names, name) is None]
    try:
        require_writer(spark, feed.location)
    except ConfigError as error:
        problems.append(error.message)
    return problems
