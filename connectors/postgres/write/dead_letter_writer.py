"""Moves rows from staging to ``deltarelay.dead_letter``, and removes the dead letters of keys that are applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.changes.columns import DELETE, INSERT, TRANSIENT, UPDATE
from cdf.errors import RowRejected
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.errors import refuse_swallowed
from connectors.postgres.sql_parts import SCHEMA, Name, TargetName, Text, equal, fill_template
from connectors.postgres.sqlstates import DEAD_LETTER_REASONS
from connectors.postgres.staging.columns import (
    ATTEMPT,
    CODES,
    OPERATION,
    REJECT,
    REJECT_DIGEST,
    REJECT_KEY,
    REJECT_ROW,
    TIMESTAMP,
    UNEXPECTED,
    VERSION,
)
from connectors.postgres.state.dead_letters import count_dead_letters
from connectors.postgres.verify.canonical_sql import key_digest
from connectors.postgres.write.bisect import Rejected, bisect
from connectors.postgres.write.statements import staged_value

if TYPE_CHECKING:
    from connectors.postgres.options import Deletes
    from connectors.postgres.write.statements import Layout

__all__ = ["DeadLetterKey", "DeadLetterWriter"]

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class DeadLetterKey:
    """A staged row, by its address (ctid), whose key has a dead letter."""

    address: str
    digest: str
    operation: int
    contradicts: bool
    """The change does not fit the target's row, because the dead letter was not applied."""


