"""Finds the rows of a trail that have plaintext values in columns that must be encrypted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.encryption.column_groups import PersonColumns
from audit.encryption.decrypt import has_groups
from audit.encryption.encrypt import ColumnEncryption
from audit.queries.column_eras import list_column_eras, list_column_eras_by_name
from audit.trail.column_history import SEALED, Column
from audit.trail.ledger_state import read_state_from_records
from audit.trail.tables import PAYLOAD
from cdf.result import Result

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail

__all__ = ["ColumnEra", "PlaintextRows", "count_plaintext_rows", "list_eras", "select_plaintext_rows", "struct_type"]


@dataclass(frozen=True, slots=True)
class PlaintextRows(Result):
    """Rows with plaintext values of people: they were written before the class of the columns was configured."""

    rows: int = 0
    first_version: int | None = None
    last_version: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    """Rows by class; a row may count for several classes."""


def count_plaintext_rows(trail: Trail, encryption: ColumnEncryption) -> PlaintextRows:
    """Reads the columns of the classes from the payload."""
    from pyspark.sql import functions as F

    rows, flags = select_plaintext_rows(trail, encryption)
    counts = [F.count_if(reduce(or_, (F.col(name) for name in of_class))) for of_class in flags.values()]
    found = rows.agg(F.count("*"), F.min("version"), F.max("version"), *counts).collect()[0]
    classes = {name: count for name, count in zip(flags, found[3:], strict=True) if count}
    return PlaintextRows(found[0], found[1], found[2], classes)


@dataclass(frozen=True, slots=True)
class ColumnEra:
    """The columns of the source from the version ``since`` on."""

    since: int
    columns: tuple[Column, ...]
    people: tuple[PersonColumns, ...]
    """With the names that the columns had then. Columns that did not exist are left out."""

    def value(self, name: str) -> SparkColumn:
        from pyspark.sql import functions as F

        stored = next(column.stored for column in self.columns if column.live and column.name == name)
        return F.col("row").getField(stored)


def list_eras(trail: Trail, people: Sequence[PersonColumns], payload: DataFrame) -> list[ColumnEra]:
    eras = []
    written = set(struct_type(payload, "row").names)
    for (since, columns), (_, by_name) in zip(list_column_eras(trail), list_column_eras_by_name(trail), strict=True):
        # The payload gets a column with the first row that is written with it
        existing = [column for column in columns if column.live and column.name != SEALED and column.stored in written]
        then = {column.name.casefold(): column.name for column in existing}
        renamed = {column.name for column in by_name.values()}
        # A column that was dropped later keeps the name that it had
        names = {name: former for name, former in then.items() if former not in renamed}
        names |= {name.casefold(): column.name for name, column in by_name.items() if column.stored in written}
        eras.append(ColumnEra(since, tuple(columns), tuple(_with_names(person, names) for person in people)))
    return eras


def _with_names(person: PersonColumns, names: Mapping[str, str]) -> PersonColumns:
    column = names.get(person.column.casefold(), "")
    classes = (
        (name, tuple(names[own.casefold()] for own in columns if column and own.casefold() in names))
        for name, columns in person.classes
    )
    return replace(person, column=column, classes=tuple(classes))


def select_plaintext_rows(
    trail: Trail, encryption: ColumnEncryption, *more: SparkColumn
) -> tuple[DataFrame, dict[str, list[str]]]:
    """The rows with plaintext values, and by class the names of the flag columns that show plaintext of the class.

    ``who_0`` and so on name the people of a row: ``v`` and the value, or ``t`` and the token (hexadecimal) where the
    value is already encrypted."""
    from pyspark.sql import functions as F

    payload = trail.require_tables().read_current(PAYLOAD)
    eras = list_eras(trail, encryption.people, payload)
    last = read_state_from_records(
        trail.require_tables()
    ).version  # the columns of commits without a record are unknown
    groups = F.col("row").getField(SEALED) if has_groups(payload) else None
    columns: dict[str, SparkColumn] = {}
    flags: dict[str, list[str]] = {}
    for at, person in enumerate(encryption.people):
        columns[f"who_{at}"] = _choose_by_era(
            eras, [_name_person(era, era.people[at].column, groups) for era in eras], "string"
        )
        for place, (class_name, _) in enumerate(person.classes):
            plaintext = [_has_plaintext(era, era.people[at].classes[place][1]) for era in eras]
            columns[name := f"plain_{at}_{place}"] = _choose_by_era(eras, plaintext, "boolean")
            flags.setdefault(class_name, []).append(name)
    own = [name for name in ("id", "version", "salt", "row_hash", "row", "sealed") if name in payload.columns]
    rows = payload.select(*own, *more, *(value.alias(name) for name, value in columns.items()))
    for at, person in enumerate(encryption.people):
        is_named = F.col(f"who_{at}").isNotNull()
        names = [f"plain_{at}_{place}" for place in range(len(person.classes))]
        rows = rows.withColumns({name: F.col(name) & is_named for name in names})
    any_flag = reduce(or_, (F.col(name) for of_class in flags.values() for name in of_class))
    return rows.where((F.col("version") <= (-1 if last is None else last)) & any_flag), flags


def _choose_by_era(eras: Sequence[ColumnEra], values: Sequence[SparkColumn | None], type: str) -> SparkColumn:
    """The value of the era to which the version of a row belongs; None is NULL."""
    from pyspark.sql import functions as F

    chosen = F.lit(None).cast(type)
    for era, value in zip(eras, values, strict=True):
        of_era = F.lit(None).cast(type) if value is None else value
        chosen = F.when(F.col("version") >= era.since, of_era).otherwise(chosen)
    return chosen


def _name_person(era: ColumnEra, column: str, groups: SparkColumn | None) -> SparkColumn | None:
    from pyspark.sql import functions as F

    if not column:
        return None
    value = F.concat(F.lit("v"), era.value(column).cast("string"))
    if groups is None:
        return value
    of_person = F.filter(groups, lambda group: F.array_contains(group["columns"], column))
    return F.coalesce(value, F.concat(F.lit("t"), F.hex(F.get(of_person, F.lit(0))["token"])))


def _has_plaintext(era: ColumnEra, columns: Collection[str]) -> SparkColumn | None:
    present = [era.value(name).isNotNull() for name in columns]
    return reduce(or_, present) if present else None


def struct_type(rows: DataFrame, name: str) -> StructType:
    type = rows.schema[name].dataType
    assert isinstance(type, StructType)
    return type
