"""Values in a trail's payload, under the names and types that the source's columns have now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StructType

from audit.encryption.decrypt import decrypt_rows, has_groups
from audit.queries.column_eras import list_column_eras, list_column_eras_by_name
from audit.queries.view import add_missing_columns
from audit.trail.column_history import SEALED
from audit.trail.tables import PAYLOAD
from cdf.spark_versions import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import Registry
    from audit.erasure.model import EncryptedColumns
    from audit.trail.column_history import Column

__all__ = ["present_values", "retained_values", "token_array"]


def present_values(trail: Trail) -> Mapping[str, SparkColumn]:
    """Return an expression for each present column of the source, to evaluate on a row of the ``completed`` payload.

    It reads the value from where the row's version stored it, under any former name and type. A value that does not fit the
    present type is NULL."""
    from pyspark.sql import functions as F

    former = list_column_eras_by_name(trail)
    expressions = {}
    for name, now in former[-1][1].items():
        value: SparkColumn = F.lit(None).cast(now.type)
        before: Column | None = None
        for since, columns in former:
            column = columns.get(name)
            if column != before:
                stored = F.lit(None).cast(now.type) if column is None else _as_type(column, now.type)
                value = F.when(F.col("version") >= since, stored).otherwise(value)
            before = column
        expressions[name] = value
    return expressions


def _as_type(column: Column, type: DataType) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.col("row").getField(column.stored)
    if column.type == type:
        return value
    if any(isinstance(one, ArrayType | MapType | StructType) for one in (column.type, type)):
        return F.lit(None).cast(type)  # such a column holds no identifier
    if isinstance(column.type, NumericType) and isinstance(type, NumericType):
        return try_cast(value, type)
    return try_cast(value.cast("string"), type)


def retained_values(
    trail: Trail, columns: Collection[str], registry: Callable[[], Registry] | None
) -> Iterator[DataFrame]:
    """Yield these columns of every row of the payload: of deleted rows, and of former versions of the others. With a
    ``registry``, encrypted values of these columns are decrypted."""
    from pyspark.sql import functions as F

    values = [value.alias(name) for name, value in present_values(trail).items() if name in columns]
    rows = add_missing_columns(trail, trail.tables.read_current(PAYLOAD))
    if registry is not None and has_groups(rows):
        former_names = {
            places[name].name.lower()
            for _, places in list_column_eras_by_name(trail)
            for name in columns
            if name in places
        }
        encrypted = F.flatten(F.col("row").getField(SEALED)["columns"])
        is_asked = F.exists(encrypted, lambda name: F.lower(name).isin(*former_names))
        is_asked = F.coalesce(is_asked, F.lit(False))
        yield decrypt_rows(rows.where(is_asked), list_column_eras(trail), registry().read_states).select(*values)
        rows = rows.where(~is_asked)
    yield rows.select(*values)


def token_array(trail: Trail, groups: SparkColumn, encrypted: EncryptedColumns) -> SparkColumn:
    """Return the tokens of the people whose encrypted ``groups`` of a row say something about the person named in this
    column of the row."""
    from pyspark.sql import functions as F

    present_names = {
        column.name.lower(): name.lower()
        for _, columns in list_column_eras_by_name(trail)
        for name, column in columns.items()
    }  # a column may have had other names

    def names(columns: Collection[str]) -> SparkColumn:
        every = {*columns, *(before for before, now in present_names.items() if now in columns)}
        return F.array(*(F.lit(name) for name in sorted(every))).cast("array<string>")

    def is_theirs(group: SparkColumn) -> SparkColumn:
        columns = F.transform(group["columns"], F.lower)
        # A column that is in no class any more counts as theirs: it is not assigned to anyone else
        about_them = F.arrays_overlap(columns, names(encrypted.columns))
        return about_them | ~F.arrays_overlap(columns, names(encrypted.others))

    return F.filter(groups, is_theirs)["token"]
