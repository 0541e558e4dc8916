"""The modes of a PostgreSQL sink: deletes, key changes, schema changes, rejected rows, conflicts. Imports no driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdf.changes.schema_diff import ChangeKind

__all__ = ["Modes", "Deletes", "KeyChanges", "OnConflict", "SchemaChanges", "Rejects", "REJECT_LIMIT"]

Deletes = Literal["hard", "soft", "ignore"]
KeyChanges = Literal["follow", "refuse"]
SchemaChanges = Literal["follow", "add_columns", "refuse"]
Rejects = Literal["refuse", "dead_letter"]
OnConflict = Literal["refuse_duplicates", "report", "refuse"]
"""``refuse_duplicates``: stop if a key is inserted whose row the target holds, and count the other conflicts."""

REJECT_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Modes:
    deletes: Deletes = "hard"
    """``soft``: the row is kept and marked; ``ignore``: it is kept unchanged."""
    key_changes: KeyChanges = "follow"
    schema_changes: SchemaChanges = "follow"
    rejects: Rejects = "refuse"
    """``dead_letter``: a row that cannot be stored becomes a dead letter, and the other rows of its window are applied."""
    reject_limit: int = REJECT_LIMIT
    """Maximum number of dead letters of one target; one more stops the pipeline."""
    reject_rows: bool = False
    """Whether a dead letter contains the row; it always contains the key."""

    @property
    def followed_changes(self) -> frozenset[ChangeKind]:
        """The schema changes that the target follows."""
        if self.schema_changes == "refuse":
            return frozenset()
        return frozenset({ChangeKind.ADD_COLUMN}) if self.schema_changes == "add_columns" else frozenset(ChangeKind)

    @property
    def writes_dead_letters(self) -> bool:
        return self.rejects == "dead_letter"
