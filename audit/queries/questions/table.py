"""Questions about the whole table: its state at a moment, and what changed between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from audit.queries.commit_records import read_last_sequence
from audit.queries.fields import UNREADABLE, Field, build_fields, build_fields_at, collect_reasons
from audit.queries.questions.comparison import add_same
from audit.queries.questions.event_rows import (
    CONTEXT_COLUMNS,
    check_comparable,
    expand_rows,
    has_reasons,
    is_hidden,
    is_one_of,
    is_put,
    order_in_version,
    row_field,
    select_current_rows,
)
from audit.queries.questions.moments import When, check_beginning, resolve_version
from audit.queries.view import join_events, read_table, read_values, reason_columns, select_row, view
from audit.trail.tables import PAYLOAD
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail


__all__ = ["as_of", "column_changes", "diff"]

_SIDES = ("before", "after")


def as_of(trail: Trail, key: Sequence[str], when: When) -> DataFrame:
    """The table at a moment, also beyond the retention of the source.

    Columns: those that the source had at that moment. ``key``: the columns that identify a record; of several rows with one
    key, one is returned. Raises ConfigError for a moment outside of the trail, and where the trail begins neither with the
    table nor with a baseline. Leaves out records whose last values were removed (``count_removed_values``), or
    whose key is hidden (``count_hidden_keys``): records of different people would become one.
    """
    version = resolve_version(trail, when)
    fields = build_fields_at(trail, version)
    check_comparable(trail, [name for field in fields for name in field.names if is_one_of(field, key)])
    check_beginning(trail)
    return expand_rows(_read_table_at(trail, key, version, fields))


def diff(trail: Trail, key: Sequence[str], first: When, second: When) -> DataFrame:
    """Differences between two moments, the later one second.

    ``difference`` (``added``, ``removed``, ``changed``; ``unknown`` where a row was rewritten and its readable values
    are equal), ``key`` (a struct), ``before`` and ``after``: the rows, in the columns of the later moment, NULL where
    no row exists; where columns are encrypted ``unreadable``, by ``before.NAME`` and ``after.NAME``. Errors and
    omissions are those of ``as_of``."""
    from pyspark.sql import functions as F

    check_comparable(trail, None)
    versions = [resolve_version(trail, when) for when in (first, second)]
    if versions[0] > versions[1]:
        raise ConfigError("the first moment is later than the second", hint="pass the earlier one first")
    check_beginning(trail)
    fields = build_fields_at(trail, versions[1])
    before, after = (_read_table_at(trail, key, version, fields) for version in versions)
    keys = [f"key_{at}" for at in range(len(key))]
    same = [F.col(f"before.{name}").eqNullSafe(F.col(f"after.{name}")) for name in keys]
    both = before.alias("before").join(after.alias("after"), same, "full_outer")
    both = both.where(
        ~F.col("before.last.version").eqNullSafe(F.col("after.last.version"))
    )  # the same version is the same row
    named = (
        F.coalesce(F.col(f"before.{stored}"), F.col(f"after.{stored}")).alias(name)
        for stored, name in zip(keys, key, strict=True)
    )
    sides = both.select(
        F.struct(*named).alias("key"),
        *(F.col(f"{side}.last.row").alias(side) for side in _SIDES),
        *(F.col(f"{side}.last.{UNREADABLE}").alias(f"why_{side}") for side in _SIDES if has_reasons(before)),
    )
    difference = F.when(F.col("before").isNull(), "added").when(F.col("after").isNull(), "removed").otherwise("changed")
    columns = ("difference", "key", *_SIDES)
    if not has_reasons(before):
        return add_same(sides, *_SIDES).where("not same").select(difference.alias("difference"), *columns[1:])
    names = [field.name for field in fields]
    hidden = {name: F.coalesce(*(F.col(f"why_{side}")[name] for side in _SIDES)).isNotNull() for name in names}
    readable = {f"readable_{side}": _hide_fields(F.col(side), hidden) for side in _SIDES}
    found = add_same(sides.withColumns(readable), *readable)
    unknown = F.col("before").isNotNull() & F.col("after").isNotNull() & F.col("same")
    why_not = {f"{side}.{name}": F.col(f"why_{side}")[name] for side in _SIDES for name in names}
    return found.where(~F.col("same") | reduce(or_, hidden.values())).select(
        F.when(unknown, "unknown").otherwise(difference).alias("difference"),
        *columns[1:],
        collect_reasons(why_not).alias(UNREADABLE),
    )


def _hide_fields(row: Column, hidden: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as F

    values = (F.when(~of_it, row.getField(name)).alias(name) for name, of_it in hidden.items())
    return F.when(row.isNotNull(), F.struct(*values))


def column_changes(trail: Trail, key: Sequence[str], column: str) -> DataFrame:
    """Changes of one column: old value, new value, and who changed it.

    One row for each change of the value of a record: by an update, or by a delete and a later insert. The first insert
    is not a change, and neither is a delete. ``version``, ``committed_at``, ``index``, ``change_type``, ``key`` (a
    struct), ``old_value``, ``new_value``, ``certain`` (false where the commit wrote several rows with this key, so that
    the order is unknown; and where a value is hidden and no event names the column as changed), ``operation``,
    ``actor``, ``ticket``, ``purpose``, ``job``, ``run``; where columns are encrypted ``unreadable``, by ``old_value``
    and ``new_value``. Records whose key is hidden are left out (``count_hidden_keys``)."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    check_comparable(trail, (*key, column))
    events = view(trail)
    names = events.select("row.*").columns
    if column not in names:
        raise ConfigError("the trail does not have this column", hint=f"its columns: {', '.join(names)}")
    keys = [row_field(name) for name in key]
    why_not = F.col(UNREADABLE)[column] if reason_columns(events) else F.lit(None).cast("string")
    before = F.lag(F.struct(row_field(column).alias("value"), why_not.alias("why"))).over(
        Window.partitionBy(*keys).orderBy("version", order_in_version(), "index")
    )
    puts = F.count_if(is_put()).over(Window.partitionBy(*keys, "version"))
    more = [_collect_both_reasons(why_not), F.col("changed_columns")] if reason_columns(events) else []
    changes = (
        events.where(F.col("row").isNotNull() & ~is_hidden(events, key))
        .withColumns({"before": before, "certain": puts == 1})
        .where(is_put() & F.col("before").isNotNull())
        .select(
            "version",
            "committed_at",
            "index",
            "change_type",
            F.struct(*(one.alias(name) for one, name in zip(keys, key, strict=True))).alias("key"),
            F.col("before.value").alias("old_value"),
            row_field(column).alias("new_value"),
            "certain",
            *CONTEXT_COLUMNS,
            *more,
        )
    )
    found = add_same(changes, "old_value", "new_value")
    if not reason_columns(events):
        return found.where("not same").drop("same").orderBy("version", "index")
    [field] = [one for one in build_fields(trail.columns()) if one.name == column]
    named = F.arrays_overlap(F.transform("changed_columns", F.lower), F.array(*map(F.lit, sorted(field.lowered))))
    shown = F.col(UNREADABLE).isNull()
    found = found.where(F.when(shown, ~F.col("same")).otherwise(F.coalesce(named, F.lit(True))))
    found = found.withColumn("certain", F.col("certain") & (shown | F.coalesce(named, F.lit(False))))
    return found.select(*changes.drop("changed_columns", UNREADABLE).columns, UNREADABLE).orderBy("version", "index")


def _collect_both_reasons(new: Column) -> Column:
    from pyspark.sql import functions as F

    return collect_reasons({"old_value": F.col("before.why"), "new_value": new}).alias(UNREADABLE)


def _read_table_at(trail: Trail, key: Sequence[str], version: int, fields: Sequence[Field]) -> DataFrame:
    recorded = read_last_sequence(trail)
    payload = read_values(trail, read_table(trail, PAYLOAD).where(f"version <= {version}"))
    events = join_events(trail, select_row(payload, fields), recorded=recorded)
    events = events.where(f"version <= {version} and row is not null")
    return select_current_rows(events.where(~is_hidden(events, key)), [row_field(name) for name in key])
