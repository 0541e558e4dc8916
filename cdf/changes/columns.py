"""The vocabulary of Delta's change data feed. These names are spelled here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "CHANGE_TYPE",
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
    "quoted",
]

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
METADATA_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""Delta refuses to enable the feed on a table that has a column of one of these names, so they never collide."""

INSERT = "insert"
UPDATE_PREIMAGE = "update_preimage"
UPDATE_POSTIMAGE = "update_postimage"
DELETE = "delete"

UPDATE = "update"
"""Only in a net effect: the key was there before the window and is there after it."""

TRANSIENT = "transient"
"""Only in a net effect that is asked for it: the window inserts the key first and deletes it last."""

CONFLICTS = "_change_conflicts"
"""Only in a net effect: how often, within the window, a change of this key contradicted the one before it."""


def quoted(name: str) -> Column:
    """A column by its exact name: dots and backticks are part of it."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
