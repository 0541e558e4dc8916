"""Searches a target for identifiers: rows, dead letters, staging, planner statistics, dead rows on pages. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.erasure.scan.results import Checked, Finding, ScanResult, Unseen
from audit.postgres_session import copy_out
from connectors.postgres.column_mapping import DELETED_AT
from connectors.postgres.erasure.cell_matcher import Cells
from connectors.postgres.erasure.page_reader import pages_of, relations_of
from connectors.postgres.erasure.rewritten_tables import rewritten_for
from connectors.postgres.sql_parts import SCHEMA, TargetName
from connectors.postgres.state import dead_letters
from connectors.postgres.state.migrations import refuse_newer_state
from connectors.postgres.target.reflection import read_column_types

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import SearchTerms
    from connectors.postgres.erasure.cell_matcher import Short
    from connectors.postgres.erasure.page_reader import Pages
    from connectors.postgres.erasure.target import ErasureTarget

__all__ = ["LETTERS", "STATISTICS", "find_in_pages", "find_in_rows", "find_in_statistics", "scan"]

Connection = psycopg.Connection[Any]

CHUNK_BYTES = 2**20
_EVERY = sql.SQL("")
LETTERS = TargetName(SCHEMA, "dead_letter")
STATISTICS = (TargetName("pg_catalog", "pg_statistic"), TargetName("pg_catalog", "pg_statistic_ext_data"))


@dataclass(slots=True)
class _Scan:
    """The results of a scan while it runs."""

    terms: SearchTerms
    found: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """(request, place, reason, spelling): occurrences"""
    checked: list[Checked] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)

    def rows(self, lines: Iterator[bytes], place: str, reason: str, short: Short) -> set[str]:
        """Search rows, many at a time, and one by one where a search term is found, to count the rows. ``short`` matches the
        search terms that count as a whole cell only. Return the requests that were found."""
        count = size = 0
        requests: set[str] = set()
        for chunk in _chunks(lines):
            count, size = count + len(chunk), size + sum(map(len, chunk))
            holds = any(True for _ in self.terms.find(b"".join(chunk)))
            for line in chunk if holds or self.terms.short_columns else ():
                hits = set(self.terms.find(line)) if holds else set()
                if self.terms.short_columns:
                    hits |= short(line)
                for request, spelling in hits:
                    self.found[request, place, reason, spelling] += 1
                    requests.add(request)
        self.checked.append(Checked(f"{reason if reason == 'staging' else reason + 's'} of {place}", count, size))
        return requests

    def result(self) -> ScanResult:
        finds = tuple(
            Finding(request, place, reason, spelling, count)
            for (request, place, reason, spelling), count in sorted(self.found.items())
        )
        return ScanResult(finds, tuple(self.checked), tuple(self.unseen))


def scan(target: ErasureTarget, terms: SearchTerms) -> ScanResult:
    session, name, running, cells = (
        target.session,
        target.name,
        _Scan(terms),
        Cells(terms, target.columns),
    )
    with session.errors("scanning the target"), session.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            refuse_newer_state(connection)  # it may hold rows where this release does not look
            connection.execute("set local row_security = off")  # a policy that hides rows becomes an error
            connection.execute("set local bytea_output = 'escape'")
            live = _scan_rows(connection, running, target, cells)
            letters, of_others = _scan_letters(connection, running, name, cells)
            for staging in session.staging_tables(connection):
                _scan_staging(connection, running, TargetName(SCHEMA, staging), cells)
            in_statistics = _scan_statistics(connection, running, name, cells, of_others)
        _scan_pages(connection, running, name, live, letters | of_others, in_statistics)
    return running.result()


def find_in_rows(connection: Connection, target: ErasureTarget, terms: SearchTerms) -> set[str]:
    """Return the requests with data in live rows of the target or in dead letters."""
    running, cells = _Scan(terms), Cells(terms, target.columns)
    with connection.transaction():
        connection.execute("set local row_security = off; set local bytea_output = 'escape'")
        letters, of_others = _scan_letters(connection, running, target.name, cells)
        return _scan_rows(connection, running, target, cells) | letters | of_others


def _scan_rows(connection: Connection, running: _Scan, target: ErasureTarget, cells: Cells) -> set[str]:
    name = target.name
    found = read_column_types(connection, name)
    if not found:
        return set()
    short = cells.of_table(found)
    if target.deletes != "soft" or DELETED_AT not in found:
        return running.rows(_copy_rows(connection, name, found), str(name), "current row", short)
    marked = sql.SQL("where {} is not null").format(sql.Identifier(DELETED_AT))
    alive = sql.SQL("where {} is null").format(sql.Identifier(DELETED_AT))
    return running.rows(_copy_rows(connection, name, found, alive), str(name), "current row", short) | running.rows(
        _copy_rows(connection, name, found, marked), str(name), "soft-deleted row", short
    )


def _scan_letters(
    connection: Connection, running: _Scan, target: TargetName, cells: Cells
) -> tuple[set[str], set[str]]:
    """Return the requests found in this target's dead letters, and those found in dead letters of other targets."""
    if not dead_letters.may_read_dead_letters(connection):
        return set(), set()
    found = read_column_types(connection, LETTERS)
    short = cells.of_letters(found)
    name = sql.Literal(str(target))
    mine, others = sql.SQL("where target = {}").format(name), sql.SQL("where target <> {}").format(name)
    requests = running.rows(_copy_rows(connection, LETTERS, found, mine), str(LETTERS), "dead letter", short)
    # Those of other targets are not findings of this one, but are on the same pages and in the same statistics
    lines = _copy_rows(connection, LETTERS, found, others)
    return requests, _Scan(running.terms).rows(lines, str(LETTERS), "", short)


