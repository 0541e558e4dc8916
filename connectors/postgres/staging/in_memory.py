"""The conversions of ``wire`` and ``storability`` on Arrow tables, for windows and snapshots in memory.

``test_postgres_in_memory`` compares each function with the Spark expressions. Nested values are refused, because only Spark
writes their JSON.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cdf.changes.canonical import is_nested
from cdf.changes.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, CONFLICTS, INSERT, TRANSIENT, UPDATE
from cdf.changes.in_memory import key_digests
from cdf.errors import ConfigError
from connectors.postgres.staging.columns import (
    OPERATION,
    REJECT,
    REJECT_DIGEST,
    REJECT_KEY,
    REJECT_ROW,
    TIMESTAMP,
    VERSION,
    StagingOptions,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["describe_unstorable", "unstorable_reasons", "wire_net", "wire_rows"]

_NO_TEXT = "text with a NUL character or bytes that are not UTF-8"
"""In memory text is always UTF-8, so only NUL is checked. All dates and times of Python are in PostgreSQL's calendar."""


def unstorable_reasons(table: pa.Table, schema: StructType, key: Sequence[str]) -> list[str | None]:
    """As ``storability.unstorable_reason``: ``<description>:<column>`` of the first column whose value cannot be stored."""
    found: list[str | None] = [None] * table.num_rows
    puts = [kind in (INSERT, UPDATE) for kind in table[CHANGE_TYPE].to_pylist()]
    for name, numbers in _unstorable_rows(table, schema):
        for number in numbers:
            if found[number] is None and (puts[number] or name in key):
                found[number] = f"{_NO_TEXT}:{name}"
    return found


def describe_unstorable(table: pa.Table, schema: StructType) -> str | None:
    """As ``storability.describe_unstorable``."""
    versions = table[COMMIT_VERSION].to_pylist() if COMMIT_VERSION in table.column_names else None
    parts = []
    for name, numbers in _unstorable_rows(table, schema):
        if numbers:
            at = "" if versions is None else f" at version {min(versions[number] for number in numbers)}"
            parts.append(f"column {name!r}{at} holds {_NO_TEXT} ({len(numbers)} rows)")
    return "; ".join(parts) or None


def _unstorable_rows(table: pa.Table, schema: StructType) -> Iterator[tuple[str, list[int]]]:
    """Column, and numbers of the rows whose value in it cannot be stored."""
    import pyarrow as pa

    for field in schema.fields:
        if pa.types.is_string(table.schema.field(field.name).type):
            values = table[field.name].to_pylist()
            yield field.name, [number for number, value in enumerate(values) if value is not None and "\0" in value]


def wire_net(
    net: pa.Table, schema: StructType, key: Sequence[str], options: StagingOptions, codes: Mapping[str, int]
) -> pa.Table:
    """As ``wire.wire_net``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    reasons = unstorable_reasons(net, schema, key)
    if options.transients and not options.rejects:
        kept = [
            kind != TRANSIENT or reason is None
            for kind, reason in zip(net[CHANGE_TYPE].to_pylist(), reasons, strict=True)
        ]
        net = net.filter(pa.array(kept, pa.bool_()))
    kinds = net[CHANGE_TYPE].to_pylist()
    put = pa.array([kind in (INSERT, UPDATE) for kind in kinds], pa.bool_())
    arrays: dict[str, Any] = {OPERATION: pa.array([codes[kind] for kind in kinds], pa.int16())}
    if options.commit:
        arrays |= {VERSION: net[COMMIT_VERSION], TIMESTAMP: net[COMMIT_TIMESTAMP]}
    fits = pa.array([not options.rejects or reason is None for reason in reasons[: net.num_rows]], pa.bool_())
    if options.rejects:
        names = schema.fieldNames()
        digests, keys = key_digests(net, schema, key), _json(net, schema, key)
        rows = _json(net, schema, names) if options.reject_rows else [None] * net.num_rows
        marks: dict[str, Sequence[str | None]] = {
            REJECT: reasons,
            REJECT_KEY: keys,
            REJECT_DIGEST: digests,
            REJECT_ROW: rows,
        }
        for name, texts in marks.items():
            texts_of_marked = [None if reason is None else text for reason, text in zip(reasons, texts, strict=True)]
            arrays[name] = pa.array(texts_of_marked, pa.string())
    for number, field in enumerate(schema.fields):
        value = _to_wire(net[field.name], field.name, field.dataType)
        is_kept = fits if field.name in key else pc.and_(fits, put)
        arrays[f"c{number}"] = pc.if_else(is_kept, value, pa.scalar(None, value.type))
    arrays[CONFLICTS] = net[CONFLICTS]
    return pa.Table.from_pydict(arrays)


def wire_rows(table: pa.Table, schema: StructType) -> pa.Table:
    """As ``wire.wire_rows``."""
    import pyarrow as pa

    return pa.Table.from_arrays(
        [_to_wire(table[field.name], field.name, field.dataType) for field in schema.fields],
        names=[f"c{number}" for number in range(len(schema.fields))],
    )


def _to_wire(values: Any, name: str, kind: DataType) -> Any:
    import pyarrow as pa
    from pyspark.sql import types as T

    _refuse_nested(name, kind)
    return values.cast(pa.int16()) if isinstance(kind, T.ByteType) else values


def _refuse_nested(name: str, kind: DataType) -> None:
    if is_nested(kind):
        raise ConfigError(
            f"column {name!r} is nested ({kind.typeName()}): only Spark writes its JSON",
            hint="a test of nested values needs Spark",
        )


def _json(table: pa.Table, schema: StructType, names: Sequence[str]) -> list[str]:
    """Each row as Spark's ``to_json`` with ``cdf.changes.canonical.TO_JSON`` writes it."""
    columns: list[list[str]] = []
    for name in names:
        kind = schema[name].dataType
        _refuse_nested(name, kind)
        columns.append(
            [json.dumps(name, ensure_ascii=False) + ":" + _json_value(value) for value in table[name].to_pylist()]
        )
    return ["{" + ",".join(texts) + "}" for texts in zip(*columns, strict=True)]


def _json_value(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        zone = "" if value.tzinfo is None else "Z"
        return f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
    if isinstance(value, dt.date):
        return f'"{value.isoformat()}"'
    if value is None or isinstance(value, (bool, int, str)):
        return json.dumps(value, ensure_ascii=False)
    raise ConfigError(
        f"{type(value).__name__} has no JSON in memory", hint="a test of such a value among dead letters needs Spark"
    )
