"""The rows of one record among all of a trail, without its key in any plan.

A literal in a filter stands in Spark's plans, and so in its event log and its pages; so does one that Delta skips files by.
So the key comes in as data, a table of one row. Joined with the statistics in the log it tells which files can hold it;
joined with these files, which rows do. What is left in plans are versions and names of files. (A value can still be seen
by who sees the memory of Spark's processes, and on the command line by who lists its machine's processes.)

The statistics are those of the key's columns in the payload. What they say is believed here, as every reader of Delta
believes them; ``audit verify`` reads the values themselves.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from audit.encryption.decrypt import find_encrypted_columns, has_groups
from audit.queries.fields import UNREADABLE, Field
from audit.queries.view import add_missing_columns, read_values, select_row
from audit.trail.column_history import SEALED
from audit.trail.tables import PAYLOAD, TrailTables
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from audit.audit_trail import Trail

__all__ = ["Wanted", "as_data", "payload_with", "value_of"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A record that is looked for: some fields of the view, and what each has to be."""

    fields: tuple[Field, ...]
    values: DataFrame
    """One row, ``key_0`` and so on."""

    @classmethod
    def of(cls, spark: SparkSession, record: Mapping[str, Any], fields: Sequence[Field]) -> Wanted:
        """Raises ConfigError for what is no column, and for a value that is none of its type: without telling it."""
        by_name = {field.name.casefold(): field for field in fields}
        found = [(by_name.get(name.casefold()), value) for name, value in record.items()]
        chosen = [(field, value) for field, value in found if field is not None]
        if not record or len(chosen) < len(record):
            raise ConfigError(
                "a record is asked for by a column that the trail does not have",
                hint=f"its columns: {', '.join(field.name for field in fields)}",
            )
        named = [(field.name, value, field.type) for field, value in chosen]
        return cls(tuple(field for field, _ in chosen), as_data(spark, named))


def as_data(spark: SparkSession, values: Sequence[tuple[str, Any, DataType]]) -> DataFrame:
    """Names, values and types as one row, ``key_0`` and so on. Raises ConfigError, which does not tell the values."""
    schema = StructType([StructField(f"key_{at}", type) for at, (_, _, type) in enumerate(values)])
    row = tuple(value_of(*one) for one in values)
    try:
        return spark.createDataFrame([row], schema)
    except Exception:  # it quotes the value
        shown = ", ".join(f"{name} ({type.simpleString()})" for name, _, type in values)
        raise ConfigError("what is given does not fit its type", hint=f"the types: {shown}") from None


def payload_with(trail: Trail, wanted: Wanted, fields: Sequence[Field]) -> tuple[DataFrame, list[int]]:
    """The rows of the events that have the wanted values, by these ``fields`` (``select_row``); and their versions. Raises
    ConfigError where the values are sealed and the trail has no keys."""
    files = _Files(tables := trail.there())
    sealed = find_encrypted_columns(tables.read(PAYLOAD)) & {name for field in wanted.fields for name in field.names}
    if sealed and trail.states is None:
        raise ConfigError(
            "a record is asked for by a column that is sealed",
            hint=f"who has the keys finds it with --decrypt; sealed: {', '.join(sorted(sealed))}",
        )
    paths = files.that_can_hold(wanted, sealed)

    def matching(paths: Sequence[str]) -> DataFrame:
        rows = files.rows(paths)
        file = rows.metadataColumn("_metadata").getField("file_path").alias("path")
        # Not ``*``: somebody may have added columns
        own = ("salt", "row_hash", "sealed") if has_groups(rows) else ()
        rows = add_missing_columns(trail, rows.select("id", "version", "row", *own, file))
        if not sealed:
            return _matching(rows, wanted)
        candidates = _candidates(trail, wanted, rows)
        if candidates is None:
            return _matching(read_values(trail, rows, "path"), wanted)
        theirs, others, person = candidates
        # Where nothing sealed is asked for but the person, the others tell who they are without being opened
        alone = all(field == person or sealed.isdisjoint(field.names) for field in wanted.fields)
        rest = (
            read_values(trail, _matching(others, wanted), "path")
            if alone
            else _matching(read_values(trail, others, "path"), wanted)
        )
        return _matching(read_values(trail, theirs, "path"), wanted).unionByName(rest)

    found = matching(paths).select("version", "path").distinct().collect()
    rows = matching(files.named(paths, [one["path"] for one in found]))
    rows = rows if sealed else read_values(trail, rows)
    return select_row(rows, fields), sorted({one["version"] for one in found})


