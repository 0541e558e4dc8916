"""What is left of somebody in a target: rows, dead letters, staging, planner statistics, dead rows. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.erasure.sink_contract import Checked, Find, Scanned, Unseen
from audit.postgres_session import copy_out
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.erasure.cell_matcher import Cells
from connectors.postgres.erasure.page_reader import pages_of, relations_of
from connectors.postgres.erasure.rewritten_tables import written_of
from connectors.postgres.sql_parts import SCHEMA, TargetName
from connectors.postgres.state import dead_letters
from connectors.postgres.target.reflection import read_column_types

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import Needles
    from connectors.postgres.client import Session
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.erasure.cell_matcher import Short
    from connectors.postgres.erasure.page_reader import Pages
    from connectors.postgres.options import Deletes

__all__ = ["LETTERS", "STATISTICS", "scan", "living", "found_in_pages", "found_in_statistics"]

Connection = psycopg.Connection[Any]

CHUNK_BYTES = 2**20
_EVERY = sql.SQL("")
LETTERS = TargetName(SCHEMA, "dead_letter")
STATISTICS = (TargetName("pg_catalog", "pg_statistic"), TargetName("pg_catalog", "pg_statistic_ext_data"))


@dataclass(slots=True)
class _Scan:
    needles: Needles
    found: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """(request, place, reason, spelling): times"""
    checked: list[Checked] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)

    def rows(self, lines: Iterator[bytes], place: str, reason: str, short: Short) -> set[str]:
        """Whole rows are looked through many at a time, and one by one where something is found: they are counted.
        ``short``: needles that count as a whole cell only. → the requests"""
        count = size = 0
        requests: set[str] = set()
        for chunk in _chunks(lines):
            count, size = count + len(chunk), size + sum(map(len, chunk))
            holds = any(True for _ in self.needles.find(b"".join(chunk)))
            for line in chunk if holds or self.needles.short_columns else ():
                hits = set(self.needles.find(line)) if holds else set()
                if self.needles.short_columns:
                    hits |= short(line)
                for request, spelling in hits:
                    self.found[request, place, reason, spelling] += 1
                    requests.add(request)
        self.checked.append(Checked(f"{reason if reason == 'staging' else reason + 's'} of {place}", count, size))
        return requests

    def result(self) -> Scanned:
        finds = tuple(
            Find(request, place, reason, spelling, count)
            for (request, place, reason, spelling), count in sorted(self.found.items())
        )
        return Scanned(finds, tuple(self.checked), tuple(self.unseen))


def scan(session: Session, columns: Columns, deletes: Deletes, needles: Needles) -> Scanned:
    target, made, cells = session.target, _Scan(needles), Cells(needles, columns)
    with session.errors("scanning the target"), session.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            connection.execute("set local row_security = off")  # better an error than rows that a policy hides from us
            connection.execute("set local bytea_output = 'escape'")
            live = _scan_rows(connection, made, target, deletes, cells)
            letters, of_others = _scan_letters(connection, made, target, cells)
            for name in session.staging_tables(connection):
                _scan_staging(connection, made, TargetName(SCHEMA, name), cells)
            stated = _scan_statistics(connection, made, target, cells, of_others)
        _scan_pages(connection, made, target, live, letters | of_others, stated)
    return made.result()


def living(
    connection: Connection, target: TargetName, columns: Columns, deletes: Deletes, needles: Needles
) -> set[str]:
    """The requests that the target or a dead letter still has something of."""
    made, cells = _Scan(needles), Cells(needles, columns)
    with connection.transaction():
        connection.execute("set local row_security = off; set local bytea_output = 'escape'")
        letters, of_others = _scan_letters(connection, made, target, cells)
        return _scan_rows(connection, made, target, deletes, cells) | letters | of_others


def _scan_rows(connection: Connection, made: _Scan, target: TargetName, deletes: Deletes, cells: Cells) -> set[str]:
    found = read_column_types(connection, target)
    if not found:
        return set()
    short = cells.of_table(found)
    if deletes != "soft" or DELETED_AT not in found:
        return made.rows(_copied(connection, target, found), str(target), "current row", short)
    marked = sql.SQL("where {} is not null").format(sql.Identifier(DELETED_AT))
    alive = sql.SQL("where {} is null").format(sql.Identifier(DELETED_AT))
    return made.rows(_copied(connection, target, found, alive), str(target), "current row", short) | made.rows(
        _copied(connection, target, found, marked), str(target), "soft-deleted row", short
    )


def _scan_letters(connection: Connection, made: _Scan, target: TargetName, cells: Cells) -> tuple[set[str], set[str]]:
    """→ the requests that this target's letters have something of, and those that the letters of others have."""
    if not dead_letters.may_read_dead_letters(connection):
        return set(), set()
    found = read_column_types(connection, LETTERS)
    short = cells.of_letters(found)
    name = sql.Literal(str(target))
    mine, others = sql.SQL("where target = {}").format(name), sql.SQL("where target <> {}").format(name)
    requests = made.rows(_copied(connection, LETTERS, found, mine), str(LETTERS), "dead letter", short)
    # Those of other targets are not this one's to tell, but stand on the same pages, and in the same statistics
    return requests, _Scan(made.needles).rows(_copied(connection, LETTERS, found, others), str(LETTERS), "", short)


