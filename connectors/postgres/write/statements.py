"""The statements that apply a window, composed once per target and schema. Every identifier is quoted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdf.changes.columns import DELETE, INSERT, TRANSIENT, UPDATE
from connectors.postgres.column_mapping import APPLIED_AT, COMMIT_TIMESTAMP_COLUMN, COMMIT_VERSION_COLUMN, DELETED_AT
from connectors.postgres.conversions import Cast
from connectors.postgres.types import staging_type, target_type
from connectors.postgres.write.staging import ATTEMPT, CODES, OPERATION, SCHEMA, TIMESTAMP, UNEXPECTED, VERSION

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from connectors.postgres.options import Deletes
    from connectors.postgres.target.ddl import TargetName

__all__ = [
    "Layout",
    "Name",
    "Text",
    "filled",
    "equal",
    "ApplyStatements",
    "Replacing",
    "apply_statements",
    "replacing",
    "misfits_of_table",
    "insert_all",
    "staged_value",
    "faithful_of",
]

_STAGED_OWN = {COMMIT_VERSION_COLUMN: VERSION, COMMIT_TIMESTAMP_COLUMN: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the statements depend on: the source's columns under the target's names, and what was found there."""

    schema: StructType
    key: tuple[str, ...]
    own: tuple[str, ...]
    casts: Mapping[str, Cast]
    deletes: Deletes
    partitioned: bool
    others: tuple[str, ...] = ()
    """The target's further columns that hold values of their own."""


@dataclass(frozen=True, slots=True)
class ApplyStatements:
    """Each but the last takes one parameter, ``attempts``: the list of attempt ids that count."""

    recount: sql.Composed
    """→ (operation, rows)"""
    misfits: sql.Composed | None
    """→ for each of ``lossy`` how many rows do not fit into the target's column; None where every value fits"""
    lossy: tuple[str, ...]
    forget_unfit: sql.Composed | None
    """Transient keys that do not fit into the target's column leave staging: no target holds them. None as above"""
    meet: sql.Composed
    """Transient keys whose rows the target holds become unexpected ones; touches as many rows."""
    delete: sql.Composed | None
    """None: deletes are ignored."""
    kept: sql.Composed
    """→ (rows to delete that are still there); asked after ``delete``"""
    update: sql.Composed
    """→ (rows that had to be inserted, all rows)"""
    insert: sql.Composed
    """→ (rows inserted, all rows); an insert onto an existing row overwrites it"""
    come_back: sql.Composed | None
    """→ (rows to insert that are there, marked as deleted); None where no row is ever marked"""
    marked: sql.Composed | None
    """→ (rows to update that are there, marked as deleted); None as above"""
    clear_some: sql.Composed
    clear_put: sql.Composed
    """Inserts and updates only."""
    truncate: sql.Composed


class Name(sql.Identifier):
    """An identifier in a statement with parameters: psycopg looks for its placeholders inside of names too."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


class _Text(sql.SQL):
    """The same for text that is not ours, such as the name of a type."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


class Text(sql.Literal):
    """The same for a text."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


def equal(column: sql.Composable, value: sql.Composable) -> sql.Composed:
    """By the server's own operator. pg_catalog has no ``=`` for two varchars and compares them as text; an operator for
    varchars in the role's search_path would be preferred."""
    return sql.SQL("{} operator(pg_catalog.=) {}").format(column, value)


