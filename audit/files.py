"""Durable files, and checks of files that other users may have created."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from cdf.errors import ConfigError

__all__ = [
    "sync_directory",
    "is_accessible_to_others",
    "describe_failure",
    "find_special_file",
    "write_key",
    "write_new",
]


def write_new(path: Path, text: str, *, mode: int) -> None:
    """Write a new file and make it durable. Raises FileExistsError."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline=""
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def write_key(path: Path, secret: str, *, what: str) -> None:
    """Write a key to a new file that only its owner can read. An existing file is never overwritten. ``what``: for
    messages."""
    try:
        write_new(path, secret + "\n", mode=0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"the file {path} already exists", hint="choose another name: an overwritten key cannot be recovered"
        ) from error
    except OSError as error:
        raise ConfigError(f"the {what} cannot be written to {path}: {describe_failure(error)}") from error


def is_accessible_to_others(status: os.stat_result) -> bool:
    """Whether other users than the owner can access a key file. If root owns it, its group may read it, as with secrets that
    are mounted for a process without root rights."""
    return bool(status.st_mode & (0o037 if status.st_uid == 0 else 0o077))


def find_special_file(folder: Path) -> Path | None:
    """Find a pipe, a socket or a device at any depth, or a link to one: a process that opens it may wait forever."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        with suppress(OSError):
            found = Path(parent).stat()
            if (found.st_dev, found.st_ino) in seen:  # a cycle of links
                folders.clear()
                continue
            seen.add((found.st_dev, found.st_ino))
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):  # deleted meanwhile, or a dangling link
                if not stat.S_ISREG(path.stat().st_mode):
                    return path
    return None


def sync_directory(directory: Path) -> None:
    """Make created and removed entries of the directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def describe_failure(error: Exception) -> str:
    """Why a file cannot be read or written, as the operating system says it."""
    return getattr(error, "strerror", None) or "it is not text"
