"""Whether a backup of the key registry is what was written, whether a root key opens it, and what restoring it would do.

``psql`` runs whatever is in the file. So every line but the rows of the tables has to be the one that ``backup.script``
gives, and the MAC of all lines is verified first, under a key that the root key wraps.
"""

from __future__ import annotations

import datetime as dt
import hmac
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from audit.encryption.aead import NotOpened, commitment, open_sealed
from audit.encryption.backup import COLUMNS, END, FIRST_LINE, backup_mac, head, ignored, script
from audit.encryption.key_registry import SHARDS, about_key, about_lookup, about_mac, about_shard, mac_of, shard_of
from audit.encryption.root_keys import RootRefused
from audit.files import describe_failure
from cdf.errors import ConfigError, VerificationError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.root_keys import Root

__all__ = ["BackupChecked", "check_backup"]

BATCH = 5_000
"""So many keys are opened, and asked about, at a time."""
_MADE = re.compile(rb"-- made (\S+), epoch ([0-9]+), root key (.+)\n")
_FORMER = re.compile(rb"-- deltarelay key registry backup v[0-9]+\n")
_ODD = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
"""In no row as PostgreSQL writes it."""
_LAST, _PART = len(END) + 64 + 1, 1 << 20
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
    path: Path, root: Root, today: Database | None, schema: str, *, progress: Callable[[int], None] = ignored
) -> BackupChecked:
    """Restores nothing. ``today``: the registry that it would take the place of, of ``registry_database``.

    Raises VerificationError where the file is cut off, altered or restores into another schema than ``schema``, and
    ConfigError where it is under another root key.
    ``progress`` is told how many keys are looked at."""
    try:
        with path.open("rb") as file:
            made_at, epoch = _begun(file, path, root)
            mac_key = _authentic(file, path, root, epoch)
            backup = _Backup(file, path, root, made_at, epoch, schema, mac_key)
            if today is None:
                living = sum(len(batch) for batch in backup.living(progress))
                found = None
            else:
                with today.snapshot() as work:
                    living, found = _compared(backup, work, progress)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {describe_failure(error)}") from error
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


def _begun(file: IO[bytes], path: Path, root: Root) -> tuple[dt.datetime, int]:
    """When it was made, and in which epoch."""
    first = file.readline(len(FIRST_LINE) + 20)
    if first != FIRST_LINE:
        if _FORMER.fullmatch(first):
            raise ConfigError(
                f"{path} is a backup of another release: nothing in it proves that nobody has altered it",
                hint="make a new one with `deltarelay keys backup`; where the registry is lost: restore it, look at it, and "
                "run `deltarelay keys upgrade`",
            )
        raise ConfigError(f"{path} is no backup of a key registry", hint="`deltarelay keys backup` makes one")
    made = _MADE.fullmatch(file.readline())
    if made is None:
        raise _altered(path)
    if made[3].decode() != root.name:
        raise ConfigError(
            f"the backup {path} was made under the root key {made[3].decode()}, and not under {root.name}",
            hint="name that one with --root; where it is destroyed, nothing opens this backup any more",
        )
    return dt.datetime.fromisoformat(made[1].decode()), int(made[2])


def _authentic(file: IO[bytes], path: Path, root: Root, epoch: int) -> bytes:
    """→ the key of its MACs, which is in its first table. What is in the file is believed from here on."""
    size = file.seek(0, 2)
    file.seek(max(size - _LAST, 0))
    last = file.read()
    if len(last) != _LAST or not last.startswith(END) or not last.endswith(b"\n"):
        raise VerificationError(f"the backup {path} is cut off", hint="take another one: it restores nothing")
    try:
        file.seek(0)
        mac_key = _mac_key(file, root, epoch)
        file.seek(0)
        found, left = backup_mac(mac_key), size - _LAST
        while left and (part := file.read(min(left, _PART))):
            found.update(part)
            left -= len(part)
        authentic = hmac.compare_digest(last, END + found.hexdigest().encode() + b"\n")
    except (ValueError, KeyError, RootRefused):  # by its name the root key is the right one
        authentic = False
    if not authentic:
        raise VerificationError(
            f"the backup {path} is not as it was written", hint="never restore it: it may do anything; take another one"
        )
    file.seek(0)
    return mac_key


