"""The spellings in which a scan finds somebody, and what it does not take for them."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
from collections import Counter
from urllib.parse import quote

import pyarrow as pa
import pytest

from audit.erasure.finds import masked
from audit.erasure.needles import Needle, Needles

ADDRESS = "Jörg.Müller+shop@example.org"
LONG = "a.person.with.a.rather.long.address@mail.example.org"


def found(needles: Needles, data: str | bytes) -> set[tuple[str, str]]:
    return set(needles.find(data if isinstance(data, bytes) else data.encode()))


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("value", ADDRESS),
        ("value", ADDRESS.upper()),
        ("value", "jörg.müller+SHOP@example.ORG"),
        ("url", quote(ADDRESS, safe="")),
        ("url", quote(ADDRESS, safe="").lower()),
        ("json", json.dumps(ADDRESS)),
        ("md5", hashlib.md5(ADDRESS.lower().encode(), usedforsecurity=False).hexdigest()),
        ("sha1", hashlib.sha1(ADDRESS.encode(), usedforsecurity=False).hexdigest().upper()),
        ("sha256", hashlib.sha256(ADDRESS.lower().encode()).hexdigest()),
    ],
)
def test_spellings(spelling: str, text: str) -> None:
    needles = Needles([Needle("R-1", ADDRESS, "email"), Needle("R-2", "somebody@else.org", "email")])
    assert found(needles, f"before {text} after") == {("R-1", spelling)}
    assert "örg" not in repr(needles.needles)


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", range(4))
def test_base64_at_every_place(before: int, after: int) -> None:
    needles = Needles([Needle("R-1", LONG, "email")])
    data = b"x" * before + LONG.encode() + b"y" * after
    assert found(needles, base64.b64encode(data)) == {("R-1", "base64")}
    assert found(needles, base64.urlsafe_b64encode(data)) == {("R-1", "base64")}


def test_the_beginning_that_statistics_keep() -> None:
    needles = Needles([Needle("R-1", LONG, "email")])
    assert found(needles, LONG[:32]) == {("R-1", "prefix")}
    assert found(needles, LONG) == {("R-1", "value")}
    assert found(needles, LONG[:31]) == set()


def test_columns_of_texts() -> None:
    needles = Needles([Needle("R-1", "ann@example.org", "email"), Needle("R-2", "bob@example.org", "email")])
    cells = ["ann@example.org", None, "to: ann@example.org, bob@example.org", "ann@exam", "ple.org"]
    expected = Counter({("R-1", "value"): 2, ("R-2", "value"): 1})
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        assert needles.text(pa.array(cells, pa.string()).cast(kind)) == expected
    assert needles.text(pa.array([cell and cell.encode() for cell in cells], pa.binary())) == expected
    # A part of a longer column, and nothing at all
    assert needles.text(pa.array(cells, pa.string()).slice(1, 2)) == Counter({("R-1", "value"): 1, ("R-2", "value"): 1})
    assert needles.text(pa.array([None, None], pa.string())) == Counter()


def test_a_number_counts_as_a_whole_cell_of_its_column_only() -> None:
    needles = Needles([Needle("R-1", "17", "customer_id")], {"customer_id": ["buyer"]})
    assert found(needles, "17 and 17") == set()
    for column in ("customer_id", "CUSTOMER_ID", "buyer"):
        for kind in (pa.int64(), pa.int32(), pa.string(), pa.float64()):
            values = pa.array([17, 170, None, 17, 1], pa.int64()).cast(kind)
            assert needles.cells(column, values)[("R-1", "value")] == 2, (column, kind)
    assert needles.cells("quantity", pa.array([17])) == Counter()
    assert needles.cell("buyer", 17) == {("R-1", "value")}
    assert needles.cell("quantity", 17) == set()


def test_values_that_are_no_number_in_a_column_of_numbers() -> None:
    needles = Needles([Needle("R-1", "17", "no"), Needle("R-2", "A-7", "no")])
    assert needles.cells("no", pa.array([17, 18])) == Counter({("R-1", "value"): 1})
    assert needles.cells("no", pa.array(["A-7", "17", None])) == Counter({("R-1", "value"): 1, ("R-2", "value"): 1})


def test_tasks_get_the_same() -> None:
    needles = Needles([Needle("R-1", ADDRESS, "email")])
    assert found(needles, ADDRESS)
    assert found(pickle.loads(pickle.dumps(needles)), ADDRESS) == {("R-1", "value")}


def test_a_path_is_shown_up_to_the_value() -> None:
    needles = Needles([Needle("R-1", "ann@example.org", "email"), Needle("R-1", "17", "customer_id")])
    assert masked("email=ann%40example.org/part-0.parquet", needles) == "email=…"
    assert masked("day=1/customer_id=17/part-0.parquet", needles) == "day=1/customer_id=…"
    assert masked("day=17/part-0.parquet", needles) == "day=17/part-0.parquet"
    assert masked("exports/ann@example.org.csv", needles) == "exports/…"
