"""Identifiers and expressions that statements are composed of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import sql

__all__ = ["SCHEMA", "Name", "TargetName", "Text", "equal", "fill_template", "quote_plainly"]

SCHEMA = "deltarelay"
"""The schema of the tables that this package creates for itself."""


@dataclass(frozen=True, slots=True)
class TargetName:
    schema: str
    table: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    def __str__(self) -> str:
        return f"{quote_plainly(self.schema)}.{quote_plainly(self.table)}"


def quote_plainly(name: str) -> str:
    """The name for a message: quoted only where SQL requires it."""
    simple = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if simple else '"' + name.replace('"', '""') + '"'


class Name(sql.Identifier):
    """An identifier in a statement with parameters: psycopg looks for placeholders inside of names as well."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


class _Sql(sql.SQL):
    """SQL text from outside this package (such as a type name) in a statement with parameters."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


class Text(sql.Literal):
    """A text literal in a statement with parameters."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


def equal(column: sql.Composable, value: sql.Composable) -> sql.Composed:
    """Compare by the server's own operator. pg_catalog has no ``=`` for two varchars and compares them as text; without
    the qualification an operator for varchars in the role's search_path would take precedence."""
    return sql.SQL("{} operator(pg_catalog.=) {}").format(column, value)


def fill_template(template: str, column: sql.Composable, *, parameters: bool = True) -> sql.Composable:
    """The template with the column in place of ``{}``. Other braces stay; ``sql.SQL.format`` would reject them."""
    text = _Sql if parameters else sql.SQL
    parts = template.split("{}")
    pieces: list[sql.Composable] = [text(parts[0])]
    for part in parts[1:]:
        pieces += [column, text(part)]
    return sql.Composed(pieces)
