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

from cdf.listing import list_some
from infra.diagnostics.doctor.finding import Finding, failed, ok, warning
from infra.spark.class_archive import find_archive
from infra.spark.jars import user_home
from infra.spark.java import require_java
from infra.spark_pairs import PAIRS, installed_pair
from infra.temporary import find_folder_problem, private_path

__all__ = [
    "LOW_BYTES",
    "TOO_LOW_BYTES",
    "Machine",
    "check_disk",
    "check_java",
    "check_packages",
    "check_python",
    "check_temporary_folder",
]

LOW_BYTES = 5_000_000_000
TOO_LOW_BYTES = 1_000_000_000

_PACKAGES = ("pyspark", "delta-spark")
_OLDEST_PYTHON = (3, 11)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Machine:
    """The input of the checks; tests replace it."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    free_bytes: Callable[[Path], int] = _free_bytes
    now: Callable[[], dt.datetime] = _utc_now
    installed: Callable[[str], str] = metadata.version

    @property
    def home(self) -> Path:
        return user_home(self.environment)

    @property
    def temporary(self) -> Path:
        """The requested folder. Python returns another one where it cannot be used."""
        named = (self.environment.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        return Path(next(filter(None, named), "/tmp"))

    def spark_folders(self, conf: Mapping[str, str]) -> list[Path]:
        """The folders for Spark's spill files, by the same rules as Spark."""
        folders = self.environment.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir")
        return [Path(one.strip()) for one in folders.split(",") if one.strip()] if folders else [Path("/tmp")]


def check_java(machine: Machine) -> Finding:
    java = require_java(machine.environment)
    if find_archive(java) is not None:
        return ok("java", f"{java}, with an archive of Spark's classes")
    return ok(
        "java", f"{java}; `deltarelay jars archive` would write its archive of Spark's classes: Spark starts faster"
    )


def check_python(_machine: Machine) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return failed("python", f"Python {version}", "use Python 3.11 or newer")
    return ok("python", f"Python {version} ({sys.executable})")


def check_packages(machine: Machine) -> Finding:
    """Each Delta release is built for one Spark release, but pip accepts other pairs."""
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = machine.installed(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    text = ", ".join(f"{name} {version or 'is not installed'}" for name, version in found.items())
    spark, delta = (found[name] for name in _PACKAGES)
    if spark is None or delta is None:
        return failed("packages", text, "pip install 'deltarelay[spark]'")
    pair = installed_pair(machine.installed)
    fix = f"pip install pyspark=={pair.spark} delta-spark=={pair.delta}"
    if not spark.startswith(f"{pair.line}."):
        known = list_some([f"{one.line} with Delta {one.delta_line}" for one in PAIRS], len(PAIRS))
        return failed("packages", f"{text}: deltarelay works with Spark {known}", fix)
    if not pair.fits(delta):
        return failed("packages", f"{text}: this Delta has no jars for Spark {pair.line}", fix)
    if not delta.startswith(f"{pair.delta_line}."):
        return warning("packages", f"{text}: deltarelay is not tested with this pair", fix)
    return ok("packages", text)


def check_temporary_folder(machine: Machine) -> Finding:
    folder = machine.temporary
    if not _is_usable(folder):
        return failed("temporary_folder", f"{folder} is missing or not writable", "set TMPDIR to a writable folder")
    # Logs of Spark and Ivy are written there; another user may have created it
    ours = private_path(folder)
    if os.path.lexists(ours) and (find_folder_problem(ours) or not _is_usable(ours)):
        return failed(
            "temporary_folder", f"{ours} belongs to another user or is not private", f"remove {ours}, or set TMPDIR"
        )
    return ok("temporary_folder", f"{folder} is writable")


def check_disk(machine: Machine, conf: Mapping[str, str]) -> Finding:
    """The free space of the temporary folder and of Spark's folders; the smallest counts."""
    folders = [machine.temporary, *machine.spark_folders(conf)]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        return failed("disk", f"{missing[0]} does not exist", f"create it, or correct TMPDIR or {_SPARK_SETTING}")
    free, folder = min((machine.free_bytes(folder), folder) for folder in folders)
    text = f"{free / 1e9:,.1f} GB free in {folder}"
    if free >= LOW_BYTES:
        return ok("disk", text)
    fix = f"free some space, or set TMPDIR and {_SPARK_SETTING} to a folder with more space"
    return (failed if free < TOO_LOW_BYTES else warning)("disk", text, fix)


_SPARK_SETTING = "spark.local.dir (under spark.conf)"


def _is_usable(folder: Path) -> bool:
    """Checked without writing. Even root cannot write to a read-only file system."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return False
    return not os.statvfs(folder).f_flag & os.ST_RDONLY
