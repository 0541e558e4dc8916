"""People who were erased and come back, by a RESTORE, a backfill or in another spelling: seen before a sink gets the row.

The register keeps a keyed hash of every identifier of an erased person, a mark, until a date. The watch computes the marks
of the rows that a pipeline is about to apply, on the cluster, and holds them against those. It fails closed: where the
register cannot be asked nothing is applied.
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
"""So old may be what is known of the register: a person is watched for at the latest after so many seconds."""

_FLAGS = ("_of_theirs", "_before_of_theirs", "_after_of_theirs")


class ErasureAtWork(CdfError):
    """A run has committed a delete and not recorded it yet."""

    code = "erasure_at_work"
    transient = True


class ErasureNotRecorded(CdfError):
    """A commit proves to be of a run, and the register does not know it."""

    code = "erasure_not_recorded"


class ErasedPersonReturned(CdfError):
    """Somebody who was erased is in the rows that were to be applied."""

    code = "erased_person_returned"


def marks_of(keys: Keys, graph: Graph, subject: str, identifiers: Iterable[tuple[str, str]]) -> set[tuple[str, bytes]]:
    """(identifier, mark) of one person's identifiers."""
    spellings = graph.subjects[subject].identifiers
    return {
        (name, keys.mark(f"{subject}.{name}", normalise(value, spellings[name])))
        for name, value in identifiers
        if name in spellings
    }


def _possible_marks(marker: Marker, name: str, value: str, spelling: Spelling) -> Iterator[bytes]:
    """The marks that the value's owner may have: under each watch key, and in each form that an earlier version stored."""
    return (mark for form in stored_forms(value, spelling) for mark in marker.marks(name, form))


