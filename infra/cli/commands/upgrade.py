"""``deltarelay upgrade``: runs the pending migrations of every schema in PostgreSQL that a configuration uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cdf.result import Result
from infra.cli.confirm import confirm, require_terminal
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Yes
from infra.cli.project import load_project
from infra.output import Output, format_count

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["SchemaUpgrade", "Upgrade", "upgrade"]


@dataclass(frozen=True, slots=True)
class SchemaUpgrade(Result):
    connection: str
    name: str
    """What the schema holds, with its name."""
    exists: bool
    """False: a command that uses it creates it."""
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Upgrade(Result):
    schemas: tuple[SchemaUpgrade, ...]


class _Migrated(Protocol):
    def find_pending(self) -> tuple[str, ...] | None: ...

    def prepare(self) -> None: ...


def upgrade(yes: Yes = False, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show and run the pending migrations of the state of pipelines, the erasure register and the key registry.

    Stop running pipelines first. `run`, `erase init` and `keys init` run the migrations as well, without asking.
    """
    output = Output("upgrade", as_json, debug)
    found = [
        (schema, SchemaUpgrade(connection, name, pending is not None, pending or ()))
        for connection, name, schema in _find_schemas(load_project(config))
        for pending in [schema.find_pending()]
    ]
    for _, one in found:
        output.line(f"{one.name} ({one.connection}): {_describe(one)}")
        for statement in one.statements:
            output.line(f"  {statement}")
    waiting = [schema for schema, one in found if one.statements]
    if waiting and not yes:
        require_terminal("upgrade")
        output.note(f"{format_count(len(waiting), 'schema')} will be migrated; there is no way back but a backup")
        confirm()
    for schema in waiting:
        schema.prepare()
    if waiting:
        output.line(f"{format_count(len(waiting), 'schema')} migrated")
    output.result(Upgrade(tuple(one for _, one in found)))


def _describe(one: SchemaUpgrade) -> str:
    if not one.exists:
        return "not created yet"
    return format_count(len(one.statements), "pending statement") if one.statements else "up to date"


def _find_schemas(project: Project) -> Iterator[tuple[str, str, _Migrated]]:
    """Yield each schema with the name of its connection and its own name."""
    from connectors.registry import get_sink_kind
    from connectors.sink_kind import MigratedKind

    for name in dict.fromkeys(one.sink.connection for one in project.pipelines.values()):
        connection = project.connections[name]
        kind = get_sink_kind(connection.kind)
        if isinstance(kind, MigratedKind):
            database = kind.open_state(connection.settings)
            yield name, database.name, database
    if (erasure := project.erasure) is not None:
        from audit.erasure.register.store import Register

        schema = erasure.state.schema_name
        yield erasure.state.connection, f"the erasure register {schema}", Register(project.erasure_dsn(), schema=schema)
        if (keys := erasure.key_registry) is not None:
            yield keys.connection, f"the key registry {keys.schema_name}", project.key_registry()