class DeadLetterWriter:
    """Writes the dead letters of one target from its staging table. Every method runs inside the applying transaction."""

    def __init__(
        self,
        target: str,
        pipeline: str,
        source: str,
        staging: str,
        layout: Layout,
        *,
        has_marks: bool,
        keep_rows: bool,
    ) -> None:
        """``has_marks``: staging has the columns that mark rows which cannot be stored."""
        self._names = {"target": target, "pipeline": pipeline, "source": source}
        self._stage = sql.Identifier(SCHEMA, staging)
        self._layout, self._keep_rows = layout, keep_rows
        numbered = {name: sql.Identifier("s", f"c{number}") for number, name in enumerate(layout.schema.fieldNames())}
        self._numbered = numbered
        self._digest = key_digest(layout.schema, layout.key, numbered)
        # Of a marked row only the digest of the key is staged
        self._any_digest = self._digest
        if has_marks:
            self._any_digest = sql.SQL("coalesce(s.{}, {})").format(sql.Identifier(REJECT_DIGEST), self._digest)
        self._key = self._json(layout.key)

    def _json(self, names: Sequence[str]) -> sql.Composed:
        """The columns as one object of texts; json_build_object is limited to 50 columns."""
        return sql.SQL("json_object(array[{}]::text[], array[{}]::text[])::text").format(
            sql.SQL(", ").join(map(Text, names)),
            sql.SQL(", ").join(sql.SQL("{}::text").format(self._numbered[name]) for name in names),
        )

    # ── from staging to dead letters ─────────────────────────────────────────────────────────────────────────────

    def move_marked(
        self, connection: Connection, attempts: Collection[str], faithful: Mapping[str, sql.Composable]
    ) -> dict[int, int]:
        """Move the staged rows that were marked, or whose value does not fit the target's column. A delete among them has a
        key that the target cannot hold: it removes the key's dead letter. → operation: rows"""
        marks = [sql.SQL("s.{}").format(sql.Identifier(REJECT))]
        marks += [
            sql.SQL("case when ({}) is false then {} end").format(fits, Text(f"a value does not fit:{column}"))
            for column, fits in faithful.items()
        ]
        mark = sql.SQL("coalesce({})").format(sql.SQL(", ").join(marks))
        statement = sql.SQL(
            "with bad as (delete from {stage} s where s.{attempt} = any(%(attempts)s) and {mark} is not null "
            "returning s.*, {mark} as _mark), kept as ({insert} from bad s where s.{op} not in ({gone}) {replace}), "
            "gone as (delete from deltarelay.dead_letter d using bad s where s.{op} in ({gone}) "
            "and d.target = %(target)s and d.key_digest = {digest}) select {op}, count(*) from bad group by 1"
        ).format(
            stage=self._stage,
            attempt=sql.Identifier(ATTEMPT),
            mark=mark,
            op=sql.Identifier(OPERATION),
            gone=sql.SQL(", ").join(sql.Literal(CODES[kind]) for kind in (DELETE, TRANSIENT)),
            digest=self._any_digest,
            insert=self._insert(
                sql.SQL("split_part(s._mark, ':', 1)"),
                sql.SQL("substr(s._mark, strpos(s._mark, ':') + 1)"),
                rest=sql.SQL("null, null"),
            ),
            replace=_REPLACE,
        )
        return dict(connection.execute(statement, {**self._names, "attempts": list(attempts)}).fetchall())

    def move_rejected(self, connection: Connection, rejected: Sequence[Rejected]) -> None:
        """Move the staged rows that the target refused."""
        statement = sql.SQL(
            "with r as (select * from unnest(%(addresses)s::tid[], %(reasons)s::text[], %(columns)s::text[], "
            "%(states)s::text[], %(constraints)s::text[]) as r(address, reason, column_name, sqlstate, constraint_name)), "
            "bad as (delete from {} s using r where s.ctid = r.address returning s.*, r.*) {} from bad s {}"
        ).format(
            self._stage,
            self._insert(sql.SQL("s.reason"), sql.SQL("s.column_name"), rest=sql.SQL("s.sqlstate, s.constraint_name")),
            _REPLACE,
        )
        connection.execute(
            statement,
            {
                **self._names,
                "addresses": [row.address for row in rejected],
                "reasons": [DEAD_LETTER_REASONS.get(row.sqlstate, "the target refuses the row") for row in rejected],
                "columns": [row.column for row in rejected],
                "states": [row.sqlstate for row in rejected],
                "constraints": [row.constraint for row in rejected],
            },
        )

    def _insert(self, reason: sql.SQL, column: sql.SQL, *, rest: sql.SQL) -> sql.Composed:
        change = sql.SQL(" ").join(
            sql.SQL("when {} then {}").format(sql.Literal(CODES[kind]), sql.Literal(kind)) for kind in (INSERT, UPDATE)
        )
        return sql.SQL(
            "insert into deltarelay.dead_letter as d (target, pipeline, source, version, committed_at, change, reason, "
            "column_name, sqlstate, constraint_name, key_digest, key, row) "
            "select %(target)s, %(pipeline)s, %(source)s, s.{version}, s.{at}, case s.{op} {change} else {delete} end, "
            "{reason}, {column}, {rest}, {digest}, coalesce(s.{key}, {own_key}), {row}"
        ).format(
            version=sql.Identifier(VERSION),
            at=sql.Identifier(TIMESTAMP),
            op=sql.Identifier(OPERATION),
            change=change,
            delete=sql.Literal(DELETE),
            reason=reason,
            column=column,
            rest=rest,
            digest=self._any_digest,
            key=sql.Identifier(REJECT_KEY),
            own_key=self._key,
            row=sql.SQL("coalesce(s.{}, {})").format(
                sql.Identifier(REJECT_ROW), self._json(self._layout.schema.fieldNames())
            )
            if self._keep_rows
            else sql.SQL("null"),
        )

    # ── staged rows whose keys have dead letters ─────────────────────────────────────────────────────────────────

    def has_dead_letters(self, connection: Connection) -> bool:
        return count_dead_letters(connection, self._names["target"]) > 0

    def find_keys(self, connection: Connection, attempts: Collection[str], target: TargetName) -> list[DeadLetterKey]:
        """The staged rows whose keys have dead letters, before anything is applied. At most one for each dead letter."""
        layout = self._layout
        into = Name(target.schema, target.table)
        numbered = {name: Name(f"c{number}") for number, name in enumerate(layout.schema.fieldNames())}
        same = sql.SQL(" and ").join(
            equal(Name("t", name), staged_value(layout, name, numbered[name])) for name in layout.key
        )
        alive = sql.SQL(" and t.{} is null").format(Name(DELETED_AT)) if layout.deletes == "soft" else sql.SQL("")
        lives = sql.SQL("exists (select from {} t where {}{})").format(into, same, alive)
        rows = connection.execute(
            sql.SQL(
                "select s.ctid::text, d.key_digest, s.{op}, case s.{op} when {insert} then {lives} when {update} then not "
                "{lives} when {unexpected} then true when {delete} then {leaves} else false end "
                "from {stage} s join deltarelay.dead_letter d on d.key_digest = {digest} "
                "where d.target = %(target)s and s.{attempt} = any(%(attempts)s)"
            ).format(
                op=sql.Identifier(OPERATION),
                insert=sql.Literal(CODES[INSERT]),
                update=sql.Literal(CODES[UPDATE]),
                delete=sql.Literal(CODES[DELETE]),
                unexpected=sql.Literal(UNEXPECTED),
                lives=lives,
                leaves=sql.SQL("false") if layout.deletes == "ignore" else sql.SQL("not ") + lives,
                stage=self._stage,
                digest=self._digest,
                attempt=sql.Identifier(ATTEMPT),
            ),
            {**self._names, "attempts": list(attempts)},
        )
        return [DeadLetterKey(*row) for row in rows]

    def count_reinserted(self, connection: Connection, attempts: Collection[str]) -> int:
        """Number of staged keys that the window inserts although their dead letter is a row that the source has inserted and
        not deleted since."""
        statement = sql.SQL(
            "select count(*) from {} s join deltarelay.dead_letter d on d.key_digest = {} "
            "where d.target = %(target)s and d.change <> %(delete)s and s.{} = any(%(attempts)s) and s.{} = any(%(puts)s)"
        ).format(self._stage, self._any_digest, sql.Identifier(ATTEMPT), sql.Identifier(OPERATION))
        kinds = {"delete": DELETE, "puts": [CODES[INSERT], CODES[TRANSIENT]]}
        ((rows,),) = connection.execute(statement, {**self._names, **kinds, "attempts": list(attempts)}).fetchall()
        return int(rows)

    # ── removal ──────────────────────────────────────────────────────────────────────────────────────────────────

    def remove(self, connection: Connection, digests: Collection[str]) -> None:
        """Remove the dead letters of keys for which a later change was applied."""
        connection.execute(
            "delete from deltarelay.dead_letter where target = %(target)s and key_digest = any(%(digests)s)",
            {**self._names, "digests": list(digests)},
        )

    def delete_missing_keys(
        self,
        connection: Connection,
        target: TargetName,
        attempts: Collection[str],
        digests: Collection[str],
        deletes: Deletes,
    ) -> tuple[int, int]:
        """For dead letters whose keys are not staged: the source has no row under them any more, so the target's rows and
        the dead letters are deleted. → rows deleted, dead letters that remain because the target refuses the delete"""
        rows = connection.execute(
            sql.SQL(
                "select d.key_digest from deltarelay.dead_letter d where d.target = %(target)s "
                "and d.key_digest = any(%(digests)s) and d.key_digest not in "
                "(select {} from {} s where s.{} = any(%(attempts)s)) order by 1"
            ).format(self._any_digest, self._stage, sql.Identifier(ATTEMPT)),
            {**self._names, "attempts": list(attempts), "digests": list(digests)},
        ).fetchall()
        gone = [digest for (digest,) in rows]
        if not gone or deletes == "ignore":
            self.remove(connection, gone)
            return 0, 0
        columns = {name: fill_template(self._layout.casts[name].back, Name("t", name)) for name in self._layout.key}
        digest = key_digest(self._layout.schema, self._layout.key, columns)
        into = Name(target.schema, target.table)
        between = sql.SQL("{0} = any(%(gone)s) and {0} between %(low)s and %(high)s").format(digest)
        alive = sql.SQL(" and t.{} is null").format(Name(DELETED_AT)) if deletes == "soft" else sql.SQL("")
        statement = (
            sql.SQL("delete from {} t where {}").format(into, between)
            if deletes == "hard"
            else sql.SQL("update {} t set {} = now() where {}{}").format(into, Name(DELETED_AT), between, alive)
        )
        remaining = sql.SQL("select count(*) from {} t where {}{}").format(into, between, alive)
        deleted = 0

        def delete(low: str, high: str) -> None:
            nonlocal deleted
            with connection.transaction():
                part = {"gone": gone, "low": low, "high": high}
                rows = connection.execute(statement, part).rowcount
                ((kept,),) = connection.execute(remaining, part).fetchall()
                refuse_swallowed(target, "delete", wanted=kept, touched=0)
            deleted += rows

        refused = {rejected.address for rejected in bisect(gone, delete, limit=len(gone))}
        self.remove(connection, [digest for digest in gone if digest not in refused])
        return deleted, len(refused)

    def check_limit(self, connection: Connection, limit: int) -> None:
        count = count_dead_letters(connection, self._names["target"])
        if count > limit:
            raise RowRejected(
                f"{count} rows of {self._names['target']} would be dead letters, more than the limit of {limit}",
                hint="nothing of this window was applied: correct the cause (`deltarelay deadletter list` shows the earlier "
                "dead letters), or raise reject_limit",
                limit=limit,
            )


_REPLACE = sql.SQL(
    "on conflict (target, key_digest) do update set version = excluded.version, committed_at = excluded.committed_at, "
    "change = excluded.change, reason = excluded.reason, column_name = excluded.column_name, sqlstate = excluded.sqlstate, "
    "constraint_name = excluded.constraint_name, row = excluded.row, rejected_at = excluded.rejected_at"
)
