"""Operations of Delta tables, by the names that Delta and delta-rs write into the log: which can hide something."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from audit.trail.redaction import parse_object

__all__ = ["HIDING", "OPEN", "why_hiding"]

HIDING: Mapping[str, Sequence[str]] = {
    "the table is what it was before: later rows are out of sight": ("RESTORE",),
    "files of earlier versions are deleted": ("VACUUM START", "VACUUM END"),
    "files that were gone are forgotten": ("FSCK",),
    "properties rule what is kept, and for how long": ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"),
    "a property of the table can go with its feature": ("DROP FEATURE",),
    "the table was made anew": (
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CLONE",
    ),
    "columns can be gone": ("DROP COLUMNS", "REPLACE COLUMNS", "UPDATE SCHEMA"),
    "what a column held goes on under another name": ("RENAME COLUMN",),
    "rows that were deleted leave the files": ("REORG",),
}
"""Why → operations."""
OPEN = (
    "ADD COLUMN", "ADD COLUMNS", "ADD CONSTRAINT", "ADD FEATURE", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY",
    "COMPUTE STATS", "CONVERT", "CREATE TABLE", "CREATE TABLE AS SELECT", "DELETE", "DOMAIN METADATA CLEANUP",
    "DROP CONSTRAINT", "MERGE", "OPTIMIZE", "OPTIMIZE CHECKPOINT", "REMOVE COLUMN MAPPING", "REORG TABLE UPGRADE UNIFORM",
    "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "STREAMING UPDATE", "TRUNCATE", "UPDATE", "UPGRADE PROTOCOL",
    "WRITE",
)  # fmt: skip
"""Operations that hide nothing: the rows that they change are in the feed."""

_REASONS = {operation: why for why, operations in HIDING.items() for operation in operations}
_FEED = "delta.enableChangeDataFeed"


def why_hiding(operation: str | None, parameters: str | None) -> str | None:
    """Why an operation can take something out of sight; None where it cannot. ``parameters``: as a record has them, JSON."""
    if operation is None:
        return "the log does not tell what was done"
    if operation in ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES") and _FEED in _properties(parameters):
        return "the change feed was switched"
    return _REASONS.get(operation, None if operation in OPEN else "what this operation does is not known here")


def _properties(parameters: str | None) -> str:
    return json.dumps(parse_object(parameters).get("properties", ""))
