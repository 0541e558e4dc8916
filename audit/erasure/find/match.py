"""Matches rows with requests, by identifiers and by links to matched rows of other tables.

Values go into Spark as rows of a frame whose plan does not show them: plans are written to event logs and shown in Spark's
user interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from audit.erasure.find.known_values import Values, link_name
from audit.erasure.find.tables import column_in
from audit.erasure.model import Link, PersonalTable
from audit.hidden_rows import create_hidden_rows
from audit.identifiers import Spelling, normalise
from cdf.changes.columns import quoted
from cdf.errors import ConfigError
from cdf.spark_versions import arrow_udf, try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from audit.erasure.find.tables import TablesAtVersions

__all__ = ["FILE", "REQUESTS", "RowMatcher", "holds_identifiers"]

_OURS = "__deltarelay_"
REQUESTS, FILE = f"{_OURS}requests", f"{_OURS}file"
_VALUE, _NORMALISED = f"{_OURS}value", f"{_OURS}normalised"


class RowMatcher:
    def __init__(self, tables: TablesAtVersions, values: Values) -> None:
        self._tables, self._values = tables, values
        self.lost_links: dict[str, list[tuple[str, str]]] = {}
        """(request, value) by ``link_name``: what matched rows lead to that the source has lost."""
        self.kept: dict[str, DataFrame] = {}
        """Matched rows by table, one for each row and request: ``REQUESTS``, and the columns of ``kept_columns``."""

    def match_table(self, one: PersonalTable) -> DataFrame:
        return self.match([one], self._tables.read(one.table))

    def kept_columns(self, one: PersonalTable, columns: Sequence[str]) -> list[str]:
        """Return the columns by which a row is matched, then those to which links of other tables lead."""
        links = [other.path for other in self._tables.people() if isinstance(other.path, Link)]
        linked = [column_in(columns, link.other) for link in links if link.table == one.table]
        return list(dict.fromkeys([*self._tables.match_columns(one, columns), *(name for name in linked if name)]))

    def match(self, people: Sequence[PersonalTable], frame: DataFrame, values: Values | None = None) -> DataFrame:
        """Return the rows of the frame that match a request for one of the ``people`` of a table, with ``REQUESTS``, the
        requests that each row matches. ``values``: all known values by default."""
        from pyspark.sql import functions as F

        values = self._values if values is None else values
        columns = frame.columns
        match_columns = {one: names for one in people if (names := self._tables.match_columns(one, columns))}
        if not match_columns:
            raise ConfigError(f"rows without any of the columns by which those of {people[0].table} are matched")
        pairs: list[tuple[Column, DataFrame]] = []
        for one, names in match_columns.items():
            if isinstance(one.path, Link):
                pairs += self._by_link(one.path, names[0], frame.schema[names[0]].dataType, values)
            else:
                pairs += self._by_identifiers(one, columns, values)
        matches = []
        for place, (normalised, known) in enumerate(pairs):
            value, requests = f"{_VALUE}_{place}", f"{REQUESTS}_{place}"
            known = known.toDF(value, requests).where(F.col(value).isNotNull())
            # A separate column: a Python function is not allowed in the condition of a join
            frame = frame.withColumn(f"{_NORMALISED}_{place}", normalised)
            # `<=>` instead of `=`, by which Spark would prune partitions, and that fails after a Python function
            frame = frame.join(known, F.col(f"{_NORMALISED}_{place}").eqNullSafe(F.col(value)), "left")
            matches.append(F.coalesce(F.col(requests), F.array().cast("array<string>")))
        matching = F.array_distinct(F.concat(*matches)) if matches else F.array().cast("array<string>")
        rows = frame.select(*(quoted(name) for name in columns), matching.alias(REQUESTS))
        return rows.where(F.size(REQUESTS) > 0)

    def _by_identifiers(
        self, one: PersonalTable, columns: Sequence[str], values: Values
    ) -> list[tuple[Column, DataFrame]]:

        pairs = []
        for column, name in self._tables.identifiers_in(one, columns):
            if known := values.get((one.subject, name)):
                spelling = self._tables.subjects[one.subject].identifiers[name]
                pairs.append((_normalised(quoted(column), spelling), self._known_frame(known, spelling)))
        return pairs

    def _by_link(self, link: Link, column: str, kind: DataType, values: Values) -> list[tuple[Column, DataFrame]]:
        from pyspark.sql import functions as F
        from pyspark.sql.types import NumericType

        target = self._tables.tables[link.table]
        name = self._tables.identifier_of(link)
        if name is not None and holds_identifiers(kind):
            # The identifiers of every matched row of the target table are known, also of rows deleted long ago
            spelling = self._tables.subjects[target.subject].identifiers[name]
            known = values.get((target.subject, name))
            return [(_normalised(quoted(column), spelling), self._known_frame(known, spelling))] if known else []
        rows = self.kept.get(link.table)
        if rows is None:
            rows = self.match_table(target).withColumn(REQUESTS, F.explode(REQUESTS))
        other = column_in(rows.columns, link.other)
        assert other is not None  # TablesAtVersions.check has checked it
        target_kind = rows.schema[other].dataType
        is_comparable = target_kind == kind or (isinstance(target_kind, NumericType) and isinstance(kind, NumericType))
        mine, theirs = quoted(column), quoted(other)
        if not is_comparable:  # a text that is no number would fail in a comparison with numbers
            mine, theirs = mine.cast("string"), theirs.cast("string")
        linked = rows.select(theirs.alias("value"), F.col(REQUESTS).alias("request")).where("value is not null")
        if lost := self.lost_links.get(link_name(link, self._tables.versions[link.table])):
            linked = linked.unionByName(self.hidden_frame(lost, linked.schema["value"].dataType))
        return [(mine, linked.groupBy("value").agg(F.collect_set("request")))]

    def _known_frame(self, known: Sequence[tuple[str, str]], spelling: Spelling) -> DataFrame:
        """Return the normalised values, and the requests of each."""
        from pyspark.sql import functions as F

        frame = self.hidden_frame([(request, normalise(value, spelling)) for request, value in known], None)
        frame = frame.select("value", "request")
        # Spark does not know that the frame is small, and would sort the whole table to join it
        return F.broadcast(frame.groupBy("value").agg(F.collect_set("request")))

    def hidden_frame(self, known: Sequence[tuple[str, str]], kind: DataType | None) -> DataFrame:
        """Return (request, value) as a frame whose plan shows no value."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        rows = pa.table({"request": [request for request, _ in known], "value": [value for _, value in known]})
        schema = StructType([StructField(name, StringType()) for name in ("request", "value")])
        frame = create_hidden_rows(self._tables.spark, rows, schema)
        return frame if kind is None else frame.select("request", try_cast(F.col("value"), kind).alias("value"))


def holds_identifiers(kind: DataType) -> bool:
    """Return whether values of such a column can be compared with the text of an identifier."""
    from pyspark.sql.types import IntegralType, StringType

    return isinstance(kind, StringType | IntegralType)


def _normalised(value: Column, spelling: Spelling) -> Column:
    """Apply ``audit.identifiers.normalise``: in Spark where all characters are visible ASCII, else in Python."""
    from pyspark.sql import functions as F

    text = value.cast("string")
    if spelling != "email":
        return text

    other = arrow_udf(_normalise_addresses, "string")(F.when(text.rlike("[^!-~]"), text))
    return F.coalesce(other, F.lower(text))


def _normalise_addresses(values: pa.Array) -> pa.Array:
    return pa.array([None if one is None else normalise(one, "email") for one in values.to_pylist()], pa.string())
