"""Which columns may be a key, and rows that violate it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import KeyViolation, TypeNotSupported
from cdf.spark_versions import has_collation, is_variant

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["MARK", "KeyFaults", "check_key", "key_violation", "violation_of"]

MARK = "DELTARELAY_KEY_VIOLATION"
"""Marks a key violation in the error text of a Spark job; ``violation_of`` finds it there."""
_VIOLATION = re.compile(MARK + r" (null_key|put_twice|not_utf8) (\d+)")


@dataclass(frozen=True, slots=True)
class KeyFaults:
    """Why a snapshot has no valid key: rows with a null in the key, and keys that occur more than once."""

    null_rows: int
    duplicate_keys: int


def check_key(schema: StructType, key: Sequence[str], table: str) -> None:
    """Refuse an unsuitable key: a missing or repeated column, or a type whose equality differs in the target."""
    from pyspark.sql import types as T

    problems: list[str] = []
    if not key:
        problems.append("no key columns are given")
    if len(set(key)) != len(key):
        problems.append("a key column is named twice")
    fields = {field.name: field for field in schema.fields}
    for name in key:
        if name not in fields:
            problems.append(f"the table has no column {name!r}")
            continue
        kind = fields[name].dataType
        if isinstance(kind, (T.FloatType, T.DoubleType)):
            problems.append(f"key column {name!r} is a {kind.simpleString()}: NaN and -0.0 have no single identity")
        elif isinstance(kind, T.StringType) and has_collation(kind):
            problems.append(f"key column {name!r} has a collation: keys equal to Spark would differ in the target")
        elif isinstance(kind, (T.ArrayType, T.MapType, T.StructType)) or is_variant(kind):
            problems.append(f"key column {name!r} is nested ({kind.typeName()})")
    if problems:
        raise TypeNotSupported(
            f"the key ({', '.join(key)}) of {table} cannot be used: " + "; ".join(problems),
            hint="name columns that identify a row: integers, decimals, strings, binaries, dates, timestamps, booleans",
        )


def violation_of(error: BaseException, *, table: str, key: Sequence[str]) -> KeyViolation | None:
    """The key violation that made a Spark job fail, with table, version and key columns; None: another error."""
    found = _VIOLATION.search(str(error))
    return None if found is None else key_violation(found.group(1), int(found.group(2)), table=table, key=key)


def key_violation(
    reason: str, version: int, *, table: str, key: Sequence[str], engine: str | None = None
) -> KeyViolation:
    """``engine``: the program that wrote the version, where it is to blame."""
    columns = ", ".join(key)
    if reason == "key_changed":
        message = f"version {version} of {table} changes the key ({columns}) of a row, and key_changes is set to refuse"
        hint = "set key_changes: follow to delete the old key and insert the new one"
    elif reason == "image_missing":
        message = (
            f"version {version} of {table} has updates without their old or new row: its writer ({engine or 'unknown'}) did "
            f"not record it, so a changed key ({columns}) would leave a row that no longer exists"
        )
        hint = "reload the target, `deltarelay run --reload`; update the table with a writer that records both rows"
    elif reason == "null_key":
        message = f"version {version} of {table} changes rows with a null in the key ({columns})"
        hint = "choose key columns that are never null, and add a NOT NULL constraint to them"
    elif reason == "not_utf8":
        message = f"version {version} of {table} has bytes that are not UTF-8 in the key ({columns})"
        hint = "choose key columns that hold text or binary values; a new trail may start after that version"
    else:
        message = f"version {version} of {table} inserts a key ({columns}) more than once"
        hint = "the columns do not identify a row at that version: name a unique key, or repair the source"
    return KeyViolation(message, hint=hint, table=table, version=version, key=list(key), reason=reason)
