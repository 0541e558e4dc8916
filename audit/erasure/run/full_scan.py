"""Scans the files of all tables, and everything that the sinks hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from audit.erasure.find.known_values import without_links
from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.results import ScanResult, Unseen, unseen_location
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms

if TYPE_CHECKING:
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import Request
    from audit.erasure.scan.files import Files
    from audit.erasure.table_graph import Graph

__all__ = ["make_search_terms", "scan_everything"]


def make_search_terms(requests: Sequence[Request], learned: Sequence[tuple[str, str, str]]) -> SearchTerms:
    """``learned``: (request, identifier, value) of what is known besides the requests."""
    subject = {request.id: request.subject for request in requests}
    given = [(request.id, name, value) for request in requests for name, value in request.identifiers.items()]
    identifiers = sorted({*given, *without_links(learned)})
    return SearchTerms(SearchTerm(id, value, name, subject[id]) for id, name, value in identifiers)


def scan_everything(
    graph: Graph,
    tables: Sequence[str],
    copies: Sequence[Copy],
    terms: SearchTerms,
    *,
    files: Callable[[str], Files],
    now: dt.datetime,
    progress: Callable[[str], None],
) -> ScanResult:
    found = ScanResult()
    for table in tables:
        progress(f"scanning {table}")
        try:
            found += scan_table(files(table), terms.at(graph.holding(table)), now=now).at(table)
        except OSError as error:
            found += ScanResult(unseen=(unseen_location(table, error),))
    for copy in copies:
        if (erasure := copy.erasure) is not None:
            progress(f"scanning what {copy.pipeline} has written")
            found += erasure.scan(terms.at(graph.holding(copy.table)))
        else:
            found += ScanResult(unseen=(Unseen(copy.pipeline, "this kind of sink cannot be scanned"),))
    return found
