"""Table names as users write them. Imports no driver."""

from __future__ import annotations

import re

__all__ = ["MAX_NAME_BYTES", "split_table"]

MAX_NAME_BYTES = 63
"""PostgreSQL truncates longer names without an error."""
_DEFAULT_SCHEMA = "public"
_PART = re.compile(r'"(?P<quoted>(?:[^"\0]|"")+)"|(?P<bare>[^\W\d][\w$]*)')


def split_table(table: str) -> tuple[str, str]:
    """Schema and table of ``table`` or ``schema.table``, read as SQL reads it.

    Unquoted names are folded to lower case. A name in double quotes is taken literally (``"a.b"`` is one name, ``""``
    inside is one quote). Raises ``ValueError`` for anything else.
    """
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(table, at)
        if found is None:
            raise ValueError(
                "must be `table` or `schema.table`; put a name that is not plain letters, digits and _ in double quotes"
            )
        quoted = found["quoted"]
        parts.append(quoted.replace('""', '"') if quoted is not None else _fold(found["bare"]))
        at = found.end()
        if at == len(table):
            break
        if table[at] != ".":
            raise ValueError(
                "must be `table` or `schema.table`; put a name that is not plain letters, digits and _ in double quotes"
            )
        at += 1
    if len(parts) > 2:
        raise ValueError("must have at most two parts, `schema.table`; the database is chosen by the connection's dsn")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ValueError(f"has a name of more than {MAX_NAME_BYTES} bytes, which PostgreSQL would cut off")
    return (parts[0], parts[1]) if len(parts) == 2 else (_DEFAULT_SCHEMA, parts[0])


def _fold(name: str) -> str:
    # PostgreSQL folds only ASCII letters when the database is UTF-8
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)
