"""Rows that could not be stored: ``deltarelay.dead_letter``, one letter for each key of a target.

A letter is written in the transaction that applies the others of its window, and goes away as soon as a change of the same
key is applied. The target keeps what it held under that key before. A replay takes the row from the source as it is at the
target's position, so it can be repeated, and cannot bring an older one back.

A row is to blame for what it holds: a value that does not fit, a constraint, a trigger's ``raise exception``. It is not to
blame for a foreign key, whose other row may come with the next window, nor for anything that is wrong with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.changes.columns import DELETE, INSERT, TRANSIENT, UPDATE
from cdf.errors import RowRejected
from cdf.sink import DeadLetter
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.errors import refuse_swallowed
from connectors.postgres.verify.canonical_sql import key_digest
from connectors.postgres.write.staging import (
    ATTEMPT,
    CODES,
    OPERATION,
    REJECT,
    REJECT_DIGEST,
    REJECT_KEY,
    REJECT_ROW,
    SCHEMA,
    TIMESTAMP,
    UNEXPECTED,
    VERSION,
)
from connectors.postgres.write.statements import Name, Text, equal, filled, staged_value

if TYPE_CHECKING:
    from connectors.postgres.options import Deletes
    from connectors.postgres.target.ddl import TargetName
    from connectors.postgres.write.statements import Layout

__all__ = [
    "CREATE",
    "Rejected",
    "Held",
    "Letters",
    "CLASHES",
    "FOREIGN_KEY",
    "missing",
    "readable",
    "rejectable",
    "clash",
    "Pages",
    "divide",
    "read_letters",
    "digests_of",
    "drop_letters",
    "forget_all",
]

CREATE = """\
create table if not exists deltarelay.dead_letter (
    id           bigint generated always as identity primary key,
    target       text not null,
    pipeline     text not null,
    source       text not null,
    version      bigint,
    committed_at timestamptz,
    change       text not null,
    reason       text not null,
    sqlstate     text,
    column_name  text,
    constraint_name text,
    key_digest   text not null,
    key          text not null,
    row          text,
    rejected_at  timestamptz not null default clock_timestamp(),
    unique (target, key_digest)
)"""

REASONS = {
    "22003": "a number is out of range",
    "22001": "a text is too long",
    "23502": "a value is missing where there must be one",
    "23505": "another row has the value of a unique index",
    "23514": "a check constraint is not met",
    "23P01": "an exclusion constraint is not met",
    "54000": "a value is larger than an index entry may be",
    "P0001": "a trigger refuses the row",
}
CLASHES = (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation)
"""Two rows stand in each other's way: the one may go, and then the other fits."""
FOREIGN_KEY = (psycopg.errors.ForeignKeyViolation, psycopg.errors.RestrictViolation)
_CLASHING = {one.sqlstate for one in CLASHES}

Connection = psycopg.Connection[Any]


def missing(connection: Connection) -> tuple[str, ...]:
    return () if _there(connection) is not None else (CREATE,)


def readable(connection: Connection) -> bool:
    """Also false where there never was a letter."""
    return bool(_there(connection))


def _there(connection: Connection) -> bool | None:
    """Whether the letters may be read; None where there never was one."""
    found = connection.execute(
        "select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') "
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'dead_letter'"
    ).fetchone()
    return None if found is None else bool(found[0])


def rejectable(error: psycopg.Error) -> bool:
    """Whether a row is to blame."""
    state = error.sqlstate or ""
    return (state[:2] in {"22", "23"} and not isinstance(error, FOREIGN_KEY)) or state in {"54000", "P0001"}


def clash(target: TargetName, error: psycopg.Error, reached: str) -> RowRejected:
    """Where the old rows cannot leave first: ``reached`` would lose rows of its own."""
    return RowRejected(
        f"two rows of {target} clash (constraint {error.diag.constraint_name!r}), "
        f"and to take the old ones away first would reach into {reached}",
        hint="where values only change places: make the constraint DEFERRABLE, or drop that ON DELETE action",
        condition=error.sqlstate,
    )


@dataclass(frozen=True, slots=True)
class Rejected:
    """A staged row, by its place, and why the target refused it."""

    place: str
    sqlstate: str
    column: str | None
    constraint: str | None

    @classmethod
    def of(cls, place: str, error: psycopg.Error) -> Rejected:
        return cls(place, error.sqlstate or "XX000", error.diag.column_name, error.diag.constraint_name)

    @property
    def clashes(self) -> bool:
        return self.sqlstate in _CLASHING


@dataclass(frozen=True, slots=True)
class Pages:
    """The rows of a table by its pages. Those of one page are listed at a time: a list of all would fill the memory."""

    pages: range
    rows_of: Callable[[str, str], Sequence[str]]
    """The places of the rows between two places."""


