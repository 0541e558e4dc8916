"""The spellings in which a scan finds somebody, and what it does not take for them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
import json
import pickle
import time
import unicodedata
from collections import Counter
from urllib.parse import quote

import pyarrow as pa
import pytest

from audit.erasure.scan.findings import masked
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.identifiers import normalise

ADDRESS = "Jörg.Müller+shop@example.org"
BUYER = {("customer", "customer_id"): ["customer_id", "buyer"]}
LONG = "a.person.with.a.rather.long.address@mail.example.org"


def found(terms: SearchTerms, data: str | bytes) -> set[tuple[str, str]]:
    return set(terms.find(data if isinstance(data, bytes) else data.encode()))


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
    terms = SearchTerms([SearchTerm("R-1", ADDRESS, "email"), SearchTerm("R-2", "somebody@else.org", "email")])
    assert found(terms, f"before {text} after") == {("R-1", spelling)}
    assert "örg" not in repr(terms.terms)


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", range(4))
def test_base64_at_every_place(before: int, after: int) -> None:
    terms = SearchTerms([SearchTerm("R-1", LONG, "email")])
    data = b"x" * before + LONG.encode() + b"y" * after
    assert found(terms, base64.b64encode(data)) == {("R-1", "base64")}
    assert found(terms, base64.urlsafe_b64encode(data)) == {("R-1", "base64")}


@pytest.mark.parametrize(
    ("spelling", "value", "text"),
    [
        ("url", "o'brien@example.org", "o'brien%40example.org"),  # JavaScript of a part
        ("url", "jörg@example.org", "https://x.example/?who=j%C3%B6rg@example.org"),  # ... and of a whole address
        ("url", "Anna Long", "name=Anna+Long"),
        ("json", "Main St 4/2", r"Main St 4\/2"),
        ("json", 'Jörg "Jo" Long', r"Jörg \"Jo\" Long"),
        ("sql", "Pat O'Brien", "name = 'Pat O''Brien'"),
        ("sql", "Pat O'Brien", r"name = 'Pat O\'Brien'"),
        ("base64", "a@bc.de", base64.b64encode(b"to a@bc.de").decode()),
    ],
)
def test_more_spellings(spelling: str, value: str, text: str) -> None:
    assert found(SearchTerms([SearchTerm("R-1", value)]), text) == {("R-1", spelling)}


SOFT = "to: J=C3=\r\n=B6rg.M=C3=BCll=\r\ner+shop=40exam=\r\nple.org"


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("html", "J&ouml;rg.M&#252;ller+shop&#64;example.org"),
        ("html", "".join(f"&#x{ord(one):X};" for one in ADDRESS)),
        ("html, html", "J&amp;ouml;rg.Müller&amp;#43;shop&amp;commat;example.org"),
        ("quoted-printable", SOFT),
        ("quoted-printable", "=?iso-8859-1?q?J=F6rg.M=FCller+shop=40example.org?="),
        ("header", "=?UTF-8?B?" + base64.b64encode(f"an {ADDRESS.swapcase()}".encode()).decode() + "?="),
        (
            "header",
            "=?utf-8?q?J=C3=B6rg=2EM=C3?= =?utf-8?q?=BCller+sh?=\r\n =?utf-16-be*en?B?AG8AcABA?= =?x?Q??=example.org",
        ),
        ("html", "J&#0000000246;rg.M&#x000000FC;ller+shop@example.org"),
        ("quoted-printable, html", "J&ou=\nml;rg.M&uuml;ller+shop=\n@example.org"),
        ("json, quoted-printable", json.dumps({"body": SOFT})),
        ("url", "mail=%4A%C3%B6rg.M%C3%BCller%2Bshop@example.org"),
        ("json", r"\u004a\u00f6rg.M\u00FCller\x2bshop@example.org"),
        ("json", r"J\303\266rg.M\303\274ller+shop@example.org"),  # PostgreSQL's bytes
        ("unicode", unicodedata.normalize("NFD", ADDRESS)),
        ("unicode", "J\u200börg.Mül\u00adler+shop\uff20\uff45xample\uff0eORG\ufeff"),
        ("written out", "Jörg.Müller+shop (at) example.org"),
        ("written out", "jörg.müller+shop [AT] example [dot] org"),
        ("written out", "JÖRG.MÜLLER+SHOP at example dot org"),
        ("written out", "Jörg.Müller+shop\u00a0@ example.org"),
        ("written out", "Jörg.Müller+shop_at_example.org"),
        ("written out", "Jörg.Müller+shop &lt;at&gt; example.org"),
        ("hex", ADDRESS.encode().hex()),
        ("hex", "\\\\x00" + ADDRESS.lower().encode().hex().upper() + "ff"),
    ],
)
@pytest.mark.parametrize("kind", ["bytes", "column", "many", "long"])
def test_what_software_encodes_is_read(spelling: str, text: str, kind: str) -> None:
    terms = pickle.loads(
        pickle.dumps(SearchTerms([SearchTerm("R-1", ADDRESS, "email"), SearchTerm("R-2", LONG, "email")]))
    )
    if kind == "bytes":
        assert found(terms, f"before {text} after") == {("R-1", spelling)}
    elif kind == "long":
        assert found(terms, "ä plain text; " * 20_000 + f" {text} " + "x = 1; " * 40_000) == {("R-1", spelling)}
    else:
        cells = [None, "", f" {text} ", "nothing", "a&b", *["ä=%"] * (1 if kind == "column" else 3_000)]
        assert terms.text(pa.array(cells)) == Counter({("R-1", spelling): 1})


@pytest.mark.parametrize(
    "text",
    [
        "Jorg.Muller+shop@example.org",
        "Jörg.Müller+shop at an example.org",
        "Jörg.Müller+shop=&#4;example.org",
        "J&ouml;rg.M&uuml;ller+shop",
        ADDRESS.encode().hex()[:-2],
    ],
)
def test_what_only_looks_alike_is_not(text: str) -> None:
    assert found(SearchTerms([SearchTerm("R-1", ADDRESS, "email")]), text) == set()


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("value", "Anna Long-Löw"),
        ("header", "=?utf-8?Q?Anna_Long-L=C3=B6w?="),
        ("header", "=?iso-8859-1?q?Anna_Long-L=F6w?="),
    ],
)
def test_names_in_headers_of_mail(spelling: str, text: str) -> None:
    assert found(SearchTerms([SearchTerm("R-1", "Anna Long-Löw", "name")]), text) == {("R-1", spelling)}


@pytest.mark.parametrize(
    "hostile",
    [
        "anna.long" + " " * 250_000 + "=",
        "anna.long\\" + "[        " * 28_000,
        "a" + "\u0301\u0316" * 65_000,
        "=?utf-8?q?" * 25_000,
        "=?" + "a" * 250_000,
        "=?utf-8?b?" + "a" * 250_000,
        ("=?punycode?q?" + "a-b9" * 480 + "?=") * 120,
        "&#" + "0" * 250_000,
        "&amp;amp;amp;amp;" * 15_000,
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
def test_no_text_makes_the_search_slow(hostile: str) -> None:
    """By the square of their number, 250,000 blanks or marks would take hours."""
    began = time.monotonic()
    assert found(SearchTerms([SearchTerm("R-1", "anna.long@example.org", "email")]), hostile) == set()
    normalise(hostile, "email")
    assert time.monotonic() - began < 20


def test_a_value_that_is_plain_and_encoded_in_one_cell_is_told_once() -> None:
    terms = SearchTerms([SearchTerm("R-1", "ann@example.org", "email"), SearchTerm("R-2", "bob@example.org", "email")])
    cells = ["ann@example.org ann&#64;example.org bob=40example.org", "ann&#64;example.org"]
    assert terms.text(pa.array(cells)) == {
        ("R-1", "value"): 1,
        ("R-1", "html"): 1,
        ("R-2", "quoted-printable"): 1,
    }
    assert found(terms, cells[0]) == {("R-1", "value"), ("R-2", "quoted-printable")}


def test_a_short_value_in_another_width() -> None:
    terms = SearchTerms([SearchTerm("R-1", "17", "customer_id", "customer")]).at(BUYER)
    assert terms.cells("buyer", pa.array(["\uff11\uff17", " 1\u200b7", "ä", None, "17"])) == {("R-1", "value"): 3}
    assert terms.cell("buyer", "\uff11\uff17") == {("R-1", "value")}


def test_the_case_of_base64_counts() -> None:
    terms = SearchTerms([SearchTerm("R-1", LONG, "email")])
    assert found(terms, base64.b64encode(LONG.encode()).lower()) == set()


@pytest.mark.parametrize("many", [1, 5_000])
@pytest.mark.parametrize("digest", ["md5", "sha256"])
def test_digests_and_base64_in_columns(many: int, digest: str) -> None:
    """They are looked for only in cells with long runs of such characters: these few, or all of them."""
    terms = SearchTerms([SearchTerm("R-1", ADDRESS, "email"), SearchTerm("R-2", LONG, "email")])
    hashed = hashlib.new(digest, ADDRESS.lower().encode(), usedforsecurity=False).hexdigest()
    for place in range(8):
        cells = [
            *["short", None, ""] * many,
            "." * place + hashed.upper(),
            "x" * place + base64.b64encode(b"y" * place + LONG.encode()).decode(),
            hashed[:20],
            hashed[20:],
        ]
        expected = Counter({("R-1", digest): 1, ("R-2", "base64"): 1})
        assert terms.text(pa.array(cells, pa.string())) == expected
        assert terms.text(pa.array([*cells, *["0123456789abcdef" * 3] * many])) == expected


def test_the_beginning_that_statistics_keep() -> None:
    terms = SearchTerms([SearchTerm("R-1", LONG, "email")])
    assert found(terms, LONG[:32]) == {("R-1", "prefix")}
    assert found(terms, LONG) == {("R-1", "value")}
    assert found(terms, LONG[:31]) == set()


def test_columns_of_texts() -> None:
    terms = SearchTerms([SearchTerm("R-1", "ann@example.org", "email"), SearchTerm("R-2", "bob@example.org", "email")])
    cells = ["ann@example.org", None, "to: ann@example.org, bob@example.org", "ann@exam", "ple.org"]
    expected = Counter({("R-1", "value"): 2, ("R-2", "value"): 1})
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        assert terms.text(pa.array(cells, pa.string()).cast(kind)) == expected
    assert terms.text(pa.array([cell and cell.encode() for cell in cells], pa.binary())) == expected
    # A part of a longer column, and nothing at all
    assert terms.text(pa.array(cells, pa.string()).slice(1, 2)) == Counter({("R-1", "value"): 1, ("R-2", "value"): 1})
    assert terms.text(pa.array([None, None], pa.string())) == Counter()


def test_a_number_counts_as_a_whole_cell_of_its_column_only() -> None:
    terms = SearchTerms([SearchTerm("R-1", "17", "customer_id", "customer")]).at(BUYER)
    assert found(terms, "17 and 17") == set()
    for column in ("customer_id", "CUSTOMER_ID", "buyer"):
        for kind in (pa.int64(), pa.int32(), pa.string(), pa.float64()):
            values = pa.array([17, 170, None, 17, 1], pa.int64()).cast(kind)
            assert terms.cells(column, values)[("R-1", "value")] == 2, (column, kind)
    assert terms.cells("quantity", pa.array([17])) == Counter()
    assert terms.cell("buyer", 17) == terms.cell("buyer", 17.0) == {("R-1", "value")}  # JSON has both
    assert terms.cell("quantity", 17) == set()


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("4711", decimal.Decimal("4711.00")),
        (str(10**12), 1e12),
        ("-1234567", -1234567),
        ("1970-01-31", dt.date(1970, 1, 31)),
        ("4711", " 4711 "),
        ("A-7", "a-7"),
    ],
)
def test_cells_in_the_type_of_their_column(value: str, cell: object) -> None:
    terms = SearchTerms(
        [
            SearchTerm("R-1", value, "no"),
            SearchTerm("R-2", "somebody else", "no"),
            SearchTerm("R-3", "99999999999", "no"),
        ]
    )
    for _ in range(2):
        assert terms.cells("no", pa.array([cell, None, cell])) == Counter({("R-1", "value"): 2})
        terms = pickle.loads(pickle.dumps(terms))


def test_a_number_is_looked_for_where_its_table_holds_it() -> None:
    """Many a table has an `id` of its own, and an employee's number is no customer's."""
    everywhere = SearchTerms([SearchTerm("R-1", "17", "id", "customer"), SearchTerm("R-2", "18", "id", "employee")])
    orders = everywhere.at({("customer", "id"): ["Buyer"], ("employee", "id"): ["clerk"]})
    both = pa.array([17, 18])
    assert everywhere.cells("id", both) == Counter({("R-1", "value"): 1, ("R-2", "value"): 1})
    assert orders.cells("buyer", both) == Counter({("R-1", "value"): 1})
    assert orders.cells("clerk", both) == Counter({("R-2", "value"): 1})
    assert orders.cells("id", both) == Counter()
    assert orders.words("id = 17") == orders.at({}).words("buyer = 17") == set()
    assert orders.short_requests == orders.at({}).short_requests == {"R-1", "R-2"}


def test_numbers_in_expressions() -> None:
    terms = SearchTerms([SearchTerm("R-1", "17", "customer_id", "customer")]).at(BUYER)
    for text in ("(customer_id#12L = 17)", "t.`CUSTOMER_ID` IN (1,17,3)", "buyer = '17'", "customer_id=17"):
        assert terms.words(text) == {("R-1", "value")}, text
    for text in ("(customer_id#17L = 12)", "quantity = 17", "customer_id = 170", "customer_ids = 17"):
        assert terms.words(text) == set(), text


def test_values_that_are_no_number_in_a_column_of_numbers() -> None:
    terms = SearchTerms([SearchTerm("R-1", "17", "no"), SearchTerm("R-2", "A-7", "no")])
    assert terms.cells("no", pa.array([17, 18])) == Counter({("R-1", "value"): 1})
    assert terms.cells("no", pa.array(["A-7", "17", None])) == Counter({("R-1", "value"): 1, ("R-2", "value"): 1})


def test_tasks_get_the_same() -> None:
    terms = SearchTerms([SearchTerm("R-1", ADDRESS, "email")])
    assert found(terms, ADDRESS)
    assert found(pickle.loads(pickle.dumps(terms)), ADDRESS) == {("R-1", "value")}


def test_a_path_is_shown_up_to_the_value() -> None:
    terms = SearchTerms([SearchTerm("R-1", "ann@example.org", "email"), SearchTerm("R-1", "17", "customer_id")])
    assert masked("email=ann%40example.org/part-0.parquet", terms) == "email=…"
    assert masked("day=1/customer_id=17/part-0.parquet", terms) == "day=1/customer_id=…"
    assert masked("day=17/part-0.parquet", terms) == "day=17/part-0.parquet"
    assert masked("email=ann%2540example.org/x", terms) == "email=…"  # as Delta's log writes it
    assert (
        masked("name=Pat%3A O/x", SearchTerms([SearchTerm("R-1", "Pat: O", "name")])) == "name=…"
    )  # as Spark names a folder
    assert masked("exports/ann@example.org.csv", terms) == "exports/…"
