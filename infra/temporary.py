"""A private folder of this user inside the temporary folder: logs of Spark and Ivy, and settings that Java reads."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from cdf.errors import ConfigError

__all__ = ["private_folder", "private_path", "find_folder_problem"]


def private_path(parent: Path | None = None) -> Path:
    return (parent or Path(tempfile.gettempdir())) / f"deltarelay-{os.getuid()}"


def private_folder() -> Path:
    """The folder; no other user can write to it. Its name is predictable, so another user may have created it, or a link in
    its place: then ConfigError is raised."""
    folder = private_path()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if (problem := find_folder_problem(folder)) is None:
            folder.chmod(0o700)  # Spark may have created it readable for others
    except FileExistsError:
        problem = "is not a folder"
    except OSError as error:
        problem = f"cannot be used ({error.strerror})"
    if problem is not None:
        raise ConfigError(
            f"the temporary folder {folder} {problem}",
            hint="find out who created it and remove it, or set TMPDIR to a folder of your own",
        )
    return folder


def find_folder_problem(folder: Path) -> str | None:
    """Why the folder must not be used; None: it is owned by this user, and no other user can write to it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.getuid():
        return "belongs to another user"
    return "is writable for other users" if status.st_mode & 0o022 else None
