"""Checks for tables on S3: buckets, lock table, coordination of writers, the log store's jar, spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from infra.diagnostics.doctor.downloads import ask_registry
from infra.diagnostics.doctor.finding import Finding, failed, from_error, ok, run_check, run_checks, warning
from infra.diagnostics.doctor.machine import Machine
from infra.s3.address import S3Address, is_s3
from infra.s3.lock.check import check
from infra.s3.model import SingleWriterCommits
from infra.s3.packages import LOG_STORE_ARTIFACT, list_packages, uses_lock_table
from infra.s3.probe import find_bucket_problems
from infra.s3.settings import fill_in_region
from infra.s3.spark_settings import java_options, spark_conf
from infra.spark.jars import CENTRAL, find_in_ivy, ivy_folder
from infra.spark.session_builder import NO_LOG_STORE, find_jar_files

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["check_storage"]

_OTHER_SPELLING = re.compile(r"(?i)\bs3n?://[a-z0-9][a-z0-9.-]*")
_NO_COMMITS = (
    "to write to S3, set `storage: {commits: {kind: dynamodb, table: delta_log}}`, then run "
    "`deltarelay storage lock create`"
)


def check_storage(machine: Machine, project: Project, config: Path | None) -> list[Finding]:
    found = run_checks("bucket", lambda: _check_buckets(project))
    found.append(run_check("commits", lambda: _check_commits(project)))
    if uses_lock_table(project.storage):
        found += run_checks("lock", lambda: _check_lock(project))
        found.append(run_check("log_store", lambda: _check_log_store(machine, project)))
    found.append(run_check("s3_settings", lambda: _check_settings(machine, project)))
    if config is not None:
        found.append(run_check("spelling", lambda: _check_spelling(config)))
    return found


def _check_buckets(project: Project) -> Iterator[Finding]:
    """Each bucket: it may be missing, in another region, forbidden, or not answer."""
    tables = [one.source.table for one in project.pipelines.values() if is_s3(one.source.table)]
    problems = find_bucket_problems(fill_in_region(project.storage), tables)
    for name in dict.fromkeys(S3Address.parse(table).bucket for table in tables):
        yield from_error("bucket", problems[name]) if name in problems else ok("bucket", f"{name} can be read")


def _check_commits(project: Project) -> Finding:
    commits = project.storage.commits
    if commits is None:
        text = "there is no `commits:` block: reading from S3 needs none, and deltarelay does not write there"
        return warning("commits", text, _NO_COMMITS)
    if isinstance(commits, SingleWriterCommits):
        text = "single_writer: nothing coordinates writers; with a second writer commits are lost without an error"
        return warning("commits", text, f"make sure that exactly one process writes each table; or, {_NO_COMMITS}")
    return ok("commits", f"writers are coordinated by the lock table {commits.table}")


def _check_lock(project: Project) -> Iterator[Finding]:
    table = check(fill_in_region(project.storage))
    for one in table.deviations:
        yield (failed if one.severity == "breaks" else warning)("lock", one.found, one.fix)
    if not table.deviations:
        yield ok("lock", f"{table.table} in {table.region} is set up as Delta requires")


def _check_log_store(machine: Machine, project: Project) -> Finding:
    """Among the jars given by path, else in Ivy's cache, else in the registry."""
    conf = project.spark.settings()
    (package,) = (one for one in list_packages(project.storage) if LOG_STORE_ARTIFACT in one)
    if find_jar_files(list(project.jars) or None, machine.environment):
        return ok("log_store", "the jars are given by path: see jars")
    if LOG_STORE_ARTIFACT in conf.get("spark.jars", ""):
        return ok("log_store", "is named under spark.jars")
    if find_in_ivy(ivy_folder(machine.home, conf), package):
        return ok("log_store", f"{package} is on this machine")
    reason = ask_registry(CENTRAL, package)
    if reason is None:
        return ok("log_store", f"{package} is not on this machine yet; the first start fetches it from {CENTRAL}")
    return failed(
        "log_store", f"{package} is not on this machine, and {CENTRAL} does not provide it ({reason})", NO_LOG_STORE
    )


def _check_settings(machine: Machine, project: Project) -> Finding:
    """Settings that Spark does not support: a lock table without a region, a role for the log store, plain HTTP."""
    found = fill_in_region(project.storage)
    spark_conf(found)
    java_options(found, None, environment=machine.environment)
    return ok("s3_settings", "Spark supports all settings of `storage`")


def _check_spelling(config: Path) -> Finding:
    lines = config.read_text(encoding="utf-8-sig").splitlines()
    found = [number for number, line in enumerate(lines, 1) if _OTHER_SPELLING.search(line.partition("#")[0])]
    if not found:
        return ok("spelling", "every address on S3 begins with s3a://")
    where = ", ".join(map(str, found))
    text = f"line {where} of {config.name} has s3:// instead of s3a://: for a lock table these are two tables"
    fix = "write s3a:// there and in all other writers of the table; deltarelay reads it as s3a://"
    return warning("spelling", text, fix)
