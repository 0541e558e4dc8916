"""A target that was there first may have other types than ours: what may be written into them, and how to be sure.

Rows arrive in staging with the types of ``connectors.postgres.types``. Into a column of another type a value is cast in SQL,
and only where nothing of it is lost: ``faithful`` tells of every staged value whether it fits, and is asked before anything
is written. ``back`` gives it back in our type, so that ``verify`` compares what the target really holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import TargetNotReady
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Cast", "Found", "PLAIN", "cast", "casts_for", "chosen_by_somebody"]


@dataclass(frozen=True, slots=True)
class Cast:
    """Each a template of SQL; ``{}`` stands for the column."""

    value: str = "{}"
    """What is written, of the staged column."""
    faithful: str | None = None
    """Whether a staged value fits; None where each does."""
    back: str = "{}"
    """The target's column in our type."""
    returns: str | None = None
    """Whether a value found in the target is the image of one of ours; None where each is. Of another one ``back`` would
    hide the difference, or fail."""
    note: str | None = None
    """What somebody should know who looks at the target."""


@dataclass(frozen=True, slots=True)
class Found:
    """The type of a target's column. ``base`` is what lies under a domain, otherwise ``type`` again."""

    type: str
    base: str
    enum: bool = False
    folds: bool = False
    """Texts that differ can be equal there: by a collation, or as citext."""


PLAIN = Cast()


def casts_for(target: str, schema: StructType, found: Mapping[str, Found]) -> dict[str, Cast]:
    """How each column's staged values go into what was found. Raises TargetNotReady where a type has become unsuitable."""
    casts = {}
    for field in schema.fields:
        wanted = target_type(field.dataType)
        way = None if wanted is None else cast(wanted, found[field.name])
        if way is None:
            raise TargetNotReady(
                f"{target}: column {field.name!r} is {found[field.name].type} now, the source needs {wanted}",
                hint="alter it back, or make the target anew with `deltarelay run --reload`",
            )
        casts[field.name] = way
    return casts


_INTEGERS = {"smallint": 16, "integer": 32, "bigint": 64}
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?$")
_SIZED = re.compile(r"(character varying|character|timestamp)(?:\((\d+)\))?( with(?:out)? time zone)?$")
_OUR_NUMERIC = re.compile(r"numeric\(\d+,\d+\)$")
_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def cast(ours: str, found: Found) -> Cast | None:
    """How a value of our type goes into the type that was found; None where there is no way without loss."""
    if found.type == ours:
        return PLAIN
    if found.enum:
        if ours != "text":
            return None
        return Cast(f"{{}}::{found.type}", f"{{}} = any (enum_range(null::{found.base})::text[])", "{}::text")
    way = _cast(ours, found.base)
    if way is None or found.base == found.type:
        return way
    under = f"({{}}::{found.base})"
    return Cast(
        f"({way.value})::{found.type}",
        way.faithful,
        way.back.replace("{}", under),
        None if way.returns is None else way.returns.replace("{}", under),
        way.note,
    )


def chosen_by_somebody(ours: str, found: Found, *, made_by_us: bool) -> bool:
    """Whether the column has this type because somebody wanted it so. In a table that we made it may also be the type from
    before the source's column was widened."""
    way = cast(ours, found)
    if way is None or way is PLAIN:
        return False
    return not made_by_us or way.faithful is None or not _widened_since(ours, found.type)


def _widened_since(ours: str, found: str) -> bool:
    """https://docs.delta.io/latest/delta-type-widening.html"""
    if found in _INTEGERS:
        return ours in _INTEGERS or ours.startswith("numeric")
    if _OUR_NUMERIC.match(found):
        return ours.startswith("numeric")
    return found == "real" and ours == "double precision"


def _cast(ours: str, base: str) -> Cast | None:
    if ours == base:
        return PLAIN
    if ours.endswith("[]"):
        return None
    back = f"{{}}::{ours}"
    if ours in _INTEGERS:
        return _of_integer(ours, base, back)
    if ours.startswith("numeric"):
        return _of_numeric(ours, base, back)
    if ours in ("real", "double precision"):
        return _of_float(base, back)
    if ours == "text":
        return _of_text(base)
    if ours == "jsonb" and base in ("json", "text"):
        return Cast(f"{{}}::{base}", None, "{}::jsonb")
    if ours == "date" and base == "timestamp without time zone":
        day = "isfinite({}) and {} = date_trunc('day', {})"
        return Cast("{}::timestamp", None, back, day)
    if ours.startswith("timestamp"):
        return _of_timestamp(ours, base, back)
    return None


