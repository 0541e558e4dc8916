"""Tables of an erasure: what does not fit together is told as a whole, and links are followed in their order."""

from __future__ import annotations

import datetime as dt

import pytest

from audit.erasure.model import Hold, Link, PersonalTable, Subject
from audit.erasure.table_graph import Graph, parse_path
from cdf.errors import ConfigError

CUSTOMER = Subject("customer", {"email": "email", "customer_id": "exact"})
SUBJECTS = {"customer": CUSTOMER, "employee": Subject("employee", {"staff_no": "exact"})}


def table(name: str, path: str | Link = "customer_id", **more: object) -> PersonalTable:
    return PersonalTable(name, **{"subject": "customer", "path": path, **more})  # type: ignore[arg-type]


def problems(*tables: PersonalTable, holds: tuple[Hold, ...] = ()) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        Graph.of(SUBJECTS, tables, holds)
    return [(".".join(map(str, one["place"])), one["message"]) for one in caught.value.fields["problems"]]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("customer_id", "customer_id"),
        (" customer_id->/data/a.b/c.id ", Link("customer_id", "/data/a.b/c", "id")),
        ("k -> shop.main.customers.id", Link("k", "shop.main.customers", "id")),
        ("k -> ../customers.id", Link("k", "../customers", "id")),
    ],
)
def test_paths(text: str, path: str | Link) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    "text", ["", " ", "a ->", "-> t.c", "a -> t", "a -> t.", "a -> .c", "a -> ../t", "a -> b.c -> d.e"]
)
def test_no_paths(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a column|is empty"):
        parse_path(text)


def test_a_linked_table_comes_after_the_one_it_leads_to() -> None:
    items = table("items", Link("order_id", "orders", "id"))
    orders = table("orders", Link("customer_id", "customers", "customer_id"))
    staff = table("staff", "staff_no", subject="employee")
    graph = Graph.of(SUBJECTS, [items, staff, orders, table("customers")], ())
    assert [one.table for one in graph.tables_of("customer")] == ["customers", "orders", "items"]
    assert graph.tables_of("employee") == (staff,)
    assert graph.table("orders") == orders
    assert graph.table("nowhere") is None


SENT = Link("sender", "customers", "customer_id")
RECEIVED = table(
    "transfers", Link("recipient", "customers", "customer_id"), personal=("recipient",), on_erase="nullify"
)
CLERK = table("transfers", "staff_no", subject="employee", personal=("staff_no",), on_erase="nullify")


def test_several_people_in_a_row() -> None:
    transfers = table("transfers", SENT, others=(RECEIVED, CLERK))
    lines = table("lines", Link("transfer", "transfers", "id"))
    graph = Graph.of(SUBJECTS, [lines, transfers, table("customers"), table("staff", "staff_no", subject="employee")])
    assert [one.table for one in graph.tables_of("customer")] == ["customers", "transfers", "lines"]
    assert graph.tables_of("customer", "employee")[-2:] == (transfers, lines)
    of_customers = graph.tables_of("customer")[1]
    assert (of_customers.path, of_customers.others) == (SENT, (RECEIVED,))
    assert CLERK in graph.tables_of("employee")
    assert transfers.what_happens == "delete, nullify"
    assert graph.holding("transfers") == {
        ("customer", "customer_id"): {"sender", "recipient"},
        ("employee", "staff_no"): {"staff_no"},
    }
    assert graph.holding("lines") == graph.holding("nowhere") == {}
    assert graph.holding("customers") == {("customer", name): {name} for name in ("email", "customer_id")}


def test_whom_a_row_names_is_told_by_columns_of_their_own() -> None:
    twice = table("transfers", SENT, others=(RECEIVED, table("transfers", Link("SENDER", "customers", "email"))))
    assert problems(twice, table("customers")) == [
        ("tables.transfers.others.1.path", "has `sender`, which identifies another person")
    ]
    own = table("customers", others=(table("customers", Link("email", "customers", "customer_id")),))
    assert problems(own) == [("tables.customers.others.0.path", "has `email`, which identifies another person")]
    mixed = table("transfers", SENT, personal=("sender", "RECIPIENT"), on_erase="nullify", others=(RECEIVED,))
    assert problems(mixed, table("customers")) == [
        ("tables.transfers.personal", "has `recipient`, which identifies another person of the row")
    ]
    lacks = table("transfers", Link("recipient", "customers", "customer_id"), on_erase="nullify", personal=("iban",))
    odd = table("transfers", SENT, others=(lacks, table("transfers", "staff", subject="employe")))
    assert problems(odd, table("customers")) == [
        ("tables.transfers.others.0.personal", "lacks `recipient`, which would still identify the person of the row"),
        ("tables.transfers.others.1.subject", "is not an entry under `subjects`; did you mean `employee`?"),
    ]


def test_somebody_may_be_named_in_a_row_of_their_own_table() -> None:
    """The manager of an employee: no circle, for nothing is led to by it."""
    manager = PersonalTable("staff", "employee", Link("manager", "staff", "staff_no"), ("manager",), "nullify")
    staff = table("staff", "staff_no", subject="employee", others=(manager,))
    assert Graph.of(SUBJECTS, [staff]).order == (staff,)


def test_a_hold_ends_on_its_day() -> None:
    hold = Hold("a", dt.date(2031, 12, 31), "tax law")
    graph = Graph.of(SUBJECTS, [table("a"), table("b")], [hold])
    assert graph.held("a", dt.date(2031, 12, 30)) == (hold,)
    assert graph.held("a", dt.date(2031, 12, 31)) == ()
    assert graph.held("b", dt.date(2026, 1, 1)) == ()


def test_a_held_table_keeps_what_leads_to_its_rows() -> None:
    """Else nobody could find them when the hold is over. An identifier is known without the rows that it stands in."""
    tables = [
        table("customers"),
        table("orders", Link("customer", "customers", "email")),
        table("lines", Link("order_id", "orders", "order_id")),
    ]
    day, later = dt.date(2030, 1, 1), dt.date(2030, 1, 2)
    lines, orders = Hold("lines", day, "tax"), Hold("orders", later, "tax")
    for holds in [(orders,), (lines, orders)]:
        assert Graph.of(SUBJECTS, tables, holds).holds == holds
    why = "is found only through orders: hold that table for as long, otherwise these rows can no longer be found"
    assert problems(*tables, holds=(lines,)) == [("holds.0.table", why)]
    assert problems(*tables, holds=(Hold("lines", dt.date(2030, 1, 3), "tax"), orders)) == [("holds.0.table", why)]


def test_all_faults_are_told_at_once() -> None:
    assert problems(
        table("a", subject="custmer"),
        table("b", "emial"),
        table("c", Link("x", "d.old", "id")),
        table("e", Link("x", "a2", "staff_no")),
        table("a2", "staff_no", subject="employee"),
        table("f", on_erase="nullify"),
        holds=(Hold("g", dt.date(2030, 1, 1), " "),),
    ) == [
        ("tables.a.subject", "is not an entry under `subjects`; did you mean `customer`?"),
        ("tables.b.path", "the column `emial` is not an identifier of the subject `customer`; did you mean `email`?"),
        ("tables.c.path", "leads to d.old, which is not an entry under `tables`"),
        ("tables.e.path", "leads to a2, which holds rows of another subject"),
        ("tables.f.on_erase", "`nullify` empties the columns of `personal`, and none is named"),
        ("holds.0.table", "is not an entry under `tables`"),
        ("holds.0.basis", "is empty; state the legal basis of the hold"),
    ]


def test_each_circle_is_named_once() -> None:
    tables = [
        table("before", Link("x", "a", "id")),
        table("a", Link("x", "b", "id")),
        table("b", Link("x", "c", "id")),
        table("c", Link("x", "a", "id")),
        table("self", Link("x", "self", "id")),
    ]
    assert problems(*tables) == [
        ("tables.a.path", "is a cycle of links: a -> b -> c -> a"),
        ("tables.self.path", "is a cycle of links: self -> self"),
    ]


def test_one_table_twice_and_a_subject_without_identifiers() -> None:
    assert problems(table("a"), table("a", "email")) == [("tables.a", "occurs twice")]
    with pytest.raises(ConfigError, match=r"subjects\.ghost\.identifiers: names no identifier"):
        Graph.of({"ghost": Subject("ghost", {})}, [])


def test_what_tells_whose_a_row_is_is_sealed_with_the_rest() -> None:
    billing = (("billing", ("iban",)),)
    plain, own, joined, linked = (
        table("a", classes=billing),
        table("b", classes=(("contact", ("email", "Customer_ID")),)),
        table("c", classes=(("identity", ("name",)),)),
        table("d", Link("buyer", "a", "customer_id"), classes=billing),
    )
    graph = Graph.of(SUBJECTS, [plain, own, joined, linked, table("e")])
    found = {name: dict(one.classes) for name in "abcde" if (one := graph.table(name)) is not None}
    assert found == {
        "a": {"billing": ("iban",), "identity": ("customer_id", "email")},
        "b": {"contact": ("email", "Customer_ID")},
        "c": {"identity": ("name", "customer_id", "email")},
        "d": {"billing": ("iban",), "identity": ("buyer",)},
        "e": {},
    }


def test_a_class_is_held_in_rows_that_stay_alone() -> None:
    day, later = dt.date(2031, 12, 31), dt.date(2032, 12, 31)
    held = Hold(None, day, "tax law", "billing")
    classes = (("contact", ("email", "name")), ("billing", ("iban",)))
    whole = table("a", personal=("email", "name"), classes=classes)
    assert Graph.of(SUBJECTS, [whole], [held]).held_classes(dt.date(2030, 1, 1)) == {"billing": held}
    clerk = table("a", "staff_no", subject="employee", personal=("staff_no",), on_erase="nullify")
    shared = table("a", personal=("email", "name", "note"), classes=classes, others=(clerk,))
    why = "cannot be retained in trails of a, whose whole rows are erased; columns in plain text:"
    assert problems(shared, holds=(held,)) == [
        ("holds.0.class", f"{why} `note`, `staff_no`; put them into one of the classes")
    ]
    # A key is destroyed for all tables: the history of a table that is held needs it as well
    rows = Hold("a", later, "tax law")
    assert problems(whole, holds=(held, rows)) == [
        (
            "holds.1.table",
            "has columns that trails encrypt: hold the classes billing, contact, identity as long, or its history "
            "can no longer be read",
        )
    ]
    holds = [Hold(None, later, "tax law", name) for name in ("billing", "contact", "identity")]
    assert len(Graph.of(SUBJECTS, [whole], [rows, *holds]).holds) == 4