class _Statements:
    """What the statements share. ``part``: they look at those staged rows alone that lie between two places, which are two
    more parameters (``low``, ``high``)."""

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
        """``delete``: of unexpected rows too."""
        found = [CODES[kind] for kind in kinds] + [UNEXPECTED] * (DELETE in kinds)
        codes = sql.SQL(", ").join(map(sql.Literal, found))
        return sql.SQL("{} and s.{} in ({})").format(self.counting, Name(OPERATION), codes)

    def own_values(self) -> dict[str, sql.Composable]:
        found: dict[str, sql.Composable] = {}
        for name in self.layout.own:
            if name in _STAGED_OWN:
                found[name] = sql.SQL("s.{}").format(Name(_STAGED_OWN[name]))
            else:
                found[name] = sql.SQL("now()") if name == APPLIED_AT else sql.SQL("null::timestamptz")
        return found

    @property
    def order(self) -> sql.Composed:
        # The index pages are touched one after the other (a third faster on random keys)
        return sql.SQL(", ").join(sql.SQL("s.{}").format(self.numbered[name]) for name in self.layout.key)

    def upsert(self, kind: str) -> sql.Composed:
        written = {**self.values, **self.own_values()}
        others = [name for name in written if name not in self.layout.key]
        # A table of nothing but its key: writing the key onto itself keeps the count of rows met
        assigned = [sql.SQL("{0} = excluded.{0}").format(Name(name)) for name in (others or self.layout.key[:1])]
        return sql.SQL(
            "insert into {into} ({columns}) overriding system value "
            "select {values} from {stage} s where {rows} order by {order} on conflict ({key}) do update set {assigned}"
        ).format(
            into=self.into,
            columns=_listed(written),
            values=sql.SQL(", ").join(written.values()),
            stage=self.stage,
            rows=self.only(kind),
            order=self.order,
            key=_listed(self.layout.key),
            assigned=sql.SQL(", ").join(assigned),
        )

    def counted_upsert(self, kind: str) -> sql.Composed:
        if not self.layout.partitioned:
            # xmax is 0 for a row that this statement inserted, and not for one it updated
            return sql.SQL(
                "with applied as ({} returning (xmax = 0) as fresh) "
                "select count(*) filter (where fresh), count(*) from applied"
            ).format(self.upsert(kind))
        # A partitioned table has no xmax. All parts of a statement see the rows from before it.
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
        own = {**self.own_values(), DELETED_AT: sql.SQL("now()")}
        return sql.SQL("update {} t set {} from {} s where {} and {} and t.{} is null").format(
            self.into,
            sql.SQL(", ").join(sql.SQL("{} = {}").format(Name(name), value) for name, value in own.items()),
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
    jsonb = staging_type(kind) != target_type(kind)
    return sql.SQL("s.{}::jsonb" if jsonb else "s.{}").format(numbered)


def filled(template: str, column: sql.Composable, *, parameters: bool = True) -> sql.Composable:
    """``{}`` replaced; other braces stay, which ``sql.SQL.format`` would stumble over."""
    text = _Text if parameters else sql.SQL
    parts = template.split("{}")
    pieces: list[sql.Composable] = [text(parts[0])]
    for part in parts[1:]:
        pieces += [column, text(part)]
    return sql.Composed(pieces)


def staged_value(layout: Layout, name: str, numbered: sql.Identifier) -> sql.Composable:
    """What is written into the target's column, of the staged one."""
    cast = layout.casts.get(name)
    return filled("{}" if cast is None else cast.value, _staged(layout.schema[name].dataType, numbered))


def faithful_of(layout: Layout) -> dict[str, sql.Composable]:
    """For the columns into which not every value fits: whether a staged one (``s``) does. Null for null."""
    found: dict[str, sql.Composable] = {}
    for number, field in enumerate(layout.schema.fields):
        cast = layout.casts.get(field.name)
        if cast is not None and cast.faithful is not None:
            found[field.name] = filled(cast.faithful, _staged(field.dataType, Name(f"c{number}")))
    return found


def _listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(Name, names))


def _unfit(faithful: Iterable[sql.Composable]) -> sql.Composed:
    """How many rows do not fit, for each of the conditions."""
    return sql.SQL(", ").join(sql.SQL("count(*) filter (where ({}) is false)").format(fits) for fits in faithful)


def apply_statements(target: TargetName, staging: str, layout: Layout, *, part: bool = False) -> ApplyStatements:
    made = _Statements(target, staging, layout, part=part)
    faithful = faithful_of(layout)
    misfits = None
    if faithful:
        misfits = sql.SQL("select {} from {} s where {}").format(_unfit(faithful.values()), made.stage, made.counting)
    return ApplyStatements(
        recount=sql.SQL("select s.{0}, count(*) from {1} s where {2} group by s.{0}").format(
            Name(OPERATION), made.stage, made.counting
        ),
        misfits=misfits,
        lossy=tuple(faithful),
        forget_unfit=made.forget_unfit(faithful),
        meet=made.meet(),
        # First of all: a key that leaves makes room for whatever comes after it
        delete=made.delete(),
        kept=made.kept(),
        update=made.counted_upsert(UPDATE),
        insert=made.counted_upsert(INSERT),
        come_back=made.marked(INSERT),
        marked=made.marked(UPDATE),
        clear_some=sql.SQL("delete from {} s where {}").format(made.stage, made.counting),
        clear_put=sql.SQL("delete from {} s where {}").format(made.stage, made.only(INSERT, UPDATE)),
        truncate=sql.SQL("truncate {}").format(sql.Identifier(SCHEMA, staging)),
    )


