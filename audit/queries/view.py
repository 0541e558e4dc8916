"""A trail as one table: each event with its row and with what the record of its commit says."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

from audit.encryption import decrypt as opening
from audit.encryption.column_groups import Unreadable
from audit.encryption.decrypt import decrypt_rows, has_groups, mask_rows
from audit.trail.column_history import SEALED, Column
from audit.trail.record_kinds import parse_columns
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail

__all__ = [
    "TOLD",
    "UNREADABLE",
    "Field",
    "completed",
    "eras",
    "eras_by_name",
    "fields_at",
    "fields_of",
    "joined",
    "last_record",
    "now",
    "reasons",
    "records",
    "row_of",
    "shown",
    "view",
    "why",
    "widens",
]

UNREADABLE = "unreadable"
TOLD = ("operation", "actor", "ticket", "purpose", "job", "run", "approver")
"""What the view has of a commit's record."""


def view(trail: Trail) -> DataFrame:
    """Each event with its row and what its commit's record says.

    ``version``, ``index``, ``committed_at``, ``change_type``, ``baseline``, ``changed_columns``, ``values`` (``present`` or
    ``removed``), ``row`` (a struct of the columns that the source has now, and of those it has had; NULL where the values
    were removed), ``operation``, ``actor``, ``ticket``, ``purpose``, ``job``, ``run``, ``approver``. Events whose commit has
    no record yet have NULL in the last seven.

    A column that has changed its type has one field, of its present type, as far as that holds all that its former types
    could. Of another former type the values are in a field of their own, ``NAME__1``.

    A trail with sealed columns has ``unreadable`` too: by field of ``row``, why its value is not shown
    (``audit.encryption.column_groups``). With keys the view is that of this moment, and can be read for five minutes;
    after that a job fails with ``KeysTooOld``, and the view is made anew. What is sealed of commits without a record
    stays so."""
    fields, events = fields_of(trail.columns()), now(trail, EVENTS)  # before the payload, which is written first
    recorded = last_record(trail)
    return joined(trail, row_of(shown(trail, now(trail, PAYLOAD)), fields), events=events, recorded=recorded)


def now(trail: Trail, table: str) -> DataFrame:
    """As it is whenever it is asked something. With keys as it is at this moment, because they are asked for now: rows that
    come later would have none."""
    return trail.require_tables().read(table) if trail.states is None else trail.require_tables().read_current(table)


def shown(trail: Trail, payload: DataFrame, *more: str) -> DataFrame:
    """Rows of the payload as the trail's reader gets them: with the values that are sealed, if the trail has the keys. They
    have ``id``, ``version`` and ``row``, the columns ``more``, and where something is sealed ``unreadable``, by the fields
    of ``row``; opened ones have ``kept_hash``, which ``joined`` holds against their events. ``payload``: of ``now``. A
    notebook may hold them for days: what was opened can be read for five minutes."""
    from pyspark.sql import functions as F

    payload = completed(trail, payload)
    if not has_groups(payload):
        return payload.select("id", "version", "row", *more)
    payload = payload.select("id", "version", "salt", "row_hash", "row", "sealed", *more)
    past = eras(trail)
    said = _by_place(past).alias(UNREADABLE)
    if trail.states is None:
        # Beside a row without groups nothing is sealed: somebody has taken them away
        bare = F.col("row").getField(SEALED).isNull() & F.col("sealed").isNotNull()
        said = F.when(bare, _tampered(payload)).otherwise(said).alias(UNREADABLE)
        return mask_rows(payload).select("id", "version", "row", *more, said)
    last = records(trail).agg(F.max("version")).collect()[0][0]
    until, recorded = time.time() + opening.KEY_SECONDS, -1 if last is None else last
    rows = decrypt_rows(payload, past, trail.states, until=until, recorded=recorded)
    return rows.select("id", "version", "row", *more, said, F.col("row_hash").alias(_KEPT))


_KEPT = "kept_hash"


