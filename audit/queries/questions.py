"""What compliance people ask, each a function of the trail that answers with a DataFrame.

    from audit.queries.questions import history
    history(trail, {"customer_id": 7}).select("version", "change_type", "operation", "row.name").show()

``QUERIES`` has them by the name that ``deltarelay audit query NAME`` takes. Versions are those of the source, times aware
datetimes; naive ones are refused. Rows of the source are structs, ``row``, ``before`` and ``after``, so that no column of
theirs collides with one of the answer; only ``as_of`` and ``record_as_of`` answer with the columns themselves.

An event whose values were removed tells no longer which record it was of: the view and ``deletes`` have it, with a row that
is NULL, and questions about records cannot. ``values_removed`` tells how many these are, ``removals`` by whom and why.
What is looked for is handed to Spark as data: no key and no name of a person stands in a plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import BooleanType, DataType, StringType, StructField, StructType

from audit.encryption.decrypt import find_encrypted_columns, has_groups
from audit.queries.commit_records import read_commit_records, read_last_sequence
from audit.queries.fields import UNREADABLE, Field, build_fields, build_fields_at, collect_reasons
from audit.queries.find_record import Wanted, as_data, payload_with
from audit.queries.risky_operations import why_hiding
from audit.queries.view import (
    add_missing_columns,
    join_events,
    read_table,
    read_values,
    reason_columns,
    select_row,
    view,
)
from audit.trail.ledger import PAYLOAD_CHANGES
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE
from cdf.errors import ConfigError
from cdf.source.bounds import parse_timestamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail

__all__ = [
    "QUERIES",
    "Query",
    "actor_activity",
    "actors",
    "as_of",
    "column_changes",
    "deletes",
    "deletes_without_ticket",
    "diff",
    "erasures",
    "events_of",
    "gaps",
    "hiding_operations",
    "history",
    "keys_untold",
    "readings",
    "record_as_of",
    "removals",
    "values_removed",
]

When: TypeAlias = "int | dt.datetime"
"""A version of the source, or a time: then the last version that was committed by then."""


# ── one record ───────────────────────────────────────────────────────────────────────────────────────────────────────


def history(trail: Trail, record: Mapping[str, Any]) -> DataFrame:
    """Everything that happened to one record, in order: what, when, by whom and why, and its row at that moment.

    ``record``: columns with values, those of the key or any others; a text is read as the column's type. A renamed column is
    one column for each of its names (``build_fields``): what was written before has the former one. Columns of the answer:
    ``version``, ``committed_at``, ``index``, ``change_type``, ``baseline``, ``changed_columns``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``row``; ``unreadable`` where columns are sealed, as in the view.

    Of the payload only the files are read that can hold the key, of events and ledger those of its versions.
    """
    tables, fields = trail.there(), build_fields(trail.columns())
    recorded = read_last_sequence(trail)
    found, versions = payload_with(trail, Wanted.of(tables.spark, record, fields), fields)
    rows = join_events(trail, found, versions, recorded=recorded)
    return rows.select(*_WHAT, *_WHO, "row", *reason_columns(rows)).orderBy("version", _rank(), "index")


def record_as_of(trail: Trail, record: Mapping[str, Any], when: When) -> DataFrame:
    """What one record looked like: no row where it was not there then.

    ``record``: the columns of the key, with values. Columns of the answer: those that the source had at that moment. Raises
    ConfigError for a moment outside of the trail, and for a record of which the trail knows nothing by then, unless it has
    begun with the table or a baseline.
    """
    version = _version(trail, when)
    tables, fields = trail.there(), build_fields_at(trail, version)
    recorded = read_last_sequence(trail)
    found, versions = payload_with(trail, Wanted.of(tables.spark, record, fields), fields)
    versions = [one for one in versions if one <= version]
    if not versions:
        _check_beginning(trail)
    events = join_events(trail, found, versions, recorded=recorded)
    return _as_rows(_standing(events, [_of_row(name) for name in record]))


def events_of(trail: Trail, version: int, index: int | None = None) -> DataFrame:
    """All events of one version of the source, or the one at a place in it: where a finding leads.

    ``version``, ``committed_at``, ``index``, ``change_type``, ``baseline``, ``changed_columns``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``values`` (``removed``: the row is NULL), ``row``.
    """
    from pyspark.sql import functions as F

    rows = view(trail).where(F.col("version") == version)
    rows = rows if index is None else rows.where(F.col("index") == index)
    return rows.select(*_WHAT, *_WHO, "values", "row", *reason_columns(rows)).orderBy("index")


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_of(trail: Trail, key: Sequence[str], when: When) -> DataFrame:
    """The table as it was, also past the source's own retention.

    Columns: those that the source had at that moment. ``key``: the columns that tell records apart; of several rows with one
    key there is one. Raises ConfigError for a moment outside of the trail, and where the trail has begun neither with the
    table nor with a baseline. A record is missing whose last values were removed (``values_removed``), or whose key is not
    shown (``keys_untold``): records of different people would be one.
    """
    version = _version(trail, when)
    fields = build_fields_at(trail, version)
    _to_compare(trail, [name for field in fields for name in field.names if _is_one_of(field, key)])
    _check_beginning(trail)
    return _as_rows(_table(trail, key, version, fields))


def diff(trail: Trail, key: Sequence[str], first: When, second: When) -> DataFrame:
    """What is different between two moments, the later one second.

    ``difference`` (``added``, ``removed``, ``changed``; ``unknown`` where a row was written anew and what can be read of it
    is the same), ``key`` (a struct), ``before`` and ``after``: the rows, in the columns of the later moment, NULL where
    there is none; where columns are sealed ``unreadable``, by ``before.NAME`` and ``after.NAME``. Raises and leaves out what
    ``as_of`` does.
    """
    from pyspark.sql import functions as F

    _to_compare(trail, None)
    versions = [_version(trail, when) for when in (first, second)]
    if versions[0] > versions[1]:
        raise ConfigError("the first moment is later than the second", hint="name the earlier one first")
    _check_beginning(trail)
    fields = build_fields_at(trail, versions[1])
    before, after = (_table(trail, key, version, fields) for version in versions)
    keys = [f"key_{at}" for at in range(len(key))]
    same = [F.col(f"before.{name}").eqNullSafe(F.col(f"after.{name}")) for name in keys]
    both = before.alias("before").join(after.alias("after"), same, "full_outer")
    both = both.where(
        ~F.col("before.last.version").eqNullSafe(F.col("after.last.version"))
    )  # else it is one and the same
    named = (
        F.coalesce(F.col(f"before.{held}"), F.col(f"after.{held}")).alias(name)
        for held, name in zip(keys, key, strict=True)
    )
    sides = both.select(
        F.struct(*named).alias("key"),
        *(F.col(f"{side}.last.row").alias(side) for side in _SIDES),
        *(F.col(f"{side}.last.{UNREADABLE}").alias(f"why_{side}") for side in _SIDES if _unreadable_in(before)),
    )
    difference = F.when(F.col("before").isNull(), "added").when(F.col("after").isNull(), "removed").otherwise("changed")
    told = ("difference", "key", *_SIDES)
    if not _unreadable_in(before):
        return _compared(sides, *_SIDES).where("not same").select(difference.alias("difference"), *told[1:])
    names = [field.name for field in fields]
    hidden = {name: F.coalesce(*(F.col(f"why_{side}")[name] for side in _SIDES)).isNotNull() for name in names}
    readable = {f"readable_{side}": _readable_of(F.col(side), hidden) for side in _SIDES}
    found = _compared(sides.withColumns(readable), *readable)
    unknown = F.col("before").isNotNull() & F.col("after").isNotNull() & F.col("same")
    why_not = {f"{side}.{name}": F.col(f"why_{side}")[name] for side in _SIDES for name in names}
    return found.where(~F.col("same") | reduce(or_, hidden.values())).select(
        F.when(unknown, "unknown").otherwise(difference).alias("difference"),
        *told[1:],
        collect_reasons(why_not).alias(UNREADABLE),
    )


_SIDES = ("before", "after")


def _readable_of(row: Column, hidden: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as F

    values = (F.when(~of_it, row.getField(name)).alias(name) for name, of_it in hidden.items())
    return F.when(row.isNotNull(), F.struct(*values))


def column_changes(trail: Trail, key: Sequence[str], column: str) -> DataFrame:
    """Who changed this column, from what to what.

    One row each time that a record has another value than it had when it was last there: by an update, and also by a delete
    and an insert. Its first insert is none, and neither is a delete. ``version``, ``committed_at``, ``index``,
    ``change_type``, ``key`` (a struct), ``old_value``, ``new_value``, ``certain`` (false where the commit wrote several rows
    with this key, so that nobody can tell which was which; and where a value is not shown and no event says that it has
    changed), ``operation``, ``actor``, ``ticket``, ``purpose``, ``job``, ``run``; where columns are sealed ``unreadable``,
    by ``old_value`` and ``new_value``. Records whose key is not shown are left out (``keys_untold``).
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    _to_compare(trail, (*key, column))
    events = view(trail)
    names = events.select("row.*").columns
    if column not in names:
        raise ConfigError("the trail does not have this column", hint=f"its columns: {', '.join(names)}")
    keys = [_of_row(name) for name in key]
    why_not = F.col(UNREADABLE)[column] if reason_columns(events) else F.lit(None).cast("string")
    before = F.lag(F.struct(_of_row(column).alias("value"), why_not.alias("why"))).over(
        Window.partitionBy(*keys).orderBy("version", _rank(), "index")
    )
    puts = F.count_if(_put()).over(Window.partitionBy(*keys, "version"))
    more = [_reasons_of_both(why_not), F.col("changed_columns")] if reason_columns(events) else []
    changes = (
        events.where(F.col("row").isNotNull() & ~_untold(events, key))
        .withColumns({"before": before, "certain": puts == 1})
        .where(_put() & F.col("before").isNotNull())
        .select(
            "version",
            "committed_at",
            "index",
            "change_type",
            F.struct(*(one.alias(name) for one, name in zip(keys, key, strict=True))).alias("key"),
            F.col("before.value").alias("old_value"),
            _of_row(column).alias("new_value"),
            "certain",
            *_WHO,
            *more,
        )
    )
    found = _compared(changes, "old_value", "new_value")
    if not reason_columns(events):
        return found.where("not same").drop("same").orderBy("version", "index")
    [field] = [one for one in build_fields(trail.columns()) if one.name == column]
    named = F.arrays_overlap(F.transform("changed_columns", F.lower), F.array(*map(F.lit, sorted(field.lowered))))
    shown = F.col(UNREADABLE).isNull()
    found = found.where(F.when(shown, ~F.col("same")).otherwise(F.coalesce(named, F.lit(True))))
    found = found.withColumn("certain", F.col("certain") & (shown | F.coalesce(named, F.lit(False))))
    return found.select(*changes.drop("changed_columns", UNREADABLE).columns, UNREADABLE).orderBy("version", "index")


