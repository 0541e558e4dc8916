"""Rows from before a class of columns was named, sealed later: the sealed rows first, then the record, then the payload.

The event keeps the hash of the row as it was. The record names the places of the rows and has a root over the hashes that
they have from then on, which stand beside it: they are what the rows are held against. The old salt goes with the values,
so that nobody can try guesses against the event.

What the record tells is true for good, so the whole trail is verified first, and the rows, what they have to be and what the
ledger says of them are read as of that very state: what somebody changes meanwhile is believed as little as what was changed
before. Each row is held against its event as well.

What is to take the rows' place is made in a folder of its own, because no key seals the same twice: whoever takes the trail
over after a crash has either no record yet, and removes the folder, or the record, which names it, and all that it tells of.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, BooleanType, LongType, StructField, StructType

from audit.encryption.column_groups import PersonColumns, encrypt_rows, keys_column, read_row_keys
from audit.encryption.decrypt import has_groups
from audit.encryption.encrypt import ColumnEncryption, invalid_utf8_error, join_keys
from audit.encryption.stored_groups import match_groups
from audit.hashing.merkle import merkle_root
from audit.queries.column_eras import list_column_eras, list_column_eras_by_name
from audit.trail.column_history import GROUPS, SEALED, Column, row_type
from audit.trail.ledger import State, append_removal, read_state_from_records
from audit.trail.record_kinds import is_folder_name
from audit.trail.redaction import shorten_text
from audit.trail.row_hashes import hash_rows
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables
from audit.verification.payload_records import read_cleared_keys, read_reencrypted_hashes
from cdf.errors import VerificationError
from cdf.result import Result

if TYPE_CHECKING:
    import pyarrow as pa
    from delta.tables import DeltaTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from audit.signing.signer import Signer

__all__ = ["Resealing", "Unsealed", "finish_sealing", "tidy", "unsealed"]

ROUND = 1_000_000
"""So many rows, or those of one file, are sealed under one record."""
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Unsealed(Result):
    """Rows of people whose columns of a class are readable: they were written before the class was named."""

    rows: int = 0
    first_version: int | None = None
    last_version: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    """Rows by class; one may be of several."""


def unsealed(trail: Trail, sealing: ColumnEncryption) -> Unsealed:
    """Reads of the payload the columns of the classes."""
    from pyspark.sql import functions as F

    rows, named = _asked(trail, sealing)
    counts = [F.count_if(reduce(or_, (F.col(one) for one in of_class))) for of_class in named.values()]
    found = rows.agg(F.count("*"), F.min("version"), F.max("version"), *counts).collect()[0]
    return Unsealed(found[0], found[1], found[2], {name: n for name, n in zip(named, found[3:], strict=True) if n})


@dataclass(frozen=True, slots=True)
class Resealing:
    """A run of it, by who holds the trail, and while nothing is pending. ``tables``: those to write into."""

    trail: Trail
    tables: TrailTables
    sealing: ColumnEncryption
    reasons: Mapping[str, str]
    """Some of ``audit.writing.removal.REASONS``."""
    signer: Signer | None = None

    def run(self, state: State, progress: Callable[[int], None] = lambda _: None) -> State:
        """Seal every row that is not, under a record for each million; → where the trail stands then. ``progress`` is told
        how many are done. Raises VerificationError where the trail is not what was written."""
        from pyspark.sql import functions as F

        if not has_groups(self.tables.now(PAYLOAD)):
            self._widen()
        held = copy(self.trail)
        held.tables = self.trail.there().as_now()
        rows, named = _asked(held, self.sealing, F.col("_metadata.file_path").alias("file"))
        sizes = {one["file"]: one["count"] for one in rows.groupBy("file").count().collect()}
        if sizes:
            self._verify(held, state)
        done = 0
        for files in _rounds(sizes):
            some = rows if len(files) == len(sizes) else rows.where(F.col("file").isin(files))
            state = self._round(state, held, some, sorted(named))
            done += sum(sizes[one] for one in files)
            progress(done)
        return state

    def _verify(self, held: Trail, state: State) -> None:
        found, verified = held.verify()
        if verified is not None and (verified.size, verified.previous) == (state.sequence, state.previous):
            return
        told = [one.text for one in found.findings] or ["its ledger does not end where it was taken over"]
        raise VerificationError(
            f"the trail at {self.trail.path} is not what was written: nothing is sealed in it ({told[0]})",
            hint="`deltarelay audit verify` tells what is altered",
        )

    def _widen(self) -> None:
        """Give the payload the columns that sealed rows have."""
        held = self.tables.now(PAYLOAD)
        row = StructType([*_struct(held, "row").fields, StructField(SEALED, GROUPS)])
        rest = [one for one in held.schema.fields if one.name not in ("row", "sealed")]
        new = [StructField("row", row), StructField("sealed", ArrayType(BinaryType()))]
        none = held.sparkSession.createDataFrame([], StructType([*rest, *new]))
        self.tables.append(PAYLOAD, none, about={"sealing": "columns"})

    def _round(self, state: State, held: Trail, rows: DataFrame, classes: Sequence[str]) -> State:
        """``rows``: some of those of ``held``, the trail as it was verified."""
        tables, made_in = self.tables, uuid.uuid4().hex  # nobody else's: a runner that was overtaken may still write
        keyed = _keyed(_with_events(held.tables, rows), self.sealing)
        own = {**_PLACE, "row": _struct(rows, "row"), "sealed": ArrayType(BinaryType())}
        schema = StructType([StructField(name, type) for name, type in own.items()])
        work = partial(
            _sealed_anew, _eras(held, self.sealing.people, rows), read_cleared_keys(held.tables.read(LEDGER))
        )
        keyed.mapInArrow(work, schema).write.parquet(_folder(tables, made_in))
        written = tables.spark.read.schema(schema).parquet(_folder(tables, made_in))
        self._check(written, made_in)
        places = written.select("version", "index", "id", "row_hash").orderBy("version", "index").toArrow()
        if (twice := _twice(places)) is not None:
            raise self._refused(*twice, "has more than one row", made_in)
        if not places.num_rows:
            tidy(tables, made_in)
            return state
        leaves = places.column("row_hash").to_pylist()
        told: dict[str, Any] = {name: shorten_text(said) for name, said in self.reasons.items()}
        told |= {
            "sealed": _runs(places),
            "values": len(leaves),
            "hashes_root": merkle_root(leaves).hex(),
            "classes": classes,
            "made_in": made_in,
        }
        state = append_removal(tables, state, told, kind="sealing", hashes=b"".join(leaves), signer=self.signer)
        finish_sealing(tables, made_in)
        return state

    def _check(self, written: DataFrame, made_in: str) -> None:
        wrong = written.where("not intact").select("version", "index").orderBy("version", "index").limit(1).collect()
        if wrong:
            version, index = wrong[0]
            raise self._refused(version, index, "has a row that is not what was written", made_in)

    def _refused(self, version: int, index: int, why: str, made_in: str) -> VerificationError:
        tidy(self.tables, made_in)
        return VerificationError(
            f"event {index} of version {version} of the trail at {self.trail.path} {why}: nothing is sealed in its place",
            hint="`deltarelay audit verify` tells what is altered",
        )


def _rounds(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    some: list[str] = []
    count = 0
    for file, size in sorted(sizes.items()):
        if some and count + size > ROUND:
            yield some
            some, count = [], 0
        some.append(file)
        count += size
    if some:
        yield some


def _twice(places: pa.Table) -> tuple[int, int] | None:
    """Version and index of a place that is there more than once, or whose row is another's as well: a record that tells of
    them could never be made true. ``places``: in their order."""
    import numpy as np

    versions, index = (places.column(name).to_numpy() for name in ("version", "index"))
    same = np.flatnonzero((np.diff(versions) == 0) & (np.diff(index) == 0)).tolist()
    if not same:
        known: dict[bytes, int] = {}
        same = [at for at, id in enumerate(places.column("id").to_pylist()) if known.setdefault(id, at) != at]
    return (int(versions[same[0]]), int(index[same[0]])) if same else None


def _runs(places: pa.Table) -> dict[str, list[list[int]]]:
    """By version, from and to of places that follow each other. ``places``: in their order."""
    import numpy as np

    versions, index = (places.column(name).to_numpy() for name in ("version", "index"))
    starts = np.flatnonzero(np.r_[True, (np.diff(versions) != 0) | (np.diff(index) != 1)])
    found: dict[str, list[list[int]]] = {}
    for first, end in zip(starts, [*starts[1:], len(index)], strict=True):
        found.setdefault(str(versions[first]), []).append([int(index[first]), int(index[end - 1])])
    return found


_PLACE = {
    "id": BinaryType(),
    "version": LongType(),
    "index": LongType(),
    "intact": BooleanType(),
    "salt": BinaryType(),
    "row_hash": BinaryType(),
}


def finish_sealing(tables: TrailTables, made_in: str) -> None:
    """Put into the payload what a record tells to be there; nothing happens where it is there already. Raises
    VerificationError for what is no name of such a folder: nothing else is to be removed by a record."""
    from pyspark.sql import functions as F

    if not is_folder_name(made_in):
        raise VerificationError(
            f"a record of the trail at {tables.path} tells of rows that were sealed in a folder which no runner makes",
            hint="`deltarelay audit verify` tells what is altered",
        )
    if not _is_there(tables, made_in):
        return
    held = tables.now(PAYLOAD).select("id", "salt", "row_hash", "row", "sealed").schema
    # By a schema: whoever was killed while they removed the folder may have left no file in it
    anew = tables.spark.read.schema(held).parquet(_folder(tables, made_in))
    same = "held.id = anew.id and held.row_hash <> anew.row_hash"
    there = tables.now(PAYLOAD).select("id", "row_hash").alias("held")
    if not there.join(anew.alias("anew"), F.expr(same), "left_semi").isEmpty():

        def put(payload: DeltaTable) -> None:
            merge = payload.alias("held").merge(anew.alias("anew"), same)
            merge.whenMatchedUpdate(set={name: f"anew.{name}" for name in anew.columns if name != "id"}).execute()

        tables.change(PAYLOAD, put, about={"removal": "sealing"})
    tidy(tables, made_in)


def tidy(tables: TrailTables, made_in: str = "") -> None:
    """Remove the folder of what was to be sealed; without a name all of them."""
    if _is_there(tables, made_in):
        files, path = _hadoop(tables, made_in)
        files.delete(path, True)
        if made_in and not len(files.listStatus(path.getParent())):
            files.delete(path.getParent(), False)


def _is_there(tables: TrailTables, made_in: str) -> bool:
    files, path = _hadoop(tables, made_in)
    return bool(files.exists(path))


def _hadoop(tables: TrailTables, made_in: str) -> tuple[Any, Any]:
    spark: Any = tables.spark
    path = spark._jvm.org.apache.hadoop.fs.Path(_folder(tables, made_in))
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path


def _folder(tables: TrailTables, made_in: str) -> str:
    return f"{tables.path}/_sealing/{made_in}".rstrip("/")


# ── which rows ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Era:
    since: int
    columns: tuple[Column, ...]
    people: tuple[PersonColumns, ...]
    """With the names that the columns had then, as far as they were there."""

    def place(self, name: str) -> SparkColumn:
        from pyspark.sql import functions as F

        return F.col("row").getField(next(one.stored for one in self.columns if one.live and one.name == name))


def _eras(trail: Trail, people: Sequence[PersonColumns], payload: DataFrame) -> list[_Era]:
    found = []
    written = set(_struct(payload, "row").names)
    for (since, columns), (_, by_name) in zip(list_column_eras(trail), list_column_eras_by_name(trail), strict=True):
        # The payload gets a column with the first row that is written to it
        there = [one for one in columns if one.live and one.name != SEALED and one.stored in written]
        then = {column.name.casefold(): column.name for column in there}
        taken = {column.name for column in by_name.values()}
        # Of a column that is gone by now the name that it had
        names = {name: one for name, one in then.items() if one not in taken}
        names |= {name.casefold(): column.name for name, column in by_name.items() if column.stored in written}
        found.append(_Era(since, tuple(columns), tuple(_then(person, names) for person in people)))
    return found


def _then(person: PersonColumns, names: Mapping[str, str]) -> PersonColumns:
    column = names.get(person.column.casefold(), "")
    classes = (
        (name, tuple(names[one.casefold()] for one in columns if column and one.casefold() in names))
        for name, columns in person.classes
    )
    return replace(person, column=column, classes=tuple(classes))


def _asked(trail: Trail, sealing: ColumnEncryption, *more: SparkColumn) -> tuple[DataFrame, dict[str, list[str]]]:
    """The rows of the payload that are not sealed, and by class the columns that tell whether something of it is not.

    ``who_0`` and so on: of each person by what the row tells who it is; ``v`` and a value, or ``t`` and a token where the
    value is sealed already."""
    from pyspark.sql import functions as F

    payload = trail.there().now(PAYLOAD)
    past = _eras(trail, sealing.people, payload)
    last = read_state_from_records(trail.there()).version  # of what has no record yet nothing is known
    groups = F.col("row").getField(SEALED) if has_groups(payload) else None
    columns: dict[str, SparkColumn] = {}
    named: dict[str, list[str]] = {}
    for at, person in enumerate(sealing.people):
        columns[f"who_{at}"] = _by_era(past, [_who(era, era.people[at].column, groups) for era in past], "string")
        for place, (class_name, _) in enumerate(person.classes):
            told = [_readable(era, era.people[at].classes[place][1]) for era in past]
            columns[name := f"plain_{at}_{place}"] = _by_era(past, told, "boolean")
            named.setdefault(class_name, []).append(name)
    own = [name for name in ("id", "version", "salt", "row_hash", "row", "sealed") if name in payload.columns]
    rows = payload.select(*own, *more, *(value.alias(name) for name, value in columns.items()))
    for at, person in enumerate(sealing.people):
        flags = {f"plain_{at}_{place}": F.col(f"who_{at}").isNotNull() for place in range(len(person.classes))}
        rows = rows.withColumns({name: F.col(name) & known for name, known in flags.items()})
    flagged = reduce(or_, (F.col(name) for of_class in named.values() for name in of_class))
    return rows.where((F.col("version") <= (-1 if last is None else last)) & flagged), named


def _by_era(past: Sequence[_Era], told: Sequence[SparkColumn | None], type: str) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.lit(None).cast(type)
    for era, new in zip(past, told, strict=True):
        value = F.when(F.col("version") >= era.since, F.lit(None).cast(type) if new is None else new).otherwise(value)
    return value


def _who(era: _Era, column: str, groups: SparkColumn | None) -> SparkColumn | None:
    from pyspark.sql import functions as F

    if not column:
        return None
    value = F.concat(F.lit("v"), era.place(column).cast("string"))
    if groups is None:
        return value
    theirs = F.filter(groups, lambda group: F.array_contains(group["columns"], column))
    return F.coalesce(value, F.concat(F.lit("t"), F.hex(F.get(theirs, F.lit(0))["token"])))


def _readable(era: _Era, columns: Collection[str]) -> SparkColumn | None:
    there = [era.place(name).isNotNull() for name in columns]
    return reduce(or_, there) if there else None


def _with_events(tables: TrailTables, rows: DataFrame) -> DataFrame:
    """With ``index``, and ``expected``: the hash that the row has to have. ``tables``: as they were verified."""
    from pyspark.sql import functions as F

    events = tables.read(EVENTS).select("id", "version", "index", F.col("row_hash").alias("expected"))
    later = read_reencrypted_hashes(tables.read(LEDGER))
    if later is not None:
        later = later.select(F.col("event_version").alias("version"), "index", "sealed_hash")
        events = events.join(later, ["version", "index"], "left")
        events = events.withColumn("expected", F.coalesce("sealed_hash", "expected")).drop("sealed_hash")
    return rows.join(events, ["id", "version"])


def _keyed(rows: DataFrame, sealing: ColumnEncryption) -> DataFrame:
    from pyspark.sql import functions as F

    for at, person in enumerate(sealing.people):
        who = f"who_{at}"
        found, told = rows.where(f"{who} is not null").select(who).distinct().toArrow().column(0), None
        with suppress(UnicodeDecodeError):
            told = found.to_pylist()
        if told is None:
            wrong, hint = (
                rows.where(~F.is_valid_utf8(who)),
                "start a new trail after the last version that has such values",
            )
            raise invalid_utf8_error(wrong, person.column, hint, version="version")
        values, tokens = ([one[1:] for one in told if one[0] == kind] for kind in "vt")
        keys = [(f"v{value}", held) for value, held in sealing.get_keys_by_value(person, values)]
        held = sealing.get_keys_by_token(person, [bytes.fromhex(one) for one in tokens])
        keys += [(f"t{token}", one) for token, one in zip(tokens, held, strict=True)]
        rows = join_keys(rows, rows[who], keys, keys_column(at))
    return rows


# ── in the tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _sealed_anew(
    past: Sequence[_Era], gone: frozenset[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = [era.since for era in past]
    for batch in batches:
        at = np.searchsorted(starts, batch.column("version").to_numpy(), side="right") - 1
        covered = [
            frozenset(name for group in groups or () for name in group["columns"])
            for groups in pc.struct_field(batch.column("row"), SEALED).to_pylist()
        ]
        parts: dict[tuple[int, frozenset[str]], list[int]] = {}
        for place, key in enumerate(zip(at.tolist(), covered, strict=True)):
            parts.setdefault(key, []).append(place)
        for (one, names), places in parts.items():
            yield _sealed_of(batch.take(pa.array(places)), past[one], names, gone)


def _sealed_of(rows: pa.RecordBatch, era: _Era, covered: frozenset[str], gone: frozenset[bytes]) -> pa.RecordBatch:
    """``covered``: the columns that are sealed in these rows already."""
    import pyarrow as pa

    count, row = rows.num_rows, rows.column("row")
    parts = dict(zip((one.name for one in row.type), row.flatten(), strict=True))
    live = [column for column in era.columns if column.live and column.name != SEALED]
    schema = row_type(live, stored=False)
    values = pa.RecordBatch.from_arrays([parts[column.stored] for column in live], names=schema.names)
    people = [
        replace(
            one,
            classes=tuple((name, tuple(each for each in own if each not in covered)) for name, own in one.classes),
        )
        for one in era.people
    ]
    held = [read_row_keys(rows.column(keys_column(at))) for at in range(len(people))]
    kept, groups, texts = encrypt_rows(values, schema, people, held, rows.column("id").to_pylist())
    before = zip(hash_rows(rows, era.columns), match_groups(rows, gone), strict=True)
    told = zip(rows.column("row_hash").to_pylist(), rows.column("expected").to_pylist(), strict=True)
    intact = [
        right and hash is not None and hash == own == expected
        for (hash, right), (own, expected) in zip(before, told, strict=True)
    ]
    parts |= {column.stored: kept.column(column.name).cast(parts[column.stored].type) for column in live}
    parts[SEALED] = _after(parts[SEALED], groups)
    salts = [os.urandom(_SALT_BYTES) for _ in range(count)]
    new = pa.StructArray.from_arrays(list(parts.values()), fields=list(row.type))
    sealed = pa.RecordBatch.from_arrays([pa.array(salts, pa.binary()), new], names=["salt", "row"])
    return pa.RecordBatch.from_arrays(
        [
            *(rows.column(name) for name in ("id", "version", "index")),
            pa.array(intact),
            sealed.column("salt"),
            pa.array(hash_rows(sealed, era.columns), pa.binary()),
            new,
            _after(rows.column("sealed"), texts),
        ],
        names=[*_PLACE, "row", "sealed"],
    )


def _after(before: pa.Array, new: pa.Array) -> pa.Array:
    """The lists of a row one after the other."""
    import pyarrow as pa

    joined = [[*(one or ()), *(other or ())] for one, other in zip(before.to_pylist(), new.to_pylist(), strict=True)]
    return pa.array([one or None for one in joined], before.type)


def _struct(rows: DataFrame, name: str) -> StructType:
    type = rows.schema[name].dataType
    assert isinstance(type, StructType)
    return type