def _candidates(trail: Trail, wanted: Wanted, rows: DataFrame) -> tuple[DataFrame, DataFrame, Field] | None:
    """Of rows that are asked for by whose they are: those sealed for that person; those whose person is not sealed; and the
    person's column. None where they are not asked for so: then each has to be opened to be looked at."""
    from pyspark.sql import functions as F

    found = _person(trail, wanted)
    if found is None:
        return None
    person, token = found
    spark, names = rows.sparkSession, F.array(*(F.lit(name) for name in sorted(person.lowered)))
    asked = spark.createDataFrame(
        spark.sparkContext.parallelize([] if token is None else [(token,)], 1), "token binary"
    )
    groups = F.filter(
        F.col("row").getField(SEALED),
        lambda group: F.arrays_overlap(F.transform(group["columns"], F.lower), names),
    )
    whose = F.get(groups, F.lit(0))["token"]
    return rows.join(F.broadcast(asked), whose == asked["token"], "left_semi"), rows.where(whose.isNull()), person


def _person(trail: Trail, wanted: Wanted) -> tuple[Field, bytes | None] | None:
    """By which column somebody is asked for; and their token in the registry, if they have one."""
    from audit.identifiers import stored_forms

    people = () if trail.sealing is None else trail.sealing.people
    named = [
        (one, at) for one in people for at, field in enumerate(wanted.fields) if one.column.casefold() in field.names
    ]
    if not named or trail.sealing is None:
        return None
    person, at = named[0]
    key = f"key_{at}"
    value = wanted.values.select(wanted.values[key].cast("string")).collect()[0][0]
    if value is None:
        return None
    forms = [(person.identifier, form) for form in stored_forms(value, person.spelling)]
    [token] = trail.sealing.registry().find_tokens(person.subject, [forms])
    return wanted.fields[at], token


