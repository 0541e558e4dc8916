"""The hash of ``row_hash``, computed by PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from connectors.postgres.verify.row_hash import BYTES, LONG, RowHash

__all__ = ["row_hash_sql"]


def row_hash_sql(form: RowHash, columns: Sequence[sql.Composable]) -> sql.Composed:
    """The hash of a row with these columns."""
    values = [_shorten(column, kind, form.salt) for column, kind in zip(columns, form.kinds, strict=True)]
    return sql.SQL("hash_record_extended(row(record_send(row({}))), {})").format(
        sql.SQL(", ").join(values), sql.Literal(form.seed)
    )


def _shorten(column: sql.Composable, kind: str, salt: str) -> sql.Composable:
    if kind not in BYTES:
        return column
    template = "decode(md5({salt}::bytea || {column}), 'hex')" if kind == "bytea" else "md5({salt} || {column})"
    return sql.SQL(f"case when octet_length({{column}}) > {LONG} then {template} else {{column}} end").format(
        column=column, salt=sql.Literal(salt)
    )
