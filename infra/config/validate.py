"""The checks of a parsed file: each part by its model, then what holds between the parts."""

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
from infra.config.known_keys import as_written, kind_at, kinds, known_keys, sight
from infra.config.messages import in_words, nearest
from infra.config.models import Connection, Pipeline, Project
from infra.config.problems import Path, Report
from infra.config.references import MASK
from infra.config.source_excerpt import shown_key
from infra.config.table_patterns import NAME, fill, names_table, table_name, tables_at
from infra.config.yaml_document import Document

__all__ = ["Check"]

_ANY = "name"
"""Stands for the name of a table while it is not known which there are: what else the options say is judged with it."""


class _Unjudged(BaseModel):
    """Stands for settings that have faults of their own, so that the rest can be judged."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Check:
    """The checks of one parsed file. Each part is checked even where others have faults."""

    def __init__(
        self, document: Document, report: Report, data: dict[str, Any], failed: frozenset[Path], folder: FilePath
    ) -> None:
        """``folder``: where relative paths start."""
        self.folder = folder
        self.document = document
        self.report = report
        self.data = data
        self.failed = failed

    def project(self, *, look_for_tables: bool = True) -> Project | None:
        version = self.data.get("version")
        if version is not None and (version != 1 or isinstance(version, bool)):
            # the rest of the file follows rules that we do not know
            message = "is not supported; this release reads version 1"
            self.add(("version",), message, hint="set `version: 1`")
            return None
        self.hide_literals()
        data = {
            **self.data,
            "connections": self.each("connections", self.connection),
            "pipelines": self.each("pipelines", self.pipeline),
        }
        for part in ("connections", "pipelines"):
            if part not in self.data:
                del data[part]
        checked = self.validate(Project, data, ())
        self.check_targets(data, {})
        self.check_erasure_connection("state", "the state of an erasure is")
        self.check_erasure_connection("keys", "the keys of persons are")
        self.check_keys_apart(data)
        if not isinstance(checked, Project) or self.report.problems or not look_for_tables:
            return checked if isinstance(checked, Project) else None
        return self.with_tables(checked)

    def with_tables(self, project: Project) -> Project:
        """Each pipeline with ``tables`` replaced by one for each table that they meet: the file's order, then by name."""
        entries: dict[str, Pipeline] = {}
        families: dict[str, str] = {}
        for name, entry in project.pipelines.items():
            if entry.source.tables is None:
                entries[name] = entry
                continue
            found = self.members(project, name, entry)
            entries |= found
            families |= dict.fromkeys(found, name)
        whole = project.model_copy(update={"pipelines": entries})
        if families and not self.report.problems:
            sinks = {name: {"sink": dict(entry.sink)} for name, entry in entries.items()}
            self.check_targets({"pipelines": sinks, "connections": whole.connections}, families)
        return whole

    def members(self, project: Project, name: str, entry: Pipeline) -> dict[str, Pipeline]:
        path: Path = ("pipelines", name)
        where: Path = (*path, "source", "tables")
        written = _at(self.data, (*path, "sink"))
        kind = kind_at(self.data, (*path, "sink"))
        pattern = entry.source.table
        try:
            addresses = tables_at(pattern, project.storage)
        except ConfigError as error:
            self.add(where, error.message, hint=error.hint)
            return {}
        if not addresses:
            hint = "see `ls` of that folder: a Delta table is a folder with a _delta_log in it, and its name has to fit"
            self.add(where, f"no Delta table is met by {pattern}", hint=hint)
        found: dict[str, Pipeline] = {}
        for address in addresses:
            try:
                member = table_name(address)
            except ValueError as error:
                self.add(where, f"meets {address}: {error}")
                continue
            given = {key: value for key, value in written.items() if key != "connection"}
            options = kind and self.validate(
                kind.options, fill(given, member), (*path, "sink"), about=f"for the table {member}: "
            )
            if options is not None:
                source = entry.source.model_copy(update={"table": address})
                sink = entry.sink.model_copy(update={"options": options})
                found[f"{name}.{member}"] = entry.model_copy(update={"source": source, "sink": sink})
        return found

    def hide_literals(self) -> None:
        for path in self.document.scalars:
            value = _at(self.data, path)
            if isinstance(value, str) and path[0] != "spark" and sight(self.data, path) == "secret":
                self.report.hidden.add(value)

    def each(self, part: str, check: Callable[[str, dict[str, Any]], Any]) -> Any:
        entries = self.data.get(part)
        if not isinstance(entries, dict):
            return entries
        return {name: check(name, entry) if isinstance(entry, dict) else entry for name, entry in entries.items()}

    def connection(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        path: Path = ("connections", name)
        kind, settings = entry.get("kind"), {key: value for key, value in entry.items() if key != "kind"}
        checked: BaseModel = _Unjudged()
        if isinstance(kind, str) and (*path, "kind") not in self.failed:
            fault: ConfigError | None = None
            try:
                model = get_sink_kind(kind).connection
            except ConfigError as error:
                fault = error
            if fault is not None and shown_key(kind) != kind:
                self.add((*path, "kind"), "is not the name of a sink kind")  # perhaps a dsn: not repeated
            elif fault is not None:
                self.add((*path, "kind"), fault.message, hint=fault.hint)
            else:
                checked = self.validate(model, settings, path) or checked
        return {**({"kind": kind} if "kind" in entry else {}), "settings": checked}

    def pipeline(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        if self.is_many(name) and _at(entry, ("source", "table")) is not None:
            path: Path = ("pipelines", name, "source", "tables")
            self.add_at_key(path, "stands beside `table`: write one of the two")
        sink = entry.get("sink")
        if not isinstance(sink, dict):
            return entry
        path = ("pipelines", name, "sink")
        connection, options = sink.get("connection"), {key: sink[key] for key in sink if key != "connection"}
        connections = self.data.get("connections")
        known: dict[str, Any] = connections if isinstance(connections, dict) else {str(connection): None}
        if isinstance(connection, str) and connection not in known and (*path, "connection") not in self.failed:
            names = [shown_key(one) for one in known]
            self.add((*path, "connection"), "is no entry under `connections`" + nearest(connection, names))
        kind = kind_at(self.data, path)
        if self.is_many(name):
            if not names_table(options):
                hint = 'write it where the target is named, such as table: "sales.{name}"'
                self.add_at_key(path, f"has no {NAME} in it, so that all tables would have one target", hint=hint)
            options = fill(options, _ANY)
        checked = self.validate(kind.options, options, path) if kind is not None else None
        named = {"connection": connection} if "connection" in sink else {}
        return {**entry, "sink": {**named, "options": checked or _Unjudged()}}

    def is_many(self, name: str) -> bool:
        return _at(self.data, ("pipelines", name, "source", "tables")) is not None

    def validate(
        self,
        model: type[BaseModel],
        data: dict[str, Any],
        prefix: Path,
        *,
        about: str = "",
    ) -> BaseModel | None:
        """``about``: which of several tables the data are for."""
        if model is not Project:  # our own models do this for themselves
            data = {key: value for key, value in data.items() if value is not None or key not in model.model_fields}
        faults: list[Any] = []
        try:
            return model.model_validate(data, context={"folder": self.folder})
        except ValidationError as error:
            faults = list(error.errors(include_url=False, include_input=False))
        for fault in faults:
            self.tell(fault, prefix, about)
        return None

    def tell(self, fault: Mapping[str, Any], prefix: Path, about: str = "") -> None:
        path: Path = as_written(self.data, (*prefix, *fault["loc"]))
        if parts := (fault.get("ctx") or {}).get(PARTS):
            for place, message in parts:
                self.add((*path, *place), message)
            return
        if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
            path = (*path, "kind")
        if path[2:] == ("source", "table") and path not in self.document.keys and self.is_many(str(path[1])):
            path = (*path[:-1], "tables")
        is_key = fault["type"] == "extra_forbidden"
        if path[-1] == "[key]":
            path, is_key = path[:-1], True
        if any(path[: len(failed)] == failed for failed in self.failed):
            return  # what could not be filled in has been told, and the rest follows from it
        if fault["type"] == "extra_forbidden":
            known = [key for key in known_keys(self.data, path[:-1]) if key not in self.known_at(path[:-1])]
            self.add_at_key(path, "unknown key" + nearest(str(path[-1]), known))
        elif fault["type"] == "missing":
            self.missing(path)
        elif fault["type"] == "union_tag_not_found":
            self.missing(path, hint=f"write kind: {' or kind: '.join(kinds(self.data, path[:-1]))}")
        else:
            message = in_words(fault, _at(self.data, path))
            if sight(self.data, path) == "secret":
                message = _without_pieces(message, _at(self.data, path))
            (self.add_at_key if is_key else self.add)(path, about + message)

    def check_erasure_connection(self, part: str, what: str) -> None:
        path: Path = ("erasure", part, "connection")
        name, connections = _at(self.data, path), self.data.get("connections")
        if not isinstance(name, str) or not isinstance(connections, dict) or path in self.failed:
            return
        if name not in connections:
            names = [shown_key(one) for one in connections]
            self.add(path, "is no entry under `connections`" + nearest(name, names))
        elif _at(connections, (name, "kind")) not in (None, "postgres"):  # a missing kind has been told
            self.add(path, f"is no connection of kind postgres, and {what} kept in such a one")

    def check_keys_apart(self, data: dict[str, Any]) -> None:
        """Whoever may read the requests, and their backups, is not to have the keys as well."""
        places = []
        for part, schema in (("state", "erasure"), ("keys", "keys")):
            block = _at(data, ("erasure", part))
            name = _at(block, ("connection",))
            settings = _settings(data, name)
            if settings is None or isinstance(settings, _Unjudged):
                return
            dsn = settings.dsn.get_secret_value() if hasattr(settings, "dsn") else None
            places.append((dsn, _at(block, ("schema",)) or schema))
        if places[0] == places[1]:
            path: Path = ("erasure", "keys", "schema")
            message = "is where `erasure.state` is; keys have a schema of their own, better a database of their own"
            self.add(path if path in self.document.keys else path[:-1], message)

    def missing(self, path: Path, *, hint: str | None = None) -> None:
        if path in self.document.keys:
            self.add_at_key(path, "has no value")
            return
        span = self.document.place_of_key(path[:-1])
        hint = "add `version: 1` at the top of the file" if path == ("version",) else hint
        self.report.add(span.line, span.column, path, "is missing", hint=hint)

    def check_targets(self, data: dict[str, Any], families: Mapping[str, str]) -> None:
        """Two pipelines that write one target would undo each other's work.

        ``families``: the pipeline of the file that each member was made of. Where it is not known yet which tables there
        are, their targets are not known either.
        """
        first: list[tuple[str, object, object]] = []
        for name, entry in data["pipelines"].items() if isinstance(data.get("pipelines"), dict) else ():
            family = families.get(name, name)
            path: Path = ("pipelines", family, "sink")
            sink, kind = _at(entry, ("sink",)), kind_at(self.data, path)
            options = _at(sink, ("options",))
            settings = _settings(data, _at(sink, ("connection",)))
            if kind is None or isinstance(options, _Unjudged) or any(one[:3] == path for one in self.failed):
                continue
            if name not in families and self.is_many(name):
                continue
            # two connections with the same settings are one and the same
            where = _at(sink, ("connection",)) if isinstance(settings, _Unjudged) else (kind.name, settings)
            target = kind.target(options) if isinstance(kind, TargetNaming) else options
            twin = next((other for other, *rest in first if rest == [where, target]), None)
            if twin is not None:
                line = self.document.place_of_key(("pipelines", families.get(twin, twin), "sink")).line
                whose = f"{name.removeprefix(family + '.')}: " if name in families else ""
                message = f"{whose}writes the same target as the pipeline {shown_key(twin)} in line {line}"
                self.add_at_key(path, message, hint="give each pipeline a target of its own")
            first.append((name, where, target))

    def known_at(self, path: Path) -> list[str]:
        here = _at(self.data, path)
        return list(here) if isinstance(here, dict) else []

    def add(self, path: Path, message: str, *, hint: str | None = None) -> None:
        span = self.document.place(path)
        self.report.add(span.line, span.column, self.shown(path), message, hint=hint)

    def add_at_key(self, path: Path, message: str, *, hint: str | None = None) -> None:
        span = self.document.place_of_key(path)
        self.report.add(span.line, span.column, self.shown(path), message, hint=hint)

    def shown(self, path: Path) -> Path:
        return tuple(shown_key(step) if isinstance(step, str) else step for step in path)


def _settings(data: Mapping[str, Any], connection: Any) -> Any:
    entry = _at(data, ("connections", connection))
    return entry.settings if isinstance(entry, Connection) else _at(entry, ("settings",))


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        is_there = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        if not is_there:
            return None
        data = data[step]
    return data


def _without_pieces(message: str, secret: object) -> str:
    """A parser's complaint about a connection string likes to repeat the part that it stumbled over."""
    for piece in re.split(r"[^A-Za-z0-9]+", str(secret)):
        if len(piece) >= 4:
            message = message.replace(piece, MASK)
    return message
