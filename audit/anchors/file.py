"""An anchor in a directory."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from audit.anchors.base import (
    LARGEST_NOTE,
    call_with_timeout,
    check_stored,
    file_name,
    folder_name,
    larger_checkpoint_exists,
    parse_note,
)
from audit.errors import AnchorUnavailable
from audit.files import describe_failure, sync_directory, write_new
from audit.proof import Checkpoint

__all__ = ["FileAnchor"]


class FileAnchor:
    """A directory, ideally on write-once storage, with one file per checkpoint: ``<hash of origin>/<size>.txt``.

    The directory must exist: if it were created while its storage is not mounted, the checkpoints would not be kept. A file
    gets its name by a hard link, so it is always complete, and never overwrites another one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, origin: str, note: str) -> None:
        checkpoint = parse_note(origin, note)
        with self._reachable():
            call_with_timeout(lambda: self._publish(origin, note, checkpoint))

    def _publish(self, origin: str, note: str, checkpoint: Checkpoint) -> None:
        if not self._directory.is_dir():
            raise FileNotFoundError(0, "no such directory")
        folder = self._folder(origin)
        folder.mkdir(exist_ok=True)
        sync_directory(self._directory)
        file, temporary = folder / file_name(checkpoint.size), folder / f".{uuid.uuid4().hex}"
        if not file.exists():
            if (sizes := self._files(origin)) and sizes[-1].name > file.name:
                raise larger_checkpoint_exists(str(self._directory), checkpoint)
            try:
                write_new(temporary, note, mode=0o444)
                with suppress(FileExistsError):  # another process was faster; the content is compared below
                    os.link(temporary, file)
            finally:
                with suppress(OSError):  # write-once storage keeps the file under its hidden name
                    temporary.unlink(missing_ok=True)
        # Also for an existing file: its writer may have died before it was durable
        sync_directory(folder)
        check_stored(str(self._directory), checkpoint, _read(file))

    def latest(self, origin: str) -> str | None:
        with self._reachable():
            files = call_with_timeout(lambda: self._files(origin))
            return _read(files[-1]) if files else None

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        with self._reachable():
            files = call_with_timeout(lambda: self._files(origin))
            yield from (_read(file) for file in files if file.name >= file_name(least))

    def _folder(self, origin: str) -> Path:
        return self._directory / folder_name(origin)

    def _files(self, origin: str) -> list[Path]:
        if not self._directory.is_dir():
            raise FileNotFoundError(0, "no such directory")
        return sorted(self._folder(origin).glob("[0-9]" * 20 + ".txt"))

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise AnchorUnavailable(
                f"the anchor {self._directory} cannot be used: {describe_failure(error)}",
                hint="check that it is mounted and that this user may write to it",
                anchor=str(self._directory),
            ) from error


def _read(file: Path) -> str:
    """A damaged file is returned as it is: no signature will match. For anything but a regular file the text is empty."""
    return call_with_timeout(lambda: _content(file)).decode(errors="replace")


def _content(file: Path) -> bytes:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe would wait for a writer
    except OSError as error:
        # The storage answers, but has no readable note: that is not AnchorUnavailable
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.ELOOP):
            return b""
        if error.errno == errno.ENOENT and file.is_symlink():
            return b""
        raise
    try:
        return os.read(handle, LARGEST_NOTE) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)
