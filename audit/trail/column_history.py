"""Where the payload keeps the values of each column that the source has ever had.

A column that changes its type gets a new place, and so does one that comes back with another type: what was written keeps
its type for good, which its hash was taken of, and readers need no table feature for types that change.
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
    "is_readable_as",
    "extend_columns",
    "plain_type",
    "row_type",
    "columns_to_json",
    "find_unwritable_fields",
]

SEALED = "deltarelay_sealed"
"""A column of ours beside those of the source: what of the row is sealed (``audit.encryption``). No source may have
such a one."""
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
"""Its type. A group is the columns of one class, sealed as one under a person's key. ``token``: whose it is, 16 random
bytes. ``commitment``: of the key. ``digest``: SHA-256 of what is sealed, which stands beside the row and can be removed."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    """In the source."""
    stored: str
    """In the payload's ``row``."""
    type: DataType
    live: bool = True
    """The source has it now."""


GROUPS_COLUMN = Column(SEALED, SEALED, GROUPS)
"""What a row has besides the columns of its commit once it is sealed later."""


def extend_columns(before: Sequence[Column], schema: StructType, held: StructType | None = None) -> tuple[Column, ...]:
    """All columns of ``before``, and those of ``schema`` that have no place yet; the latter's are live.

    ``held``: what the payload's ``row`` has by now, also of schemas that no record tells: what a place holds it holds for
    good. The same three give the same columns, and so they do once the new ones are held as well.
    """
    columns = [replace(column, live=False) for column in before]
    places = {} if held is None else {field.name: plain_type(field.dataType) for field in held.fields}
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
            columns.append(Column(field.name, _free(field.name, taken, fitting), plain))
    return tuple(columns)


_UNWRITABLE = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta takes in no name of a column, unless the table maps names to others."""


def _free(name: str, taken: Collection[str], fitting: Collection[str]) -> str:
    """The name, or the first numbered one that is not taken, in any case; one that is there has to be spelled the same."""
    plain = stored = _UNWRITABLE.sub("_", name)
    spelled = {one.lower(): one for one in fitting}
    number = 1
    while stored.lower() in taken or spelled.get(stored.lower(), stored) != stored:
        number += 1
        stored = f"{plain}__{number}"
    return stored


def find_unwritable_fields(schema: StructType) -> list[str]:
    """The paths of fields inside of columns whose names cannot be written; a column itself gets another name."""
    return [path for field in schema.fields for path in _unwritable(field.dataType, field.name)]


def _unwritable(type: DataType, path: str) -> list[str]:
    match type:
        case ArrayType(elementType=element):
            return _unwritable(element, path)
        case MapType(keyType=key, valueType=value):
            return [*_unwritable(key, path), *_unwritable(value, path)]
        case StructType():
            here = [f"{path}.{field.name}" for field in type.fields if _UNWRITABLE.search(field.name)]
            return here + [
                found for field in type.fields for found in _unwritable(field.dataType, f"{path}.{field.name}")
            ]
    return []


def plain_type(type: DataType) -> DataType:
    """Without what is no part of a value: nullability, comments, the ids of column mapping, collations."""
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
    return StructType([StructField(column.stored if stored else column.name, column.type) for column in columns])


def columns_to_json(columns: Iterable[Column]) -> list[dict[str, Any]]:
    return [
        {"live": column.live, "name": column.name, "stored": column.stored, "type": column.type.jsonValue()}
        for column in columns
    ]


def columns_from_json(said: Iterable[dict[str, Any]]) -> tuple[Column, ...]:
    """Raises ValueError for whatever is no list of columns, however it is wrong."""
    try:
        columns = list(said)
        for one in columns:
            if type(one["name"]) is not str or type(one["stored"]) is not str or type(one["live"]) is not bool:
                raise ValueError("no column")
            _refuse_classes(one["type"])
        if len({one["stored"].lower() for one in columns}) < len(columns):
            raise ValueError("two columns in one place")
        fields = StructType.fromJson(
            {
                "type": "struct",
                "fields": [
                    {"name": one["stored"], "type": one["type"], "nullable": True, "metadata": {}} for one in columns
                ],
            }
        )
    except Exception as error:  # PySpark raises whatever it trips over, assertions too
        raise ValueError(f"these are no columns ({type(error).__name__})") from error
    return tuple(
        Column(one["name"], one["stored"], field.dataType, one["live"])
        for one, field in zip(columns, fields.fields, strict=True)
    )


def _refuse_classes(type: Any) -> None:
    """PySpark imports the module of the class that a user-defined type names."""
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
            raise ValueError("a type of another kind")
