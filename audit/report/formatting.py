"""Numbers, times and versions as the report prints them."""

from __future__ import annotations

import datetime as dt

__all__ = [
    "format_count",
    "format_number",
    "format_time",
    "format_utc",
    "format_version",
    "format_versions",
    "or_dash",
    "or_unknown",
]


def format_time(at: dt.datetime | None) -> str:
    """In UTC, for columns whose heading says so."""
    return "unknown" if at is None else f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"


def format_utc(at: dt.datetime | None) -> str:
    return format_time(at) + ("" if at is None else " UTC")


def format_number(value: int) -> str:
    return f"{value:,}"


def format_count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def format_version(version: int | None) -> str:
    return or_dash(None if version is None else str(version))


def format_versions(first: int | None, last: int | None) -> str:
    return "none" if first is None else f"{first} to {last}"


def or_unknown(text: str | None) -> str:
    return "(unknown)" if text is None else text


def or_dash(text: str | None) -> str:
    return "-" if text is None else text
