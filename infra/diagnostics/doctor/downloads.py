"""Checks whether Delta's jars are available or can be fetched."""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdf.listing import list_some
from infra.diagnostics.doctor.finding import Finding, failed, ok, skipped, warning
from infra.diagnostics.doctor.machine import Machine
from infra.s3.model import Storage
from infra.spark.jars import CENTRAL, examine_jars, find_cached_jars, find_incomplete_artifacts, ivy_folder
from infra.spark.session_builder import find_jar_files
from infra.spark_pairs import delta_package

__all__ = ["check_jars", "check_maven", "ask_registry"]

_ELSEWHERE = ("spark.jars.ivySettings", "spark.jars.repositories")
_BY_PATH = (
    "or run `deltarelay jars fetch DIR` on a machine with network access, copy DIR to this machine and name it: "
    "`jars: [DIR]`, or DELTARELAY_JARS"
)
_PATIENCE_SECONDS = 5.0


def ask_registry(registry: str, package: str) -> str | None:
    """Why a Maven registry does not provide a package; None where it does."""
    group, artifact, version = package.split(":")
    address = f"{registry}/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.pom"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=_PATIENCE_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except (OSError, ValueError) as error:
        return type(getattr(error, "reason", error)).__name__


def check_jars(
    machine: Machine, given: Sequence[Path], conf: Mapping[str, str], storage: Storage | None = None
) -> Finding:
    """Given by path, else in Ivy's cache, else in the registry. ``storage``: the jars for S3 are needed as well."""
    files = find_jar_files(list(given) or None, machine.environment)
    if files:
        local = [name for name in files if "://" not in name]
        found = examine_jars(local, storage)
        if found.problems and len(local) == len(files):
            return failed("jars", "; ".join(found.problems), "run `deltarelay jars fetch DIR`, and name only DIR")
        return ok("jars", f"{len(files)} jars are given by path")
    ivy = ivy_folder(machine.home, conf)
    if find_cached_jars(ivy):
        return ok("jars", f"{delta_package()} is in {ivy}")
    if sources := [name for name in _ELSEWHERE if name in conf]:
        text = (
            f"{delta_package()} is not on this machine yet, and {sources[0]} names its registry, which was not checked"
        )
        return warning("jars", text, "try it with `deltarelay doctor --spark`")
    _, artifact, version = delta_package().split(":")
    reason = ask_registry(CENTRAL, delta_package())
    if reason is None:
        return ok("jars", f"{artifact} {version} is not on this machine yet; the first start fetches it from {CENTRAL}")
    return failed(
        "jars",
        f"{artifact} {version} is not on this machine, and {CENTRAL} cannot be reached ({reason})",
        f"check the network and the proxy, {_BY_PATH}",
    )


def check_maven(machine: Machine, given: Sequence[Path], conf: Mapping[str, str]) -> Finding:
    """Maven may leave a .pom without its jar. Ivy finds it first, and then fails."""
    if find_jar_files(list(given) or None, machine.environment):
        return skipped("maven", "the jars are given by path, so ~/.m2 is not used")
    found = find_incomplete_artifacts(machine.home)
    if not found:
        return ok("maven", f"nothing in {machine.home / '.m2'} interferes with Spark's Ivy")
    certain = [one for one in found if one.certain]
    folders = [str(one.folder) for one in certain or found]
    text = f"{list_some(folders, 3)}: a .pom without its jar, where Spark's Ivy looks first"
    fix = f"delete the folder{'s' if len(folders) > 1 else ''}: rm -r {shlex.join(folders)}"
    is_cached = bool(find_cached_jars(ivy_folder(machine.home, conf)))
    return (failed if certain and not is_cached else warning)("maven", text, fix)
