"""The form of the events of a topic, and which schemas it can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdf.changes.columns import CONFLICTS, METADATA_COLUMNS
from cdf.changes.keys import check_key
from cdf.errors import TypeNotSupported

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Envelope", "EventFormat", "check_schema", "select_table_columns"]

Envelope = Literal["debezium", "row"]


@dataclass(frozen=True, slots=True)
class EventFormat:
    """How the events of a topic are written."""

    envelope: Envelope = "debezium"
    schemas: bool = False
    """Add the Kafka Connect schema to every key and value: ``{"schema": …, "payload": …}``."""


def check_schema(schema: StructType, key: Sequence[str], format: EventFormat) -> list[str]:  # noqa: ARG001
    """Return why rows of this schema cannot be written without loss, one text per column; empty if they can.

    The JSON holds the same types in each envelope, with and without Connect's schema; a future format may differ.
    """
    from connectors.kafka.types import has_json_form

    problems = [
        f"column {field.name!r} has type {field.dataType.simpleString()}, which has no JSON form without loss"
        for field in select_table_columns(schema).fields
        if not has_json_form(field.dataType)
    ]
    if key:
        try:
            check_key(schema, key, "the table")
        except TypeNotSupported as error:
            problems.append(error.message)
    return problems


def select_table_columns(schema: StructType) -> StructType:
    """Return the schema without the metadata columns of the change feed."""
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name not in (*METADATA_COLUMNS, CONFLICTS)])
