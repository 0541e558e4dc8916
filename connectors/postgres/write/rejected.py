"""Which column, at which version, holds what PostgreSQL cannot: asked only after a COPY was refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdf.changes.canonical import TO_JSON
from cdf.changes.columns import COMMIT_VERSION, quoted
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow
from cdf.changes.window import Snapshot, Window
from connectors.postgres.types import has_text, in_range, valid_text
from connectors.postgres.write import in_memory

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["unfaithful", "unfaithful_values"]


def unfaithful_values(of: Window | Snapshot) -> str | None:
    """ "column 'note' at version 7 holds text with a NUL character (2 rows)", or None. Names no value. Of a window its net
    effect is looked at."""
    if isinstance(of, InMemoryWindow):
        return in_memory.unfaithful_values(of.collect_net(), of.schema)
    if isinstance(of, InMemorySnapshot):
        return in_memory.unfaithful_values(of.collect(), of.schema)
    return _unfaithful_values(of.net() if isinstance(of, Window) else of.read(), of.schema)


def _unfaithful_values(rows: DataFrame, schema: StructType) -> str | None:
    from pyspark.sql import functions as F

    columns = [
        (field.name, what, bad)
        for field in schema.fields
        for what, bad in unfaithful(quoted(field.name), field.dataType)
    ]
    if not columns:
        return None
    version = F.col(COMMIT_VERSION) if COMMIT_VERSION in rows.columns else F.lit(None).cast("bigint")
    aggregates = []
    for number, (_, _, bad) in enumerate(columns):
        aggregates.append(F.sum(F.when(bad, 1).otherwise(0)).alias(f"rows{number}"))
        aggregates.append(F.min(F.when(bad, version)).alias(f"version{number}"))
    found = rows.agg(*aggregates).first()
    assert found is not None
    parts = []
    for number, (name, what, _) in enumerate(columns):
        if found[f"rows{number}"]:
            at = "" if found[f"version{number}"] is None else f" at version {found[f'version{number}']}"
            parts.append(f"column {name!r}{at} holds {what} ({found[f'rows{number}']} rows)")
    return "; ".join(parts) or None


def unfaithful(column: Column, kind: DataType) -> Iterator[tuple[str, Column]]:
    """What cannot be stored, and the condition for it."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    fits = in_range(column, kind)
    if fits is not None:
        yield "a date or time outside PostgreSQL's calendar", ~fits
    if not has_text(kind):
        return
    no_text = "text with a NUL character or bytes that are not UTF-8"
    if isinstance(kind, T.StringType):
        yield no_text, F.contains(column, F.lit("\0")) | ~F.is_valid_utf8(column)
        return
    # In JSON a NUL is written \u0000; an even number of backslashes before it is text that only looks like one
    with_nul = F.rlike(F.to_json(column, TO_JSON), F.lit(r"(?<!\\)(?:\\\\)*\\u0000"))
    valid = valid_text(column, kind)
    yield no_text, with_nul if valid is None else with_nul | ~valid
