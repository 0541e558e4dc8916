"""Values with a format of their own in the configuration file: sizes, starts, tables, whole numbers, columns."""

from __future__ import annotations

import datetime as dt
import os.path
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationInfo

from infra.s3.address import is_s3, normalize_address
from infra.url_passwords import contains_password

__all__ = [
    "Start",
    "check_columns",
    "folder_of",
    "parse_count",
    "parse_size",
    "parse_start",
    "resolve_path",
    "resolve_table",
]

Start = Literal["snapshot", "earliest"] | int | dt.datetime

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-zA-Z]*)")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAMED_STARTS: dict[str, Literal["snapshot", "earliest"]] = {"snapshot": "snapshot", "earliest": "earliest"}
_START_HELP = (
    "must be snapshot, earliest, a version (0 or more) or a timestamp with its time zone, such as 2026-01-31T00:00:00Z"
)


def folder_of(info: ValidationInfo) -> Path | None:
    """The folder where relative paths start, from the context of the validation."""
    return info.context.get("folder") if isinstance(info.context, dict) else None


def check_columns(value: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError for an empty column name and for a column that is listed twice."""
    if not all(column.strip() for column in value):
        raise ValueError("has an empty column name")
    if len({column.lower() for column in value}) < len(value):
        raise ValueError("lists a column twice")
    return value


def parse_count(value: Any) -> int:
    """A whole number, also as text: environment variables are text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value)
    raise ValueError("must be a whole number")


def parse_size(value: Any) -> int:
    """Bytes: a number, or a number with a unit. ``MB`` is 10^6 bytes, ``MiB`` is 2^20."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or (unit := _UNITS.get(found[2].lower())) is None:
        raise ValueError("must be a size: a number of bytes, or text such as 256MB or 64 MiB")
    return int(found[1]) * unit if found[1].isdecimal() else int(float(found[1]) * unit)


def parse_start(value: Any) -> Start:
    """Where a pipeline begins while its sink is empty."""
    if isinstance(value, dt.datetime):
        return _with_zone(value)
    if isinstance(value, str) and not _COUNT.fullmatch(value):
        if value in _NAMED_STARTS:
            return _NAMED_STARTS[value]
        try:
            # many logs write a space before the offset, which Python does not parse
            moment = dt.datetime.fromisoformat(re.sub(r"\s+(?=[-+Z][0-9:]*$)", "", value.strip()))
        except ValueError:
            raise ValueError(_START_HELP) from None
        return _with_zone(moment)
    try:
        version = parse_count(value)
    except ValueError:
        raise ValueError(_START_HELP) from None
    if version < 0:
        raise ValueError(_START_HELP)
    return version


def _with_zone(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        raise ValueError("has no time zone: add Z for UTC or an offset such as +02:00 to the timestamp")
    return moment.astimezone(dt.UTC)


def resolve_table(table: str, folder: Path | None) -> str:
    """The address of the table: relative local paths start at ``folder``; URLs and catalog names are unchanged."""
    if not table.strip():
        raise ValueError("is empty; give a path, a URL or a catalog name")
    if "`" in table:
        raise ValueError("must be the path alone, without delta.`...`")
    if contains_password(table):
        raise ValueError("contains credentials; remove them from the address and set them in spark.conf")
    if is_s3(table):
        return normalize_address(table)
    if _URL.match(table) or not ("/" in table or table in (".", "..", "~")):
        return table
    return str(resolve_path(table, folder))


def resolve_path(path: str | Path, folder: Path | None) -> Path:
    """A local path: ``~`` is the home of the user, and relative paths start at ``folder``."""
    if not str(path).strip():
        raise ValueError("is empty; give a path")
    found = Path(path)
    if found.parts and found.parts[0].startswith("~"):
        try:
            return found.expanduser()
        except RuntimeError:
            raise ValueError("begins with ~ but the home of that user is unknown; write the absolute path") from None
    # links are not resolved: they may change between two runs
    return Path(os.path.normpath(folder / found)) if folder is not None and not found.is_absolute() else found
