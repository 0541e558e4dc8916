"""Which column, at which version, holds what PostgreSQL cannot: asked only after a COPY was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.canonical import TO_JSON
from cdf.change import COMMIT_VERSION
from cdf.net import quoted
from connectors.postgres.types import has_text, valid_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["unfaithful_values"]


def unfaithful_values(rows: DataFrame, schema: StructType) -> str | None:
    """ "column 'note' at version 7 holds text with a NUL character (2 rows)", or None. Names no value."""
    from pyspark.sql import functions as F

    columns = [field for field in schema.fields if has_text(field.dataType)]
    if not columns:
        return None
    version = F.col(COMMIT_VERSION) if COMMIT_VERSION in rows.columns else F.lit(None).cast("bigint")
    aggregates = []
    for number, field in enumerate(columns):
        bad = _unfaithful(field.name, field.dataType)
        aggregates.append(F.sum(F.when(bad, 1).otherwise(0)).alias(f"rows{number}"))
        aggregates.append(F.min(F.when(bad, version)).alias(f"version{number}"))
    found = rows.agg(*aggregates).first()
    assert found is not None
    parts = []
    for number, field in enumerate(columns):
        if found[f"rows{number}"]:
            at = "" if found[f"version{number}"] is None else f" at version {found[f'version{number}']}"
            parts.append(
                f"column {field.name!r}{at} holds text with a NUL character or bytes that are not UTF-8 "
                f"({found[f'rows{number}']} rows)"
            )
    return "; ".join(parts) or None


def _unfaithful(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    text = quoted(name)
    if isinstance(kind, T.StringType):
        return F.contains(text, F.lit("\0")) | ~F.is_valid_utf8(text)
    # In JSON a NUL is written \u0000; an even number of backslashes before it is text that only looks like one
    with_nul = F.rlike(F.to_json(text, TO_JSON), F.lit(r"(?<!\\)(?:\\\\)*\\u0000"))
    valid = valid_text(text, kind)
    return with_nul if valid is None else with_nul | ~valid
