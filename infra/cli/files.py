"""Files that commands write: results and keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from audit.files import describe_failure, write_new
from cdf.errors import ConfigError
from cdf.result import Result
from infra.output import Output

__all__ = ["KeyMade", "create_signing_key", "require_folder", "require_new", "write_output"]

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


@dataclass(frozen=True, slots=True)
class KeyMade(Result):
    key_file: str
    verifier_key: str


def create_signing_key(output: Output, name: str, path: Path, *, private: str, public: str) -> None:
    """Write a new signing key, and print its verifier key. ``private``, ``public``: what to know about the two keys."""
    from audit.signing.signer import Signer

    signer = Signer.generate(name)
    signer.write(path)
    result = KeyMade(str(path), str(signer.verifier))
    output.line(f"private key   {path}  ({private})")
    output.line(f"verifier key  {result.verifier_key}  ({public})")
    output.result(result)
