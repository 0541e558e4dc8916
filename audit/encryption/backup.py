"""Writes a backup of the key registry.

The file is a script for ``psql`` with the rows as they are: every key in it is wrapped, and cannot be unwrapped without the
root key. It is one transaction, so that a truncated file restores nothing. Its last line is a MAC of the lines before, under
a key that the root key wraps. Apart from the rows, every backup of a schema has the same text: ``script``.
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

from audit.encryption.key_registry.bindings import mac_key_binding
from audit.encryption.key_registry.errors import (
    empty_registry_error,
    not_upgraded_error,
    other_root_error,
    translate_missing_macs,
)
from audit.encryption.key_registry.tables import DEFINITIONS
from audit.files import describe_failure, sync_directory
from cdf.errors import ConfigError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.root_keys import Root

__all__ = [
    "COLUMNS",
    "END",
    "FIRST_LINE",
    "BackupMade",
    "backup_mac",
    "head",
    "ignore_progress",
    "script",
    "write_backup",
]

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
"""By table, in the order in which they are restored. Other columns need a new version of the format."""

_PROGRESS_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class BackupMade(Result):
    file: str
    made_at: dt.datetime
    epoch: int
    root: str
    """The root key that is needed to unwrap its keys."""
    keys: int
    """Active and destroyed keys."""
    bytes: int
    sha256: str
    """Of all lines except the last, which is the MAC."""


def ignore_progress(_: int) -> None:
    pass


def write_backup(
    database: Database, root: Root, path: Path, schema: str, *, progress: Callable[[int], None] = ignore_progress
) -> BackupMade:
    """Write a new file that only its owner can read; it appears complete or not at all. ``database``: of
    ``registry_database``.

    The rows are a consistent snapshot; other sessions may create keys meanwhile. ``progress`` receives the number of rows
    written so far."""
    made_at = dt.datetime.now(dt.UTC)
    with translate_missing_macs(), _create_file(path) as file, database.snapshot() as work:
        epoch, mac_key = _read_mac_key(work, root)
        writer = _Writer(file, mac_key, progress)
        writer.write_text(head(made_at, epoch, root.name))
        rows = {}
        for table, text in script(schema):
            writer.write_text(text)
            if table is not None:
                rows[table] = writer.write_rows(work, table)
        file.write(END + writer.mac.hexdigest().encode() + b"\n")
        size = file.tell()
    return BackupMade(str(path), made_at, epoch, root.name, rows["key"], size, writer.digest.hexdigest())


def _read_mac_key(work: Transaction, root: Root) -> tuple[int, bytes]:
    """The current epoch and its MAC key."""
    rows = work.rows(
        "select root, epoch, mac from {epoch} where epoch in (select epoch from {shard}) order by epoch desc"
    )
    if not rows:
        raise empty_registry_error()
    if len(rows) > 1:
        raise ConfigError(
            "a rotation of the key registry has begun and is not finished: its backup would need two root keys",
            hint="complete it with `deltarelay keys rotate`, then back up",
        )
    name, epoch, wrapped = rows[0]
    if wrapped is None:
        raise not_upgraded_error()
    if name != root.name:
        raise other_root_error(name, root.name)
    return int(epoch), root.unwrap(wrapped, context=mac_key_binding(epoch))


def backup_mac(mac_key: bytes) -> hmac.HMAC:
    return hmac.new(hmac.digest(mac_key, b"deltarelay registry backup v2", "sha256"), digestmod="sha256")


def head(made_at: dt.datetime, epoch: int, root: str) -> str:
    """The first lines. ``restore_check`` compares them, so they are part of the format."""
    return (
        FIRST_LINE.decode()
        + f"-- made {made_at.isoformat()}, epoch {epoch}, root key {root}\n"
        + "-- before: deltarelay keys restore-check FILE\n"
        + "-- into a database without these tables: psql --no-psqlrc --set ON_ERROR_STOP=1 --file FILE DATABASE\n"
    )


def script(schema: str) -> Iterator[tuple[str | None, str]]:
    """All text after the head except the rows: pairs of the table whose rows follow, and the text before them."""
    from psycopg import sql

    names = {table: sql.Identifier(table) for table in DEFINITIONS}
    where = sql.SQL("create schema if not exists {0};\nset local search_path to {0};\n").format(sql.Identifier(schema))
    lines = ["begin;\n", "set local client_encoding to 'UTF8';\n", where.as_string(None)]
    lines += [sql.SQL(text).format(**names).as_string(None) + ";\n" for text in DEFINITIONS.values()]
    text = "".join(lines) + "delete from shreds;\n"  # its definition inserts a row
    for table, columns in COLUMNS.items():
        named = ", ".join(f'"{column}"' for column in columns)
        yield table, text + f'copy "{table}" ({named}) from stdin;\n'
        text = "\\.\n"
    # COPY restores the ids as they are and does not advance the sequence
    text += "select setval(pg_get_serial_sequence('reading', 'id'), greatest((select max(id) from reading), 1));\n"
    yield None, text + "commit;\n"


class _Writer:
    def __init__(self, file: IO[bytes], mac_key: bytes, progress: Callable[[int], None]) -> None:
        self._file, self._progress = file, progress
        self._rows = 0
        self.digest, self.mac = hashlib.sha256(), backup_mac(mac_key)

    def write_text(self, text: str) -> None:
        self._write(text.encode())

    def write_rows(self, work: Transaction, table: str) -> int:
        columns = ", ".join(f'"{column}"' for column in COLUMNS[table])
        before = self._rows
        for part in work.copy_out(f"copy {{{table}}} ({columns}) to stdout"):
            self._write(part)
            reported, self._rows = self._rows // _PROGRESS_ROWS, self._rows + part.count(b"\n")
            if self._rows // _PROGRESS_ROWS > reported:
                self._progress(self._rows)
        return self._rows - before

    def _write(self, data: bytes) -> None:
        self.digest.update(data)
        self.mac.update(data)
        self._file.write(data)


@contextlib.contextmanager
def _create_file(path: Path) -> Iterator[IO[bytes]]:
    """The file gets its name once it is complete and durable."""
    if path.exists() or path.is_symlink():
        raise _exists_error(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"the backup cannot be written to {path}: {describe_failure(error)}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, a link never overwrites
    except FileExistsError as error:
        raise _exists_error(path) from error
    except OSError as error:
        raise ConfigError(f"the backup cannot be written to {path}: {describe_failure(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def _exists_error(path: Path) -> ConfigError:
    return ConfigError(f"the file {path} already exists", hint="choose another name: a backup is never overwritten")
