"""How sink kinds are found: the built-in ones by name, those of others by entry point.

A third party offers a kind from its own package; ``kind: mykind`` in the configuration then finds it::

    [project.entry-points."deltarelay.sinks"]
    mykind = "my_package.deltarelay:MYKIND"      # an object that implements SinkKind
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry
    from cdf.sink.contract import Sink

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "AsksAround",
    "NamesTarget",
    "SinkKind",
    "Surroundings",
    "sink_kind",
    "sink_kinds",
]

BUILT_IN = {
    "delta_audit": "connectors.delta_audit.config:DELTA_AUDIT",
    "kafka": "connectors.kafka.config:KAFKA",
    "postgres": "connectors.postgres.config:POSTGRES",
}
ENTRY_POINT_GROUP = "deltarelay.sinks"


@runtime_checkable
class SinkKind(Protocol):
    """A kind of sink: what may be configured for it, and how one is made.

    Both models are frozen and refuse unknown fields (``extra="forbid"``), hold passwords as ``SecretStr``, and are
    importable without the driver of the target.
    """

    @property
    def name(self) -> str:
        """What ``kind:`` says; the same as the name of the entry point."""
        ...

    @property
    def connection(self) -> type[BaseModel]:
        """The fields of a ``connections:`` entry besides ``kind``."""
        ...

    @property
    def options(self) -> type[BaseModel]:
        """The fields of a pipeline's ``sink:`` besides ``connection``."""
        ...

    def build(self, connection: Any, options: Any, *, pipeline: str) -> Sink:
        """Make the sink from validated settings; opens no connection. The driver is imported here and not before."""
        ...


@runtime_checkable
class NamesTarget(Protocol):
    """Optional power of a kind: say which target the options mean, however they are written.

    Two pipelines of one connection must not share a target. Without this power, equal options mean the same target.
    """

    def target(self, options: Any) -> str: ...


class Surroundings(Protocol):
    """What a kind may ask of the rest of the configuration."""

    def connection(self, name: str, kind: str) -> Any:
        """The settings of the connection of that name. Raises ConfigError where there is none, or one of another kind."""
        ...

    def s3_client(self, bucket: str) -> Any:
        """A boto3 client, with the credentials and the endpoint that the file has for that bucket."""
        ...

    def delta_rs_options(self, address: str) -> Mapping[str, str] | None:
        """What delta-rs is to be told to read a table there; asks its bucket first."""
        ...

    def sealing(self, pipeline: str) -> ColumnEncryption | None:
        """What is to be sealed in a history of the pipeline's table; None where nothing is."""
        ...

    def key_registry(self) -> Callable[[], Registry] | None:
        """Opens the registry of people's keys; None where there is none. There may be one where nothing is to be sealed."""
        ...


@runtime_checkable
class AsksAround(Protocol):
    """Optional power of a kind: make its sink with what stands elsewhere in the configuration, in place of ``build``."""

    def build_among(self, connection: Any, options: Any, *, pipeline: str, among: Surroundings) -> Sink: ...


def sink_kinds() -> dict[str, SinkKind]:
    """Every known kind by name. A kind is imported when it is used, and only then complains about being broken."""
    return {name: _Late(name, import_it) for name, import_it in sorted(_sources().items())}


def sink_kind(name: str) -> SinkKind:
    """The kind of that name, imported and checked."""
    sources = _sources()
    if name not in sources:
        near = difflib.get_close_matches(name, sources, n=1)
        known = ", ".join(sorted(sources))
        raise ConfigError(
            f"unknown sink kind `{name}`" + (f"; did you mean `{near[0]}`?" if near else f"; known kinds: {known}"),
            hint=f"set kind to one of {known}, or install the package that brings `{name}`",
            known=sorted(sources),
        )
    return _checked(name, sources[name])


def _sources() -> dict[str, Callable[[], Any]]:
    sources: dict[str, Callable[[], Any]] = {name: _importer(where) for name, where in BUILT_IN.items()}
    offered: dict[str, str] = {}
    for point in _entry_points():
        if point.name in BUILT_IN:
            raise ConfigError(
                f"the entry point {point.name} = {point.value} takes the name of a built-in sink kind",
                hint=f"uninstall the package that brings {point.value}, or have it choose another name",
            )
        # one package may be found twice on the path (an editable install does it): that is no conflict
        if offered.setdefault(point.name, point.value) != point.value:
            raise ConfigError(
                f"two packages offer the sink kind `{point.name}`: {offered[point.name]} and {point.value}",
                hint="uninstall one of the two packages",
            )
        sources[point.name] = point.load
    return sources


@functools.cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    # a look at every installed package: slow enough to do it once
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def _importer(where: str) -> Callable[[], Any]:
    def import_it() -> Any:
        module, _, attribute = where.partition(":")
        return getattr(importlib.import_module(module), attribute)

    return import_it


def _checked(name: str, import_it: Callable[[], Any]) -> SinkKind:
    hint = f"repair or uninstall the package that brings the entry point `{name}` of the group {ENTRY_POINT_GROUP}"
    try:
        found = import_it()
    except Exception as error:  # the code of others: whatever it raises, the name of the kind is what helps
        raise ConfigError(f"the sink kind `{name}` cannot be imported ({type(error).__name__})", hint=hint) from error
    if fault := _fault(name, found):
        raise ConfigError(f"the sink kind `{name}` is broken: {fault}", hint=hint)
    kind: SinkKind = found
    return kind


def _fault(name: str, found: Any) -> str | None:
    from pydantic import BaseModel

    if isinstance(found, type) or not isinstance(found, SinkKind):
        return "the entry point must name an object with name, connection, options and build"
    if found.name != name:
        return f"it calls itself `{found.name}`"
    for part, reserved in (("connection", "kind"), ("options", "connection")):
        model = getattr(found, part)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return f"{part} is not a pydantic model"
        if reserved in model.model_fields:
            return f"{part} has a field `{reserved}`, a name that the configuration file uses itself"
        if model.model_config.get("extra") != "forbid":
            return f'{part} lets unknown fields pass; give the model extra="forbid"'
    return None


class _Late:
    """A kind that is imported at its first use."""

    def __init__(self, name: str, import_it: Callable[[], Any]) -> None:
        self.name = name
        self._import_it = import_it

    def __repr__(self) -> str:
        return f"<sink kind {self.name}>"

    @property
    def connection(self) -> type[BaseModel]:
        return _checked(self.name, self._import_it).connection

    @property
    def options(self) -> type[BaseModel]:
        return _checked(self.name, self._import_it).options

    def build(self, connection: Any, options: Any, *, pipeline: str) -> Sink:
        return _checked(self.name, self._import_it).build(connection, options, pipeline=pipeline)
