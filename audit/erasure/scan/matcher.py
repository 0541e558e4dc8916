"""SearchTerms in what has names: columns of Arrow with all that is nested in them, JSON, paths with ``column=value``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.erasure.scan.spellings import decoded_names

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.erasure.scan.search_terms import SearchTerms

__all__ = ["Called", "Counts", "Way", "in_column", "in_json", "in_name", "whole_json", "without_views"]

Counts: TypeAlias = "Counter[tuple[str, str]]"
Way: TypeAlias = "tuple[str, ...]"
Called: TypeAlias = Callable[[str], set[str]]
"""What the table calls a field that its files have under that name."""

_NULLS = "nullcount"
"""Of Delta's statistics: numbers under the names of columns that are none of their values."""


def in_name(name: str, terms: SearchTerms) -> set[tuple[str, str]]:
    """In one part of a path."""
    hits: set[tuple[str, str]] = set()
    for part in decoded_names(name):
        column, equals, value = part.partition("=")
        hits |= set(terms.find(part.encode("utf-8", "surrogatepass")))
        hits |= terms.cell(column, value) if equals else set()
    return _plainest(hits)


def in_json(value: Any, terms: SearchTerms, called: Called) -> set[tuple[str, str]]:
    """In an object of the log, and in the JSON that is written as a text in it."""
    hits: set[tuple[str, str]] = set()
    texts: list[str] = []
    for name, leaf in _leaves(value):
        texts.append(str(leaf))
        for column in called(name) if terms.short_columns else ():
            hits |= terms.cell(column, leaf)
        if name == "path":
            for part in str(leaf).split("/"):
                hits |= in_name(part, terms)
        elif isinstance(leaf, str) and any(sign in leaf for sign in "=<>("):
            hits |= terms.words(leaf)
    return _plainest(hits | set(terms.find("\n".join(texts).encode("utf-8", "surrogatepass"))))


def whole_json(text: str | bytes) -> Any:
    """With every value of a name that comes twice. ValueError, RecursionError: it is no JSON, or too deep."""
    return json.loads(text, object_pairs_hook=_all_values)


def _all_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        values: dict[str, list[Any]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        made.update((name, those) for name, those in values.items() if len(those) > 1)
    return made


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
    """The same in types that can be searched and filtered: what delta-rs rewrites is read as views of texts."""
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


def in_column(way: Way, values: pa.Array, terms: SearchTerms, called: Called) -> Iterator[tuple[Way, Counts]]:
    """By the way to each field that is in the column. ``way``: to the column itself."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if kinds.is_struct(kind):
        for at, child in enumerate(values.flatten()):
            if (name := kind.field(at).name).lower() != _NULLS:
                yield from in_column((*way, name.lower()), child, terms, called)
    elif kinds.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        keys, items = values.keys[first:last], values.items[first:last]
        yield from in_column(way, keys, terms, called)
        yield from in_column(way, items, terms, called)
        yield way, _by_key(keys, items, terms, called)
    elif kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        yield from in_column(way, values.flatten(), terms, called)
    else:
        hits: Counts = Counter()
        for column in called(way[-1]):
            hits += terms.cells(column, values)
        held = kind.value_type if kinds.is_dictionary(kind) else kind
        if kinds.is_decimal(held) or kinds.is_primitive(held) or kinds.is_null(held):
            yield way, hits
        else:
            yield way, hits + terms.text(values)


def _by_key(keys: pa.Array, items: pa.Array, terms: SearchTerms, called: Called) -> Counts:
    """Entries of a map under the name of a column, as checkpoints have the values of partitions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    hits: Counts = Counter()
    if (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)) and terms.short_columns:
        for key in pc.unique(keys).to_pylist():
            for column in called(key) & terms.short_columns:
                hits += terms.cells(column, items.filter(pc.equal(keys, key)))
    return hits


def _plainest(hits: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """What is escaped in one reading is the value in the next: it is told of once."""
    return {(request, spelling) for request, spelling in hits if spelling == "value" or (request, "value") not in hits}
