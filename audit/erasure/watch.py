"""People who were erased and come back, by a RESTORE, a backfill or in another spelling: seen before a sink gets the row.

The register keeps a keyed hash of every identifier of an erased person, a mark, until a date. The watch computes the marks
of the rows that a pipeline is about to apply, on the cluster, and holds them against those. It fails closed: where the
register cannot be asked nothing is applied.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit.erasure.commits import erasing_run
from audit.erasure.model import Link, Spelling, normalised
from cdf.errors import CdfError, ConfigError
from cdf.net import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.erasure.register import Register
    from audit.erasure.sealing import Keys
    from audit.erasure.subjects import Graph
    from cdf.window import Commit

__all__ = ["ErasedPersonReturned", "ErasureAtWork", "Watch", "marks_of"]

MARKS_SECONDS = 10.0
"""So old may be what is known of the register: a person is watched for at the latest after so many seconds."""


_NO_TABLE = "42P01"


class ErasureAtWork(CdfError):
    """A run has committed a delete and not recorded it yet."""

    code = "erasure_at_work"
    transient = True


class ErasedPersonReturned(CdfError):
    """Somebody who was erased is in the rows that were to be applied."""

    code = "erased_person_returned"


def marks_of(keys: Keys, graph: Graph, subject: str, identifiers: Iterable[tuple[str, str]]) -> set[tuple[str, bytes]]:
    """(identifier, mark) of one person's identifiers."""
    spellings = graph.subjects[subject].identifiers
    return {
        (name, keys.mark(f"{subject}.{name}", normalised(value, spellings[name])))
        for name, value in identifiers
        if name in spellings
    }


@dataclass(slots=True)
class Watch:
    """``cdf.guard.Guard``."""

    register: Callable[[], Register]
    """Called at the first look: a pipeline that is only built connects to nothing."""
    keys: Keys
    graph: Graph
    _register: Register | None = None
    _marks: dict[bytes, str] = field(default_factory=dict, repr=False)
    _read_at: float = float("-inf")

    def check(
        self, rows: DataFrame, *, table: str, pipeline: str, first: int, last: int, now: Callable[[], DataFrame]
    ) -> None:
        """Raises ErasedPersonReturned, which names the requests.

        Somebody who came back and was erased again since passes: the delete follows, and that run makes sinks of history
        forget what they got in between.
        """
        columns = self._columns(table, rows)
        if not columns or not (living := self._living()):
            return
        found = _found(rows, columns, self.keys, frozenset(living))
        if found and (found := self._still_there(found, table, now())):
            requests = sorted({living[mark] for mark in found})
            raise ErasedPersonReturned(
                f"{table} holds somebody again who was erased ({', '.join(requests[:5])}), in versions {first} to {last}: "
                f"{pipeline} applied none of them",
                hint="erase again: `deltarelay erase plan` with a new request, then `erase run`; or, if the person may be "
                "kept again, `deltarelay erase release REQUEST --by NAME --reason TEXT`",
                table=table,
                requests=requests,
                first=first,
                last=last,
            )

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """By the register: what a run has recorded. Raises ErasureAtWork in the moment before it does."""
        claimed = {commit.version: run for commit in commits if (run := erasing_run(commit.user_metadata)) is not None}
        recorded = {run: self._erased_by(run, table) for run in sorted(set(claimed.values()))}
        return frozenset(version for version, run in claimed.items() if version in recorded[run])

    def _erased_by(self, run: str, table: str) -> frozenset[int]:
        register = self._asked()
        try:
            for one in register.steps(run):
                if (one.table, one.step) == (table, "delete"):
                    return frozenset(one.facts["versions"])
            finished = register.run(run).finished_at is not None
        except ConfigError as error:
            if error.condition in (None, _NO_TABLE):  # no such run, or no register at all
                return frozenset()
            raise
        if finished:
            return frozenset()
        raise ErasureAtWork(
            f"the run {run} is erasing in {table}, and has not recorded yet what it did",
            hint="run again in a moment; if that run has died, `deltarelay erase run` with its plan goes on",
            run=run,
        )

    def _still_there(self, found: set[bytes], table: str, current: DataFrame) -> set[bytes]:
        columns = self._columns(table, current)
        return _found(current, columns, self.keys, frozenset(found)) if columns else found

    def _columns(self, table: str, rows: DataFrame) -> dict[str, tuple[str, Spelling]]:
        """Columns of the rows that hold an identifier: what it is called in marks, and how it is spelled."""
        one = next((one for one in self.graph.order if one.table == table), None)
        if one is None or self.graph.held(table, dt.datetime.now(dt.UTC).date()):
            return {}  # what a hold keeps is there by right
        identifiers = {name.lower(): (name, how) for name, how in self.graph.subjects[one.subject].identifiers.items()}
        there = {column.lower(): column for column in rows.columns}
        if isinstance(one.path, Link):
            # The column of a link holds what the other table calls by an identifier's name
            named = {one.path.column: one.path.other.lower()}
        else:
            named = {column: lower for lower, column in there.items() if lower in identifiers}
        return {
            column: (f"{one.subject}.{identifiers[lower][0]}", identifiers[lower][1])
            for column, lower in named.items()
            if lower in identifiers and column.lower() in there and (one.on_erase == "delete" or column in one.personal)
        }

    def _asked(self) -> Register:
        if self._register is None:
            self._register = self.register()
        return self._register

    def _living(self) -> Mapping[bytes, str]:
        if time.monotonic() - self._read_at > MARKS_SECONDS:
            try:
                self._marks = {one.mark: one.request for one in self._asked().marks()}
            except ConfigError as error:
                if error.condition != _NO_TABLE:
                    raise
                self._marks = {}  # no register was made yet: nobody was erased
            self._read_at = time.monotonic()
        return self._marks


def _found(
    rows: DataFrame, columns: Mapping[str, tuple[str, Spelling]], keys: Keys, living: frozenset[bytes]
) -> set[bytes]:
    """The living marks that are among the rows. Keys and marks travel inside of the function, in no plan."""
    names = list(columns.values())

    def marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            met = set()
            for (name, spelling), column in zip(names, batch.columns, strict=True):
                for value in set(column.to_pylist()) - {None}:
                    mark = keys.mark(name, normalised(value, spelling))
                    if mark in living:
                        met.add(mark)
            if met:
                yield pa.record_batch({"mark": pa.array(sorted(met), pa.binary())})

    texts = rows.select(*(quoted(column).cast("string").alias(f"c{at}") for at, column in enumerate(columns)))
    return {bytes(row["mark"]) for row in texts.mapInArrow(marked, "mark binary").distinct().collect()}
