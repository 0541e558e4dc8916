"""Errors of the key registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdf.errors import ConfigError

__all__ = [
    "RegistryIncomplete",
    "empty_registry_error",
    "not_upgraded_error",
    "other_root_error",
    "reused_root_error",
    "translate_missing_macs",
]

_UNDEFINED_COLUMN = "42703"


class RegistryIncomplete(ConfigError):
    """Tables of the key registry are missing."""

    code = "key_registry_incomplete"


def other_root_error(current: str, configured: str) -> ConfigError:
    return ConfigError(
        f"the key registry uses the root key {current}, but {configured} is configured",
        hint="configure the root key that the last `deltarelay keys rotate` changed to; if that rotation was interrupted, "
        "run it again",
    )


def empty_registry_error() -> ConfigError:
    return ConfigError("the key registry is empty", hint="`deltarelay keys init` initializes it")


def reused_root_error() -> ConfigError:
    return ConfigError(
        "each epoch needs a root key of its own: if a key is reused, older backups can be decrypted",
        hint="generate a new root key and name it",
    )


@contextmanager
def translate_missing_macs() -> Iterator[None]:
    """Report a registry of an earlier release instead of an undefined column."""
    try:
        yield
    except ConfigError as error:
        if error.condition != _UNDEFINED_COLUMN:
            raise
        raise not_upgraded_error() from None


def not_upgraded_error() -> ConfigError:
    return ConfigError(
        "the key registry was created by a release that did not authenticate the links from identifiers to people",
        hint="make sure that the registry was not altered, then run `deltarelay keys upgrade` once; if it was upgraded "
        "before, it has been altered since: restore a backup",
    )
