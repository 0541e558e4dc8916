"""The statements that apply a window, composed once per target and schema. Every identifier is quoted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdf.changes.columns import DELETE, INSERT, TRANSIENT, UPDATE
from connectors.postgres.column_mapping import APPLIED_AT, COMMIT_TIMESTAMP_COLUMN, COMMIT_VERSION_COLUMN, DELETED_AT
from connectors.postgres.conversions import Cast
from connectors.postgres.sql_parts import SCHEMA, Name, TargetName, equal, fill_template
from connectors.postgres.staging.columns import ATTEMPT, CODES, OPERATION, TIMESTAMP, UNEXPECTED, VERSION
from connectors.postgres.types import staging_type, target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from connectors.postgres.options import Deletes

__all__ = [
    "ApplyStatements",
    "Layout",
    "ReplaceStatements",
    "apply_statements",
    "count_misfits",
    "faithful_conditions",
    "join_names",
    "replace_statements",
    "staged_value",
]

_STAGED_METADATA = {COMMIT_VERSION_COLUMN: VERSION, COMMIT_TIMESTAMP_COLUMN: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the statements depend on: the source's columns under the target's names, and properties of the target."""

    schema: StructType
    key: tuple[str, ...]
    own: tuple[str, ...]
    casts: Mapping[str, Cast]
    deletes: Deletes
    partitioned: bool
    others: tuple[str, ...] = ()
    """The target's columns that come neither from the source nor from us."""


@dataclass(frozen=True, slots=True)
class ApplyStatements:
    """Each statement except ``truncate`` takes one parameter, ``attempts``: the list of attempt ids that count."""

    recount: sql.Composed
    """→ (operation, rows)"""
    misfits: sql.Composed | None
    """→ for each of ``lossy`` the number of rows that do not fit into the target's column; None if every value fits"""
    lossy: tuple[str, ...]
    forget_unfit: sql.Composed | None
    """Deletes transient keys that do not fit into the target's column: no target can hold them. None as above"""
    meet: sql.Composed
    """Makes transient keys whose rows the target holds unexpected ones; touches as many rows."""
    delete: sql.Composed | None
    """None: deletes are ignored."""
    kept: sql.Composed
    """→ (rows to delete that still exist); executed after ``delete``"""
    update: sql.Composed
    """→ (rows that had to be inserted, all rows)"""
    insert: sql.Composed
    """→ (rows inserted, all rows); an insert onto an existing row overwrites it"""
    come_back: sql.Composed | None
    """→ (rows to insert that exist, marked as deleted); None unless deletes are soft"""
    marked: sql.Composed | None
    """→ (rows to update that exist, marked as deleted); None as above"""
    clear_some: sql.Composed
    clear_put: sql.Composed
    """Inserts and updates only."""
    truncate: sql.Composed


