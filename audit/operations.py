"""Operations of Delta tables, by the names that Delta and delta-rs write into the log: which can hide something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["HIDING", "OPEN"]

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
