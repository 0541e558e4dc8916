"""The log of one table on S3, and the state of a lock table entry that follows from it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from audit.aws_errors import call_unless
from cdf.errors import ConfigError
from infra.s3.address import S3Address
from infra.s3.clients import connect_s3
from infra.s3.errors import translate_aws_errors

if TYPE_CHECKING:
    from infra.s3.model import Storage

__all__ = ["COMMIT", "YOUNG_SECONDS", "Evidence", "Log", "Logs", "State", "parse_address", "decide"]

COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\b.*")

YOUNG_SECONDS = 60.0
"""The writer of a younger entry is assumed to be still at work."""


State = Literal[
    "young", "to_copy", "to_mark", "blocked", "foreign", "expired", "lost", "overtaken", "dropped", "unseen"
]


def parse_address(table: str) -> S3Address:
    try:
        return S3Address.parse(table)
    except ValueError as error:
        raise ConfigError(f"the address of the table {error}") from error


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is on S3 for one entry. The log is listed only where the commit is missing."""

    temp: bool
    commit: bool
    same: bool = True
    """The commit file equals the temporary file, where both exist."""
    age_seconds: float | None = None
    first: int | None = None
    """The lowest version in the log; None where the log is empty."""
    later: bool = False
    """The log or the lock table has a later version."""
    checkpoint: bool = False
    """The log has a checkpoint of this version or a later one: the commit may have been cleaned up."""
    previous: bool = True
    """The previous version exists, or this is the first."""


def decide(version: int, evidence: Evidence, *, complete: bool = False, young_seconds: float = YOUNG_SECONDS) -> State:
    """The state of the commit of an entry. ``complete``: as the entry itself states."""
    if not complete and evidence.age_seconds is not None and evidence.age_seconds < young_seconds:
        return "young"
    if evidence.commit:
        return "to_mark" if evidence.same else "foreign"
    if evidence.first is None and (complete or version > 0 or evidence.later):
        return "dropped"
    if evidence.checkpoint and evidence.first is not None and evidence.first > version:
        return "expired"
    if evidence.temp:
        return "to_copy" if evidence.previous else "blocked"
    return "overtaken" if evidence.later else "lost"


class Log:
    """The ``_delta_log`` of one table on S3."""

    def __init__(self, address: S3Address, client: Any) -> None:
        self.address = address
        self.client = client
        self._prefix = f"{self.address.key}/_delta_log/".lstrip("/")

    def head(self, file: str) -> Mapping[str, Any] | None:
        with translate_aws_errors(f"reading the log of {self.address}"):
            found: Mapping[str, Any] | None = call_unless("missing", self.client.head_object, **self._object(file))
        return found

    def read(self, file: str) -> bytes | None:
        with translate_aws_errors(f"reading the log of {self.address}"):
            found = call_unless("missing", self.client.get_object, **self._object(file))
            return None if found is None else bytes(found["Body"].read())

    def put_new(self, file: str, content: bytes) -> bool:
        """False where a file of that name exists already; it is not changed."""
        with translate_aws_errors(f"writing to the log of {self.address}"):
            put = self.client.put_object
            response = call_unless("precondition_failed", put, **self._object(file), Body=content, IfNoneMatch="*")
        return response is not None

    def _object(self, file: str) -> dict[str, str]:
        return {"Bucket": self.address.bucket, "Key": self._prefix + file}

    def versions(self) -> Iterator[int]:
        """Versions in the log, of commits and checkpoints, in ascending order."""
        # "/" sorts after ".tmp" and before the digits
        return (version for version, _ in self._names("/"))

    def _names(self, start: str) -> Iterator[tuple[int, bool]]:
        """The files after ``start``: version, and whether it is a checkpoint."""
        with translate_aws_errors(f"listing the log of {self.address}"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.address.bucket, Prefix=self._prefix, StartAfter=self._prefix + start
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    name = found["Key"].removeprefix(self._prefix)
                    if match := COMMIT.fullmatch(name):
                        yield int(match[1]), False
                    elif match := _CHECKPOINT.fullmatch(name):
                        yield int(match[1]), True

    def evidence(self, *, version: int, file: str, temp_file: str, later_entry: bool) -> Evidence:
        # The temporary file first: delta-rs deletes it once the commit exists, never before
        temp, commit = self.head(temp_file), self.head(file)
        age = _age(temp or commit)
        if commit is not None:
            same = temp is None or commit["ContentLength"] == temp["ContentLength"]
            if same and temp is not None and commit["ETag"] != temp["ETag"]:
                same = self.read(temp_file) in {None, self.read(file)}
            return Evidence(temp is not None, True, same, age)
        first = next(self.versions(), None)
        later, checkpoint = later_entry, False
        for found, is_checkpoint in self._names(f"{version:020d}"):
            later = later or found > version
            if is_checkpoint:
                checkpoint = True
                break
        previous = version == 0 or self.head(f"{version - 1:020d}.json") is not None
        return Evidence(
            temp=temp is not None,
            commit=False,
            age_seconds=age,
            first=first,
            later=later,
            checkpoint=checkpoint,
            previous=previous,
        )


class Logs:
    """The logs of many tables, with one client for each bucket: creating a client takes a quarter of a second."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._clients: dict[str, Any] = {}

    def of(self, table: str) -> Log:
        address = parse_address(table)
        if "%" in address.key:
            # Delta writes the path unchanged, delta-rs percent-encoded: one of the two would find nothing
            raise ConfigError(
                f"{address} contains a %, so the files that it means are ambiguous", hint="rename the table"
            )
        if address.bucket not in self._clients:
            self._clients[address.bucket] = connect_s3(self._storage.s3.bucket(address.bucket))
        return Log(address, self._clients[address.bucket])


def _age(head: Mapping[str, Any] | None) -> float | None:
    """By the clock of the store, which set both times; the local clock may be wrong."""
    if head is None:
        return None
    date = head["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(date) if date else dt.datetime.now(dt.UTC)
    written: dt.datetime = head["LastModified"]
    return max(0.0, (now - written).total_seconds())
