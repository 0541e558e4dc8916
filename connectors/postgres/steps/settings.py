"""The settings of one PostgreSQL sink."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.postgres.column_mapping import DELETED_AT, Columns
from connectors.postgres.options import Modes, OnConflict

__all__ = ["SinkSettings"]


@dataclass(frozen=True, slots=True)
class SinkSettings:
    columns: Columns
    modes: Modes
    conflicts: OnConflict
    pipeline: str | None
    """Overrides the pipeline's own name in our tables."""
    small_window_bytes: int

    @property
    def own(self) -> tuple[str, ...]:
        """The metadata columns that the target has."""
        return (*self.columns.own, *([DELETED_AT] if self.modes.deletes == "soft" else []))
