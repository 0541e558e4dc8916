"""Random types and values for the PostgreSQL sink, and what PostgreSQL has to print for each: worked out here, by Python
alone, so that neither Spark, nor the connector, nor our own canonical form can agree with itself.

Dates are days since 1970, times microseconds, as Delta stores them; Python's own would end at the years 1 and 9999.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["ZONES", "Kind", "nested_kinds", "plain_kinds"]

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
DAY = 86_400_000_000
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_540
FIRST_MICRO, LAST_MICRO = FIRST_DAY * DAY, 2**63 - 2
_YEAR_1, _YEAR_10000 = -719_162, 2_932_897
Strategy = st.SearchStrategy[Any]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Kind:
    """A type: how Spark spells it, how a value is stored for Spark to read, and how PostgreSQL must print it."""

    ddl: str
    arrow: pa.DataType
    values: Strategy
    prints: Callable[[Any, str, str], bool] | None
    """(value, ``column::text``, TimeZone) → whether that is the value's text; None where the column is jsonb"""
    json: Callable[[Any, Any], bool]
    """(value, the parsed JSON; numbers as Decimal) → whether they are the same"""
    made_by: str = "{}"
    """The expression of the type from what is stored"""

    def __repr__(self) -> str:
        return self.ddl

    def agrees(self, value: Any, text: str | None, zone: str) -> bool:
        if value is None or text is None:
            return value is None and text is None
        if self.prints is not None:
            return self.prints(value, text, zone)
        return self.json(value, json.loads(text, parse_float=Decimal, parse_int=Decimal))


def exactly(text_of: Callable[[Any, str], str]) -> Callable[[Any, str, str], bool]:
    return lambda value, text, zone: text == text_of(value, zone)


# ── dates and times ──────────────────────────────────────────────────────────────────────────────────────────────────


def civil(day: int) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month, day of the proleptic Gregorian calendar: 400 years are 146,097 days."""
    cycles, rest = divmod(day - _YEAR_1, 146_097)
    date = dt.date.fromordinal(rest + 1)
    return date.year + 400 * cycles, date.month, date.day


def clock(micros: int) -> str:
    """Time of day, its fraction without trailing zeros, as PostgreSQL prints it."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def date_text(day: int, _: str = "") -> str:
    year, month, of_month = civil(day)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{of_month:02}{era}"


def wall_text(micros: int, _: str = "") -> str:
    day, rest = divmod(micros, DAY)
    date, bc, _era = date_text(day).partition(" BC")
    return f"{date} {clock(rest)}{bc}"


def instant_text(micros: int, zone: str) -> str:
    seconds = offset(micros, zone)
    date, bc, _era = wall_text(micros + seconds * 1_000_000).partition(" BC")
    minutes, left = divmod(abs(seconds), 60)
    parts = [
        f"{minutes // 60:02}",
        *([f"{minutes % 60:02}"] if minutes % 60 or left else []),
        *([f"{left:02}"] if left else []),
    ]
    return f"{date}{'-' if seconds < 0 else '+'}{':'.join(parts)}{bc}"


def offset(micros: int, zone: str) -> int:
    """Seconds east of UTC. Before year 1 it is local mean time, after 9999 the rule of the same day 400 years earlier."""
    day, rest = divmod(micros, DAY)
    if day > _YEAR_10000 - 3:
        day -= -((_YEAR_10000 - 3 - day) // 146_097) * 146_097
    day = max(day, _YEAR_1 + 3)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=day, microseconds=rest)
    found = moment.astimezone(ZoneInfo(zone)).utcoffset()
    assert found is not None
    return round(found.total_seconds())


def iso(day: int) -> str:
    """Spark's: years of four digits, or more with a sign."""
    year, month, of_month = civil(day)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{of_month:02}"


def iso_time(micros: int, suffix: str) -> str:
    day, rest = divmod(micros, DAY)
    return f"{iso(day)}T{clock(rest)[:8]}.{rest % 1_000_000:06}{suffix}"


