"""Where the payload stores the values of each column that the source has ever had.

A column whose type changes gets a new place in the payload, and so does a column that comes back with another type. Stored
values therefore keep the type over which they were hashed, and readers need no table feature for type changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

__all__ = [
    "GROUPS",
    "GROUPS_COLUMN",
    "SEALED",
    "Column",
    "columns_from_json",
    "columns_to_json",
    "extend_columns",
    "find_unwritable_fields",
    "is_readable_as",
    "plain_type",
    "row_type",
]

SEALED = "deltarelay_sealed"
"""A column of ours beside those of the source: which columns of the row are encrypted, in groups (``audit.encryption``). No
source may have a column of this name."""
GROUPS = ArrayType(
    StructType(
        [
            StructField("class", StringType()),
            StructField("columns", ArrayType(StringType())),
            StructField("token", BinaryType()),
            StructField("key_id", BinaryType()),
            StructField("commitment", BinaryType()),
            StructField("digest", BinaryType()),
        ]
    )
)
"""The type of that column. A group is the columns of one class, encrypted together under a person's key. ``token``: 16
random bytes that stand for the person. ``commitment``: to the key. ``digest``: SHA-256 of the encrypted bytes, which are
stored beside the row and can be removed."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    """In the source."""
    stored: str
    """In the payload's ``row``."""
    type: DataType
    live: bool = True
    """The source has the column now."""


GROUPS_COLUMN = Column(SEALED, SEALED, GROUPS)
"""The column that a row has besides those of its commit after it was encrypted later."""


def extend_columns(
    before: Sequence[Column], schema: StructType, payload_row: StructType | None = None
) -> tuple[Column, ...]:
    """Return all columns of ``before``, and those of ``schema`` that have no place yet. The columns of ``schema`` are live.

    ``payload_row``: the type of the payload's ``row``; it may have places of schemas that no record has, and a place keeps
    its type. The same arguments give the same columns, also after the payload got the new places.
    """
    columns = [replace(column, live=False) for column in before]
    places = {} if payload_row is None else {field.name: plain_type(field.dataType) for field in payload_row.fields}
    for field in schema.fields:
        plain = plain_type(field.dataType)
        for at, column in enumerate(columns):
            if column.name == field.name and column.type == plain:
                columns[at] = replace(column, live=True)
                break
        else:
            fitting = {name for name, type in places.items() if type == plain}
            taken = {column.stored.lower() for column in columns}
            taken |= {name.lower() for name in places.keys() - fitting}
            columns.append(Column(field.name, _free_name(field.name, taken, fitting), plain))
    return tuple(columns)


_UNWRITABLE = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta refuses in a column name, unless the table uses column mapping."""


def _free_name(name: str, taken: Collection[str], fitting: Collection[str]) -> str:
    """The name, or the first numbered one that is not taken in any case. An existing place is used only if spelled the
    same."""
    plain = stored = _UNWRITABLE.sub("_", name)
    spellings = {place.lower(): place for place in fitting}
    number = 1
    while stored.lower() in taken or spellings.get(stored.lower(), stored) != stored:
        number += 1
        stored = f"{plain}__{number}"
    return stored


def find_unwritable_fields(schema: StructType) -> list[str]:
    """The paths of nested fields whose names Delta cannot write. A top-level column gets another name instead."""
    return [path for field in schema.fields for path in _find_unwritable(field.dataType, field.name)]


def _find_unwritable(type: DataType, path: str) -> list[str]:
    match type:
        case ArrayType(elementType=element):
            return _find_unwritable(element, path)
        case MapType(keyType=key, valueType=value):
            return [*_find_unwritable(key, path), *_find_unwritable(value, path)]
        case StructType():
            own = [f"{path}.{field.name}" for field in type.fields if _UNWRITABLE.search(field.name)]
            return own + [
                found for field in type.fields for found in _find_unwritable(field.dataType, f"{path}.{field.name}")
            ]
    return []


def plain_type(type: DataType) -> DataType:
    """The type without nullability, comments, column mapping ids and collations, which are no part of a value."""
    if isinstance(type, StringType):
        return StringType()
    if isinstance(type, ArrayType):
        return ArrayType(plain_type(type.elementType))
    if isinstance(type, MapType):
        return MapType(plain_type(type.keyType), plain_type(type.valueType))
    if isinstance(type, StructType):
        return StructType([StructField(field.name, plain_type(field.dataType)) for field in type.fields])
    return type


def is_readable_as(stored: DataType, recorded: DataType) -> bool:
    """Whether values of the stored type can be read as the recorded type without casts: stored structs may have more fields.
    Both types as ``plain_type`` returns them."""
    if isinstance(stored, StructType) and isinstance(recorded, StructType):
        types = {field.name: field.dataType for field in stored.fields}
        return all(
            field.name in types and is_readable_as(types[field.name], field.dataType) for field in recorded.fields
        )
    if isinstance(stored, ArrayType) and isinstance(recorded, ArrayType):
        return is_readable_as(stored.elementType, recorded.elementType)
    if isinstance(stored, MapType) and isinstance(recorded, MapType):
        keys = is_readable_as(stored.keyType, recorded.keyType)
        return keys and is_readable_as(stored.valueType, recorded.valueType)
    return stored == recorded


def row_type(columns: Iterable[Column], *, stored: bool) -> StructType:
    """The struct of these columns, by their names in the payload (``stored``) or in the source."""
    return StructType([StructField(column.stored if stored else column.name, column.type) for column in columns])


def columns_to_json(columns: Iterable[Column]) -> list[dict[str, Any]]:
    return [
        {"live": column.live, "name": column.name, "stored": column.stored, "type": column.type.jsonValue()}
        for column in columns
    ]


def columns_from_json(objects: Iterable[dict[str, Any]]) -> tuple[Column, ...]:
    """Raises ValueError for anything that is not the result of ``columns_to_json``."""
    try:
        columns = list(objects)
        for column in columns:
            if type(column["name"]) is not str or type(column["stored"]) is not str or type(column["live"]) is not bool:
                raise ValueError("not a column")
            _refuse_classes(column["type"])
        if len({column["stored"].lower() for column in columns}) < len(columns):
            raise ValueError("two columns in one place")
        fields = StructType.fromJson(
            {
                "type": "struct",
                "fields": [
                    {"name": column["stored"], "type": column["type"], "nullable": True, "metadata": {}}
                    for column in columns
                ],
            }
        )
    except Exception as error:  # PySpark raises all kinds of errors for a malformed type, AssertionError included
        raise ValueError(f"not a list of columns ({type(error).__name__})") from error
    return tuple(
        Column(column["name"], column["stored"], field.dataType, column["live"])
        for column, field in zip(columns, fields.fields, strict=True)
    )


def _refuse_classes(type: Any) -> None:
    """Refuse user-defined types: PySpark imports the module of the class that they name."""
    if not isinstance(type, dict):
        return
    match type["type"]:
        case "array":
            _refuse_classes(type["elementType"])
        case "map":
            _refuse_classes(type["keyType"])
            _refuse_classes(type["valueType"])
        case "struct":
            for field in type["fields"]:
                _refuse_classes(field["type"])
        case _:
            raise ValueError("not an array, map or struct")
