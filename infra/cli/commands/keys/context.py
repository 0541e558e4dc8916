"""What the commands of ``deltarelay keys`` work with, from the configuration, and text that they share."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from audit.files import describe_failure, is_accessible_to_others
from cdf.errors import ConfigError
from infra.cli.project import load_project
from infra.output import Output

if TYPE_CHECKING:
    from audit.database import Database
    from audit.encryption.key_registry import Registry
    from audit.encryption.root_keys import Root
    from infra.config.erasure_models import ErasureKeys
    from infra.config.models import Project

__all__ = ["KeysContext", "format_minute", "show_progress"]

PROGRESS_SECONDS = 2.0


class KeysContext:
    """The ``keys`` of the ``erasure`` block. Connects to nothing until a method needs it."""

    def __init__(self, config: Path) -> None:
        self.project: Project = load_project(config)
        settings = None if self.project.erasure is None else self.project.erasure.key_registry
        if settings is None:
            raise ConfigError(
                f"{config} configures no key registry",
                hint='add to its block `erasure:` keys: {connection: NAME, root_key: "${file:/run/secrets/root.key}"}',
            )
        self.settings: ErasureKeys = settings

    @property
    def root(self) -> Root:
        """The configured root key."""
        return self.project.root_key(self.settings.root_key.get_secret_value())

    def open_root(self, location: str) -> Root:
        """Open another root key. ``location``: the path of a file, or aws_kms:ARN."""
        from audit.encryption.root_keys import KMS

        if location.startswith(KMS):
            return self.project.root_key(location)
        try:
            with Path(location).open(encoding="utf-8") as file:
                if is_accessible_to_others(os.fstat(file.fileno())):
                    raise ConfigError(f"other users can access the root key {location}", hint=f"chmod 600 {location}")
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the root key {location} cannot be read: {describe_failure(error)}",
                hint="name the file of a root key, or aws_kms:ARN; `deltarelay keys new-root FILE` creates one",
            ) from None
        return self.project.root_key(text)

    def open_registry(self) -> Registry:
        return self.project.key_registry()

    def open_database(self) -> Database:
        from audit.encryption.key_registry import registry_database

        return registry_database(self.project.keys_dsn(), self.settings.schema_name)


def show_progress(output: Output, label: str) -> Callable[[int], None]:
    """Return a function that prints the number of processed items every few seconds."""
    printed_at = time.monotonic()

    def progress(done: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= PROGRESS_SECONDS:
            printed_at = time.monotonic()
            output.note(f"{done:,} {label}")

    return progress


def format_minute(moment: dt.datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}Z"
