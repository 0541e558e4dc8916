"""Proposes a key for a Delta table, without a JVM.

A Delta table does not store its key, and everything depends on it. So the proposed key is written with its reason, and
checked against the rows of tables that are small enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from cdf.result import Result
from infra.diagnostics.delta_table import Column, SourceTable

__all__ = ["CHECKED_ROWS", "KeyProposal", "propose_key"]

CHECKED_ROWS = 1_000_000
"""In larger tables the proposed key is not checked: it would take time and memory."""

PAIR_ROWS = 20
"""In smaller tables two columns are unique together by chance, so that no key of two columns is proposed."""

_KEY_TYPES = {"byte", "short", "integer", "long", "string"}
_MAX_CANDIDATES = 5
_PART = re.compile(
    r"(?i:(^|_)(id|line|item|pos|position|seq|sequence|number|num|no|nr|index|version|date|day)$)|[a-z]I[dD]$"
)
"""Names of columns that identify a row together with another one."""


@dataclass(frozen=True, slots=True)
class KeyProposal(Result):
    columns: tuple[str, ...]
    reason: str
    unique: bool | None
    """Whether the key is unique in the rows; None: not checked."""
    rows: int | None = None
    is_likely: bool = True
    """False: no column looks like a key."""


def propose_key(table: SourceTable, name: str) -> KeyProposal:
    """The most likely column by name and type; of several the first that is unique, where that can be checked.

    Where none is unique, two columns that are so together, if their names suggest it.
    """
    candidates = list(dict.fromkeys(_list_key_candidates(table.columns, name)))[:_MAX_CANDIDATES]
    if not candidates:
        first = table.columns[0].name if table.columns else "id"
        return KeyProposal((first,), "no column looks like a key; this is the first one", None, is_likely=False)
    column, reason = candidates[0]
    if not _is_small(table):
        return KeyProposal((column,), reason, None)
    rows = 0
    try:
        for column, reason in candidates:
            rows, unique = _check_uniqueness(table, (column,))
            if rows == 0:
                return KeyProposal((column,), reason, None, rows)
            if unique:
                return KeyProposal((column,), reason, True, rows)
        for pair in _list_pairs(table.columns) if rows >= PAIR_ROWS else ():
            if _check_uniqueness(table, pair)[1]:
                return KeyProposal(pair, "no likely column is unique alone, but these two are together", True, rows)
    except Exception:  # a feature of the table that delta-rs cannot read: the proposal is not checked
        return KeyProposal(candidates[0][:1], candidates[0][1], None)
    return KeyProposal(candidates[0][:1], candidates[0][1], False, rows)


def _list_key_candidates(columns: tuple[Column, ...], name: str) -> Iterator[tuple[str, str]]:
    fit = [column for column in columns if column.type in _KEY_TYPES]
    singular = name.lower().removesuffix("s")
    own = {
        f"{stem}{joint}{ending}" for stem in (name.lower(), singular) for joint in ("_", "") for ending in ("id", "key")
    }
    reasons = (
        ("it is called id", lambda column: column.name.lower() == "id"),
        ("it is named after the table", lambda column: column.name.lower() in own),
        ("it is called a key or a uuid", lambda column: column.name.lower() in {"key", "uuid", "guid", "pk"}),
        ("its name ends in id", lambda column: re.search(r"(_id|Id|ID)$", column.name) is not None),
        ("it is a NOT NULL column of whole numbers or text", lambda column: not column.nullable),
    )
    seen: set[str] = set()
    for reason, fits in reasons:
        for column in fit:
            if fits(column) and column.name not in seen:
                seen.add(column.name)
                yield column.name, reason


def _list_pairs(columns: tuple[Column, ...]) -> list[tuple[str, ...]]:
    """Pairs of columns that may be a key, in the order of the table: a key usually comes first."""
    parts = [one.name for one in columns if one.type in _KEY_TYPES | {"date"} and _PART.search(one.name)]
    return list(combinations(parts[:_MAX_CANDIDATES], 2))


def _is_small(table: SourceTable) -> bool:
    try:
        return int(table.handle.count()) <= CHECKED_ROWS
    except Exception:  # a feature of the table that delta-rs cannot read
        return False


def _check_uniqueness(table: SourceTable, columns: Sequence[str]) -> tuple[int, bool]:
    """The number of rows, and whether the columns are unique together and never null in them.

    Queried with SQL in delta-rs, which handles deletion vectors and renamed columns.
    """
    from deltalake import QueryBuilder

    quoted = ['"' + column.replace('"', '""') + '"' for column in columns]
    is_filled = " and ".join(f"{column} is not null" for column in quoted)
    found = (
        QueryBuilder()
        .register("source", table.handle)
        .execute(
            f"select count(*) as total, count(case when {is_filled} then 1 end) as filled, "
            f"(select count(*) from (select distinct {', '.join(quoted)} from source)) as apart from source"
        )
        .read_all()
    )
    total, filled, apart = (int(found.column(index)[0].as_py()) for index in range(3))
    return total, total == filled == apart