def completed(trail: Trail, payload: DataFrame) -> DataFrame:
    """The payload with every column of the trail in ``row``. A column is added to the payload with the first row that is
    written with it, so one that was renamed or has changed its type may still be missing: it is NULL here. Raises
    VerificationError where rows were written with a missing column: it was removed from the payload."""
    from pyspark.sql import functions as F

    held = payload.schema["row"].dataType
    assert isinstance(held, StructType)
    missing = [one for one in trail.columns() if one.stored not in held.names and one.name != SEALED]
    if missing and not payload.where(_written_with(trail, {one.stored for one in missing})).isEmpty():
        names = ", ".join(repr(one.name) for one in missing)
        raise VerificationError(
            f"the trail at {trail.path} cannot be read: its payload has rows that were written with {names}, "
            "and no such column any more",
            hint="`deltarelay audit verify` reports what is altered or gone",
        )
    row = F.col("row")
    for column in missing:
        row = row.withField(f"`{column.stored.replace('`', '``')}`", F.lit(None).cast(column.type))
    return payload.withColumn("row", row)


def _written_with(trail: Trail, stored: Collection[str]) -> SparkColumn:
    """Whether a row of the payload was written when the source had one of these columns."""
    from pyspark.sql import functions as F

    written = F.lit(False)
    for since, columns in eras(trail):
        had = any(one.live and one.stored in stored for one in columns)
        written = F.when(F.col("version") >= since, had).otherwise(written)
    return written


def why(rows: DataFrame) -> list[str]:
    """The column that tells which values are not shown, where there is one."""
    return [UNREADABLE] if UNREADABLE in rows.columns else []


def _by_place(past: Sequence[tuple[int, Sequence[Column]]]) -> SparkColumn:
    """``unreadable`` by where the row keeps the values, and not by what their columns were called then."""
    from pyspark.sql import functions as F

    then = [(since, {one.stored: one.name for one in columns if one.live}) for since, columns in past]
    found: dict[str, SparkColumn] = {}
    for stored in sorted({stored for _, names in then for stored in names if stored != SEALED}):
        said, before = F.lit(None).cast("string"), None
        for since, names in then:
            if (name := names.get(stored)) != before:
                new = F.lit(None) if name is None else F.col(UNREADABLE)[name]
                said, before = F.when(F.col("version") >= since, new).otherwise(said), name
        found[stored] = said
    return reasons(found)


def reasons(by_name: Mapping[str, SparkColumn]) -> SparkColumn:
    """As one map, without what has none; NULL where nothing has."""
    from pyspark.sql import functions as F

    if not by_name:
        return F.lit(None).cast("map<string, string>")
    names = F.array(*(F.lit(name) for name in by_name))
    found = F.map_filter(F.map_from_arrays(names, F.array(*by_name.values())), lambda _, why: why.isNotNull())
    return F.when(F.size(found) > 0, found)


def _tampered(rows: DataFrame) -> SparkColumn:
    """For all fields of the row."""
    from pyspark.sql import functions as F

    row = rows.schema["row"].dataType
    assert isinstance(row, StructType)
    return reasons({name: F.lit(str(Unreadable("tampered"))) for name in row.names if name != SEALED})


def eras(trail: Trail) -> list[tuple[int, Sequence[Column]]]:
    """The columns of the source from a version on."""
    from pyspark.sql import functions as F

    told = (
        records(trail).where(F.col("columns").isNotNull()).select("sequence", "version", "columns").orderBy("sequence")
    )
    return [(row["version"], parse_columns(row["columns"], version=row["version"])) for row in told.collect()]


def eras_by_name(trail: Trail) -> Sequence[tuple[int, Mapping[str, Column]]]:
    """From a version on, the places of columns, by the names that they have now, without those that are gone."""
    from pyspark.sql import functions as F

    told = records(trail).where(F.col("columns").isNotNull()).select("sequence", "version", "operation", "columns")
    eras = [
        (row["version"], row["operation"], _theirs(parse_columns(row["columns"], version=row["version"])))
        for row in told.orderBy("sequence").collect()
    ]
    own = {name.casefold(): name for name in eras[-1][2]}
    names = {name: name for name in eras[-1][2]}
    found: list[tuple[int, Mapping[str, Column]]] = []
    for at in reversed(range(len(eras))):
        version, operation, live = eras[at]
        found.append((version, {names[name]: place for name, place in live.items() if name in names}))
        if at:
            names = _before(names, own, operation, eras[at - 1][2], live)
    return found[::-1]