# ── who, and why ─────────────────────────────────────────────────────────────────────────────────────────────────────


def deletes(trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None) -> DataFrame:
    """Every deleted row of a period, by whom and why.

    ``since`` is part of the period, ``until`` is not. ``version``, ``committed_at``, ``index``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``values`` (``removed``: the row is NULL), ``row``.
    """
    rows = _within(view(trail), since, until).where(f"change_type = '{DELETE}'")
    columns = ("version", "committed_at", "index", *_WHO, "values", "row", *reason_columns(rows))
    return rows.select(*columns).orderBy("version", "index")


def deletes_without_ticket(
    trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> DataFrame:
    """Commits that deleted rows and name no ticket.

    ``version``, ``committed_at``, ``operation``, ``actor``, ``deleted`` (rows), ``purpose``, ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    deleted = F.coalesce(F.col("counts")[DELETE], F.lit(0)).alias("deleted")
    rows = _within(read_commit_records(trail), since, until).where(F.col("ticket").isNull())
    return rows.select(*_COMMIT, deleted, "purpose", "job", "run").where("deleted > 0").orderBy("version")


def actor_activity(
    trail: Trail, actor: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> DataFrame:
    """Everything that one actor did: a row per commit, with the changes it made.

    ``version``, ``committed_at``, ``operation``, ``actor``, ``inserts``, ``updates``, ``deletes``, ``ticket``, ``purpose``,
    ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    asked = as_data(trail.there().spark, [("actor", actor, StringType())])
    rows = _within(read_commit_records(trail), since, until).join(F.broadcast(asked), F.col("actor") == F.col("key_0"))
    return rows.select(*_COMMIT, *_counts(), "ticket", "purpose", "job", "run").orderBy("version")


def actors(trail: Trail) -> DataFrame:
    """Who has changed the table. An actor that is NULL: Delta did not know who.

    ``actor``, ``first_at``, ``last_at``, ``commits``, ``inserts``, ``updates``, ``deletes``.
    """
    from pyspark.sql import functions as F

    rows = read_commit_records(trail).where("not baseline").select("actor", "committed_at", *_counts())
    sums = (F.sum(name).alias(name) for name in _CHANGES)
    return (
        rows.groupBy("actor")
        .agg(
            F.min("committed_at").alias("first_at"),
            F.max("committed_at").alias("last_at"),
            F.count("*").alias("commits"),
            *sums,
        )
        .orderBy(F.col("commits").desc(), "actor")
    )


def hiding_operations(trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None) -> DataFrame:
    """Operations that can take something out of sight: RESTORE, VACUUM, properties, the feed switched off, columns dropped.

    Also those that are not known here, or that the log does not name. ``version``, ``committed_at``, ``operation``,
    ``actor``, ``why``, ``parameters`` (JSON), ``rows``, ``ticket``, ``purpose``.
    """
    from pyspark.sql import functions as F

    why = F.udf(why_hiding, StringType())("operation", "parameters")
    rows = (
        _within(read_commit_records(trail), since, until)
        .where("not baseline")
        .withColumn("why", why)
        .where("why is not null")
    )
    return rows.select(*_COMMIT, "why", "parameters", "rows", "ticket", "purpose").orderBy("version")


# ── is it all there ──────────────────────────────────────────────────────────────────────────────────────────────────


def gaps(trail: Trail) -> DataFrame:
    """Versions of the source that the trail does not have, or has twice, and events likewise: none is right.

    ``fault``, ``first_version``, ``last_version``, ``events`` (how many too many or too few; NULL for versions). Faults are
    ``version missing`` and ``version doubled``, between the ledger's first and last; ``events missing`` and
    ``events doubled`` of a commit; ``events without a record``, of a commit that the ledger does not have, or not yet.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    at, before = F.col("version"), F.col("before")
    placed = read_commit_records(trail).withColumn("before", F.lag("version").over(Window.orderBy("sequence")))
    steps = placed.where(before.isNotNull() & (at != before + 1))
    versions = steps.select(
        F.when(at > before + 1, "version missing").otherwise("version doubled").alias("fault"),
        F.when(at > before + 1, before + 1).otherwise(at).alias("first_version"),
        F.when(at > before + 1, at - 1).otherwise(at).alias("last_version"),
        F.lit(None).cast("long").alias("events"),
    )
    told = read_commit_records(trail).groupBy("version").agg(F.first("rows").alias("rows"))
    of_commits = trail.there().read(EVENTS).groupBy("version")
    there = of_commits.agg(F.count("*").alias("there"), F.count_distinct("index").alias("places"))
    both = told.join(there, "version", "full_outer").fillna(0, ["there", "places"])
    fault = (
        F.when(F.col("rows").isNull(), "events without a record")
        .when(F.col("there") > F.col("places"), "events doubled")
        .when(F.col("there") != F.col("rows"), "events missing")
    )
    events = both.select(
        fault.alias("fault"),
        at.alias("first_version"),
        at.alias("last_version"),
        F.abs(F.col("there") - F.coalesce("rows", F.lit(0))).alias("events"),
    )
    return versions.unionByName(events.where("fault is not null")).orderBy("first_version", "fault")


def removals(trail: Trail) -> DataFrame:
    """Recorded removals of values: when, how many, by whom and why.

    ``sequence`` (of the record), ``removed_at``, ``kind`` (``removal``; ``shredding``, of what was sealed by keys that are
    gone; ``sealing``, of values that were readable until then), ``events`` (so many values), ``versions`` (how many they
    are of; NULL for a shredding), ``actor``, ``approver``, ``ticket``, ``purpose``, ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    told = "user string, approver string, ticket string, purpose string, job string, run string, values long"
    record = F.from_json("record", f"{told}, removed map<string, string>, sealed map<string, string>")
    places = F.coalesce(record["removed"], record["sealed"])
    return (
        trail.there()
        .read(LEDGER)
        .where(F.col("kind").isin(*PAYLOAD_CHANGES))
        .select(
            "sequence",
            F.col("committed_at").alias("removed_at"),
            "kind",
            record["values"].alias("events"),
            F.when(places.isNotNull(), F.size(places)).alias("versions"),
            record["user"].alias("actor"),
            *(record[name].alias(name) for name in ("approver", "ticket", "purpose", "job", "run")),
        )
        .orderBy("sequence")
    )


def erasures(trail: Trail) -> DataFrame:
    """The steps of erasures of people in this table.

    ``sequence`` (of the record), ``noted_at``, ``reached_at``, ``run``, ``state`` (one of ``audit.erasure.model.STATES``),
    ``requests`` (ids).
    """
    from pyspark.sql import functions as F

    record = F.from_json("record", "run string, state string, requests array<string>, reached_at timestamp")
    told = trail.there().read(LEDGER).where("kind = 'erasure'")
    columns = (record[name].alias(name) for name in ("reached_at", "run", "state", "requests"))
    return told.select("sequence", F.col("committed_at").alias("noted_at"), *columns).orderBy("sequence")


def readings(trail: Trail) -> DataFrame:
    """Who has read what is sealed, and what for.

    ``sequence`` (of the record), ``noted_at``, ``read_at``, ``role`` (of the registry's database), ``reader``, ``purpose``,
    ``question``, ``keys`` (so many were handed out).
    """
    from pyspark.sql import functions as F

    record = F.from_json(
        "record", "read_at timestamp, role string, reader string, purpose string, question string, keys long"
    )
    told = trail.there().read(LEDGER).where("kind = 'reading'")
    columns = (record[name].alias(name) for name in ("read_at", "role", "reader", "purpose", "question", "keys"))
    return told.select("sequence", F.col("committed_at").alias("noted_at"), *columns).orderBy("sequence")


def values_removed(trail: Trail) -> int:
    """Of how many events the values were removed: no question about records can answer with them."""
    from pyspark.sql import functions as F

    told = read_commit_records(trail).agg(F.sum("rows").alias("rows"), F.max("version").alias("last")).collect()[0]
    if told["last"] is None:
        return 0
    return max(0, int(told["rows"]) - trail.there().read(PAYLOAD).where(f"version <= {told['last']}").count())


def keys_untold(trail: Trail, key: Sequence[str], when: When | None = None) -> int:
    """Of how many events, up to a moment, nobody can tell which record they are of: a column of the key is not shown, such
    as one that was erased. ``as_of``, ``diff`` and ``column_changes`` leave them out."""
    from pyspark.sql import functions as F

    if trail.states is None or not has_groups(trail.there().read(PAYLOAD)):
        return 0
    recorded, payload = read_last_sequence(trail), add_missing_columns(trail, read_table(trail, PAYLOAD))
    version = None if when is None else _version(trail, when)
    fields = build_fields(trail.columns()) if version is None else build_fields_at(trail, version)
    if version is not None:
        payload = payload.where(f"version <= {version}")
    of_key = (field.value().isNull() for field in fields if _is_one_of(field, key))
    # What stands in the row in plain text is shown: most trails end here
    rows = read_values(trail, payload.where(reduce(or_, of_key, F.lit(False))))
    events = join_events(trail, select_row(rows, fields), recorded=recorded).where("row is not null")
    return events.where(_untold(events, key)).count()


# ── what they share ──────────────────────────────────────────────────────────────────────────────────────────────────

_WHAT = ("version", "committed_at", "index", "change_type", "baseline", "changed_columns")
_WHO = ("operation", "actor", "ticket", "purpose", "job", "run")
_COMMIT = ("version", "committed_at", "operation", "actor")
_CHANGES = {"inserts": INSERT, "updates": UPDATE_POSTIMAGE, "deletes": DELETE}


def _counts() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.coalesce(F.col("counts")[kind], F.lit(0)).alias(name) for name, kind in _CHANGES.items()]


