"""The JSON schema is current, valid, and says the same as the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

import infra.config.json_schema as schema_module
from infra.config.json_schema import OUTPUT, main, schema

GOOD: dict[str, Any] = {
    "version": 1,
    "connections": {"warehouse": {"kind": "postgres", "dsn": "${WAREHOUSE_DSN}"}},
    "pipelines": {
        "customers": {
            "source": {"table": "/data/customers", "key": ["customer_id"], "start": "2026-01-31T00:00:00Z"},
            "sink": {"connection": "warehouse", "table": "public.customers"},
            "window": {"max_commits": 500, "max_bytes": "256MB"},
        }
    },
    "spark": {"master": "local[*]", "conf": {"spark.driver.memory": "2g", "spark.x": True}},
    "jars": ["a.jar"],
}


def accepts(data: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(data))


def test_the_committed_schema_is_current() -> None:
    assert json.loads(OUTPUT.read_text(encoding="utf-8")) == schema()
    assert main(["--check"]) == 0


def test_check_notices_and_writing_repairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    output = tmp_path / "reference" / "schema.json"
    monkeypatch.setattr(schema_module, "OUTPUT", output)
    assert main(["--check"]) == 1
    assert "is not current" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
    output.write_text(output.read_text() + " ")
    assert main(["--check"]) == 1


def test_the_schema_is_a_valid_one_and_every_field_is_described() -> None:
    document = schema()
    jsonschema.Draft202012Validator.check_schema(document)
    # A kind of sink is one of several
    parts = [one for part in document["$defs"].values() for one in part.get("anyOf", [part])]
    for part in (document, *parts):
        assert part["additionalProperties"] is False
        for name, field in part["properties"].items():
            described = field if "$ref" not in field else document["$defs"][field["$ref"].rpartition("/")[2]] | field
            assert described.get("title"), name
            assert described.get("description"), name


def test_it_accepts_a_good_file() -> None:
    jsonschema.validate(GOOD, schema())


def test_it_accepts_tables_in_place_of_a_table() -> None:
    data = json.loads(json.dumps(GOOD))
    source = data["pipelines"]["customers"]["source"]
    del source["table"]
    assert not accepts(data)
    source["tables"] = "/data/*"
    assert accepts(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("jarz",), []),
        (("connections", "warehouse", "kind"), "postgre"),
        (("connections", "warehouse", "dns"), "x"),
        (("connections", "a b"), GOOD["connections"]["warehouse"]),
        (("connections",), {}),
        (("pipelines", "customers", "source", "start"), "2026-01-31T00:00:00"),
        (("pipelines", "customers", "source", "start"), -1),
        (("pipelines", "customers", "source", "key"), []),
        (("pipelines", "customers", "source", "tables"), "/data/*"),
        (("pipelines", "customers", "sink", "conflicts"), "ignore"),
        (("pipelines", "customers", "sink", "schema"), "x"),
        (("pipelines", "customers", "window", "max_bytes"), "256XB"),
        (("pipelines", "customers", "window", "max_commits"), 0),
    ],
)
def test_it_refuses_what_the_loader_refuses(path: tuple[str, ...], value: Any) -> None:
    data = json.loads(json.dumps(GOOD))
    here = data
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    assert accepts(GOOD)
    assert not accepts(data)
