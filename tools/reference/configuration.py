"""The page of all settings of ``deltarelay.yaml``: the JSON schema gives names, types, defaults and meanings,
``configuration.toml`` the order of the blocks and an example of each."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from infra.config.json_schema import schema as json_schema

__all__ = ["configuration_page", "block_schema", "BLOCKS"]

BLOCKS = Path(__file__).with_name("configuration.toml")

_HEAD = """# Configuration

<!-- generated: make references -->

All settings of `deltarelay.yaml`. `deltarelay init TABLE` writes a first file, `deltarelay validate` checks one, and
editors that read JSON schemas complete it with [this schema](deltarelay.schema.json).

A value can come from outside of the file: `${NAME}` is the environment variable NAME, `${file:PATH}` the content of a
file. Use this for every password and key.
"""


def configuration_page() -> str:
    schema = json_schema()
    lines = [_HEAD]
    for block in tomllib.loads(BLOCKS.read_text())["block"]:
        definition = block_schema(schema, block["schema"])
        lines += ["", f"## {block['title']}", ""]
        lines += [definition["description"].replace("``", "`").strip(), ""] if definition.get("description") else []
        lines += ["```yaml", block["example"].strip("\n"), "```", ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        required = definition.get("required", [])
        lines += [_row(name, setting, name in required) for name, setting in definition["properties"].items()]
    return "\n".join(lines) + "\n"


def block_schema(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """``place``: ``""`` for the whole file, a name under ``$defs``, or ``NAME/TITLE`` for one variant of it."""
    if not place:
        return schema
    name, _, title = place.partition("/")
    definition: dict[str, Any] = schema["$defs"][name]
    if title:
        definition = next(variant for variant in definition["anyOf"] if variant["title"] == title)
    return definition


def _row(name: str, setting: dict[str, Any], required: bool) -> str:
    default = "required" if required else _default(setting)
    cells = (f"`{name}`", _type(setting), default, setting.get("description", "").replace("``", "`"))
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _default(setting: dict[str, Any]) -> str:
    default = setting.get("default")
    return "" if default is None or isinstance(default, dict | list) else f"`{json.dumps(default)}`"


def _type(setting: dict[str, Any]) -> str:
    match setting:
        case {"$ref": str(reference)}:
            return f"a block: {reference.rpartition('/')[2]}"
        case {"anyOf": list(variants)} | {"oneOf": list(variants)}:
            names = [_type(variant) for variant in variants if variant.get("type") != "null"]
            return " or ".join(dict.fromkeys(names))
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"enum": list(values)}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": dict(items)}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": dict(items)}:
            return f"mapping of {_type(items)}"
        case {"properties": _, "title": str(title)}:
            return f"a block: {title}"
        case {"type": str(name)}:
            return name
    return "a block"
