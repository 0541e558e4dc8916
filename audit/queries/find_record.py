"""Finds the rows of one record in a trail, without the key in any query plan.

A literal in a filter occurs in Spark's plans, and so in its event log and web pages; so does a literal for Delta's data
skipping. Therefore the key is data, a table of one row. A join with the statistics in the Delta log selects the files
that can contain the key; a join with these files selects the rows. Plans contain only versions and file names. (The key
can still be read from the memory of Spark's processes, and from the process list of the machine if it was passed on the
command line.)

The statistics are those of the key's columns in the payload. They are trusted here, as every reader of Delta trusts them;
``audit verify`` reads the values.
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
from audit.hidden_rows import create_hidden_rows
from audit.queries.fields import UNREADABLE, Field
from audit.queries.view import add_missing_columns, read_values, select_row
from audit.trail.column_history import SEALED
from audit.trail.column_history import Column as StoredColumn
from audit.trail.compaction import FILE_BYTES
from audit.trail.tables import PAYLOAD, TrailTables
from cdf.changes.few_rows import few_rows
from cdf.errors import ConfigError
from cdf.session import require_classic
from cdf.spark_versions import metadata_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from audit.audit_trail import Trail

__all__ = ["Wanted", "create_row", "find_rows", "parse_value"]

_READ_ONCE_BYTES = 2 * FILE_BYTES
"""Up to this size, whole rows are read at once, and kept on the driver if they are few. Of more, first the columns that are
searched are read, then the files with matching rows: before ``audit optimize`` nearly every file can have the record."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The record that is searched for: some fields of the view, and their values."""

    fields: tuple[Field, ...]
    values: DataFrame
    """One row, ``key_0`` and so on."""

    @classmethod
    def of(cls, spark: SparkSession, record: Mapping[str, Any], fields: Sequence[Field]) -> Wanted:
        """Raises ConfigError, which does not contain the value, for an unknown column and for a value of another type."""
        by_name = {field.name.casefold(): field for field in fields}
        found = [(by_name.get(name.casefold()), value) for name, value in record.items()]
        chosen = [(field, value) for field, value in found if field is not None]
        if not record or len(chosen) < len(record):
            raise ConfigError(
                "the trail does not have a column by which the record is searched for",
                hint=f"its columns: {', '.join(field.name for field in fields)}",
            )
        named = [(field.name, value, field.type) for field, value in chosen]
        return cls(tuple(field for field, _ in chosen), create_row(spark, named))


def create_row(spark: SparkSession, values: Sequence[tuple[str, Any, DataType]]) -> DataFrame:
    """Names, values and types as one row, ``key_0`` and so on. Raises ConfigError, which does not contain the values."""
    schema = StructType([StructField(f"key_{at}", type) for at, (_, _, type) in enumerate(values)])
    row = tuple(parse_value(*one) for one in values)
    try:
        return spark.createDataFrame([row], schema)
    except Exception:  # the error quotes the value
        shown = ", ".join(f"{name} ({type.simpleString()})" for name, _, type in values)
        raise ConfigError("a value does not match its type", hint=f"the types: {shown}") from None


def find_rows(
    trail: Trail, wanted: Wanted, fields: Sequence[Field], columns: Sequence[StoredColumn]
) -> tuple[DataFrame, list[int]]:
    """The rows of the events that have the wanted values, by these ``fields`` (``select_row``), and their versions.
    ``columns``: those of the trail. Raises ConfigError where the values are encrypted and the trail has no keys."""
    files = _Files(tables := trail.require_tables())
    encrypted = find_encrypted_columns(tables.read(PAYLOAD)) & {name for field in wanted.fields for name in field.names}
    if encrypted and trail.states is None:
        raise ConfigError(
            "the record is searched for by a column that is encrypted",
            hint=f"use --decrypt, which needs the keys; encrypted columns: {', '.join(sorted(encrypted))}",
        )
    paths, size = files.select_candidates(wanted, encrypted)

    def matching(paths: Sequence[str]) -> DataFrame:
        rows = files.rows(paths)
        file = metadata_column(rows).getField("file_path").alias("path")
        # Not ``*``, because columns may have been added
        own = ("salt", "row_hash", "sealed") if has_groups(rows) else ()
        rows = add_missing_columns(trail, rows.select("id", "version", "row", *own, file), columns)
        if not encrypted:
            return _matching(rows, wanted)
        candidates = _candidates(trail, wanted, rows)
        if candidates is None:
            return _matching(read_values(trail, rows, "path", columns=columns), wanted)
        theirs, others, person = candidates
        # If the person is the only encrypted value asked for, rows with a plaintext person need no decryption
        alone = all(field == person or encrypted.isdisjoint(field.names) for field in wanted.fields)
        rest = (
            read_values(trail, _matching(others, wanted), "path", columns=columns)
            if alone
            else _matching(read_values(trail, others, "path", columns=columns), wanted)
        )
        return _matching(read_values(trail, theirs, "path", columns=columns), wanted).unionByName(rest)

    rows = matching(paths)
    # Values that were decrypted for the search are not kept
    kept = few_rows(rows) if not encrypted and size <= _READ_ONCE_BYTES else None
    if kept is not None:
        versions = set(kept.column("version").to_pylist())
        rows = create_hidden_rows(tables.spark, kept.combine_chunks(), rows.schema)
    else:
        found = rows.select("version", "path").distinct().collect()
        versions = {one["version"] for one in found}
        rows = matching(files.select_named(paths, [one["path"] for one in found]))
    rows = rows if encrypted else read_values(trail, rows, columns=columns)
    return select_row(rows, fields), sorted(versions)


