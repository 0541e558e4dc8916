"""The list of mutants: how an entry is read, and how its fault is put into a file."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

__all__ = ["Mutant", "AnchorNotFound", "PACKAGES", "load", "mutate", "mutated_scope"]

PACKAGES = ("cdf", "connectors", "audit", "infra")
FOLDER = Path(__file__).parent
_FIELDS = {"name", "file", "in", "old", "new", "tests", "why"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class AnchorNotFound(Exception):
    """The code that a mutant changes is not there, or there more than once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """States the fault: ``verify-does-not-follow-the-chain``."""
    file: str
    """Relative to the root of the repository."""
    scope: str
    """Qualified name of the function or class in which ``old`` is found once (``Pipeline.run``); empty: the whole file."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids or files that pytest is given, cheapest first."""
    why: str
    listed_in: str
    """The TOML file, for messages."""


def load(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, in the order of the files."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            if unknown := entry.keys() - _FIELDS:
                raise ValueError(f"{path.name}: {entry.get('name')}: unknown fields {sorted(unknown)}")
            found.append(
                Mutant(
                    name=entry["name"],
                    file=entry["file"],
                    scope=entry.get("in", ""),
                    old=entry["old"],
                    new=entry["new"],
                    tests=tuple(entry["tests"]),
                    why=entry.get("why", ""),
                    listed_in=path.name,
                )
            )
    return found


def mutate(source: str, mutant: Mutant) -> str:
    """The source with the fault in it."""
    start, end = _span(source, mutant.scope)
    return source[:start] + mutated_scope(source, mutant) + source[end:]


def mutated_scope(source: str, mutant: Mutant) -> str:
    """The function or class alone, with the fault in it."""
    start, end = _span(source, mutant.scope)
    inside = source[start:end]
    if (count := inside.count(mutant.old)) != 1:
        raise AnchorNotFound(f"{mutant.file}: {mutant.scope or 'the file'} has {count} times {mutant.old!r}")
    return inside.replace(mutant.old, mutant.new)


def _span(source: str, scope: str) -> tuple[int, int]:
    if not scope:
        return 0, len(source)
    found = _spans(source).get(scope, [])
    if len(found) != 1:
        raise AnchorNotFound(f"{scope} is defined {len(found)} times")
    return found[0]


@lru_cache(maxsize=8)
def _spans(source: str) -> dict[str, list[tuple[int, int]]]:
    """By qualified name where a definition, with its decorators, begins and ends."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    found: dict[str, list[tuple[int, int]]] = {}
    for name, node in _definitions(ast.parse(source)):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        assert node.end_lineno is not None
        found.setdefault(name, []).append((starts[first - 1], starts[node.end_lineno]))
    return found


def _definitions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _DEFINITIONS):
            yield f"{prefix}{node.name}", node
            yield from _definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(node, prefix)
