"""The search terms of a scan: every identifier in the spellings in which software writes it, all searched in one pass.

A longer value is searched anywhere in the bytes, ignoring case, and in decoded text (``audit.erasure.scan.encodings``). A
short value or a plain number would be found everywhere: it matches a whole cell only, in the columns that hold that
identifier.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.erasure.scan.encodings import PIECE, addresses, cells_with_hints, readings
from audit.erasure.scan.patterns import Patterns, cells_with_runs
from audit.erasure.scan.spellings import ENCODED, STATISTICS_CHARACTERS, spellings
from audit.identifiers import fold

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["SearchTerm", "SearchTerms"]

LEAST_BYTES = 6
"""Shorter values match whole cells only."""
_OVERLAP = 16 * 1024
"""Overlap of two decoded pieces: the greatest length of a value that is encoded twice."""

Pair: TypeAlias = "tuple[str, str]"
"""Request and spelling."""

_WORD = re.compile(r"'([^']*)'|([^\s'\"`(),=<>\[\]]+)")
_SPARKS_NUMBER = re.compile(r"#\d+l?\Z")
"""Spark writes a column as ``name#12`` or ``name#12L``."""


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One value to search for; its ``repr`` does not show it."""

    request: str
    value: str = field(repr=False)
    name: str = ""
    """Name of the identifier."""
    subject: str = ""
    """The subject of the identifier: a customer's number is not an employee's number."""


class SearchTerms:
    """All terms of a scan. Picklable, because tasks search for them too."""

    def __init__(self, terms: Iterable[SearchTerm]) -> None:
        """An identifier is expected in columns of its own name; ``at`` changes that."""
        self.terms = tuple(terms)
        self._plain, self._encoded, self._folded = Patterns(), Patterns(), Patterns()
        self._locals = Patterns()
        """The part before the @ of each address."""
        for term in self.terms:
            if not _is_short(term.value):
                text = fold(term.value).strip()
                self._folded.add(term.request, "", text.encode("utf-8", "surrogatepass"))
                local, at, _ = text.partition("@")
                if local and at:
                    self._locals.add(term.request, "", local.encode("utf-8", "surrogatepass"))
                if len(text) > STATISTICS_CHARACTERS:
                    start = text[:STATISTICS_CHARACTERS].encode("utf-8", "surrogatepass")
                    self._folded.add(term.request, "prefix", start)
            for spelling, pattern in () if _is_short(term.value) else spellings(term.value):
                (self._encoded if spelling in ENCODED else self._plain).add(term.request, spelling, pattern)
        self._set_columns((term, {term.name.lower()}) for term in self.terms)

    def at(self, columns: Mapping[tuple[str, str], Collection[str]]) -> SearchTerms:
        """Return the terms for a table with these columns for identifiers, by subject and name. In other columns a short
        value means something else, such as another number."""
        by_identifier = {key: {name.lower() for name in names} for key, names in columns.items()}
        copied = copy.copy(self)
        copied._set_columns((term, by_identifier.get((term.subject, term.name), set())) for term in self.terms)
        return copied

    def _set_columns(self, columns: Iterable[tuple[SearchTerm, Collection[str]]]) -> None:
        self._short: dict[str, dict[str, set[str]]] = {}
        """By column and value: requests."""
        self._any: dict[str, dict[str, set[str]]] = {}
        """The same of all terms, for columns that are not text: dates, numbers with a sign."""
        self._typed: dict[tuple[str, str], tuple[Any, list[set[str]]]] = {}
        for term, names in columns:
            for by_column in (self._any, self._short) if _is_short(term.value) else (self._any,):
                for column in names:
                    by_column.setdefault(column, {}).setdefault(_shape(term.value), set()).add(term.request)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_typed": {}}

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def short_columns(self) -> frozenset[str]:
        """Names, in lower case, of the columns in which whole cells are compared."""
        return frozenset(self._short)

    @property
    def short_requests(self) -> frozenset[str]:
        """Requests with a value that matches a whole cell only: it cannot be searched in bytes without columns."""
        return frozenset(term.request for term in self.terms if _is_short(term.value))

    # ── anywhere in bytes and texts ──────────────────────────────────────────────────────────────────────────────

    def find(self, data: bytes) -> Iterator[Pair]:
        """Return (request, spelling) of each term in the bytes, each pair once."""
        lowered = data.lower()
        found = {pair for patterns in (self._plain, self._encoded) for pair, _, _ in patterns.matches(data, lowered)}
        met = {request for request, spelling in found if spelling != "prefix"}
        return iter(sorted(_longest(found | self._find_decoded(data, met))))

    def _find_decoded(self, data: bytes, met: Collection[str] = ()) -> set[Pair]:
        """Return what is in the decoded data. ``met``: requests that were found without decoding."""
        import numpy as np

        found: dict[str, str] = {}
        for start in range(0, len(data) if len(self._folded) else 0, PIECE):
            piece = data[start : start + PIECE + _OVERLAP]
            if not cells_with_hints(piece.lower(), np.array([0, len(piece)])).size:
                continue
            for way, text in readings(piece):
                for written, searched in ((way, text), ("written out", self._addresses(text))):
                    encoded = searched.encode("utf-8", "surrogatepass")
                    for (request, spelling), _, _ in self._folded.matches(encoded, encoded):
                        if request not in met and found.get(request, "prefix") == "prefix":
                            found[request] = spelling or written
        return set(found.items())

    def _addresses(self, text: str) -> str:
        """Return ``addresses`` of the text where it may contain a searched one."""
        encoded = text.encode("utf-8", "surrogatepass")
        return addresses(text) if any(True for _ in self._locals.matches(encoded, encoded)) else ""

    def text(self, values: pa.Array) -> Counter[Pair]:
        """Return in how many cells of a column of text or bytes each term is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_dictionary(values.type):
            return Counter({pair: len(cells) for pair, cells in self._in_cells(values).items()})
        found = self._in_cells(values.dictionary)
        if not found:
            return Counter()
        counts = {row["values"]: row["counts"] for row in pc.value_counts(values.indices).to_pylist()}
        return +Counter({pair: sum(counts.get(cell, 0) for cell in cells) for pair, cells in found.items()})

    def _in_cells(self, values: pa.Array) -> dict[Pair, set[int]]:
        import pyarrow as pa

        cells = (values if _is_bytes(values.type) else values.cast(pa.large_string())).cast(pa.large_binary())
        if not len(cells) or cells.buffers()[2] is None:
            return {}
        data, lowered, bounds = _together(cells)
        found: dict[Pair, set[int]] = {}
        for pair, cell in _matches(self._plain, data, lowered, bounds):
            found.setdefault(pair, set()).add(cell)
        if len(self._encoded):
            few = cells_with_runs(lowered, bounds, self._encoded.least)
            if 0 < few.size < len(cells):
                data, lowered, bounds = _together(cells.take(pa.array(few)))
            for pair, cell in _matches(self._encoded, data, lowered, bounds) if few.size else ():
                found.setdefault(pair, set()).add(int(few[cell]))
        for pair, cell in list(self._read_cells(cells, found)):
            found.setdefault(pair, set()).add(cell)
        return {pair: found[pair] for pair in _longest(set(found))}

    def _read_cells(self, cells: pa.Array, found: Mapping[Pair, set[int]]) -> Iterator[tuple[Pair, int]]:
        """Apply ``_find_decoded`` to each cell: to many at once, and to fewer where something is found in them."""
        data, lowered, bounds = _together(cells)
        met: dict[int, set[str]] = {}
        for (request, spelling), where in found.items():
            for cell in where if spelling != "prefix" else ():
                met.setdefault(cell, set()).add(request)
        many = [cells_with_hints(lowered, bounds).tolist()] if data and len(self._folded) else []
        while many:
            few = many.pop()
            read = self._find_decoded(
                b"\n".join(data[bounds[cell] : bounds[cell + 1]] for cell in few),
                met.get(few[0], ()) if len(few) == 1 else (),
            )
            if read and len(few) > 1:
                many += [few[: len(few) // 2], few[len(few) // 2 :]]
            elif read:
                yield from ((pair, few[0]) for pair in read)

    # ── as a whole cell ──────────────────────────────────────────────────────────────────────────────────────────

    def cells(self, column: str, values: pa.Array) -> Counter[Pair]:
        """Return how many cells of the column equal a term: in text only short terms are compared, otherwise all.
        ``column``: its name without a path."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.lower() not in self._any or pa.types.is_nested(values.type):
            return Counter()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        wanted, requests = self._typed_values(column.lower(), values.type)
        if not requests:
            return Counter()
        if _is_text(values.type):
            if not pc.all(pc.string_is_ascii(values)).as_py():
                values = pa.array([one and fold(one) for one in values.to_pylist()], values.type)
            values = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        total: Counter[Pair] = Counter()
        for row in pc.value_counts(pc.index_in(values, value_set=wanted).drop_null()).to_pylist():
            for request in requests[row["values"]]:
                total[request, "value"] += row["counts"]
        return total

    def _typed_values(self, column: str, kind: pa.DataType) -> tuple[pa.Array, list[set[str]]]:
        """Return the values of a column's terms in its type, as far as they can be converted, and the requests of each."""
        import pyarrow as pa

        key = (column, str(kind))
        if key not in self._typed:
            wanted = (self._short if _is_text(kind) or _is_bytes(kind) else self._any).get(column, {})
            typed: dict[Any, set[str]] = {}
            for value, requests in wanted.items() if not pa.types.is_boolean(kind) else ():
                try:
                    typed.setdefault(pa.scalar(value).cast(kind).as_py(), set()).update(requests)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # not a number, or too large
                    continue
            self._typed[key] = pa.array(list(typed), kind), list(typed.values())
        return self._typed[key]

    def cell(self, column: str, value: Any) -> set[Pair]:
        """Compare one value, as JSON or the name of a folder has it."""
        wanted = self._short.get(column.lower())
        if not wanted or value is None or isinstance(value, dict | list | bool):
            return set()
        return {(request, "value") for request in wanted.get(_shape(value), ())}

    def words(self, text: str) -> set[Pair]:
        """Return short terms in an expression such as ``(customer_id#12L = 17)``: it names their column, and contains them
        as a separate word."""
        if not self._short:
            return set()
        words = {quoted or word for quoted, word in _WORD.findall(text)}
        names = {_SPARKS_NUMBER.sub("", word.lower()).rpartition(".")[2] for word in words}
        return {
            (request, "value")
            for column in self._short.keys() & names
            for word in words
            for request in self._short[column].get(_shape(word), ())
        }


def _together(cells: pa.Array) -> tuple[bytes, bytes, np.ndarray[Any, Any]]:
    """Return the bytes of all cells concatenated, the same in lower case, and where each cell begins and the last one
    ends."""
    import numpy as np

    bounds = np.frombuffer(cells.buffers()[1], dtype=np.int64)[cells.offset : cells.offset + len(cells) + 1]
    data: bytes = cells.buffers()[2][int(bounds[0]) : int(bounds[-1])].to_pybytes()
    return data, data.lower(), bounds - bounds[0]


def _matches(
    patterns: Patterns, data: bytes, lowered: bytes, bounds: np.ndarray[Any, Any]
) -> Iterator[tuple[Pair, int]]:
    """Yield each match with its cell."""
    import numpy as np

    for pair, start, end in patterns.matches(data, lowered):
        cell = int(np.searchsorted(bounds, start, side="right")) - 1
        if end <= bounds[cell + 1]:  # otherwise it begins in one cell and ends in another
            yield pair, cell


def _is_short(value: str) -> bool:
    return len(value.strip().encode("utf-8", "surrogatepass")) < LEAST_BYTES or value.strip().isdecimal()


def _shape(value: Any) -> str:
    """Return the form in which cells are compared: JSON and decimals may write 17 as 17.0."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return fold(text).strip()


def _longest(found: set[Pair]) -> set[Pair]:
    """Leave out prefixes of requests whose whole value was found."""
    return {
        (request, spelling) for request, spelling in found if spelling != "prefix" or (request, "value") not in found
    }


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
