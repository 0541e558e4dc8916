"""A window that touches so much of a table that a copy of the table is cheaper than the changes.

Two ways to copy, as in a reload (``connectors.postgres.write.reload``): a new table takes the place of the old one,
only where we made that and nothing hangs on it; otherwise what differs from the copy is merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import psycopg

from cdf.errors import CdfError
from connectors.postgres.target.ddl import column_types
from connectors.postgres.target.definition import read_shape
from connectors.postgres.write.reload import reasons_to_merge

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from connectors.postgres.target.ddl import TargetName

__all__ = ["Way", "LEAST_BYTES", "SWAP_SHARE", "MERGE_SHARE", "way_of"]

Way = Literal["changes", "swap", "merge"]

LEAST_BYTES = 32 * 2**20
"""Below, a window takes a moment whatever the way."""
SWAP_SHARE, MERGE_SHARE = 0.6, 1.5
"""Bytes of the change files in relation to the table's, from which on the copy was faster (benchmarks, ``large_windows``).
An update has both images in them, so a window that updates every row of a table has about twice its bytes."""

Connection = psycopg.Connection[Any]


def way_of(connection: Connection, name: TargetName, window: Window) -> Way:
    """``window`` has the target's names. Asks the source's log only where the window is large at all."""
    if window.drift or window.change_bytes < LEAST_BYTES or not window.has_snapshot:
        return "changes"
    try:
        share = window.change_bytes / max(window.table_bytes(), 1)
    except CdfError:
        return "changes"  # an estimate is nothing to fail for
    if share < SWAP_SHARE:
        return "changes"
    shape = read_shape(connection, name)
    if shape is None or shape.left_over(window.schema):
        return "changes"  # somebody's columns, or some that the source had once: a copy would have to know which
    if shape.made_by_us and not reasons_to_merge(shape, window.schema, (), column_types(connection, name), "hard"):
        return "swap"
    return "merge" if share >= MERGE_SHARE else "changes"