class _Composer:
    """Parts that the statements share. With ``part`` they read only the staged rows between two row addresses (ctid), which
    are two more parameters (``low``, ``high``)."""

    def __init__(self, target: TargetName, staging: str, layout: Layout, *, part: bool = False) -> None:
        self.layout = layout
        self.into, self.stage = Name(target.schema, target.table), Name(SCHEMA, staging)
        self.numbered = {name: Name(f"c{number}") for number, name in enumerate(layout.schema.fieldNames())}
        self.counting: sql.Composable = sql.SQL("s.{} = any(%(attempts)s)").format(Name(ATTEMPT))
        if part:
            self.counting = sql.SQL("{} and s.ctid between %(low)s::tid and %(high)s::tid").format(self.counting)
        self.values = {name: staged_value(layout, name, numbered) for name, numbered in self.numbered.items()}
        self.matches = sql.SQL(" and ").join(equal(Name("t", name), self.values[name]) for name in layout.key)

    def only(self, *kinds: str) -> sql.Composed:
        """Condition for staged rows of these kinds. ``delete`` includes unexpected rows."""
        numbers = [CODES[kind] for kind in kinds] + [UNEXPECTED] * (DELETE in kinds)
        codes = sql.SQL(", ").join(map(sql.Literal, numbers))
        return sql.SQL("{} and s.{} in ({})").format(self.counting, Name(OPERATION), codes)

    def metadata_values(self) -> dict[str, sql.Composable]:
        values: dict[str, sql.Composable] = {}
        for name in self.layout.own:
            if name in _STAGED_METADATA:
                values[name] = sql.SQL("s.{}").format(Name(_STAGED_METADATA[name]))
            else:
                values[name] = sql.SQL("now()") if name == APPLIED_AT else sql.SQL("null::timestamptz")
        return values

    @property
    def order(self) -> sql.Composed:
        # In key order each index page is visited once (a third faster with random keys)
        return sql.SQL(", ").join(sql.SQL("s.{}").format(self.numbered[name]) for name in self.layout.key)

    def upsert(self, kind: str) -> sql.Composed:
        written = {**self.values, **self.metadata_values()}
        others = [name for name in written if name not in self.layout.key]
        # A table with key columns only: assigning a key column to itself keeps the count of rows met
        assigned = [sql.SQL("{0} = excluded.{0}").format(Name(name)) for name in (others or self.layout.key[:1])]
        return sql.SQL(
            "insert into {into} ({columns}) overriding system value "
            "select {values} from {stage} s where {rows} order by {order} on conflict ({key}) do update set {assigned}"
        ).format(
            into=self.into,
            columns=join_names(written),
            values=sql.SQL(", ").join(written.values()),
            stage=self.stage,
            rows=self.only(kind),
            order=self.order,
            key=join_names(self.layout.key),
            assigned=sql.SQL(", ").join(assigned),
        )

    def counted_upsert(self, kind: str) -> sql.Composed:
        if not self.layout.partitioned:
            # xmax is 0 in a row that this statement inserted, and not 0 in one that it updated
            return sql.SQL(
                "with applied as ({} returning (xmax = 0) as fresh) "
                "select count(*) filter (where fresh), count(*) from applied"
            ).format(self.upsert(kind))
        # A partitioned table has no xmax. All parts of a statement see the rows from before the statement
        return sql.SQL(
            "with met as (select count(*) as rows from {} t join {} s on {} where {}), "
            "applied as ({} returning 1), total as (select count(*) as rows from applied) "
            "select total.rows - met.rows, total.rows from met, total"
        ).format(self.into, self.stage, self.matches, self.only(kind), self.upsert(kind))

    @property
    def alive(self) -> sql.Composable:
        return sql.SQL(" and t.{} is null").format(Name(DELETED_AT)) if self.layout.deletes == "soft" else sql.SQL("")

    def kept(self) -> sql.Composed:
        return sql.SQL("select count(*) from {} t join {} s on {} where {}{}").format(
            self.into, self.stage, self.matches, self.only(DELETE), self.alive
        )

    def meet(self) -> sql.Composed:
        return sql.SQL("update {} s set {} = {} from {} t where {} and {}{}").format(
            self.stage,
            Name(OPERATION),
            sql.Literal(UNEXPECTED),
            self.into,
            self.matches,
            self.only(TRANSIENT),
            self.alive,
        )

    def forget_unfit(self, faithful: Mapping[str, sql.Composable]) -> sql.Composed | None:
        unfit = [sql.SQL("({}) is false").format(fits) for name, fits in faithful.items() if name in self.layout.key]
        if not unfit:
            return None
        rows = self.only(TRANSIENT)
        return sql.SQL("delete from {} s where {} and ({})").format(self.stage, rows, sql.SQL(" or ").join(unfit))

    def delete(self) -> sql.Composed | None:
        if self.layout.deletes == "ignore":
            return None
        if self.layout.deletes == "hard":
            return sql.SQL("delete from {} t using {} s where {} and {}").format(
                self.into, self.stage, self.matches, self.only(DELETE)
            )
        assigned = {**self.metadata_values(), DELETED_AT: sql.SQL("now()")}
        return sql.SQL("update {} t set {} from {} s where {} and {} and t.{} is null").format(
            self.into,
            sql.SQL(", ").join(sql.SQL("{} = {}").format(Name(name), value) for name, value in assigned.items()),
            self.stage,
            self.matches,
            self.only(DELETE),
            Name(DELETED_AT),
        )

    def marked(self, kind: str) -> sql.Composed | None:
        if self.layout.deletes != "soft":
            return None
        return sql.SQL("select count(*) from {} t join {} s on {} where {} and t.{} is not null").format(
            self.into, self.stage, self.matches, self.only(kind), Name(DELETED_AT)
        )


def _staged(kind: Any, numbered: sql.Identifier) -> sql.Composed:
    is_jsonb = staging_type(kind) != target_type(kind)
    return sql.SQL("s.{}::jsonb" if is_jsonb else "s.{}").format(numbered)


def staged_value(layout: Layout, name: str, numbered: sql.Identifier) -> sql.Composable:
    """The value for the target's column, from the staged column."""
    cast = layout.casts.get(name)
    return fill_template("{}" if cast is None else cast.value, _staged(layout.schema[name].dataType, numbered))


def faithful_conditions(layout: Layout) -> dict[str, sql.Composable]:
    """For each column into which not every value fits: whether a staged value (``s``) does. Null for null."""
    conditions: dict[str, sql.Composable] = {}
    for number, field in enumerate(layout.schema.fields):
        cast = layout.casts.get(field.name)
        if cast is not None and cast.faithful is not None:
            conditions[field.name] = fill_template(cast.faithful, _staged(field.dataType, Name(f"c{number}")))
    return conditions