def _scan_staging(connection: Connection, made: _Scan, table: TargetName, cells: Cells) -> None:
    found = read_column_types(connection, table)
    whole, letters, numbered = cells.of_table(found), cells.of_letters(found), cells.of_numbered(found)
    lines = _copied(connection, table, found)
    made.rows(lines, str(table), "staging", lambda line: whole(line) | letters(line))
    if made.needles.short_columns and any(numbered(line) for line in _copied(connection, table, found)):
        why = "a row on its way has a value that may be a short or numeric identifier, in a column without its name"
        made.unseen.append(Unseen(str(table), why))


def _copied(
    connection: Connection, table: TargetName, columns: Iterable[str], where: sql.Composable = _EVERY
) -> Iterator[bytes]:
    """The rows as text, each in a line of its own, with the columns in that order."""
    query = sql.SQL("copy (select {} from {} {}) to stdout").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), table.identifier, where
    )
    return copy_out(connection, query)


def _chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


# ── planner statistics ───────────────────────────────────────────────────────────────────────────────────────────────

_STATISTICS = """
select format('%%I.%%I', schemaname, tablename),
       concat_ws(' ', most_common_vals::text, histogram_bounds::text, most_common_elems::text)
  from pg_stats where %(all)s or format('%%I.%%I', schemaname, tablename) = any(%(tables)s)
union all
select format('%%I.%%I', schemaname, tablename), array_to_string(most_common_vals, ' ')
  from pg_stats_ext where %(all)s or format('%%I.%%I', schemaname, tablename) = any(%(tables)s)
"""


def found_in_statistics(
    connection: Connection, needles: Needles, tables: list[str] | None
) -> Iterator[tuple[str, str, str]]:
    """(table, request, spelling) for each column; of all tables that the role may read where none are named."""
    for table, text in connection.execute(_STATISTICS, {"all": tables is None, "tables": tables or []}):
        for request, spelling in needles.find((text or "").encode()):
            yield table, request, spelling


_VALUES = """
select distinct format('%%I.%%I', schemaname, tablename), attname, value
  from pg_stats, unnest(most_common_vals::text::text[] || histogram_bounds::text::text[]
                        || most_common_elems::text::text[]) value
 where format('%%I.%%I', schemaname, tablename) = any(%(tables)s) and value is not null
"""


_EXTENDED = """
select count(*) from pg_stats_ext
 where format('%%I.%%I', schemaname, tablename) = any(%(tables)s) and most_common_vals is not null
"""


def _scan_statistics(
    connection: Connection, made: _Scan, target: TargetName, cells: Cells, of_others: set[str]
) -> set[str]:
    """``of_others``: of ``_scan_letters``. → requests whose values are in the statistics of any table: in their pages they
    tell nothing."""

    def add(table: str, request: str, spelling: str) -> None:
        if table != str(LETTERS) or request not in of_others:
            made.found[request, table, "planner statistics", spelling] += 1

    mine = [one.name for name in (target, LETTERS) for one in relations_of(connection, name.schema, name.table)]
    for table, request, spelling in found_in_statistics(connection, made.needles, mine):
        add(table, request, spelling)
    for table, column, value in connection.execute(_VALUES, {"tables": mine}) if made.needles.short_columns else ():
        for request, spelling in (cells.of_letter if table == str(LETTERS) else cells.of_value)(column, value):
            add(table, request, spelling)
    if made.needles.short_requests and connection.execute(_EXTENDED, {"tables": mine}).fetchone() != (0,):
        why = "short or numeric identifiers are not looked for in extended statistics"
        made.unseen.append(Unseen(f"planner statistics of {target}", why))
    made.checked.append(Checked(f"planner statistics of {target}", len(mine)))
    return {request for _, request, _ in found_in_statistics(connection, made.needles, None)}


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def found_in_pages(
    connection: Connection, pages: Pages, table: TargetName, needles: Needles, read: Callable[[int], None] | None = None
) -> Iterator[tuple[str, str]]:
    """(request, spelling) for each part of the table's pages, indexes included. Live rows are found there like dead ones."""
    for relation in relations_of(connection, table.schema, table.table):
        for part in pages(relation):
            if read is not None:
                read(len(part))
            yield from needles.find(part)


def _scan_pages(
    connection: Connection, made: _Scan, target: TargetName, live: set[str], letters: set[str], stated: set[str]
) -> None:
    """Dead rows of requests that have no live one: the two look the same in a page."""
    pages = pages_of(connection)
    looked = [(target, "dead tuple", live), (LETTERS, "dead tuple", letters)]
    looked += [(table, "planner statistics", stated) for table in STATISTICS]
    for table, reason, others in looked:
        relations = relations_of(connection, table.schema, table.table)
        if not relations:
            continue
        if isinstance(pages, str):
            made.unseen.append(Unseen(f"dead tuples of {table}", pages))
            continue
        sizes: list[int] = []
        try:
            for request, spelling in found_in_pages(connection, pages, table, made.needles, sizes.append):
                if request not in others:
                    made.found[request, str(table), reason, spelling] += 1
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFile) as error:
            made.unseen.append(Unseen(f"dead tuples of {table}", f"the server refuses its pages ({error.sqlstate})"))
            continue
        made.checked.append(Checked(f"pages of {table}", len(relations), sum(sizes)))
        if made.needles.short_requests - written_of(connection, table):
            why = "short or numeric identifiers are not looked for in pages, and it was not written anew since the erasure"
            made.unseen.append(Unseen(f"dead tuples of {table}", why))
        if any(relation.toast and any(pages(relation)) for relation in relations) and table not in STATISTICS:
            made.unseen.append(Unseen(f"dead tuples of {table}", "PostgreSQL compresses its large values"))
