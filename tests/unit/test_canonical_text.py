r"""JSON in the form in which PostgreSQL prints jsonb. Every expectation below is what PostgreSQL itself answers to
``select (…::jsonb)::text``: keys by length in bytes and then by bytes, numbers as ``numeric``, only ``"``, ``\`` and
control characters escaped."""

from __future__ import annotations

import pytest

from cdf.changes.canonical import jsonb_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ("[]", "[]"),
        ("true", "true"),
        ("false", "false"),
        ("null", "null"),
        ('""', '""'),
        ("[null,true,[2,[]]]", "[null, true, [2, []]]"),
        (' { "a" : [ 1 , 2 ] } ', '{"a": [1, 2]}'),
        ('{"a":{"y":1,"x":[1,{"k":null}]}}', '{"a": {"x": [1, {"k": null}], "y": 1}}'),
    ],
)
def test_structure_and_spacing(text: str, expected: str) -> None:
    assert jsonb_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b":1,"a":2}', '{"a": 2, "b": 1}'),
        # Shorter keys first, whatever their letters.
        ('{"aa":1,"b":2}', '{"b": 2, "aa": 1}'),
        ('{"":1,"a":2}', '{"": 1, "a": 2}'),
        # Capital letters come before small ones.
        ('{"a":2,"Z":5}', '{"Z": 5, "a": 2}'),
        # Length is counted in bytes: "é" has two, the face four.
        ('{"é":1,"zz":2,"b":3}', '{"b": 3, "zz": 2, "é": 1}'),
        ('{"abcde":6,"\\ud83d\\ude00":4,"abcd":5}', '{"abcd": 5, "😀": 4, "abcde": 6}'),
        # The length is that of the key, not of its escaped form.
        ('{"ab":3,"a b":1,"a\\"":2}', '{"a\\"": 2, "ab": 3, "a b": 1}'),
    ],
)
def test_keys_are_ordered_by_length_and_then_by_bytes(text: str, expected: str) -> None:
    assert jsonb_text(text) == expected


def test_the_last_of_equal_keys_stays() -> None:
    assert jsonb_text('{"a":1,"b":3,"a":2}') == '{"a": 2, "b": 3}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("100", "100"),
        ("-1.25", "-1.25"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("3.141592653589793238462643383279", "3.141592653589793238462643383279"),
        # Zeros behind the point are kept, exponents are not.
        ("1.0", "1.0"),
        ("1.50", "1.50"),
        ("1e5", "100000"),
        ("1E5", "100000"),
        ("1.5e3", "1500"),
        ("1.10e2", "110"),
        ("1.100e1", "11.00"),
        ("1.0e0", "1.0"),
        ("12345678.9e-3", "12345.6789"),
        ("1e-7", "0.0000001"),
        ("1.5E-10", "0.00000000015"),
        ("5e-1", "0.5"),
        # There is no negative zero.
        ("-0", "0"),
        ("-0.0", "0.0"),
        ("-0e-3", "0.000"),
        ("0e5", "0"),
        ("0.000e2", "0.0"),
        ("0E-10", "0.0000000000"),
    ],
)
def test_numbers_are_plain(text: str, expected: str) -> None:
    assert jsonb_text(text) == expected


def test_a_very_small_number_is_written_out() -> None:
    assert jsonb_text("1e-400") == "0." + 399 * "0" + "1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"a\"b\\c"', r'"a\"b\\c"'),
        (r'"\/ <>&"', '"/ <>&"'),
        (r'"\b\f\n\r\t"', r'"\b\f\n\r\t"'),
        (r'"\u0001\u001F"', r'"\u0001\u001f"'),
        (r'"\u007f\u0085\u2028"', '"\x7f\x85\u2028"'),
        (r'"\u00e9"', '"é"'),
        (r'"\ud83d\ude00"', '"😀"'),
        ('"1e5"', '"1e5"'),
    ],
)
def test_only_what_must_be_escaped_is_escaped(text: str, expected: str) -> None:
    assert jsonb_text(text) == expected


def test_printing_again_changes_nothing() -> None:
    once = jsonb_text('{"bb":[1.50,"\\u0001é"],"a":{"d":-0.0,"c":null}}')
    assert once == '{"a": {"c": null, "d": 0.0}, "bb": [1.50, "\\u0001é"]}'
    assert jsonb_text(once) == once
