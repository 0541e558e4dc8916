"""The generated reference pages: every error code has its text, every example is valid."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from infra.config.json_schema import schema
from tools.reference.configuration import BLOCKS, block_schema
from tools.reference.errors import TEXTS, error_classes

WHOLE = schema()
CONFIGURATION = tomllib.loads(BLOCKS.read_text())["block"]


def test_every_error_code_has_a_meaning_a_message_a_fix_and_a_prevention() -> None:
    texts = tomllib.loads(TEXTS.read_text())
    assert texts.keys() == error_classes().keys()
    for code, text in texts.items():
        assert text.keys() == {"meaning", "message", "fix", "prevention"}, code
        assert all(value.strip().endswith((".", "?")) for name, value in text.items() if name != "message"), code


def check(example: Any, place: str) -> None:
    jsonschema.validate(example, {**block_schema(WHOLE, place), "$defs": WHOLE["$defs"]})


def test_the_example_of_each_block_is_valid() -> None:
    for block in CONFIGURATION:
        # The configuration is read with dates as text
        example = json.loads(json.dumps(YAML(typ="safe").load(block["example"]), default=str))
        check(example, block["schema"])
    with pytest.raises(jsonschema.ValidationError):
        check({"max_comits": 1}, "WindowLimits")


def test_every_block_of_the_schema_is_on_the_page() -> None:
    shown = {block["schema"].partition("/")[0] for block in CONFIGURATION} | {
        block["schema"] for block in CONFIGURATION
    }
    missing = [
        name
        for name, definition in WHOLE["$defs"].items()
        if name not in shown and "properties" in definition and name != "Bucket"  # the same settings as storage.s3
    ]
    variants = [
        f"{name}/{variant['title']}"
        for name in ("Connection", "SinkTarget")
        for variant in WHOLE["$defs"][name]["anyOf"]
        if f"{name}/{variant['title']}" not in shown
    ]
    assert missing + variants == []