def _of_row(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("row").getField(name)


def _put() -> Column:
    """The row is there after the event."""
    from pyspark.sql import functions as F

    return F.col("change_type").isin(INSERT, UPDATE_POSTIMAGE)


def _rank() -> Column:
    """Inside a version removes come before puts, as in a net effect."""
    return _put().cast("int")


def _within(rows: DataFrame, since: dt.datetime | None, until: dt.datetime | None) -> DataFrame:
    from pyspark.sql import functions as F

    if since is not None:
        rows = rows.where(F.col("committed_at") >= F.lit(parse_timestamp(since, name="since")))
    return rows if until is None else rows.where(F.col("committed_at") < F.lit(parse_timestamp(until, name="until")))


def _version(trail: Trail, when: When) -> int:
    """The version that is meant. Raises ConfigError where it is not in the trail, with what is."""
    from pyspark.sql import functions as F

    at = parse_timestamp(when, name="the moment") if isinstance(when, dt.datetime) else None
    by_then = F.lit(True) if at is None else F.col("committed_at") <= F.lit(at)
    ends = (
        read_commit_records(trail)
        .agg(
            F.min("version").alias("first"),
            F.max("version").alias("last"),
            *(F.unix_micros(end("committed_at")).alias(name) for end, name in ((F.min, "began"), (F.max, "ended"))),
            F.max(F.when(by_then, F.col("version"))).alias("version"),
        )
        .collect()[0]
    )
    if ends["first"] is None:
        raise ConfigError(f"the trail at {trail.path} is empty", hint="`deltarelay run` fills it")
    inside = ends["first"] <= when <= ends["last"] if at is None else ends["version"] is not None
    if not inside or (at is not None and at > _time(ends["ended"])):
        began, ended = (
            "at an unknown time" if end is None else _time(end).isoformat() for end in (ends["began"], ends["ended"])
        )
        raise ConfigError(
            "the moment lies outside of the trail",
            hint=f"it goes from version {ends['first']} ({began}) to version {ends['last']} ({ended})",
        )
    return when if isinstance(when, int) else int(ends["version"])


def _time(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _check_beginning(trail: Trail) -> None:
    first = read_commit_records(trail).orderBy("sequence").select("baseline", "version").limit(1).collect()[0]
    if not first["baseline"] and first["version"] != 0:
        raise ConfigError(
            f"the trail begins with the changes of version {first['version']}: what the table held before is not in it",
            hint="a trail that begins with `start: snapshot` has a baseline",
        )


def _table(trail: Trail, key: Sequence[str], version: int, fields: Sequence[Field]) -> DataFrame:
    recorded = read_last_sequence(trail)
    payload = read_values(trail, read_table(trail, PAYLOAD).where(f"version <= {version}"))
    events = join_events(trail, select_row(payload, fields), recorded=recorded)
    events = events.where(f"version <= {version} and row is not null")
    return _standing(events.where(~_untold(events, key)), [_of_row(name) for name in key])


def _untold(events: DataFrame, key: Iterable[str]) -> Column:
    """Whether nobody can tell which record an event is of: a column of the key is not shown."""
    from pyspark.sql import functions as F

    row = events.schema["row"].dataType
    assert isinstance(row, StructType)
    if not reason_columns(events):
        return F.lit(False)
    wanted = {name.casefold() for name in key}
    named = [name for name in row.names if name.casefold() in wanted]
    hidden = (_of_row(name).isNull() & F.col(UNREADABLE)[name].isNotNull() for name in named)
    return reduce(or_, hidden, F.lit(False))


def _standing(events: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """What is left of each record after these events: ``key_0`` and so on, ``last.version`` and ``last.row``."""
    from pyspark.sql import functions as F

    last = F.max_by(
        F.struct(_put().alias("there"), "version", "row", *reason_columns(events)),
        F.struct("version", _rank(), "index"),
    )
    keyed = events.groupBy(*(one.alias(f"key_{at}") for at, one in enumerate(keys))).agg(last.alias("last"))
    return keyed.where("last.there")


def _as_rows(standing: DataFrame) -> DataFrame:
    """Each record in columns of its own; where some are sealed, ``unreadable`` after them."""
    last = standing.schema["last"].dataType
    assert isinstance(last, StructType)
    return standing.select("last.row.*", *(f"last.{name}" for name in last.names if name == UNREADABLE))


def _to_compare(trail: Trail, columns: Iterable[str] | None) -> None:
    """Raises ConfigError where values of these columns would have to be compared, of any with None, that are sealed."""
    sealed = find_encrypted_columns(trail.there().read(PAYLOAD)) if trail.states is None else set()
    if columns is not None:
        sealed &= {name.casefold() for name in columns}
    if sealed:
        raise ConfigError(
            "values are to be compared that are sealed",
            hint=f"who has the keys compares them with --decrypt; sealed: {', '.join(sorted(sealed))}",
        )


def _reasons_of_both(new: Column) -> Column:
    from pyspark.sql import functions as F

    return collect_reasons({"old_value": F.col("before.why"), "new_value": new}).alias(UNREADABLE)


def _unreadable_in(standing: DataFrame) -> bool:
    last = standing.schema["last"].dataType
    return isinstance(last, StructType) and UNREADABLE in last.names


def _is_one_of(field: Field, names: Iterable[str]) -> bool:
    return field.name.casefold() in {name.casefold() for name in names}


def _compared(rows: DataFrame, before: str, after: str) -> DataFrame:
    """With ``same``: whether two columns hold the same, by the canonical bytes: Spark itself cannot compare maps."""
    schema = StructType([*rows.schema.fields, StructField("same", BooleanType())])
    return rows.mapInArrow(partial(_with_same, rows.schema[after].dataType, before, after), schema)


def _with_same(type: DataType, before: str, after: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_columns

    schema = StructType([StructField(before, type), StructField(after, type)])
    for batch in batches:
        pairs = zip(*encode_columns(batch.select([before, after]), schema), strict=True)
        same = pa.array([one == other for one, other in pairs], pa.bool_())
        yield pa.RecordBatch.from_arrays([*batch.columns, same], names=[*batch.schema.names, "same"])


# ── by name ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Query:
    """A question, and what has to be told to ask it."""

    ask: Callable[..., DataFrame]
    parameters: tuple[str, ...]
    """Of ``key`` (columns), ``record`` (columns with values), ``when``, ``first``, ``second``, ``version``, ``index``,
    ``column``, ``actor``, ``since``, ``until``; ``index`` and the last two may be left out."""
    shows_values: bool
    """The answer has values of the source's rows."""

    @property
    def question(self) -> str:
        return (self.ask.__doc__ or "").partition("\n")[0]


QUERIES: Mapping[str, Query] = {
    "history": Query(history, ("record",), True),
    "events-of": Query(events_of, ("version", "index"), True),
    "record-as-of": Query(record_as_of, ("record", "when"), True),
    "as-of": Query(as_of, ("key", "when"), True),
    "diff": Query(diff, ("key", "first", "second"), True),
    "column-changes": Query(column_changes, ("key", "column"), True),
    "deletes": Query(deletes, ("since", "until"), True),
    "deletes-without-ticket": Query(deletes_without_ticket, ("since", "until"), False),
    "actor": Query(actor_activity, ("actor", "since", "until"), False),
    "actors": Query(actors, (), False),
    "hiding-operations": Query(hiding_operations, ("since", "until"), False),
    "gaps": Query(gaps, (), False),
    "removals": Query(removals, (), False),
    "erasures": Query(erasures, (), False),
    "readings": Query(readings, (), False),
}
"""Whether the trail is intact, matches its source and reached every sink are commands of their own: ``audit verify``,
``audit reconcile``, ``audit sinks``."""
