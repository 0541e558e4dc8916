"""The entries of the lock table: commits that were begun and not completed, and their state on S3.

A commit of version N takes three steps: its actions are written to a temporary file, an entry claims N (``complete`` =
"false"), the file is copied to ``N.json`` and the entry is completed. The next reader or writer completes what a dead writer
has left, so most entries need no repair. An entry has no time until it is complete: its age is that of its temporary file.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdf.errors import CdfError, ConfigError
from cdf.result import Result
from infra.s3.address import S3Address
from infra.s3.errors import translate_aws_errors
from infra.s3.lock.evidence import COMMIT, YOUNG_SECONDS, Logs, State, decide, parse_address
from infra.s3.lock.table import connect
from infra.s3.model import Storage

__all__ = [
    "LockEntries",
    "LockEntry",
    "LockedTable",
    "OpenEntry",
    "read_entries",
    "examine_entries",
    "list_entries",
    "examine_entry",
]

_SPELLINGS = ("s3a://", "s3://", "s3n://")

ADVICE: Mapping[State, str] = {
    "young": "its writer is probably still running: check again in a minute",
    "to_copy": "the next writer or reader completes it, and so does `deltarelay storage lock repair`",
    "to_mark": "the commit exists, only its entry is not completed: `deltarelay storage lock repair` completes it",
    "blocked": "the previous version is missing, and completing this one would leave a gap that makes the table unreadable. "
    "First restore the previous version from a backup or from the bucket's object versions",
    "foreign": "another writer, which does not use this lock table, wrote this version: the commit of this entry is lost. "
    "Run its job again and find that writer; `deltarelay storage lock repair` completes the entry, as Delta would",
    "expired": "the log was cleaned up past this version: `deltarelay storage lock repair` completes the entry",
    "lost": "the commit and its temporary file are lost, although its writer may have reported success; the commit "
    "was never readable. `deltarelay storage lock repair --drop-lost` removes the entry: the table then ends at the "
    "previous version, and can be read and written again. Before its job runs again, check whether its rows are present: "
    "delta-rs may have committed them as the previous version, and reported an error",
    "overtaken": "the commit is missing, and later ones exist: a writer did not use this lock, or files were deleted. "
    "Restore the file from a backup or from the bucket's object versions; then run `deltarelay storage lock repair`",
    "dropped": "the table has no commits any more: `deltarelay storage lock forget ADDRESS` removes its entries",
    "unseen": "its table could not be read",
}


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LockEntry:
    table: str
    """In the spelling of the writer: the key of the lock."""
    file: str
    temp: str
    complete: bool
    expires: int | None
    item: Mapping[str, Any]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> LockEntry:
        def text(name: str) -> str:
            return str(item.get(name, {}).get("S", ""))

        expires = item.get("expireTime", {}).get("N")
        return cls(
            table=text("tablePath"),
            file=text("fileName"),
            temp=text("tempPath"),
            complete=text("complete") == "true",
            expires=None if expires is None else int(expires),
            item=item,
        )

    @property
    def version(self) -> int | None:
        found = COMMIT.fullmatch(self.file)
        return int(found[1]) if found else None

    @property
    def key(self) -> dict[str, Any]:
        return {name: self.item[name] for name in ("tablePath", "fileName")}


def list_entries(client: Any, name: str, table: str | None = None) -> list[LockEntry]:
    """Every entry, or those of one table under all the spellings of its address."""
    with translate_aws_errors(f"reading the lock table {name}"):
        if table is None:
            pages = client.get_paginator("scan").paginate(TableName=name, ConsistentRead=True)
            return [LockEntry.of(item) for page in pages for item in page["Items"]]
        query = client.get_paginator("query")
        found = []
        for spelling in spellings(table):
            pages = query.paginate(
                TableName=name,
                ConsistentRead=True,
                KeyConditionExpression="tablePath = :path",
                ExpressionAttributeValues={":path": {"S": spelling}},
            )
            found += [LockEntry.of(item) for page in pages for item in page["Items"]]
        return found


def spellings(table: str) -> list[str]:
    address = parse_address(table)
    rest = f"{address.bucket}/{address.key}".rstrip("/")
    return [f"{scheme}{rest}{slash}" for scheme in _SPELLINGS for slash in ("", "/")]


# ── entries and the log on S3 ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OpenEntry(Result):
    """An entry whose commit is not complete, or is marked as complete and missing."""

    table: str
    version: int | None
    file: str
    temp_file: str
    complete: bool
    """True: the entry is marked as complete, but the commit is missing."""
    state: State
    age_seconds: float | None
    """Since its temporary file was written; None where that file is missing."""
    advice: str


@dataclass(frozen=True, slots=True)
class LockedTable(Result):
    table: str
    entries: int
    latest_complete: int | None
    expires_at: dt.datetime | None
    """When DynamoDB may remove the latest complete entry."""


@dataclass(frozen=True, slots=True)
class LockEntries(Result):
    lock_table: str
    region: str
    tables: tuple[LockedTable, ...]
    open: tuple[OpenEntry, ...]
    clashes: tuple[tuple[str, ...], ...]
    """Several spellings of one address: each has separate locks, which do not exclude each other."""

    @property
    def sound(self) -> bool:
        return not self.clashes and all(one.state == "young" for one in self.open)


def read_entries(storage: Storage, table: str | None = None, *, young_seconds: float = YOUNG_SECONDS) -> LockEntries:
    """The entries of all tables or of one; changes nothing."""
    lock, client = connect(storage)
    all_entries = list_entries(client, lock.table, table)
    paths = _group_by_table(all_entries)
    return LockEntries(
        lock_table=lock.table,
        region=str(lock.region),
        tables=tuple(_summarize_table(path, found) for path, found in paths.items()),
        open=tuple(found for _, found in examine_entries(Logs(storage), all_entries, young_seconds=young_seconds)),
        clashes=_find_clashes(paths),
    )


def examine_entries(
    logs: Logs, all_entries: Iterable[LockEntry], *, young_seconds: float = YOUNG_SECONDS
) -> Iterator[tuple[LockEntry, OpenEntry]]:
    """Each incomplete entry with the state of its commit. A table that cannot be read does not stop the others."""
    for found in _group_by_table(all_entries).values():
        latest = found[-1]
        for entry in found:
            if entry.complete and entry is not latest:
                continue
            try:
                seen = examine_entry(logs, entry, later_entry=entry is not latest, young_seconds=young_seconds)
            except CdfError as error:
                seen = _to_open_entry(entry, "unseen", None, format_error(error))
            if seen is not None:
                yield entry, seen


def examine_entry(logs: Logs, entry: LockEntry, *, later_entry: bool, young_seconds: float) -> OpenEntry | None:
    """None where the entry is complete and its commit exists, as required."""
    if entry.version is None or not entry.temp:
        raise ConfigError(f"the entry {entry.file} is not one of Delta's", hint="another program uses this table too")
    log = logs.of(entry.table)
    if entry.complete and log.head(entry.file) is not None:
        return None
    evidence = log.evidence(version=entry.version, file=entry.file, temp_file=entry.temp, later_entry=later_entry)
    state = decide(entry.version, evidence, complete=entry.complete, young_seconds=young_seconds)
    if entry.complete and state in {"to_mark", "foreign", "expired"}:
        return None
    return _to_open_entry(entry, state, evidence.age_seconds if evidence.temp else None)


def _to_open_entry(entry: LockEntry, state: State, age: float | None, advice: str | None = None) -> OpenEntry:
    advice = advice or ADVICE[state]
    return OpenEntry(entry.table, entry.version, entry.file, entry.temp, entry.complete, state, age, advice)


def format_error(error: CdfError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _group_by_table(all_entries: Iterable[LockEntry]) -> dict[str, list[LockEntry]]:
    """By the path in its spelling, each with its entries in the order of their versions."""
    found: dict[str, list[LockEntry]] = defaultdict(list)
    for entry in all_entries:
        found[entry.table].append(entry)
    return {path: sorted(found[path], key=lambda entry: entry.file) for path in sorted(found)}


def _summarize_table(path: str, found: list[LockEntry]) -> LockedTable:
    complete = [entry for entry in found if entry.complete]
    latest = complete[-1] if complete else None
    expires = latest.expires if latest else None
    return LockedTable(
        table=path,
        entries=len(found),
        latest_complete=latest.version if latest else None,
        expires_at=None if expires is None else dt.datetime.fromtimestamp(expires, tz=dt.UTC),
    )


def _find_clashes(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    same: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        try:
            same[str(S3Address.parse(path))].append(path)
        except ValueError:
            continue  # reported with its entry
    return tuple(tuple(found) for found in same.values() if len(found) > 1)