def _candidates(trail: Trail, wanted: Wanted, rows: DataFrame) -> tuple[DataFrame, DataFrame, Field] | None:
    """For a search by the person of a row: the rows that are encrypted for that person, the rows whose person is
    plaintext, and the person's column. None for other searches: they must decrypt every row."""
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
    """The column by which a person is searched for, and the person's token in the registry, if the person has one."""
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

    values = {f"value_{at}": field.value() for at, field in enumerate(wanted.fields)}
    same = [F.col(f"value_{at}").eqNullSafe(F.col(f"key_{at}")) for at in range(len(wanted.fields))]
    if UNREADABLE in rows.columns:
        rows = rows.where(~reduce(or_, (field.is_hidden() for field in wanted.fields)))
    found = rows.select("*", *(value.alias(name) for name, value in values.items()))
    return found.join(F.broadcast(wanted.values), same).select(*rows.columns)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Files:
    """The files of one version of the payload."""

    def __init__(self, tables: TrailTables) -> None:
        require_classic(tables.spark, f"the search in the trail at {tables.path}")
        spark: Any = tables.spark
        self._spark = spark
        logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        self._log = logs.forTable(spark._jsparkSession, tables.location(PAYLOAD))
        defaults = (getattr(self._log, f"update$default${at}")() for at in (2, 3))
        self._snapshot = self._log.update(False, *defaults)

    def select_candidates(self, wanted: Wanted, encrypted: Collection[str] = ()) -> tuple[list[str], int]:
        """Select files by the statistics in the log, which do not cover the encrypted columns ``encrypted``; → their paths,
        and their size together."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        statistics = DataFrame(self._snapshot.withStats(), self._spark)
        can = [
            _may_contain(statistics, f"key_{at}", field)
            for at, field in enumerate(wanted.fields)
            if field.names.isdisjoint(encrypted)
        ] or [F.lit(True)]
        found = statistics.join(F.broadcast(wanted.values), can).select("path", "size").collect()
        return [row["path"] for row in found], sum(row["size"] for row in found)

    @staticmethod
    def select_named(paths: Sequence[str], files: Sequence[str]) -> Sequence[str]:
        """The paths of these files as the log has them; all paths where one is spelled differently."""
        names = {file.rpartition("/")[2] for file in files}
        found = [path for path in paths if path.rpartition("/")[2] in names]
        return found if len(found) >= len(names) else paths

    def rows(self, paths: Sequence[str]) -> DataFrame:
        from pyspark.sql import DataFrame

        files = self._snapshot.getSpecificFilesWithStats(self._spark._jvm.PythonUtils.toSeq(list(paths)))
        kind = getattr(self._log, "createDataFrame$default$4")()
        return DataFrame(self._log.createDataFrame(self._snapshot, files, False, kind), self._spark)


def _may_contain(statistics: DataFrame, key: str, field: Field) -> Column:
    """Whether a file can contain the key. A file without statistics of the column can."""
    from pyspark.sql import functions as F

    known = statistics.schema["stats"].dataType
    value = F.col(key)
    anywhere = F.lit(False)
    for place in field.places:
        if not isinstance(place.type, _RANGED) or not _has_field(known, "minValues", "row", place.stored):
            return F.lit(True)
        least, most = (F.col(f"stats.{side}.row.{_quoted(place.stored)}") for side in ("minValues", "maxValues"))
        nulls = F.col(f"stats.nullCount.row.{_quoted(place.stored)}")
        if isinstance(place.type, TimestampType | TimestampNTZType):
            most = most + F.expr("interval 1 millisecond")  # the log truncates times to milliseconds
        unknown = least.isNull() & ~F.coalesce(nulls == F.col("stats.numRecords"), F.lit(False))
        anywhere = anywhere | unknown | value.isNull() | value.between(least, most)
    return anywhere


_RANGED = (IntegralType, DecimalType, StringType, DateType, TimestampType, TimestampNTZType)
"""Without floating-point types: writers order NaN differently."""


def _has_field(type: DataType, *path: str) -> bool:
    for name in path:
        if not isinstance(type, StructType) or name not in type.names:
            return False
        type = type[name].dataType
    return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_value(name: str, given: Any, type: DataType) -> Any:
    """Parse a value for the column ``name`` into PySpark's value of this type. The value must be exact: a decimal is not
    rounded, a time needs its zone. Raises ConfigError, which does not contain the value."""
    try:
        value = _parse(given, type) if isinstance(given, str) else given
        if isinstance(type, DecimalType) and value is not None:
            value = _fit_decimal(Decimal(value), type)
        if isinstance(type, TimestampType) and value is not None and value.tzinfo is None:
            raise ValueError
    except (ValueError, TypeError, AttributeError, InvalidOperation):
        like = next((text for kind, text in _EXAMPLES if isinstance(type, kind)), "the plain value")
        raise ConfigError(
            f"the value for {name} is not a valid {type.simpleString()}", hint=f"example: {like}"
        ) from None
    return value


_EXAMPLES: Sequence[tuple[type[DataType], str]] = (
    (IntegralType, "42"),
    (DecimalType, "12.30, with no more digits than the column has"),
    (FractionalType, "1.5"),
    (BooleanType, "true or false"),
    (DateType, "2026-01-31"),
    (TimestampType, "2026-01-31T07:00:00Z, with its zone"),
    (TimestampNTZType, "2026-01-31T07:00:00, without a zone"),
    (BinaryType, "00ff, in hexadecimal"),
)


def _parse(text: str, type: DataType) -> Any:
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


def _fit_decimal(value: Decimal, type: DecimalType) -> Decimal:
    """Raises ValueError where digits would be lost."""
    with_places = value.quantize(Decimal(1).scaleb(-type.scale))
    if with_places != value or with_places.adjusted() >= type.precision - type.scale:
        raise ValueError
    return with_places
