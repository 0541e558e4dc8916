"""Columns of the source as the view shows them, from all the places in which the payload stores their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
)

from audit.queries.commit_records import read_commit_records
from audit.trail.column_history import SEALED, Column
from audit.trail.record_kinds import parse_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from audit.audit_trail import Trail

__all__ = ["UNREADABLE", "Field", "build_fields", "build_fields_at", "collect_reasons", "is_wider_type"]

UNREADABLE = "unreadable"
"""The column that maps names of fields to the reason why their values are not shown."""


def collect_reasons(by_name: Mapping[str, SparkColumn]) -> SparkColumn:
    """One map of the reasons that are not NULL; NULL where all are."""
    from pyspark.sql import functions as F

    if not by_name:
        return F.lit(None).cast("map<string, string>")
    names = F.array(*(F.lit(name) for name in by_name))
    found = F.map_filter(F.map_from_arrays(names, F.array(*by_name.values())), lambda _, why: why.isNotNull())
    return F.when(F.size(found) > 0, found)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the source in the view, read from all places in which the payload stores its values."""

    name: str
    places: tuple[Column, ...]
    """The last place has the type of the field, which can hold the values of the other places."""
    since: int | None = None
    """First version whose values are shown: before it, the name belonged to another column, which was dropped."""

    @property
    def type(self) -> DataType:
        return self.places[-1].type

    @property
    def names(self) -> frozenset[str]:
        """All names that the column has ever had, case-folded: encrypted rows record the name of their time."""
        return frozenset(map(str.casefold, self._all_names()))

    @property
    def lowered(self) -> frozenset[str]:
        """The same names as Spark's ``lower`` returns them, which differs from Python's case folding."""
        return frozenset(map(str.lower, self._all_names()))

    def _all_names(self) -> Iterator[str]:
        yield self.name
        yield from (place.name for place in self.places)

    def value(self) -> SparkColumn:
        from pyspark.sql import functions as F

        values = [
            _convert(F.col("row").getField(place.stored), place.type, self.type) for place in reversed(self.places)
        ]
        return self._since(F.coalesce(*values) if len(values) > 1 else values[0])

    def reason(self) -> SparkColumn:
        """For rows of ``read_values`` with ``unreadable``: why the value is not shown."""
        from pyspark.sql import functions as F

        return self._since(F.coalesce(*(F.col(UNREADABLE)[place.stored] for place in self.places)))

    def is_hidden(self) -> SparkColumn:
        """For the same rows: whether the value is hidden. A NULL without a reason is a real NULL."""
        return self.value().isNull() & self.reason().isNotNull()

    def _since(self, value: SparkColumn) -> SparkColumn:
        from pyspark.sql import functions as F

        return value if self.since is None else F.when(F.col("version") >= self.since, value)


def build_fields(columns: Iterable[Column], *, nested: bool = True) -> list[Field]:
    """The fields for all columns that the source has ever had. Columns of one name, in any case, become one field.

    ``nested=False``: columns whose nested fields differ stay separate fields.
    """
    by_name: dict[str, list[Column]] = {}
    for column in sorted((one for one in columns if one.name != SEALED), key=lambda column: column.live):
        by_name.setdefault(column.name.casefold(), []).append(column)
    return _fields([(places[-1].name, None, places) for places in by_name.values()], nested=nested)


def build_fields_at(trail: Trail, version: int) -> list[Field]:
    """The columns that the source had at this version, by the names that they had then."""
    from pyspark.sql import functions as F

    rows = read_commit_records(trail).where(F.col("columns").isNotNull() & (F.col("version") <= version))
    columns: dict[str, tuple[int | None, list[Column]]] = {}
    for at, era in enumerate(rows.select("sequence", "version", "operation", "columns").orderBy("sequence").collect()):
        columns_then = parse_columns(era["columns"], version=era["version"])
        live = {column.name: column for column in columns_then if column.live and column.name != SEALED}
        gone, new = ([name for name in one if name not in other] for one, other in ((columns, live), (live, columns)))
        if era["operation"] == "RENAME COLUMN" and len(gone) == len(new) == 1:
            columns[new[0]] = columns[gone[0]]
        columns = {name: columns.get(name, (era["version"] if at else None, [])) for name in live}
        for name, place in live.items():
            since, places = columns[name]
            columns[name] = (since, [*(other for other in places if other.stored != place.stored), place])
    return _fields([(name, since, places) for name, (since, places) in columns.items()])


def _fields(groups: Sequence[tuple[str, int | None, Sequence[Column]]], *, nested: bool = True) -> list[Field]:
    """One field for the last type of each column, and one for every former type that the last one cannot hold."""
    taken = {name.casefold() for name, _, _ in groups}
    fields = []
    for name, since, places in groups:
        now = places[-1]
        compatible = [place for place in places[:-1] if is_wider_type(place.type, now.type, nested=nested)]
        fields.append(Field(name, (*compatible, now), since))
        others = (place for place in places[:-1] if place not in compatible)
        fields.extend(Field(_unused_name(place.stored, name, taken), (place,), since) for place in others)
    return fields


def _unused_name(stored: str, name: str, taken: set[str]) -> str:
    number, own = 0, stored
    while own.casefold() in taken:
        number += 1
        own = f"{name}__{number}"
    taken.add(own.casefold())
    return own


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType, FloatType, DoubleType),
    ShortType: (IntegerType, LongType, FloatType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}


def is_wider_type(before: DataType, after: DataType, *, nested: bool = True) -> bool:
    """Whether ``after`` can hold every value of ``before``, each as a distinct value."""
    if before == after:
        return True
    if nested:
        match before, after:
            case ArrayType(elementType=one), ArrayType(elementType=other):
                return is_wider_type(one, other)
            case MapType(keyType=key, valueType=one), MapType(keyType=other_key, valueType=other):
                return key == other_key and is_wider_type(one, other)
            case StructType(), StructType():
                return all(
                    field.name in after.names and is_wider_type(field.dataType, after[field.name].dataType)
                    for field in before.fields
                )
    if isinstance(after, DecimalType):
        digits, scale = (
            (before.precision, before.scale) if isinstance(before, DecimalType) else (_DIGITS.get(type(before), 99), 0)
        )
        return after.scale >= scale and after.precision - after.scale >= digits - scale
    return type(after) in _WIDER.get(type(before), ())


def _convert(value: SparkColumn, before: DataType, after: DataType) -> SparkColumn:
    """Convert the value to a type that can hold it."""
    from pyspark.sql import functions as F

    if before == after:
        return value
    match before, after:
        case ArrayType(elementType=one), ArrayType(elementType=other):
            return F.transform(value, lambda item: _convert(item, one, other))
        case MapType(valueType=one), MapType(valueType=other):
            return F.transform_values(value, lambda _, item: _convert(item, one, other))
        case StructType(), StructType():
            grown = (
                _convert(value.getField(field.name), before[field.name].dataType, field.dataType)
                if field.name in before.names
                else F.lit(None).cast(field.dataType)
                for field in after.fields
            )
            fields = (column.alias(field.name) for column, field in zip(grown, after.fields, strict=True))
            return F.when(value.isNotNull(), F.struct(*fields))
    return value.cast(after)