# ── another way to put rows: away with all of them first ─────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Replacing:
    """For values that change places under a second unique index: the old rows of all keys leave before the first new one
    comes. Columns of the target that are not the source's are kept aside meanwhile. Parameters as for ApplyStatements."""

    make: sql.Composed
    take: sql.Composed
    met: sql.Composed
    """→ (inserts that met a row, updates that met one)"""
    put_back: sql.Composed
    put_new: sql.Composed
    drop: sql.Composed


def replacing(target: TargetName, staging: str, layout: Layout, aside: str, *, part: bool = False) -> Replacing:
    """``aside``: the name of a table of ours that exists as long as the statements run."""
    made = _Statements(target, staging, layout, part=part)
    kept = Name(SCHEMA, aside)
    rows = made.only(INSERT, UPDATE)
    written = {**made.values, **made.own_values()}
    same = sql.SQL(" and ").join(equal(Name("g", name), made.values[name]) for name in layout.key)
    insert = sql.SQL("insert into {} ({}) overriding system value select {} from {} s ")
    values = sql.SQL(", ").join(written.values())
    alive = sql.SQL("and g.{} is null").format(Name(DELETED_AT)) if layout.deletes == "soft" else sql.SQL("")
    return Replacing(
        make=sql.SQL("create unlogged table {} as select * from {} with no data").format(
            sql.Identifier(SCHEMA, aside), sql.Identifier(target.schema, target.table)
        ),
        take=sql.SQL(
            "with gone as (delete from {} t using {} s where {} and {} returning t.*) insert into {} select * from gone"
        ).format(made.into, made.stage, made.matches, rows, kept),
        met=sql.SQL(
            "select count(*) filter (where s.{op} = {insert} {alive}), "
            "count(*) filter (where s.{op} = {update} {alive}) "
            "from {stage} s join {kept} g on {same} where {rows}"
        ).format(
            op=Name(OPERATION),
            insert=sql.Literal(CODES[INSERT]),
            update=sql.Literal(CODES[UPDATE]),
            alive=alive,
            stage=made.stage,
            kept=kept,
            same=same,
            rows=rows,
        ),
        put_back=(
            insert.format(
                made.into,
                _listed([*written, *layout.others]),
                sql.SQL(", ").join([values, *(sql.SQL("g.{}").format(Name(name)) for name in layout.others)]),
                made.stage,
            )
            + sql.SQL("join {} g on {} where {} order by {}").format(kept, same, rows, made.order)
        ),
        put_new=(
            insert.format(made.into, _listed(written), values, made.stage)
            + sql.SQL("where {} and not exists (select from {} g where {}) order by {}").format(
                rows, kept, same, made.order
            )
        ),
        drop=sql.SQL("drop table {}").format(sql.Identifier(SCHEMA, aside)),
    )


def misfits_of_table(
    loaded: sql.Identifier, schema: StructType, casts: Mapping[str, Cast]
) -> tuple[sql.Composed | None, list[str]]:
    """→ how many rows of a table with our types do not fit, for each of the columns; None where all do. No parameters."""
    lossy = {name: cast.faithful for name, cast in casts.items() if cast.faithful is not None and name in schema.names}
    if not lossy:
        return None, []
    faithful = [filled(fits, sql.Identifier(name), parameters=False) for name, fits in lossy.items()]
    return sql.SQL("select {} from {}").format(_unfit(faithful), loaded), list(lossy)


def insert_all(
    target: sql.Identifier, loaded: sql.Identifier, schema: StructType, casts: Mapping[str, Cast], own: Sequence[str]
) -> sql.Composed:
    """Rows of a table with our types into the target. No parameters."""
    names = schema.fieldNames()
    values = [filled(casts[name].value, sql.Identifier(name), parameters=False) for name in names]
    return sql.SQL("insert into {} ({}) overriding system value select {} from {}").format(
        target,
        sql.SQL(", ").join(map(sql.Identifier, [*names, *own])),
        sql.SQL(", ").join([*values, *map(sql.Identifier, own)]),
        loaded,
    )
