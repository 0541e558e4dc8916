"""Every mistake is reported, all at once, with line and column and what helps. No line of the file is quoted."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.config.load import load
from infra.config.messages import suggest_name

GOOD = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: postgresql://h/db}
pipelines:
  customers:
    source: {table: /data/customers, key: [customer_id]}
    sink: {connection: warehouse, table: public.customers}
"""
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n" for old, new in ("ab", "bc", "cd", "de", "ef")
)
"""Six short lines that stand for a million values."""


def refusal(folder: Path, text: str | bytes) -> ConfigError:
    file = folder / "deltarelay.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    return caught.value


def found(error: ConfigError) -> list[tuple[int, int, str]]:
    return [(one["line"], one["column"], one["path"]) for one in error.fields["errors"]]


def test_all_mistakes_are_told_at_once_where_they_stand(tmp_path: Path) -> None:
    error = refusal(
        tmp_path,
        """\
version: 1
connections:
  warehouse: {kind: postgres, dns: x}
pipelines:
  customers:
    source:
      table: /data/customers
      key: customer_id
      strt: snapshot
    sink: {connection: warehouze, table: public.customers}
    window: {max_commits: 0}
  bad name:
    source: {table: /data/b, key: []}
    sink: {connection: warehouse, table: a.b.c, conflicts: reprot}
jarz: []
""",
    )
    assert found(error) == [
        (3, 3, "connections.warehouse.dsn"),
        (3, 31, "connections.warehouse.dns"),
        (8, 12, "pipelines.customers.source.key"),
        (9, 7, "pipelines.customers.source.strt"),
        (10, 24, "pipelines.customers.sink.connection"),
        (11, 27, "pipelines.customers.window.max_commits"),
        (12, 3, "pipelines.bad name"),
        (13, 35, "pipelines.bad name.source.key"),
        (14, 42, "pipelines.bad name.sink.table"),
        (14, 60, "pipelines.bad name.sink.conflicts"),
        (15, 1, "jarz"),
    ]
    file = tmp_path / "deltarelay.yaml"
    lines = error.message.splitlines()
    assert lines[0] == f"11 problems in {file}"
    assert len(lines) == 12, "one line for each"
    assert f"{file}:9:7: pipelines.customers.source.strt: unknown key; did you mean `start`?" in lines
    assert (
        f"{file}:14:60: pipelines.bad name.sink.conflicts: must be 'refuse_duplicates', 'report' or 'refuse'; "
        "did you mean `report`?" in lines
    )
    assert pickle.loads(pickle.dumps(error)).fields == error.fields


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("version: 1\n", "", (1, 1, "version"), "is missing"),
        ("version: 1\n", "version:\n", (1, 1, "version"), "has no value"),
        ("version: 1\n", "version: 2\n", (1, 10, "version"), "this release reads version 1"),
        ("version: 1\n", 'version: "1"\n', (1, 10, "version"), "this release reads version 1"),
        ("version: 1\n", "version: true\n", (1, 10, "version"), "this release reads version 1"),
        ("pipelines:", "pipeline:", (4, 1, "pipeline"), "did you mean `pipelines`"),
        ("kind: postgres, ", "", (3, 3, "connections.warehouse.kind"), "is missing"),
        ("kind: postgres", "kind: postgre", (3, 21, "connections.warehouse.kind"), "did you mean `postgres`"),
        ("kind: postgres", "kind: 5", (3, 21, "connections.warehouse.kind"), "must be text; put it in quotes"),
        ("/data/customers", "12", (6, 21, "pipelines.customers.source.table"), "must be text; put it in quotes"),
        ("/data/customers", "delta.`/x`", (6, 21, "pipelines.customers.source.table"), "the path alone"),
        ("/data/customers", "s3a://k:s@b/x", (6, 21, "pipelines.customers.source.table"), "set them in spark.conf"),
        ("[customer_id]", "[a, 5]", (6, 47, "pipelines.customers.source.key[1]"), "must be text"),
        ("[customer_id]", "[a, A]", (6, 43, "pipelines.customers.source.key"), "lists a column twice"),
        ("    source: {", "    source: [", (6, 56, ""), "is not YAML: expected ',' or ']', but got '}'"),
        ("kind: postgres", "kind:postgres", (3, 15, "connections.warehouse"), "has a key without `: ` and a value"),
        ("public.customers}", "public.customers, tabel: x}", (7, 60, "pipelines.customers.sink.tabel"), "unknown key"),
    ],
)
def test_single_mistakes(tmp_path: Path, old: str, new: str, place: tuple[int, int, str], message: str) -> None:
    error = refusal(tmp_path, GOOD.replace(old, new))
    assert place in found(error)
    assert message in error.message


