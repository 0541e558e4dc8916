"""Whose rows they are: which rows of the configured tables a set of requests catches.

    request ─▶ e-mail ─▶ a row of customers ─▶ shows customer_id ─▶ further rows of customers ─▶ …   until nothing is new
                                               customer_id ─▶ orders.customer_id ─▶ order_id ─▶ lines.order_id

Every table is read at one version, so that counts and keys fit together however others write meanwhile; and what copies keep
of rows that it has lost is looked through for what these tell (``audit.erasure.find.retained_rows``). Values go into
Spark as rows of a frame whose plan does not show them: plans end up in event logs and in the user interface.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from audit.erasure.model import Link, PersonalTable, Request, Subject
from audit.identifiers import Spelling, normalise
from cdf.errors import ConfigError
from cdf.result import Result
from cdf.session import setting
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from audit.erasure.find.retained_rows import KeptRows

__all__ = ["TOKEN", "Caught", "Resolution", "column_in", "identifiers_in", "quoted"]

LEARNED_LIMIT = 10
"""More identifiers than this that a request does not say are hardly one person's."""
_ROUNDS = 5
_MOST_SHOWN = 500_000
"""In one table. The driver holds them all, and so many are not those of a few thousand people."""
_SHARED = "look for an identifier that many share, and leave it out of the request or of the subject's identifiers"
_LOCAL = "spark.sql.execution.arrow.localRelationThreshold"
_OURS = "__deltarelay_"
_LED = "-> "
TOKEN = f"{_LED}token"
"""Under which the register keeps by what the registry of keys knows somebody: no identifier and no link is called so."""
_REQUESTS, _VALUE, _SPELT, _FILE = (f"{_OURS}{what}" for what in ("requests", "value", "spelt", "file"))

_Values: TypeAlias = dict[tuple[str, str], list[tuple[str, str]]]
"""(subject, identifier) → (request, value)."""


@dataclass(frozen=True, slots=True)
class Caught(Result):
    """What one request catches in one table."""

    rows: int
    files: int
    """Data files that these rows are in."""


