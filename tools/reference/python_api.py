"""The page of the public Python API: signatures and docstrings of what ``deltarelay`` exports."""

from __future__ import annotations

import inspect
from typing import Any

import deltarelay
from cdf import errors, sink

__all__ = ["SECTIONS", "python_page"]

SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Pipelines": (
        "Read change feeds and run pipelines.",
        (
            *("ChangeFeed", "Pipeline", "Limits", "Brakes", "FeedEnabled", "FeedStatus", "Plan", "Step", "RunResult"),
            *("Following", "Followed", "FollowStatus", "Verification", "Difference"),
        ),
    ),
    "Spark session": ("A session with the settings that Delta needs.", ("session",)),
    "PostgreSQL": ("The PostgreSQL sink.", ("PostgresSink", "Columns", "Modes")),
    "Kafka": (
        "The Kafka sink. Needs `pip install 'deltarelay[kafka]'`.",
        ("KafkaSink", "Cluster", "EventFormat", "NewTopic", "check_schema", "to_envelope", "snapshot_to_envelope"),
    ),
    "Audit trail": (
        "The audit trail as a sink; its signatures, and the anchors that store them.",
        (
            *("DeltaAuditSink", "Trail", "Signer", "VerifierKey", "Checkpoint", "NamedAnchor", "FileAnchor"),
            *("PostgresAnchor", "postgres_anchor_sql", "S3Anchor"),
        ),
    ),
    "Configuration": (
        "A configuration file, its options for delta-rs, and a Kafka broker for trials.",
        ("load_project", "delta_rs_options", "EmbeddedKafka", "kafka_jars"),
    ),
    "Sink": (
        "What a sink receives and returns; see [Write a sink](../extend/write-a-sink.md).",
        (
            *("Sink", "Source", "Capabilities", "Position", "Inspection", "Applied", "Conflicts", "Window"),
            *("Snapshot", "Commit"),
        ),
    ),
}
"""Title → summary, names. The rest of ``cdf.sink`` and the errors follow."""

_HEAD = """# Python API

<!-- generated: make references -->

Everything is imported from `deltarelay`; a name is loaded when it is first used:

```python
from deltarelay import ChangeFeed, Pipeline, PostgresSink
```

The author of a sink also uses `cdf.sink` and `cdf.testing`. Everything else is internal and can change in every release. All
functions raise `CdfError` or a subclass of it.
"""

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def python_page() -> str:
    lines = [_HEAD]
    for title, (summary, names) in SECTIONS.items():
        lines += ["", f"## {title}", "", summary, ""]
        for name in names:
            lines += _entry(name, getattr(deltarelay, name))
    lines += ["", "## cdf.sink", "", "Optional protocols of a sink, and the values that they use.", ""]
    for name in (one for one in sink.__all__ if one not in deltarelay.__all__):
        lines += _entry(name, getattr(sink, name))
    lines += ["", "## Errors", "", "The meaning of each error, and how to correct it: [Error codes](errors.md).", ""]
    lines += ["```text", inspect.cleandoc(errors.__doc__ or "").strip(), "```"]
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
