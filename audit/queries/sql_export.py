"""The view of a trail as an SQL statement for other engines, over the trail's tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
)

from audit.queries.commit_records import RECORD_COLUMNS
from audit.queries.fields import Field, build_fields
from audit.trail.column_history import SEALED, Column
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TABLES

__all__ = ["ENGINES", "Engine", "view_sql"]

Engine: TypeAlias = Literal["spark", "delta-rs", "duckdb", "trino"]


def view_sql(
    engine: Engine, path: str, columns: Iterable[Column], *, name: str = "trail", sealed: bool | None = None
) -> str:
    """The statement, or for delta-rs the query, that joins the trail at ``path``; ``columns``: ``Trail.columns()``.

    Its columns are those of ``audit.queries.view.view``, each column of the source as ``row.NAME``. Two differences: columns
    whose nested fields have changed stay separate columns, and DataFusion, the engine of delta-rs, has no JSON
    functions: there ``record`` contains what the other engines have as ``operation``, ``actor`` and so on.

    No engine has the keys: encrypted values are NULL, and ``sealed_columns`` names these columns of a row by their
    names of that time; for DataFusion, whose list functions are limited, it contains the whole groups. Only the
    registry knows whether a key was destroyed. ``sealed``: whether the payload has encrypted rows
    (``audit.encryption.decrypt.has_groups``); by default it is derived from ``columns``, which do not show rows that
    were encrypted later."""
    dialect, columns = ENGINES[engine], list(columns)
    sealed = any(column.name == SEALED for column in columns) if sealed is None else sealed
    fields = build_fields(columns, nested=False)
    events = ("version", "index", "committed_at", "change_type", "baseline", "changed_columns")
    shown = [
        *((f"e.{dialect.quoted(one)}", one) for one in events),
        ("case when p.id is null then 'removed' else 'present' end", "values"),
        *((dialect.value(field), f"row.{field.name}") for field in fields),
        *([(dialect.encrypted_names(), "sealed_columns")] if sealed else []),
        *dialect.record_columns(),
    ]
    listed = ",\n".join(f"  {value} as {dialect.quoted(shown_as)}" for value, shown_as in shown)
    tables = {one: dialect.table(path, one, name) for one in TABLES}
    address = re.sub(r"^s3[an]://", "s3://", path) if engine == "trino" else path
    begin = dialect.begin.format(
        view=dialect.quoted(name), **{one: _text(f"{address}/{one}") for one in TABLES}, name=name.replace("'", "''")
    )
    return (
        f"{begin}{_SEALED_NOTE if sealed else ''}select\n{listed}\n"
        f"from {tables[EVENTS]} e\n"
        f"left join {tables[PAYLOAD]} p on p.id = e.id and p.version = e.version\n"
        f"left join {tables[LEDGER]} l on l.version = e.version and (l.kind = 'baseline') = e.baseline"
    )


_SEALED_NOTE = "-- a column that sealed_columns names is sealed or erased: NULL is not its value\n"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class _Dialect:
    begin: str
    """Text before the query."""
    place: str
    """Expression for a table; ``{name}`` is the name of the view."""
    quote: str
    json: str | None
    """Function that extracts text from JSON."""
    field: str
    """Expression for a column of ``row``."""
    sealed_names: str
    """Expression for the columns of all groups of a row, ``{groups}``."""
    types: Mapping[type[DataType], str]

    def quoted(self, name: str) -> str:
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def table(self, path: str, table: str, name: str) -> str:
        return self.place.format(
            path=self.quoted(f"{path}/{table}"),
            text=_text(f"{path}/{table}"),
            table=self.quoted(f"{name}_{table}"),
            plain=table,
        )

    def value(self, field: Field) -> str:
        places = [self._cast(self._named(place.stored), place, field) for place in reversed(field.places)]
        return f"coalesce({', '.join(places)})" if len(places) > 1 else places[0]

    def encrypted_names(self) -> str:
        return self.sealed_names.format(groups=self._named(SEALED))

    def _named(self, stored: str) -> str:
        return self.field.format(quoted=self.quoted(stored), text=_text(stored))

    def _cast(self, value: str, place: Column, field: Field) -> str:
        if place.type == field.type:
            return value
        kind = field.type
        named = f"decimal({kind.precision}, {kind.scale})" if isinstance(kind, DecimalType) else self.types[type(kind)]
        return f"cast({value} as {named})"

    def record_columns(self) -> list[tuple[str, str]]:
        if self.json is None:
            return [("l.record", "record")]
        return [(f"{self.json}(l.record, '$.{'user' if one == 'actor' else one}')", one) for one in RECORD_COLUMNS]


_TYPES: Mapping[type[DataType], str] = {
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double",
    TimestampNTZType: "timestamp",
}
ENGINES: Mapping[Engine, _Dialect] = {
    "spark": _Dialect(
        begin="create or replace temporary view {view} as\n",
        place="delta.{path}",
        quote="`",
        json="get_json_object",
        field="p.`row`.{quoted}",
        sealed_names="flatten({groups}.`columns`)",
        types={**_TYPES, FloatType: "float", TimestampNTZType: "timestamp_ntz"},
    ),
    "delta-rs": _Dialect(
        begin="-- QueryBuilder().register(NAME, DeltaTable(PATH)) for each of\n"
        "--   events   {events}\n--   payload  {payload}\n--   ledger   {ledger}\n",
        place="{plain}",
        quote='"',
        json=None,
        field='p."row"[{text}]',
        sealed_names="{groups}",
        types=_TYPES,
    ),
    "duckdb": _Dialect(
        begin="-- once, with a network: install delta\nload delta;\ncreate or replace view {view} as\n",
        place="delta_scan({text})",
        quote='"',
        json="json_extract_string",
        field='p."row"[{text}]',
        sealed_names="flatten([one['columns'] for one in {groups}])",
        types=_TYPES,
    ),
    "trino": _Dialect(
        begin="-- a catalog `delta` with a schema `audit`. Trino reads a folder of its machine below local.location only,\n"
        "-- by local:///PATH\n"
        "call delta.system.register_table('audit', '{name}_events', {events});\n"
        "call delta.system.register_table('audit', '{name}_payload', {payload});\n"
        "call delta.system.register_table('audit', '{name}_ledger', {ledger});\n"
        "create or replace view delta.audit.{view} as\n",
        place="delta.audit.{table}",
        quote='"',
        json="json_extract_scalar",
        field='p."row".{quoted}',
        sealed_names='flatten(transform({groups}, one -> one."columns"))',
        types={**_TYPES, TimestampNTZType: "timestamp(6)"},
    ),
}
