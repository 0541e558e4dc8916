"""Finds search terms in named values: columns of Arrow with nested values, JSON, paths with ``column=value``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.erasure.scan.spellings import decoded_names

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.erasure.scan.search_terms import SearchTerms

__all__ = ["Counts", "FieldPath", "NamesOf", "in_column", "in_json", "in_name", "whole_json", "without_views"]

Counts: TypeAlias = "Counter[tuple[str, str]]"
FieldPath: TypeAlias = "tuple[str, ...]"
NamesOf: TypeAlias = Callable[[str], set[str]]
"""Returns the names in the table of a field with that name in files."""

_NULLS = "nullcount"
"""In Delta's statistics: counts under the names of columns, which are no values of these columns."""


def in_name(name: str, terms: SearchTerms) -> set[tuple[str, str]]:
    """Search one part of a path."""
    hits: set[tuple[str, str]] = set()
    for part in decoded_names(name):
        column, equals, value = part.partition("=")
        hits |= set(terms.find(part.encode("utf-8", "surrogatepass")))
        hits |= terms.cell(column, value) if equals else set()
    return _plainest(hits)


def in_json(value: Any, terms: SearchTerms, names_of: NamesOf) -> set[tuple[str, str]]:
    """Search an object of the log, and JSON that is text inside of it."""
    hits: set[tuple[str, str]] = set()
    texts: list[str] = []
    for name, leaf in _leaves(value):
        texts.append(str(leaf))
        for column in names_of(name) if terms.short_columns else ():
            hits |= terms.cell(column, leaf)
        if name == "path":
            for part in str(leaf).split("/"):
                hits |= in_name(part, terms)
        elif isinstance(leaf, str) and any(sign in leaf for sign in "=<>("):
            hits |= terms.words(leaf)
    return _plainest(hits | set(terms.find("\n".join(texts).encode("utf-8", "surrogatepass"))))


def whole_json(text: str | bytes) -> Any:
    """Parse JSON, with all values of a name that occurs twice. Raises ValueError or RecursionError."""
    return json.loads(text, object_pairs_hook=_all_values)


def _all_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    merged = dict(pairs)
    if len(merged) < len(pairs):
        values: dict[str, list[Any]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        merged.update((name, several) for name, several in values.items() if len(several) > 1)
    return merged


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    todo = [("", value)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                value = whole_json(value)
            except (ValueError, RecursionError):
                yield name, value
                continue
        if isinstance(value, dict):
            for inner_name, inner in value.items():
                yield "", inner_name
                if inner_name.lower() != _NULLS:
                    todo.append((inner_name, inner))
        elif isinstance(value, list):
            todo += [(name, inner) for inner in value]
        elif value is not None:
            yield name, value


def without_views(values: pa.Array) -> pa.Array:
    """Convert string and binary views, which files rewritten by delta-rs have, to types that can be searched and
    filtered."""
    plain = _plain(values.type)
    return values if plain == values.type else values.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_string_view(kind):
        return pa.large_string()
    if kinds.is_binary_view(kind):
        return pa.large_binary()
    if kinds.is_struct(kind):
        return pa.struct([kind.field(at).with_type(_plain(kind.field(at).type)) for at in range(kind.num_fields)])
    if kinds.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type))
        )
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if kinds.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def in_column(
    path: FieldPath, values: pa.Array, terms: SearchTerms, names_of: NamesOf
) -> Iterator[tuple[FieldPath, Counts]]:
    """Yield counts by the path to each field in the column. ``path``: the path to the column itself."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if kinds.is_struct(kind):
        for at, child in enumerate(values.flatten()):
            if (name := kind.field(at).name).lower() != _NULLS:
                yield from in_column((*path, name.lower()), child, terms, names_of)
    elif kinds.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        keys, items = values.keys[first:last], values.items[first:last]
        yield from in_column(path, keys, terms, names_of)
        yield from in_column(path, items, terms, names_of)
        yield path, _by_key(keys, items, terms, names_of)
    elif kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        yield from in_column(path, values.flatten(), terms, names_of)
    else:
        hits: Counts = Counter()
        for column in names_of(path[-1]):
            hits += terms.cells(column, values)
        held = kind.value_type if kinds.is_dictionary(kind) else kind
        if kinds.is_decimal(held) or kinds.is_primitive(held) or kinds.is_null(held):
            yield path, hits
        else:
            yield path, hits + terms.text(values)


def _by_key(keys: pa.Array, items: pa.Array, terms: SearchTerms, names_of: NamesOf) -> Counts:
    """Search entries of a map whose keys are names of columns, as with partition values in checkpoints."""
    import pyarrow as pa
    import pyarrow.compute as pc

    hits: Counts = Counter()
    if (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)) and terms.short_columns:
        for key in pc.unique(keys).to_pylist():
            for column in names_of(key) & terms.short_columns:
                hits += terms.cells(column, items.filter(pc.equal(keys, key)))
    return hits


def _plainest(hits: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out escaped spellings where the value itself was found as well."""
    return {(request, spelling) for request, spelling in hits if spelling == "value" or (request, "value") not in hits}
