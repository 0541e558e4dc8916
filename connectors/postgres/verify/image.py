"""The target in ``cdf.changes.canonical``'s form, rendered by PostgreSQL itself, in one snapshot of the database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import CdfError, TargetNotReady
from cdf.sink import BucketDigest, Position, RowDigest, Source
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.conversions import PLAIN, Cast, casts_for
from connectors.postgres.errors import raise_alone, translate
from connectors.postgres.position import read_position
from connectors.postgres.state.dead_letters import digests_of
from connectors.postgres.target.ddl import column_types
from connectors.postgres.types import NativeArray, target_type
from connectors.postgres.verify.canonical_sql import canonical_text, framed
from connectors.postgres.write.statements import filled

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from connectors.postgres.options import Deletes
    from connectors.postgres.target.ddl import TargetName

__all__ = ["PostgresImage"]

Connection = psycopg.Connection[Any]


class PostgresImage:
    """Lives inside one REPEATABLE READ transaction: position and rows are of the same moment."""

    def __init__(
        self, connection: Connection, target: TargetName, source: Source, columns: tuple[str, ...], deletes: Deletes
    ) -> None:
        """``source`` has the target's names; ``columns`` are those of the source that it came from."""
        self._connection = connection
        # Where policies hold for this role they would hide rows from it: better an error than a false answer
        connection.execute("set local row_security = off")
        self._target = target
        self._source = source
        self._deletes = deletes
        self.columns = columns
        self._position = read_position(connection, str(target))
        self.set_aside = digests_of(connection, str(target))
        # A target that lacks a column says so when it is asked for rows
        found = column_types(connection, target)
        # One that is taken over has no such column yet, and so no row that is marked
        self._marks = deletes == "soft" and DELETED_AT in found
        self._found = found

    @cached_property
    def _casts(self) -> dict[str, Cast]:
        """Not before rows are asked for: a position can be told whatever the types are."""
        fields = self._source.schema.fields
        there = all(field.name in self._found and target_type(field.dataType) for field in fields)
        return casts_for(str(self._target), self._source.schema, self._found) if there else {}

    @property
    def by_element(self) -> tuple[str, ...]:
        fields = zip(self.columns, self._source.schema.fields, strict=True)
        return tuple(name for name, field in fields if isinstance(field.dataType, NativeArray))

    @property
    def keeps_deleted(self) -> bool:
        return self._deletes == "ignore"

    @property
    def position(self) -> Position:
        return self._position

    def row_count(self) -> int:
        ((count,),) = self._execute(
            sql.SQL("select count(*) from {} t {}").format(self._target.identifier, self._alive)
        )
        return int(count)

    def digest(self, buckets: int) -> Mapping[int, BucketDigest]:
        query = sql.SQL("select bucket, count(*), sum({checksum}) from ({rows}) r group by bucket").format(
            checksum=_number(sql.SQL("row_digest"), 15), rows=self._digests(buckets, show_keys=False)
        )
        return {bucket: BucketDigest(int(rows), int(total)) for bucket, rows, total in self._execute(query)}

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        query = sql.SQL(
            "select key_digest, row_digest, key_text from ({rows}) r where bucket = any({chosen}) order by bucket"
        ).format(rows=self._digests(buckets, show_keys=show_keys), chosen=sql.Literal(list(chosen)))
        with self._failures(), self._connection.cursor(name="deltarelay_verify") as cursor:
            cursor.itersize = 10_000
            cursor.execute(query)
            for key, row, shown in cursor:
                yield RowDigest(key, row, shown)

    @property
    def _alive(self) -> sql.Composable:
        if not self._marks:
            return sql.SQL("")
        return sql.SQL("where t.{} is null").format(sql.Identifier(DELETED_AT))

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
            sql.SQL("{} as {}").format(self._text(field), sql.Identifier(f"t{number}"))
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
            "select {texts}, {shown}::text as key_text from {target} t {alive}) t offset 0) d {others}"
        ).format(
            number=_number(sql.SQL("key_digest"), 8),
            buckets=sql.Literal(buckets),
            key=framed(sql.Identifier(f"t{number}") for number in keys),
            row=framed(sql.Identifier(f"t{number}") for number in range(len(fields))),
            texts=texts,
            shown=shown,
            target=self._target.identifier,
            alive=self._alive,
            others=sql.SQL("where key_digest <> all ({})").format(sql.Literal(sorted(self.set_aside)))
            if self.set_aside
            else sql.SQL(""),
        )

    def _text(self, field: StructField) -> sql.Composable:
        cast, column = self._casts.get(field.name, PLAIN), sql.Identifier(field.name)
        value = sql.SQL("({})").format(filled(cast.back, column, parameters=False))
        text = canonical_text(value, field.dataType)
        if cast.returns is None:
            return text
        # In no text of such a type is there a question mark
        return sql.SQL("case when ({}) is false then '?' || {}::text else {} end").format(
            filled(cast.returns, column, parameters=False), column, text
        )


def _number(digest: sql.SQL, digits: int) -> sql.Composed:
    bits = sql.SQL(f"bit({digits * 4})")
    return sql.SQL("('x' || substr({}, 1, {}))::{}::bigint").format(digest, sql.Literal(digits), bits)