def divide(
    places: Pages | Sequence[str],
    put: Callable[[str, str], None],
    *,
    most: int,
    unless: tuple[type[psycopg.Error], ...] = (),
) -> list[Rejected]:
    """``put`` all rows between two places, halving wherever that fails, until the rows to blame are alone. Ends early once
    more than ``most`` have failed. ``unless``: errors that are not looked into."""
    failed: list[Rejected] = []
    stack = [places]
    while stack and len(failed) <= most:
        part = stack.pop()
        if not (part.pages if isinstance(part, Pages) else part):
            continue
        low, high = _bounds(part)
        try:
            put(low, high)
        except psycopg.Error as error:
            if not rejectable(error) or isinstance(error, unless):
                raise
            if isinstance(part, Pages) and len(part.pages) == 1:
                part = part.rows_of(low, high)
                if not part:
                    raise  # no row of these is to blame
            if not isinstance(part, Pages) and len(part) == 1:
                failed.append(Rejected.of(part[0], error))
            else:
                stack += reversed(_halves(part))
    return failed


def _bounds(part: Pages | Sequence[str]) -> tuple[str, str]:
    if isinstance(part, Pages):
        return f"({part.pages[0]},0)", f"({part.pages[-1]},65535)"
    return part[0], part[-1]


def _halves(part: Pages | Sequence[str]) -> tuple[Pages | Sequence[str], Pages | Sequence[str]]:
    if isinstance(part, Pages):
        middle = len(part.pages) // 2
        return replace(part, pages=part.pages[:middle]), replace(part, pages=part.pages[middle:])
    return part[: len(part) // 2], part[len(part) // 2 :]


@dataclass(frozen=True, slots=True)
class Held:
    """A staged row whose key has a letter, by its place."""

    place: str
    digest: str
    operation: int
    contradicts: bool
    """Its change does not fit to what the target holds, which is the letter's doing."""


class Letters:
    """Writes the letters of one target, out of its staging table."""

    def __init__(
        self,
        target: str,
        pipeline: str,
        source: str,
        staging: str,
        layout: Layout,
        *,
        marked: bool,
        keep_rows: bool,
    ) -> None:
        """``marked``: staging has the columns of rows that are set aside."""
        self._names = {"target": target, "pipeline": pipeline, "source": source}
        self._stage = sql.Identifier(SCHEMA, staging)
        self._layout, self._keep_rows = layout, keep_rows
        numbered = {name: sql.Identifier("s", f"c{number}") for number, name in enumerate(layout.schema.fieldNames())}
        self._numbered = numbered
        self._digest = key_digest(layout.schema, layout.key, numbered)
        # Of a marked row the key does not travel, only its digest
        self._any_digest = self._digest
        if marked:
            self._any_digest = sql.SQL("coalesce(s.{}, {})").format(sql.Identifier(REJECT_DIGEST), self._digest)
        self._key = self._json(layout.key)

    def _json(self, names: Sequence[str]) -> sql.Composed:
        """The columns as one object of texts; json_build_object would take no more than 50."""
        return sql.SQL("json_object(array[{}]::text[], array[{}]::text[])::text").format(
            sql.SQL(", ").join(map(Text, names)),
            sql.SQL(", ").join(sql.SQL("{}::text").format(self._numbered[name]) for name in names),
        )

    def set_aside_marked(
        self, connection: Connection, attempts: Collection[str], unfit: Mapping[str, sql.Composable]
    ) -> dict[int, int]:
        """Rows that were marked on their way, or whose value does not fit the target's column, leave staging. A delete
        among them has a key that the target cannot hold: it takes its letter along. → operation: rows"""
        marks = [sql.SQL("s.{}").format(sql.Identifier(REJECT))]
        marks += [
            sql.SQL("case when ({}) is false then {} end").format(fits, Text(f"a value does not fit:{column}"))
            for column, fits in unfit.items()
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

    def set_aside(self, connection: Connection, rejected: Sequence[Rejected]) -> None:
        """These rows leave staging as well."""
        statement = sql.SQL(
            "with r as (select * from unnest(%(places)s::tid[], %(reasons)s::text[], %(columns)s::text[], "
            "%(states)s::text[], %(constraints)s::text[]) as r(place, reason, column_name, sqlstate, constraint_name)), "
            "bad as (delete from {} s using r where s.ctid = r.place returning s.*, r.*) {} from bad s {}"
        ).format(
            self._stage,
            self._insert(sql.SQL("s.reason"), sql.SQL("s.column_name"), rest=sql.SQL("s.sqlstate, s.constraint_name")),
            _REPLACE,
        )
        connection.execute(
            statement,
            {
                **self._names,
                "places": [one.place for one in rejected],
                "reasons": [REASONS.get(one.sqlstate, "the target refuses the row") for one in rejected],
                "columns": [one.column for one in rejected],
                "states": [one.sqlstate for one in rejected],
                "constraints": [one.constraint for one in rejected],
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

    def there(self, connection: Connection) -> bool:
        return count_letters(connection, self._names["target"]) > 0

    def held(self, connection: Connection, attempts: Collection[str], target: TargetName) -> list[Held]:
        """The staged rows whose keys have letters, before anything is applied: no more of them than there are letters."""
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
        return [Held(*row) for row in rows]

    def put_again(self, connection: Connection, attempts: Collection[str]) -> int:
        """How many staged keys are put first by the window although their letter is a row that the source has put and not
        removed since."""
        statement = sql.SQL(
            "select count(*) from {} s join deltarelay.dead_letter d on d.key_digest = {} "
            "where d.target = %(target)s and d.change <> %(delete)s and s.{} = any(%(attempts)s) and s.{} = any(%(puts)s)"
        ).format(self._stage, self._any_digest, sql.Identifier(ATTEMPT), sql.Identifier(OPERATION))
        kinds = {"delete": DELETE, "puts": [CODES[INSERT], CODES[TRANSIENT]]}
        ((rows,),) = connection.execute(statement, {**self._names, **kinds, "attempts": list(attempts)}).fetchall()
        return int(rows)

    def settle(self, connection: Connection, digests: Collection[str]) -> None:
        """Whatever has happened to a key counts for more than its letter."""
        connection.execute(
            "delete from deltarelay.dead_letter where target = %(target)s and key_digest = any(%(digests)s)",
            {**self._names, "digests": list(digests)},
        )

    def forget_gone(
        self,
        connection: Connection,
        target: TargetName,
        attempts: Collection[str],
        digests: Collection[str],
        deletes: Deletes,
    ) -> tuple[int, int]:
        """The letters of keys that are not staged: the source has no row under them any more, so neither has the target.
        → rows deleted, letters that stay because the target refuses that"""
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
            self.settle(connection, gone)
            return 0, 0
        columns = {name: filled(self._layout.casts[name].back, Name("t", name)) for name in self._layout.key}
        digest = key_digest(self._layout.schema, self._layout.key, columns)
        between = sql.SQL("{0} = any(%(gone)s) and {0} between %(low)s and %(high)s").format(digest)
        statement = (
            sql.SQL("delete from {} t where {}").format(Name(target.schema, target.table), between)
            if deletes == "hard"
            else sql.SQL("update {} t set {} = now() where {} and t.{} is null").format(
                Name(target.schema, target.table), Name(DELETED_AT), between, Name(DELETED_AT)
            )
        )
        alive = sql.SQL(" and t.{} is null").format(Name(DELETED_AT)) if deletes == "soft" else sql.SQL("")
        into = Name(target.schema, target.table)
        still = sql.SQL("select count(*) from {} t where {}{}").format(into, between, alive)
        deleted = 0

        def delete(low: str, high: str) -> None:
            nonlocal deleted
            with connection.transaction():
                part = {"gone": gone, "low": low, "high": high}
                rows = connection.execute(statement, part).rowcount
                ((kept,),) = connection.execute(still, part).fetchall()
                refuse_swallowed(target, "delete", wanted=kept, touched=0)
            deleted += rows

        refused = {one.place for one in divide(gone, delete, most=len(gone))}
        self.settle(connection, [one for one in gone if one not in refused])
        return deleted, len(refused)

    def check_limit(self, connection: Connection, limit: int) -> None:
        held = count_letters(connection, self._names["target"])
        if held > limit:
            raise RowRejected(
                f"{held} rows of {self._names['target']} would be dead letters, more than the limit of {limit}",
                hint="nothing of this window was applied: mend what refuses them (`deltarelay deadletter list` shows those "
                "set aside earlier), or raise reject_limit",
                limit=limit,
            )


_REPLACE = sql.SQL(
    "on conflict (target, key_digest) do update set version = excluded.version, committed_at = excluded.committed_at, "
    "change = excluded.change, reason = excluded.reason, column_name = excluded.column_name, sqlstate = excluded.sqlstate, "
    "constraint_name = excluded.constraint_name, row = excluded.row, rejected_at = excluded.rejected_at"
)


def count_letters(connection: Connection, target: str) -> int:
    row = connection.execute("select count(*) from deltarelay.dead_letter where target = %s", [target]).fetchone()
    assert row is not None
    return int(row[0])


def digests_of(connection: Connection, target: str) -> frozenset[str]:
    """The keys that are set aside, by their digests; none where there never was a letter."""
    if not _there(connection):
        return frozenset()
    rows = connection.execute("select key_digest from deltarelay.dead_letter where target = %s", [target])
    return frozenset(row[0] for row in rows)


def read_letters(connection: Connection, target: str, *, most: int, ids: Collection[int] | None) -> list[DeadLetter]:
    if missing(connection):
        return []
    rows = connection.execute(
        """
        select id, version, committed_at, change, reason, column_name, constraint_name, sqlstate, key_digest, key, row,
               rejected_at
          from deltarelay.dead_letter
         where target = %s and (%s::bigint[] is null or id = any(%s))
         order by id limit %s
        """,
        [target, None if ids is None else list(ids), None if ids is None else list(ids), most],
    )
    return [DeadLetter(*row) for row in rows]


def drop_letters(connection: Connection, target: str, ids: Collection[int] | None) -> int:
    if missing(connection):
        return 0
    return connection.execute(
        "delete from deltarelay.dead_letter where target = %s and (%s::bigint[] is null or id = any(%s))",
        [target, None if ids is None else list(ids), None if ids is None else list(ids)],
    ).rowcount


def forget_all(connection: Connection, target: str) -> None:
    """Where the target is going to hold each row of the source. A role that never had a letter needs no right to them."""
    if digests_of(connection, target):
        drop_letters(connection, target, None)