def join_names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(Name, names))


def count_misfits(faithful: Iterable[sql.Composable]) -> sql.Composed:
    """The number of rows that do not fit, for each of the conditions."""
    return sql.SQL(", ").join(sql.SQL("count(*) filter (where ({}) is false)").format(fits) for fits in faithful)


def apply_statements(target: TargetName, staging: str, layout: Layout, *, part: bool = False) -> ApplyStatements:
    composer = _Composer(target, staging, layout, part=part)
    faithful = faithful_conditions(layout)
    misfits = None
    if faithful:
        counts = count_misfits(faithful.values())
        misfits = sql.SQL("select {} from {} s where {}").format(counts, composer.stage, composer.counting)
    return ApplyStatements(
        recount=sql.SQL("select s.{0}, count(*) from {1} s where {2} group by s.{0}").format(
            Name(OPERATION), composer.stage, composer.counting
        ),
        misfits=misfits,
        lossy=tuple(faithful),
        forget_unfit=composer.forget_unfit(faithful),
        meet=composer.meet(),
        # Executed first: a deleted row frees its unique values for the rows that follow
        delete=composer.delete(),
        kept=composer.kept(),
        update=composer.counted_upsert(UPDATE),
        insert=composer.counted_upsert(INSERT),
        come_back=composer.marked(INSERT),
        marked=composer.marked(UPDATE),
        clear_some=sql.SQL("delete from {} s where {}").format(composer.stage, composer.counting),
        clear_put=sql.SQL("delete from {} s where {}").format(composer.stage, composer.only(INSERT, UPDATE)),
        truncate=sql.SQL("truncate {}").format(sql.Identifier(SCHEMA, staging)),
    )


# ── replace: delete the old rows of all keys first ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ReplaceStatements:
    """For rows that swap values under a secondary unique index: the old rows of all keys are deleted before the first new
    row is inserted. A temporary table keeps the old rows for the target's columns that are not the source's. Parameters as
    for ApplyStatements."""

    make: sql.Composed
    take: sql.Composed
    met: sql.Composed
    """→ (inserts that met a row, updates that met one)"""
    put_back: sql.Composed
    put_new: sql.Composed
    drop: sql.Composed


def replace_statements(
    target: TargetName, staging: str, layout: Layout, aside: str, *, part: bool = False
) -> ReplaceStatements:
    """``aside``: the name of a table of ours that exists while the statements run."""
    composer = _Composer(target, staging, layout, part=part)
    old = Name(SCHEMA, aside)
    rows = composer.only(INSERT, UPDATE)
    written = {**composer.values, **composer.metadata_values()}
    same_key = sql.SQL(" and ").join(equal(Name("g", name), composer.values[name]) for name in layout.key)
    insert = sql.SQL("insert into {} ({}) overriding system value select {} from {} s ")
    values = sql.SQL(", ").join(written.values())
    alive = sql.SQL("and g.{} is null").format(Name(DELETED_AT)) if layout.deletes == "soft" else sql.SQL("")
    return ReplaceStatements(
        make=sql.SQL("create unlogged table {} as select * from {} with no data").format(
            sql.Identifier(SCHEMA, aside), sql.Identifier(target.schema, target.table)
        ),
        take=sql.SQL(
            "with gone as (delete from {} t using {} s where {} and {} returning t.*) insert into {} select * from gone"
        ).format(composer.into, composer.stage, composer.matches, rows, old),
        met=sql.SQL(
            "select count(*) filter (where s.{op} = {insert} {alive}), "
            "count(*) filter (where s.{op} = {update} {alive}) "
            "from {stage} s join {kept} g on {same} where {rows}"
        ).format(
            op=Name(OPERATION),
            insert=sql.Literal(CODES[INSERT]),
            update=sql.Literal(CODES[UPDATE]),
            alive=alive,
            stage=composer.stage,
            kept=old,
            same=same_key,
            rows=rows,
        ),
        put_back=(
            insert.format(
                composer.into,
                join_names([*written, *layout.others]),
                sql.SQL(", ").join([values, *(sql.SQL("g.{}").format(Name(name)) for name in layout.others)]),
                composer.stage,
            )
            + sql.SQL("join {} g on {} where {} order by {}").format(old, same_key, rows, composer.order)
        ),
        put_new=(
            insert.format(composer.into, join_names(written), values, composer.stage)
            + sql.SQL("where {} and not exists (select from {} g where {}) order by {}").format(
                rows, old, same_key, composer.order
            )
        ),
        drop=sql.SQL("drop table {}").format(sql.Identifier(SCHEMA, aside)),
    )