def test_wrong_types_everywhere(tmp_path: Path) -> None:
    error = refusal(tmp_path, "version: 1\nconnections: []\npipelines: 5\nspark: yes\njars: {a: b}\n")
    assert found(error) == [(2, 14, "connections"), (3, 12, "pipelines"), (4, 8, "spark"), (5, 7, "jars")]
    error = refusal(tmp_path, GOOD + "spark: {conf: {spark: {driver: {memory: 2g}}}}\njars: [5]\n")
    assert found(error) == [(8, 23, "spark.conf.spark"), (9, 8, "jars[0]")]
    assert "write the full name of the setting as one key" in error.message
    error = refusal(tmp_path, "version: 1\nconnections: {}\npipelines: {a: null, b: 1}\n")
    assert found(error) == [(2, 14, "connections"), (3, 16, "pipelines.a"), (3, 25, "pipelines.b")]


def test_duplicate_keys_are_refused_at_every_depth(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("table: /data", "key: [a], table: /data") + "version: 1\n")
    assert found(error) == [(6, 48, "pipelines.customers.source.key"), (8, 1, "version")]
    assert "is set twice; first in line 1" in error.message


def test_two_pipelines_must_not_write_one_table(tmp_path: Path) -> None:
    other = "  other:\n    source: {table: /data/o, key: [id]}\n    sink: {connection: NAME, table: TABLE}\n"
    error = refusal(tmp_path, GOOD + other.replace("NAME", "warehouse").replace("TABLE", "Customers"))
    assert found(error) == [(10, 5, "pipelines.other.sink")]
    assert "writes the same target as the pipeline customers in line 7" in error.message
    assert error.hint == "give each pipeline a target of its own"
    second = "connections:\n  same: {kind: postgres, dsn: postgresql://h/db}\n  elsewhere: {kind: postgres, dsn: postgresql://i/db}\n"
    text = GOOD.replace("connections:\n", second) + other.replace("TABLE", "customers")
    assert "writes the same target" in refusal(tmp_path, text.replace("NAME", "same")).message
    (tmp_path / "deltarelay.yaml").write_text(text.replace("NAME", "elsewhere"))
    assert len(load(tmp_path / "deltarelay.yaml", environ={}).pipelines) == 2


def test_tabs_are_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("  customers:", "\tcustomers:"))
    assert found(error) == [(5, 1, "")]
    assert "a tab is used for indentation" in error.message
    assert error.hint == "indent with spaces"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("null\n", "is empty"),
        ("- a\n", "must be a mapping"),
        ("hello\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ('a: "x\n', "is not YAML"),
        ("a: b: c\n", ":1:5: is not YAML: unexpected `:`"),
        ("a: *nothing\n", ":1:4: an alias without an anchor"),
        ("a: 1\n---\nb: 2\n", ":2:1: a second YAML document begins here"),
        ("a: !!python/object:os.system x\n", ":1:4: a: has a YAML tag"),
        ("? [a]\n: 1\n", "has a key that is not plain text"),
        ("a: \x07\n", ":1:4: contains a control character"),
        (b"version: 1\n# caf\xe9\n", "line 2: is not UTF-8 text"),
        ("version: 1\n".encode("utf-16"), "is not UTF-8 text"),
        ("a: &a [*a]\n", "nested too deeply"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("a: " + "{a: " * 3000, "nested too deeply"),
        ("a: 1\n" * 100_000, "larger than 256 KiB"),
        (BOMB, "too long"),
    ],
    ids=lambda value: str(value)[:20].replace("\n", " ") if isinstance(value, str) else "bytes",
)
def test_junk_gets_a_plain_answer(tmp_path: Path, text: str | bytes, message: str) -> None:
    error = refusal(tmp_path, text)
    assert message in error.message
    assert error.fields["errors"]


def test_a_thousand_mistakes_stay_readable(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD + "".join(f"junk{number}: 1\n" for number in range(1000)))
    assert len(error.fields["errors"]) == 1000
    assert error.message.endswith("... and 950 more")


def test_a_file_that_is_not_there_names_what_helps(tmp_path: Path) -> None:
    for file in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError) as caught:
            load(file, environ={})
        assert str(file) in caught.value.message
        assert "--config" in (caught.value.hint or "")
        assert "deltarelay init" in (caught.value.hint or "")


def test_an_unsupported_version_is_the_only_complaint(tmp_path: Path) -> None:
    error = refusal(tmp_path, "version: 2\nsinks: []\n")
    assert found(error) == [(1, 10, "version")]
    assert error.hint == "set `version: 1`"


@pytest.mark.parametrize(
    ("word", "near"), [("max_versions", "max_commits"), ("max_comits", "max_commits"), ("max_byte", "max_bytes")]
)
def test_a_window_is_limited_by_commits_which_others_call_versions(word: str, near: str) -> None:
    assert suggest_name(word, ["max_bytes", "max_commits"]) == f"; did you mean `{near}`?"
