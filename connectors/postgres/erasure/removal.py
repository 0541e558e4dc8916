"""The SQL that removes or empties the target's rows and dead letters under staged keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import RowRejected
from connectors.postgres.conversions import find_casts
from connectors.postgres.erasure.erased_keys import GONE
from connectors.postgres.sql_parts import Name, equal
from connectors.postgres.write.record_writer import fetch_count
from connectors.postgres.write.statements import Layout, faithful_conditions, staged_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.sql_parts import TargetName

__all__ = ["DELETE_LETTERS", "NULLIFY_LETTERS", "TargetRows", "match_keys", "remove_rows"]

Connection = psycopg.Connection[Any]

_OLD_LETTERS = "d.target = %(target)s and d.key_digest = s.digest and (s.gone or coalesce(d.version, 0) <= %(last)s)"
DELETE_LETTERS = sql.SQL("delete from deltarelay.dead_letter d using {} s where " + _OLD_LETTERS)
NULLIFY_LETTERS = sql.SQL(
    "update deltarelay.dead_letter d set row = null from {} s where d.row is not null and " + _OLD_LETTERS
)
_HAS_LETTER = sql.SQL(
    "exists (select from deltarelay.dead_letter d where d.target = %(target)s and d.key_digest = s.digest)"
)


@dataclass(frozen=True, slots=True)
class TargetRows:
    """The target's rows (``t``) under staged keys (``s``) that still have something to remove."""

    target: TargetName
    staged: sql.Identifier
    matches: sql.Composable
    emptied: Sequence[str]
    """The target's columns that are set to NULL; empty where whole rows are deleted."""

    def removal(self, where: sql.Composable) -> sql.Composed:
        into = Name(self.target.schema, self.target.table)
        if not self.emptied:
            return sql.SQL("delete from {} t using {} s where {}").format(into, self.staged, self._condition(where))
        empty = sql.SQL(", ").join(sql.SQL("{} = null").format(Name(name)) for name in self.emptied)
        return sql.SQL("update {} t set {} from {} s where {}").format(into, empty, self.staged, self._condition(where))

    def count(self, where: sql.Composable) -> sql.Composed:
        into = Name(self.target.schema, self.target.table)
        return sql.SQL("select count(*) from {} t, {} s where {}").format(into, self.staged, self._condition(where))

    def _condition(self, where: sql.Composable) -> sql.Composed:
        condition = sql.SQL("{} and {}").format(self.matches, where)
        if not self.emptied:
            return condition
        values = sql.SQL(", ").join(sql.SQL("t.{}").format(Name(name)) for name in self.emptied)
        return sql.SQL("{} and num_nonnulls({}) > 0").format(condition, values)


def remove_rows(
    connection: Connection,
    rows: TargetRows,
    marked: sql.Composable | None,
    has_letters: bool,
    parameters: Mapping[str, Any],
) -> int:
    """Remove the rows and return their number. ``marked``: the condition of rows that are removed although the source may
    have the key again."""
    gone: sql.Composable = sql.SQL("s.{}").format(sql.Identifier(GONE))
    if marked is not None:
        gone = sql.SQL("({} or {})").format(gone, marked)
    unsure = sql.SQL("not {} and {}").format(gone, _HAS_LETTER)
    if has_letters and (count := fetch_count(connection, rows.count(unsure), parameters)):
        raise RowRejected(
            f"{count} rows of {rows.target} have keys that were erased and inserted again, and that have dead letters: the "
            "values in the target may be from before the erasure"
        )
    removed = connection.execute(rows.removal(gone), parameters).rowcount
    if count := fetch_count(connection, rows.count(gone), parameters):
        raise RowRejected(
            f"{count} rows that must be erased remain in {rows.target}: a trigger or rule of the target prevents it"
        )
    return removed


def match_keys(target: TargetName, keys: StructType, found: Mapping[str, ColumnType]) -> sql.Composed:
    """Return the condition that a staged key (``s``) is that of a row of the target (``t``). A key that does not fit the
    target's type matches no row."""
    names = tuple(keys.fieldNames())
    layout = Layout(keys, names, (), find_casts(str(target), keys, found), "hard", partitioned=False)
    fits = faithful_conditions(layout)
    same = []
    for number, name in enumerate(names):
        value = staged_value(layout, name, Name(f"c{number}"))
        if name in fits:
            value = sql.SQL("case when {} then {} end").format(fits[name], value)
        same.append(equal(Name("t", name), value))
    return sql.SQL(" and ").join(same)
