"""By which columns a watch knows a person, as tables and configurations spell them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from audit.erasure.guard import Watch
from audit.erasure.model import Link, PersonalTable, Subject
from audit.erasure.register.secrets import Keys
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer

SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
CUSTOMERS = PersonalTable("customers", "customer", "customer_id")


@pytest.mark.parametrize(
    ("table", "columns", "known"),
    [
        (CUSTOMERS, ["Customer_ID", "EMAIL", "name"], {"Customer_ID": "customer_id", "EMAIL": "email"}),
        # What is not emptied is there by right, whatever its case
        (PersonalTable("t", "customer", "email", ("email",), "nullify"), ["Email", "customer_id"], {"Email": "email"}),
        (PersonalTable("t", "customer", "email", ("EMAIL",), "nullify"), ["email"], {"email": "email"}),
        (
            PersonalTable("t", "customer", Link("owner", "customers", "Customer_Id")),
            ["owner"],
            {"owner": "customer_id"},
        ),
        (PersonalTable("t", "customer", Link("order_id", "customers", "order_id")), ["order_id", "email"], {}),
        (
            PersonalTable(
                "t",
                "customer",
                Link("sender", "customers", "customer_id"),
                others=(PersonalTable("t", "customer", Link("to", "customers", "email"), ("to",), "nullify"),),
            ),
            ["TO", "sender", "email"],
            {"TO": "email", "sender": "customer_id"},
        ),
    ],
)
def test_columns(table: PersonalTable, columns: list[str], known: dict[str, str]) -> None:
    tables = [CUSTOMERS] if table is CUSTOMERS else [CUSTOMERS, table]
    watch = Watch(
        lambda: cast(Any, None), Keys(Signer.generate("example.org/test")).marker, Graph.of(SUBJECTS, tables, [])
    )
    found = watch._columns(table.table, cast(Any, SimpleNamespace(columns=columns)))
    assert {column: name for column, (name, _) in found.items()} == {
        column: f"customer.{name}" for column, name in known.items()
    }
