"""Operations of Delta tables that can hide data, by the names that Delta and delta-rs write into the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from audit.trail.redaction import parse_object

__all__ = ["HIDING", "OPEN", "why_hiding"]

HIDING: Mapping[str, Sequence[str]] = {
    "the table was restored to an earlier state: later rows are hidden": ("RESTORE",),
    "files of earlier versions are deleted": ("VACUUM START", "VACUUM END"),
    "entries of missing files are removed from the log": ("FSCK",),
    "properties control what is retained, and for how long": ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"),
    "a table feature was removed, and properties of the table with it": ("DROP FEATURE",),
    "the table was replaced": (
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CLONE",
    ),
    "columns may have been removed": ("DROP COLUMNS", "REPLACE COLUMNS", "UPDATE SCHEMA"),
    "a column was renamed": ("RENAME COLUMN",),
    "deleted rows are removed from the files": ("REORG",),
}
"""Operations by reason."""
OPEN = (
    "ADD COLUMN", "ADD COLUMNS", "ADD CONSTRAINT", "ADD FEATURE", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY",
    "COMPUTE STATS", "CONVERT", "CREATE TABLE", "CREATE TABLE AS SELECT", "DELETE", "DOMAIN METADATA CLEANUP",
    "DROP CONSTRAINT", "MERGE", "OPTIMIZE", "OPTIMIZE CHECKPOINT", "REMOVE COLUMN MAPPING", "REORG TABLE UPGRADE UNIFORM",
    "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "STREAMING UPDATE", "TRUNCATE", "UPDATE", "UPGRADE PROTOCOL",
    "WRITE",
)  # fmt: skip
"""Operations that hide nothing: the change feed has the rows that they change."""

_REASONS = {operation: why for why, operations in HIDING.items() for operation in operations}
_FEED = "delta.enableChangeDataFeed"


def why_hiding(operation: str | None, parameters: str | None) -> str | None:
    """Why an operation can hide data; None where it cannot. ``parameters``: JSON, as a record has them."""
    if operation is None:
        return "the log does not name the operation"
    if operation in ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES") and _FEED in _properties(parameters):
        return "the change feed was enabled or disabled"
    return _REASONS.get(operation, None if operation in OPEN else "deltarelay does not know this operation")


def _properties(parameters: str | None) -> str:
    return json.dumps(parse_object(parameters).get("properties", ""))
