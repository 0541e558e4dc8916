"""The PostgreSQL table from which a person is erased, with the settings that decide what it retains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres.column_mapping import DELETED_AT

if TYPE_CHECKING:
    from audit.erasure.sink_contract import ErasureTask
    from connectors.postgres.client import Session
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.options import Deletes
    from connectors.postgres.sql_parts import TargetName

__all__ = ["ErasureTarget"]


@dataclass(frozen=True, slots=True)
class ErasureTarget:
    session: Session
    columns: Columns
    deletes: Deletes

    @property
    def name(self) -> TargetName:
        return self.session.target

    def personal_columns(self, task: ErasureTask, found: Mapping[str, ColumnType]) -> list[str]:
        """Return the personal columns that the target has and that are not in the key, by the source's names."""
        return [
            name
            for name in task.personal
            if name not in task.key and self.columns.includes(name) and self.columns.target_name(name) in found
        ]

    def retained_condition(self, found: Mapping[str, ColumnType]) -> sql.Composable | None:
        """Return the condition of the rows (``t``) that the target retains on purpose, including rows that the source has
        lost; None where it retains none."""
        if self.deletes == "soft" and DELETED_AT in found:
            return sql.SQL("t.{} is not null").format(sql.Identifier(DELETED_AT))
        return sql.SQL("true") if self.deletes == "ignore" else None
