"""A trail as one table: each event with its row and the record of its commit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.encryption import decrypt
from audit.encryption.column_groups import Unreadable
from audit.encryption.decrypt import decrypt_rows, has_groups, mask_rows
from audit.queries.column_eras import list_column_eras
from audit.queries.commit_records import RECORD_COLUMNS, read_commit_records, read_last_sequence
from audit.queries.fields import UNREADABLE, Field, build_fields, collect_reasons
from audit.trail.column_history import SEALED, Column
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail

__all__ = [
    "add_missing_columns",
    "divide_into_ranges",
    "join_events",
    "read_table",
    "read_values",
    "reason_columns",
    "select_row",
    "view",
]

_STORED_HASH = "kept_hash"


def view(trail: Trail) -> DataFrame:
    """Each event with its row and the record of its commit.

    ``version``, ``index``, ``committed_at``, ``change_type``, ``baseline``, ``changed_columns``, ``values`` (``present`` or
    ``removed``), ``row`` (a struct of the columns that the source has now, and of those it has had; NULL where the values
    were removed), ``operation``, ``actor``, ``ticket``, ``purpose``, ``job``, ``run``, ``approver``. Events whose commit has
    no record yet have NULL in the last seven.

    A column that has changed its type has one field of the present type, if that type can hold all values of the former
    ones. Values of other former types have a field of their own, ``NAME__1``.

    A trail with encrypted columns also has ``unreadable``: by field of ``row``, why its value is not shown
    (``audit.encryption.column_groups``). With keys, the view has the events of now and can be read for five minutes;
    then jobs fail with ``KeysTooOld``, and the view must be created again. Encrypted values of commits without a record
    stay encrypted."""
    fields, events = (
        build_fields(trail.columns()),
        read_table(trail, EVENTS),
    )  # before the payload, which is written first
    recorded = read_last_sequence(trail)
    rows = select_row(read_values(trail, read_table(trail, PAYLOAD)), fields)
    return join_events(trail, rows, events=events, recorded=recorded)


def read_table(trail: Trail, table: str) -> DataFrame:
    """A table of the trail, always in its latest version. With keys: in its version of now, because the keys are requested
    now, and later rows would have none."""
    return trail.require_tables().read(table) if trail.states is None else trail.require_tables().read_current(table)


def read_values(trail: Trail, payload: DataFrame, *more: str, columns: Sequence[Column] | None = None) -> DataFrame:
    """Rows of the payload with decrypted values where the trail has the keys.

    They have ``id``, ``version``, ``row``, the columns ``more``, and ``unreadable``, by fields of ``row``, where
    something is encrypted. Decrypted rows also have ``kept_hash``, which ``join_events`` compares with their events.
    ``payload``: of ``read_table``. ``columns``: those of the trail, if they were read already. Decrypted rows can be read
    for five minutes, although a notebook may keep the DataFrame for days."""
    from pyspark.sql import functions as F

    payload = add_missing_columns(trail, payload, columns)
    if not has_groups(payload):
        return payload.select("id", "version", "row", *more)
    payload = payload.select("id", "version", "salt", "row_hash", "row", "sealed", *more)
    past = list_column_eras(trail)
    reasons = _by_place(past).alias(UNREADABLE)
    if trail.states is None:
        # Ciphertexts beside a row without groups: the groups were removed
        bare = F.col("row").getField(SEALED).isNull() & F.col("sealed").isNotNull()
        reasons = F.when(bare, _tampered(payload)).otherwise(reasons).alias(UNREADABLE)
        return mask_rows(payload).select("id", "version", "row", *more, reasons)
    last = read_commit_records(trail).agg(F.max("version")).collect()[0][0]
    until, recorded = time.time() + decrypt.KEY_SECONDS, -1 if last is None else last
    rows = decrypt_rows(payload, past, trail.states, until=until, recorded=recorded)
    return rows.select("id", "version", "row", *more, reasons, F.col("row_hash").alias(_STORED_HASH))


def add_missing_columns(trail: Trail, payload: DataFrame, columns: Sequence[Column] | None = None) -> DataFrame:
    """The payload with every column of the trail in ``row``; missing ones are NULL. ``columns``: as in ``read_values``.

    A column is added to the payload with the first row that is written with it, so a renamed or retyped column may be
    missing. Raises VerificationError where rows were written with a missing column: it was removed from the payload."""
    from pyspark.sql import functions as F

    row_type = payload.schema["row"].dataType
    assert isinstance(row_type, StructType)
    known = trail.columns() if columns is None else columns
    missing = [one for one in known if one.stored not in row_type.names and one.name != SEALED]
    if missing and not payload.where(_written_with(trail, {one.stored for one in missing})).isEmpty():
        names = ", ".join(repr(one.name) for one in missing)
        raise VerificationError(
            f"the trail at {trail.path} cannot be read: its payload has rows that were written with {names}, "
            "and these columns are missing now",
            hint="`deltarelay audit verify` reports what is altered or missing",
        )
    row = F.col("row")
    for column in missing:
        row = row.withField(f"`{column.stored.replace('`', '``')}`", F.lit(None).cast(column.type))
    return payload.withColumn("row", row)


def _written_with(trail: Trail, stored: Collection[str]) -> SparkColumn:
    """Whether a row of the payload was written when the source had one of these columns."""
    from pyspark.sql import functions as F

    written = F.lit(False)
    for since, columns in list_column_eras(trail):
        had = any(one.live and one.stored in stored for one in columns)
        written = F.when(F.col("version") >= since, had).otherwise(written)
    return written


def reason_columns(rows: DataFrame) -> list[str]:
    """The name of the column ``unreadable``, if the rows have it."""
    return [UNREADABLE] if UNREADABLE in rows.columns else []


def _by_place(past: Sequence[tuple[int, Sequence[Column]]]) -> SparkColumn:
    """``unreadable`` by the place in which the payload stores the values, instead of by the former names of columns."""
    from pyspark.sql import functions as F

    then = [(since, {one.stored: one.name for one in columns if one.live}) for since, columns in past]
    found: dict[str, SparkColumn] = {}
    for stored in sorted({stored for _, names in then for stored in names if stored != SEALED}):
        reason, before = F.lit(None).cast("string"), None
        for since, names in then:
            if (name := names.get(stored)) != before:
                new = F.lit(None) if name is None else F.col(UNREADABLE)[name]
                reason, before = F.when(F.col("version") >= since, new).otherwise(reason), name
        found[stored] = reason
    return collect_reasons(found)


def _tampered(rows: DataFrame) -> SparkColumn:
    """Reasons for all fields of the row."""
    from pyspark.sql import functions as F

    row = rows.schema["row"].dataType
    assert isinstance(row, StructType)
    return collect_reasons({name: F.lit(str(Unreadable("tampered"))) for name in row.names if name != SEALED})


def join_events(
    trail: Trail,
    payload: DataFrame,
    versions: Sequence[int] | None = None,
    *,
    events: DataFrame | None = None,
    recorded: int | None,
) -> DataFrame:
    """The view over rows of the payload (``select_row``): all events, or the events of ``versions`` that have a row.

    A decrypted row whose hash is not that of its event is ``[tampered]``. ``recorded``: ``read_last_sequence`` from
    before the payload was read; rows that were encrypted later, by that record or by later ones, may be in the payload
    or not."""
    from pyspark.sql import functions as F

    events, commits = trail.require_tables().read(EVENTS) if events is None else events, read_commit_records(trail)
    if versions is not None:
        events, commits = (rows.where(_is_one_of(versions)) for rows in (events, commits))
    commits = commits.select("version", "baseline", *RECORD_COLUMNS)
    decrypted = _STORED_HASH in payload.columns
    events = _with_hashes(trail, events, recorded) if decrypted else events.select("id", *_EVENT_COLUMNS)
    found = events.join(payload, ["id", "version"], "left" if versions is None else "inner")
    if decrypted:
        other = F.col("row").isNotNull() & ~F.array_contains("deltarelay_hashes", F.col(_STORED_HASH))
        found = found.withColumn(UNREADABLE, F.when(other, _tampered(payload)).otherwise(F.col(UNREADABLE)))
        found = found.drop("deltarelay_hashes", _STORED_HASH)
    found = found.join(F.broadcast(commits), ["version", "baseline"], "left")
    present = F.when(F.col("row").isNull(), "removed").otherwise("present")
    return found.withColumn("values", present).drop("id")


def _is_one_of(versions: Sequence[int]) -> SparkColumn:
    """Whether a row has one of these versions, which are ascending. Also as ranges: of a list, Delta compares only the least
    and the greatest value with the statistics of a file."""
    from pyspark.sql import functions as F

    ranges = (F.col("version").between(*ends) for ends in divide_into_ranges(versions))
    return F.col("version").isin(list(versions)) & reduce(or_, ranges, F.lit(False))


def divide_into_ranges(numbers: Sequence[int], most: int = 100) -> list[tuple[int, int]]:
    """The first and last of the ascending numbers between their widest gaps. ``most``: so many ranges; Spark takes longer to
    plan a longer condition than it saves."""
    if not numbers:
        return []
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    ends = sorted(sorted(range(len(gaps)), key=lambda at: -gaps[at])[: most - 1])
    starts = [0, *(at + 1 for at in ends)]
    return [(numbers[first], numbers[last]) for first, last in zip(starts, [*ends, -1], strict=True)]


def _with_hashes(trail: Trail, events: DataFrame, recorded: int | None) -> DataFrame:
    """Add the hashes that the row of an event may have: its own, or that of the last record by which the row was encrypted
    later; while that record is being applied, also the hash before."""
    from pyspark.sql import functions as F

    from audit.verification.payload_records import read_reencrypted_hashes

    events = events.select("id", *_EVENT_COLUMNS, F.col("row_hash").alias("deltarelay_hash"))
    later = read_reencrypted_hashes(trail.require_tables().read_current(LEDGER), recorded)
    possible: list[SparkColumn] = [F.col("deltarelay_hash")]
    if later is not None:
        events = events.join(later.withColumnRenamed("event_version", "version"), ["version", "index"], "left")
        before = F.when(F.col("late"), F.coalesce("hash_before", "deltarelay_hash"))
        possible = [F.coalesce("sealed_hash", "deltarelay_hash"), before]
    hashes = F.array_compact(F.array(*possible))
    return events.select("id", *_EVENT_COLUMNS, hashes.alias("deltarelay_hashes"))


_EVENT_COLUMNS = ("version", "index", "committed_at", "change_type", "baseline", "changed_columns")
"""The columns of an event in the view. Not ``*``, because columns may have been added, which no hash covers."""


def select_row(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Rows of ``read_values`` with ``row`` and ``unreadable`` by these fields."""
    from pyspark.sql import functions as F

    row = F.struct(*(field.value().alias(field.name) for field in fields)).alias("row")
    has_reasons = UNREADABLE in rows.columns
    own = [collect_reasons({field.name: field.reason() for field in fields}).alias(UNREADABLE)] if has_reasons else []
    return rows.select("id", "version", row, *own, *(name for name in rows.columns if name == _STORED_HASH))
