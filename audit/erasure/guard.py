"""Recognises erased people who come back, by a RESTORE, a backfill or in another spelling, before a sink gets the row.

The register keeps a mark, a keyed hash, of every identifier of an erased person until a date. The watch computes the marks
of the rows that a pipeline is about to apply, on the cluster, and compares them. It fails closed: where the register cannot
be read, nothing is applied.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from audit.erasure.commit_marker import erasing_run, proven
from audit.erasure.model import Link, OnReturn, PersonalTable
from audit.erasure.register.records import Carrier
from audit.identifiers import Spelling, normalise, stored_forms
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    quoted,
)
from cdf.errors import CdfError
from cdf.spark_versions import make_valid_utf8

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from audit.erasure.register.secrets import Keys, Marker
    from audit.erasure.register.store import Register
    from audit.erasure.table_graph import Graph
    from cdf.changes.commits import Commit
    from cdf.sink.guard import Without

__all__ = ["ErasedPersonReturned", "ErasureAtWork", "ErasureNotRecorded", "Watch", "marks_of"]

log = logging.getLogger("deltarelay.erasure")

MARKS_SECONDS = 10.0
"""How long marks from the register are cached: at most so many seconds later a person is watched for."""

_EXECUTOR_MODULES = ("audit.erasure.guard", "audit.erasure.register.secrets")
_FLAGS = ("_of_theirs", "_before_of_theirs", "_after_of_theirs")


class ErasureAtWork(CdfError):
    """A run has committed a delete and has not recorded it yet."""

    code = "erasure_at_work"
    transient = True


class ErasureNotRecorded(CdfError):
    """A commit has the proof of a run, and the register does not know that run."""

    code = "erasure_not_recorded"


class ErasedPersonReturned(CdfError):
    """Rows that a pipeline is about to apply belong to an erased person."""

    code = "erased_person_returned"


def marks_of(keys: Keys, graph: Graph, subject: str, identifiers: Iterable[tuple[str, str]]) -> set[tuple[str, bytes]]:
    """Return (identifier, mark) of one person's identifiers."""
    spellings = graph.subjects[subject].identifiers
    return {
        (name, keys.mark(f"{subject}.{name}", normalise(value, spellings[name])))
        for name, value in identifiers
        if name in spellings
    }


def _possible_marks(marker: Marker, name: str, value: str, spelling: Spelling) -> Iterator[bytes]:
    """Yield the marks that the value may have: under each watch key, and in each form that an earlier release stored."""
    return (mark for form in stored_forms(value, spelling) for mark in marker.marks(name, form))


