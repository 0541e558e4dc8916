"""Files of which a crash leaves all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["durable", "reason", "write_new"]


def write_new(path: Path, text: str, *, mode: int) -> None:
    """Durable, or FileExistsError."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline=""
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    durable(path.parent)


def durable(directory: Path) -> None:
    """What was made in it or removed from it outlives a crash."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason(error: Exception) -> str:
    """Why a file cannot be read or written, in the system's words."""
    return getattr(error, "strerror", None) or "it is no text"
