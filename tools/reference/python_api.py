"""The page of the public Python API: signatures and docstrings of what the packages export."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

__all__ = ["python_page", "PACKAGES"]

PACKAGES = {
    "cdf": "Read change feeds and run pipelines.",
    "connectors.postgres": "The PostgreSQL sink.",
    "connectors.kafka": "The Kafka sink. Needs `pip install 'deltarelay[kafka]'`.",
    "connectors.delta_audit.sink": "The audit trail as a sink.",
    "infra.spark": "A Spark session with the settings that Delta needs.",
    "cdf.sink": "The sink contract; see [Write a sink](../extend/write-a-sink.md).",
    "cdf.errors": "The errors; see [Error codes](errors.md).",
}
"""What a user may import. The conformance suite, ``cdf.testing``, is described in *Write a sink*."""

_HEAD = """# Python API

<!-- generated: make references -->

What a program may import. Everything else is internal and can change in every release. All functions raise
`cdf.errors.CdfError` or a subclass of it.
"""

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def python_page() -> str:
    lines = [_HEAD]
    for name, summary in PACKAGES.items():
        package = importlib.import_module(name)
        lines += ["", f"## {name}", "", summary, ""]
        if name == "cdf.errors":
            lines += ["```text", inspect.cleandoc(package.__doc__ or "").strip(), "```"]
            continue
        for exported in package.__all__:
            value = getattr(package, exported)
            if isinstance(value, type) and issubclass(value, Exception):
                lines.append(f"- `{exported}`: an error, see [Error codes](errors.md#{getattr(value, 'code', '')})")
            elif isinstance(value, type) or inspect.isfunction(value):
                lines += _entry(exported, value)
    return "\n".join(lines) + "\n"


def _entry(name: str, value: Any) -> list[str]:
    lines = ["", f"### {name}", "", "```python", f"{name}{_signature(value)}", "```", "", _text(value), ""]
    if isinstance(value, type):
        for method, function in vars(value).items():
            if method.startswith("_") or not (text := _text(function)):
                continue
            function = inspect.unwrap(getattr(function, "__func__", function))
            if isinstance(function, property):
                lines += [f"#### {name}.{method}", "", text, ""]
            elif inspect.isfunction(function):
                lines += [
                    f"#### {name}.{method}",
                    "",
                    "```python",
                    f"{method}{_signature(function)}",
                    "```",
                    "",
                    text,
                    "",
                ]
    return lines


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parts, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        star = _STARS.get(parameter.kind, "")
        keyword_only |= star == "*"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{star}{parameter.name}{_annotation(': ', parameter.annotation)}{default}")
    returned = "" if isinstance(value, type) else _annotation(" -> ", signature.return_annotation)
    line = f"({', '.join(parts)}){returned}"
    return line if len(line) < 90 else "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _annotation(before: str, annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return before + (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation)))


def _default(value: Any) -> str:
    """A factory's default has an address in its ``repr``: the page must be the same each time."""
    return "..." if " object at 0x" in (text := repr(value)) or text.startswith("<") else text


def _text(value: Any) -> str:
    return (inspect.getdoc(value) or "").replace("``", "`") if value.__doc__ else ""