def transitions() -> list[int]:
    """Microseconds around clock changes: of Berlin, New York and Lord Howe, forward and back, and at their beginnings."""
    moments = ["2024-03-31T01:00", "2024-10-27T01:00", "2024-03-10T07:00", "2024-11-03T06:00", "2024-04-06T15:00",
               "2024-10-05T15:30", "1985-12-31T18:30", "1893-04-01T00:00", "1883-11-18T17:00", "1970-01-01T00:00",
               "2038-01-19T03:14", "9999-12-31T23:59", "0001-01-01T00:00", "1582-10-15T00:00"]  # fmt: skip
    epoch = dt.datetime(1970, 1, 1)
    found = [(dt.datetime.fromisoformat(moment) - epoch) // dt.timedelta(microseconds=1) for moment in moments]
    return [at + step for at in found for step in (0, -1, 1, 1_800_000_000, -1_800_000_000, 59_999_999)]


EDGE_DAYS = [0, -1, 1, _YEAR_1, _YEAR_1 - 1, _YEAR_10000 - 1, _YEAR_10000, FIRST_DAY, LAST_DAY, -141_428, -141_427, 19_782,
             10_957, 10_956, -719_528, -719_893]  # fmt: skip
EDGE_MICROS = [
    *transitions(),
    FIRST_MICRO,
    FIRST_MICRO + 1,
    LAST_MICRO,
    _YEAR_1 * DAY - 1,
    _YEAR_10000 * DAY,
    -1,
    999_999,
]
_USUAL_DAYS, _USUAL_MICROS = (_YEAR_1, _YEAR_10000 - 1), (_YEAR_1 * DAY, _YEAR_10000 * DAY - 1)


def read_right(day: int) -> bool:
    """Delta's batch reader of the feed moves days that the old calendar skipped: see test_postgres_type_limits.py."""
    return not -141_437 <= day <= -141_428


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def prints_float(value: float, text: str, single: bool) -> bool:
    """PostgreSQL prints enough digits to read the same bits back, not always the fewest."""
    if not math.isfinite(value):
        return text == name_of(value)
    found = float(np.float32(text)) if single else float(text)
    return struct.pack("<d", found) == struct.pack("<d", value)


def name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def same_float(value: float, found: Any, single: bool) -> bool:
    """JSON has no NaN and no infinities: Spark writes their names. Its numbers have no -0.0."""
    if isinstance(found, str):
        return not math.isfinite(value) and found == name_of(value)
    return isinstance(found, Decimal) and (np.float32(str(found)) if single else float(found)) == value


def single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def same_decimal(value: Decimal, found: Any) -> bool:
    return isinstance(found, Decimal) and format(found, "f") == format(value, "f")


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def mostly(edges: list[Any], others: Strategy) -> Strategy:
    edge = st.integers(0, len(edges) - 1).map(edges.__getitem__)  # sampled_from would show them all in its repr
    return st.one_of(edge, edge, others)


TEXTS = ["", " ", "  a  ", "null", "NULL", "NaN", "\\N", "\\", '"', "'", "\\.", "{}", "[]", "a\tb\nc\rd", "\x01\x1f\x7f",
         "\u0085\u2028\u2029", "e\u0301", "é", "🦆👩‍👩‍👧", "\ufeff", "\uffff", "\U0010ffff", "ß", "İ", "~", "1:a",
         "x" * 9_000, "ab   ", "\\u0000", "\\\\u0000", "%s", "漢字" * 500, "$1", "0", "\ue000"]  # fmt: skip
text_values = mostly(TEXTS, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12))
BYTES = [b"", b"\0", b"\\x", b"\xff\xfe", bytes(range(256)), b"PGCOPY\n\xff\r\n\0", b"a" * 9_000]


def whole(ddl: str, bits: int) -> Kind:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    values = mostly([0, 1, -1, least, most, least + 1, most - 1], st.integers(least, most))
    arrow = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    return Kind(
        ddl,
        arrow,
        values,
        exactly(lambda value, _: str(value)),
        lambda value, found: found == value and _is_number(found),
    )


def _is_number(found: Any) -> bool:
    return isinstance(found, Decimal)


FLOATS = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    0.1,
    -0.1,
    1e15,
    1e14,
    123456.0,
    1234567.0,
    1e-4,
    1e-5,
    1 / 3,
    16777217.0,
]
SINGLES = [
    *map(single, FLOATS),
    1.401298464324817e-45,
    single(3.4028235e38),
    single(1.17549435e-38),
    single(1e6),
    single(1e5),
]
DOUBLES = [
    *FLOATS,
    5e-324,
    1.7976931348623157e308,
    2.2250738585072014e-308,
    2.0**53 + 2,
    1e16,
    2e-3,
    2e23,
    9007199254740993.0,
]


