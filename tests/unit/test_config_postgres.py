"""What may be configured for PostgreSQL, and how a table's name is read."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from cdf.errors import ConfigError
from connectors.postgres.column_mapping import Columns
from connectors.postgres.config import POSTGRES, PostgresConnection, PostgresOptions
from connectors.postgres.options import Modes
from connectors.postgres.table_name import split_table
from infra.config.load import load

CANARY = "hunter2canary"


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("customers", ("public", "customers")),
        ("sales.customers", ("sales", "customers")),
        ("Sales.Customers", ("sales", "customers")),
        ('"Sales".Customers', ("Sales", "customers")),
        ('"a.b"."c ""d"""', ("a.b", 'c "d"')),
        ("_x$1", ("public", "_x$1")),
        ("Größe", ("public", "größe")),
        ("ÄB", ("public", "Äb")),  # PostgreSQL folds ASCII only
    ],
)
def test_names_are_read_as_sql_reads_them(written: str, parts: tuple[str, str]) -> None:
    assert split_table(written) == parts


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", ".", "a.", ".a", "a..b", "a.b.c", "a b", "a-b", "1a", '"a', '""', '"a"b', "a.b\n", '"a\0"', "a;b"),
        *("x" * 64, "é" * 32),
    ],
)
def test_other_names_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"must|has a name"):
        split_table(written)
    with pytest.raises(ValidationError):
        PostgresOptions(table=written)


def test_one_table_has_one_target_however_it_is_written() -> None:
    spellings = ("customers", "public.customers", 'PUBLIC."customers"')
    assert {POSTGRES.target(PostgresOptions(table=table)) for table in spellings} == {'"public"."customers"'}
    assert POSTGRES.target(PostgresOptions(table='"Customers"')) == '"public"."Customers"'


def test_the_dsn_is_never_shown() -> None:
    connection = PostgresConnection(dsn=SecretStr(f"postgresql://u:{CANARY}@h/db"))
    for shown in (str(connection), repr(connection), connection.model_dump_json(), str(connection.model_dump())):
        assert CANARY not in shown
    for wrong in ({"dsn": "x", CANARY[:3]: CANARY}, {"dsn": [CANARY]}, {"dsn": " "}):
        with pytest.raises(ValidationError) as caught:
            PostgresConnection.model_validate(wrong)
        assert CANARY not in str(caught.value)


def test_models_are_frozen() -> None:
    options = PostgresOptions(table="t")
    assert options.conflicts == "refuse_duplicates"
    with pytest.raises(ValidationError):
        options.table = "u"


def test_build_hands_the_settings_to_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class Recorder:
        def __init__(self, dsn: str, **others: Any) -> None:
            seen.update(dsn=dsn, **others)

    module = types.ModuleType("connectors.postgres.sink")
    module.PostgresSink = Recorder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "connectors.postgres.sink", module)
    sink = POSTGRES.build(
        PostgresConnection(dsn=SecretStr("postgresql://h/db")),
        PostgresOptions(
            table="s.t",
            conflicts="refuse",
            include=("id", "a"),
            exclude=("b",),
            rename={"a": "A"},
            metadata=("_applied_at", "_commit_version"),
            arrays="native",
            deletes="soft",
            key_changes="refuse",
            schema_changes="add_columns",
            rejects="dead_letter",
            reject_limit=5,
            reject_rows=True,
        ),
        pipeline="customers",
    )
    assert isinstance(sink, Recorder)
    assert seen == {
        "dsn": "postgresql://h/db",
        "table": "s.t",
        "columns": Columns(("id", "a"), ("b",), {"a": "A"}, ("_applied_at", "_commit_version"), native_arrays=True),
        "modes": Modes("soft", "refuse", "add_columns", "dead_letter", 5, reject_rows=True),
        "conflicts": "refuse",
        "pipeline": "customers",
    }


PIPELINE = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: postgresql://h/db}
pipelines:
  customers:
    source: {table: /data/customers, key: [id]}
    sink:
      connection: warehouse
      table: customers
"""


@pytest.mark.parametrize(
    ("setting", "path", "said"),
    [
        ("deletes: sotf", "deletes", "must be 'hard', 'soft' or 'ignore'; did you mean `soft`?"),
        ("key_changes: ignore", "key_changes", "must be 'follow' or 'refuse'"),
        ("schema_changes: add_column", "schema_changes", "did you mean `add_columns`?"),
        ("rejects: dead_letters", "rejects", "did you mean `dead_letter`?"),
        ("reject_limit: 0", "reject_limit", "must be 1 or more"),
        ("arrays: json", "arrays", "did you mean `jsonb`?"),
        ("metadata: [_deleted_at]", "metadata[0]", "'_commit_version', '_commit_timestamp' or '_applied_at'"),
        ("metadata: [_applied_at, _applied_at]", "metadata", "names a column twice"),
        ("include: id", "include", "must be a list"),
        ("renames: {a: b}", "renames", "did you mean `rename`?"),
        ("rename: {a: ''}", "rename.a", "must be a name"),
        (f"rename: {{a: {'x' * 64}}}", "rename.a", "longer than 63 bytes"),
        (f"rename: {{a: {'é' * 32}}}", "rename.a", "longer than 63 bytes"),
        ("rename: {a: c, b: c}", "rename", "gives two columns one name"),
        ("include: [a, b]\n      exclude: [b]", "", "include and exclude both name 'b'"),
        ("rename: {a: c}\n      exclude: [a]", "", "rename and exclude both name 'a'"),
        ("rename: {a: c}\n      include: [b]", "", "rename names 'a', which include leaves out"),
    ],
)
def test_a_setting_that_cannot_be_is_told_with_its_line(tmp_path: Path, setting: str, path: str, said: str) -> None:
    file = tmp_path / "deltarelay.yaml"
    file.write_text(f"{PIPELINE}      {setting}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    (found,) = caught.value.fields["errors"]
    assert said in found["message"]
    assert found["path"] == ".".join(["pipelines.customers.sink", *([path] if path else [])])
    assert found["line"] == (10 if path else 8)
