"""Checks of Delta's jars: are they here, or can they be fetched."""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.diagnostics.doctor.finding import Finding, failed, ok, skipped, warning
from infra.diagnostics.doctor.machine import Machine
from infra.s3.model import Storage
from infra.spark.jars import CENTRAL, examine_jars, find_cached_jars, find_incomplete_artifacts, ivy_folder
from infra.spark.session_builder import delta_package, find_jar_files

__all__ = ["jars", "maven", "refusal"]

_ELSEWHERE = ("spark.jars.ivySettings", "spark.jars.repositories")
_BY_PATH = (
    "or where there is a network run `deltarelay jars fetch DIR`, copy DIR to this machine and name it: `jars: [DIR]`, "
    "or DELTARELAY_JARS"
)
_PATIENCE_SECONDS = 5.0


def refusal(registry: str, package: str) -> str | None:
    """Why a Maven registry does not give a package; None where it does."""
    group, artifact, version = package.split(":")
    address = f"{registry}/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.pom"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=_PATIENCE_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}"
    except (OSError, ValueError) as error:
        return type(getattr(error, "reason", error)).__name__


def jars(machine: Machine, given: Sequence[Path], conf: Mapping[str, str], storage: Storage | None = None) -> Finding:
    """By path, else in Ivy's cache, else at the registry. ``storage``: those for S3 are needed too."""
    files = find_jar_files(list(given) or None, machine.environment)
    if files:
        local = [name for name in files if "://" not in name]
        found = examine_jars(local, storage)
        if found.problems and len(local) == len(files):
            return failed("jars", "; ".join(found.problems), "`deltarelay jars fetch DIR`, and name DIR alone")
        return ok("jars", f"{len(files)} given by path")
    ivy = ivy_folder(machine.home, conf)
    if find_cached_jars(ivy):
        return ok("jars", f"{delta_package()} is in {ivy}")
    if told := [name for name in _ELSEWHERE if name in conf]:
        text = f"{delta_package()} is not here yet, and {told[0]} says where it comes from: not looked at"
        return warning("jars", text, "`deltarelay doctor --spark` tries it")
    _, artifact, version = delta_package().split(":")
    reason = refusal(CENTRAL, delta_package())
    if reason is None:
        return ok("jars", f"{artifact} {version} is not here yet; the first start fetches it from {CENTRAL}")
    return failed(
        "jars",
        f"{artifact} {version} is not here, and {CENTRAL} cannot be reached ({reason})",
        f"check the network and the proxy, {_BY_PATH}",
    )


def maven(machine: Machine, given: Sequence[Path], conf: Mapping[str, str]) -> Finding:
    """Maven leaves descriptions without their jars; Ivy finds them first, believes them, and fails."""
    if find_jar_files(list(given) or None, machine.environment):
        return skipped("maven", "the jars are given by path, so nothing is looked for in ~/.m2")
    found = find_incomplete_artifacts(machine.home)
    if not found:
        return ok("maven", f"nothing in {machine.home / '.m2'} gets into the way of Spark's Ivy")
    certain = [one for one in found if one.certain]
    folders = [str(one.folder) for one in certain or found]
    shown = ", ".join(folders[:3]) + (f" and {len(folders) - 3} more" if len(folders) > 3 else "")
    text = f"{shown}: a .pom without its .jar, where Spark's Ivy looks first"
    fix = f"delete the folder{'s' if len(folders) > 1 else ''}: rm -r {shlex.join(folders)}"
    here_already = bool(find_cached_jars(ivy_folder(machine.home, conf)))
    return (failed if certain and not here_already else warning)("maven", text, fix)