@dataclass(slots=True)
class Resolution:
    """What the requests catch, at ``versions``. Frames are made when they are asked for; each reads its tables anew."""

    versions: Mapping[str, int]
    _spark: SparkSession = field(repr=False)
    _tables: Mapping[str, PersonalTable] = field(repr=False)
    _subjects: Mapping[str, Subject] = field(repr=False)
    _feeds: Mapping[str, ChangeFeed] = field(repr=False)
    _values: _Values = field(repr=False, default_factory=dict)
    _learned: list[tuple[str, str, str]] = field(repr=False, default_factory=list)
    _kept: KeptRows = field(repr=False, default=lambda _feed, _version, _columns: iter(()))
    _by_kept: set[tuple[str, str, str]] = field(repr=False, default_factory=set)
    """Those of the learned that only rows tell which the source has lost, or rows found by what these tell."""
    _led_by_lost: dict[str, list[tuple[str, str]]] = field(repr=False, default_factory=dict)
    """(request, value) by the name of a link: of caught rows that the source has lost."""
    _counts: dict[tuple[str, str], Caught] | None = field(repr=False, default=None)

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        tables: Sequence[PersonalTable],
        subjects: Mapping[str, Subject],
        requests: Sequence[Request],
        known: Iterable[tuple[str, str, str]] = (),
        *,
        versions: Mapping[str, int] | None = None,
        kept: KeptRows | None = None,
    ) -> Resolution:
        """``tables``: a linked one after the one that it leads to. ``known``: (request, identifier, value) from before.
        ``kept``: rows that copies keep.

        With the ``versions`` of an earlier resolution and all that it had learned as ``known`` it is that one again:
        nothing further is learned. Raises ConfigError for columns that are not there or cannot be compared, and where
        identifiers lead to ever more identifiers.
        """
        feeds = {one.table: ChangeFeed(spark, one.table) for one in tables}
        at = {one.table: feeds[one.table].log.latest() if versions is None else versions[one.table] for one in tables}
        resolution = cls(at, spark, {one.table: one for one in tables}, subjects, feeds)
        if kept is not None:
            resolution._kept = kept
        for one in resolution._people():
            resolution._check(one)
        known = list(known)
        frontier = resolution._told(requests, known)
        if versions is None:
            resolution._learn(frontier)
            resolution._look_for_lost()
        else:
            for request, name, value in known:
                if name.startswith(_LED) and name != TOKEN:
                    resolution._led_by_lost.setdefault(name, []).append((request, value))
        return resolution

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def caught(self, table: str, person: int = 0) -> DataFrame:
        """``request``, then the columns by which a row of the table is caught, as they are: one row for each row of the
        table and request. ``person``: the place among the ``people`` of the table."""
        from pyspark.sql import functions as F

        one = self._tables[table].people[person]
        rows = self._matched(one)
        columns = [F.col(quoted(name)) for name in self._match_columns(one, rows.columns)]
        return rows.select(F.explode(_REQUESTS).alias("request"), *columns)

    def catch(self, table: str, frame: DataFrame, person: int = 0) -> DataFrame:
        """The rows of the frame that are the subjects': any frame with the columns by which the table's rows are caught,
        or some of them."""
        return self._match([self._tables[table].people[person]], frame, self._values).drop(_REQUESTS)

    def rows(self, table: str) -> DataFrame:
        """All of the table, at its version."""
        return self._read(table)

    def naming_several(self, table: str) -> int:
        """The rows that are to go as a whole, and name more than one of the ``people`` of the table."""
        from pyspark.sql import functions as F

        people, rows = self._tables[table].people, self._read(table)
        named = [F.col(quoted(column_in(rows.columns, one.column) or "")).isNotNull().cast("int") for one in people]
        caught = self._match([one for one in people if one.on_erase == "delete"], rows, self._values)
        return caught.where(functools.reduce(operator.add, named) > 1).count()

    def counts(self) -> Mapping[tuple[str, str], Caught]:
        """By table and request; those that catch nothing are left out."""
        from pyspark.sql import functions as F

        if self._counts is None:
            self._counts = {}
            for table in self._tables:
                rows = self._read(table)
                rows = rows.withColumn(_FILE, rows.metadataColumn("_metadata")["file_path"])
                caught = self._match(self._tables[table].people, rows, self._values)
                by_request = caught.select(F.explode(_REQUESTS).alias("request"), _FILE).groupBy("request")
                for row in by_request.agg(F.count("*"), F.countDistinct(_FILE)).collect():
                    self._counts[table, row[0]] = Caught(row[1], row[2])
        return self._counts

    def learned(self) -> list[tuple[str, str, str]]:
        """(request, identifier, value) of all that is known beside what the requests say; and by the names of links what
        rows lead to that the source has lost (``identifiers_in`` leaves these out). Values: only to be sealed."""
        led = [(request, name, value) for name, told in self._led_by_lost.items() for request, value in told]
        return [*self._learned, *led]

    def fan_out(self, most_rows: int) -> Mapping[str, str]:
        """The requests that may be about more than one person, and why: these need an approver."""
        why: dict[str, list[str]] = {}
        for (table, request), found in self.counts().items():
            if found.rows > most_rows:
                why.setdefault(request, []).append(f"{found.rows} rows of {table}")
        # One person under two of them, or two people who share an e-mail: nobody but a person can tell
        paths = {(one.subject, one.path) for one in self._people()}
        for (subject, name), values in self._values.items():
            spelling = self._subjects[subject].identifiers[name]
            different = {(request, normalise(value, spelling)) for request, value in values}
            if (subject, name) in paths:
                for request, count in Counter(request for request, _ in different).items():
                    if count > 1:
                        why.setdefault(request, []).append(f"{count} values of {name}")
            else:
                # What a row said before it went may be of somebody who had its number before
                told = {request for request, value in values if (request, name, value) in self._by_kept}
                for request, count in Counter(request for request, _ in different if request in told).items():
                    if count > 1:
                        why.setdefault(request, []).append(f"{count} values of {name}, one of rows that are gone")
        for table, request in self._found_by_kept():
            why.setdefault(request, []).append(f"rows of {table} that only rows lead to which are gone")
        for request, count in self._learned_besides().items():
            if count > LEARNED_LIMIT:
                why.setdefault(request, []).append(f"{count} further identifiers")
        return {request: " and ".join(why[request]) for request in sorted(why)}

    def _learned_besides(self) -> Counter[str]:
        """By request how many identifiers, each counted once however rows write it."""
        of = {(request, name): subject for (subject, name), values in self._values.items() for request, _ in values}
        different = {
            (request, name, normalise(value, self._subjects[of[request, name]].identifiers[name]))
            for request, name, value in self._learned
        }
        return Counter(request for request, _, _ in different)

    def _found_by_kept(self) -> list[tuple[str, str]]:
        """(table, request): rows of persons that are there, and that nothing leads to but what rows said which are gone."""
        from pyspark.sql import functions as F

        if not self._by_kept:
            return []
        requests = {request for request, _, _ in self._by_kept}
        own = {
            (subject, name): [(id, value) for id, value in values if (id, name, value) not in self._by_kept]
            for (subject, name), values in self._values.items()
        }
        found = []
        for one in self._people():
            if not isinstance(one.path, Link):
                rows, by_own = (
                    {
                        row[0]: row[1]
                        for row in self._match([one], self._read(one.table), values)
                        .select(F.explode(_REQUESTS).alias("request"))
                        .groupBy("request")
                        .count()
                        .collect()
                    }
                    for values in (self._values, own)
                )
                found += [(one.table, id) for id in sorted(requests) if rows.get(id, 0) > by_own.get(id, 0)]
        return found

    def _people(self) -> Iterator[PersonalTable]:
        """Whoever links lead to before the others."""
        yield from self._tables.values()
        for one in self._tables.values():
            yield from one.others

    # ── what is looked for ───────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, requests: Sequence[Request], known: Iterable[tuple[str, str, str]]) -> _Values:
        subject_of = {request.id: request.subject for request in requests}
        for request in requests:
            if unknown := sorted(request.identifiers.keys() - self._subjects[request.subject].identifiers.keys()):
                raise ConfigError(
                    f"request {request.id} has {', '.join(unknown)}, by which nobody is found",
                    hint=f"name it among `erasure.subjects.{request.subject}.identifiers`, or take it out of the request",
                )
        frontier: _Values = {}
        self._add(
            frontier,
            subject_of,
            [(one.id, name, one.identifiers[name]) for one in requests for name in one.identifiers],
        )
        self._learned += self._add(frontier, subject_of, known)
        return frontier

    def _add(
        self, frontier: _Values, subject_of: Mapping[str, str], found: Iterable[tuple[str, str, str]]
    ) -> list[tuple[str, str, str]]:
        """Those that are new, which go into the frontier. Blank ones are nobody's."""
        # A scan and the registry of keys want to know each way in which rows write a value
        new = []
        seen = {
            (request, name, _written(value, self._subjects[subject].identifiers[name]))
            for (subject, name), values in self._values.items()
            for request, value in values
        }
        for request, name, value in found:
            subject = subject_of.get(request)
            if subject is None or name not in self._subjects[subject].identifiers or not value.strip():
                continue
            one = (request, name, _written(value, self._subjects[subject].identifiers[name]))
            if one not in seen:
                seen.add(one)
                new.append((request, name, value))
                for values in (self._values, frontier):
                    values.setdefault((subject, name), []).append((request, value))
        return new

    def _learn(self, frontier: _Values) -> None:
        """Look for what is new, and for what the rows found by it show, until they show nothing new."""
        subject_of = {request: subject for (subject, _), values in frontier.items() for request, _ in values}
        for _ in range(_ROUNDS):
            tables = [one for one in self._people() if self._tells(one)]
            now = {told for one in tables for told in self._shown(one, self._read(one.table), frontier)}
            before = {told for one in tables for rows in self._lost(one) for told in self._shown(one, rows, frontier)}
            frontier = {}
            new = self._add(frontier, subject_of, sorted(now))
            new_before = self._add(frontier, subject_of, sorted(before))
            before_that = {request for request, _, _ in self._by_kept}  # what is gone has led to whatever comes later
            self._by_kept |= {one for one in new if one[0] in before_that} | set(new_before)
            new += new_before
            self._learned += new
            if not new:
                return
        led = sorted({request for request, _, _ in new})
        raise ConfigError(
            f"after {_ROUNDS} rounds the identifiers of {_some(led)} still lead to further ones: hardly one person's",
            hint=_SHARED,
            requests=led,
        )

    def _tells(self, one: PersonalTable) -> bool:
        """Whether its rows lead to further identifiers: one with a single one shows what it was found by."""
        return not isinstance(one.path, Link) and len(self._match_columns(one, self._schema(one.table).names)) > 1

    def _shown(self, one: PersonalTable, rows: DataFrame, values: _Values) -> list[tuple[str, str, str]]:
        """The identifiers in those of the rows that these values catch."""
        from pyspark.sql import functions as F

        if not any(subject == one.subject for subject, _ in values):
            return []
        columns = self._identifiers_in(one, rows.columns)
        shown = [
            F.struct(F.lit(name).alias("name"), F.col(quoted(column)).cast("string").alias("value"))
            for column, name in columns
        ]
        found = self._match([one], rows, values).select(F.array(*shown).alias("shown"), F.col(_REQUESTS).alias("by"))
        found = found.select("by", F.explode("shown").alias("shown")).where("shown.value is not null")
        found = found.select(F.explode("by"), "shown.name", "shown.value").distinct()
        shown_by = [(row[0], row[1], row[2]) for row in found.limit(_MOST_SHOWN + 1).collect()]
        if len(shown_by) > _MOST_SHOWN:
            many = [request for request, _ in Counter(request for request, _, _ in shown_by).most_common(5)]
            raise ConfigError(
                f"the requests lead to more than {_MOST_SHOWN} identifiers in {one.table}, most of them {_some(many)}",
                hint=_SHARED,
                requests=many,
            )
        return shown_by

    # ── how it is looked for ─────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, table: str) -> DataFrame:
        return self._feeds[table].snapshot(self.versions[table])

    def _lost(self, one: PersonalTable) -> Iterator[DataFrame]:
        """Rows of the table that copies keep, with the columns that tell whose they are and what they lead to."""
        links = (other.path for other in self._people() if isinstance(other.path, Link))
        wanted = {link.other for link in links if link.table == one.table}
        wanted |= {one.path.column} if isinstance(one.path, Link) else set(self._subjects[one.subject].identifiers)
        names = self._schema(one.table).names
        columns = {column for name in wanted if (column := column_in(names, name)) is not None}
        return self._kept(self._feeds[one.table], self.versions[one.table], columns)

    def _matched(self, one: PersonalTable) -> DataFrame:
        return self._match([one], self._read(one.table), self._values)

    def _match(self, people: Sequence[PersonalTable], frame: DataFrame, values: _Values) -> DataFrame:
        """The rows of the frame that are caught for one of the ``people`` of a table, with the requests that catch each."""
        from pyspark.sql import functions as F

        columns = frame.columns
        by_columns = {one: match for one in people if (match := self._match_columns(one, columns))}
        if not by_columns:
            raise ConfigError(f"rows without any of the columns by which those of {people[0].table} are caught")
        pairs: list[tuple[Column, DataFrame]] = []
        for one, match in by_columns.items():
            if not isinstance(one.path, Link):
                for column, name in self._identifiers_in(one, columns):
                    if told := values.get((one.subject, name)):
                        spelling = self._subjects[one.subject].identifiers[name]
                        pairs.append((_spelled(F.col(quoted(column)), spelling), self._known(told, spelling)))
            else:
                pairs += self._linked(one.path, match[0], frame.schema[match[0]].dataType, values)
        by = []
        for place, (spelt, known) in enumerate(pairs):
            value, requests = f"{_VALUE}_{place}", f"{_REQUESTS}_{place}"
            known = known.toDF(value, requests).where(F.col(value).isNotNull())
            # A column of its own: what Python normalises cannot stand in the condition of a join
            frame = frame.withColumn(f"{_SPELT}_{place}", spelt)
            # By `<=>`: where the column is a partition's, `=` makes Spark prune partitions by it, which fails after Python
            frame = frame.join(known, F.col(f"{_SPELT}_{place}").eqNullSafe(F.col(value)), "left")
            by.append(F.coalesce(F.col(requests), F.array().cast("array<string>")))
        catching = F.array_distinct(F.concat(*by)) if by else F.array().cast("array<string>")
        rows = frame.select(*(F.col(quoted(name)) for name in columns), catching.alias(_REQUESTS))
        return rows.where(F.size(_REQUESTS) > 0)

    def _linked(self, link: Link, column: str, kind: DataType, values: _Values) -> list[tuple[Column, DataFrame]]:
        from pyspark.sql import functions as F
        from pyspark.sql.types import NumericType

        to = self._tables[link.table]
        name = None if isinstance(to.path, Link) else column_in(self._subjects[to.subject].identifiers, link.other)
        if name is not None and _by_identifier(kind):
            # Every row that is caught there has shown its identifiers: their values are known, also of rows long gone
            spelling = self._subjects[to.subject].identifiers[name]
            told = values.get((to.subject, name))
            return [(_spelled(F.col(quoted(column)), spelling), self._known(told, spelling))] if told else []
        rows = self._matched(to)
        other = column_in(rows.columns, link.other)
        assert other is not None  # _check has looked
        theirs = rows.schema[other].dataType
        alike = theirs == kind or (isinstance(theirs, NumericType) and isinstance(kind, NumericType))
        mine, their = F.col(quoted(column)), F.col(quoted(other))
        if not alike:  # a text that is no number would end the comparison with numbers
            mine, their = mine.cast("string"), their.cast("string")
        led = rows.select(their.alias("value"), F.explode(_REQUESTS).alias("request")).where("value is not null")
        if lost := self._led_by_lost.get(_name(link, self.versions[link.table])):
            led = led.unionByName(self._told_as(lost, led.schema["value"].dataType))
        return [(mine, led.groupBy("value").agg(F.collect_set("request")))]

    def _look_for_lost(self) -> None:
        """What caught rows lead to that the source has lost. Once: copies forget theirs, and take what they had yet to."""
        for one in self._people():  # a linked table after the one that it leads to
            if isinstance(one.path, Link):
                name = _name(one.path, self.versions[one.path.table])
                column = column_in(self._schema(one.table).names, one.path.column)
                assert column is not None  # _check has looked
                to = self._tables[one.path.table]
                told = (
                    isinstance(to.path, Link)
                    or column_in(self._subjects[to.subject].identifiers, one.path.other) is None
                )
                if name not in self._led_by_lost and (
                    told or not _by_identifier(self._schema(one.table)[column].dataType)
                ):
                    self._led_by_lost[name] = self._told_by_lost(one.path)

    def _told_by_lost(self, link: Link) -> list[tuple[str, str]]:
        from pyspark.sql import functions as F

        to = self._tables[link.table]

        def led(rows: DataFrame) -> DataFrame:
            value = F.col(quoted(column_in(rows.columns, link.other) or "")).cast("string").alias("value")
            caught = self._match([to], rows, self._values).select(F.explode(_REQUESTS).alias("request"), value)
            return caught.where("value is not null").distinct()

        told = set()
        for rows in self._lost(to):
            if column_in(rows.columns, link.other) is not None and self._match_columns(to, rows.columns):
                told |= {(row[0], row[1]) for row in led(rows).collect()}
        if told:
            # A row that is somebody else's by now leads to nobody
            there = self._read(to.table)
            value = F.col(quoted(column_in(there.columns, link.other) or "")).cast("string").alias("value")
            asked = self._told_as(sorted(told), None)
            others = there.select(value).join(F.broadcast(asked), "value").select("request", "value").distinct()
            told -= {(row[0], row[1]) for row in others.subtract(led(there)).collect()}
        return sorted(told)

    def _known(self, told: Sequence[tuple[str, str]], spelling: Spelling) -> DataFrame:
        """Value, normalised, and the requests that it is of."""
        from pyspark.sql import functions as F

        spelt = self._told_as([(request, normalise(value, spelling)) for request, value in told], None)
        spelt = spelt.select("value", "request")
        # Spark cannot tell that it is small, and would sort the whole table to join it
        return F.broadcast(spelt.groupBy("value").agg(F.collect_set("request")))

    def _told_as(self, told: Sequence[tuple[str, str]], kind: DataType | None) -> DataFrame:
        """(request, value) as a frame whose plan shows no value."""
        from pyspark.sql import functions as F

        rows = pa.table({"request": [request for request, _ in told], "value": [value for _, value in told]})
        # Else the rows would be written into the plan itself
        with setting(self._spark, _LOCAL, "0"):
            frame = self._spark.createDataFrame(rows, "request string, value string").coalesce(1)
        return frame if kind is None else frame.select("request", F.col("value").try_cast(kind).alias("value"))

    # ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _identifiers_in(self, one: PersonalTable, columns: Sequence[str]) -> list[tuple[str, str]]:
        """(column, identifier), as the table and as the subject spell it."""
        found = ((column_in(columns, name), name) for name in self._subjects[one.subject].identifiers)
        return [(column, name) for column, name in found if column is not None]

    def _match_columns(self, one: PersonalTable, columns: Sequence[str]) -> list[str]:
        if isinstance(one.path, Link):
            column = column_in(columns, one.path.column)
            return [] if column is None else [column]
        return [column for column, _ in self._identifiers_in(one, columns)]

    def _schema(self, table: str) -> StructType:
        return self._feeds[table].log.metadata(self.versions[table]).schema

    def _check(self, one: PersonalTable) -> None:
        from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

        def check(table: str, name: str) -> None:
            if column_in(self._schema(table).names, name) is None:
                raise ConfigError(
                    f"{table} has no column {name}, by which rows of {one.table} are to be found",
                    hint=f"write the `path` of {one.table} in `erasure.tables` as the tables name their columns",
                )

        if isinstance(one.path, Link):
            if one.path.table not in self._tables:
                raise ConfigError(f"{one.table} leads to {one.path.table}, which is not among the tables")
            check(one.table, one.path.column)
            check(one.path.table, one.path.other)
        else:
            check(one.table, one.path)
            if column_in(self._subjects[one.subject].identifiers, one.path) is None:
                raise ConfigError(
                    f"{one.path}, the path of {one.table}, is no identifier of {one.subject}",
                    hint=f"name it among `erasure.subjects.{one.subject}.identifiers`",
                )
        schema = self._schema(one.table)
        for column in self._match_columns(one, schema.names):
            if isinstance(schema[column].dataType, ArrayType | MapType | StructType | VariantType):
                raise ConfigError(
                    f"{one.table}.{column} is no single value: no identifier can be compared with it",
                    hint="rename the column, or call the identifier otherwise",
                )


