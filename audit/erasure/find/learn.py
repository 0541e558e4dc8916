"""Learns further identifiers of people from matched rows, until rows show nothing new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, TypeAlias

from audit.erasure.find.known_values import KnownValues, Values, link_name
from audit.erasure.find.match import REQUESTS, RowMatcher, holds_identifiers
from audit.erasure.find.tables import column_in
from audit.erasure.model import Link, PersonalTable
from cdf.changes.columns import quoted
from cdf.errors import ConfigError
from cdf.listing import list_some

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.find.tables import TablesAtVersions
    from cdf.source.table import ChangeFeed

__all__ = ["IdentifierLearner", "RetainedRows"]

RetainedRows: TypeAlias = "Callable[[ChangeFeed, int, Set[str]], Iterator[DataFrame]]"
"""(table, version, columns) → rows of the table that it may have lost by that version, in parts."""

_ROUNDS = 5
_MOST_SHOWN = 500_000
"""Identifiers in one table. The driver holds them all, and so many are not those of a few thousand people."""
_SHARED_HINT = (
    "look for an identifier that many people share, and remove it from the request or from the subject's identifiers"
)


class IdentifierLearner:
    def __init__(
        self, tables: TablesAtVersions, matcher: RowMatcher, known: KnownValues, retained: RetainedRows
    ) -> None:
        self._tables, self._matcher, self._known, self._retained = tables, matcher, known, retained

    def learn(self, found: Values) -> None:
        """Search for these values, and for what the rows found by them show, until they show nothing new. Raises ConfigError
        where identifiers lead to ever more identifiers."""
        subject_of = {request: subject for (subject, _), values in found.items() for request, _ in values}
        for _ in range(_ROUNDS):
            tables = [one for one in self._tables.people() if self._shows_others(one)]
            present = {shown for one in tables for shown in self._shown(one, self._tables.read(one.table), found)}
            lost = {shown for one in tables for rows in self._lost_rows(one) for shown in self._shown(one, rows, found)}
            found = {}
            new = self._known.add(found, subject_of, sorted(present))
            new_from_lost = self._known.add(found, subject_of, sorted(lost))
            # Whatever is learned after a value from a lost row may come from that row
            before = {request for request, _, _ in self._known.from_lost_rows}
            self._known.from_lost_rows |= {one for one in new if one[0] in before} | set(new_from_lost)
            new += new_from_lost
            self._known.learned += new
            if not new:
                return
        leading = sorted({request for request, _, _ in new})
        raise ConfigError(
            f"after {_ROUNDS} rounds the identifiers of {list_some(leading)} still lead to further ones: they probably do "
            "not belong to one person",
            hint=_SHARED_HINT,
            requests=leading,
        )

    def _shows_others(self, one: PersonalTable) -> bool:
        """Return whether its rows show further identifiers: with a single one, a row shows only what it was found by."""
        columns = self._tables.match_columns(one, self._tables.schema(one.table).names)
        return not isinstance(one.path, Link) and len(columns) > 1

    def _shown(self, one: PersonalTable, rows: DataFrame, values: Values) -> list[tuple[str, str, str]]:
        """Return (request, identifier, value) in the rows that match these values."""
        from pyspark.sql import functions as F

        if not any(subject == one.subject for subject, _ in values):
            return []
        columns = self._tables.identifiers_in(one, rows.columns)
        shown = [
            F.struct(F.lit(name).alias("name"), quoted(column).cast("string").alias("value"))
            for column, name in columns
        ]
        found = self._matcher.match([one], rows, values)
        found = found.select(F.array(*shown).alias("shown"), F.col(REQUESTS).alias("by"))
        found = found.select("by", F.explode("shown").alias("shown")).where("shown.value is not null")
        found = found.select(F.explode("by"), "shown.name", "shown.value").distinct()
        shown_by = [(row[0], row[1], row[2]) for row in found.limit(_MOST_SHOWN + 1).collect()]
        if len(shown_by) > _MOST_SHOWN:
            leading = [request for request, _ in Counter(request for request, _, _ in shown_by).most_common(5)]
            raise ConfigError(
                f"the requests lead to more than {_MOST_SHOWN} identifiers in {one.table}, most of them of "
                f"{list_some(leading)}",
                hint=_SHARED_HINT,
                requests=leading,
            )
        return shown_by

    def _lost_rows(self, one: PersonalTable) -> Iterator[DataFrame]:
        """Yield rows of the table that copies retain, with the columns that say whose they are and what they lead to."""
        links = (other.path for other in self._tables.people() if isinstance(other.path, Link))
        wanted = {link.other for link in links if link.table == one.table}
        is_linked = isinstance(one.path, Link)
        wanted |= {one.column} if is_linked else set(self._tables.subjects[one.subject].identifiers)
        names = self._tables.schema(one.table).names
        columns = {column for name in wanted if (column := column_in(names, name)) is not None}
        return self._retained(self._tables.feeds[one.table], self._tables.versions[one.table], columns)

    def find_lost_links(self) -> None:
        """Find what matched rows lead to that the source has lost. This is done once: copies erase such rows, and apply the
        changes that they had not applied yet."""
        for one in self._tables.people():  # a linked table comes after the one that it leads to
            if isinstance(one.path, Link):
                name = link_name(one.path, self._tables.versions[one.path.table])
                schema = self._tables.schema(one.table)
                column = column_in(schema.names, one.path.column)
                assert column is not None  # TablesAtVersions.check has checked it
                by_identifier = self._tables.identifier_of(one.path) is not None
                is_known = by_identifier and holds_identifiers(schema[column].dataType)
                if name not in self._matcher.lost_links and not is_known:
                    self._matcher.lost_links[name] = self._find_lost_link(one.path)

    def _find_lost_link(self, link: Link) -> list[tuple[str, str]]:
        from pyspark.sql import functions as F

        target = self._tables.tables[link.table]

        def linked(rows: DataFrame) -> DataFrame:
            value = quoted(column_in(rows.columns, link.other) or "").cast("string").alias("value")
            matched = self._matcher.match([target], rows).select(F.explode(REQUESTS).alias("request"), value)
            return matched.where("value is not null").distinct()

        found = set()
        for rows in self._lost_rows(target):
            has_columns = self._tables.match_columns(target, rows.columns)
            if column_in(rows.columns, link.other) is not None and has_columns:
                found |= {(row[0], row[1]) for row in linked(rows).collect()}
        if found:
            # A value that now belongs to another person's row leads to no one
            present = self._tables.read(target.table)
            value = quoted(column_in(present.columns, link.other) or "").cast("string").alias("value")
            asked = self._matcher.hidden_frame(sorted(found), None)
            others = present.select(value).join(F.broadcast(asked), "value").select("request", "value").distinct()
            found -= {(row[0], row[1]) for row in others.subtract(linked(present)).collect()}
        return sorted(found)