@dataclass(slots=True)
class Watch:
    """Implements ``cdf.sink.guard.Guard``."""

    register: Callable[[], Register]
    """Called at the first check: building a pipeline makes no connection."""
    marker: Marker
    """It is sent to Spark's tasks: it holds nothing but watch keys."""
    graph: Graph
    on_return: OnReturn = "stop"
    identity: str | None = None
    """The register's identity in the configuration."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """The target of each pipeline, in words."""
    _register: Register | None = None
    _carried: set[Carrier] = field(default_factory=set)
    _marks: dict[bytes, str] = field(default_factory=dict, repr=False)
    _read_at: float = float("-inf")

    @property
    def executor_modules(self) -> tuple[str, ...]:
        return _EXECUTOR_MODULES

    def check(
        self,
        rows: DataFrame,
        *,
        key: Sequence[str],
        table: str,
        pipeline: str,
        first: int,
        last: int,
        erasing: Collection[int],
        now: Callable[[], DataFrame],
    ) -> Without | None:
        """Raises ErasedPersonReturned, which names the requests, where ``on_return`` is ``stop``."""
        self._record_carrier(pipeline, table)
        columns = self._columns(table, rows)
        if not columns or not (marks := self._marks_in_force()):
            return None
        found = _find_marks(_without_erasing(rows, erasing), columns, self.marker, frozenset(marks))
        if not found:
            return None
        arrived = {mark for mark, arrives in found.items() if arrives}
        if arrived and (present := self._find_present(arrived, table, now())):
            requests = sorted({marks[mark] for mark in present})
            self._checked_register().record_return(requests, table, first)
            if self.on_return == "stop":
                raise ErasedPersonReturned(
                    f"{table} contains an erased person again ({', '.join(requests[:5])}), "
                    f"in versions {first} to {last}: {pipeline} applied none of them",
                    hint="erase again: run `deltarelay erase plan` with a new request, then `erase run`; or, if the "
                    "person's data may be stored again, run `deltarelay erase release REQUEST --by NAME --reason TEXT`",
                    table=table,
                    requests=requests,
                    first=first,
                    last=last,
                )
            log.error(
                "an erased person is in the source again; the person's rows were left out",
                extra={
                    "code": ErasedPersonReturned.code,
                    "pipeline": pipeline,
                    "table": table,
                    "requests": requests,
                    "first": first,
                    "last": last,
                },
            )
        return partial(
            _remove_rows,
            columns=columns,
            key=tuple(key),
            marker=self.marker,
            marks=frozenset(found),
            erasing=list(erasing),
        )

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """Return the versions that runs have recorded in the register. Raises ErasureAtWork in the moment before a run
        does."""
        claimed = {commit.version: run for commit in commits if (run := erasing_run(commit.user_metadata)) is not None}
        recorded = {run: self._erased_by(run, table) for run in sorted(set(claimed.values()))}
        for commit in commits:
            run = claimed.get(commit.version)
            if (
                run is not None
                and recorded[run] is None
                and proven(self.marker, commit.user_metadata, table) is not None
            ):
                raise ErasureNotRecorded(
                    f"run {run} erased rows in version {commit.version} of {table}, and the register has no record of this "
                    "run",
                    hint="the register was replaced, or restored from a backup from before that run: restore a later "
                    "backup. If there is none, `run --reload` rebuilds a target that mirrors the table; a history continues "
                    "in a new "
                    "trail or topic",
                    table=table,
                    version=commit.version,
                    run=run,
                )
        return frozenset(version for version, run in claimed.items() if version in (recorded[run] or ()))

    def _erased_by(self, run: str, table: str) -> frozenset[int] | None:
        """Return the recorded versions; None where the run has recorded no erasure in the table."""
        register = self._checked_register()
        for one in register.steps(run):
            if (one.table, one.step) == (table, "delete"):
                return frozenset(one.facts["versions"])
        found = register.find_run(run)
        if found is None or found.finished_at is not None:
            return None
        raise ErasureAtWork(
            f"run {run} is erasing in {table} and has not recorded its commits yet",
            hint="run again in a moment; if that run has died, `deltarelay erase run` with its plan continues it",
            run=run,
        )

    def _find_present(self, found: set[bytes], table: str, current: DataFrame) -> set[bytes]:
        """Return the marks that are in the table now: other people were deleted again."""
        columns = self._columns(table, current)
        return set(_find_marks(current, columns, self.marker, frozenset(found))) if columns else found

    def _columns(self, table: str, rows: DataFrame) -> dict[str, tuple[str, Spelling]]:
        """Return the columns of the rows that hold an identifier: its name in marks, and its spelling."""
        one = self.graph.table(table)
        if one is None or self.graph.held(table, dt.datetime.now(dt.UTC).date()):
            return {}  # rows under a hold are kept lawfully
        return {column: mark for person in one.people for column, mark in self._columns_of(person, rows).items()}

    def _columns_of(self, one: PersonalTable, rows: DataFrame) -> dict[str, tuple[str, Spelling]]:
        identifiers = {name.lower(): (name, how) for name, how in self.graph.subjects[one.subject].identifiers.items()}
        there = {column.lower(): column for column in rows.columns}
        emptied = {name.lower() for name in one.personal}
        if isinstance(one.path, Link):
            # The column of a link holds values of the identifier that the other table's column is
            named = {column: one.path.other.lower() for lower, column in there.items() if lower == one.column.lower()}
        else:
            named = {column: lower for lower, column in there.items() if lower in identifiers}
        return {
            column: (f"{one.subject}.{identifiers[lower][0]}", identifiers[lower][1])
            for column, lower in named.items()
            if lower in identifiers and (one.on_erase == "delete" or column.lower() in emptied)
        }

    def _record_carrier(self, pipeline: str, table: str) -> None:
        """Record the target in the register, which must know every target with rows of a person, also of pipelines that are
        removed later."""
        carrier = Carrier(pipeline, table, self.targets.get(pipeline, ""))
        if carrier not in self._carried and self.graph.table(table) is not None:
            self._checked_register().record_carriers([carrier])
            self._carried.add(carrier)

    def _checked_register(self) -> Register:
        """Return the register. Raises where it is missing, incomplete or another one: an empty answer would mean that no one
        was erased."""
        if self._register is None:
            self._register = self.register()
        self._register.check(self.marker, self.identity)
        return self._register

    def _marks_in_force(self) -> Mapping[bytes, str]:
        if time.monotonic() - self._read_at > MARKS_SECONDS:
            self._marks = {one.mark: one.request for one in self._checked_register().marks()}
            self._read_at = time.monotonic()
        return self._marks


def _without_erasing(rows: DataFrame, erasing: Collection[int]) -> DataFrame:
    """Return the rows without those of erasing commits, which sinks handle."""
    return rows.where(~quoted(COMMIT_VERSION).isin(list(erasing))) if erasing else rows


def _texts(columns: Iterable[str]) -> list[Column]:
    """Return the columns as text that Python can read: with U+FFFD for bytes that are not UTF-8, which no identifier
    contains."""

    return [make_valid_utf8(quoted(column).cast("string")).alias(f"c{at}") for at, column in enumerate(columns)]


def _find_marks(
    rows: DataFrame, columns: Mapping[str, tuple[str, Spelling]], marker: Marker, marks: frozenset[bytes]
) -> dict[bytes, bool]:
    """Return which of the marks are in the rows, and whether in a row that is inserted or updated. Keys and marks are sent
    inside of the function, and are in no plan."""
    from pyspark.sql import functions as F

    names = list(columns.values())

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            arriving = batch.column(len(names)).to_pylist()
            met: dict[bytes, bool] = {}
            for at, (name, spelling) in enumerate(names):
                values: dict[str, bool] = {}
                for value, arrives in zip(batch.column(at).to_pylist(), arriving, strict=True):
                    if value is not None:
                        values[value] = values.get(value, False) or arrives
                for value, arrives in values.items():
                    for mark in marks.intersection(_possible_marks(marker, name, value, spelling)):
                        met[mark] = met.get(mark, False) or arrives
            if met:
                yield pa.record_batch({"mark": pa.array(met.keys(), pa.binary()), "arrives": list(met.values())})

    feed = CHANGE_TYPE in rows.columns
    arrives = quoted(CHANGE_TYPE).isin(INSERT, UPDATE_POSTIMAGE) if feed else F.lit(True)
    found = rows.select(*_texts(columns), arrives.alias("arrives")).mapInArrow(find, "mark binary, arrives boolean")
    return {bytes(mark): arrives for mark, arrives in found.groupBy("mark").agg(F.max("arrives")).collect()}


def _remove_rows(
    rows: DataFrame,
    *,
    columns: Mapping[str, tuple[str, Spelling]],
    key: tuple[str, ...],
    marker: Marker,
    marks: frozenset[bytes],
    erasing: list[int],
) -> DataFrame:
    """Return the feed that a table would have that never held those rows, as with row filters of PostgreSQL's publications:
    an update out of them becomes an insert, an update into them a delete.

    Deletes stay, because the target may hold a row from before the erasure; a delete of an erased person's row has the key
    alone.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    names = list(columns.values())

    def is_theirs(*values: str | None) -> bool:
        return any(
            value is not None and not marks.isdisjoint(_possible_marks(marker, name, value, spelling))
            for value, (name, spelling) in zip(values, names, strict=True)
        )

    theirs = F.udf(is_theirs, "boolean")(*_texts(columns))
    if CHANGE_TYPE not in rows.columns:
        return rows.where(~theirs)
    kind, own, before, after = (F.col(name) for name in (CHANGE_TYPE, *_FLAGS))
    update = Over.partitionBy(*(quoted(name) for name in key), quoted(COMMIT_VERSION))
    flagged = rows.withColumn(_FLAGS[0], theirs & ~quoted(COMMIT_VERSION).isin(erasing) if erasing else theirs)
    flagged = flagged.withColumns(
        {
            _FLAGS[1]: F.max(F.when(kind == UPDATE_PREIMAGE, own)).over(update),
            _FLAGS[2]: F.max(F.when(kind == UPDATE_POSTIMAGE, own)).over(update),
        }
    )
    becomes = (
        F.when((kind == UPDATE_PREIMAGE) & ~own & after, DELETE)
        .when((kind == UPDATE_PREIMAGE) & own & after.isNull(), DELETE)  # the update changed the key
        .when((kind == UPDATE_POSTIMAGE) & ~own & before, INSERT)
        .otherwise(kind)
    )
    shown = {CHANGE_TYPE: becomes, **{name: quoted(name) for name in (*key, COMMIT_VERSION, COMMIT_TIMESTAMP)}}
    return flagged.where(~own | (becomes == DELETE)).select(
        *(shown.get(name, F.when(~own, quoted(name))).alias(name) for name in rows.columns)
    )