@dataclass(slots=True)
class Watch:
    """``cdf.sink.guard.Guard``."""

    register: Callable[[], Register]
    """Called at the first look: a pipeline that is only built connects to nothing."""
    marker: Marker
    """All of it goes to Spark's tasks: it holds nothing but the keys of marks."""
    graph: Graph
    on_return: OnReturn = "stop"
    identity: str | None = None
    """Of the register, as the configuration names it."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """By pipeline what it writes to, in words."""
    _register: Register | None = None
    _carried: set[Carrier] = field(default_factory=set)
    _marks: dict[bytes, str] = field(default_factory=dict, repr=False)
    _read_at: float = float("-inf")

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
        """Raises ErasedPersonReturned, which names the requests, where pipelines are to stop."""
        self._carry(pipeline, table)
        columns = self._columns(table, rows)
        if not columns or not (living := self._living()):
            return None
        found = _found(_of_others(rows, erasing), columns, self.marker, frozenset(living))
        if not found:
            return None
        arrived = {mark for mark, arrives in found.items() if arrives}
        if arrived and (there := self._still_there(arrived, table, now())):
            requests = sorted({living[mark] for mark in there})
            self._asked().record_return(requests, table, first)
            if self.on_return == "stop":
                raise ErasedPersonReturned(
                    f"{table} holds somebody again who was erased ({', '.join(requests[:5])}), "
                    f"in versions {first} to {last}: {pipeline} applied none of them",
                    hint="erase again: `deltarelay erase plan` with a new request, then `erase run`; or, if the person may "
                    "be kept again, `deltarelay erase release REQUEST --by NAME --reason TEXT`",
                    table=table,
                    requests=requests,
                    first=first,
                    last=last,
                )
            log.error(
                "somebody who was erased is back in the source; their rows were left out",
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
            _without,
            columns=columns,
            key=tuple(key),
            marker=self.marker,
            living=frozenset(found),
            erasing=list(erasing),
        )

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """By the register: what a run has recorded. Raises ErasureAtWork in the moment before it does."""
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
                    f"version {commit.version} of {table} was erased by run {run}, of which the register has no record",
                    hint="the register was replaced, or restored from a backup from before that run: restore a later one. "
                    "Without one, `run --reload` rebuilds a target that mirrors the table; a history continues in a new "
                    "trail or topic",
                    table=table,
                    version=commit.version,
                    run=run,
                )
        return frozenset(version for version, run in claimed.items() if version in (recorded[run] or ()))

    def _erased_by(self, run: str, table: str) -> frozenset[int] | None:
        """None where it has not erased in the table, as the register has it."""
        register = self._asked()
        for one in register.steps(run):
            if (one.table, one.step) == (table, "delete"):
                return frozenset(one.facts["versions"])
        found = register.find_run(run)
        if found is None or found.finished_at is not None:
            return None
        raise ErasureAtWork(
            f"the run {run} is erasing in {table}, and has not recorded yet what it did",
            hint="run again in a moment; if that run has died, `deltarelay erase run` with its plan goes on",
            run=run,
        )

    def _still_there(self, found: set[bytes], table: str, current: DataFrame) -> set[bytes]:
        """Not those who were deleted again since."""
        columns = self._columns(table, current)
        return set(_found(current, columns, self.marker, frozenset(found))) if columns else found

    def _columns(self, table: str, rows: DataFrame) -> dict[str, tuple[str, Spelling]]:
        """Columns of the rows that hold an identifier: what it is called in marks, and how it is spelled."""
        one = self.graph.table(table)
        if one is None or self.graph.held(table, dt.datetime.now(dt.UTC).date()):
            return {}  # what a hold keeps is there by right
        return {column: told for person in one.people for column, told in self._columns_of(person, rows).items()}

    def _columns_of(self, one: PersonalTable, rows: DataFrame) -> dict[str, tuple[str, Spelling]]:
        identifiers = {name.lower(): (name, how) for name, how in self.graph.subjects[one.subject].identifiers.items()}
        there = {column.lower(): column for column in rows.columns}
        emptied = {name.lower() for name in one.personal}
        if isinstance(one.path, Link):
            # The column of a link holds what the other table calls by an identifier's name
            named = {column: one.path.other.lower() for lower, column in there.items() if lower == one.column.lower()}
        else:
            named = {column: lower for lower, column in there.items() if lower in identifiers}
        return {
            column: (f"{one.subject}.{identifiers[lower][0]}", identifiers[lower][1])
            for column, lower in named.items()
            if lower in identifiers and (one.on_erase == "delete" or column.lower() in emptied)
        }

    def _carry(self, pipeline: str, table: str) -> None:
        """The register knows every target that may hold rows of a person, also of pipelines that are removed later."""
        carrier = Carrier(pipeline, table, self.targets.get(pipeline, ""))
        if carrier not in self._carried and self.graph.table(table) is not None:
            self._asked().record_carriers([carrier])
            self._carried.add(carrier)

    def _asked(self) -> Register:
        """Raises where it is not there, not complete, or another one: an empty answer would mean that no one was erased."""
        if self._register is None:
            self._register = self.register()
        self._register.check(self.marker, self.identity)
        return self._register

    def _living(self) -> Mapping[bytes, str]:
        if time.monotonic() - self._read_at > MARKS_SECONDS:
            self._marks = {one.mark: one.request for one in self._asked().marks()}
            self._read_at = time.monotonic()
        return self._marks


def _of_others(rows: DataFrame, erasing: Collection[int]) -> DataFrame:
    """Without the rows of commits that erased: sinks know what to do with those."""
    return rows.where(~quoted(COMMIT_VERSION).isin(list(erasing))) if erasing else rows


def _texts(columns: Iterable[str]) -> list[Column]:
    """As text that Python can read: with U+FFFD for what is not UTF-8, which no identifier can hold."""
    from pyspark.sql import functions as F

    return [F.make_valid_utf8(quoted(column).cast("string")).alias(f"c{at}") for at, column in enumerate(columns)]


def _found(
    rows: DataFrame, columns: Mapping[str, tuple[str, Spelling]], marker: Marker, living: frozenset[bytes]
) -> dict[bytes, bool]:
    """The living marks that are among the rows, and whether in one that arrives. Keys and marks travel inside of the
    function, in no plan."""
    from pyspark.sql import functions as F

    names = list(columns.values())

    def marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
                    for mark in living.intersection(_possible_marks(marker, name, value, spelling)):
                        met[mark] = met.get(mark, False) or arrives
            if met:
                yield pa.record_batch({"mark": pa.array(met.keys(), pa.binary()), "arrives": list(met.values())})

    feed = CHANGE_TYPE in rows.columns
    arrives = quoted(CHANGE_TYPE).isin(INSERT, UPDATE_POSTIMAGE) if feed else F.lit(True)
    marks = rows.select(*_texts(columns), arrives.alias("arrives")).mapInArrow(marked, "mark binary, arrives boolean")
    return {bytes(mark): arrives for mark, arrives in marks.groupBy("mark").agg(F.max("arrives")).collect()}


def _without(
    rows: DataFrame,
    *,
    columns: Mapping[str, tuple[str, Spelling]],
    key: tuple[str, ...],
    marker: Marker,
    living: frozenset[bytes],
    erasing: list[int],
) -> DataFrame:
    """What the feed of a table would say that never held those rows, as PostgreSQL's row filters of publications have it:
    an update out of them is an insert, one into them a delete.

    A delete stays, for the target may hold a row from before that person was erased: of theirs with its key alone.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    names = list(columns.values())

    def of_theirs(*values: str | None) -> bool:
        return any(
            value is not None and not living.isdisjoint(_possible_marks(marker, name, value, spelling))
            for value, (name, spelling) in zip(values, names, strict=True)
        )

    theirs = F.udf(of_theirs, "boolean")(*_texts(columns))
    if CHANGE_TYPE not in rows.columns:
        return rows.where(~theirs)
    kind, own, before, after = (F.col(name) for name in (CHANGE_TYPE, *_FLAGS))
    of_update = Over.partitionBy(*(quoted(name) for name in key), quoted(COMMIT_VERSION))
    flagged = rows.withColumn(_FLAGS[0], theirs & ~quoted(COMMIT_VERSION).isin(erasing) if erasing else theirs)
    flagged = flagged.withColumns(
        {
            _FLAGS[1]: F.max(F.when(kind == UPDATE_PREIMAGE, own)).over(of_update),
            _FLAGS[2]: F.max(F.when(kind == UPDATE_POSTIMAGE, own)).over(of_update),
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
