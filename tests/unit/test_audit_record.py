"""Canonical JSON as RFC 8785 has it, and that no value of anybody's row gets into a ledger record."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.trail.redaction import canonical_json, extract_reasons, redact_expression, redact_parameters
from tests.fixtures.fix_seed import examples

COLUMNS = ["email", "id", "name", "city", "my col", "state", "amount", "born", "address", "status", "a.b"]

# ── canonical JSON ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_are_sorted_by_their_utf_16_units() -> None:
    """The example of RFC 8785, section 3.2.3: a character beyond the first 65,536 comes before U+FB33."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    assert list(json.loads(canonical_json(dict.fromkeys(names, 0)))) == [
        "\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ([True, False], "[true,false]"),
        ({}, "{}"),
        ({"b": [], "a": {"d": 1, "c": 2}}, '{"a":{"c":2,"d":1},"b":[]}'),
        (2**53, "9007199254740992"),
        (-(2**53), "-9007199254740992"),
        (-0, "0"),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ("\b\f\t\x00\x1f\x7f\u2028", '"\\b\\f\\t\\u0000\\u001f\x7f\u2028"'),
        (("a",), '["a"]'),
    ],
)
def test_one_text_for_one_value(value: Any, text: str) -> None:
    assert canonical_json(value) == text.encode()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.0, TypeError),
        (float("nan"), TypeError),
        ([{"a": 0.5}], TypeError),
        ({1: 2}, TypeError),
        (b"bytes", TypeError),
        ({"a": {1, 2}}, TypeError),
        (2**53 + 1, ValueError),
        (-(2**53) - 1, ValueError),
        ("\ud800", ValueError),
        ({"\udfff": 1}, ValueError),
    ],
)
def test_what_has_no_canonical_form(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        canonical_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(JSON)
@settings(max_examples=examples(200))
def test_it_is_json_and_stays_as_it_is(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


# ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        # As Spark writes them into the log: no quotation marks, and an id behind each column
        ("(email#3 = alice@example.org)", "(email = ?)"),
        ("(name#5 = Rose Ann)", "(name = ?)"),
        ("(name#5 = O'Brien)", "(name = ?"),
        ("(city#5 IN (New York,Berlin))", "(city IN (?))"),
        ("(city#5 INSET Berlin, New York, ... 3 more fields)", "(city INSET ?)"),
        ("NOT email#3 IN (a,b)", "NOT email IN (?)"),
        ("((id#4L > -5) AND (id#4L <= 10))", "((id > ?) AND (id <= ?))"),
        ("(isnotnull(email#3) AND StartsWith(email#3, ali))", "(isnotnull(email) AND StartsWith(email, ?))"),
        ("(cast(id#3 as string) = 12)", "(cast(id as string) = ?)"),
        ("(born#7 < 2001-02-03 10:00:00)", "(born < ?)"),
        ("(state#2 = OR)", "(state = ?)"),
        ("(state#2 = not)", "(state = ?)"),
        ("(state#2 <=> IN)", "(state <=> ?)"),
        ("(state#2 = null)", "(state = null)"),
        ("(address#9.city = X)", "(address.city = ?)"),
        ("(id#4L = customer#12L)", "(id = ?)"),
        ("(amount#1 = 1.5E-10)", "(amount = ?)"),
        # As people and delta-rs write them
        ("email = 'alice@example.org'", "email = ?"),
        ("name = 'O''Brien' and id=7", "name = ? and id=?"),
        (r"name = 'it\'s Bob' or status is not null", "name = ? or status is not null"),
        ('name = "A\\"B" or true', "name = ? or true"),
        ("city = x'00ff'", "city = ?"),
        ("born >= DATE '2020-01-01'", "born >= ?"),
        ("born between '2020-01-01' and '2021-01-01'", "born between ? and ?"),
        ("`my col` = 'x' AND my col#8 = y", "`my col` = ? AND my col = ?"),
        ("`Rose Ann` = 'x'", "? = ?"),
        ("t.id = s.k", "?.id = ?"),
        ("name like 'A%'", "name like ?"),
        ("case when id > 5 then 'x' else 'y' end = 'x'", "case when id > ? then ? else ? end = ?"),
        ("id + 5 > 7", "id + ? > ?"),
        ("EMAIL = 'a'", "EMAIL = ?"),
        ("a.b = 1", "a.b = ?"),
        ("names = 1", "? = ?"),
        ("name = 'not closed", "name = ?"),
        ("name = 'ends with \\", "name = ?"),
        ("true", "true"),
        ("", ""),
    ],
)
def test_literals_become_question_marks(written: str, kept: str) -> None:
    assert redact_expression(written, COLUMNS) == kept


def test_without_the_columns_no_name_is_kept() -> None:
    assert redact_expression("(email#3 = alice@example.org) AND true") == "(? = ?) AND true"


KNOWN = re.compile(
    r"[?()=<>!,.+\-*/%`\s]|\b(?:" + "|".join([*map(re.escape, COLUMNS), "and", "or", "in", "is", "not"]) + r")\b", re.I
)
TEXTS = st.text(st.sampled_from("Zq7'\"`\\#@() ,.-=_\u00e9\u4e2d\n?"), max_size=12)
FORMS = [
    "(email#3 = {})",
    "email = '{}'",
    "name#1 IN ({},{})",
    'NOT (my col = "{}")',
    "`{}` = {}",
    "{}",
    "id is {} or {}",
]


@given(st.sampled_from(FORMS), TEXTS)
@example("(email#3 = {})", "'")
@example("(email#3 = {})", "')' Zq (")
@example("email = '{}'", "\\' Zq")
@settings(max_examples=examples(600))
def test_whatever_a_literal_holds_nothing_of_it_is_left(form: str, literal: str) -> None:
    cleaned = redact_expression(form.replace("{}", literal), COLUMNS)
    assert KNOWN.sub("", cleaned) == ""


