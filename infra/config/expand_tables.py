"""Replaces each pipeline with ``tables`` by one per matching table, with the settings of that table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from cdf.errors import ConfigError
from infra.config.file.problems import Path
from infra.config.known_keys import find_kind
from infra.config.messages import suggest_name
from infra.config.pipeline_models import Pipeline, TableOverrides
from infra.config.table_patterns import (
    fill_in_name,
    find_excluded,
    has_wildcard,
    is_catalog_pattern,
    list_tables,
    split_address,
    table_name,
)

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.config.validate import Check

__all__ = ["ListSchema", "expand_tables"]

ListSchema = Callable[["Project", str], list[str]]
"""Lists the tables of a pattern such as ``sales.*`` with the settings of the project."""

_Settings = TypeVar("_Settings", bound=BaseModel)

log = logging.getLogger("deltarelay.config")


def expand_tables(check: Check, project: Project, list_schema: ListSchema | None) -> Project:
    """The pipelines in the file's order, those of one pattern by name. Problems are added to the report of ``check``.

    ``list_schema`` lists the tables of a pattern such as ``sales.*`` with Spark; None: such a pattern stays one pipeline.
    """
    pipelines: dict[str, Pipeline] = {}
    families: dict[str, str] = {}
    for name, pipeline in project.pipelines.items():
        pattern = pipeline.source.tables
        if pattern is None or (list_schema is None and is_catalog_pattern(pattern)):
            pipelines[name] = pipeline
            continue
        members = _Expansion(check, project, name, pipeline, list_schema).expand()
        pipelines |= members
        families |= dict.fromkeys(members, name)
    expanded = project.model_copy(update={"pipelines": pipelines})
    if families and not check.report.problems:
        sinks = {name: {"sink": dict(one.sink)} for name, one in pipelines.items()}
        check.check_targets({"pipelines": sinks, "connections": expanded.connections}, families)
    return expanded


class _Expansion:
    """The tables of one pipeline."""

    def __init__(
        self, check: Check, project: Project, name: str, pipeline: Pipeline, list_schema: ListSchema | None
    ) -> None:
        self.check = check
        self.project = project
        self.name = name
        self.pipeline = pipeline
        self.list_schema = list_schema
        self.source: Path = ("pipelines", name, "source")
        self.sink: Path = ("pipelines", name, "sink")

    def expand(self) -> dict[str, Pipeline]:
        pattern, tables_path = self.pipeline.source.table, (*self.source, "tables")
        try:
            if self.list_schema is not None and is_catalog_pattern(pattern):
                addresses = self.list_schema(self.project, pattern)
            else:
                addresses = list_tables(pattern, self.project.storage)
        except ConfigError as error:
            self.check.add(tables_path, error.message, hint=error.hint)
            return {}
        found = {split_address(address)[1]: address for address in addresses}
        excluded = find_excluded(list(found), self.pipeline.source.exclude)
        replicated = {table: address for table, address in found.items() if table not in excluded}
        if not found:
            hint = "list that folder: a Delta table is a folder that contains _delta_log, and its name must match"
            if is_catalog_pattern(pattern):
                hint = (
                    "views and tables of other formats are left out; set the catalog of the session under `spark.conf`"
                )
            self.check.add(tables_path, f"no Delta table matches {pattern}", hint=hint)
            return {}
        if not replicated:
            self.check.add_at_key((*self.source, "exclude"), f"leaves out every table that matches {pattern}")
            return {}
        self.check_names(list(found), list(replicated))
        members: dict[str, Pipeline] = {}
        for folder, address in replicated.items():
            try:
                table = table_name(address)
            except ValueError as error:
                self.check.add(tables_path, f"matches {address}: {error}")
                continue
            if (member := self.build_member(table, folder, address)) is not None:
                members[f"{self.name}.{table}"] = member
        return members

    def check_names(self, found: list[str], replicated: list[str]) -> None:
        """An override without a table is refused: its table would be replicated with the key of all others."""
        for table in self.pipeline.source.overrides:
            path = (*self.source, "overrides", table)
            if table in found and table not in replicated:
                self.check.add_at_key(path, "is left out by `exclude`; remove it from one of the two")
            elif table not in found:
                pattern = self.pipeline.source.table
                near = suggest_name(table, replicated)
                near = near if len(replicated) <= 20 or "did you mean" in near else ""  # no list of hundreds of names
                self.check.add_at_key(path, f"is not a table that matches {pattern}{near}")
        for index, name in enumerate(self.pipeline.source.exclude):
            if name not in found and not has_wildcard(name):
                # only a warning: a table that was left out and is gone must not stop all others
                span = self.check.document.locate((*self.source, "exclude", index))
                fields = {"excluded": name, "at": f"{self.check.report.file}:{span.line}:{span.column}"}
                log.warning("a name under `exclude` is not a table that `tables` matches", extra=fields)

    def build_member(self, table: str, folder: str, address: str) -> Pipeline | None:
        own = self.pipeline.source.overrides.get(folder) or TableOverrides()
        written = _at(self.check.data, self.sink)
        options_data = {key: value for key, value in written.items() if key != "connection"} | own.sink
        kind = find_kind(self.check.data, self.sink)
        options = kind and self.check.validate(
            kind.options,
            fill_in_name(options_data, table),
            self.sink,
            about=f"for the table {table}: ",
            elsewhere=dict.fromkeys(own.sink, (*self.source, "overrides", folder, "sink")),
        )
        if options is None:
            return None
        settings: dict[str, Any] = {"table": address, "exclude": (), "overrides": {}}
        settings |= {} if own.key is None else {"key": own.key}
        settings |= {} if own.start is None else {"start": own.start}
        return self.pipeline.model_copy(
            update={
                "source": self.pipeline.source.model_copy(update=settings),
                "sink": self.pipeline.sink.model_copy(update={"options": options}),
                "window": _override(self.pipeline.window, own.window),
                "brakes": _override(self.pipeline.brakes, own.brakes),
            }
        )


def _override(settings: _Settings, own: _Settings | None) -> _Settings:
    """The settings that ``own`` sets replace those of the pipeline one by one."""
    if own is None:
        return settings
    return settings.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def _at(data: Any, path: Path) -> dict[str, Any]:
    for step in path:
        data = data[step]
    return dict(data)
