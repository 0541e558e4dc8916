"""Checks of this machine: Java, packages, folders, disk. They need no configuration."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from infra.diagnostics.doctor.finding import Finding, failed, ok, warning
from infra.spark.jars import user_home
from infra.spark.java import require_java
from infra.temporary import find_folder_problem, private_path

__all__ = ["LOW_BYTES", "TOO_LOW_BYTES", "Machine", "disk", "java", "packages", "python", "temporary_folder"]

LOW_BYTES = 5_000_000_000
TOO_LOW_BYTES = 1_000_000_000

_PAIR = {"pyspark": "4.2.", "delta-spark": "4.4."}
_OLDEST_PYTHON = (3, 11)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at, so that a test can put another one in its place."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    free_bytes: Callable[[Path], int] = _free_bytes
    now: Callable[[], dt.datetime] = _utc_now
    installed: Callable[[str], str] = metadata.version

    @property
    def home(self) -> Path:
        return user_home(self.environment)

    @property
    def temporary(self) -> Path:
        """What was asked for. Python's own answer is another one where that cannot be used."""
        named = (self.environment.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        return Path(next(filter(None, named), "/tmp"))

    def spark_folders(self, conf: Mapping[str, str]) -> list[Path]:
        """Where Spark puts what does not fit into memory, in the order in which it looks for that itself."""
        told = self.environment.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir")
        return [Path(one.strip()) for one in told.split(",") if one.strip()] if told else [Path("/tmp")]


def java(machine: Machine) -> Finding:
    return ok("java", str(require_java(machine.environment)))


def python(_machine: Machine) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return failed("python", f"Python {version}", "use Python 3.11 or newer")
    return ok("python", f"Python {version} ({sys.executable})")


def packages(machine: Machine) -> Finding:
    """Delta is built for one line of Spark; pip lets other pairs in all the same."""
    found: dict[str, str | None] = {}
    for name in _PAIR:
        try:
            found[name] = machine.installed(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    text = ", ".join(f"{name} {version or 'is not installed'}" for name, version in found.items())
    if all(version is not None and version.startswith(_PAIR[name]) for name, version in found.items()):
        return ok("packages", text)
    wanted = " ".join(f"'{name}=={line}*'" for name, line in _PAIR.items())
    return failed("packages", text, f"pip install {wanted}")


def temporary_folder(machine: Machine) -> Finding:
    folder = machine.temporary
    if not _usable(folder):
        return failed("temporary_folder", f"{folder} is not there, or cannot be written", "set TMPDIR to one that can")
    # Logs of Spark and Ivy go there; somebody else may have made it first
    ours = private_path(folder)
    if os.path.lexists(ours) and (find_folder_problem(ours) or not _usable(ours)):
        return failed("temporary_folder", f"{ours} is not ours to write in", f"remove {ours}, or set TMPDIR")
    return ok("temporary_folder", f"{folder} can be written")


def disk(machine: Machine, conf: Mapping[str, str]) -> Finding:
    """The folder with the least room: the temporary one and Spark's own."""
    folders = [machine.temporary, *machine.spark_folders(conf)]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        return failed("disk", f"{missing[0]} is not there", f"make it, or correct TMPDIR or {_SPARK_SETTING}")
    free, folder = min((machine.free_bytes(folder), folder) for folder in folders)
    text = f"{free / 1e9:,.1f} GB free in {folder}"
    if free >= LOW_BYTES:
        return ok("disk", text)
    fix = f"free some, or set TMPDIR and {_SPARK_SETTING} to a folder with more room"
    return (failed if free < TOO_LOW_BYTES else warning)("disk", text, fix)


_SPARK_SETTING = "spark.local.dir (under spark.conf)"


def _usable(folder: Path) -> bool:
    """As far as it can be told without writing; also root cannot write to a read-only file system."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return False
    return not os.statvfs(folder).f_flag & os.ST_RDONLY
