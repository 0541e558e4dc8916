"""Whether a window that conflicts with the target may be applied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import ConflictFound
from cdf.sink import Conflicts
from connectors.postgres.options import OnConflict
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.state.position import read_highest_former_version

if TYPE_CHECKING:
    from cdf.changes.window import Window

__all__ = ["check_conflicts"]

Connection = psycopg.Connection[Any]


def check_conflicts(
    connection: Connection,
    target: TargetName,
    window: Window,
    conflicts: Conflicts,
    *,
    on_conflict: OnConflict,
    is_replay: bool,
) -> None:
    """Raise ConflictFound for conflicts that the mode does not allow.

    The conflicts of a filtered window are only counted, because it may delete rows whose inserts were left out. An erasing
    commit may delete rows that an initial copy or a replay left out before.
    """
    if window.filtered:
        return
    if any(commit.erasing for commit in window.commits):
        conflicts = replace(conflicts, delete_met_none=0)
    if on_conflict == "refuse" and conflicts.total:
        raise ConflictFound(
            f"version {window.first} to {window.last} of {window.table} contradicts {target}: " + _describe(conflicts),
            hint="run `deltarelay verify` to see which rows differ; `conflicts: report` applies these changes and counts "
            "them",
            conflicts=conflicts.to_dict(),
        )
    if on_conflict != "refuse_duplicates":
        return
    met = conflicts.insert_met_row
    if met and (is_replay or window.first <= (read_highest_former_version(connection, str(target)) or -1)):
        met = 0  # these rows were inserted before the position was moved back
    if (duplicates := Conflicts(insert_met_row=met, within_window=conflicts.within_window)).total:
        raise ConflictFound(
            f"version {window.first} to {window.last} of {window.table} inserts keys whose rows have not been deleted "
            f"({_describe(duplicates)}): the source holds a key in two rows, or another writer fills {target}",
            hint="look for keys that the source holds twice, repair the source, and rebuild the target with "
            "`deltarelay run --reload`; `conflicts: report` applies the last change of each key, also a delete, and counts "
            "the conflicts",
            conflicts=conflicts.to_dict(),
        )


def _describe(conflicts: Conflicts) -> str:
    words = {
        "insert_met_row": "inserts of existing rows",
        "update_met_none": "updates of missing rows",
        "delete_met_none": "deletes of missing rows",
        "within_window": "changes contradict each other",
    }
    return ", ".join(f"{count} {words[name]}" for name, count in conflicts.to_dict().items() if count)
