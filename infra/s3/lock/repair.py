"""What dead writers have left in the lock table: finished as Delta's own recovery does it, or taken out.

Every change to an entry holds only while the entry is as it was read, and no commit file is ever overwritten. So a writer,
a reader that recovers, and a second repair may do the same at the same time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from cdf.errors import CdfError, SourceUnavailable, TargetNotReady
from cdf.result import Result
from infra.s3.clients import error_code, in_words
from infra.s3.lock.entries import LockEntry, OpenEntry, examined, listed, look
from infra.s3.lock.evidence import YOUNG_SECONDS, Logs, State, address_of
from infra.s3.lock.table import opened
from infra.s3.model import Storage

__all__ = ["KEPT_SECONDS", "Forgotten", "LockRepair", "RepairedEntry", "forget", "forgettable", "repair"]

KEPT_SECONDS = 24 * 60 * 60
"""How long a complete entry stays, as Delta has it: after that the file itself keeps others out."""

_ROUNDS = 4
_FINISHED: set[State] = {"to_mark", "foreign", "expired"}

Outcome = Literal["copied", "marked", "removed", "done_by_another", "left"]
Lost = Literal["leave", "drop"]
Commits = Literal["refuse", "ignore"]


@dataclass(frozen=True, slots=True)
class RepairedEntry(Result):
    table: str
    version: int | None
    state: State
    """What was found."""
    outcome: Outcome
    advice: str | None
    """What is left to do; null where nothing is."""


@dataclass(frozen=True, slots=True)
class LockRepair(Result):
    lock_table: str
    region: str
    entries: tuple[RepairedEntry, ...]

    @property
    def whole(self) -> bool:
        """Nothing is left that would not mend itself, and no commit was found to be lost."""
        return all(one.advice is None or one.state == "young" for one in self.entries)


@dataclass(frozen=True, slots=True)
class Forgotten(Result):
    lock_table: str
    region: str
    table: str
    removed: int
    kept: int
    """Entries that somebody changed meanwhile: the table is being written to."""


# ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def repair(
    storage: Storage, table: str | None = None, *, young_seconds: float = YOUNG_SECONDS, lost: Lost = "leave"
) -> LockRepair:
    """Finish every commit that was begun and not finished; ``lost="drop"`` removes the entries of those that cannot be.

    May be called twice, and beside writers. One entry that cannot be repaired stops no other.
    """
    lock, client = opened(storage)
    done: list[RepairedEntry] = []
    every = listed(client, lock.table, table)
    logs = Logs(storage)
    for entry, found in examined(logs, every, young_seconds=young_seconds):
        later = any(one.table == entry.table and one.file > entry.file for one in every)
        try:
            done.append(_repaired(logs, client, lock.table, entry, found, later=later, lost=lost))
        except CdfError as error:
            if error.transient:
                raise
            told = f"{error.message} ({error.hint})" if error.hint else error.message
            done.append(RepairedEntry(entry.table, entry.version, found.state, "left", told))
    return LockRepair(lock.table, str(lock.region), tuple(done))


def _repaired(
    logs: Logs, client: Any, name: str, entry: LockEntry, found: OpenEntry, *, later: bool, lost: Lost
) -> RepairedEntry:
    seen: OpenEntry | None = found

    def told(outcome: Outcome, advice: str | None = None) -> RepairedEntry:
        return RepairedEntry(entry.table, entry.version, (seen or found).state, outcome, advice)

    for _ in range(_ROUNDS):
        if seen is None:
            return told("done_by_another")
        if seen.state in _FINISHED:
            advice = seen.advice if seen.state == "foreign" else None
            return told("marked" if _mark(client, name, entry) else "done_by_another", advice)
        if seen.state == "lost" and lost == "drop":
            if not _remove(client, name, entry):
                return told("done_by_another")
            return told("removed", "run the job of this commit again: what it wrote is not in the table")
        if seen.state != "to_copy":
            return told("left", seen.advice)
        log = logs.of(entry.table)
        content = log.read(entry.temp)
        if content is not None and log.put_new(entry.file, content):
            _mark(client, name, entry)  # where somebody else has just done so, all the better
            return told("copied")
        # Somebody was quicker, with the same content or with another: look again before the entry says anything
        seen = look(logs, entry, later_entry=later, young_seconds=0.0)
    raise SourceUnavailable(
        f"version {entry.version} of {entry.table} changes all the time", hint="another repair is at work: try again"
    )


def _mark(client: Any, name: str, entry: LockEntry) -> bool:
    """Say that it is complete; False where the entry is not any more what it was."""
    until = {"N": str(int(time.time()) + KEPT_SECONDS)}
    item = {**entry.item, "complete": {"S": "true"}, "expireTime": until}
    return _while_unchanged(f"completing an entry of {entry.table}", client.put_item, name, entry, Item=item)


def _remove(client: Any, name: str, entry: LockEntry) -> bool:
    return _while_unchanged(f"removing an entry of {entry.table}", client.delete_item, name, entry, Key=entry.key)


def _while_unchanged(what: str, call: Any, table: str, entry: LockEntry, **arguments: Any) -> bool:
    from botocore.exceptions import ClientError

    was = {name: entry.item.get(name) for name in ("tempPath", "complete")}
    same = (f"attribute_not_exists({name})" if value is None else f"{name} = :{name}" for name, value in was.items())
    values = {f":{name}": value for name, value in was.items() if value is not None}
    with in_words(what):
        try:
            call(
                TableName=table,
                ConditionExpression=" and ".join(same),
                **({"ExpressionAttributeValues": values} if values else {}),
                **arguments,
            )
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                return False
            raise
    return True


# ── forget ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def forget(storage: Storage, table: str, *, commits: Commits = "refuse") -> Forgotten:
    """Remove every entry of a table that was deleted, so that another one can be made in its place.

    Raises TargetNotReady where the table has commits, or one is being written; ``commits="ignore"`` does it all the same,
    and then two writers may write one version.
    """
    lock, client = opened(storage)
    # Listed first: an entry that is put after the check belongs to somebody who begins the table anew
    found = listed(client, lock.table, table)
    if commits == "refuse":
        forgettable(storage, table)
    removed = sum(_remove(client, lock.table, entry) for entry in found)
    return Forgotten(lock.table, str(lock.region), str(address_of(table)), removed, len(found) - removed)


def forgettable(storage: Storage, table: str) -> None:
    """Raises TargetNotReady where the table is there, or is being made."""
    lock, client = opened(storage)
    log = Logs(storage).of(table)
    if next(log.versions(), None) is not None:
        raise TargetNotReady(
            f"{log.address} is still there: its _delta_log has commits, and these entries guard the latest of them",
            hint="delete the table first; for commits that were not finished there is `deltarelay storage lock repair`",
        )
    for entry in listed(client, lock.table, table):
        if not entry.complete and entry.version == 0 and log.head(entry.temp) is not None:
            raise TargetNotReady(
                f"{log.address} is being made: its first commit is written and not finished",
                hint="wait; if its writer is dead, `deltarelay storage lock repair` finishes it",
            )
