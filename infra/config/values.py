"""The values that a configuration file writes in a form of their own: sizes, starts, tables, whole numbers."""

from __future__ import annotations

import datetime as dt
import os.path
import re
from pathlib import Path
from typing import Any, Literal

from infra.s3.address import is_s3, normalised

__all__ = ["Start", "parse_count", "parse_size", "parse_start", "resolve_path", "resolve_table"]

Start = Literal["snapshot", "earliest"] | int | dt.datetime

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-zA-Z]*)")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_CREDENTIALS = re.compile(r"://[^@\s]*:[^@\s]*@")
_NAMED: dict[str, Literal["snapshot", "earliest"]] = {"snapshot": "snapshot", "earliest": "earliest"}
_STARTS = "must be snapshot, earliest, a version (0 or more) or a timestamp with its zone, such as 2026-01-31T00:00:00Z"


def parse_count(value: Any) -> int:
    """A whole number, also as text, which is what an environment variable gives."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value)
    raise ValueError("must be a whole number")


def parse_size(value: Any) -> int:
    """Bytes: a number, or a number with a unit. ``MB`` counts in thousands, ``MiB`` in 1024s."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or (unit := _UNITS.get(found[2].lower())) is None:
        raise ValueError("must be a size: a number of bytes, or a text such as 256MB or 64 MiB")
    return int(found[1]) * unit if found[1].isdecimal() else int(float(found[1]) * unit)


def parse_start(value: Any) -> Start:
    """Where a pipeline begins while its sink is empty."""
    if isinstance(value, dt.datetime):
        return _with_zone(value)
    if isinstance(value, str) and not _COUNT.fullmatch(value):
        if value in _NAMED:
            return _NAMED[value]
        try:
            # the space before an offset is how many logs write it; Python reads it only without
            moment = dt.datetime.fromisoformat(re.sub(r"\s+(?=[-+Z][0-9:]*$)", "", value.strip()))
        except ValueError:
            raise ValueError(_STARTS) from None
        return _with_zone(moment)
    try:
        version = parse_count(value)
    except ValueError:
        raise ValueError(_STARTS) from None
    if version < 0:
        raise ValueError(_STARTS)
    return version


def _with_zone(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        raise ValueError("say which zone: add Z for UTC or an offset such as +02:00 to the timestamp")
    return moment.astimezone(dt.UTC)


def resolve_table(table: str, folder: Path | None) -> str:
    """The table's address with a relative local path taken from ``folder``; URLs and catalog names stay as they are."""
    if not table.strip():
        raise ValueError("is empty; give a path, a URL or a catalog name")
    if "`" in table:
        raise ValueError("must be the path alone, without delta.`...`")
    if _CREDENTIALS.search(table):
        raise ValueError("holds credentials; set those in spark.conf and keep them out of the address")
    if is_s3(table):
        return normalised(table)
    if _URL.match(table) or not ("/" in table or table in (".", "..", "~")):
        return table
    return str(resolve_path(table, folder))


def resolve_path(path: str | Path, folder: Path | None) -> Path:
    """A local path, from the user's home where it begins with ``~``, else from ``folder`` where it is relative."""
    if not str(path).strip():
        raise ValueError("is empty; give a path")
    found = Path(path)
    if found.parts and found.parts[0].startswith("~"):
        try:
            return found.expanduser()
        except RuntimeError:
            raise ValueError("begins with ~ but that user's home is not known; write the whole path") from None
    # the names alone are joined: a link on the way may be pointed elsewhere between two runs
    return Path(os.path.normpath(folder / found)) if folder is not None and not found.is_absolute() else found
