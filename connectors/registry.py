"""Finds sink kinds: the built-in ones by name, those of other packages by entry point.

Another package offers a kind like this; ``kind: mykind`` in the configuration then finds it::

    [project.entry-points."deltarelay.sinks"]
    mykind = "my_package.deltarelay:MYKIND"      # an object that implements SinkKind
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError
from connectors.sink_kind import SinkKind

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cdf.sink import Sink

__all__ = ["BUILT_IN", "ENTRY_POINT_GROUP", "get_sink_kind", "list_sink_kinds"]

BUILT_IN = {
    "delta_audit": "connectors.delta_audit.config:DELTA_AUDIT",
    "kafka": "connectors.kafka.config:KAFKA",
    "postgres": "connectors.postgres.config:POSTGRES",
}
ENTRY_POINT_GROUP = "deltarelay.sinks"


def list_sink_kinds() -> dict[str, SinkKind]:
    """Return every known kind by name. A kind is imported at its first use, and raises an error then if it is broken."""
    return {name: _LazyKind(name, import_kind) for name, import_kind in sorted(_list_importers().items())}


def get_sink_kind(name: str) -> SinkKind:
    """Import and check the kind with that name."""
    importers = _list_importers()
    if name not in importers:
        near = difflib.get_close_matches(name, importers, n=1)
        known = ", ".join(sorted(importers))
        raise ConfigError(
            f"unknown sink kind `{name}`" + (f"; did you mean `{near[0]}`?" if near else f"; known kinds: {known}"),
            hint=f"set kind to one of {known}, or install the package that provides `{name}`",
            known=sorted(importers),
        )
    return _load_kind(name, importers[name])


def _list_importers() -> dict[str, Callable[[], Any]]:
    importers: dict[str, Callable[[], Any]] = {name: _build_importer(path) for name, path in BUILT_IN.items()}
    offered: dict[str, str] = {}
    for point in _list_entry_points():
        if point.name in BUILT_IN:
            raise ConfigError(
                f"the entry point {point.name} = {point.value} takes the name of a built-in sink kind",
                hint=f"uninstall the package that provides {point.value}, or change its name",
            )
        # One package may be on the path twice (an editable install does this): that is not a conflict
        if offered.setdefault(point.name, point.value) != point.value:
            raise ConfigError(
                f"two packages offer the sink kind `{point.name}`: {offered[point.name]} and {point.value}",
                hint="uninstall one of the two packages",
            )
        importers[point.name] = point.load
    return importers


@functools.cache
def _list_entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    # Cached because it reads the metadata of every installed package
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def _build_importer(path: str) -> Callable[[], Any]:
    def import_kind() -> Any:
        module, _, attribute = path.partition(":")
        return getattr(importlib.import_module(module), attribute)

    return import_kind


def _load_kind(name: str, import_kind: Callable[[], Any]) -> SinkKind:
    hint = f"repair or uninstall the package that provides the entry point `{name}` of the group {ENTRY_POINT_GROUP}"
    try:
        found = import_kind()
    except Exception as error:  # code of another package may raise anything; the name of the kind is what helps
        raise ConfigError(f"the sink kind `{name}` cannot be imported ({type(error).__name__})", hint=hint) from error
    if fault := _find_fault(name, found):
        raise ConfigError(f"the sink kind `{name}` is broken: {fault}", hint=hint)
    kind: SinkKind = found
    return kind


def _find_fault(name: str, found: Any) -> str | None:
    from pydantic import BaseModel

    if isinstance(found, type) or not isinstance(found, SinkKind):
        return "the entry point must name an object with name, connection, options and build"
    if found.name != name:
        return f"its name is `{found.name}`"
    for part, reserved in (("connection", "kind"), ("options", "connection")):
        model = getattr(found, part)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return f"{part} is not a pydantic model"
        if reserved in model.model_fields:
            return f"{part} has a field `{reserved}`, a name that the configuration file itself uses"
        if model.model_config.get("extra") != "forbid":
            return f'{part} accepts unknown fields; set extra="forbid" in the model'
    return None


class _LazyKind:
    """A kind that is imported at its first use."""

    def __init__(self, name: str, import_kind: Callable[[], Any]) -> None:
        self.name = name
        self._import_kind = import_kind

    def __repr__(self) -> str:
        return f"<sink kind {self.name}>"

    @property
    def connection(self) -> type[BaseModel]:
        return _load_kind(self.name, self._import_kind).connection

    @property
    def options(self) -> type[BaseModel]:
        return _load_kind(self.name, self._import_kind).options

    def build(self, connection: Any, options: Any, *, pipeline: str) -> Sink:
        return _load_kind(self.name, self._import_kind).build(connection, options, pipeline=pipeline)
