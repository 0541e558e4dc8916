"""Kafka Connect's schemas, in the form of its JSON converter, for each key and value (``schemas: true``).

The names of the logical types are those that Debezium's connectors use for the same values, so that its JDBC sink and other
readers of Debezium's events create the right columns. Every column except those of the key is optional, even if the table
declares it ``NOT NULL``: an event from before that declaration must be readable with the same schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as T

from cdf.spark_versions import is_variant

__all__ = ["build_envelope_schema", "build_key_schema", "build_row_schema"]

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
}


def build_key_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    fields = [{**_build_type(schema[column].dataType), "optional": False, "field": column} for column in key]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Key"}


def build_row_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    fields = [
        {**_build_type(field.dataType), "optional": field.name not in key, "field": field.name}
        for field in schema.fields
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Value"}


def build_envelope_schema(schema: T.StructType, key: Sequence[str], name: str) -> Schema:
    image = {**build_row_schema(schema, key, name), "optional": True}
    source = [
        _build_field("connector", "string"),
        _build_field("name", "string"),
        _build_field("table", "string"),
        _build_field("table_id", "string"),
        _build_field("snapshot", "string"),
        _build_field("ts_ms", "int64", optional=True),
        _build_field("commit_version", "int64"),
    ]
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {"type": "struct", "fields": source, "optional": False, "name": "deltarelay.Source", "field": "source"},
        _build_field("op", "string"),
        _build_field("ts_ms", "int64", optional=True),
    ]
    # Debezium's readers recognise an envelope by the end of this name
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope"}


def _build_field(name: str, kind: str, *, optional: bool = False) -> Schema:
    return {"type": kind, "optional": optional, "field": name}


def _build_type(kind: T.DataType) -> Schema:
    if isinstance(kind, T.DecimalType):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        name = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", "name": name, "version": 1, "parameters": parameters}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _build_optional_type(kind.elementType)}
    if isinstance(kind, T.MapType):
        # Names in JSON are strings, whatever type the keys have
        return {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": _build_optional_type(kind.valueType),
        }
    if isinstance(kind, T.StructType):
        return {
            "type": "struct",
            "fields": [{**_build_optional_type(field.dataType), "field": field.name} for field in kind.fields],
        }
    if is_variant(kind):
        return {"type": "string", "name": "io.debezium.data.Json", "version": 1}
    if type(kind) in _LOGICAL:
        plain, name = _LOGICAL[type(kind)]
        return {"type": plain, "name": name, "version": 1}
    return {"type": "string" if isinstance(kind, T.StringType) else _PLAIN[type(kind)]}


def _build_optional_type(kind: T.DataType) -> Schema:
    return {**_build_type(kind), "optional": True}