def _theirs(columns: Iterable[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns if column.live and column.name != SEALED}


def _before(
    names: Mapping[str, str],
    own: Mapping[str, str],
    operation: str | None,
    earlier: Mapping[str, Column],
    later: Mapping[str, Column],
) -> dict[str, str]:
    """The present name of each column before a commit, by those after it."""
    gone, new = ([name for name in one if name not in other] for one, other in ((earlier, later), (later, earlier)))
    if operation == "RENAME COLUMN" and len(gone) == len(new) == 1:
        names = {**names, **({gone[0]: names[new[0]]} if new[0] in names else {})}
    found = {name: names[name] for name in earlier if name in names}
    taken = set(found.values())
    # One that was dropped and came back
    again = {name: own[name.casefold()] for name in earlier if name not in found and name.casefold() in own}
    return {**found, **{name: now for name, now in again.items() if now not in taken}}


def last_record(trail: Trail) -> int | None:
    """The last record's number, for ``joined``: to be asked for before the payload is looked at. None without keys."""
    from pyspark.sql import functions as F

    if trail.states is None:
        return None
    number: int | None = trail.require_tables().read_current(LEDGER).agg(F.max("sequence")).collect()[0][0]
    return number


def joined(
    trail: Trail,
    payload: DataFrame,
    versions: Sequence[int] | None = None,
    *,
    events: DataFrame | None = None,
    recorded: int | None,
) -> DataFrame:
    """The view over rows of the payload, as ``row_of`` has them: of all events, or of those of these versions that have a
    row among them. A row that was opened and is not the one of its event is ``[tampered]``. ``recorded``: ``last_record``
    from before; what was sealed later by it, or by those after it, may be in the payload or not."""
    from pyspark.sql import functions as F

    events, told = trail.require_tables().read(EVENTS) if events is None else events, records(trail)
    if versions is not None:
        events, told = (rows.where(F.col("version").isin(list(versions))) for rows in (events, told))
    told = told.select("version", "baseline", *TOLD)
    held = _KEPT in payload.columns
    events = _with_hashes(trail, events, recorded) if held else events.select("id", *_WHAT)
    found = events.join(payload, ["id", "version"], "left" if versions is None else "inner")
    if held:
        other = F.col("row").isNotNull() & ~F.array_contains("deltarelay_hashes", F.col(_KEPT))
        found = found.withColumn(UNREADABLE, F.when(other, _tampered(payload)).otherwise(F.col(UNREADABLE)))
        found = found.drop("deltarelay_hashes", _KEPT)
    found = found.join(F.broadcast(told), ["version", "baseline"], "left")
    present = F.when(F.col("row").isNull(), "removed").otherwise("present")
    return found.withColumn("values", present).drop("id")


def _with_hashes(trail: Trail, events: DataFrame, recorded: int | None) -> DataFrame:
    """With those that the event's row may have: its own, or that of the last record by which the row was sealed later; while
    that is being done, also the one before."""
    from pyspark.sql import functions as F

    from audit.verification.payload_records import read_reencrypted_hashes

    events = events.select("id", *_WHAT, F.col("row_hash").alias("deltarelay_hash"))
    later = read_reencrypted_hashes(trail.require_tables().read_current(LEDGER), recorded)
    told: list[SparkColumn] = [F.col("deltarelay_hash")]
    if later is not None:
        events = events.join(later.withColumnRenamed("event_version", "version"), ["version", "index"], "left")
        before = F.when(F.col("late"), F.coalesce("hash_before", "deltarelay_hash"))
        told = [F.coalesce("sealed_hash", "deltarelay_hash"), before]
    hashes = F.array_compact(F.array(*told))
    return events.select("id", *_WHAT, hashes.alias("deltarelay_hashes"))


_WHAT = ("version", "index", "committed_at", "change_type", "baseline", "changed_columns")
"""What the view has of an event. Not ``*``: somebody may have added columns, which no hash covers."""


def records(trail: Trail) -> DataFrame:
    """The ledger's records as columns, one row per commit of the source, also those that changed no row.

    ``sequence``, ``version``, ``baseline``, ``committed_at``, ``operation``, ``parameters`` (JSON), ``actor``, ``ticket``,
    ``purpose``, ``job``, ``run``, ``approver``, ``rows``, ``counts`` (by change type), ``log_sha256``, ``columns`` (JSON;
    NULL where they are those of the record before).
    """
    from pyspark.sql import functions as F

    told = F.from_json("record", _RECORD)
    return (
        trail.require_tables()
        .read(LEDGER)
        .where("kind in ('commit', 'baseline')")
        .select(
            "sequence",
            "version",
            (F.col("kind") == "baseline").alias("baseline"),
            "committed_at",
            told["operation"].alias("operation"),
            F.get_json_object("record", "$.parameters").alias("parameters"),
            told["user"].alias("actor"),
            *(told[name].alias(name) for name in TOLD[2:]),
            F.col("events").alias("rows"),
            told["counts"].alias("counts"),
            told["log_sha256"].alias("log_sha256"),
            F.get_json_object("record", "$.columns").alias("columns"),
        )
    )


_RECORD = (
    "operation string, user string, ticket string, purpose string, job string, run string, approver string, "
    "counts map<string, long>, log_sha256 string"
)


# ── one row out of all the places ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the source, as the view shows it: from wherever its value is."""

    name: str
    places: tuple[Column, ...]
    """The last one has the type that is shown; what was kept in the others, it can hold."""
    since: int | None = None
    """What versions before had is not shown: the column was dropped, and came back as another one."""

    @property
    def type(self) -> DataType:
        return self.places[-1].type

    @property
    def names(self) -> frozenset[str]:
        """All that it was ever called, with their case folded: a sealed row tells the name of its time."""
        return frozenset(map(str.casefold, self._called()))

    @property
    def lowered(self) -> frozenset[str]:
        """The same as Spark's ``lower`` makes them, which leaves the letters that Python folds."""
        return frozenset(map(str.lower, self._called()))

    def _called(self) -> Iterator[str]:
        yield self.name
        yield from (place.name for place in self.places)

    def value(self) -> SparkColumn:
        from pyspark.sql import functions as F

        kept = [_as(F.col("row").getField(place.stored), place.type, self.type) for place in reversed(self.places)]
        return self._since(F.coalesce(*kept) if len(kept) > 1 else kept[0])

    def reason(self) -> SparkColumn:
        """Of a row of ``shown`` with ``unreadable``: why the value is not shown."""
        from pyspark.sql import functions as F

        return self._since(F.coalesce(*(F.col(UNREADABLE)[place.stored] for place in self.places)))

    def untold(self) -> SparkColumn:
        """Of the same: nobody can tell the value. What is NULL for no reason is no value."""
        return self.value().isNull() & self.reason().isNotNull()

    def _since(self, value: SparkColumn) -> SparkColumn:
        from pyspark.sql import functions as F

        return value if self.since is None else F.when(F.col("version") >= self.since, value)


def row_of(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Rows of ``shown`` with ``row`` and ``unreadable`` by these fields."""
    from pyspark.sql import functions as F

    row = F.struct(*(field.value().alias(field.name) for field in fields)).alias("row")
    said = reasons({field.name: field.reason() for field in fields}) if UNREADABLE in rows.columns else None
    own = [] if said is None else [said.alias(UNREADABLE)]
    return rows.select("id", "version", row, *own, *(name for name in rows.columns if name == _KEPT))


def fields_of(columns: Iterable[Column], *, nested: bool = True) -> list[Field]:
    """Of all columns that the source has ever had, those of one name together; as Delta sees it, in whatever case.

    ``nested=False``: what has got new fields inside is not brought together.
    """
    by_name: dict[str, list[Column]] = {}
    for column in sorted((one for one in columns if one.name != SEALED), key=lambda column: column.live):
        by_name.setdefault(column.name.casefold(), []).append(column)
    return _fields([(places[-1].name, None, places) for places in by_name.values()], nested=nested)


def fields_at(trail: Trail, version: int) -> list[Field]:
    """The columns that the source had at this version, by the names that they had then."""
    from pyspark.sql import functions as F

    told = records(trail).where(F.col("columns").isNotNull() & (F.col("version") <= version))
    columns: dict[str, tuple[int | None, list[Column]]] = {}
    for at, era in enumerate(told.select("sequence", "version", "operation", "columns").orderBy("sequence").collect()):
        held = parse_columns(era["columns"], version=era["version"])
        live = {column.name: column for column in held if column.live and column.name != SEALED}
        gone, new = ([name for name in one if name not in other] for one, other in ((columns, live), (live, columns)))
        if era["operation"] == "RENAME COLUMN" and len(gone) == len(new) == 1:
            columns[new[0]] = columns[gone[0]]
        columns = {name: columns.get(name, (era["version"] if at else None, [])) for name in live}
        for name, place in live.items():
            since, places = columns[name]
            columns[name] = (since, [*(other for other in places if other.stored != place.stored), place])
    return _fields([(name, since, places) for name, (since, places) in columns.items()])


def _fields(groups: Sequence[tuple[str, int | None, Sequence[Column]]], *, nested: bool = True) -> list[Field]:
    """A field for the last form of each column, and one for every former form that it cannot hold."""
    taken = {name.casefold() for name, _, _ in groups}
    fields = []
    for name, since, places in groups:
        now = places[-1]
        held = [place for place in places[:-1] if widens(place.type, now.type, nested=nested)]
        fields.append(Field(name, (*held, now), since))
        others = (place for place in places[:-1] if place not in held)
        fields.extend(Field(_own(place.stored, name, taken), (place,), since) for place in others)
    return fields


def _own(stored: str, name: str, taken: set[str]) -> str:
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


def widens(before: DataType, after: DataType, *, nested: bool = True) -> bool:
    """Whether ``after`` holds every value of ``before``, each as another value."""
    if before == after:
        return True
    if nested:
        match before, after:
            case ArrayType(elementType=one), ArrayType(elementType=other):
                return widens(one, other)
            case MapType(keyType=key, valueType=one), MapType(keyType=other_key, valueType=other):
                return key == other_key and widens(one, other)
            case StructType(), StructType():
                return all(
                    field.name in after.names and widens(field.dataType, after[field.name].dataType)
                    for field in before.fields
                )
    if isinstance(after, DecimalType):
        digits, scale = (
            (before.precision, before.scale) if isinstance(before, DecimalType) else (_DIGITS.get(type(before), 99), 0)
        )
        return after.scale >= scale and after.precision - after.scale >= digits - scale
    return type(after) in _WIDER.get(type(before), ())


def _as(value: SparkColumn, before: DataType, after: DataType) -> SparkColumn:
    """The value in a type that holds it."""
    from pyspark.sql import functions as F

    if before == after:
        return value
    match before, after:
        case ArrayType(elementType=one), ArrayType(elementType=other):
            return F.transform(value, lambda item: _as(item, one, other))
        case MapType(valueType=one), MapType(valueType=other):
            return F.transform_values(value, lambda _, item: _as(item, one, other))
        case StructType(), StructType():
            grown = (
                _as(value.getField(field.name), before[field.name].dataType, field.dataType)
                if field.name in before.names
                else F.lit(None).cast(field.dataType)
                for field in after.fields
            )
            fields = (column.alias(field.name) for column, field in zip(grown, after.fields, strict=True))
            return F.when(value.isNotNull(), F.struct(*fields))
    return value.cast(after)