@given(st.text(max_size=40))
@settings(max_examples=examples(300))
def test_any_text_at_all_can_be_cleaned(text: str) -> None:
    cleaned = redact_expression(text)
    canonical_json(cleaned)
    assert not re.search(r"\d", cleaned)


# ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ({"mode": "Append", "partitionBy": '["city"]'}, {"mode": "Append", "partitionBy": ["city"]}),
        ({"mode": "Overwrite", "predicate": "city = 'Rome'"}, {"mode": "Overwrite", "predicate": "city = ?"}),
        ({"predicate": '["(email#3 = alice)","(id#4 > 5)"]'}, {"predicate": ["(email = ?)", "(id > ?)"]}),
        ({"predicate": "[]"}, {"predicate": []}),
        ({"predicate": "[x] = 1"}, {"predicate": "? = ?"}),
        (
            {
                "predicate": '["(id#4L = k#9L)"]',
                "matchedPredicates": '[{"predicate":"(name#3 = Bob)","actionType":"update"},{"actionType":"delete"}]',
                "notMatchedPredicates": '[{"actionType":"insert"}]',
                "notMatchedBySourcePredicates": "[]",
            },
            {
                "predicate": ["(id = ?)"],
                "matchedPredicates": [{"predicate": "(name = ?)", "actionType": "update"}, {"actionType": "delete"}],
                "notMatchedPredicates": [{"actionType": "insert"}],
                "notMatchedBySourcePredicates": [],
            },
        ),
        ({"version": 7, "timestamp": None}, {"version": 7}),
        ({"version": None, "timestamp": "2026-01-02 03:04:05"}, {"timestamp": "2026-01-02 03:04:05"}),
        (
            {"retentionCheckEnabled": False, "defaultRetentionMillis": 604800000, "specifiedRetentionMillis": 0},
            {"retentionCheckEnabled": False, "defaultRetentionMillis": 604800000, "specifiedRetentionMillis": 0},
        ),
        (
            {"predicate": "[]", "zOrderBy": '["id","born"]', "auto": False, "clusterBy": "[]"},
            {"predicate": [], "zOrderBy": ["id", "born"], "auto": False, "clusterBy": []},
        ),
        (
            {
                "properties": '{"delta.enableChangeDataFeed":"false","owner":"Rose Ann",'
                '"delta.constraints.grown":"amount > 18 and name <> \'Bob\'"}'
            },
            {
                "properties": {
                    "delta.enableChangeDataFeed": "false",
                    "owner": "?",
                    "delta.constraints.grown": "amount > ? and name <> ?",
                }
            },
        ),
        ({"properties": '["owner"]', "ifExists": True}, {"properties": ["owner"], "ifExists": True}),
        ({"name": "grown", "expr": "amount > 18"}, {"name": "grown", "expr": "amount > ?"}),
        (
            {"constraints": '[{"name":"grown","expr":"amount > 18","more":"Bob"}]'},
            {"constraints": [{"name": "grown", "expr": "amount > ?"}]},
        ),
        (
            {
                "columns": '[{"column":{"name":"x","type":"string","nullable":true,'
                '"metadata":{"comment":"for Rose","CURRENT_DEFAULT":"\'Bob\'"}},"position":"first"}]'
            },
            {"columns": [{"column": {"name": "x", "type": "string", "nullable": True}, "position": "first"}]},
        ),
        ({"columns": '["x","y"]'}, {"columns": ["x", "y"]}),
        ({"description": "about Rose", "isManaged": "false"}, {"description": "?", "isManaged": "false"}),
        (
            {"source": "s3://bucket/customers", "sourceVersion": 3},
            {"source": "s3://bucket/customers", "sourceVersion": 3},
        ),
        # What nobody here has heard of
        ({"filter": "city = 'Rome'", "limit": 12}, {"filter": "city = ?", "limit": "?"}),
        ({"filter": {"Rose": "Ann"}, "who": ["Rose", 3]}, {"filter": "?", "who": "?"}),
        ({"force": True, "ratio": 0.5}, {"force": True, "ratio": "?"}),
        ({"version": 2**60, "name": "\ud800"}, {"version": str(2**60), "name": "\ufffd"}),
    ],
)
def test_parameters_keep_what_is_no_data(written: dict[str, Any], kept: dict[str, Any]) -> None:
    cleaned = redact_parameters(written, COLUMNS)
    assert cleaned == kept
    assert json.loads(canonical_json(cleaned)) == kept


# ── userMetadata ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (None, {}),
        ("", {}),
        ("on behalf of Rose Ann", {}),
        ("[1, 2]", {}),
        ('"ticket"', {}),
        ("{not JSON", {}),
        ('{"a":' * 100_000, {}),
        ('{"ticket":"T-1","purpose":"repair","job":"nightly","run":"42","approver":"QA"}',
         {"ticket": "T-1", "purpose": "repair", "job": "nightly", "run": "42", "approver": "QA"}),
        ('{"ticket":4711,"name":"Rose Ann","job":true,"run":null,"purpose":["x"],"approver":""}', {"ticket": "4711"}),
        ('{"purpose":"' + "x" * 1000 + '"}', {"purpose": "x" * 200}),
        ('{"ticket":"\\ud800"}', {"ticket": "\ufffd"}),
    ],
)  # fmt: skip
def test_of_user_metadata_five_names_are_kept(written: str | None, kept: dict[str, str]) -> None:
    assert extract_reasons(written) == kept
    assert json.loads(canonical_json(extract_reasons(written))) == kept
