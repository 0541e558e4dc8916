"""The target in the form of ``cdf.changes.canonical``, rendered by PostgreSQL, in one snapshot of the database."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.errors import CdfError, TargetNotReady
from cdf.sink import BucketDigest, Position, RowDigest, RowHashes, Source
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.conversions import PLAIN, Cast, find_casts
from connectors.postgres.errors import translate
from connectors.postgres.sql_parts import TargetName, fill_template
from connectors.postgres.state.dead_letters import read_key_digests
from connectors.postgres.state.position import read_position
from connectors.postgres.target.reflection import read_column_types
from connectors.postgres.types import NativeArray, target_type
from connectors.postgres.verify.canonical_sql import canonical_text, frame
from connectors.postgres.verify.row_hash import RowHash, can_hash
from connectors.postgres.verify.row_hash_sql import row_hash_sql

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from connectors.postgres.options import Deletes

__all__ = ["PostgresImage"]

Connection = psycopg.Connection[Any]


class PostgresImage:
    """Exists inside one REPEATABLE READ transaction, so position and rows are of the same moment."""

    def __init__(
        self, connection: Connection, target: TargetName, source: Source, columns: tuple[str, ...], deletes: Deletes
    ) -> None:
        """``source`` has the target's column names; ``columns`` are the source's names of the same columns."""
        self._connection = connection
        # If policies apply to this role, raise an error instead of missing the rows that they hide
        connection.execute("set local row_security = off")
        self._target = target
        self._source = source
        self._deletes = deletes
        self.columns = columns
        self._position = read_position(connection, str(target))
        self.set_aside = read_key_digests(connection, str(target))
        # A missing column is reported when rows are read
        self._types = read_column_types(connection, target)
        # An adopted target may not have this column yet, and then no row is marked
        self._has_marks = deletes == "soft" and DELETED_AT in self._types

    @cached_property
    def _casts(self) -> dict[str, Cast]:
        """Computed when rows are read: the position can be read whatever the types are."""
        fields = self._source.schema.fields
        are_known = all(field.name in self._types and target_type(field.dataType) for field in fields)
        return find_casts(str(self._target), self._source.schema, self._types) if are_known else {}

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
        rows = self._digests(buckets, show_keys=False, is_parallel=True)
        query = sql.SQL("select bucket, count(*), sum({checksum}) from ({rows}) r group by bucket").format(
            checksum=_number(sql.SQL("row_digest"), 15), rows=rows
        )
        return {bucket: BucketDigest(int(rows), int(total)) for bucket, rows, total in self._execute(query)}

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        with self._failures(), self._connection.cursor(name="deltarelay_verify") as cursor:
            cursor.itersize = 10_000
            cursor.execute(self._select_rows(buckets, chosen, show_keys=show_keys))
            for key, row, shown in cursor:
                yield RowDigest(key, row, shown)

    def _select_rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> sql.Composed:
        # psycopg writes small numbers as int2[], and PostgreSQL hashes the numbers only if both sides have the same type.
        # Without the cast it would compare each row with thousands of them
        return sql.SQL(
            "select key_digest, row_digest, key_text from ({rows}) r where bucket = any({chosen}::int[]) order by bucket"
        ).format(rows=self._digests(buckets, show_keys=show_keys), chosen=sql.Literal(list(chosen)))

    def row_hashes(self) -> RowHashes | None:
        types = tuple(target_type(field.dataType) or "" for field in self._source.schema.fields)
        if not all(map(can_hash, types)) or any(cast is not PLAIN for cast in self._casts.values()):
            return None
        form = RowHash(types, secrets.randbelow(2**63 - 1) + 1)
        return RowHashes(form.of_batch, lambda: self._sum_hashes(form), self._cancel)

    def _cancel(self) -> None:
        with suppress(psycopg.Error):  # the query has its own error if the server is gone
            self._connection.cancel()

    def _sum_hashes(self, form: RowHash) -> BucketDigest:
        columns = [sql.SQL("t.") + sql.Identifier(name) for name in self._source.schema.fieldNames()]
        query = sql.SQL("select count(*), coalesce(sum({}), 0) from {} t {}").format(
            row_hash_sql(form, columns), self._target.identifier, self._alive
        )
        ((rows, total),) = self._execute(query)
        return BucketDigest(int(rows), int(total))

    @property
    def _alive(self) -> sql.Composable:
        if not self._has_marks:
            return sql.SQL("")
        return sql.SQL("where t.{} is null").format(sql.Identifier(DELETED_AT))

    def _execute(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        with self._failures():
            return self._connection.execute(query).fetchall()
        raise AssertionError("not reached: _failures lets nothing pass")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Translate errors here: the caller cannot distinguish the target's errors from the source's."""
        try:
            yield
            return
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            failure: CdfError = TargetNotReady(
                f"{self._target} or one of its columns does not exist",
                hint="restore it, or rebuild the target with `deltarelay run --reload`",
            )
        except psycopg.Error as error:
            failure = translate(error, "reading the target")
        raise_without_context(failure)

    def _digests(self, buckets: int, *, show_keys: bool, is_parallel: bool = False) -> sql.Composed:
        """→ (bucket, key_digest, row_digest, key_text), one row for each row of the target.

        ``offset 0`` makes PostgreSQL compute each digest once, not in each place that uses it. Around the texts it would
        keep parallel workers from computing digests; a cursor has no such workers.
        """
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
            "select {texts}, {shown}::text as key_text from {target} t {alive} {fence}) t offset 0) d {others}"
        ).format(
            number=_number(sql.SQL("key_digest"), 8),
            buckets=sql.Literal(buckets),
            key=frame(sql.Identifier(f"t{number}") for number in keys),
            row=frame(sql.Identifier(f"t{number}") for number in range(len(fields))),
            texts=texts,
            shown=shown,
            target=self._target.identifier,
            alive=self._alive,
            fence=sql.SQL("" if is_parallel else "offset 0"),
            others=sql.SQL("where key_digest <> all ({})").format(sql.Literal(sorted(self.set_aside)))
            if self.set_aside
            else sql.SQL(""),
        )

    def _text(self, field: StructField) -> sql.Composable:
        cast, column = self._casts.get(field.name, PLAIN), sql.Identifier(field.name)
        value = sql.SQL("({})").format(fill_template(cast.back, column, parameters=False))
        text = canonical_text(value, field.dataType)
        if cast.returns is None:
            return text
        # The text of such a type never contains a question mark
        return sql.SQL("case when ({}) is false then '?' || {}::text else {} end").format(
            fill_template(cast.returns, column, parameters=False), column, text
        )


def _number(digest: sql.SQL, digits: int) -> sql.Composed:
    bits = sql.SQL(f"bit({digits * 4})")
    return sql.SQL("('x' || substr({}, 1, {}))::{}::bigint").format(digest, sql.Literal(digits), bits)
