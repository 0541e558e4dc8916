"""How the columns of the source changed: the columns from a version on, by their names then or now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from audit.queries.commit_records import read_commit_records
from audit.trail.column_history import SEALED, Column
from audit.trail.record_kinds import parse_columns

if TYPE_CHECKING:
    from audit.audit_trail import Trail

__all__ = ["list_column_eras", "list_column_eras_by_name"]


def list_column_eras(trail: Trail) -> list[tuple[int, Sequence[Column]]]:
    """Pairs of a version and the columns of the source from that version on."""
    from pyspark.sql import functions as F

    rows = (
        read_commit_records(trail)
        .where(F.col("columns").isNotNull())
        .select("sequence", "version", "columns")
        .orderBy("sequence")
    )
    return [(row["version"], parse_columns(row["columns"], version=row["version"])) for row in rows.collect()]


def list_column_eras_by_name(trail: Trail) -> Sequence[tuple[int, Mapping[str, Column]]]:
    """Pairs of a version and, by their present names, the columns from that version on. Dropped columns are left out."""
    from pyspark.sql import functions as F

    rows = (
        read_commit_records(trail)
        .where(F.col("columns").isNotNull())
        .select("sequence", "version", "operation", "columns")
    )
    eras = [
        (row["version"], row["operation"], _live_by_name(parse_columns(row["columns"], version=row["version"])))
        for row in rows.orderBy("sequence").collect()
    ]
    own = {name.casefold(): name for name in eras[-1][2]}
    names = {name: name for name in eras[-1][2]}
    found: list[tuple[int, Mapping[str, Column]]] = []
    for at in reversed(range(len(eras))):
        version, operation, live = eras[at]
        found.append((version, {names[name]: place for name, place in live.items() if name in names}))
        if at:
            names = _names_before(names, own, operation, eras[at - 1][2], live)
    return found[::-1]


def _live_by_name(columns: Iterable[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns if column.live and column.name != SEALED}


def _names_before(
    names: Mapping[str, str],
    own: Mapping[str, str],
    operation: str | None,
    earlier: Mapping[str, Column],
    later: Mapping[str, Column],
) -> dict[str, str]:
    """The present name of each column before a commit, from the names after it."""
    gone, new = ([name for name in one if name not in other] for one, other in ((earlier, later), (later, earlier)))
    if operation == "RENAME COLUMN" and len(gone) == len(new) == 1:
        names = {**names, **({gone[0]: names[new[0]]} if new[0] in names else {})}
    found = {name: names[name] for name in earlier if name in names}
    taken = set(found.values())
    # A column that was dropped and added again
    again = {name: own[name.casefold()] for name in earlier if name not in found and name.casefold() in own}
    return {**found, **{name: now for name, now in again.items() if now not in taken}}