def _matching(rows: DataFrame, wanted: Wanted) -> DataFrame:
    from pyspark.sql import functions as F

    held = {f"held_{at}": field.value() for at, field in enumerate(wanted.fields)}
    same = [F.col(f"held_{at}").eqNullSafe(F.col(f"key_{at}")) for at in range(len(wanted.fields))]
    if UNREADABLE in rows.columns:
        rows = rows.where(~reduce(or_, (field.is_hidden() for field in wanted.fields)))
    found = rows.select("*", *(value.alias(name) for name, value in held.items()))
    return found.join(F.broadcast(wanted.values), same).select(*rows.columns)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Files:
    """Those of the payload, at one moment."""

    def __init__(self, tables: TrailTables) -> None:
        spark: Any = tables.spark
        self._spark = spark
        logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        self._log = logs.forTable(spark._jsparkSession, tables.location(PAYLOAD))
        defaults = (getattr(self._log, f"update$default${at}")() for at in (2, 3))
        self._snapshot = self._log.update(False, *defaults)

    def that_can_hold(self, wanted: Wanted, sealed: Collection[str] = ()) -> list[str]:
        """By the statistics in the log, which tell nothing of the columns that are ``sealed``."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        statistics = DataFrame(self._snapshot.withStats(), self._spark)
        can = [
            _can_hold(statistics, f"key_{at}", field)
            for at, field in enumerate(wanted.fields)
            if field.names.isdisjoint(sealed)
        ] or [F.lit(True)]
        return [row["path"] for row in statistics.join(F.broadcast(wanted.values), can).select("path").collect()]

    @staticmethod
    def named(paths: Sequence[str], files: Sequence[str]) -> Sequence[str]:
        """The paths of these files, as the log has them; all of them where one is spelled otherwise."""
        names = {file.rpartition("/")[2] for file in files}
        found = [path for path in paths if path.rpartition("/")[2] in names]
        return found if len(found) >= len(names) else paths

    def rows(self, paths: Sequence[str]) -> DataFrame:
        from pyspark.sql import DataFrame

        files = self._snapshot.getSpecificFilesWithStats(self._spark._jvm.PythonUtils.toSeq(list(paths)))
        kind = getattr(self._log, "createDataFrame$default$4")()
        return DataFrame(self._log.createDataFrame(self._snapshot, files, False, kind), self._spark)


def _can_hold(statistics: DataFrame, key: str, field: Field) -> Column:
    """Of a file. One without statistics of the column can hold anything."""
    from pyspark.sql import functions as F

    known = statistics.schema["stats"].dataType
    value = F.col(key)
    anywhere = F.lit(False)
    for place in field.places:
        if not isinstance(place.type, _RANGED) or not _has(known, "minValues", "row", place.stored):
            return F.lit(True)
        least, most = (F.col(f"stats.{side}.row.{_quoted(place.stored)}") for side in ("minValues", "maxValues"))
        nulls = F.col(f"stats.nullCount.row.{_quoted(place.stored)}")
        if isinstance(place.type, TimestampType | TimestampNTZType):
            most = most + F.expr("interval 1 millisecond")  # the log has them cut to milliseconds
        unknown = least.isNull() & ~F.coalesce(nulls == F.col("stats.numRecords"), F.lit(False))
        anywhere = anywhere | unknown | value.isNull() | value.between(least, most)
    return anywhere


_RANGED = (IntegralType, DecimalType, StringType, DateType, TimestampType, TimestampNTZType)
"""Not floating points: writers do not agree on where NaN is."""


def _has(type: DataType, *path: str) -> bool:
    for name in path:
        if not isinstance(type, StructType) or name not in type.names:
            return False
        type = type[name].dataType
    return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def value_of(name: str, given: Any, type: DataType) -> Any:
    """What is given for the column ``name``, as PySpark has a value of this type; a text is read. Whole and exact: a decimal
    is not rounded, a time needs its zone. Raises ConfigError, which does not tell the value."""
    try:
        value = _read(given, type) if isinstance(given, str) else given
        if isinstance(type, DecimalType) and value is not None:
            value = _fitting(Decimal(value), type)
        if isinstance(type, TimestampType) and value is not None and value.tzinfo is None:
            raise ValueError
    except (ValueError, TypeError, AttributeError, InvalidOperation):
        like = next((text for kind, text in _LIKE if isinstance(type, kind)), "the value as it is")
        raise ConfigError(
            f"what is given for {name} is no {type.simpleString()}", hint=f"it looks like {like}"
        ) from None
    return value


_LIKE: Sequence[tuple[type[DataType], str]] = (
    (IntegralType, "42"),
    (DecimalType, "12.30, with no more digits than the column has"),
    (FractionalType, "1.5"),
    (BooleanType, "true or false"),
    (DateType, "2026-01-31"),
    (TimestampType, "2026-01-31T07:00:00Z, with its zone"),
    (TimestampNTZType, "2026-01-31T07:00:00, without a zone"),
    (BinaryType, "00ff, in hexadecimal"),
)


def _read(text: str, type: DataType) -> Any:
    match type:
        case StringType():
            return text
        case IntegralType() if re.fullmatch(r"[+-]?[0-9]+", text):
            return int(text)
        case DecimalType() if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text):
            return Decimal(text)
        case FractionalType() if not isinstance(type, DecimalType):
            return float(text)
        case BooleanType() if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case DateType():
            return dt.date.fromisoformat(text)
        case TimestampType():
            return dt.datetime.fromisoformat(text)
        case TimestampNTZType() if (time := dt.datetime.fromisoformat(text)).tzinfo is None:
            return time
        case BinaryType():
            return bytearray.fromhex(text)
    raise ValueError


def _fitting(value: Decimal, type: DecimalType) -> Decimal:
    """Raises where digits would be lost."""
    with_places = value.quantize(Decimal(1).scaleb(-type.scale))
    if with_places != value or with_places.adjusted() >= type.precision - type.scale:
        raise ValueError
    return with_places
