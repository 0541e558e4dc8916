"""Columns and row states that several questions use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.encryption.decrypt import find_encrypted_columns
from audit.queries.fields import UNREADABLE, Field
from audit.queries.view import reason_columns
from audit.trail.tables import PAYLOAD
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail


__all__ = [
    "CHANGE_COUNTS",
    "COMMIT_COLUMNS",
    "CONTEXT_COLUMNS",
    "EVENT_COLUMNS",
    "change_counts",
    "check_comparable",
    "expand_rows",
    "has_reasons",
    "is_hidden",
    "is_one_of",
    "is_put",
    "order_in_version",
    "row_field",
    "select_current_rows",
]

EVENT_COLUMNS = ("version", "committed_at", "index", "change_type", "baseline", "changed_columns")
CONTEXT_COLUMNS = ("operation", "actor", "ticket", "purpose", "job", "run")
COMMIT_COLUMNS = ("version", "committed_at", "operation", "actor")
CHANGE_COUNTS = {"inserts": INSERT, "updates": UPDATE_POSTIMAGE, "deletes": DELETE}


def change_counts() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.coalesce(F.col("counts")[kind], F.lit(0)).alias(name) for name, kind in CHANGE_COUNTS.items()]


def row_field(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("row").getField(name)


def is_put() -> Column:
    """Whether the row exists after the event."""
    from pyspark.sql import functions as F

    return F.col("change_type").isin(INSERT, UPDATE_POSTIMAGE)


def order_in_version() -> Column:
    """Within a version, removes come before puts, as in a net effect."""
    return is_put().cast("int")


def is_hidden(events: DataFrame, key: Iterable[str]) -> Column:
    """Whether the record of an event is unknown, because a column of the key is hidden."""
    from pyspark.sql import functions as F

    row = events.schema["row"].dataType
    assert isinstance(row, StructType)
    if not reason_columns(events):
        return F.lit(False)
    wanted = {name.casefold() for name in key}
    named = [name for name in row.names if name.casefold() in wanted]
    hidden = (row_field(name).isNull() & F.col(UNREADABLE)[name].isNotNull() for name in named)
    return reduce(or_, hidden, F.lit(False))


def select_current_rows(events: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """The state of each existing record after these events: ``key_0`` and so on, ``last.version`` and ``last.row``."""
    from pyspark.sql import functions as F

    last = F.max_by(
        F.struct(is_put().alias("there"), "version", "row", *reason_columns(events)),
        F.struct("version", order_in_version(), "index"),
    )
    keyed = events.groupBy(*(one.alias(f"key_{at}") for at, one in enumerate(keys))).agg(last.alias("last"))
    return keyed.where("last.there")


def expand_rows(current: DataFrame) -> DataFrame:
    """One column for each field of the records; where some are encrypted, ``unreadable`` after them."""
    last = current.schema["last"].dataType
    assert isinstance(last, StructType)
    return current.select("last.row.*", *(f"last.{name}" for name in last.names if name == UNREADABLE))


def check_comparable(trail: Trail, columns: Iterable[str] | None) -> None:
    """Raises ConfigError where one of these columns (None: any column) is encrypted and the trail has no keys."""
    encrypted = find_encrypted_columns(trail.require_tables().read(PAYLOAD)) if trail.states is None else set()
    if columns is not None:
        encrypted &= {name.casefold() for name in columns}
    if encrypted:
        raise ConfigError(
            "encrypted values cannot be compared without keys",
            hint=f"use --decrypt, which needs the keys; encrypted: {', '.join(sorted(encrypted))}",
        )


def has_reasons(current: DataFrame) -> bool:
    last = current.schema["last"].dataType
    return isinstance(last, StructType) and UNREADABLE in last.names


def is_one_of(field: Field, names: Iterable[str]) -> bool:
    return field.name.casefold() in {name.casefold() for name in names}
