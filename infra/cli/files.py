"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from audit.files import describe_failure, write_new
from cdf.errors import ConfigError

__all__ = ["require_folder", "require_new", "write_output"]

_HINT = "choose another file name"


def require_new(path: Path) -> None:
    """Raise if there is a file, or a link, at ``path``: checked before the work whose result goes there."""
    if path.exists() or path.is_symlink():
        raise ConfigError(f"the file {path} already exists", hint=_HINT)


def require_folder(path: Path, what: str) -> None:
    """Raise if the folder of ``path`` is missing."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"the folder {path.parent} for {what} does not exist", hint="create it, or choose another one"
        )


def write_output(path: Path, text: str, *, mode: int, what: str) -> None:
    """Write a new file; raises if a file exists at ``path``."""
    try:
        write_new(path, text, mode=mode)
    except FileExistsError as error:
        raise ConfigError(f"the file {path} already exists", hint=_HINT) from error
    except OSError as error:
        raise ConfigError(f"{what} cannot be written to {path}: {describe_failure(error)}") from error
