"""The checks of a parsed file: each part by its model, then what holds between the parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cdf.errors import ConfigError
from connectors.registry import NamesTarget, sink_kind
from infra.config.document import Document
from infra.config.messages import in_words, nearest
from infra.config.model import Project
from infra.config.problems import Path, Report
from infra.config.quoting import shown_key
from infra.config.secrets import MASK
from infra.config.shape import as_written, kind_at, kinds, known_keys, sight

__all__ = ["Check"]


class _Unjudged(BaseModel):
    """Stands for settings that have faults of their own, so that the rest can be judged."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Check:
    """The checks of one parsed file. Each part is checked even where others have faults."""

    def __init__(self, document: Document, report: Report, data: dict[str, Any], failed: frozenset[Path]) -> None:
        self.document = document
        self.report = report
        self.data = data
        self.failed = failed

    def project(self, folder: FilePath) -> Project | None:
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
        checked = self.validate(Project, data, (), folder)
        self.check_targets(data)
        return checked if isinstance(checked, Project) else None

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
                model = sink_kind(kind).connection
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
        sink = entry.get("sink")
        if not isinstance(sink, dict):
            return entry
        path: Path = ("pipelines", name, "sink")
        connection, options = sink.get("connection"), {key: sink[key] for key in sink if key != "connection"}
        connections = self.data.get("connections")
        known: dict[str, Any] = connections if isinstance(connections, dict) else {str(connection): None}
        if isinstance(connection, str) and connection not in known and (*path, "connection") not in self.failed:
            names = [shown_key(one) for one in known]
            self.add((*path, "connection"), "is no entry under `connections`" + nearest(connection, names))
        kind = kind_at(self.data, path)
        checked = self.validate(kind.options, options, path) if kind is not None else None
        named = {"connection": connection} if "connection" in sink else {}
        return {**entry, "sink": {**named, "options": checked or _Unjudged()}}

    def validate(
        self, model: type[BaseModel], data: dict[str, Any], prefix: Path, folder: FilePath | None = None
    ) -> BaseModel | None:
        if model is not Project:  # our own models do this for themselves
            data = {key: value for key, value in data.items() if value is not None or key not in model.model_fields}
        faults: list[Any] = []
        try:
            return model.model_validate(data, context={"folder": folder})
        except ValidationError as error:
            faults = list(error.errors(include_url=False, include_input=False))
        for fault in faults:
            self.tell(fault, prefix)
        return None

    def tell(self, fault: Mapping[str, Any], prefix: Path) -> None:
        path: Path = as_written(self.data, (*prefix, *fault["loc"]))
        if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
            path = (*path, "kind")
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
            (self.add_at_key if is_key else self.add)(path, message)

    def missing(self, path: Path, *, hint: str | None = None) -> None:
        if path in self.document.keys:
            self.add_at_key(path, "has no value")
            return
        span = self.document.place_of_key(path[:-1])
        hint = "add `version: 1` at the top of the file" if path == ("version",) else hint
        self.report.add(span.line, span.column, path, "is missing", hint=hint)

    def check_targets(self, data: dict[str, Any]) -> None:
        """Two pipelines that write one target would undo each other's work."""
        first: list[tuple[str, object, object]] = []
        for name, entry in data["pipelines"].items() if isinstance(data.get("pipelines"), dict) else ():
            path: Path = ("pipelines", name, "sink")
            sink, kind = _at(entry, ("sink",)), kind_at(self.data, path)
            options = _at(sink, ("options",))
            settings = _at(data, ("connections", _at(sink, ("connection",)), "settings"))
            if kind is None or isinstance(options, _Unjudged) or any(one[:3] == path for one in self.failed):
                continue
            # two connections with the same settings are one and the same
            where = _at(sink, ("connection",)) if isinstance(settings, _Unjudged) else (kind.name, settings)
            target = kind.target(options) if isinstance(kind, NamesTarget) else options
            twin = next((other for other, *rest in first if rest == [where, target]), None)
            if twin is not None:
                line = self.document.place_of_key(("pipelines", twin, "sink")).line
                message = f"writes the same target as the pipeline {shown_key(twin)} in line {line}"
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
