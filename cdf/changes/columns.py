"""The names in Delta's change data feed. No other module spells them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "CHANGE_TYPE",
    "CHANGE_TYPES",
    "COMMIT_VERSION",
    "COMMIT_TIMESTAMP",
    "METADATA_COLUMNS",
    "INSERT",
    "UPDATE_PREIMAGE",
    "UPDATE_POSTIMAGE",
    "UPDATE",
    "DELETE",
    "TRANSIENT",
    "CONFLICTS",
    "quote_name",
    "quoted",
]

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
METADATA_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""Delta refuses to enable the feed on a table with a column of one of these names, so they never collide."""

INSERT = "insert"
UPDATE_PREIMAGE = "update_preimage"
UPDATE_POSTIMAGE = "update_postimage"
DELETE = "delete"
CHANGE_TYPES = frozenset({INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE})
"""All that a feed has."""

UPDATE = "update"
"""Only in a net effect: the key existed before the window and exists after it."""

TRANSIENT = "transient"
"""Only in a net effect with ``transients``: the window first inserts the key and finally deletes it."""

CONFLICTS = "_change_conflicts"
"""Only in a net effect: how many changes of this key in the window contradict the change before them."""


def quote_name(name: str) -> str:
    """The name in Spark's SQL and expressions: dots and backticks in it have no meaning."""
    return "`" + name.replace("`", "``") + "`"


def quoted(name: str) -> Column:
    """A column by its exact name."""
    from pyspark.sql import functions as F

    return F.col(quote_name(name))