def identifiers_in(known: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Of what was learned that by which persons are known, without what rows lead to."""
    return [one for one in known if not one[1].startswith(_LED)]


def _name(link: Link, version: int) -> str:
    """Under which the register keeps what the rows of that version lead to: no identifier can be called so."""
    return f"{_LED}{link.table}@{version} {link.other}"


def _by_identifier(kind: DataType) -> bool:
    """Whether values of such a column can be told by the text of an identifier."""
    from pyspark.sql.types import IntegralType, StringType

    return isinstance(kind, StringType | IntegralType)


def quoted(name: str) -> str:
    """A column as a part of Spark's expressions."""
    return "`" + name.replace("`", "``") + "`"


def column_in(columns: Iterable[str], name: str) -> str | None:
    """As the columns spell it: Spark takes no notice of case."""
    return next((column for column in columns if column.lower() == name.lower()), None)


def _written(value: str, spelling: Spelling) -> str:
    """How a row writes it, but for the surrounding blanks and the case of an address."""
    return value.strip().lower() if spelling == "email" else value


def _spelled(value: Column, spelling: Spelling) -> Column:
    """``audit.identifiers.normalise``: by Spark where all characters are visible ASCII, else by Python."""
    from pyspark.sql import functions as F

    text = value.cast("string")
    if spelling != "email":
        return text

    other = F.arrow_udf(_addresses, "string")(F.when(text.rlike("[^!-~]"), text))  # type: ignore[attr-defined]
    return F.coalesce(other, F.lower(text))


def _addresses(values: pa.Array) -> pa.Array:
    return pa.array([None if one is None else normalise(one, "email") for one in values.to_pylist()], pa.string())


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")
