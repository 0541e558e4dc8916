"""A backup of the key registry, and what restoring it would do: bring people back, or lose what others have signed up for.

The file is a script for ``psql``, with the rows as they are: every key in it is wrapped, and opens by the root key alone.
It is one transaction, so that a file that is cut off restores nothing. Its last line has a MAC of those before, under a key
that the root key wraps. All but the rows of the tables is the same for every backup of a schema: ``script``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from audit.encryption.key_registry import about_mac, another_root, empty_registry, not_upgraded, without_macs
from audit.files import describe_failure, sync_directory
from cdf.errors import ConfigError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.root_keys import Root

__all__ = ["COLUMNS", "END", "FIRST_LINE", "BackupMade", "backup_mac", "head", "ignored", "script", "write_backup"]

FIRST_LINE = b"-- deltarelay key registry backup v2\n"
END = b"-- complete, hmac-sha256 "

COLUMNS = {
    "epoch": ("epoch", "root", "began_at", "ended_at", "root_gone_on", "mac"),
    "shard": ("epoch", "shard", "wrapped"),
    "lookup_key": ("one", "epoch", "wrapped"),
    "identifier": ("lookup", "token", "epoch", "mac"),
    "key": ("key_id", "token", "class", "epoch", "wrapped", "commitment", "created_at", "shredded_at", "shredded_by"),
    "shreds": ("one", "count"),
    "reading": ("id", "at", "role", "reader", "purpose", "question", "trail", "keys", "noted_at"),
}
"""By table, in the order in which they are restored. Another set is another version of the form."""

_ROWS = 100_000
"""After so many ``progress`` is told."""


@dataclass(frozen=True, slots=True)
class BackupMade(Result):
    file: str
    made_at: dt.datetime
    epoch: int
    root: str
    """Without which nothing in it opens."""
    keys: int
    """Living and shredded ones."""
    bytes: int
    sha256: str
    """Of all lines but the last, which has the MAC."""


def ignored(_: int) -> None:
    """The progress of which nobody is told."""


def write_backup(
    database: Database, root: Root, path: Path, schema: str, *, progress: Callable[[int], None] = ignored
) -> BackupMade:
    """Into a new file that only its owner can read, complete or not at all. ``database``: of ``registry_database``.

    The rows are those of one moment, while others go on making keys. ``progress`` is told how many rows are written."""
    made_at = dt.datetime.now(dt.UTC)
    with without_macs(), _new_file(path) as file, database.snapshot() as work:
        epoch, mac_key = _under(work, root)
        out = _Out(file, mac_key, progress)
        out.text(head(made_at, epoch, root.name))
        rows = {}
        for table, text in script(schema):
            out.text(text)
            if table is not None:
                rows[table] = out.rows(work, table)
        file.write(END + out.mac.hexdigest().encode() + b"\n")
        size = file.tell()
    return BackupMade(str(path), made_at, epoch, root.name, rows["key"], size, out.digest.hexdigest())


def _under(work: Transaction, root: Root) -> tuple[int, bytes]:
    """Its epoch, and the key of the MAC."""
    rows = work.rows(
        "select root, epoch, mac from {epoch} where epoch in (select epoch from {shard}) order by epoch desc"
    )
    if not rows:
        raise empty_registry()
    if len(rows) > 1:
        raise ConfigError(
            "a rotation of the key registry was begun and is not over: its backup would need two root keys",
            hint="run `deltarelay keys rotate` again to its end, then back up",
        )
    name, epoch, wrapped = rows[0]
    if wrapped is None:
        raise not_upgraded()
    if name != root.name:
        raise another_root(name, root.name)
    return int(epoch), root.unwrap(wrapped, about=about_mac(epoch))


def backup_mac(mac_key: bytes) -> hmac.HMAC:
    return hmac.new(hmac.digest(mac_key, b"deltarelay registry backup v2", "sha256"), digestmod="sha256")


def head(made_at: dt.datetime, epoch: int, root: str) -> str:
    return (
        FIRST_LINE.decode()
        + f"-- made {made_at.isoformat()}, epoch {epoch}, root key {root}\n"
        + "-- before: deltarelay keys restore-check FILE\n"
        + "-- into a database without these tables: psql --no-psqlrc --set ON_ERROR_STOP=1 --file FILE DATABASE\n"
    )


def script(schema: str) -> Iterator[tuple[str | None, str]]:
    """All that follows the head, but for the rows: the table whose rows come next, and the text before them."""
    from psycopg import sql

    from audit.encryption.key_registry_schema import DEFINITIONS

    names = {table: sql.Identifier(table) for table in DEFINITIONS}
    where = sql.SQL("create schema if not exists {0};\nset local search_path to {0};\n").format(sql.Identifier(schema))
    lines = ["begin;\n", "set local client_encoding to 'UTF8';\n", where.as_string(None)]
    lines += [sql.SQL(text).format(**names).as_string(None) + ";\n" for text in DEFINITIONS.values()]
    text = "".join(lines) + "delete from shreds;\n"  # it is made with a row
    for table, columns in COLUMNS.items():
        named = ", ".join(f'"{column}"' for column in columns)
        yield table, text + f'copy "{table}" ({named}) from stdin;\n'
        text = "\\.\n"
    # COPY keeps the numbers as they are, and a sequence knows nothing of it
    text += "select setval(pg_get_serial_sequence('reading', 'id'), greatest((select max(id) from reading), 1));\n"
    yield None, text + "commit;\n"


class _Out:
    def __init__(self, file: IO[bytes], mac_key: bytes, progress: Callable[[int], None]) -> None:
        self._file, self._progress = file, progress
        self._rows = 0
        self.digest, self.mac = hashlib.sha256(), backup_mac(mac_key)

    def text(self, text: str) -> None:
        self._put(text.encode())

    def rows(self, work: Transaction, table: str) -> int:
        columns = ", ".join(f'"{column}"' for column in COLUMNS[table])
        before = self._rows
        for part in work.copy_out(f"copy {{{table}}} ({columns}) to stdout"):
            self._put(part)
            told, self._rows = self._rows // _ROWS, self._rows + part.count(b"\n")
            if self._rows // _ROWS > told:
                self._progress(self._rows)
        return self._rows - before

    def _put(self, data: bytes) -> None:
        self.digest.update(data)
        self.mac.update(data)
        self._file.write(data)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """It has its name once all of it is there, and is durable."""
    if path.exists() or path.is_symlink():
        raise _there_already(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        file = os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"the backup cannot be written to {path}: {describe_failure(error)}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)  # unlike a rename it overwrites nothing
    except FileExistsError as error:
        raise _there_already(path) from error
    except OSError as error:
        raise ConfigError(f"the backup cannot be written to {path}: {describe_failure(error)}") from error
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def _there_already(path: Path) -> ConfigError:
    return ConfigError(f"there is a file at {path} already", hint="choose another name: a backup is never overwritten")
