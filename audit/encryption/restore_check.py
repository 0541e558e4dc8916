"""Checks a backup of the key registry: whether it is authentic, whether the root key unwraps its keys, and what restoring it
would change.

``psql`` runs whatever the file contains. Therefore every line that is not a row of a table must be the line that
``backup.script`` produces, and the MAC of all lines is verified first, under a key that the root key wraps.
"""

from __future__ import annotations

import datetime as dt
import hmac
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from audit.encryption.aead import DecryptionFailed, commitment, decrypt
from audit.encryption.backup import COLUMNS, END, FIRST_LINE, backup_mac, head, ignore_progress, script
from audit.encryption.key_registry.bindings import (
    SHARD_COUNTS,
    key_binding,
    link_mac,
    lookup_key_binding,
    mac_key_binding,
    shard_binding,
    shard_of,
)
from audit.encryption.root_keys import RootRefused
from audit.files import describe_failure
from cdf.errors import ConfigError, VerificationError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.root_keys import Root

__all__ = ["BackupChecked", "check_backup"]

BATCH = 5_000
"""Number of keys that are unwrapped, and looked up in today's registry, at a time."""
_MADE = re.compile(rb"-- made (\S+), epoch ([0-9]+), root key (.+)\n")
_FORMER = re.compile(rb"-- deltarelay key registry backup v[0-9]+\n")
_UNEXPECTED = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
"""Bytes that PostgreSQL never writes into a row."""
_LAST_LINE, _CHUNK = len(END) + 64 + 1, 1 << 20
_NULL = b"\\N"


@dataclass(frozen=True, slots=True)
class BackupChecked(Result):
    """The last three are None where the backup was not compared with today's registry."""

    file: str
    made_at: dt.datetime
    epoch: int
    root: str
    living: int
    """Active keys in the backup. Each was unwrapped."""
    shredded: int
    """Destroyed keys in the backup."""
    brings_back: int | None
    """Active keys in the backup that have been destroyed since."""
    loses: int | None
    """Active keys of today's registry that the backup does not contain."""
    unknown: int | None
    """Active keys in the backup that today's registry has never had."""


def check_backup(
    path: Path, root: Root, today: Database | None, schema: str, *, progress: Callable[[int], None] = ignore_progress
) -> BackupChecked:
    """Restores nothing. ``today``: the registry that the backup would replace, of ``registry_database``.

    ``progress`` receives the number of keys that are checked. Raises VerificationError where the file is truncated, was
    altered or restores into another schema than ``schema``, and ConfigError where it is under another root key."""
    try:
        with path.open("rb") as file:
            made_at, epoch = _read_head(file, path, root)
            mac_key = _verify_mac(file, path, root, epoch)
            backup = _Backup(file, path, root, made_at, epoch, schema, mac_key)
            if today is None:
                active = sum(len(batch) for batch in backup.active_keys(progress))
                changes = None
            else:
                with today.snapshot() as work:
                    active, changes = _compare(backup, work, progress)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {describe_failure(error)}") from error
    except (ValueError, KeyError):  # from text that was edited by hand, which must not be quoted
        raise _incomplete_error(path) from None
    brings_back, loses, unknown = changes or (None, None, None)
    return BackupChecked(
        str(path), backup.made_at, backup.epoch, root.name, active, backup.destroyed, brings_back, loses, unknown
    )


def _compare(backup: _Backup, work: Transaction, progress: Callable[[int], None]) -> tuple[int, tuple[int, int, int]]:
    """The number of active keys in the backup, and (brings back, loses, unknown)."""
    active = still_active = destroyed = 0
    for batch in backup.active_keys(progress):
        row = work.row(
            "select count(*) filter (where shredded_at is null), count(*) filter (where shredded_at is not null)"
            " from {key} where key_id = any(%s)",
            [batch],
        )
        assert row is not None
        active, still_active, destroyed = active + len(batch), still_active + row[0], destroyed + row[1]
    row = work.row("select count(*) from {key} where shredded_at is null")
    assert row is not None
    return active, (destroyed, row[0] - still_active, active - still_active - destroyed)


