"""``import deltarelay``: one namespace, loaded at first use; the older imports give the same objects."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cdf
import connectors.kafka
import connectors.postgres
import deltarelay
import infra.spark
from cdf import errors
from connectors.delta_audit.sink import DeltaAuditSink
from tools.reference.python_api import SECTIONS


def test_every_public_name_is_there() -> None:
    for name in deltarelay.__all__:
        assert getattr(deltarelay, name) is not None, name
    assert set(dir(deltarelay)) == set(deltarelay.__all__)
    assert len(set(deltarelay.__all__)) == len(deltarelay.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Pipelin'"):
        deltarelay.Pipelin  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    assert deltarelay.__version__ == metadata.version("deltarelay")


def test_type_checkers_see_the_names_that_programs_get() -> None:
    tree = ast.parse(inspect.getsource(deltarelay))
    (block,) = (one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING")
    for line in block.body:
        if isinstance(line, ast.ImportFrom):
            for name in line.names:
                shown = name.asname or name.name
                assert deltarelay._HOME_OF.pop(shown) == line.module
                assert getattr(deltarelay, shown).__name__ == name.name
    assert deltarelay._HOME_OF == {}


def test_every_error_is_in_the_namespace() -> None:
    kinds = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert kinds <= set(deltarelay.__all__)
    assert deltarelay.Fenced is errors.Fenced


def test_the_reference_shows_every_name_once() -> None:
    shown = [name for _, names in SECTIONS.values() for name in names]
    kinds = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert sorted(shown) == sorted({*deltarelay.__all__} - kinds - {"__version__"})


def test_older_imports_give_the_same_objects() -> None:
    assert deltarelay.ChangeFeed is cdf.ChangeFeed
    assert deltarelay.PostgresSink is connectors.postgres.PostgresSink
    assert deltarelay.KafkaSink is connectors.kafka.KafkaSink
    assert deltarelay.to_envelope is connectors.kafka.to_envelope
    assert deltarelay.DeltaAuditSink is DeltaAuditSink
    assert deltarelay.session is infra.spark.session
    for name in cdf.__all__:
        assert getattr(deltarelay, name) is getattr(cdf, name), name


def test_the_import_loads_nothing_but_the_standard_library_and_no_name_loads_spark_or_a_client_of_kafka() -> None:
    code = (
        "import sys; before = set(sys.modules); import deltarelay; loaded = set(sys.modules) - before\n"
        "print({name.partition('.')[0] for name in loaded} - set(sys.stdlib_module_names))\n"
        "for name in ('CdfError', 'ChangeFeed', 'PostgresSink', 'KafkaSink', 'DeltaAuditSink', 'session'):\n"
        "    getattr(deltarelay, name)\n"
        "print({'pyspark', 'delta', 'pandas', 'confluent_kafka'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["{'deltarelay'}", "set()"]


def test_the_guides_import_from_the_one_namespace() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    blocks = {page: page.read_text() for page in pages if page.name not in ("architecture.md", "python.md")}
    found = [
        f"{page.name}: {line}"
        for page, text in blocks.items()
        for line in text.splitlines()
        if line.startswith(
            tuple(f"{word} {name}" for word in ("from", "import") for name in ("cdf", "connectors", "audit", "infra"))
        )
    ]
    assert found == ["write-a-sink.md: from cdf.testing import SinkConformance"]
