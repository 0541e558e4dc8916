"""The target in ``cdf.canonical``'s form, rendered by PostgreSQL itself, in one snapshot of the database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import CdfError, TargetNotReady
from cdf.sink import BucketDigest, Position, RowDigest, Source
from connectors.postgres.errors import raise_alone, translate
from connectors.postgres.position import read_position
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from connectors.postgres.schema import TargetName

__all__ = ["PostgresImage"]

Connection = psycopg.Connection[Any]


class PostgresImage:
    """Lives inside one REPEATABLE READ transaction: position and rows are of the same moment."""

    def __init__(self, connection: Connection, target: TargetName, source: Source) -> None:
        self._connection = connection
        self._target = target
        self._source = source
        self._position = read_position(connection, str(target))

    @property
    def position(self) -> Position:
        return self._position

    def row_count(self) -> int:
        ((count,),) = self._execute(sql.SQL("select count(*) from {}").format(self._target.identifier))
        return int(count)

    def digest(self, buckets: int) -> Mapping[int, BucketDigest]:
        query = sql.SQL("select bucket, count(*), sum({checksum}) from ({rows}) r group by bucket").format(
            checksum=_number(sql.SQL("row_digest"), 15), rows=self._digests(buckets, show_keys=False)
        )
        return {bucket: BucketDigest(int(rows), int(total)) for bucket, rows, total in self._execute(query)}

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        query = sql.SQL("select key_digest, row_digest, key_text from ({rows}) r where bucket = any({chosen})").format(
            rows=self._digests(buckets, show_keys=show_keys), chosen=sql.Literal(list(chosen))
        )
        with self._failures(), self._connection.cursor(name="deltarelay_verify") as cursor:
            cursor.itersize = 10_000
            cursor.execute(query)
            for key, row, shown in cursor:
                yield RowDigest(key, row, shown)

    def _execute(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        with self._failures():
            return self._connection.execute(query).fetchall()
        raise AssertionError("not reached: _failures lets nothing pass")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """In our words at once: between here and the caller nobody can tell the target's failures from the source's."""
        try:
            yield
            return
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            failure: CdfError = TargetNotReady(
                f"{self._target} or one of its columns is gone",
                hint="restore it, or make the target anew with `deltarelay run --reload`",
            )
        except psycopg.Error as error:
            failure = translate(error, "reading the target")
        raise_alone(failure)

    def _digests(self, buckets: int, *, show_keys: bool) -> sql.Composed:
        """→ (bucket, key_digest, row_digest, key_text), one row for each of the target's."""
        fields = self._source.schema.fields
        names = [field.name for field in fields]
        texts = sql.SQL(", ").join(
            sql.SQL("{} as {}").format(_text(sql.Identifier(field.name), field.dataType), sql.Identifier(f"t{number}"))
            for number, field in enumerate(fields)
        )
        keys = [names.index(name) for name in self._source.key]
        shown = (
            sql.SQL("json_build_object({})").format(
                sql.SQL(", ").join(
                    sql.SQL("{}::text, {}").format(sql.Literal(name), sql.Identifier(name)) for name in self._source.key
                )
            )
            if show_keys
            else sql.SQL("null")
        )
        return sql.SQL(
            "select ({number} % {buckets})::int as bucket, key_digest, row_digest, key_text from ("
            "select md5({key}) as key_digest, md5({row}) as row_digest, key_text from ("
            "select {texts}, {shown}::text as key_text from {target}) t offset 0) d"
        ).format(
            number=_number(sql.SQL("key_digest"), 8),
            buckets=sql.Literal(buckets),
            key=_framed(keys),
            row=_framed(range(len(fields))),
            texts=texts,
            shown=shown,
            target=self._target.identifier,
        )


def _framed(columns: Collection[int]) -> sql.Composed:
    return sql.SQL(" || ").join(
        sql.SQL("coalesce(char_length({0})::text || ':' || {0}, '~')").format(sql.Identifier(f"t{number}"))
        for number in columns
    )


def _number(digest: sql.SQL, digits: int) -> sql.Composed:
    bits = sql.SQL(f"bit({digits * 4})")
    return sql.SQL("('x' || substr({}, 1, {}))::{}::bigint").format(digest, sql.Literal(digits), bits)


def _text(column: sql.Identifier, kind: DataType) -> sql.Composed:
    name = target_type(kind) or ""
    template = {
        "boolean": "case when {0} then 't' when not {0} then 'f' end",
        "real": _FLOAT,
        "double precision": _FLOAT,
        "text": "{0}",
        "bytea": "encode({0}, 'hex')",
        "date": "({0} - date '1970-01-01')::text",
        "timestamp with time zone": "(extract(epoch from {0}) * 1000000)::bigint::text",
        "timestamp without time zone": "rtrim(rtrim(to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US'), '0'), '.')",
    }.get(name, "{0}::text")
    return sql.SQL(template).format(column)


_FLOAT = (
    "case when {0} = 'NaN' then 'NaN' else ('x' || encode(float8send({0}::float8), 'hex'))::bit(64)::bigint::text end"
)