def _mac_key(file: IO[bytes], root: Root, epoch: int) -> bytes:
    for line in file:
        if line.startswith(b'copy "epoch"'):
            break
    for line in iter(file.readline, b"\\.\n"):
        cells = dict(zip(COLUMNS["epoch"], line[:-1].split(b"\t"), strict=True))
        if int(cells["epoch"]) == epoch:
            return root.unwrap(_bytes(cells["mac"]), about=about_mac(epoch))
    raise KeyError(epoch)


class _Backup:
    """An authentic one. Its rows are read once, in the order of ``COLUMNS``."""

    def __init__(
        self, file: IO[bytes], path: Path, root: Root, made_at: dt.datetime, epoch: int, schema: str, mac_key: bytes
    ) -> None:
        self.made_at, self.epoch, self.shredded = made_at, epoch, 0
        self._path, self._root, self._mac_key = path, root, mac_key
        self._rows = _rows(file, path, head(made_at, epoch, root.name), schema)
        self._shards: dict[tuple[int, int], bytes] = {}

    def living(self, progress: Callable[[int], None]) -> Iterator[list[bytes]]:
        """The ids of the keys that live in it, in batches; each has been opened, and the shard keys before."""
        batch: list[bytes] = []
        seen = broken = swapped = 0
        tables: set[str] = set()
        for table, row in self._rows:
            tables.add(table)
            if table == "shard":
                place = (int(row["epoch"]), int(row["shard"]))
                self._shards[place] = self._root.unwrap(_bytes(row["wrapped"]), about=about_shard(*place))
            elif table == "lookup_key":
                self._root.unwrap(_bytes(row["wrapped"]), about=about_lookup(int(row["epoch"])))
            elif table == "identifier":
                swapped += not self._leads(row)
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
        if swapped:
            raise VerificationError(
                f"{swapped} links from an identifier to a person in the backup {self._path} are not those that were made",
                hint="somebody has altered the registry that it was made of: take another one",
                swapped=swapped,
            )
        if len(self._shards) != SHARDS or not {"epoch", "lookup_key"} <= tables:
            raise _altered(self._path)
        if batch:
            yield batch

    def _leads(self, row: dict[str, bytes]) -> bool:
        lookup, token, epoch = _bytes(row["lookup"]), _bytes(row["token"]), int(row["epoch"])
        mac = mac_of(self._mac_key, lookup, token, epoch)
        return epoch == self.epoch and hmac.compare_digest(mac, _bytes(row["mac"]))

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


def _rows(file: IO[bytes], path: Path, begins: str, schema: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """As PostgreSQL writes them: tabs between the cells, none of which has a plain tab or line feed. Every other line has to
    be the one that every backup has."""
    text = begins
    for table, more in script(schema):
        for line in (text + more).encode().splitlines(keepends=True):
            if file.readline(len(line) + 1) != line:
                raise _other_form(path, schema)
        text = ""
        if table is None:
            break
        for line in iter(file.readline, b""):
            if line == b"\\.\n":
                file.seek(-len(line), 1)
                break
            if _ODD.search(line):
                raise _other_form(path, schema)
            yield table, dict(zip(COLUMNS[table], line[:-1].split(b"\t"), strict=True))
    if not file.readline().startswith(END) or file.read(1):
        raise _other_form(path, schema)


def _other_form(path: Path, schema: str) -> VerificationError:
    return VerificationError(
        f"the backup {path} does other things than restoring a key registry into the schema {schema}",
        hint="never restore it; where only its schema is another one, name that under erasure.keys.schema",
    )


def _bytes(cell: bytes) -> bytes:
    return bytes.fromhex(cell.removeprefix(b"\\\\x").decode())
