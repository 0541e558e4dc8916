"""Completes or removes the entries that dead writers have left in the lock table, like Delta's own recovery.

Every change of an entry is conditional on the entry being unchanged, and no commit file is ever overwritten. So a writer, a
recovering reader and a second repair may run at the same time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from audit.aws_errors import call_unless
from cdf.errors import CdfError, SourceUnavailable, TargetNotReady
from cdf.result import Result
from infra.s3.errors import translate_aws_errors
from infra.s3.lock.entries import LockEntry, OpenEntry, examine_entries, examine_entry, format_error, list_entries
from infra.s3.lock.evidence import YOUNG_SECONDS, Logs, State, parse_address
from infra.s3.lock.table import connect
from infra.s3.model import Storage

__all__ = ["KEPT_SECONDS", "Forgotten", "LockRepair", "RepairedEntry", "forget", "check_forgettable", "repair"]

KEPT_SECONDS = 24 * 60 * 60
"""How long a complete entry is kept, as in Delta: after that the commit file alone excludes other writers."""

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
    """Before the repair."""
    outcome: Outcome
    advice: str | None
    """What remains to be done; null where nothing does."""


@dataclass(frozen=True, slots=True)
class LockRepair(Result):
    lock_table: str
    region: str
    entries: tuple[RepairedEntry, ...]

    @property
    def whole(self) -> bool:
        """Every remaining entry will be completed by its writer, and no commit is lost."""
        return all(one.advice is None or one.state == "young" for one in self.entries)


@dataclass(frozen=True, slots=True)
class Forgotten(Result):
    lock_table: str
    region: str
    table: str
    removed: int
    kept: int
    """Entries that were changed meanwhile: the table is being written to."""


# ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def repair(
    storage: Storage, table: str | None = None, *, young_seconds: float = YOUNG_SECONDS, lost: Lost = "leave"
) -> LockRepair:
    """Complete every commit that was begun and not completed; ``lost="drop"`` removes the entries of lost commits.

    May be called twice, and while writers run. An entry that cannot be repaired does not stop the others.
    """
    lock, client = connect(storage)
    done: list[RepairedEntry] = []
    all_entries = list_entries(client, lock.table, table)
    logs = Logs(storage)
    for entry, found in examine_entries(logs, all_entries, young_seconds=young_seconds):
        later = any(one.table == entry.table and one.file > entry.file for one in all_entries)
        try:
            done.append(_repair_entry(logs, client, lock.table, entry, found, later=later, lost=lost))
        except CdfError as error:
            if error.transient:
                raise
            done.append(RepairedEntry(entry.table, entry.version, found.state, "left", format_error(error)))
    return LockRepair(lock.table, str(lock.region), tuple(done))


def _repair_entry(
    logs: Logs, client: Any, name: str, entry: LockEntry, found: OpenEntry, *, later: bool, lost: Lost
) -> RepairedEntry:
    seen: OpenEntry | None = found

    def report(outcome: Outcome, advice: str | None = None) -> RepairedEntry:
        return RepairedEntry(entry.table, entry.version, (seen or found).state, outcome, advice)

    for _ in range(_ROUNDS):
        if seen is None:
            return report("done_by_another")
        if seen.state in _FINISHED:
            advice = seen.advice if seen.state == "foreign" else None
            return report("marked" if _complete_entry(client, name, entry) else "done_by_another", advice)
        if seen.state == "lost" and lost == "drop":
            if not _remove_entry(client, name, entry):
                return report("done_by_another")
            return report("removed", "run the job of this commit again: its rows are not in the table")
        if seen.state != "to_copy":
            return report("left", seen.advice)
        log = logs.of(entry.table)
        content = log.read(entry.temp)
        if content is not None and log.put_new(entry.file, content):
            _complete_entry(client, name, entry)  # another process may have completed it just now, which is fine
            return report("copied")
        # Another process was faster, perhaps with other content: examine the log again before completing the entry
        seen = examine_entry(logs, entry, later_entry=later, young_seconds=0.0)
    raise SourceUnavailable(
        f"version {entry.version} of {entry.table} keeps changing", hint="another repair is running: try again later"
    )


def _complete_entry(client: Any, name: str, entry: LockEntry) -> bool:
    """Mark it as complete; False where the entry was changed meanwhile."""
    until = {"N": str(int(time.time()) + KEPT_SECONDS)}
    item = {**entry.item, "complete": {"S": "true"}, "expireTime": until}
    return _change_if_unchanged(f"completing an entry of {entry.table}", client.put_item, name, entry, Item=item)


def _remove_entry(client: Any, name: str, entry: LockEntry) -> bool:
    return _change_if_unchanged(f"removing an entry of {entry.table}", client.delete_item, name, entry, Key=entry.key)


def _change_if_unchanged(action: str, call: Any, table: str, entry: LockEntry, **arguments: Any) -> bool:
    was = {name: entry.item.get(name) for name in ("tempPath", "complete")}
    same = (f"attribute_not_exists({name})" if value is None else f"{name} = :{name}" for name, value in was.items())
    values = {f":{name}": value for name, value in was.items() if value is not None}
    with translate_aws_errors(action):
        response = call_unless(
            "precondition_failed",
            call,
            TableName=table,
            ConditionExpression=" and ".join(same),
            **({"ExpressionAttributeValues": values} if values else {}),
            **arguments,
        )
    return response is not None


# ── forget ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def forget(storage: Storage, table: str, *, commits: Commits = "refuse") -> Forgotten:
    """Remove every entry of a deleted table, so that another table can be created at its address.

    Raises TargetNotReady where the table has commits, or one is being written. ``commits="ignore"`` skips this check; then
    two writers may write one version.
    """
    lock, client = connect(storage)
    # Listed before the check: an entry that is put afterwards belongs to a writer that creates the table again
    found = list_entries(client, lock.table, table)
    if commits == "refuse":
        check_forgettable(storage, table)
    removed = sum(_remove_entry(client, lock.table, entry) for entry in found)
    return Forgotten(lock.table, str(lock.region), str(parse_address(table)), removed, len(found) - removed)


def check_forgettable(storage: Storage, table: str) -> None:
    """Raises TargetNotReady where the table exists, or is being created."""
    lock, client = connect(storage)
    log = Logs(storage).of(table)
    if next(log.versions(), None) is not None:
        raise TargetNotReady(
            f"{log.address} still exists: its _delta_log has commits, and these entries protect the latest ones",
            hint="delete the table first; to complete unfinished commits run `deltarelay storage lock repair`",
        )
    for entry in list_entries(client, lock.table, table):
        if not entry.complete and entry.version == 0 and log.head(entry.temp) is not None:
            raise TargetNotReady(
                f"{log.address} is being created: its first commit is written and not completed",
                hint="wait; if its writer is dead, complete it with `deltarelay storage lock repair`",
            )
