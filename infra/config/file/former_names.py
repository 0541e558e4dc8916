"""Former names of settings. They are accepted until release 1.0, with a warning that names the new one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.config.file.problems import Path, Report, spell_path
from infra.config.file.yaml_document import Document

__all__ = ["FormerName", "log_former_names", "replace_former_names"]

log = logging.getLogger("deltarelay.config")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FormerName:
    """A setting that the file writes by its former name."""

    setting: str
    """By its former name, such as ``erasure.tables./data/orders.path``."""
    place: str
    """``file:line:column``"""
    new_name: str

    def __str__(self) -> str:
        return f"{self.place}: {self.setting}: is now called `{self.new_name}`; the former name works until 1.0"


def replace_former_names(document: Document, report: Report) -> list[FormerName]:
    """Give every setting in the document its present name. → the former names that were found

    A setting that is written by both names is a problem in the report.
    """
    found: list[FormerName] = []
    for path, new_name in list(_find_former_names(document.data)):
        span = document.locate_key(path)
        parent = _get(document.data, path[:-1])
        if new_name in parent:
            message = f"is the former name of `{new_name}`, which is set as well"
            report.add(span.line, span.column, path, message, hint=f"set `{new_name}` only")
            del parent[path[-1]]
            continue
        found.append(FormerName(spell_path(path), f"{report.file}:{span.line}:{span.column}", new_name))
        parent[new_name] = parent.pop(path[-1])
        new_path = (*path[:-1], new_name)
        document.keys = _move(document.keys, path, new_path)
        document.values = _move(document.values, path, new_path)
        document.scalars = set(_move(dict.fromkeys(document.scalars), path, new_path))
    return found


def log_former_names(names: list[FormerName]) -> None:
    for one in names:
        fields = {"setting": one.setting, "at": one.place, "new_name": one.new_name, "accepted_until": "1.0"}
        log.warning("a setting has its former name", extra=fields)


def _find_former_names(data: Any) -> Iterator[tuple[Path, str]]:
    """Inner settings before the settings around them, so that the paths stay right while names are replaced."""
    tables: Path = ("erasure", "tables")
    entries = _get(data, tables)
    for address, table in entries.items() if isinstance(entries, dict) else ():
        if not isinstance(table, dict):
            continue
        for list_name in ("others", "other_subjects"):
            people = table.get(list_name)
            for index, person in enumerate(people) if isinstance(people, list) else ():
                if isinstance(person, dict) and "path" in person:
                    yield (*tables, address, list_name, index, "path"), "identified_by"
        if "path" in table:
            yield (*tables, address, "path"), "identified_by"
        if "others" in table:
            yield (*tables, address, "others"), "other_subjects"


def _get(data: Any, path: Path) -> Any:
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step]
        else:
            return None
    return data


def _move(entries: dict[Path, T], old: Path, new: Path) -> dict[Path, T]:
    return {(*new, *path[len(old) :]) if path[: len(old)] == old else path: one for path, one in entries.items()}
