"""What is asked of a trail, before and after Spark: keys read, columns put together, answers printed."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from audit.queries.fields import build_fields, is_wider_type
from audit.queries.find_record import parse_value
from audit.queries.questions import QUERIES
from audit.queries.risky_operations import HIDING, OPEN, why_hiding
from audit.queries.sql_export import ENGINES, view_sql
from audit.queries.view import divide_into_ranges
from audit.trail.column_history import Column, extend_columns
from cdf.errors import ConfigError
from cdf.os_user import os_user
from infra.cli.commands.audit.questions.answer import format_csv_value, print_answer
from infra.cli.commands.audit.questions.parameters import parse_parameter
from infra.cli.commands.feed import Number
from infra.cli.commands.feed import format_csv_value as format_feed_value
from infra.output import Output

# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("7", T.LongType(), 7),
        ("-7", T.ByteType(), -7),
        ("7", T.StringType(), "7"),
        ("", T.StringType(), ""),
        ("a=b,c", T.StringType(), "a=b,c"),
        ("1.5", T.DecimalType(10, 2), Decimal("1.50")),
        ("12345678.00", T.DecimalType(10, 2), Decimal("12345678.00")),
        ("-0.25", T.DoubleType(), -0.25),
        ("TRUE", T.BooleanType(), True),
        ("2026-01-31", T.DateType(), dt.date(2026, 1, 31)),
        ("2026-01-31T08:00:00.000001+01:00", T.TimestampType(), dt.datetime(2026, 1, 31, 7, 0, 0, 1, dt.UTC)),
        ("2026-03-29T02:30:00", T.TimestampNTZType(), dt.datetime(2026, 3, 29, 2, 30)),
        ("00fF", T.BinaryType(), bytearray(b"\x00\xff")),
    ],
)
def test_a_key_is_read_as_its_column_has_it(text: str, type: T.DataType, value: Any) -> None:
    assert parse_value("k", text, type) == value


@pytest.mark.parametrize(
    ("given", "type"),
    [
        ("4711x", T.LongType()),
        ("47.11", T.LongType()),
        ("٤٧١١", T.LongType()),
        (" 4711", T.LongType()),
        ("4711.001", T.DecimalType(10, 2)),
        ("471100000", T.DecimalType(10, 2)),
        ("4711-13-01", T.DateType()),
        ("4711-01-31T07:00:00", T.TimestampType()),
        (dt.datetime(4711, 1, 31), T.TimestampType()),
        ("4711-01-31T07:00:00Z", T.TimestampNTZType()),
        ("4711", T.BooleanType()),
        ("4711g", T.BinaryType()),
        ("4711", T.ArrayType(T.LongType())),
    ],
)
def test_what_is_no_value_of_the_type_is_refused_and_not_told(given: Any, type: T.DataType) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_value("the_key", given, type)
    said = str(raised.value) + str(raised.value.hint)
    assert "the_key" in said
    assert "4711" not in said
    assert raised.value.__cause__ is None


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(*schemas: T.StructType, nested: bool = True) -> dict[str, list[str]]:
    columns: tuple[Column, ...] = ()
    for schema in schemas:
        columns = extend_columns(columns, schema)
    return {field.name: [place.stored for place in field.places] for field in build_fields(columns, nested=nested)}


def of(**types: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, type) for name, type in types.items()])


def test_a_wider_type_holds_what_was_there_before() -> None:
    assert shown(of(a=T.IntegerType()), of(a=T.LongType())) == {"a": ["a", "a__2"]}
    assert shown(of(a=T.DecimalType(5, 2)), of(a=T.DecimalType(10, 4))) == {"a": ["a", "a__2"]}


def test_another_type_leaves_the_former_values_in_a_field_of_their_own() -> None:
    assert shown(of(a=T.StringType()), of(a=T.LongType())) == {"a": ["a__2"], "a__1": ["a"]}
    assert shown(of(a=T.StringType(), a__1=T.LongType()), of(a=T.LongType(), a__1=T.LongType())) == {
        "a": ["a__2"],
        "a__1": ["a__1"],
        "a__2": ["a"],
    }
    assert shown(of(a=T.LongType()), of(a=T.StringType()), of(a=T.LongType())) == {"a": ["a"], "a__2": ["a__2"]}


def test_another_case_is_the_same_column() -> None:
    assert shown(of(Amount=T.LongType()), of(amount=T.LongType())) == {"amount": ["Amount", "amount__2"]}


def test_new_fields_inside() -> None:
    before, after = T.ArrayType(of(a=T.IntegerType())), T.ArrayType(of(a=T.LongType(), b=T.StringType()))
    assert shown(of(tags=before), of(tags=after)) == {"tags": ["tags", "tags__2"]}
    assert shown(of(tags=before), of(tags=after), nested=False) == {"tags": ["tags__2"], "tags__1": ["tags"]}
    assert shown(of(tags=after), of(tags=before)) == {"tags": ["tags__2"], "tags__1": ["tags"]}


@pytest.mark.parametrize(
    ("before", "after", "lossless"),
    [
        (T.IntegerType(), T.DoubleType(), True),
        (T.LongType(), T.DoubleType(), False),
        (T.IntegerType(), T.FloatType(), False),
        (T.LongType(), T.DecimalType(20, 1), True),
        (T.LongType(), T.DecimalType(20, 2), False),
        (T.DecimalType(10, 2), T.DecimalType(10, 3), False),
        (T.DateType(), T.TimestampNTZType(), True),
        (T.DateType(), T.TimestampType(), False),
        (T.StringType(), T.BinaryType(), False),
        (T.BooleanType(), T.IntegerType(), False),
        (T.MapType(T.StringType(), T.ByteType()), T.MapType(T.StringType(), T.ShortType()), True),
        (T.MapType(T.ByteType(), T.StringType()), T.MapType(T.ShortType(), T.StringType()), False),
    ],
)
def test_what_a_type_can_hold(before: T.DataType, after: T.DataType, lossless: bool) -> None:
    assert is_wider_type(before, after) is lossless


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_operation_hides_something_or_it_does_not() -> None:
    hiding = [name for names in HIDING.values() for name in names]
    assert len(hiding) == len(set(hiding))
    assert not set(hiding) & set(OPEN)


@pytest.mark.parametrize(
    ("operation", "parameters", "why"),
    [
        ("MERGE", None, None),
        (None, None, "does not name"),
        ("DROP TABLE", "{}", "deltarelay does not know"),
        ("RESTORE", "[", "later rows are hidden"),
        (
            "SET TBLPROPERTIES",
            '{"properties": {"delta.enableChangeDataFeed": "false"}}',
            "feed was enabled or disabled",
        ),
        ("SET TBLPROPERTIES", '{"properties": {"delta.appendOnly": "false"}}', "properties control"),
        ("UNSET TBLPROPERTIES", '{"properties": ["delta.enableChangeDataFeed"]}', "feed was enabled or disabled"),
        ("UNSET TBLPROPERTIES", "[7]", "properties control"),
    ],
)
def test_why_an_operation_is_listed(operation: str | None, parameters: str | None, why: str | None) -> None:
    told = why_hiding(operation, parameters)
    assert told is None if why is None else why in str(told)


def test_every_question_says_what_its_answer_has() -> None:
    for name, query in QUERIES.items():
        assert query.question.endswith((".", "dropped.")), name
        described = set(re.findall(r"``(\w+)``", query.ask.__doc__ or ""))
        assert described or name in ("as-of", "record-as-of"), name


@pytest.mark.parametrize("engine", ENGINES)
def test_no_name_ends_a_text_of_sql(engine: Any) -> None:
    columns = extend_columns((), of(**{"it's": T.LongType(), 'a"b': T.LongType(), "a`b": T.LongType()}))
    text = view_sql(engine, "/data/it's", columns, name="v'w")
    quote = ENGINES[engine].quote
    quoted = re.compile(f"'(?:[^']|'')*'|{quote}(?:[^{quote}]|{quote}{quote})*{quote}")
    query = text.partition("select")[2]
    assert {one.replace(one[0] * 2, one[0])[1:-1] for one in quoted.findall(query)} >= {
        "row.it's",
        'row.a"b',
        "row.a`b",
    }
    assert not re.search(r"\bit\b|[`\"']", quoted.sub("", query))


def test_texts_for_other_engines_run_as_they_are() -> None:
    columns = extend_columns((), of(id=T.LongType()))
    duckdb = view_sql("duckdb", "/data/trail", columns)
    assert "load delta;" in duckdb.splitlines()
    assert not re.search(r"(?m)^[^-]*\binstall\b", duckdb), "it would need a network"
    trino = view_sql("trino", "s3a://bucket/trail", columns)
    assert "'s3://bucket/trail/events'" in trino
    assert "s3a" not in trino
    for engine in ENGINES:
        comments = [line for line in view_sql(engine, "/data/trail", columns).splitlines() if line.startswith("--")]
        assert not [line for line in comments if ";" in line], "clients divide texts at every semicolon"


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_no_pair_is_not_told() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_parameter("record", ["customer_id=7", "4711"])
    assert "4711" not in str(raised.value) + str(raised.value.hint)
    assert parse_parameter("record", ["a=b=c,d", "e="]) == {"a": "b=c,d", "e": ""}


@pytest.mark.parametrize("said", ["²", "2026-01-31T07:00:00", "-1", "now"])
def test_a_moment_is_a_version_or_a_time_with_its_zone(said: str) -> None:
    with pytest.raises(ConfigError):
        parse_parameter("when", [said])
    assert parse_parameter("when", ["12"]) == 12
    assert parse_parameter("when", ["2026-01-31T08:00:00+01:00"]) == dt.datetime(2026, 1, 31, 7, tzinfo=dt.UTC)


def test_a_place_is_a_version_and_an_index() -> None:
    assert (parse_parameter("version", ["12"]), parse_parameter("index", ["0"]), parse_parameter("index", None)) == (
        12,
        0,
        None,
    )
    for wrong in (["twelve"], ["-1"], None, ["1", "2"]):
        with pytest.raises(ConfigError):
            parse_parameter("version", wrong)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, ""),
        ("", '""'),
        (0, "0"),
        (False, "false"),
        (Decimal("-1.50"), "-1.50"),
        ("-1", '"\'-1"'),
        ('=HYPERLINK("x")', '"\'=HYPERLINK(""x"")"'),
        ("a,\nb", '"a,\nb"'),
        ({"a": [1, None]}, '"{""a"": [1, null]}"'),
        (dt.datetime(2026, 1, 31, 7, 0, 0, 1, dt.UTC), '"2026-01-31T07:00:00.000001Z"'),
    ],
)
def test_csv(value: Any, written: str) -> None:
    assert format_csv_value(value) == written


ANSWER = pa.table(
    {
        "n": [0, None],
        "row.there": [False, None],
        "row.name": ["\x1b[2J<b>\u202e", "second"],
        "at": pa.array([dt.datetime(2026, 1, 31, 7, tzinfo=dt.UTC), None], pa.timestamp("us", tz="Europe/Berlin")),
        "row.local": pa.array([dt.datetime(2026, 1, 31, 7), None], pa.timestamp("us")),
        "row.bytes": [b"\xff", None],
    }
)


def printed(format: str, capsys: pytest.CaptureFixture[str], limit: int = 9) -> str:
    print_answer(Output("audit query", format == "json"), ANSWER, format, limit)
    return capsys.readouterr().out


def test_a_terminal_gets_nothing_that_it_would_act_upon(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("table", capsys)
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert r"\x1b[2J<b>\u202e" in out
    assert "2026-01-31T07:00:00Z" in out
    assert re.search(r"^0 +false ", out, re.MULTILINE)


def test_a_narrow_terminal_gets_a_block_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "60"}.items():
        monkeypatch.setenv(name, value)
    lines = printed("table", capsys).splitlines()
    assert lines[:3] == ["n: 0", "row.there: false", r"row.name: \x1b[2J<b>\u202e"]
    assert lines[6:8] == ["", "n: -"]
    monkeypatch.setenv("COLUMNS", "200")
    assert "n: 0" not in printed("table", capsys)


def test_html_shows_zero_and_false_and_marks_nothing_up(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("html", capsys)
    assert "<td>0</td><td>false</td>" in out
    assert "<td></td><td></td><td>second</td>" in out
    assert "<b>" not in out


def test_json_has_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(printed("json", capsys))["result"]
    assert result["columns"] == ANSWER.column_names
    assert result["rows"][0] == {
        "n": 0,
        "row.there": False,
        "row.name": "\x1b[2J<b>\u202e",
        "at": "2026-01-31T07:00:00Z",
        "row.local": "2026-01-31T07:00:00",
        "row.bytes": "ff",
    }
    assert set(result["rows"][1].values()) == {None, "second"}


def test_why_a_value_is_not_shown_stands_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    why = {"before.email": "[erased 2026-11-24, er-1]", "after.email": "[tampered]", "email": "[sealed]"}
    names = ["before.email", "after.email", "row.email", "after.no", "email"]
    rows = pa.table(
        [
            *(pa.array([None], pa.string()) for _ in names[:4]),
            pa.array(["of the commit"], pa.string()),
            pa.array([list(why.items())], pa.map_(pa.string(), pa.string())),
        ],
        names=[*names, "unreadable"],
    )
    print_answer(Output("audit diff", True), rows, "json", 9, left_out=3)
    result = json.loads(capsys.readouterr().out)["result"]
    expected = dict(zip(names, [*why.values(), None, "of the commit"], strict=True))
    assert (result["columns"], result["rows"], result["left_out"]) == (names, [expected], 3)


def test_a_limit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(Output("audit query"), ANSWER, "csv", 1)
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "only the first 1 rows" in told.err


@pytest.mark.parametrize(
    ("value", "written"),
    [("=1+1", "'=1+1"), ("-2", "'-2"), ("@a", "'@a"), ("\t=1", "'\t=1"), ("a=1", "a=1"), (None, ""), (-2, "-2"),
     (Number("-2.50"), "-2.50"), (["=1"], '["=1"]'), (True, "true")],
)  # fmt: skip
def test_csv_of_a_feed_computes_nothing(value: Any, written: str) -> None:
    assert format_feed_value(value) == written


def test_the_user_is_who_the_kernel_says(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os_user()
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert os_user() == own
    assert f"uid {os.getuid()}" in own
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_123)
    assert os_user() == "uid 4000000123"


def test_numbers_are_divided_at_their_widest_gaps() -> None:
    assert divide_into_ranges([]) == []
    assert divide_into_ranges([7]) == [(7, 7)]
    assert divide_into_ranges([1, 5, 6, 90], most=4) == [(1, 1), (5, 5), (6, 6), (90, 90)]
    assert divide_into_ranges([1, 5, 6, 90, 93], most=3) == [(1, 1), (5, 6), (90, 93)]
    assert divide_into_ranges([1, 5, 6, 90], most=1) == [(1, 90)]