def number_of(precision: int, scale: int) -> Kind:
    most = 10**precision - 1
    edges = [0, 1, -1, most, -most, 10**scale if scale < precision else most, most // 2, most - most % 10_000]
    values = mostly(edges, st.integers(-most, most)).map(lambda unscaled: decimal(unscaled, scale))
    ddl = f"decimal({precision},{scale})"
    return Kind(
        ddl, pa.decimal128(precision, scale), values, exactly(lambda value, _: format(value, "f")), same_decimal
    )


@st.composite
def decimals(draw: st.DrawFn) -> Kind:
    precision = draw(st.one_of(st.sampled_from([38, 1, 18, 19, 9]), st.integers(1, 38)))
    return number_of(precision, draw(st.one_of(st.sampled_from([0, precision]), st.integers(0, precision))))


BOOLEAN = Kind(
    "boolean",
    pa.bool_(),
    st.booleans(),
    exactly(lambda value, _: str(value).lower()),
    lambda value, found: found is value,
)
WHOLE = [whole("tinyint", 8), whole("smallint", 16), whole("int", 32), whole("bigint", 64)]


def floating(ddl: str, arrow: pa.DataType, edges: list[float]) -> Kind:
    width = arrow.bit_width

    def prints(value: float, text: str, _: str) -> bool:
        return prints_float(value, text, width == 32)

    def agrees(value: float, found: Any) -> bool:
        return same_float(value, found, width == 32)

    return Kind(ddl, arrow, mostly(edges, st.floats(width=32 if width == 32 else 64)), prints, agrees)


SINGLE = floating("float", pa.float32(), SINGLES)
DOUBLE = floating("double", pa.float64(), DOUBLES)
STRING = Kind("string", pa.string(), text_values, exactly(lambda value, _: value), lambda value, found: found == value)
VARCHAR = Kind("varchar(7)", pa.string(), text_values.map(lambda text: text[:7]), STRING.prints, STRING.json)
CHAR = Kind("char(7)", pa.string(), text_values.map(lambda text: text[:7]), exactly(lambda value, _: value.ljust(7)),
            lambda value, found: found == value.ljust(7))  # fmt: skip
BINARY = Kind("binary", pa.binary(), mostly(BYTES, st.binary(max_size=20)), exactly(lambda value, _: f"\\x{value.hex()}"),
              lambda value, found: isinstance(found, str) and base64.b64decode(found, validate=True) == value)  # fmt: skip
_days = mostly(EDGE_DAYS, st.one_of(st.integers(*_USUAL_DAYS), st.integers(FIRST_DAY, LAST_DAY)))
DATE = Kind("date", pa.date32(), _days.filter(read_right),
            exactly(date_text), lambda value, found: found == iso(value))  # fmt: skip
_moments = mostly(EDGE_MICROS, st.one_of(st.integers(*_USUAL_MICROS), st.integers(FIRST_MICRO, LAST_MICRO)))
INSTANT = Kind("timestamp", pa.timestamp("us", "UTC"), _moments.filter(lambda at: read_right(at // DAY)),
               exactly(instant_text),
               lambda value, found: found == iso_time(value, "Z"))  # fmt: skip
# verify renders others unequal although they are stored as they are: see test_postgres_types.py
_walls = mostly([at for at in EDGE_MICROS if _USUAL_MICROS[0] <= at <= _USUAL_MICROS[1]], st.integers(*_USUAL_MICROS))
WALL = Kind(
    "timestamp_ntz", pa.timestamp("us"), _walls, exactly(wall_text), lambda value, found: found == iso_time(value, "")
)


# ── nested ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def same(kind: Kind, value: Any, found: Any) -> bool:
    return found is None if value is None else kind.json(value, found)


def maybe(kind: Kind) -> Strategy:
    return st.one_of(st.none(), kind.values, kind.values, kind.values)


def array_of(element: Kind) -> Kind:
    def agrees(values: list[Any], found: Any) -> bool:
        return (
            isinstance(found, list)
            and len(found) == len(values)
            and all(same(element, *pair) for pair in zip(values, found, strict=True))
        )

    made = "{}" if element.made_by == "{}" else f"transform({{}}, x -> {element.made_by.format('x')})"
    return Kind(
        f"array<{element.ddl}>", pa.list_(element.arrow), st.lists(maybe(element), max_size=4), None, agrees, made
    )


def map_of(key: Kind, value: Kind) -> Kind:
    def agrees(pairs: list[tuple[Any, Any]], found: Any) -> bool:
        # JSON's names are texts: what the key would be as a text
        named = {str(name).lower() if isinstance(name, bool) else str(name): item for name, item in pairs}
        return isinstance(found, dict) and found.keys() == named.keys() and all(
            same(value, item, found[name]) for name, item in named.items()
        )  # fmt: skip

    pairs = st.lists(st.tuples(key.values, maybe(value)), max_size=4, unique_by=lambda pair: pair[0])
    made = "{}" if value.made_by == "{}" else f"transform_values({{}}, (k, v) -> {value.made_by.format('v')})"
    return Kind(f"map<{key.ddl},{value.ddl}>", pa.map_(key.arrow, value.arrow), pairs, None, agrees, made)


NAMES = ["a", "B", "bb", "null", "ä", "dash-ed", 'quo"te', "back`tick", "🦆", "x.y", "it's", "back\\slash", "_c0"]


def struct_of(parts: dict[str, Kind]) -> Kind:
    def agrees(values: dict[str, Any], found: Any) -> bool:
        return isinstance(found, dict) and found.keys() == parts.keys() and all(
            same(kind, values[name], found[name]) for name, kind in parts.items()
        )  # fmt: skip

    def quoted(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    made = "{}"
    if any(kind.made_by != "{}" for kind in parts.values()):
        raise AssertionError("variants stand in arrays, maps or alone")
    ddl = f"struct<{', '.join(f'{quoted(name)}: {kind.ddl}' for name, kind in parts.items())}>"
    arrow = pa.struct([(name, kind.arrow) for name, kind in parts.items()])
    values = st.fixed_dictionaries({name: maybe(kind) for name, kind in parts.items()})
    return Kind(ddl, arrow, values, None, agrees, made)


_NUMBERS = [
    Decimal(0),
    Decimal("-1.5"),
    Decimal("0.1234567890123456789012345678901234567"),
    Decimal(10**37),
    Decimal(-(2**63)),
]
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), text_values, mostly(_NUMBERS, st.integers(-(10**30), 10**30).map(Decimal)),
              st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text_values, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip


def _written(value: Any) -> str:
    """JSON. Spark reads plain numbers as decimals, those with an exponent as doubles."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_written(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return text if "e" in (text := repr(value)) else f"{text}e0"
    return json.dumps(value)


def _same_json(text: str, found: Any) -> bool:
    return _equal(json.loads(text, parse_float=_number, parse_int=Decimal), found)


def _number(text: str) -> Any:
    return float(text) if "e" in text else Decimal(text)


def _equal(value: Any, found: Any) -> bool:
    if isinstance(value, dict):
        return (
            isinstance(found, dict) and value.keys() == found.keys() and all(_equal(value[k], found[k]) for k in value)
        )
    if isinstance(value, list):
        return isinstance(found, list) and len(value) == len(found) and all(map(_equal, value, found))
    if isinstance(value, float):
        return isinstance(found, Decimal) and float(found) == value
    return type(value) is type(found) and bool(value == found)


VARIANT = Kind("variant", pa.string(), _json.map(_written), None, _same_json, "parse_json({})")
PLAIN = [BOOLEAN, *WHOLE, SINGLE, DOUBLE, STRING, BINARY, DATE, INSTANT, WALL]
KEYS = [STRING, *WHOLE, BOOLEAN]


def plain_kinds() -> Strategy:
    """All of them, in any order, with two decimals."""
    return st.tuples(decimals(), decimals()).flatmap(lambda two: st.permutations([*PLAIN, CHAR, VARCHAR, *two]))


def nested_kinds() -> Strategy:
    leaves = st.one_of(st.sampled_from(PLAIN), decimals())
    free = st.recursive(leaves, lambda inner: st.one_of(
        inner.map(array_of), st.builds(map_of, st.sampled_from(KEYS), inner), _structs(inner)), max_leaves=4)  # fmt: skip
    return st.tuples(
        free.map(array_of), st.builds(map_of, st.sampled_from(KEYS), free), _structs(free), st.just(VARIANT),
        st.sampled_from([array_of(VARIANT), map_of(STRING, VARIANT), array_of(array_of(DOUBLE))]),
    )  # fmt: skip


def _structs(inner: Strategy) -> Strategy:
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique_by=str.lower)
    parts = names.flatmap(lambda chosen: st.tuples(*[st.tuples(st.just(name), inner) for name in chosen]))
    return parts.map(dict).map(struct_of)
