"""Files of which a crash leaves all or nothing."""

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
    """Durable, or FileExistsError."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline=""
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def write_key(path: Path, secret: str, *, what: str) -> None:
    """Into a new file that only its owner can read. A key that is there is never overwritten."""
    try:
        write_new(path, secret + "\n", mode=0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"there is a file at {path} already", hint="choose another name: a lost key cannot be had back"
        ) from error
    except OSError as error:
        raise ConfigError(f"the {what} cannot be written to {path}: {describe_failure(error)}") from error


def is_accessible_to_others(found: os.stat_result) -> bool:
    """Whether other users than its owner can use a key file. Where root owns it its group may read: so secrets are
    mounted for a process that is not root."""
    return bool(found.st_mode & (0o037 if found.st_uid == 0 else 0o077))


def find_special_file(folder: Path) -> Path | None:
    """A pipe, a socket or a device at any depth, or a link to one: a process that opens it may wait without end."""
    seen: set[tuple[int, int]] = set()
    for inside, below, names in os.walk(folder, followlinks=True):
        with suppress(OSError):
            found = Path(inside).stat()
            if (found.st_dev, found.st_ino) in seen:  # links that lead in a circle
                below.clear()
                continue
            seen.add((found.st_dev, found.st_ino))
        for path in (Path(inside, name) for name in names):
            with suppress(OSError):  # gone meanwhile, or a link to nothing
                if not stat.S_ISREG(path.stat().st_mode):
                    return path
    return None


def sync_directory(directory: Path) -> None:
    """What was made in it or removed from it outlives a crash."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def describe_failure(error: Exception) -> str:
    """Why a file cannot be read or written, in the system's words."""
    return getattr(error, "strerror", None) or "it is no text"
