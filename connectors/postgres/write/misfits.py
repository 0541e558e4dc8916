"""Values that do not fit into the target's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import RowRejected
from connectors.postgres.conversions import Cast
from connectors.postgres.sql_parts import fill_template
from connectors.postgres.write.statements import count_misfits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["refuse_misfits", "refuse_misfits_of_table"]

Connection = psycopg.Connection[Any]


def refuse_misfits(target: str, counts: Mapping[str, int]) -> None:
    """Raise RowRejected if any value does not fit. ``counts``: column → rows whose value does not fit into it."""
    if any(counts.values()):
        columns = ", ".join(f"{name!r} ({count} rows)" for name, count in counts.items() if count)
        raise RowRejected(
            f"values do not fit into the columns of {target}: {columns}",
            hint="alter these columns to wider types, correct the values at the source, "
            "or set rejects: dead_letter to apply the other rows",
        )


def refuse_misfits_of_table(
    connection: Connection, target: str, loaded: sql.Identifier, schema: StructType, casts: Mapping[str, Cast]
) -> None:
    """``refuse_misfits`` for the rows of a table with our types."""
    lossy = {name: cast.faithful for name, cast in casts.items() if cast.faithful is not None and name in schema.names}
    if not lossy:
        return
    faithful = [fill_template(fits, sql.Identifier(name), parameters=False) for name, fits in lossy.items()]
    row = connection.execute(sql.SQL("select {} from {}").format(count_misfits(faithful), loaded)).fetchone()
    refuse_misfits(target, dict(zip(lossy, row or (), strict=True)))
