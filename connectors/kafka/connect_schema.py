"""Kafka Connect's schemas, as its JSON converter writes them beside each value (``schemas: true``).

The names of the logical types are those that Debezium's connectors give to the same values, so that its JDBC sink, and
whatever else reads Debezium's events, makes the right columns of them. Every column but the key's is optional, whatever the
table says at present: an event from before a ``NOT NULL`` must be readable with the same schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as T

__all__ = ["key_schema", "row_schema", "envelope_schema"]

Schema = dict[str, Any]

_PLAIN: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.BinaryType: "bytes",
}
_LOGICAL: dict[type[T.DataType], tuple[str, str]] = {
    T.DateType: ("int32", "io.debezium.time.Date"),
    T.TimestampType: ("string", "io.debezium.time.ZonedTimestamp"),
    T.TimestampNTZType: ("int64", "io.debezium.time.MicroTimestamp"),
    T.VariantType: ("string", "io.debezium.data.Json"),
}


def key_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    fields = [{**_type(schema[column].dataType), "optional": False, "field": column} for column in key]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Key"}


def row_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    fields = [
        {**_type(field.dataType), "optional": field.name not in key, "field": field.name} for field in schema.fields
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Value"}


def envelope_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    image = {**row_schema(schema, key, name), "optional": True}
    source = [
        _field("connector", "string"),
        _field("name", "string"),
        _field("table", "string"),
        _field("table_id", "string"),
        _field("snapshot", "string"),
        _field("ts_ms", "int64", optional=True),
        _field("commit_version", "int64"),
    ]
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {"type": "struct", "fields": source, "optional": False, "name": "deltarelay.Source", "field": "source"},
        _field("op", "string"),
        _field("ts_ms", "int64", optional=True),
    ]
    # Debezium's readers know an envelope by the end of this name
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope"}


def _field(name: str, kind: str, *, optional: bool = False) -> Schema:
    return {"type": kind, "optional": optional, "field": name}


def _type(kind: T.DataType) -> Schema:
    if isinstance(kind, T.DecimalType):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        name = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", "name": name, "version": 1, "parameters": parameters}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _inside(kind.elementType)}
    if isinstance(kind, T.MapType):
        # JSON's names are strings, whatever the keys were
        return {"type": "map", "keys": {"type": "string", "optional": False}, "values": _inside(kind.valueType)}
    if isinstance(kind, T.StructType):
        return {"type": "struct", "fields": [{**_inside(field.dataType), "field": field.name} for field in kind.fields]}
    if type(kind) in _LOGICAL:
        plain, name = _LOGICAL[type(kind)]
        return {"type": plain, "name": name, "version": 1}
    return {"type": "string" if isinstance(kind, T.StringType) else _PLAIN[type(kind)]}


def _inside(kind: T.DataType) -> Schema:
    return {**_type(kind), "optional": True}
