"""Whether a backup of the key registry is whole, whether a root key opens all of it, and what restoring it would do."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from audit.files import reason
from audit.keys.backup import COLUMNS, END, FIRST_LINE, ignored
from audit.keys.cipher import NotOpened, commitment, open_sealed
from audit.keys.registry import SHARDS, about_key, about_lookup, about_shard, shard_of
from cdf.errors import ConfigError, VerificationError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.keys.roots import Root

__all__ = ["BackupChecked", "check_backup"]

BATCH = 5_000
"""So many keys are opened, and asked about, at a time."""
_MADE = re.compile(rb"-- made (\S+), epoch ([0-9]+), root key (.+)\n")
_COPY = re.compile(rb'copy "(\w+)" \([a-z_", ]+\) from stdin;\n')
_NULL = b"\\N"


@dataclass(frozen=True, slots=True)
class BackupChecked(Result):
    """The last three are None where today's registry was not looked at."""

    file: str
    made_at: dt.datetime
    epoch: int
    root: str
    living: int
    """Keys that live in it; each of them was opened."""
    shredded: int
    brings_back: int | None
    """Of those that live in it: shredded since."""
    loses: int | None
    """Living keys of today that it does not have."""
    unknown: int | None
    """Of those that live in it: today's registry has never had them."""


def check_backup(
    path: Path, root: Root, today: Database | None, *, progress: Callable[[int], None] = ignored
) -> BackupChecked:
    """Restores nothing. ``today``: the registry that it would take the place of, of ``registry_database``.

    Raises VerificationError where the file is cut off or altered, and ConfigError where it is under another root key.
    ``progress`` is told how many keys are looked at."""
    try:
        with path.open("rb") as file:
            _whole(file, path)
            backup = _Backup(file, path, root)
            if today is None:
                living = sum(len(batch) for batch in backup.living(progress))
                found = None
            else:
                with today.snapshot() as work:
                    living, found = _compared(backup, work, progress)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}") from error
    except (ValueError, KeyError):  # what a hand has written; it is not repeated
        raise _altered(path) from None
    brings_back, loses, unknown = found or (None, None, None)
    return BackupChecked(
        str(path), backup.made_at, backup.epoch, root.name, living, backup.shredded, brings_back, loses, unknown
    )


def _compared(backup: _Backup, work: Transaction, progress: Callable[[int], None]) -> tuple[int, tuple[int, int, int]]:
    living = kept = gone = 0
    for batch in backup.living(progress):
        row = work.row(
            "select count(*) filter (where shredded_at is null), count(*) filter (where shredded_at is not null)"
            " from {key} where key_id = any(%s)",
            [batch],
        )
        assert row is not None
        living, kept, gone = living + len(batch), kept + row[0], gone + row[1]
    row = work.row("select count(*) from {key} where shredded_at is null")
    assert row is not None
    return living, (gone, row[0] - kept, living - kept - gone)


def _whole(file: IO[bytes], path: Path) -> None:
    if file.readline(len(FIRST_LINE)) != FIRST_LINE:
        raise ConfigError(f"{path} is no backup of a key registry", hint="`deltarelay keys backup` makes one")
    found, last = hashlib.sha256(FIRST_LINE), b""
    for line in file:
        found.update(last)
        last = line
    if not (last.startswith(END) and last.endswith(b"\n")):
        raise VerificationError(f"the backup {path} is cut off", hint="take another one: it restores nothing")
    if last != END + found.hexdigest().encode() + b"\n":
        raise VerificationError(f"the backup {path} is not as it was written", hint="take another one")
    file.seek(0)


class _Backup:
    """A whole one. Its rows are read once, in the order of ``COLUMNS``."""

    def __init__(self, file: IO[bytes], path: Path, root: Root) -> None:
        file.readline()
        made = _MADE.fullmatch(file.readline())
        if made is None:
            raise _altered(path)
        self.made_at, self.epoch = dt.datetime.fromisoformat(made[1].decode()), int(made[2])
        if made[3].decode() != root.name:
            raise ConfigError(
                f"the backup {path} was made under the root key {made[3].decode()}, and not under {root.name}",
                hint="name that one with --root; where it is destroyed, nothing opens this backup any more",
            )
        self.shredded = 0
        self._path, self._root, self._rows = path, root, _rows(file)
        self._shards: dict[tuple[int, int], bytes] = {}

    def living(self, progress: Callable[[int], None]) -> Iterator[list[bytes]]:
        """The ids of the keys that live in it, in batches; each has been opened, and the shard keys before."""
        batch: list[bytes] = []
        seen = broken = 0
        tables: set[str] = set()
        for table, row in self._rows:
            tables.add(table)
            if table == "shard":
                place = (int(row["epoch"]), int(row["shard"]))
                self._shards[place] = self._root.unwrap(_bytes(row["wrapped"]), about=about_shard(*place))
            elif table == "lookup_key":
                self._root.unwrap(_bytes(row["wrapped"]), about=about_lookup(int(row["epoch"])))
            elif table == "key":
                seen += 1
                if row["shredded_at"] != _NULL:
                    self.shredded += 1
                elif self._opens(row):
                    batch.append(_bytes(row["key_id"]))
                else:
                    broken += 1
                if seen % BATCH == 0:
                    progress(seen)
                    if batch:
                        yield batch
                    batch = []
        if broken:
            raise VerificationError(
                f"{broken} of {seen - self.shredded} living keys in the backup {self._path} are not those that were made",
                hint="somebody has altered it, or the registry that it was made of: take another one",
                broken=broken,
            )
        if len(self._shards) != SHARDS or not {"epoch", "lookup_key"} <= tables:
            raise _altered(self._path)
        if batch:
            yield batch

    def _opens(self, row: dict[str, bytes]) -> bool:
        key_id, token = _bytes(row["key_id"]), _bytes(row["token"])
        shard = self._shards.get((int(row["epoch"]), shard_of(token)))
        if shard is None:
            return False
        try:
            key = open_sealed(shard, _bytes(row["wrapped"]), about=about_key(key_id, token, row["class"].decode()))
        except NotOpened:
            return False
        return commitment(key) == _bytes(row["commitment"])


def _altered(path: Path) -> VerificationError:
    return VerificationError(f"the backup {path} lacks rows that every one has", hint="take another one")


def _rows(file: IO[bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """As PostgreSQL writes them: tabs between the cells, none of which has a plain tab or line feed."""
    table: str | None = None
    for line in file:
        if table is None:
            found = _COPY.fullmatch(line)
            table = found[1].decode() if found else None
        elif line == b"\\.\n":
            table = None
        else:
            yield table, dict(zip(COLUMNS[table], line[:-1].split(b"\t"), strict=True))


def _bytes(cell: bytes) -> bytes:
    return bytes.fromhex(cell.removeprefix(b"\\\\x").decode())
