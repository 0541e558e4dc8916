"""The columns of staging tables, and the counts of the rows in them.

Each task attempt copies under its own id and reports how many rows it copied. Rows of an attempt that failed, was killed or
ran twice carry an id that is never read, and the applying transaction recounts the reported rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.changes.columns import DELETE, INSERT, TRANSIENT, UPDATE
from connectors.postgres.types import staging_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "ATTEMPT",
    "CODES",
    "COPY_ROWS",
    "OPERATION",
    "OPTIONAL",
    "REJECT",
    "REJECT_DIGEST",
    "REJECT_KEY",
    "REJECT_ROW",
    "TIMESTAMP",
    "UNEXPECTED",
    "VERSION",
    "Staged",
    "StagingOptions",
    "staging_columns",
]

ATTEMPT, OPERATION = "_attempt", "_operation"
VERSION, TIMESTAMP = "_version", "_timestamp"
"""Of the commit of the change; only with ``StagingOptions.commit``."""
REJECT, REJECT_KEY, REJECT_DIGEST, REJECT_ROW = "_reject", "_reject_key", "_reject_digest", "_reject_row"
"""Why a row cannot be stored, its key and the row itself; only with ``StagingOptions.rejects``."""
OPTIONAL = (VERSION, TIMESTAMP, REJECT, REJECT_KEY, REJECT_DIGEST, REJECT_ROW)
CODES = {INSERT: 1, UPDATE: 2, DELETE: 3, TRANSIENT: 4}
UNEXPECTED = 5
"""A transient key whose row the target holds: the row is deleted, and counted as one that an insert met."""
COPY_ROWS = 10_000
"""Rows per Arrow batch: ADBC encodes a whole batch before it sends it, and with larger ones the two do not overlap."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged rows of a window, as the tasks reported them."""

    attempts: tuple[str, ...] = ()
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    transients: int = 0
    conflicts: int = 0

    @staticmethod
    def counts() -> tuple[str, ...]:
        return ("inserts", "updates", "deletes", "transients", "conflicts")

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes + self.transients


@dataclass(frozen=True, slots=True)
class StagingOptions:
    """What is staged besides a change's operation and its columns."""

    commit: bool = False
    """Version and time of its commit."""
    rejects: bool = False
    """A row that PostgreSQL cannot store is marked, and copied with null values, instead of stopping the COPY."""
    reject_rows: bool = False
    """With ``rejects``: the whole row as JSON."""
    transients: bool = False
    """The keys that the window inserts first and deletes last: the target must hold no row under them."""
    files: bool = True
    """The tasks may decode Parquet files, instead of rows of Spark."""


def staging_columns(schema: StructType, options: StagingOptions) -> list[tuple[str, str]]:
    """Name and type of each column. The source's columns are numbered, so that their names cannot clash with ours."""
    own = [(ATTEMPT, "text"), (OPERATION, "smallint")]
    if options.commit:
        own += [(VERSION, "bigint"), (TIMESTAMP, "timestamp with time zone")]
    if options.rejects:
        own += [(REJECT, "text"), (REJECT_KEY, "text"), (REJECT_DIGEST, "text"), (REJECT_ROW, "text")]
    return own + [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]
