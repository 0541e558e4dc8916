"""What stands in the lock table: which commits were begun and not finished, and what has become of them on S3.

A commit of version N takes three steps: its actions go into a temporary file, an entry claims N (``complete`` = "false"),
the file is copied to ``N.json`` and the entry completed. Whoever comes next finishes what a dead writer has left, so most
entries need nobody. An entry carries no time until it is complete: its age is that of its temporary file.
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
from infra.s3.clients import in_words
from infra.s3.lock.evidence import COMMIT, YOUNG_SECONDS, Logs, State, address_of, decide
from infra.s3.lock.table import opened
from infra.s3.model import Storage

__all__ = ["LockEntries", "LockEntry", "LockedTable", "OpenEntry", "entries", "examined", "listed", "look"]

_SPELLINGS = ("s3a://", "s3://", "s3n://")

ADVICE: Mapping[State, str] = {
    "young": "its writer is likely still at work: look again in a minute",
    "to_copy": "the next writer or reader finishes it, and so does `deltarelay storage lock repair`",
    "to_mark": "the commit is there, and only its entry says otherwise: `deltarelay storage lock repair` completes it",
    "blocked": "the version before it is missing: finished, it would leave a gap that nobody can read across. Bring that "
    "one back from a backup or the bucket's older versions first",
    "foreign": "another writer, who does not use this lock table, wrote this version: the commit of this entry is lost. Run "
    "its job again and find that writer; `deltarelay storage lock repair` completes the entry, as Delta would",
    "expired": "the log was cleaned up past this version: `deltarelay storage lock repair` completes the entry",
    "lost": "the commit is lost, temporary file and all, though its writer may have been told that it went well; nobody "
    "could ever read it. `deltarelay storage lock repair --drop-lost` removes the entry: the table ends one "
    "version before, can be read and written again. Look whether its rows are there before its job runs again: delta-rs may "
    "have put them one version before, and told its caller of an error",
    "overtaken": "the commit is gone, and later ones are there: a writer without this lock, or somebody who deleted files. "
    "Bring the file back from a backup or the bucket's older versions; `deltarelay storage lock repair` does the rest",
    "dropped": "the table has no commits any more: `deltarelay storage lock forget ADDRESS` clears what is left of it",
    "unseen": "its table could not be looked at",
}


# ── what an entry says ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LockEntry:
    table: str
    """As the writer spelled it: this is the lock's key."""
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


def listed(client: Any, name: str, table: str | None = None) -> list[LockEntry]:
    """Every entry, or those of one table under all the spellings of its address."""
    with in_words(f"reading the lock table {name}"):
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
    address = address_of(table)
    rest = f"{address.bucket}/{address.key}".rstrip("/")
    return [f"{scheme}{rest}{slash}" for scheme in _SPELLINGS for slash in ("", "/")]


# ── both together ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OpenEntry(Result):
    """An entry whose commit is not finished, or claims to be and is not there."""

    table: str
    version: int | None
    file: str
    temp_file: str
    complete: bool
    """True: the entry says that it is finished, and yet the commit is not there."""
    state: State
    age_seconds: float | None
    """Since its temporary file was written; None where that is gone, and with it the time."""
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
    """Several spellings of one table's address: each has locks of its own, and they do not exclude each other."""

    @property
    def sound(self) -> bool:
        return not self.clashes and all(one.state == "young" for one in self.open)


def entries(storage: Storage, table: str | None = None, *, young_seconds: float = YOUNG_SECONDS) -> LockEntries:
    """What the lock table holds, of all tables or of one; changes nothing."""
    lock, client = opened(storage)
    every = listed(client, lock.table, table)
    paths = _by_table(every)
    return LockEntries(
        lock_table=lock.table,
        region=str(lock.region),
        tables=tuple(_locked_table(path, found) for path, found in paths.items()),
        open=tuple(opened_entry for _, opened_entry in examined(Logs(storage), every, young_seconds=young_seconds)),
        clashes=_clashes(paths),
    )


def examined(
    logs: Logs, every: Iterable[LockEntry], *, young_seconds: float = YOUNG_SECONDS
) -> Iterator[tuple[LockEntry, OpenEntry]]:
    """Each entry that is not finished, with what has become of its commit. A table that cannot be looked at stops none."""
    for found in _by_table(every).values():
        latest = found[-1]
        for entry in found:
            if entry.complete and entry is not latest:
                continue
            try:
                seen = look(logs, entry, later_entry=entry is not latest, young_seconds=young_seconds)
            except CdfError as error:
                told = f"{error.message} ({error.hint})" if error.hint else error.message
                seen = _open(entry, "unseen", None, told)
            if seen is not None:
                yield entry, seen


def look(logs: Logs, entry: LockEntry, *, later_entry: bool, young_seconds: float) -> OpenEntry | None:
    """None where the commit of a complete entry is there, as it should be."""
    if entry.version is None or not entry.temp:
        raise ConfigError(f"the entry {entry.file} is not one of Delta's", hint="somebody else uses this table too")
    log = logs.of(entry.table)
    if entry.complete and log.head(entry.file) is not None:
        return None
    evidence = log.evidence(version=entry.version, file=entry.file, temp_file=entry.temp, later_entry=later_entry)
    state = decide(entry.version, evidence, complete=entry.complete, young_seconds=young_seconds)
    if entry.complete and state in {"to_mark", "foreign", "expired"}:
        return None
    return _open(entry, state, evidence.age_seconds if evidence.temp else None)


def _open(entry: LockEntry, state: State, age: float | None, advice: str | None = None) -> OpenEntry:
    told = advice or ADVICE[state]
    return OpenEntry(entry.table, entry.version, entry.file, entry.temp, entry.complete, state, age, told)


def _by_table(every: Iterable[LockEntry]) -> dict[str, list[LockEntry]]:
    """By the path as it is spelled, each with its entries in the order of their versions."""
    found: dict[str, list[LockEntry]] = defaultdict(list)
    for entry in every:
        found[entry.table].append(entry)
    return {path: sorted(found[path], key=lambda entry: entry.file) for path in sorted(found)}


def _locked_table(path: str, found: list[LockEntry]) -> LockedTable:
    complete = [entry for entry in found if entry.complete]
    latest = complete[-1] if complete else None
    expires = latest.expires if latest else None
    return LockedTable(
        table=path,
        entries=len(found),
        latest_complete=latest.version if latest else None,
        expires_at=None if expires is None else dt.datetime.fromtimestamp(expires, tz=dt.UTC),
    )


def _clashes(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    same: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        try:
            same[str(S3Address.parse(path))].append(path)
        except ValueError:
            continue  # told with its entry
    return tuple(tuple(found) for found in same.values() if len(found) > 1)
