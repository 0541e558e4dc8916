"""Lists and opens everything below the address of a table, on a disk or in a bucket."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from audit.erasure.scan.results import Unseen, unseen_location

__all__ = ["File", "Files", "LocalFiles"]


@dataclass(frozen=True, slots=True)
class File:
    name: str
    """Relative to the table, with slashes."""
    size: int
    written: dt.datetime
    version: str | None = None
    """Id of an object version that was replaced or deleted, and that its bucket retains."""
    clears_on: dt.date | None = None
    """When the bucket removes such a version."""


class Files(Protocol):
    @property
    def address(self) -> str: ...

    def folders(self) -> Iterator[str]:
        """Return the names of the folders, also of empty ones. Call it after ``list_files``."""
        ...

    def list_files(self) -> Iterator[File]:
        """Yield every file, also hidden ones and former versions."""
        ...

    def open(self, file: File) -> BinaryIO:
        """Return a seekable file. Raises FileNotFoundError where it is gone, OSError where it cannot be read."""
        ...

    def unseen(self) -> tuple[Unseen, ...]:
        """Return what cannot be read. Call it after ``list_files``; places are relative to the table."""
        ...

    def delta_rs_options(self) -> Mapping[str, str] | None: ...


class LocalFiles:
    def __init__(self, path: str) -> None:
        self._folder = Path(path.removeprefix("file://").removeprefix("file:"))
        if not self._folder.is_dir():
            raise FileNotFoundError(path)
        self._folders: list[str] = []
        self._unseen: list[Unseen] = []

    @property
    def address(self) -> str:
        return str(self._folder)

    def folders(self) -> Iterator[str]:
        return iter(self._folders)

    def list_files(self) -> Iterator[File]:
        self._folders, self._unseen = [], []
        for folder, inner, names in os.walk(self._folder, onerror=self._record_error):
            inner.sort()
            for name in inner:
                self._folders.append(self._below(folder, name))
                if Path(folder, name).is_symlink():
                    self._unseen.append(Unseen(self._below(folder, name), "a link to a folder, which is not followed"))
            for name in sorted(names):
                one = Path(folder, name)
                try:
                    status = one.stat()
                except FileNotFoundError:  # deleted in the meantime, or a dangling link
                    continue
                if one.is_file():
                    written = dt.datetime.fromtimestamp(status.st_mtime, dt.UTC)
                    yield File(self._below(folder, name), status.st_size, written)

    def _below(self, folder: str, name: str) -> str:
        return Path(folder, name).relative_to(self._folder).as_posix()

    def _record_error(self, error: OSError) -> None:
        """Record a folder that cannot be listed: ``os.walk`` would ignore it."""
        if not isinstance(error, FileNotFoundError):
            place = Path(str(error.filename)).relative_to(self._folder).as_posix()
            self._unseen.append(unseen_location("" if place == "." else place, error))

    def open(self, file: File) -> BinaryIO:
        return (self._folder / file.name).open("rb")

    def unseen(self) -> tuple[Unseen, ...]:
        return tuple(self._unseen)

    def delta_rs_options(self) -> None:
        return None
