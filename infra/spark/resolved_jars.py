"""Remembers which jars Spark's Ivy has resolved, so that later starts need not resolve them again.

Resolving takes seconds of each start, although the coordinates name exact versions and the jars are on this machine. Only
our own packages are remembered: Spark also searches the packages of a user for Python modules.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from infra.temporary import find_folder_problem

__all__ = ["cache_folder", "find_resolved_jars", "keep_resolved_jars", "use_jars"]

_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltarelay"


def find_resolved_jars(settings: Mapping[str, str]) -> list[str]:
    """The jars to which Ivy has resolved the packages of these settings; empty where one of them is gone or has changed."""
    with suppress(OSError, RuntimeError, ValueError, TypeError, AttributeError):
        if find_folder_problem(cache_folder()) is not None:  # Java runs what the file names
            return []
        known: dict[str, list[int]] = json.loads(_file(settings).read_text(encoding="utf-8"))
        if all(_identify(name) == identity for name, identity in known.items()):
            return list(known)
    return []


def keep_resolved_jars(settings: Mapping[str, str], jars: Sequence[str]) -> None:
    """``jars``: paths or ``file:`` URLs, as Spark names them. If they cannot be kept, the next start resolves them again."""
    addresses = [urlsplit(name) for name in jars]
    if not all(one.path and one.scheme in ("", "file") for one in addresses):
        return
    with suppress(OSError, RuntimeError):  # no folder that can be written, or no home
        known = {path: _identify(path) for path in (unquote(one.path) for one in addresses)}
        file = _file(settings)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(known), encoding="utf-8")
        new.replace(file)


def use_jars(settings: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """The settings with jars in place of packages, none of which may come from ``spark-defaults.conf`` instead."""
    chosen = ",".join(filter(None, [*jars, settings.get(_JARS, "")]))
    return {**settings, _PACKAGES: "", "spark.jars.excludes": "", _JARS: chosen}


def _file(settings: Mapping[str, str]) -> Path:
    wanted = {name: value for name, value in settings.items() if name.startswith(_JARS)}
    key = hashlib.sha256(json.dumps([str(Path.home()), wanted], sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / f"jars-{key}.json"


def _identify(path: str) -> list[int]:
    status = Path(path).stat()
    return [status.st_size, status.st_mtime_ns]