def _of_integer(ours: str, base: str, back: str) -> Cast | None:
    if base in _INTEGERS:
        if _INTEGERS[base] > _INTEGERS[ours]:
            return Cast(f"{{}}::{base}", None, back, _between(_INTEGERS[ours]))
        return Cast(f"{{}}::{base}", _between(_INTEGERS[base]), back)
    whole = "{} = trunc({}) and "
    if base == "double precision":
        exact = None if ours != "bigint" else _EXACT_IN_DOUBLE
        return Cast("{}::double precision", exact, back, whole + (exact or _between(_INTEGERS[ours])))
    return _into_numeric("{}::numeric", base, back, whole + _between(_INTEGERS[ours]), digits=(_DIGITS[ours], 0))


def _between(bits: int) -> str:
    limit = 2 ** (bits - 1)
    return f"{{}} between {-limit} and {limit - 1}"


_EXACT_IN_DOUBLE = f"{{}} between {-(2**53)} and {2**53}"


def _of_numeric(ours: str, base: str, back: str) -> Cast | None:
    held = _NUMERIC.match(ours)
    assert held is not None
    whole, scale = int(held[1]) - int(held[2]), int(held[2])
    if base in _INTEGERS:
        fits = f"{{}} = trunc({{}}) and {_between(_INTEGERS[base])}"
        return Cast(f"{{}}::{base}", fits, back, f"abs({{}}::numeric) < 1e{whole}::numeric")
    return _into_numeric("{}", base, back, _in_digits("{}", whole, scale), digits=(whole, scale))


def _in_digits(value: str, whole: int, scale: int) -> str:
    return f"{value} = round({value}, {scale}) and abs({value}) < 1e{whole}::numeric"


def _into_numeric(value: str, base: str, back: str, returns: str, *, digits: tuple[int, int]) -> Cast | None:
    """``digits``: before and after the point, the most that a value of ours has."""
    found = _NUMERIC.match(base)
    if found is None:
        return None
    if found[1] is None:
        return Cast(value, None, back, returns)
    whole, scale = int(found[1]) - int(found[2]), int(found[2])
    held = whole >= digits[0] and scale >= digits[1]
    return Cast(f"{value}::{base}", None if held else _in_digits(value, whole, scale), back, returns)


def _of_float(base: str, back: str) -> Cast | None:
    # Its limits are looked at first: a cast beyond them is an error, not a value that differs
    fits = "case when abs({}) > 3.4028234663852886e38 and abs({}) < 'infinity' then false else {} end"
    exact = "({} = 'NaN' or {}::real::double precision = {})"
    in_real = fits.replace("else {}", f"else {_no_underflow(exact)}")
    if base == "double precision":
        return Cast("{}::double precision", None, back, in_real)
    return Cast("{}::real", in_real, back) if base == "real" else None


def _no_underflow(exact: str) -> str:
    return f"case when {{}} <> 0 and abs({{}}) < 1.401298464324817e-45 then false else {exact} end"


def _of_text(base: str) -> Cast | None:
    found = _SIZED.match(base)
    if found is not None and found[1] == "character varying":
        fits = None if found[2] is None else f"char_length({{}}) <= {found[2]}"
        return Cast(f"{{}}::{base}", fits, "{}::text")
    if found is not None and found[1] == "character":
        # Trailing blanks mean nothing in char(n): a text that has some would not come back
        return Cast(f"{{}}::{base}", f"char_length({{}}) <= {found[2] or 1} and {{}} = rtrim({{}}, ' ')", "{}::text")
    if base == "uuid":
        return Cast("{}::uuid", f"{{}} ~ '{_UUID}'", "{}::text")
    return Cast("{}::" + base, None, "{}::text") if base.rpartition(".")[2] == "citext" else None


def _of_timestamp(ours: str, base: str, back: str) -> Cast | None:
    found, mine = _SIZED.match(base), _SIZED.match(ours)
    if found is None or mine is None or found[1] != "timestamp":
        return None
    fits = None if found[2] in (None, "6") else f"{{}} = {{}}::{base}"
    if found[3] == mine[3]:
        return Cast(f"{{}}::{base}", fits, back)
    if mine[3] == " with time zone":
        in_utc = "({} at time zone 'UTC')"
        exact = None if fits is None else f"{in_utc} = {in_utc}::{base}"
        return Cast(f"{in_utc}::{base}", exact, "({} at time zone 'UTC')", note="holds instants as UTC, without a zone")
    return None
