"""The JSON schema of ``deltarelay.yaml``, for editors and other tools, generated from the models.

``python -m infra.config.json_schema`` writes it, ``--check`` checks that the written one is current.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from connectors.registry import BUILT_IN, get_sink_kind
from infra.config.models import Project

__all__ = ["OUTPUT", "main", "schema"]

OUTPUT = Path(__file__).parents[2] / "docs" / "reference" / "deltarelay.schema.json"


def schema() -> dict[str, Any]:
    """The schema with all built-in kinds; installed third-party kinds do not change it."""
    document = Project.model_json_schema()
    definitions: dict[str, Any] = document["$defs"]
    del definitions["BaseModel"]  # replaced below by the models of the kinds
    connections, sinks = [], []
    for name in sorted(BUILT_IN):
        kind = get_sink_kind(name)
        is_kind = {"const": name, "title": "Kind", "description": "The kind of sink this connection belongs to."}
        connections.append(_merge(kind.connection, {"kind": is_kind}, definitions))
        reference = dict(definitions["SinkTarget"]["properties"]["connection"])
        sinks.append(_merge(kind.options, {"connection": reference}, definitions))
    for part in document["properties"].values():
        if "patternProperties" in part:
            part["additionalProperties"] = False
    definitions["Connection"] = _any_of(connections)
    definitions["SinkTarget"] = _any_of(sinks)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "deltarelay.yaml"}
    return {**head, **{key: value for key, value in document.items() if key != "title"}}


def _merge(model: type[BaseModel], first: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    part = model.model_json_schema()
    for name, definition in part.pop("$defs", {}).items():
        if definitions.setdefault(name, definition) != definition:
            raise ValueError(f"two models are named {name}; rename the one of {model.__name__}")
    part["properties"] = {**first, **part["properties"]}
    part["required"] = [*first, *part.get("required", [])]
    return part


def _any_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.config.json_schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is not current")
    chosen = parser.parse_args(arguments)
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if chosen.check:
        if OUTPUT.is_file() and OUTPUT.read_text(encoding="utf-8") == text:
            return 0
        print(f"{OUTPUT} is not current; run python -m infra.config.json_schema", file=sys.stderr)
        return 1
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
