"""What a configuration file may hold at each path: which keys are known, and which values may be shown.

The file writes a connection's settings next to ``kind`` and a sink's options next to ``connection``; the models keep
them apart. This module knows the file's side of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr

from cdf.errors import ConfigError
from connectors.registry import SinkKind, sink_kind
from infra.config.model import Connection, Project, SinkTarget
from infra.config.problems import Path

__all__ = ["Sight", "kind_at", "known_keys", "sight"]

Sight = Literal["branch", "plain", "secret", "unknown"]


def kind_at(data: Any, path: Path) -> SinkKind | None:
    """The kind that decides about ``connections.X`` or ``pipelines.X.sink``; None where it cannot be told."""
    name = path[1] if path[0] == "connections" else _get(data, *path, "connection")
    kind = _get(data, "connections", name, "kind")
    if not isinstance(kind, str):
        return None
    try:
        return sink_kind(kind)
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
    if _is_secret(declared):
        return "secret"
    is_branch = _fields(declared, data, path) is not None or get_origin(declared) in (dict, tuple, list)
    return "branch" if is_branch else "plain"


def _walk(data: Any, path: Path) -> Any:
    declared: Any = Project
    for depth, step in enumerate(path):
        fields = _fields(declared, data, path[:depth])
        if fields is not None:
            declared = fields.get(step) if isinstance(step, str) else None
        elif get_origin(declared) in (dict, tuple, list) and not _is_scalar_step(declared, step):
            declared = [kind for kind in get_args(declared) if kind is not Ellipsis][-1]
        else:
            return None
        declared = _bare(declared)
    return declared


def _is_scalar_step(declared: Any, step: str | int) -> bool:
    return isinstance(step, int) == (get_origin(declared) is dict)


def _fields(declared: Any, data: Any, path: Path) -> Mapping[str, Any] | None:
    if not (isinstance(declared, type) and issubclass(declared, BaseModel)):
        return None
    fields = {field.alias or name: field.annotation for name, field in declared.model_fields.items()}
    if declared is Connection or declared is SinkTarget:
        del fields["settings" if declared is Connection else "options"]
        if kind := kind_at(data, path):
            model = kind.connection if declared is Connection else kind.options
            fields |= {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return fields


def _bare(declared: Any) -> Any:
    while get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    return declared


def _is_secret(declared: Any) -> bool:
    declared = _bare(declared)
    if declared in (SecretStr, SecretBytes) or hasattr(get_origin(declared) or declared, "get_secret_value"):
        return True
    is_union = get_origin(declared) is Union or type(declared).__name__ == "UnionType"
    return is_union and any(_is_secret(option) for option in get_args(declared))


def _get(data: Any, *steps: Any) -> Any:
    for step in steps:
        if not (isinstance(data, dict) and isinstance(step, str)):
            return None
        data = data.get(step)
    return data
