"""Resolves which rows of the configured tables belong to a set of requests.

    request ─▶ e-mail ─▶ a row of customers ─▶ shows customer_id ─▶ further rows of customers ─▶ …   until nothing is new
                                               customer_id ─▶ orders.customer_id ─▶ order_id ─▶ lines.order_id

Every table is read at one version, so that counts and keys are consistent while others write. Rows that copies retain and
the table has lost are searched for further identifiers (``audit.erasure.find.retained_rows``).
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.erasure.find.known_values import LINK_PREFIX, TOKEN, KnownValues
from audit.erasure.find.learn import IdentifierLearner
from audit.erasure.find.match import FILE, REQUESTS, RowMatcher
from audit.erasure.find.tables import TablesAtVersions, column_in
from audit.erasure.model import Link, PersonalTable, Request, Subject
from cdf.changes.columns import quoted
from cdf.result import Result
from cdf.source.table import ChangeFeed
from cdf.spark_versions import metadata_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.erasure.find.learn import RetainedRows

__all__ = ["LEARNED_LIMIT", "Matched", "Resolution"]

LEARNED_LIMIT = 10
"""More learned identifiers than this hardly belong to one person."""


@dataclass(frozen=True, slots=True)
class Matched(Result):
    """What one request matches in one table."""

    rows: int
    files: int
    """Data files with these rows."""


class Resolution:
    """What the requests match, at ``versions``. Frames are built when they are asked for, and read the tables each time,
    except for the rows that ``counts`` keeps until ``close``. Its ``repr`` shows no value."""

    def __init__(self, tables: TablesAtVersions, known: KnownValues) -> None:
        self._tables, self._known = tables, known
        self._matcher = RowMatcher(tables, known.values)
        self._counts: dict[tuple[str, str], Matched] | None = None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        tables: Sequence[PersonalTable],
        subjects: Mapping[str, Subject],
        requests: Sequence[Request],
        learned: Iterable[tuple[str, str, str]] = (),
        *,
        versions: Mapping[str, int] | None = None,
        retained: RetainedRows | None = None,
    ) -> Resolution:
        """``tables``: a linked one after the one that it leads to. ``learned``: (request, identifier, value) from before.
        ``retained``: rows that copies retain.

        With the ``versions`` of an earlier resolution and everything that it had learned, the result is the same, and
        nothing further is learned. Raises ConfigError for columns that do not exist or cannot be compared, and where
        identifiers lead to ever more identifiers.
        """
        feeds = {one.table: ChangeFeed(spark, one.table) for one in tables}
        at = {one.table: feeds[one.table].log.latest() if versions is None else versions[one.table] for one in tables}
        read = TablesAtVersions(spark, {one.table: one for one in tables}, subjects, feeds, at)
        read.check()
        known, learned = KnownValues(subjects), list(learned)
        resolution = cls(read, known)
        first = known.start(requests, learned)
        if versions is None:
            learner = IdentifierLearner(read, resolution._matcher, known, retained or _nothing_retained)
            learner.learn(first)
            learner.find_lost_links()
        else:
            for request, name, value in learned:
                if name.startswith(LINK_PREFIX) and name != TOKEN:
                    resolution._matcher.lost_links.setdefault(name, []).append((request, value))
        return resolution

    @property
    def versions(self) -> Mapping[str, int]:
        return self._tables.versions

    def caught(self, table: str, person: int = 0) -> DataFrame:
        """Return ``request``, then the columns by which a row of the table is matched, as they are: one row for each
        matching row and request. ``person``: the place among the ``people`` of the table."""
        from pyspark.sql import functions as F

        one, rows = self._tables.tables[table].people[person], self._matcher.kept.get(table)
        if rows is None:
            rows = self._matcher.match_table(one).withColumn(REQUESTS, F.explode(REQUESTS))
        columns = [quoted(name) for name in self._tables.match_columns(one, rows.columns)]
        return rows.select(F.col(REQUESTS).alias("request"), *columns)

    def catch(self, table: str, frame: DataFrame, person: int = 0) -> DataFrame:
        """Return the data subjects' rows of any frame that has the columns by which the table's rows are matched, or some of
        them."""
        return self._matcher.match([self._tables.tables[table].people[person]], frame).drop(REQUESTS)

    def rows(self, table: str) -> DataFrame:
        """Return the whole table at its version."""
        return self._tables.read(table)

    def naming_several(self, table: str) -> int:
        """Count the rows that are deleted as a whole and name more than one of the ``people`` of the table."""

        people, rows = self._tables.tables[table].people, self._tables.read(table)
        named = [quoted(column_in(rows.columns, one.column) or "").isNotNull().cast("int") for one in people]
        matched = self._matcher.match([one for one in people if one.on_erase == "delete"], rows)
        return matched.where(functools.reduce(operator.add, named) > 1).count()

    def counts(self) -> Mapping[tuple[str, str], Matched]:
        """Return counts by table and request; requests that match nothing are left out.

        The rows are kept where they name one person: neither a linked table nor ``caught`` matches them again.
        """
        from pyspark.sql import functions as F

        if self._counts is None:
            counts = {}
            for table, one in self._tables.tables.items():
                rows = self._tables.read(table)
                rows = rows.withColumn(FILE, metadata_column(rows)["file_path"])
                columns = [] if one.others else self._matcher.kept_columns(one, rows.columns)
                matched = self._matcher.match(one.people, rows)
                matched = matched.select(F.explode(REQUESTS).alias(REQUESTS), *map(quoted, columns), FILE)
                if not one.others:
                    self._matcher.kept[table] = matched = matched.persist()
                by_request = matched.groupBy(REQUESTS).agg(F.count("*"), F.countDistinct(FILE))
                for row in by_request.collect():
                    counts[table, row[0]] = Matched(row[1], row[2])
            self._counts = counts
        return self._counts

    def close(self) -> None:
        """Remove the kept rows from Spark's memory and disk: they are matched again where they are still needed."""
        while self._matcher.kept:
            self._matcher.kept.popitem()[1].unpersist()

    def learned(self) -> list[tuple[str, str, str]]:
        """Return (request, identifier, value) of everything that is known besides the requests, and by names of links what
        lost rows lead to (``known_values.without_links`` leaves these out). Values may only be stored encrypted."""
        links = self._matcher.lost_links
        linked = [(request, name, value) for name, found in links.items() for request, value in found]
        return [*self._known.learned, *linked]

    # ── approval ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fan_out(self, most_rows: int) -> Mapping[str, str]:
        """Return the requests that may be about more than one person, and why: these need an approver."""
        reasons: dict[str, list[str]] = {}
        for (table, request), found in self.counts().items():
            if found.rows > most_rows:
                reasons.setdefault(request, []).append(f"{found.rows} rows of {table}")
        for request, reason in [*self._several_values(), *self._found_through_lost_rows()]:
            reasons.setdefault(request, []).append(reason)
        for request, count in self._known.count_learned().items():
            if count > LEARNED_LIMIT:
                reasons.setdefault(request, []).append(f"{count} further identifiers")
        return {request: " and ".join(reasons[request]) for request in sorted(reasons)}

    def _several_values(self) -> list[tuple[str, str]]:
        """One person with two values, or two people who share an e-mail address: only a person can decide."""
        found = []
        paths = {(one.subject, one.path) for one in self._tables.people()}
        for (subject, name), values in self._known.values.items():
            different = self._known.normalised(subject, name)
            if (subject, name) in paths:
                counts = Counter(request for request, _ in different)
                found += [(request, f"{count} values of {name}") for request, count in counts.items() if count > 1]
            else:
                # A lost row may be of a person who had the number before
                lost = {id for id, value in values if (id, name, value) in self._known.from_lost_rows}
                counts = Counter(request for request, _ in different if request in lost)
                reason = "{} values of {}, one of deleted rows"
                found += [(request, reason.format(count, name)) for request, count in counts.items() if count > 1]
        return found

    def _found_through_lost_rows(self) -> list[tuple[str, str]]:
        """Return requests that match existing rows only through values of lost rows."""
        if not self._known.from_lost_rows:
            return []
        requests = {request for request, _, _ in self._known.from_lost_rows}
        found = []
        for one in self._tables.people():
            if not isinstance(one.path, Link):
                rows = self._count_by_request(one, None)
                own = self._count_by_request(one, self._known.not_from_lost_rows())
                reason = f"rows of {one.table} that only deleted rows lead to"
                found += [(id, reason) for id in sorted(requests) if rows.get(id, 0) > own.get(id, 0)]
        return found

    def _count_by_request(
        self, one: PersonalTable, values: dict[tuple[str, str], list[tuple[str, str]]] | None
    ) -> dict[str, int]:
        from pyspark.sql import functions as F

        matched = self._matcher.match([one], self._tables.read(one.table), values)
        by_request = matched.select(F.explode(REQUESTS).alias("request")).groupBy("request").count()
        return {row[0]: row[1] for row in by_request.collect()}


def _nothing_retained(*_: object) -> Iterator[DataFrame]:
    return iter(())
