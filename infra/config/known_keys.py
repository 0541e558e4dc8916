"""What a configuration file may hold at each path: which keys are known, and which values may be shown.

The file writes a connection's settings next to ``kind`` and a sink's options next to ``connection``; the models keep
them apart. This module knows the file's side of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr

from cdf.errors import ConfigError
from connectors.registry import get_sink_kind
from connectors.sink_kind import SinkKind
from infra.config.models import Connection, Project, SinkTarget
from infra.config.problems import Path

__all__ = ["Sight", "as_written", "kind_at", "kinds", "known_keys", "sight"]

_WHERE_KEYS_ARE = re.compile(r"default$|env$|profile:|assume_role:")
_CONTAINERS = (dict, Mapping, tuple, list)
Sight = Literal["branch", "plain", "secret", "unknown"]


def kind_at(data: Any, path: Path) -> SinkKind | None:
    """The kind that decides about ``connections.X`` or ``pipelines.X.sink``; None where it cannot be told."""
    name = path[1] if path[0] == "connections" else _get(data, *path, "connection")
    kind = _get(data, "connections", name, "kind")
    if not isinstance(kind, str):
        return None
    try:
        return get_sink_kind(kind)
    except ConfigError:  # whoever validates the connection reports it
        return None


def known_keys(data: Any, path: Path) -> list[str]:
    """The keys that may stand in the mapping at the path."""
    fields = _fields(_walk(data, path), data, path)
    return list(fields) if fields else []


def sight(data: Any, path: Path) -> Sight:
    """Whether a message may show what stands at the path: only the values of fields known to hold no secret."""
    declared = _walk(data, path)
    if declared is None:
        return "unknown"
    if _is_secret(declared) or _is_pasted_key(data, path):
        return "secret"
    is_branch = _fields(declared, data, path) is not None or get_origin(declared) in _CONTAINERS
    return "branch" if is_branch else "plain"


def _is_pasted_key(data: Any, path: Path) -> bool:
    """``storage.s3.credentials`` says where keys come from; what does not look like that may be one."""
    if path[:1] != ("storage",) or path[-1] != "credentials":
        return False
    written = _get(data, *path)
    return not isinstance(written, str) or _WHERE_KEYS_ARE.match(written) is None


def kinds(data: Any, path: Path) -> list[str]:
    """The values of ``kind`` that choose between the models at the path; empty where there is no choice."""
    return [kind for model in _models(_walk(data, path)) for kind in _kinds_of(model)]


def as_written(data: Any, path: Path) -> Path:
    """A path of pydantic's as it stands in the file: pydantic puts the chosen kind in front of what is below it."""
    found: Path = ()
    is_chosen = False
    for step in path:
        is_kind = not is_chosen and step in kinds(data, found)
        is_chosen = is_kind
        if not is_kind:
            found = (*found, step)
    return found


def _walk(data: Any, path: Path) -> Any:
    declared: Any = Project
    for depth, step in enumerate(path):
        fields = _fields(declared, data, path[:depth])
        if fields is not None:
            declared = fields.get(step) if isinstance(step, str) else None
        elif get_origin(declared) in _CONTAINERS and not _is_scalar_step(declared, step):
            declared = [kind for kind in get_args(declared) if kind is not Ellipsis][-1]
        else:
            return None
        declared = _bare(declared)
    return declared


def _is_scalar_step(declared: Any, step: str | int) -> bool:
    return isinstance(step, int) == (get_origin(declared) in (dict, Mapping))


def _fields(declared: Any, data: Any, path: Path) -> Mapping[str, Any] | None:
    if several := _models(declared):
        kind = _get(data, *path, "kind")
        chosen = [model for model in several if kind in _kinds_of(model)] or several
        return {name: one for model in chosen for name, one in (_fields(model, data, path) or {}).items()}
    if not (isinstance(declared, type) and issubclass(declared, BaseModel)):
        return None
    fields = {field.alias or name: field.annotation for name, field in declared.model_fields.items()}
    if declared is Connection or declared is SinkTarget:
        del fields["settings" if declared is Connection else "options"]
        if kind := kind_at(data, path):
            model = kind.connection if declared is Connection else kind.options
            fields |= {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return fields


def _models(declared: Any) -> list[type[BaseModel]]:
    """The models of a union that ``kind`` chooses from, also where it may be left out."""
    declared = _bare(declared)
    if not _is_union(declared):
        return []
    options = [_bare(option) for option in get_args(declared)]
    nested = [model for option in options for model in _models(option)]
    models = [one for one in options if isinstance(one, type) and issubclass(one, BaseModel) and _kinds_of(one)]
    return [*models, *nested]


def _kinds_of(model: type[BaseModel]) -> list[str]:
    field = model.model_fields.get("kind")
    declared = None if field is None else field.annotation
    return list(get_args(declared)) if get_origin(declared) is Literal else []


def _bare(declared: Any) -> Any:
    """Without what is said about it, and without ``| None``."""
    while True:
        if get_origin(declared) is Annotated:
            declared = get_args(declared)[0]
            continue
        others = [one for one in get_args(declared) if one is not type(None)] if _is_union(declared) else []
        if len(others) != 1:
            return declared
        declared = others[0]


def _is_secret(declared: Any) -> bool:
    declared = _bare(declared)
    if declared in (SecretStr, SecretBytes) or hasattr(get_origin(declared) or declared, "get_secret_value"):
        return True
    return _is_union(declared) and any(_is_secret(option) for option in get_args(declared))


def _is_union(declared: Any) -> bool:
    return get_origin(declared) is Union or type(declared).__name__ == "UnionType"


def _get(data: Any, *steps: Any) -> Any:
    for step in steps:
        if not (isinstance(data, dict) and isinstance(step, str)):
            return None
        data = data.get(step)
    return data
