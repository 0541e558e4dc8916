"""The checks of a parsed file: each part by its model, then the relations between the parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cdf.errors import ConfigError
from connectors.registry import get_sink_kind
from connectors.sink_kind import TargetNaming
from infra.config.erasure_models import PARTS
from infra.config.expand_tables import ListSchema, expand_tables
from infra.config.file.problems import Path, Report, mask_key
from infra.config.file.yaml_document import Document
from infra.config.known_keys import find_kind, is_secret, list_keys, list_kinds, to_file_path
from infra.config.messages import explain_error, suggest_name
from infra.config.models import MASK, Project
from infra.config.pipeline_models import Connection
from infra.config.table_patterns import NAME, contains_name, fill_in_name

__all__ = ["Check"]

_ANY_TABLE = "name"
"""Replaces ``{name}`` while the tables are unknown, so that the other options can be checked."""


class _Invalid(BaseModel):
    """Replaces settings that have problems of their own, so that the rest can be checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Check:
    """The checks of one parsed file. Each part is checked even where other parts have problems."""

    def __init__(
        self, document: Document, report: Report, data: dict[str, Any], failed: frozenset[Path], folder: FilePath
    ) -> None:
        """``failed``: values with a reference that could not be replaced. ``folder``: where relative paths start."""
        self.folder = folder
        self.document = document
        self.report = report
        self.data = data
        self.failed = failed

    def check_project(self, *, look_for_tables: bool, list_schema: ListSchema | None = None) -> Project | None:
        version = self.data.get("version")
        if version is not None and (version != 1 or isinstance(version, bool)):
            # the rest of the file follows unknown rules
            message = "is not supported; this release reads version 1"
            self.add(("version",), message, hint="set `version: 1`")
            return None
        self.collect_secrets()
        data = {
            **self.data,
            "connections": self.check_each("connections", self.check_connection),
            "pipelines": self.check_each("pipelines", self.check_pipeline),
        }
        for part in ("connections", "pipelines"):
            if part not in self.data:
                del data[part]
        project = self.validate(Project, data, ())
        self.check_targets(data, {})
        self.check_connection_kind(("erasure", "state", "connection"), "postgres")
        self.check_connection_kind(("erasure", "keys", "connection"), "postgres")
        self.check_connection_kind(("lineage", "transport", "connection"), "kafka")
        self.check_keys_apart(data)
        if not isinstance(project, Project) or self.report.problems or not look_for_tables:
            return project if isinstance(project, Project) else None
        return expand_tables(self, project, list_schema)

    def collect_secrets(self) -> None:
        for path in self.document.scalars:
            value = _get(self.data, path)
            if isinstance(value, str) and path[0] != "spark" and is_secret(self.data, path):
                self.report.secrets.add(value)

    def check_each(self, part: str, check: Callable[[str, dict[str, Any]], Any]) -> Any:
        entries = self.data.get(part)
        if not isinstance(entries, dict):
            return entries
        return {name: check(name, entry) if isinstance(entry, dict) else entry for name, entry in entries.items()}

    def check_connection(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        path: Path = ("connections", name)
        kind, data = entry.get("kind"), {key: value for key, value in entry.items() if key != "kind"}
        settings: BaseModel = _Invalid()
        if isinstance(kind, str) and (*path, "kind") not in self.failed:
            problem: ConfigError | None = None
            try:
                model = get_sink_kind(kind).connection
            except ConfigError as error:
                problem = error
            if problem is not None and mask_key(kind) != kind:
                self.add((*path, "kind"), "is not the name of a sink kind")  # may be a misplaced dsn: not repeated
            elif problem is not None:
                self.add((*path, "kind"), problem.message, hint=problem.hint)
            else:
                settings = self.validate(model, data, path) or settings
        return {**({"kind": kind} if "kind" in entry else {}), "settings": settings}

    def check_pipeline(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        if self.has_pattern(name) and _get(entry, ("source", "table")) is not None:
            path: Path = ("pipelines", name, "source", "tables")
            self.add_at_key(path, "is set beside `table`; set only one of the two")
        self.check_only_with_pattern(name, entry)
        sink = entry.get("sink")
        if not isinstance(sink, dict):
            return entry
        path = ("pipelines", name, "sink")
        connection, options = sink.get("connection"), {key: sink[key] for key in sink if key != "connection"}
        connections = self.data.get("connections")
        known: dict[str, Any] = connections if isinstance(connections, dict) else {str(connection): None}
        if isinstance(connection, str) and connection not in known and (*path, "connection") not in self.failed:
            self.add_unknown_connection((*path, "connection"), connection, known)
        kind = find_kind(self.data, path)
        if self.has_pattern(name):
            if not contains_name(options):
                hint = 'add it where the target is named, such as table: "sales.{name}"'
                self.add_at_key(path, f"does not contain {NAME}, so that all tables would have one target", hint=hint)
            options = fill_in_name(options, _ANY_TABLE)
        valid_options = self.validate(kind.options, options, path) if kind is not None else None
        connection_part = {"connection": connection} if "connection" in sink else {}
        return {**entry, "sink": {**connection_part, "options": valid_options or _Invalid()}}

    def check_only_with_pattern(self, name: str, entry: dict[str, Any]) -> None:
        for setting in ("exclude", "overrides"):
            if _get(entry, ("source", setting)) and not self.has_pattern(name):
                self.add_at_key(("pipelines", name, "source", setting), "has no effect without `tables`; remove it")
        overrides = _get(entry, ("source", "overrides"))
        for table in overrides if isinstance(overrides, dict) else ():
            path: Path = ("pipelines", name, "source", "overrides", table, "sink", "connection")
            if path in self.document.keys:
                hint = "give the table a pipeline of its own with `table`, and name it under `exclude`"
                self.add_at_key(path, "cannot differ between the tables of one pipeline", hint=hint)

    def has_pattern(self, name: str) -> bool:
        """Whether the pipeline has ``tables`` instead of ``table``."""
        return _get(self.data, ("pipelines", name, "source", "tables")) is not None

    def validate(
        self,
        model: type[BaseModel],
        data: dict[str, Any],
        prefix: Path,
        *,
        about: str = "",
        elsewhere: Mapping[str, Path] | None = None,
    ) -> BaseModel | None:
        """``about``: the beginning of messages, for options of one of several tables. ``elsewhere``: the places of those
        settings that are not written at ``prefix``."""
        if model is not Project:  # our own models treat null like a missing key
            data = {key: value for key, value in data.items() if value is not None or key not in model.model_fields}
        errors: list[Any] = []
        try:
            return model.model_validate(data, context={"folder": self.folder})
        except ValidationError as error:
            errors = list(error.errors(include_url=False, include_input=False))
        for error_data in errors:
            setting = str(error_data["loc"][0]) if error_data["loc"] else ""
            self.report_error(error_data, (elsewhere or {}).get(setting, prefix), about)
        return None

    def report_error(self, error: Mapping[str, Any], prefix: Path, about: str = "") -> None:
        path: Path = to_file_path(self.data, (*prefix, *error["loc"]))
        if parts := (error.get("ctx") or {}).get(PARTS):
            for below, message in parts:
                self.add((*path, *below), message)
            return
        if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
            path = (*path, "kind")
        if path[2:] == ("source", "table") and path not in self.document.keys and self.has_pattern(str(path[1])):
            path = (*path[:-1], "tables")
        is_key = error["type"] == "extra_forbidden"
        if path[-1] == "[key]":
            path, is_key = path[:-1], True
        if any(path[: len(failed)] == failed for failed in self.failed):
            return  # a consequence of a reference that could not be replaced, which is reported already
        if error["type"] == "extra_forbidden":
            known = [key for key in list_keys(self.data, path[:-1]) if key not in self.list_written_keys(path[:-1])]
            self.add_at_key(path, "unknown key" + suggest_name(str(path[-1]), known))
        elif error["type"] == "missing":
            self.add_missing(path)
        elif error["type"] == "union_tag_not_found":
            self.add_missing(path, hint=f"write kind: {' or kind: '.join(list_kinds(self.data, path[:-1]))}")
        else:
            message = explain_error(error, _get(self.data, path))
            if is_secret(self.data, path):
                message = _mask_pieces(message, _get(self.data, path))
            (self.add_at_key if is_key else self.add)(path, about + message)

    def check_connection_kind(self, path: Path, kind: str) -> None:
        name, connections = _get(self.data, path), self.data.get("connections")
        if not isinstance(name, str) or not isinstance(connections, dict) or path in self.failed:
            return
        if name not in connections:
            self.add_unknown_connection(path, name, connections)
        elif _get(connections, (name, "kind")) not in (None, kind):  # a missing kind is reported already
            self.add(path, f"must be a connection of kind {kind}")

    def check_keys_apart(self, data: dict[str, Any]) -> None:
        """A role that may read the requests, or their backups, must not be able to read the keys as well."""
        places = []
        for part, schema in (("state", "erasure"), ("keys", "keys")):
            block = _get(data, ("erasure", part))
            settings = _get_settings(data, _get(block, ("connection",)))
            if settings is None or isinstance(settings, _Invalid):
                return
            dsn = settings.dsn.get_secret_value() if hasattr(settings, "dsn") else None
            places.append((dsn, _get(block, ("schema",)) or schema))
        if places[0] == places[1]:
            path: Path = ("erasure", "keys", "schema")
            message = "is the schema of `erasure.state`; store the keys in another schema, better in another database"
            self.add(path if path in self.document.keys else path[:-1], message)

    def check_targets(self, data: dict[str, Any], families: Mapping[str, str]) -> None:
        """Refuse two pipelines that write one target: they would overwrite each other.

        ``families``: for each expanded pipeline the one of the file. Where ``tables`` is not expanded yet, its targets are
        unknown and not compared.
        """
        first: list[tuple[str, object, object]] = []
        for name, entry in data["pipelines"].items() if isinstance(data.get("pipelines"), dict) else ():
            family = families.get(name, name)
            path: Path = ("pipelines", family, "sink")
            sink, kind = _get(entry, ("sink",)), find_kind(self.data, path)
            options = _get(sink, ("options",))
            settings = _get_settings(data, _get(sink, ("connection",)))
            if kind is None or isinstance(options, _Invalid) or any(one[:3] == path for one in self.failed):
                continue
            if name not in families and self.has_pattern(name):
                continue
            # two connections with the same settings are the same connection
            where = _get(sink, ("connection",)) if isinstance(settings, _Invalid) else (kind.name, settings)
            target = kind.target(options) if isinstance(kind, TargetNaming) else options
            twin = next((other for other, *rest in first if rest == [where, target]), None)
            if twin is not None:
                line = self.document.locate_key(("pipelines", families.get(twin, twin), "sink")).line
                member = f"{name.removeprefix(family + '.')}: " if name in families else ""
                message = f"{member}writes the same target as the pipeline {mask_key(twin)} in line {line}"
                self.add_at_key(path, message, hint="give each pipeline a target of its own")
            first.append((name, where, target))

    def list_written_keys(self, path: Path) -> list[str]:
        mapping = _get(self.data, path)
        return list(mapping) if isinstance(mapping, dict) else []

    def add_missing(self, path: Path, *, hint: str | None = None) -> None:
        if path in self.document.keys:
            self.add_at_key(path, "has no value")
            return
        span = self.document.locate_key(path[:-1])
        hint = "add `version: 1` at the top of the file" if path == ("version",) else hint
        self.report.add(span.line, span.column, path, "is missing", hint=hint)

    def add_unknown_connection(self, path: Path, name: str, connections: Mapping[str, Any]) -> None:
        known = [mask_key(one) for one in connections]
        self.add(path, "is not an entry under `connections`" + suggest_name(name, known))

    def add(self, path: Path, message: str, *, hint: str | None = None) -> None:
        span = self.document.locate(path)
        self.report.add(span.line, span.column, _mask_path(path), message, hint=hint)

    def add_at_key(self, path: Path, message: str, *, hint: str | None = None) -> None:
        span = self.document.locate_key(path)
        self.report.add(span.line, span.column, _mask_path(path), message, hint=hint)


def _mask_path(path: Path) -> Path:
    return tuple(mask_key(step) if isinstance(step, str) else step for step in path)


def _get_settings(data: Mapping[str, Any], connection: Any) -> Any:
    entry = _get(data, ("connections", connection))
    return entry.settings if isinstance(entry, Connection) else _get(entry, ("settings",))


def _get(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        is_present = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        if not is_present:
            return None
        data = data[step]
    return data


def _mask_pieces(message: str, secret: object) -> str:
    """Parsers of connection strings often repeat the part that they could not parse."""
    for piece in re.split(r"[^A-Za-z0-9]+", str(secret)):
        if len(piece) >= 4:
            message = message.replace(piece, MASK)
    return message
