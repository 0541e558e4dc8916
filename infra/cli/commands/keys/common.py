"""From the configuration to the key registry, its root key, and the one that somebody names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from audit.files import is_open_to_others, reason
from cdf.errors import ConfigError
from infra.output import Output

if TYPE_CHECKING:
    from audit.database import Database
    from audit.encryption.key_registry import Registry
    from audit.encryption.root_keys import Root
    from infra.config.erasure_models import ErasureKeys
    from infra.config.models import Project

__all__ = ["Safe", "told"]

TELL_SECONDS = 2.0


class Safe:
    """The ``keys`` of the ``erasure`` block, at work. Opens nothing before it is asked."""

    def __init__(self, config: Path) -> None:
        from infra.config.load import load

        self.project: Project = load(config)
        found = None if self.project.erasure is None else self.project.erasure.key_registry
        if found is None:
            raise ConfigError(
                f"{config} says nothing about keys of persons",
                hint='add to its block `erasure:` keys: {connection: NAME, root_key: "${file:/run/secrets/root.key}"}',
            )
        self.settings: ErasureKeys = found

    @property
    def root(self) -> Root:
        return self.project.root_key(self.settings.root_key.get_secret_value())

    def root_at(self, place: str) -> Root:
        """By the path of a file, or by aws_kms:ARN."""
        from audit.encryption.root_keys import KMS

        if place.startswith(KMS):
            return self.project.root_key(place)
        try:
            with Path(place).open(encoding="utf-8") as file:
                if is_open_to_others(os.fstat(file.fileno())):
                    raise ConfigError(f"others than its owner can use the root key {place}", hint=f"chmod 600 {place}")
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the root key {place} cannot be read: {reason(error)}",
                hint="a root key is named by its file, or by aws_kms:ARN; `deltarelay keys new-root FILE` makes one",
            ) from None
        return self.project.root_key(text)

    def registry(self) -> Registry:
        return self.project.key_registry()

    def database(self) -> Database:
        from audit.encryption.key_registry import registry_database

        return registry_database(self.project.keys_dsn(), self.settings.schema_name)


def told(output: Output, what: str) -> Callable[[int], None]:
    """A line every now and then, with how many are done."""
    last = time.monotonic()

    def progress(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_SECONDS:
            last = time.monotonic()
            output.note(f"{done:,} {what}")

    return progress
