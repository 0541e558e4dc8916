"""Brakes: a window whose net effect would delete or change too much of its target is not applied.

A brake protects a target from a mistake at the source, such as a DELETE without a condition. A stopped window is not
applied; the next run judges it again. ``deltarelay approve`` lets exactly that window pass.

Judging costs nothing for most windows: the commit files say how many rows were deleted, and how many there were at least.
If that does not suffice, the change types are counted; only if these exceed what any target allows, the net effect is
counted, and then the source's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE
from cdf.errors import BrakeStopped, ConfigError, KeyViolation

if TYPE_CHECKING:
    from cdf.changes.window import Window

__all__ = ["MIN_ROWS", "Brakes", "judge_window"]

MIN_ROWS = 10_000
"""Shares are judged for targets with at least this many rows: in a small table half of the rows are few."""


@dataclass(frozen=True, slots=True)
class Brakes:
    """The most that one window may do to its target. None: no limit. Shares are of the target's rows before the window."""

    max_delete_rows: int | None = None
    max_delete_share: float | None = 0.5
    max_change_share: float | None = None
    """Inserts, updates and deletes together."""

    def __post_init__(self) -> None:
        if self.max_delete_rows is not None and self.max_delete_rows < 0:
            raise ConfigError(
                "brakes.max_delete_rows must not be negative", hint="set it to 0 or more, or leave it out"
            )
        hint = "0.5 is half of the target's rows"
        if self.max_delete_share is not None and not 0 <= self.max_delete_share <= 1:
            raise ConfigError("brakes.max_delete_share must be between 0 and 1", hint=hint)
        # No upper limit: rows that are inserted count as well, and can be more than the target has
        if self.max_change_share is not None and self.max_change_share < 0:
            raise ConfigError("brakes.max_change_share must not be negative", hint=hint)

    def harmless_deletes(self, rows: int = 0) -> float:
        """So many deletes exceed no limit, if the target holds at least so many rows."""
        limits = [float(self.max_delete_rows)] if self.max_delete_rows is not None else []
        if self.max_delete_share is not None:
            limits.append(self.max_delete_share * max(rows, MIN_ROWS))
        return min(limits, default=float("inf"))

    @property
    def harmless_changes(self) -> float:
        """So many changes exceed no limit, whatever the target holds."""
        return float("inf") if self.max_change_share is None else self.max_change_share * MIN_ROWS

    def find_excess(self, deletes: int, changes: int, rows: Callable[[], int]) -> str | None:
        """The first limit that a net effect exceeds, in words; None: it may be applied. ``rows``: those of the target."""
        if self.max_delete_rows is not None and deletes > self.max_delete_rows:
            return f"delete {deletes:,} rows, and brakes.max_delete_rows is {self.max_delete_rows:,}"
        judges_deletes = self.max_delete_share is not None and deletes > self.max_delete_share * MIN_ROWS
        judges_changes = self.max_change_share is not None and changes > self.max_change_share * MIN_ROWS
        if not (judges_deletes or judges_changes) or (total := rows()) < MIN_ROWS:
            return None
        for judged, count, what, share, name in (
            (judges_deletes, deletes, "delete", self.max_delete_share, "max_delete_share"),
            (judges_changes, changes, "change", self.max_change_share, "max_change_share"),
        ):
            if judged and share is not None and count > share * total:
                return f"{what} {count:,} of {total:,} rows ({count / total:.0%}), and brakes.{name} is {share:g}"
        return None


def judge_window(
    window: Window, brakes: Brakes, *, pipeline: str, rows_after: Callable[[], int]
) -> BrakeStopped | None:
    """The error with which a brake stops the window; None: it may be applied.

    ``rows_after``: counts the source's rows at the window's last version. From them and the net effect follow the rows
    before the window, also where the version before it can no longer be read.
    """
    if not window.has_changes or _says_log_harmless(window, brakes):
        return None
    found = window.count_changes()
    deleted = found.get(DELETE, 0)
    changed = deleted + found.get(INSERT, 0) + found.get(UPDATE_POSTIMAGE, 0)
    if deleted <= brakes.harmless_deletes() and changed <= brakes.harmless_changes:
        return None  # the net effect has at most as many
    net = _count_net(window, found)
    # An update that changes a key is a delete and an insert in the net effect, but deletes no row
    deletes, changes = min(deleted, net["deletes"]), sum(net.values())
    excess = brakes.find_excess(deletes, changes, lambda: max(0, rows_after() - net["inserts"] + net["deletes"]))
    if excess is None:
        return None
    bounds = f"{window.first}..{window.last}"
    return BrakeStopped(
        f"the window {bounds} would {excess}",
        hint=f"if this is intended: `deltarelay approve {pipeline} --window {bounds} --by YOU`; if not, repair the source "
        f"(RESTORE TABLE … TO VERSION AS OF {window.first - 1}) and run again",
        first=window.first,
        last=window.last,
        deletes=deletes,
        changes=changes,
    )


def _count_net(window: Window, found: Mapping[str, int]) -> Mapping[str, int]:
    """``found``: the feed's rows by change type. Where the key is not unique, which targets with a history accept, there is
    no net effect per key: rows that are inserted again are not counted as deleted."""
    try:
        return window.count_net()[0]
    except KeyViolation:
        inserted, deleted = found.get(INSERT, 0), found.get(DELETE, 0)
        same = min(inserted, deleted)
        updated = found.get(UPDATE_POSTIMAGE, 0) + same
        return {"inserts": inserted - same, "updates": updated, "deletes": deleted - same}


def _says_log_harmless(window: Window, brakes: Brakes) -> bool:
    """Whether the commit files alone show that no limit is exceeded."""
    if brakes.harmless_changes != float("inf"):
        return False
    changing = [commit for commit in window.commits if commit.change_files]
    recorded = [commit.deleted_rows for commit in changing]
    harmless = brakes.harmless_deletes(changing[0].rows_before)
    if harmless == float("inf"):
        return True
    return None not in recorded and sum(rows or 0 for rows in recorded) <= harmless
