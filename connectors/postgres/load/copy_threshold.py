"""Decides whether a window changes so much of a table that copying the whole table is cheaper.

The copy is applied as in a reload (``connectors.postgres.load.reload``): a new table replaces the old one, if we created
that one and it has no dependents; otherwise the rows that differ from the copy are merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import psycopg

from cdf.errors import CdfError
from connectors.postgres.load.reload import reasons_to_merge
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.target.definition import read_definition
from connectors.postgres.target.reflection import read_column_types

if TYPE_CHECKING:
    from cdf.changes.window import Window

__all__ = ["MERGE_SHARE", "MIN_BYTES", "SWAP_SHARE", "ApplyMethod", "choose_method"]

ApplyMethod = Literal["changes", "swap", "merge"]

MIN_BYTES = 32 * 2**20
"""A smaller window is fast with either method."""
SWAP_SHARE, MERGE_SHARE = 0.6, 1.5
"""Bytes of the change files divided by bytes of the table, from which on the copy was faster (benchmarks,
``large_windows``). An update has both images, so a window that updates every row has about twice the bytes of the table."""

Connection = psycopg.Connection[Any]


def choose_method(connection: Connection, name: TargetName, window: Window) -> ApplyMethod:
    """``window`` has the target's column names. Reads the source's log only for a large window."""
    if window.drift or window.change_bytes < MIN_BYTES or not window.has_snapshot:
        return "changes"
    try:
        share = window.change_bytes / max(window.table_bytes(), 1)
    except CdfError:
        return "changes"  # without an estimate apply the changes
    if share < SWAP_SHARE:
        return "changes"
    definition = read_definition(connection, name)
    if definition is None or definition.former_columns(window.schema):
        return "changes"  # columns of a user, or former ones of the source: the copy cannot distinguish them
    if definition.made_by_us and not reasons_to_merge(
        definition, window.schema, (), read_column_types(connection, name), "hard"
    ):
        return "swap"
    return "merge" if share >= MERGE_SHARE else "changes"
