"""Reads a file of requests, CSV or JSON. Either the whole file is valid, or every fault is reported and no request is read.

A message names lines, entries and fields, and never contains a value: a field in the wrong column may be an address.
"""

from __future__ import annotations

import calendar
import csv
import datetime as dt
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.erasure.model import Request, Subject
from audit.erasure.requests.validate import FIELDS, PREFIX, Entry, Faults, Record
from audit.files import describe_failure
from cdf.errors import ConfigError

__all__ = ["month_after", "read_requests"]

_LIST = "requests"


def read_requests(path: Path, subjects: Mapping[str, Subject], *, today: dt.date) -> tuple[Request, ...]:
    """Return the requests in the order of the file. ``*.json`` is read as JSON, ``*.csv`` as CSV, any other by its first
    characters.

    A request that occurs twice with the same content is one. Raises ConfigError with every fault of the file: ``problems``
    has their lines (numbers of entries in JSON), fields and messages.
    """
    file = _File(path, Faults(str(path)), subjects)
    text = file.text()
    kind = path.suffix.lower()
    is_json = kind == ".json" or (kind != ".csv" and text.lstrip()[:1] in ("[", "{"))
    records = file.json(text) if is_json else file.csv(text)
    if not records and not file.faults.found:
        file.faults.add(None, None, "holds no request")
    found: dict[str, tuple[Request, Record]] = {}
    for record in records:
        request = Entry(record, subjects, file.faults, today=today, due=month_after).request()
        if request is None:
            continue
        first = found.setdefault(request.id, (request, record))
        if first[0] != request:
            message = f"occurs twice with other content; the first is in {first[1].place}"
            file.faults.add(record, "id", message)
    file.faults.raise_if_any()
    return tuple(request for request, _ in found.values())


def month_after(day: dt.date) -> dt.date:
    """Return the same day of the next month, or its last day: Art. 12(3) GDPR gives a month, not 30 days."""
    year, month = (day.year + 1, 1) if day.month == 12 else (day.year, day.month + 1)
    return dt.date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


@dataclass
class _File:
    """Parses a file to records, with the faults of each format."""

    path: Path
    faults: Faults
    subjects: Mapping[str, Subject]
    known: list[str] = field(init=False)

    def __post_init__(self) -> None:
        names = list(dict.fromkeys(name for one in self.subjects.values() for name in one.identifiers))
        self.known = [*FIELDS, *(name for name in names if name not in FIELDS), *(PREFIX + name for name in names)]

    def text(self) -> str:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {describe_failure(error)}") from error
        line = 0
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
        if line:  # outside of the handler: the decoder's error contains the file
            raise ConfigError(f"{self.path}: line {line} is not UTF-8 text", hint="save the file as UTF-8")
        if not text.strip():
            raise ConfigError(f"{self.path} is empty", hint="a CSV begins with a header: id,email,requester")
        return text

    def csv(self, text: str) -> list[Record]:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
        header: list[str] | None = None
        records: list[Record] = []
        is_broken = False
        while True:
            line = reader.line_num + 1
            try:
                row = [cell.strip() for cell in next(reader)]
            except StopIteration:
                break
            except csv.Error:
                is_broken = True
                break
            if not any(row):
                continue
            if header is None:
                header = row
                self.check_header(header, line)
                continue
            record = Record("line", line)
            if len(row) != len(header):
                more = "more" if len(row) > len(header) else "fewer"
                self.faults.add(record, None, f"has {more} fields than the header ({len(row)}, not {len(header)})")
                continue
            record.values.update({name: value for name, value in zip(header, row, strict=True) if value})
            records.append(record)
        if is_broken:
            self.faults.add(Record("line", line), None, "is not valid CSV: a quote or a field does not end")
        return records

    def check_header(self, header: list[str], line: int) -> None:
        """Raises at once: with a wrong header each line would have the same fault."""
        record = Record("line", line)
        if len(header) == 1 and any(sign in header[0] for sign in ";\t"):
            self.faults.add(record, None, "is separated by semicolons or tabs; save the file with commas")
        elif "id" not in header:
            self.faults.add(record, None, "is not a header with a column `id`")
        else:
            for position, name in enumerate(header, start=1):
                if not name:
                    self.faults.add(record, None, f"column {position} has no name")
                elif name not in self.known:
                    self.faults.unknown(record, name, self.known, f"column {position}")
                elif name in header[: position - 1]:
                    self.faults.add(record, name, "is the name of two columns")
        self.faults.raise_if_any()

    def json(self, text: str) -> list[Record]:
        line = 0
        data: Any = None
        try:
            data = json.loads(text, object_pairs_hook=_Pairs)
        except json.JSONDecodeError as error:
            line = error.lineno
        except (ValueError, RecursionError):
            line = 1
        if line:
            raise ConfigError(f"{self.path}: line {line} is not JSON")
        if isinstance(data, _Pairs):
            if [name for name, _ in data] != [_LIST]:
                raise ConfigError(f"{self.path} must be a list of requests, or an object with only `{_LIST}` in it")
            data = data[0][1]
        if not isinstance(data, list) or isinstance(data, _Pairs):
            raise ConfigError(f"{self.path} must be a list of requests")
        records = [self.entry(number, one) for number, one in enumerate(data, start=1)]
        return [record for record in records if record is not None]

    def entry(self, number: int, data: object) -> Record | None:
        record = Record("entry", number)
        if not isinstance(data, _Pairs):
            self.faults.add(record, None, "must be an object")
            return None
        for name, value in data:
            if name != PREFIX.rstrip("."):
                self.put(record, name, value)
            elif isinstance(value, _Pairs):
                for inner, one in value:
                    self.put(record, PREFIX + inner, one)
            else:
                self.faults.add(record, name, "must be an object, identifier and value")
        return record

    def put(self, record: Record, name: str, value: object) -> None:
        if name not in self.known:
            self.faults.unknown(record, name, self.known, "a field")
        elif name in record.values:
            self.faults.add(record, name, "occurs twice")
        elif isinstance(value, int) and not isinstance(value, bool):
            record.values[name] = str(value)
        elif isinstance(value, str):
            record.values[name] = value
        elif value is not None:
            self.faults.add(record, name, "must be text or a whole number")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its names, also those that occur twice."""
