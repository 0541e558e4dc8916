"""What a sink has been told to do where several things could be meant. Imports no driver."""

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
"""``refuse_duplicates``: stop at a key that is put where its row is, and count the other contradictions."""

REJECT_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Modes:
    deletes: Deletes = "hard"
    """``soft``: the row stays and is marked; ``ignore``: it stays as it is."""
    key_changes: KeyChanges = "follow"
    schema_changes: SchemaChanges = "follow"
    rejects: Rejects = "refuse"
    """``dead_letter``: a row that cannot be stored is set aside, and the others of its window are applied."""
    reject_limit: int = REJECT_LIMIT
    """So many rows of one target may be set aside at a time; one more stops the pipeline."""
    reject_rows: bool = False
    """Whether the row itself is kept with its dead letter; its key always is."""

    @property
    def allowed(self) -> frozenset[ChangeKind]:
        """The schema changes that the target goes along with."""
        if self.schema_changes == "refuse":
            return frozenset()
        return frozenset({ChangeKind.ADD_COLUMN}) if self.schema_changes == "add_columns" else frozenset(ChangeKind)

    @property
    def sets_aside(self) -> bool:
        return self.rejects == "dead_letter"
