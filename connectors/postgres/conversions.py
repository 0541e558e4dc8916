"""Casts between our types and the types of an existing target.

Rows are staged with the types of ``connectors.postgres.types``. For a column of another type each value is cast in SQL, and
only if the cast loses nothing: ``faithful`` is evaluated for every staged value before anything is written. ``back`` casts
the target's value to our type, so that ``verify`` compares what the target really holds.
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

__all__ = ["PLAIN", "Cast", "ColumnType", "find_cast", "find_casts", "is_chosen_by_user"]


@dataclass(frozen=True, slots=True)
class Cast:
    """Templates of SQL; ``{}`` is replaced by the column."""

    value: str = "{}"
    """The value to write, from the staged column."""
    faithful: str | None = None
    """Whether a staged value fits; None if every value does."""
    back: str = "{}"
    """The target's column in our type."""
    returns: str | None = None
    """Whether a value of the target is the image of one of ours; None if every value is. For any other value ``back`` would
    hide the difference, or fail."""
    note: str | None = None
    """How the stored value differs in meaning; for users who read the target."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a target's column. ``base`` is the base type of a domain, otherwise ``type`` again."""

    type: str
    base: str
    enum: bool = False
    folds: bool = False
    """Different texts can be equal: by a collation, or as citext."""


PLAIN = Cast()


def find_casts(target: str, schema: StructType, types: Mapping[str, ColumnType]) -> dict[str, Cast]:
    """The cast of each column into the target's ``types``. Raises TargetNotReady if a type has become unsuitable."""
    casts = {}
    for field in schema.fields:
        wanted = target_type(field.dataType)
        cast = None if wanted is None else find_cast(wanted, types[field.name])
        if cast is None:
            raise TargetNotReady(
                f"{target}: column {field.name!r} is {types[field.name].type} now, the source needs {wanted}",
                hint="alter it back, or rebuild the target with `deltarelay run --reload`",
            )
        casts[field.name] = cast
    return casts


_INTEGERS = {"smallint": 16, "integer": 32, "bigint": 64}
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?$")
_SIZED = re.compile(r"(character varying|character|timestamp)(?:\((\d+)\))?( with(?:out)? time zone)?$")
_OUR_NUMERIC = re.compile(r"numeric\(\d+,\d+\)$")
_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def find_cast(ours: str, found: ColumnType) -> Cast | None:
    """The cast from our type to the target's; None if every cast could lose something."""
    if found.type == ours:
        return PLAIN
    if found.enum:
        if ours != "text":
            return None
        return Cast(f"{{}}::{found.type}", f"{{}} = any (enum_range(null::{found.base})::text[])", "{}::text")
    cast = _find_base_cast(ours, found.base)
    if cast is None or found.base == found.type:
        return cast
    under = f"({{}}::{found.base})"
    return Cast(
        f"({cast.value})::{found.type}",
        cast.faithful,
        cast.back.replace("{}", under),
        None if cast.returns is None else cast.returns.replace("{}", under),
        cast.note,
    )


def is_chosen_by_user(ours: str, found: ColumnType, *, made_by_us: bool) -> bool:
    """Whether a user chose the column's type. In a table that we created it may also be the source's type from before it was
    widened."""
    cast = find_cast(ours, found)
    if cast is None or cast is PLAIN:
        return False
    return not made_by_us or cast.faithful is None or not _was_widened(ours, found.type)


def _was_widened(ours: str, found: str) -> bool:
    """https://docs.delta.io/latest/delta-type-widening.html"""
    if found in _INTEGERS:
        return ours in _INTEGERS or ours.startswith("numeric")
    if _OUR_NUMERIC.match(found):
        return ours.startswith("numeric")
    return found == "real" and ours == "double precision"


def _find_base_cast(ours: str, base: str) -> Cast | None:
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
    our_type = _NUMERIC.match(ours)
    assert our_type is not None
    whole, scale = int(our_type[1]) - int(our_type[2]), int(our_type[2])
    if base in _INTEGERS:
        fits = f"{{}} = trunc({{}}) and {_between(_INTEGERS[base])}"
        return Cast(f"{{}}::{base}", fits, back, f"abs({{}}::numeric) < 1e{whole}::numeric")
    return _into_numeric("{}", base, back, _in_digits("{}", whole, scale), digits=(whole, scale))


def _in_digits(value: str, whole: int, scale: int) -> str:
    return f"{value} = round({value}, {scale}) and abs({value}) < 1e{whole}::numeric"


def _into_numeric(value: str, base: str, back: str, returns: str, *, digits: tuple[int, int]) -> Cast | None:
    """``digits``: maximum number of digits of our type before and after the point."""
    found = _NUMERIC.match(base)
    if found is None:
        return None
    if found[1] is None:
        return Cast(value, None, back, returns)
    whole, scale = int(found[1]) - int(found[2]), int(found[2])
    fits = whole >= digits[0] and scale >= digits[1]
    return Cast(f"{value}::{base}", None if fits else _in_digits(value, whole, scale), back, returns)


def _of_float(base: str, back: str) -> Cast | None:
    # The limits are checked first: a cast of a value outside of them raises an error instead of returning another value
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
        # char(n) ignores trailing blanks: a text that ends with blanks would be read back without them
        return Cast(f"{{}}::{base}", f"char_length({{}}) <= {found[2] or 1} and {{}} = rtrim({{}}, ' ')", "{}::text")
    if base == "uuid":
        return Cast("{}::uuid", f"{{}} ~ '{_UUID}'", "{}::text")
    return Cast("{}::" + base, None, "{}::text") if base.rpartition(".")[2] == "citext" else None


def _of_timestamp(ours: str, base: str, back: str) -> Cast | None:
    found, our_type = _SIZED.match(base), _SIZED.match(ours)
    if found is None or our_type is None or found[1] != "timestamp":
        return None
    fits = None if found[2] in (None, "6") else f"{{}} = {{}}::{base}"
    if found[3] == our_type[3]:
        return Cast(f"{{}}::{base}", fits, back)
    if our_type[3] == " with time zone":
        in_utc = "({} at time zone 'UTC')"
        exact = None if fits is None else f"{in_utc} = {in_utc}::{base}"
        return Cast(f"{in_utc}::{base}", exact, "({} at time zone 'UTC')", note="holds instants as UTC, without a zone")
    return None
