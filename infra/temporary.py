"""The folder of this user below the temporary one, for logs of Spark and Ivy and for settings that Java reads."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from cdf.errors import ConfigError

__all__ = ["private_folder", "private_path", "what_is_wrong"]


def private_path(parent: Path | None = None) -> Path:
    return (parent or Path(tempfile.gettempdir())) / f"deltarelay-{os.getuid()}"


def private_folder() -> Path:
    """The folder, which nobody else can write to. Its name is known beforehand, so that another user may have made it, or
    a link in its place: ConfigError then."""
    folder = private_path()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if (wrong := what_is_wrong(folder)) is None:
            folder.chmod(0o700)  # Spark may have made it, for others to read
    except FileExistsError:
        wrong = "is no folder"
    except OSError as error:
        wrong = f"cannot be used ({error.strerror})"
    if wrong is not None:
        raise ConfigError(
            f"the temporary folder {folder} {wrong}",
            hint="remove it once it is known who made it, or set TMPDIR to a folder of your own",
        )
    return folder


def what_is_wrong(folder: Path) -> str | None:
    """In words; None: it is a folder of this user's that no other user can write to."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if found.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written to by other users" if found.st_mode & 0o022 else None
