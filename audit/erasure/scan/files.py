"""Everything that is below the address of a table, on a disk or in a bucket."""

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
    """Below the table, with slashes."""
    size: int
    written: dt.datetime
    version: str | None = None
    """Of an object that has been replaced or deleted, and that its bucket keeps."""
    clears_on: dt.date | None = None
    """Of such a version: when the bucket drops it."""


class Files(Protocol):
    @property
    def address(self) -> str: ...

    def folders(self) -> Iterator[str]:
        """Names of the folders, also of empty ones. Asked after ``walk``."""
        ...

    def walk(self) -> Iterator[File]:
        """Every file, also hidden ones and former versions."""
        ...

    def open(self, file: File) -> BinaryIO:
        """Can be read from anywhere. Raises FileNotFoundError where it is gone meanwhile, OSError where it cannot be had."""
        ...

    def unseen(self) -> tuple[Unseen, ...]:
        """What is there, and nobody can read. Asked after ``walk``; places are names below the table."""
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

    def walk(self) -> Iterator[File]:
        self._folders, self._unseen = [], []
        for folder, inner, names in os.walk(self._folder, onerror=self._cannot):
            inner.sort()
            for name in inner:
                self._folders.append(self._below(folder, name))
                if Path(folder, name).is_symlink():
                    self._unseen.append(Unseen(self._below(folder, name), "a link to a folder, which is not followed"))
            for name in sorted(names):
                one = Path(folder, name)
                try:
                    told = one.stat()
                except FileNotFoundError:  # gone meanwhile, or a link to nothing
                    continue
                if one.is_file():
                    written = dt.datetime.fromtimestamp(told.st_mtime, dt.UTC)
                    yield File(self._below(folder, name), told.st_size, written)

    def _below(self, folder: str, name: str) -> str:
        return Path(folder, name).relative_to(self._folder).as_posix()

    def _cannot(self, error: OSError) -> None:
        """A folder that cannot be listed would otherwise be passed over in silence."""
        if not isinstance(error, FileNotFoundError):
            place = Path(str(error.filename)).relative_to(self._folder).as_posix()
            self._unseen.append(unseen_location("" if place == "." else place, error))

    def open(self, file: File) -> BinaryIO:
        return (self._folder / file.name).open("rb")

    def unseen(self) -> tuple[Unseen, ...]:
        return tuple(self._unseen)

    def delta_rs_options(self) -> None:
        return None
