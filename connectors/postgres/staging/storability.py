"""Values that PostgreSQL cannot store: found in Spark, before the rows are copied or after a COPY was refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cdf.changes.canonical import TO_JSON, key_digest
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, INSERT, UPDATE, UPDATE_POSTIMAGE, quoted
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow
from cdf.changes.window import Snapshot, Window
from cdf.spark_versions import is_valid_utf8
from connectors.postgres.staging import in_memory
from connectors.postgres.types import has_text, in_range, valid_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["describe_unstorable", "unstorable_conditions", "unstorable_details", "unstorable_reason"]


def unstorable_conditions(column: Column, kind: DataType) -> Iterator[tuple[str, Column]]:
    """Description and condition of each kind of value that cannot be stored."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    fits = in_range(column, kind)
    if fits is not None:
        yield "a date or time outside PostgreSQL's calendar", ~fits
    if not has_text(kind):
        return
    no_text = "text with a NUL character or bytes that are not UTF-8"
    if isinstance(kind, T.StringType):
        yield no_text, F.contains(column, F.lit("\0")) | ~is_valid_utf8(column)
        return
    # In JSON a NUL is written \u0000; after an even number of backslashes it is ordinary text
    with_nul = F.rlike(F.to_json(column, TO_JSON), F.lit(r"(?<!\\)(?:\\\\)*\\u0000"))
    valid = valid_text(column, kind)
    yield no_text, with_nul if valid is None else with_nul | ~valid


# ── marking rows before they are copied ──────────────────────────────────────────────────────────────────────────────


def unstorable_reason(schema: StructType, key: Sequence[str]) -> Column:
    """``<description>:<column>`` of the first column whose value cannot be stored, or null. Of a delete only the key is
    checked."""
    from pyspark.sql import functions as F

    put = F.col(CHANGE_TYPE).isin(INSERT, UPDATE, UPDATE_POSTIMAGE)
    found = [
        F.when(is_bad & (put | F.lit(field.name in key)), F.lit(f"{description}:{field.name}"))
        for field in schema.fields
        for description, is_bad in unstorable_conditions(quoted(field.name), field.dataType)
    ]
    return F.coalesce(*found, F.lit(None).cast("string"))


def unstorable_details(schema: StructType, key: Sequence[str], *, row: bool) -> tuple[Column, Column, Column]:
    """Key as JSON, key digest (``cdf.changes.canonical``), and the row as JSON, or null without ``row``."""
    from pyspark.sql import functions as F

    names = schema.fieldNames()
    whole = F.to_json(F.struct(*map(quoted, names)), TO_JSON) if row else F.lit(None).cast("string")
    return F.to_json(F.struct(*map(quoted, key)), TO_JSON), key_digest(schema, key), whole


# ── explaining a refused COPY ────────────────────────────────────────────────────────────────────────────────────────


def describe_unstorable(rows: Window | Snapshot) -> str | None:
    """ "column 'note' at version 7 holds text with a NUL character (2 rows)", or None. Contains no value. For a window its
    net effect is searched."""
    if isinstance(rows, InMemoryWindow):
        return in_memory.describe_unstorable(rows.collect_net(), rows.schema)
    if isinstance(rows, InMemorySnapshot):
        return in_memory.describe_unstorable(rows.collect(), rows.schema)
    return _describe(rows.net() if isinstance(rows, Window) else rows.read(), rows.schema)


def _describe(rows: DataFrame, schema: StructType) -> str | None:
    from pyspark.sql import functions as F

    columns = [
        (field.name, description, is_bad)
        for field in schema.fields
        for description, is_bad in unstorable_conditions(quoted(field.name), field.dataType)
    ]
    if not columns:
        return None
    version = F.col(COMMIT_VERSION) if COMMIT_VERSION in rows.columns else F.lit(None).cast("bigint")
    aggregates = []
    for number, (_, _, is_bad) in enumerate(columns):
        aggregates.append(F.sum(F.when(is_bad, 1).otherwise(0)).alias(f"rows{number}"))
        aggregates.append(F.min(F.when(is_bad, version)).alias(f"version{number}"))
    found = rows.agg(*aggregates).first()
    assert found is not None
    parts = []
    for number, (name, description, _) in enumerate(columns):
        if found[f"rows{number}"]:
            at = "" if found[f"version{number}"] is None else f" at version {found[f'version{number}']}"
            parts.append(f"column {name!r}{at} holds {description} ({found[f'rows{number}']} rows)")
    return "; ".join(parts) or None
