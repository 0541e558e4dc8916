"""Checks whether rows can be erased from a table as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.erasure.find.columns import column_in
from cdf.errors import ConfigError
from cdf.source.single_writer import require_writer
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.erasure.model import PersonalTable

__all__ = ["inspect_table"]


def inspect_table(spark: SparkSession, table: PersonalTable) -> list[str]:
    """Why nothing can be erased from the table as it is; empty where it can. Raises TableNotFound."""
    feed = ChangeFeed(spark, table.table)
    metadata = feed.log.metadata()
    schema, properties, problems = metadata.schema, metadata.properties, []
    if properties.get("delta.appendOnly", "false").lower() == "true":
        problems.append(f"{table.table} is append-only (delta.appendOnly = true): no row can be erased")
    if not metadata.feed_enabled:
        problems.append(
            f"the change feed of {table.table} is off: no sink would learn of the erasure "
            f"(`deltarelay feed enable {table.table}`)"
        )
    if odd := [name for name in schema.names if "`" in name]:
        # It makes up an attribute's name of it, unquoted, where the feed is on
        problems.append(
            f"{table.table} has a backquote in a column's name ({', '.join(odd)}): Delta's MERGE fails on it"
        )
    emptied: list[str] = []
    for person in table.people:
        if person.on_erase == "nullify":
            emptied += person.personal
            if not person.personal:
                problems.append(f"{table.table} is to be emptied (on_erase: nullify), and `personal` names no column")
    fixed = [
        one for name in dict.fromkeys(emptied) if (one := column_in(schema.names, name)) and not schema[one].nullable
    ]
    problems += [f"{table.table}.{one} is NOT NULL and cannot be emptied" for one in fixed]
    named = dict.fromkeys([*(person.column for person in table.people), *emptied])
    problems += [f"{table.table} has no column {name}" for name in named if column_in(schema.names, name) is None]
    try:
        require_writer(spark, feed.location)
    except ConfigError as error:
        problems.append(error.message)
    return problems
