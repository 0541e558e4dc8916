"""What may be configured for PostgreSQL, and how a table's name is read."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from connectors.postgres.config import POSTGRES, PostgresConnection, PostgresOptions, split_table

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
    assert options.conflicts == "report"
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
        PostgresOptions(table="s.t", conflicts="refuse"),
        pipeline="customers",
    )
    assert isinstance(sink, Recorder)
    assert seen == {"dsn": "postgresql://h/db", "table": "s.t", "conflicts": "refuse", "pipeline": "customers"}