def _scan_staging(connection: Connection, running: _Scan, table: TargetName, cells: Cells) -> None:
    found = read_column_types(connection, table)
    whole, letters, numbered = cells.of_table(found), cells.of_letters(found), cells.of_numbered(found)
    lines = _copy_rows(connection, table, found)
    running.rows(lines, str(table), "staging", lambda line: whole(line) | letters(line))
    if running.terms.short_columns and any(numbered(line) for line in _copy_rows(connection, table, found)):
        why = "a staged row has a value that may be a short or numeric identifier, in a column without its name"
        running.unseen.append(Unseen(str(table), why))


def _copy_rows(
    connection: Connection, table: TargetName, columns: Iterable[str], where: sql.Composable = _EVERY
) -> Iterator[bytes]:
    """Yield the rows as lines of COPY text, with the columns in that order."""
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


def find_in_statistics(
    connection: Connection, terms: SearchTerms, tables: list[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (table, request, spelling) for each column. ``tables`` None: all tables that the role may read."""
    for table, text in connection.execute(_STATISTICS, {"all": tables is None, "tables": tables or []}):
        for request, spelling in terms.find((text or "").encode()):
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
    connection: Connection, running: _Scan, target: TargetName, cells: Cells, of_others: set[str]
) -> set[str]:
    """Return the requests with values in the statistics of any table: for them, the pages of the statistics prove nothing.
    ``of_others``: from ``_scan_letters``."""

    def add(table: str, request: str, spelling: str) -> None:
        if table != str(LETTERS) or request not in of_others:
            running.found[request, table, "planner statistics", spelling] += 1

    mine = [
        relation.name for name in (target, LETTERS) for relation in relations_of(connection, name.schema, name.table)
    ]
    for table, request, spelling in find_in_statistics(connection, running.terms, mine):
        add(table, request, spelling)
    for table, column, value in connection.execute(_VALUES, {"tables": mine}) if running.terms.short_columns else ():
        for request, spelling in (cells.of_letter if table == str(LETTERS) else cells.of_value)(column, value):
            add(table, request, spelling)
    if running.terms.short_requests and connection.execute(_EXTENDED, {"tables": mine}).fetchone() != (0,):
        why = "short or numeric identifiers are not searched in extended statistics"
        running.unseen.append(Unseen(f"planner statistics of {target}", why))
    running.checked.append(Checked(f"planner statistics of {target}", len(mine)))
    return {request for _, request, _ in find_in_statistics(connection, running.terms, None)}


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_in_pages(
    connection: Connection,
    pages: Pages,
    table: TargetName,
    terms: SearchTerms,
    read: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (request, spelling) for each part of the table's pages, indexes included. Pages contain live and dead rows."""
    for relation in relations_of(connection, table.schema, table.table):
        for part in pages(relation):
            if read is not None:
                read(len(part))
            yield from terms.find(part)


def _scan_pages(
    connection: Connection,
    running: _Scan,
    target: TargetName,
    live: set[str],
    letters: set[str],
    in_statistics: set[str],
) -> None:
    """Report dead rows of the requests that have no live row: a page does not show whether a row is live or dead."""
    pages = pages_of(connection)
    searched = [(target, "dead tuple", live), (LETTERS, "dead tuple", letters)]
    searched += [(table, "planner statistics", in_statistics) for table in STATISTICS]
    for table, reason, others in searched:
        relations = relations_of(connection, table.schema, table.table)
        if not relations:
            continue
        if isinstance(pages, str):
            running.unseen.append(Unseen(f"dead tuples of {table}", pages))
            continue
        sizes: list[int] = []
        try:
            for request, spelling in find_in_pages(connection, pages, table, running.terms, sizes.append):
                if request not in others:
                    running.found[request, str(table), reason, spelling] += 1
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFile) as error:
            why = f"the server refuses to read its pages ({error.sqlstate})"
            running.unseen.append(Unseen(f"dead tuples of {table}", why))
            continue
        running.checked.append(Checked(f"pages of {table}", len(relations), sum(sizes)))
        if running.terms.short_requests - rewritten_for(connection, table):
            why = "short or numeric identifiers cannot be searched in pages, and no rewrite followed the erasure"
            running.unseen.append(Unseen(f"dead tuples of {table}", why))
        if any(relation.toast and any(pages(relation)) for relation in relations) and table not in STATISTICS:
            running.unseen.append(Unseen(f"dead tuples of {table}", "PostgreSQL compresses its large values"))
