"""The keys that a configuration file may contain at each path, and which values are secret.

The file writes a connection's settings next to ``kind`` and a sink's options next to ``connection``; the models separate
them. This module follows the layout of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr

from cdf.errors import ConfigError
from connectors.registry import get_sink_kind
from connectors.sink_kind import SinkKind
from infra.config.file.problems import Path
from infra.config.models import Project
from infra.config.pipeline_models import Connection, SinkTarget

__all__ = ["find_kind", "is_secret", "list_keys", "list_kinds", "to_file_path"]

_CREDENTIAL_SOURCE = re.compile(r"default$|env$|profile:|assume_role:")
_CONTAINERS = (dict, Mapping, tuple, list)


def find_kind(data: Any, path: Path) -> SinkKind | None:
    """The sink kind of ``connections.X`` or ``pipelines.X.sink``; None where the file names no known one."""
    name = path[1] if path[0] == "connections" else _get(data, *_share_options(path), "connection")
    kind = _get(data, "connections", name, "kind")
    if not isinstance(kind, str):
        return None
    try:
        return get_sink_kind(kind)
    except ConfigError:  # reported when the connection is validated
        return None


def list_keys(data: Any, path: Path) -> list[str]:
    """The keys that the mapping at the path may contain."""
    fields = _list_fields(_resolve(data, path), data, path)
    return list(fields) if fields else []


def is_secret(data: Any, path: Path) -> bool:
    """Whether the setting at the path holds a secret."""
    declared = _resolve(data, path)
    return declared is not None and (_is_secret_type(declared) or _is_pasted_key(data, path))


def _is_pasted_key(data: Any, path: Path) -> bool:
    """``storage.s3.credentials`` names the source of the credentials; any other text there may be a credential."""
    if path[:1] != ("storage",) or path[-1] != "credentials":
        return False
    written = _get(data, *path)
    return not isinstance(written, str) or _CREDENTIAL_SOURCE.match(written) is None


def list_kinds(data: Any, path: Path) -> list[str]:
    """The values of ``kind`` that choose between the models at the path; empty where there is no choice."""
    return [kind for model in _list_models(_resolve(data, path)) for kind in _list_kinds_of(model)]


def to_file_path(data: Any, path: Path) -> Path:
    """A path of pydantic's as the file has it: pydantic inserts the chosen kind before the settings of that kind."""
    file_path: Path = ()
    is_chosen = False
    for step in path:
        is_kind = not is_chosen and step in list_kinds(data, file_path)
        is_chosen = is_kind
        if not is_kind:
            file_path = (*file_path, step)
    return file_path


def _share_options(path: Path) -> Path:
    """The options of one table under ``overrides`` are those of its pipeline."""
    is_override = path[2:4] == ("source", "overrides") and path[5:6] == ("sink",)
    return (*path[:2], *path[5:]) if is_override else path


def _resolve(data: Any, path: Path) -> Any:
    """The declared type of the setting at the path; None: unknown."""
    path = _share_options(path)
    declared: Any = Project
    for depth, step in enumerate(path):
        fields = _list_fields(declared, data, path[:depth])
        if fields is not None:
            declared = fields.get(step) if isinstance(step, str) else None
        elif get_origin(declared) in _CONTAINERS and not _is_scalar_step(declared, step):
            declared = [kind for kind in get_args(declared) if kind is not Ellipsis][-1]
        else:
            return None
        declared = _unwrap(declared)
    return declared


def _is_scalar_step(declared: Any, step: str | int) -> bool:
    return isinstance(step, int) == (get_origin(declared) in (dict, Mapping))


def _list_fields(declared: Any, data: Any, path: Path) -> Mapping[str, Any] | None:
    if several := _list_models(declared):
        kind = _get(data, *path, "kind")
        chosen = [model for model in several if kind in _list_kinds_of(model)] or several
        return {name: field for model in chosen for name, field in (_list_fields(model, data, path) or {}).items()}
    if not (isinstance(declared, type) and issubclass(declared, BaseModel)):
        return None
    fields = {field.alias or name: field.annotation for name, field in declared.model_fields.items()}
    if declared is Connection or declared is SinkTarget:
        del fields["settings" if declared is Connection else "options"]
        if kind := find_kind(data, path):
            model = kind.connection if declared is Connection else kind.options
            fields |= {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return fields


def _list_models(declared: Any) -> list[type[BaseModel]]:
    """The models of a union that ``kind`` chooses from, also where the setting is optional."""
    declared = _unwrap(declared)
    if not _is_union(declared):
        return []
    options = [_unwrap(option) for option in get_args(declared)]
    nested = [model for option in options for model in _list_models(option)]
    models = [
        option
        for option in options
        if isinstance(option, type) and issubclass(option, BaseModel) and _list_kinds_of(option)
    ]
    return [*models, *nested]


def _list_kinds_of(model: type[BaseModel]) -> list[str]:
    field = model.model_fields.get("kind")
    declared = None if field is None else field.annotation
    return list(get_args(declared)) if get_origin(declared) is Literal else []


def _unwrap(declared: Any) -> Any:
    """The type without ``Annotated`` and without ``| None``."""
    while True:
        if get_origin(declared) is Annotated:
            declared = get_args(declared)[0]
            continue
        options = [one for one in get_args(declared) if one is not type(None)] if _is_union(declared) else []
        if len(options) != 1:
            return declared
        declared = options[0]


def _is_secret_type(declared: Any) -> bool:
    declared = _unwrap(declared)
    if declared in (SecretStr, SecretBytes) or hasattr(get_origin(declared) or declared, "get_secret_value"):
        return True
    return _is_union(declared) and any(_is_secret_type(option) for option in get_args(declared))


def _is_union(declared: Any) -> bool:
    return get_origin(declared) is Union or type(declared).__name__ == "UnionType"


def _get(data: Any, *steps: Any) -> Any:
    for step in steps:
        if not (isinstance(data, dict) and isinstance(step, str)):
            return None
        data = data.get(step)
    return data