def _read_head(file: IO[bytes], path: Path, root: Root) -> tuple[dt.datetime, int]:
    """The time and the epoch of the backup."""
    first = file.readline(len(FIRST_LINE) + 20)
    if first != FIRST_LINE:
        if _FORMER.fullmatch(first):
            raise ConfigError(
                f"{path} is a backup of another release: nothing in it proves that it was not altered",
                hint="create a new backup with `deltarelay keys backup`; if the registry is lost: restore this one, review "
                "it, "
                "and run `deltarelay keys upgrade`",
            )
        raise ConfigError(f"{path} is not a backup of a key registry", hint="`deltarelay keys backup` creates one")
    made = _MADE.fullmatch(file.readline())
    if made is None:
        raise _incomplete_error(path)
    if made[3].decode() != root.name:
        raise ConfigError(
            f"the backup {path} was made under the root key {made[3].decode()}, and not under {root.name}",
            hint="name that key with --root; if it is destroyed, this backup cannot be used any more",
        )
    return dt.datetime.fromisoformat(made[1].decode()), int(made[2])


def _verify_mac(file: IO[bytes], path: Path, root: Root, epoch: int) -> bytes:
    """Returns the MAC key, which is stored in the first table. After this the content of the file is trusted."""
    size = file.seek(0, 2)
    file.seek(max(size - _LAST_LINE, 0))
    last = file.read()
    if len(last) != _LAST_LINE or not last.startswith(END) or not last.endswith(b"\n"):
        raise VerificationError(
            f"the backup {path} is truncated", hint="use another backup: this one cannot be restored"
        )
    try:
        file.seek(0)
        mac_key = _read_mac_key(file, root, epoch)
        file.seek(0)
        mac, left = backup_mac(mac_key), size - _LAST_LINE
        while left and (chunk := file.read(min(left, _CHUNK))):
            mac.update(chunk)
            left -= len(chunk)
        authentic = hmac.compare_digest(last, END + mac.hexdigest().encode() + b"\n")
    except (ValueError, KeyError, RootRefused):  # the root key has the right name, so the file was altered
        authentic = False
    if not authentic:
        raise VerificationError(
            f"the backup {path} was altered after it was written",
            hint="never restore it, because it may execute any statement; use another backup",
        )
    file.seek(0)
    return mac_key


def _read_mac_key(file: IO[bytes], root: Root, epoch: int) -> bytes:
    for line in file:
        if line.startswith(b'copy "epoch"'):
            break
    for line in iter(file.readline, b"\\.\n"):
        cells = dict(zip(COLUMNS["epoch"], line[:-1].split(b"\t"), strict=True))
        if int(cells["epoch"]) == epoch:
            return root.unwrap(_parse_bytes(cells["mac"]), context=mac_key_binding(epoch))
    raise KeyError(epoch)


