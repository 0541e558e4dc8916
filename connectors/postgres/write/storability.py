"""Changes that PostgreSQL cannot store, marked before they travel: only where such rows are set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdf.changes.canonical import TO_JSON, key_digest
from cdf.changes.columns import CHANGE_TYPE, INSERT, UPDATE, UPDATE_POSTIMAGE, quoted
from connectors.postgres.write.rejected import unfaithful

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["reason", "details"]


def reason(schema: StructType, key: Sequence[str]) -> Column:
    """``<what>:<column>`` of the first column whose value cannot be stored, or null. Of a delete only the key counts."""
    from pyspark.sql import functions as F

    put = F.col(CHANGE_TYPE).isin(INSERT, UPDATE, UPDATE_POSTIMAGE)
    found = [
        F.when(bad & (put | F.lit(field.name in key)), F.lit(f"{what}:{field.name}"))
        for field in schema.fields
        for what, bad in unfaithful(quoted(field.name), field.dataType)
    ]
    return F.coalesce(*found, F.lit(None).cast("string"))


def details(schema: StructType, key: Sequence[str], *, row: bool) -> tuple[Column, Column, Column]:
    """Key as JSON, key digest (``cdf.changes.canonical``), and the row as JSON, or null where that is not wanted."""
    from pyspark.sql import functions as F

    names = schema.fieldNames()
    whole = F.to_json(F.struct(*map(quoted, names)), TO_JSON) if row else F.lit(None).cast("string")
    return F.to_json(F.struct(*map(quoted, key)), TO_JSON), key_digest(schema, key), whole