class _Backup:
    """A backup whose MAC was verified. Its rows are read once, in the order of ``COLUMNS``."""

    def __init__(
        self, file: IO[bytes], path: Path, root: Root, made_at: dt.datetime, epoch: int, schema: str, mac_key: bytes
    ) -> None:
        self.made_at, self.epoch, self.destroyed = made_at, epoch, 0
        self._path, self._root, self._mac_key = path, root, mac_key
        self._rows = _read_rows(file, path, head(made_at, epoch, root.name), schema)
        self._epoch_keys: dict[tuple[int, int], bytes] = {}

    def active_keys(self, progress: Callable[[int], None]) -> Iterator[list[bytes]]:
        """Ids of the active keys, in batches. Each key was unwrapped, after the epoch key."""
        batch: list[bytes] = []
        seen = broken = swapped = 0
        tables: set[str] = set()
        for table, row in self._rows:
            tables.add(table)
            if table == "shard":
                place = (int(row["epoch"]), int(row["shard"]))
                self._epoch_keys[place] = self._root.unwrap(_parse_bytes(row["wrapped"]), context=shard_binding(*place))
            elif table == "lookup_key":
                self._root.unwrap(_parse_bytes(row["wrapped"]), context=lookup_key_binding(int(row["epoch"])))
            elif table == "identifier":
                swapped += not self._is_authentic_link(row)
            elif table == "key":
                seen += 1
                if row["shredded_at"] != _NULL:
                    self.destroyed += 1
                elif self._can_unwrap(row):
                    batch.append(_parse_bytes(row["key_id"]))
                else:
                    broken += 1
                if seen % BATCH == 0:
                    progress(seen)
                    if batch:
                        yield batch
                    batch = []
        if broken:
            raise VerificationError(
                f"{broken} of {seen - self.destroyed} active keys in the backup {self._path} are not those that were "
                "created",
                hint="the backup, or the registry that it was made from, was altered: use another backup",
                broken=broken,
            )
        if swapped:
            raise VerificationError(
                f"{swapped} links from an identifier to a person in the backup {self._path} are not those that were created",
                hint="the registry that the backup was made from was altered: use another backup",
                swapped=swapped,
            )
        if len(self._epoch_keys) not in SHARD_COUNTS or not {"epoch", "lookup_key"} <= tables:
            raise _incomplete_error(self._path)
        if batch:
            yield batch

    def _is_authentic_link(self, row: dict[str, bytes]) -> bool:
        lookup, token, epoch = _parse_bytes(row["lookup"]), _parse_bytes(row["token"]), int(row["epoch"])
        mac = link_mac(self._mac_key, lookup, token, epoch)
        return epoch == self.epoch and hmac.compare_digest(mac, _parse_bytes(row["mac"]))

    def _can_unwrap(self, row: dict[str, bytes]) -> bool:
        key_id, token = _parse_bytes(row["key_id"]), _parse_bytes(row["token"])
        shards = len(self._epoch_keys)
        epoch_key = self._epoch_keys.get((int(row["epoch"]), shard_of(token, shards))) if shards else None
        if epoch_key is None:
            return False
        binding = key_binding(key_id, token, row["class"].decode())
        try:
            key = decrypt(epoch_key, _parse_bytes(row["wrapped"]), associated_data=binding)
        except DecryptionFailed:
            return False
        return commitment(key) == _parse_bytes(row["commitment"])


def _incomplete_error(path: Path) -> VerificationError:
    return VerificationError(f"the backup {path} lacks rows that every backup has", hint="use another backup")


def _read_rows(file: IO[bytes], path: Path, begins: str, schema: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Pairs of table and row, in PostgreSQL's COPY format: cells are separated by tabs and contain no tab or line feed.

    Raises VerificationError where another line differs from the one that every backup has."""
    text = begins
    for table, more in script(schema):
        for line in (text + more).encode().splitlines(keepends=True):
            if file.readline(len(line) + 1) != line:
                raise _foreign_line_error(path, schema)
        text = ""
        if table is None:
            break
        for line in iter(file.readline, b""):
            if line == b"\\.\n":
                file.seek(-len(line), 1)
                break
            if _UNEXPECTED.search(line):
                raise _foreign_line_error(path, schema)
            yield table, dict(zip(COLUMNS[table], line[:-1].split(b"\t"), strict=True))
    if not file.readline().startswith(END) or file.read(1):
        raise _foreign_line_error(path, schema)


def _foreign_line_error(path: Path, schema: str) -> VerificationError:
    return VerificationError(
        f"the backup {path} contains more than the statements that restore a key registry into the schema {schema}",
        hint="never restore it; if it belongs to another schema, set that schema under erasure.keys.schema",
    )


def _parse_bytes(cell: bytes) -> bytes:
    return bytes.fromhex(cell.removeprefix(b"\\\\x").decode())
